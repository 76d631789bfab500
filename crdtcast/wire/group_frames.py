"""Frames between processes that share their links among several groups, and frames by which a group admits a member.
Values and their lists of fields; `wire` turns these into bytes.

A process numbers its groups and announces the numbers on every link (`Here`). From then on frames of a group are
`Grouped` under its sender's number. A group that only one side has costs nothing: frames go only to processes that have
announced it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from crdtcast.causality.member_id import joined_by, name_of, valid_name
from crdtcast.causality.messages import Digest, Ended, Message
from crdtcast.causality.tags import make_tuple
from crdtcast.engine.founding import Announcement, Founder
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.operations import read_span
from crdtcast.engine.views import Views
from crdtcast.engine.whispers import MAX_SECONDS, MAX_TOPIC, MAX_WHISPER, WhisperFrame
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import (
    FrameKind,
    Names,
    Numbers,
    digest_fields,
    message_fields,
    read_digest,
    read_incarnation,
    read_message,
    read_number,
    read_text,
)
from crdtcast.wire.offer_frames import ASKING, Asking, asking_fields, sentence, shaped
from crdtcast.wire.view_frames import read_views, views_fields

MAX_KNOWN = 4096
"""Most addresses in one frame, and in one process's memory."""
MAX_REPLACED = 1000
"""Most incarnations that one joiner can replace."""
MAX_FOUNDERS = 100
_MESSAGE, _DIGEST = int(FrameKind.MESSAGE), int(FrameKind.DIGEST)


@dataclass(frozen=True, slots=True)
class Here:
    """The sender's group `number` is `group`, in which it is `incarnation`. None: it has left the group, or is not a
    member yet. group_id: distinguishes groups of one name; empty while it is unknown.
    """

    number: int
    group: str
    incarnation: str | None
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class Apart:
    """The sender has received the receiver's `Here`, and excludes it from `group`."""

    group: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Founding:
    """The sender takes part in founding `group`: see `crdtcast.engine.founding`."""

    group: str
    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Known:
    """Addresses of processes by name, as far as the sender knows them."""

    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Copy:
    """Requests a copy of the application's state, and a record of what happens to it from then on. reads: the format
    levels that the sender's program reads.
    """

    serial: int
    reads: Span = PROGRAM


@dataclass(frozen=True, slots=True)
class Admit:
    """Requests admission under `base`. replaces: bases, ids or names of members to replace. reads: see `Copy`."""

    serial: int
    base: str
    replaces: tuple[str, ...]
    witness: bool
    reads: Span = PROGRAM


InGroup: TypeAlias = Message | Digest | Views | Ended | Copy | Admit | Asking | WhisperFrame


class Grouped(NamedTuple):
    """`frame` belongs to the sender's group `number`."""

    number: int
    frame: InGroup


GroupFrame: TypeAlias = Here | Apart | Founding | Known | Grouped


def grouped_fields(grouped: Grouped, numbers: Numbers | None = None) -> list[object]:
    """A frame of a group as a list that begins with its kind."""
    number, frame = grouped
    if type(frame) is Message:
        return [9, number, *message_fields(frame, numbers)]
    return [9, number, *inner_fields(frame, numbers)]


def fields_of(frame: Here | Apart | Founding | Known) -> list[object]:
    """Another frame as a list."""
    match frame:
        case Here(number, group, incarnation, group_id):
            return [int(FrameKind.HERE), number, group, incarnation, group_id]
        case Apart(group, reason, text):
            return [int(FrameKind.APART), group, reason, text]
        case Founding(group, (names, founders, confirms)):
            told = {name: [f.incarnation, f.witness, *f.reads] for name, f in founders.items()}
            return [int(FrameKind.FOUNDING), group, list(names), told, confirms]
        case Known(addresses):
            return [int(FrameKind.KNOWN), dict(addresses)]


def inner_fields(frame: InGroup, numbers: Numbers | None = None) -> list[object]:
    """The frame inside a `Grouped` as a list."""
    match frame:
        case Message():
            return message_fields(frame, numbers)
        case Digest():
            return digest_fields(frame, numbers)
        case Views():
            return views_fields(frame)
        case Ended(incarnation, cut):
            return [int(FrameKind.ENDED), incarnation, cut]
        case Copy(serial, reads):
            return [int(FrameKind.COPY), serial, list(reads)]
        case Admit(serial, base, replaces, witness, reads):
            return [int(FrameKind.ADMIT), serial, base, list(replaces), witness, list(reads)]
        case WhisperFrame(serial, topic, lifetime_ms, payload):
            return [int(FrameKind.WHISPER), serial, topic, lifetime_ms, payload]
        case _ if isinstance(frame, Asking):
            return asking_fields(frame)
        case _:
            raise TypeError(f"{frame!r} is not a group frame")


def _group(text: object) -> str:
    if type(text) is str and valid_name(text):
        return text
    raise RemoteProtocolError(f"not a group's name: {text!r:.80}")


def _read_here(fields: list[Any]) -> Here:
    shaped(fields, 5, "a here")
    number, group = read_number(fields[1], "a group's number"), _group(fields[2])
    incarnation = None if fields[3] is None else read_incarnation(fields[3])
    return Here(number, group, incarnation, read_text(fields[4], "a group's id"))


def _read_apart(fields: list[Any]) -> Apart:
    shaped(fields, 4, "an apart")
    return Apart(_group(fields[1]), read_text(fields[2], "a reason"), sentence(fields[3]))


def _read_founding(fields: list[Any]) -> Founding:
    shaped(fields, 5, "a founding")
    _, group, names, told, confirms = fields
    if type(names) is not list or type(told) is not dict or type(confirms) is not bool:
        raise RemoteProtocolError("a founding frame of the wrong types")
    if len(names) > MAX_FOUNDERS or any(type(n) is not str or not valid_name(n) for n in names):
        raise RemoteProtocolError("a founding frame without a list of names")
    if names != sorted(set(names)) or not set(told) <= set(names):
        raise RemoteProtocolError("a founding frame whose list and founders do not match")
    founders = {name: _read_founder(name, each) for name, each in told.items()}
    return Founding(_group(group), Announcement(tuple(names), founders, confirms))


def _read_founder(name: str, fields: object) -> Founder:
    if type(fields) is not list or len(fields) != 4 or type(fields[1]) is not bool:
        raise RemoteProtocolError(f"not a founder: {fields!r:.80}")
    incarnation = read_incarnation(fields[0])
    if name_of(incarnation) != name or joined_by(incarnation) is not None:
        raise RemoteProtocolError(f"{name!r} cannot have chosen the id {incarnation}")
    return Founder(incarnation, fields[1], _span(fields[2:]))


def _read_known(fields: list[Any]) -> Known:
    shaped(fields, 2, "a known")
    addresses = fields[1]
    if type(addresses) is not dict or len(addresses) > MAX_KNOWN:
        raise RemoteProtocolError("a known frame without a table of addresses")
    for name, address in addresses.items():
        if type(name) is not str or not valid_name(name):
            raise RemoteProtocolError(f"not a node's name: {name!r:.80}")
        read_text(address, "an address", 300)
    return Known(addresses)


def read_grouped(fields: list[Any], names: Names) -> Grouped:
    """The inverse of `grouped_fields`."""
    inner = fields[2:]
    if not inner or type(kind := inner[0]) is not int:
        raise RemoteProtocolError("an empty grouped frame")
    if type(number := fields[1]) is not int:
        raise RemoteProtocolError(f"not a group's number: {number!r:.40}")
    if kind == _MESSAGE:
        # Once per message, so it avoids the Python call of the class.
        return make_tuple(Grouped, (number, read_message(inner, names)))  # type: ignore[no-any-return]
    if kind == _DIGEST:
        return Grouped(number, read_digest(inner, names))
    read = _INNER.get(kind)
    if read is None:
        raise RemoteProtocolError(f"unknown kind {kind} of a grouped frame")
    return Grouped(number, read(inner))


def _read_ended(fields: list[Any]) -> Ended:
    shaped(fields, 3, "an ended")
    cut = None if fields[2] is None else read_number(fields[2], "a cut")
    return Ended(read_incarnation(fields[1]), cut)


def _read_copy(fields: list[Any]) -> Copy:
    shaped(fields, 3, "a copy")
    return Copy(read_number(fields[1], "a serial"), _span(fields[2]))


def _read_admit(fields: list[Any]) -> Admit:
    shaped(fields, 6, "an admit")
    _, serial, base, old, witness, reads = fields
    if type(old) is not list or len(old) > MAX_REPLACED or type(witness) is not bool:
        raise RemoteProtocolError("an admit frame of the wrong types")
    replaces = tuple([read_text(each, "an incarnation or name") for each in old])
    number = read_number(serial, "a serial")
    return Admit(number, read_incarnation(base), replaces, witness, _span(reads))


def _read_whisper(fields: list[Any]) -> WhisperFrame:
    shaped(fields, 5, "a whisper")
    _, serial, topic, lifetime_ms, payload = fields
    if type(payload) is not bytes or len(payload) > MAX_WHISPER:
        raise RemoteProtocolError(
            f"a whisper frame without a payload of at most {MAX_WHISPER:,} bytes"
        )
    if not read_number(serial, "a serial") or not read_text(topic, "a topic", MAX_TOPIC):
        raise RemoteProtocolError("a whisper frame without a serial or a topic")
    if not 0 < read_number(lifetime_ms, "a lifetime") <= MAX_SECONDS * 1000:
        raise RemoteProtocolError(f"a whisper frame that lasts {lifetime_ms:,} ms")
    return WhisperFrame(serial, topic, lifetime_ms, payload)


def _span(fields: object) -> Span:
    if type(fields) is not list or len(fields) != 2:
        raise RemoteProtocolError(f"not a span of format levels: {fields!r:.80}")
    return read_span(*fields)


_INNER: dict[int, Callable[[list[Any]], InGroup]] = {
    int(FrameKind.ENDED): _read_ended,
    int(FrameKind.VIEWS): read_views,
    int(FrameKind.COPY): _read_copy,
    int(FrameKind.ADMIT): _read_admit,
    int(FrameKind.WHISPER): _read_whisper,
    **ASKING,
}

DECODERS: dict[int, Callable[[list[Any]], GroupFrame]] = {
    int(FrameKind.HERE): _read_here,
    int(FrameKind.APART): _read_apart,
    int(FrameKind.FOUNDING): _read_founding,
    int(FrameKind.KNOWN): _read_known,
}
