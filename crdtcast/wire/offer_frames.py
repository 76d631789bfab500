"""Frames of requests between peers, apart from messages: a question of an application in this file, a copy or an
admission in `crdtcast.wire.group_frames`.

The asker numbers its requests. The answer, under the same number, is an offer of so many bytes, or why there is none.
The asker fetches the bytes part by part, so they fill no queue. These frames are not ordered with messages, not stored
and not repaired: the asker gives up after a while, and asks again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import FrameKind, printable, read_number

MAX_QUESTION = 12 * 2**20
"""Most bytes of a question."""
PART_BYTES = 256 * 1024
"""Bytes of an offer in one frame."""
_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; only the application knows its meaning."""

    serial: int
    question: bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """The answer to a request: so many bytes can be fetched under its number."""

    serial: int
    size: int


@dataclass(frozen=True, slots=True)
class Unable:
    """The other answer, to a request or a `Fetch`. later: ask this peer again; else ask another one, or give up."""

    serial: int
    later: bool
    text: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Requests the part of the offer that begins at `offset`."""

    serial: int
    offset: int


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an offer."""

    serial: int
    offset: int
    piece: bytes


Asking: TypeAlias = Ask | Offer | Unable | Fetch | Part
"""Frames that members of a fixed group use, too."""


def asking_fields(frame: Asking) -> list[object]:
    """The frame as a list that begins with its kind."""
    match frame:
        case Ask(serial, question):
            return [int(FrameKind.ASK), serial, question]
        case Offer(serial, size):
            return [int(FrameKind.OFFER), serial, size]
        case Unable(serial, later, text):
            return [int(FrameKind.UNABLE), serial, later, text]
        case Fetch(serial, offset):
            return [int(FrameKind.FETCH), serial, offset]
        case Part(serial, offset, piece):
            return [int(FrameKind.PART), serial, offset, piece]


def sentence(text: object) -> str:
    """The text of a peer, printable and shortened. Raises RemoteProtocolError if it is not text."""
    if type(text) is not str:
        raise RemoteProtocolError(f"not a sentence: {text!r:.80}")
    return printable(text[:_LONGEST_TEXT])


def shaped(fields: list[Any], length: int, what: str) -> None:
    """Raises RemoteProtocolError if the number of fields is not `length`."""
    if len(fields) != length:
        raise RemoteProtocolError(f"{what} frame of {len(fields)} fields")


def _read_ask(fields: list[Any]) -> Ask:
    shaped(fields, 3, "an ask")
    if type(fields[2]) is not bytes or len(fields[2]) > MAX_QUESTION:
        raise RemoteProtocolError("an ask frame with an invalid question")
    return Ask(read_number(fields[1], "a serial"), fields[2])


def _read_offer(fields: list[Any]) -> Offer:
    shaped(fields, 3, "an offer")
    return Offer(read_number(fields[1], "a serial"), read_number(fields[2], "a size"))


def _read_unable(fields: list[Any]) -> Unable:
    shaped(fields, 4, "an unable")
    return Unable(read_number(fields[1], "a serial"), fields[2] is True, sentence(fields[3]))


def _read_fetch(fields: list[Any]) -> Fetch:
    shaped(fields, 3, "a fetch")
    return Fetch(read_number(fields[1], "a serial"), read_number(fields[2], "an offset"))


def _read_part(fields: list[Any]) -> Part:
    shaped(fields, 4, "a part")
    if type(fields[3]) is not bytes:
        raise RemoteProtocolError("a part frame without bytes")
    serial, offset = read_number(fields[1], "a serial"), read_number(fields[2], "an offset")
    return Part(serial, offset, fields[3])


ASKING: dict[int, Callable[[list[Any]], Asking]] = {
    int(FrameKind.ASK): _read_ask,
    int(FrameKind.OFFER): _read_offer,
    int(FrameKind.UNABLE): _read_unable,
    int(FrameKind.FETCH): _read_fetch,
    int(FrameKind.PART): _read_part,
}
"""Decoders by kind."""
