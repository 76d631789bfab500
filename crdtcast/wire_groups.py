"""Frames between processes that share their links among several groups, and how a group lets a new
member in. Values and their lists of fields; `wire` makes bytes of them.

A process gives each of its groups a number of its own and says on every link which is which (`Here`).
From then on what belongs to a group is `Grouped` under its sender's number. A group that only one
side has costs nothing: nobody sends to a process that has not said it is there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.operations import read_span
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.incarnation import valid_incarnation, valid_name
from crdtcast.messages import Digest, Ended, Message
from crdtcast.wire_questions import Answer, Ask, Asking, asking_fields, read_answer, read_ask
from crdtcast.wire_values import (
    FrameKind,
    Names,
    Numbers,
    digest_fields,
    message_fields,
    printable,
    read_digest,
    read_message,
    read_number,
    read_text,
)

PART_BYTES = 256 * 1024
"""Of a state that is copied, in one frame."""
_LONGEST_TEXT = 1000
MAX_KNOWN = 4096
"""Addresses in one frame, and that one process remembers."""
MAX_REPLACED = 1000
"""Whose place one joiner can take."""


@dataclass(frozen=True, slots=True)
class Here:
    """The sender's group `number` is `group`, in which it is `incarnation`; None: it has no such
    group any more, or is not a member yet. founding: which of several groups of one name, by the
    incarnation that founded it; empty for a group of fixed members.
    """

    number: int
    group: str
    incarnation: str | None
    founding: str = ""


@dataclass(frozen=True, slots=True)
class Apart:
    """The sender has heard the receiver's `Here`, and will have nothing to do with it in `group`."""

    group: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Known:
    """Where processes can be dialled, by their names, as far as the sender knows."""

    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Copy:
    """Give me a copy of the application's state, and note from then on what happens to it. reads: the format levels
    that the sender's program reads.
    """

    reads: Span = PROGRAM


@dataclass(frozen=True, slots=True)
class Admit:
    """Let me in under `base`. replaces: bases, ids, or names of members that I take the place of. reads: see `Copy`."""

    base: str
    replaces: tuple[str, ...]
    witness: bool
    reads: Span = PROGRAM


@dataclass(frozen=True, slots=True)
class Offer:
    """The answer to `Copy` and `Admit`: so many bytes wait to be fetched under this number."""

    serial: int
    size: int


@dataclass(frozen=True, slots=True)
class Unable:
    """The other answer. later: ask again; otherwise ask somebody else, or nobody."""

    later: bool
    text: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send the part of the offer that begins at `offset`. At its end: I have all of it."""

    serial: int
    offset: int


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an offer."""

    serial: int
    offset: int
    piece: bytes


InGroup: TypeAlias = (
    Message | Digest | Ended | Copy | Admit | Offer | Unable | Fetch | Part | Asking
)


class Grouped(NamedTuple):
    """`frame` belongs to the sender's group `number`."""

    number: int
    frame: InGroup


GroupFrame: TypeAlias = Here | Apart | Known | Grouped


def grouped_fields(grouped: Grouped, numbers: Numbers | None = None) -> list[object]:
    """What belongs to a group, as a list that begins with its kind."""
    number, frame = grouped
    return [9, number, *inner_fields(frame, numbers)]


def fields_of(frame: Here | Apart | Known) -> list[object]:
    """The same for other frames."""
    match frame:
        case Here(number, group, incarnation, founding):
            return [int(FrameKind.HERE), number, group, incarnation, founding]
        case Apart(group, reason, text):
            return [int(FrameKind.APART), group, reason, text]
        case Known(addresses):
            return [int(FrameKind.KNOWN), dict(addresses)]


def inner_fields(frame: InGroup, numbers: Numbers | None = None) -> list[object]:
    """The same for what is inside a `Grouped`."""
    if type(frame) is Message:
        return message_fields(frame, numbers)
    match frame:
        case Digest():
            return digest_fields(frame, numbers)
        case Ended(incarnation, cut):
            return [int(FrameKind.ENDED), incarnation, cut]
        case Copy(reads):
            return [int(FrameKind.COPY), list(reads)]
        case Admit(base, replaces, witness, reads):
            return [int(FrameKind.ADMIT), base, list(replaces), witness, list(reads)]
        case Offer(serial, size):
            return [int(FrameKind.OFFER), serial, size]
        case Unable(later, text):
            return [int(FrameKind.UNABLE), later, text]
        case Fetch(serial, offset):
            return [int(FrameKind.FETCH), serial, offset]
        case Part(serial, offset, piece):
            return [int(FrameKind.PART), serial, offset, piece]
        case Ask() | Answer():
            return asking_fields(frame)
        case _:
            raise TypeError(f"{frame!r} is no frame of a group")


def _shaped(fields: list[Any], length: int, what: str) -> None:
    if len(fields) != length:
        raise RemoteProtocolError(f"{what} frame of {len(fields)} fields")


def _incarnation(text: object) -> str:
    if type(text) is str and valid_incarnation(text):
        return text
    raise RemoteProtocolError(f"not an incarnation: {text!r:.80}")


def _group(text: object) -> str:
    if type(text) is str and valid_name(text):
        return text
    raise RemoteProtocolError(f"not a group's name: {text!r:.80}")


def _sentence(text: object) -> str:
    if type(text) is not str:
        raise RemoteProtocolError(f"not a sentence: {text!r:.80}")
    return printable(text[:_LONGEST_TEXT])


def _read_here(fields: list[Any]) -> Here:
    _shaped(fields, 5, "a here")
    number, group = read_number(fields[1], "a group's number"), _group(fields[2])
    incarnation = None if fields[3] is None else _incarnation(fields[3])
    return Here(number, group, incarnation, read_text(fields[4], "a founding"))


def _read_apart(fields: list[Any]) -> Apart:
    _shaped(fields, 4, "an apart")
    return Apart(_group(fields[1]), read_text(fields[2], "a reason"), _sentence(fields[3]))


def _read_known(fields: list[Any]) -> Known:
    _shaped(fields, 2, "a known")
    addresses = fields[1]
    if type(addresses) is not dict or len(addresses) > MAX_KNOWN:
        raise RemoteProtocolError("a known frame without a table of addresses")
    for name, address in addresses.items():
        if type(name) is not str or not valid_name(name):
            raise RemoteProtocolError(f"not a node's name: {name!r:.80}")
        read_text(address, "an address", 300)
    return Known(addresses)


def read_grouped(fields: list[Any], names: Names) -> Grouped:
    """What belongs to a group."""
    if len(fields) < 3 or type(fields[2]) is not int:
        raise RemoteProtocolError("a grouped frame with nothing in it")
    number, kind = read_number(fields[1], "a group's number"), fields[2]
    if kind == FrameKind.MESSAGE:
        return Grouped(number, read_message(fields[2:], names))
    if kind == FrameKind.DIGEST:
        return Grouped(number, read_digest(fields[2:], names))
    read = _INNER.get(kind)
    if read is None:
        raise RemoteProtocolError(f"a grouped frame of an unknown kind: {kind}")
    return Grouped(number, read(fields[2:]))


def _read_ended(fields: list[Any]) -> Ended:
    _shaped(fields, 3, "an ended")
    cut = None if fields[2] is None else read_number(fields[2], "a cut")
    return Ended(_incarnation(fields[1]), cut)


def _read_copy(fields: list[Any]) -> Copy:
    _shaped(fields, 2, "a copy")
    return Copy(_span(fields[1]))


def _read_admit(fields: list[Any]) -> Admit:
    _shaped(fields, 5, "an admit")
    old = fields[2]
    if type(old) is not list or len(old) > MAX_REPLACED or type(fields[3]) is not bool:
        raise RemoteProtocolError("an admit frame of the wrong types")
    replaces = tuple([read_text(each, "an incarnation or name") for each in old])
    return Admit(_incarnation(fields[1]), replaces, fields[3], _span(fields[4]))


def _span(fields: object) -> Span:
    if type(fields) is not list or len(fields) != 2:
        raise RemoteProtocolError(f"not a span of format levels: {fields!r:.80}")
    return read_span(*fields)


def _read_offer(fields: list[Any]) -> Offer:
    _shaped(fields, 3, "an offer")
    return Offer(read_number(fields[1], "a serial"), read_number(fields[2], "a size"))


def _read_unable(fields: list[Any]) -> Unable:
    _shaped(fields, 3, "an unable")
    return Unable(fields[1] is True, _sentence(fields[2]))


def _read_fetch(fields: list[Any]) -> Fetch:
    _shaped(fields, 3, "a fetch")
    return Fetch(read_number(fields[1], "a serial"), read_number(fields[2], "an offset"))


def _read_part(fields: list[Any]) -> Part:
    _shaped(fields, 4, "a part")
    if type(fields[3]) is not bytes:
        raise RemoteProtocolError("a part frame without bytes")
    serial, offset = read_number(fields[1], "a serial"), read_number(fields[2], "an offset")
    return Part(serial, offset, fields[3])


_INNER: dict[int, Callable[[list[Any]], InGroup]] = {
    int(FrameKind.ENDED): _read_ended,
    int(FrameKind.COPY): _read_copy,
    int(FrameKind.ADMIT): _read_admit,
    int(FrameKind.OFFER): _read_offer,
    int(FrameKind.UNABLE): _read_unable,
    int(FrameKind.FETCH): _read_fetch,
    int(FrameKind.PART): _read_part,
    int(FrameKind.ASK): read_ask,
    int(FrameKind.ANSWER): read_answer,
}

DECODERS: dict[int, Callable[[list[Any]], GroupFrame]] = {
    int(FrameKind.HERE): _read_here,
    int(FrameKind.APART): _read_apart,
    int(FrameKind.KNOWN): _read_known,
}
