"""Frames by which an application asks one peer something, beside its messages: a question, an answer in pieces.

Nothing of it is ordered with messages, stored, or repaired: who asks gives up after a while, and asks again. The asker
fetches a long answer piece by piece, so it fills no queue. What question and answer mean is the application's matter.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire_values import FrameKind, read_number

MAX_QUESTION = 12 * 2**20
"""Bytes."""
PIECE_BYTES = 256 * 1024
"""Of an answer, in one frame."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question, or, with an offset and no question, for the piece of its answer that begins there."""

    serial: int
    offset: int
    question: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of the answer to the question of that serial. size: of the whole; 0: there is no answer, ask anew."""

    serial: int
    offset: int
    size: int
    piece: bytes


Asking: TypeAlias = Ask | Answer


def asking_fields(frame: Asking) -> list[object]:
    """The frame as a list that begins with its kind."""
    match frame:
        case Ask(serial, offset, question):
            return [int(FrameKind.ASK), serial, offset, question]
        case Answer(serial, offset, size, piece):
            return [int(FrameKind.ANSWER), serial, offset, size, piece]


def read_ask(fields: list[Any]) -> Ask:
    """Raises RemoteProtocolError."""
    if len(fields) != 4 or type(fields[3]) is not bytes or len(fields[3]) > MAX_QUESTION:
        raise RemoteProtocolError("an ask frame without a question that fits")
    return Ask(read_number(fields[1], "a serial"), read_number(fields[2], "an offset"), fields[3])


def read_answer(fields: list[Any]) -> Answer:
    """Raises RemoteProtocolError."""
    if len(fields) != 5 or type(fields[4]) is not bytes:
        raise RemoteProtocolError("an answer frame without bytes")
    serial, offset = read_number(fields[1], "a serial"), read_number(fields[2], "an offset")
    return Answer(serial, offset, read_number(fields[3], "a size"), fields[4])
