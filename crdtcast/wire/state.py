"""The state of a group's member as plain lists, for the wire and for journals; and the data for a joiner.

Anything else is a `RemoteProtocolError`, since it may come from a peer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Tag
from crdtcast.engine import Cut, GroupState, MemberInfo
from crdtcast.engine.checks import check_state
from crdtcast.engine.membership import Early
from crdtcast.engine.operations import read_level, read_span
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from crdtcast.msgpack_limits import unpacked
from crdtcast.wire.fields import (
    message_fields,
    read_dot,
    read_incarnation,
    read_message,
    read_number,
    read_text,
    read_vector,
)
from crdtcast.wire.view_frames import (
    pack_decided,
    pack_record,
    pack_view,
    pack_wants,
    read_decided,
    read_flag,
    read_how,
    read_record,
    read_view,
    read_wants,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of an application: tcdeliver of `payload`, or tcstable if that is None."""

    tag: Tag
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class JoinerEntry:
    """What a contact sends to the member that it admits: its id, the group's id (see `wire.group_frames.Here`), the
    group's state at that instant, and the events of the application since its state was copied.
    """

    incarnation: str
    group_id: str
    state: GroupState
    since: Sequence[Happened]


def pack_state(state: GroupState) -> list[Any]:
    """`state` as a list for msgpack."""
    return [
        state.counter,
        dict(state.vector),
        [list(dot) for dot in state.context],
        dict(state.stable),
        [message_fields(message) for message in state.unstable],
        [[m.incarnation, m.witness, *m.reads, m.said_at] for m in state.members],
        dict(state.replaced),
        _pack_cuts(state.ended),
        {incarnation: list(dot) for incarnation, dot in state.swept.items()},
        {x: [_pack_early(each) for each in early] for x, early in state.early.items()},
        _pack_cuts(state.tombs),
        state.dropped,
        pack_view(state.view),
        None if state.record is None else pack_record(state.record),
        [pack_decided(each) for each in state.decided],
        dict(state.frozen),
        _pack_cuts(state.cuts),
        state.agreed,
        pack_wants(state.wants),
    ]


def unpack_state(packed: Any) -> GroupState:
    """The inverse of `pack_state`. Raises RemoteProtocolError."""
    return _read(_state, packed, "state of a group")


def pack_entry(entry: JoinerEntry) -> bytes:
    """`entry` as bytes."""
    since = [[*_pack_tag(happened.tag), happened.payload] for happened in entry.since]
    packed: bytes = msgpack.packb(
        [entry.incarnation, entry.group_id, pack_state(entry.state), since]
    )
    return packed


def unpack_entry(packed: bytes) -> JoinerEntry:
    """The inverse of `pack_entry`. Raises RemoteProtocolError, also if no member can have that state."""
    entry = _read(_entry, packed, "admission")
    try:
        check_state(entry.incarnation, entry.state, complete=True)
    except ConfigurationError as error:
        raise RemoteProtocolError(f"invalid admission: {error}") from error
    return entry


def _read(read: Callable[[Any], T], packed: Any, what: str) -> T:
    try:
        return read(packed)
    except RemoteProtocolError:
        raise
    except Exception as error:  # msgpack raises many kinds, and so do wrong shapes
        raise RemoteProtocolError(f"invalid {what}: {type(error).__name__}: {error}") from error


def _pack_cuts(cuts: Any) -> dict[str, list[int]]:
    return {incarnation: [cut.counter, int(cut.how)] for incarnation, cut in cuts.items()}


def _pack_tag(tag: Tag) -> list[Any]:
    return [list(tag.dot), [list(dot) for dot in tag.context], dict(tag.past)]


def _cuts(packed: Any) -> dict[str, Cut]:
    return {
        read_incarnation(x): Cut(read_number(counter, "a cut"), read_how(how))
        for x, (counter, how) in packed.items()
    }


def _pack_early(early: Early) -> list[Any]:
    return [early.counter, None if early.swept is None else list(early.swept), early.settled]


def _early(packed: Any) -> Early:
    counter, swept, settled = packed
    dot = None if swept is None else read_dot(*swept)
    return Early(read_number(counter, "a counter"), dot, read_flag(settled))


def _message(fields: Any) -> Message:
    return read_message(fields)


def _state(packed: Any) -> GroupState:
    (
        counter,
        vector,
        context,
        stable,
        unstable,
        members,
        replaced,
        ended,
        swept,
        early,
        tombs,
        dropped,
        view,
        record,
        decided,
        frozen,
        cuts,
        agreed,
        wants,
    ) = packed
    return GroupState(
        counter=read_number(counter, "a counter"),
        vector=read_vector(vector),
        context=tuple(read_dot(*dot) for dot in context),
        stable=read_vector(stable),
        unstable=tuple(map(_message, unstable)),
        members=tuple(
            MemberInfo(
                read_incarnation(x),
                read_flag(witness),
                read_span(lowest, highest),
                read_number(said_at, "a counter"),
            )
            for x, witness, lowest, highest, said_at in members
        ),
        replaced={read_incarnation(old): read_incarnation(new) for old, new in replaced.items()},
        ended=_cuts(ended),
        swept={read_incarnation(x): read_dot(*dot) for x, dot in swept.items()},
        early={read_incarnation(x): tuple(map(_early, each)) for x, each in early.items()},
        tombs=_cuts(tombs),
        dropped=read_number(dropped, "a sum of counters"),
        view=read_view(view),
        record=None if record is None else read_record(record),
        decided=tuple(map(read_decided, decided)),
        frozen=read_vector(frozen),
        cuts=_cuts(cuts),
        agreed=read_level(agreed),
        wants=read_wants(wants),
    )


def _entry(packed: bytes) -> JoinerEntry:
    incarnation, group_id, state, since = unpacked(packed)
    return JoinerEntry(
        read_incarnation(incarnation),
        read_text(group_id, "a group's id"),
        _state(state),
        tuple(map(_happened, since)),
    )


def _happened(packed: Any) -> Happened:
    dot, context, past, payload = packed
    if payload is not None and type(payload) is not bytes:
        raise RemoteProtocolError("a delivery whose payload is not bytes")
    tag = Tag(read_dot(*dot), tuple(read_dot(*d) for d in context), read_vector(past))
    return Happened(tag, payload)
