"""What a member of a group stores: its whole state at one instant (`Saved`), and the changes since (`JournalBatch`).
Values and their bytes; this file knows no disk and no engine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgpack

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupState, Parked, ParkedOperation
from crdtcast.engine.views import Decided
from crdtcast.exceptions import RemoteProtocolError, UnusableInputError
from crdtcast.journal.format import check_format
from crdtcast.wire.fields import read_dot, read_number
from crdtcast.wire.state import pack_state, unpack_state
from crdtcast.wire.view_frames import pack_decided, read_decided

_FORMAT = 1

Happened: TypeAlias = Message | tuple[Dot, ...] | Decided
"""A message that was delivered or sent, dots that became stable, or a decision that ended an epoch."""


@dataclass(frozen=True, slots=True)
class Life:
    """A member's state apart from its group's.

    over: this incarnation has ended, or may be incomplete: a new one replaces it.
    asked: bases under which the new one has asked to join, and may have been admitted.
    addresses: last known addresses of other processes, by name.
    """

    over: bool = False
    asked: tuple[str, ...] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """A member at one instant.

    incarnation: empty if it never was a member; then there is no state.
    application: what `StateMachine.get_state` returned then; None without a machine.
    parked: see `crdtcast.engine.reissue`.
    """

    group: str
    name: str
    group_id: str = ""
    incarnation: str = ""
    witness: bool = False
    state: GroupState = field(default_factory=GroupState)
    application: bytes | None = None
    parked: Parked | None = None
    life: Life = field(default_factory=Life)


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """What has changed, in order; None stands for no change.

    context: the reduced context at the end.
    outline: the group's state at the end, without messages.
    parked, copies: operations to send again; either all of them, or only the new copies.
    """

    happened: Sequence[Happened] = ()
    context: tuple[Dot, ...] | None = None
    outline: GroupState | None = None
    life: Life | None = None
    parked: tuple[Parked | None] | None = None
    copies: Mapping[Dot, tuple[Dot, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not self.happened and replace(self, happened=()) == JournalBatch()


class JournalFolding:
    """A member's state after one batch after the other, and the notifications for its application."""

    def __init__(self, saved: Saved) -> None:
        state = saved.state
        self._saved = saved
        self._vector = dict(state.vector)
        self._stable = dict(state.stable)
        self._context = state.context
        self._unstable = {message.dot: message for message in state.unstable}
        self._outline = state
        self._parked = saved.parked
        self._life = saved.life
        self.happened: list[Happened | Mapping[str, int]] = []
        """Everything since the snapshot, in order. A vector: all other origins were swept."""

    def add(self, batch: JournalBatch) -> None:
        """Apply the next batch."""
        for item in batch.happened:
            self.happened.append(item)
            if isinstance(item, Message):
                self._vector[item.dot.origin] = item.dot.counter
                self._unstable[item.dot] = item
            elif isinstance(item, tuple):
                for dot in item:
                    self._stable[dot.origin] = dot.counter
                    self._unstable.pop(dot, None)
        if batch.context is not None:
            self._context = batch.context
        if batch.outline is not None:
            self._outline = batch.outline
            self._vector = dict(batch.outline.vector)
            self._stable = dict(batch.outline.stable)
            self.happened.append(batch.outline.vector)
        if batch.life is not None:
            self._life = batch.life
        if batch.parked is not None:
            (self._parked,) = batch.parked
        if batch.copies and self._parked is not None:
            copies = {**self._parked.copies, **batch.copies}
            self._parked = replace(self._parked, copies=copies)

    def result(self) -> Saved:
        """The member as it is now; its application as it was at the snapshot."""
        state = replace(
            self._outline,
            counter=self._vector.get(self._saved.incarnation, 0),
            vector=self._vector,
            context=self._context,
            stable=self._stable,
            unstable=tuple(self._unstable.values()),
        )
        return replace(self._saved, state=state, parked=self._parked, life=self._life)


# Bytes


def pack_saved(saved: Saved) -> bytes:
    """A snapshot for the journal."""
    packed: bytes = msgpack.packb(
        [
            _FORMAT,
            saved.group,
            saved.name,
            saved.group_id,
            saved.incarnation,
            saved.witness,
            pack_state(saved.state),
            saved.application,
            _pack_parked(saved.parked),
            _pack_life(saved.life),
        ]
    )
    return packed


def unpack_saved(packed: bytes, where: str) -> Saved:
    """The inverse. Raises UnusableInputError if it is not a member's, and ConfigurationError if its format is newer."""
    try:
        version, *rest = msgpack.unpackb(packed)
        check_format(where, version, _FORMAT)
        group, name, group_id, incarnation, witness, state, application, parked, life = rest
        return Saved(
            group,
            name,
            group_id,
            incarnation,
            witness,
            unpack_state(state),
            application,
            _unpack_parked(parked),
            _unpack_life(life),
        )
    except _WRONG as error:
        raise _no_member(where, error) from error


_WRONG = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    msgpack.UnpackException,
    RemoteProtocolError,
)


def _no_member(where: str, error: Exception) -> UnusableInputError:
    return UnusableInputError(
        f"{where} is not a journal of a group member ({error}): use another journal for this member"
    )


_DECIDED = False
"""Stands in the place of a message's payload."""


def pack_batch(batch: JournalBatch) -> bytes:
    """A record for the journal. Each id is spelled out once."""
    ids: dict[str, int] = {}

    def number(origin: str) -> int:
        return ids.setdefault(origin, len(ids))

    happened: list[list[object]] = []
    for item in batch.happened:
        if isinstance(item, Message):
            fields: list[object] = [item.payload, item.kind, number(item.dot[0]), item.dot[1]]
            dots: Sequence[Dot] = item.context
        elif isinstance(item, tuple):
            fields, dots = [None], item
        else:
            fields, dots = [_DECIDED, pack_decided(item)], ()
        for origin, counter in dots:
            fields.append(number(origin))
            fields.append(counter)
        happened.append(fields)
    packed: bytes = msgpack.packb(
        [
            list(ids),
            happened,
            None if batch.context is None else [list(dot) for dot in batch.context],
            None if batch.outline is None else pack_state(batch.outline),
            None if batch.life is None else _pack_life(batch.life),
            None if batch.parked is None else [_pack_parked(batch.parked[0])],
            _pack_copies(batch.copies),
        ]
    )
    return packed


def unpack_batch(packed: bytes, where: str) -> JournalBatch:
    """The inverse. Raises UnusableInputError if it is not a member's."""
    try:
        ids, happened, context, outline, life, parked, copies = msgpack.unpackb(packed)
        return JournalBatch(
            tuple(_unpack_happened(ids, fields) for fields in happened),
            None if context is None else tuple(read_dot(*dot) for dot in context),
            None if outline is None else unpack_state(outline),
            None if life is None else _unpack_life(life),
            None if parked is None else (_unpack_parked(parked[0]),),
            _unpack_copies(copies),
        )
    except _WRONG as error:
        raise _no_member(where, error) from error


def _unpack_happened(ids: list[str], fields: list[Any]) -> Happened:
    payload, *rest = fields
    if payload is None:
        return tuple(_dots(ids, rest))
    if payload is _DECIDED:
        return read_decided(*rest)
    kind, *numbers = rest
    dot, *context = _dots(ids, numbers)
    if type(payload) is not bytes:
        raise ValueError("a payload that is not bytes")
    return Message(dot, tuple(context), payload, read_number(kind, "a kind"))


def _dots(ids: list[str], numbers: list[int]) -> Iterator[Dot]:
    for origin, counter in zip(numbers[::2], numbers[1::2], strict=True):
        yield read_dot(ids[origin], counter)


def _pack_life(life: Life) -> list[object]:
    return [life.over, list(life.asked), dict(life.addresses)]


def _unpack_life(packed: Any) -> Life:
    over, asked, addresses = packed
    return Life(over is True, tuple(asked), dict(addresses))


def _pack_copies(copies: Mapping[Dot, tuple[Dot, ...]]) -> list[object]:
    return [[list(first), [list(dot) for dot in dots]] for first, dots in copies.items()]


def _unpack_copies(packed: Any) -> dict[Dot, tuple[Dot, ...]]:
    return {read_dot(*first): tuple(read_dot(*dot) for dot in dots) for first, dots in packed}


def _pack_parked(parked: Parked | None) -> list[object] | None:
    if parked is None:
        return None
    return [
        [[list(o.dot), o.kind, o.payload] for o in parked.operations],
        _pack_copies(parked.copies),
        list(parked.ended),
        sorted(parked.strangers),
        sorted(parked.met),
        {incarnation: list(dot) for incarnation, dot in parked.settling.items()},
        sorted(parked.incomplete),
    ]


def _unpack_parked(packed: Any) -> Parked | None:
    if packed is None:
        return None
    operations, copies, ended, strangers, met, settling, incomplete = packed
    return Parked(
        tuple(ParkedOperation(read_dot(*dot), kind, payload) for dot, kind, payload in operations),
        _unpack_copies(copies),
        tuple(ended),
        frozenset(strangers),
        frozenset(met),
        {incarnation: read_dot(*dot) for incarnation, dot in settling.items()},
        frozenset(incomplete),
    )
