"""The messages of the y-websocket protocol as bytes, and back. Pure.

A message is one frame of a WebSocket: a number for its kind, and what belongs to it, in the encoding of lib0. Clients
are not trusted: whatever is not exactly one message is a RemoteProtocolError.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from crdtcast.adapters.pycrdt.update import number
from crdtcast.exceptions import RemoteProtocolError

SYNC, AWARENESS, AUTH, QUERY_AWARENESS = range(4)
_STEP_1, _STEP_2, _UPDATE = range(3)
_DENIED = 0
MOST = 2**53 - 1
"""The greatest number that a client can write exactly."""
_MOST_SHIFT = 49
"""Of the last seven bits of such a number; zeros could follow it without end."""


@dataclass(frozen=True, slots=True)
class Step1:
    """The sender's state vector: it asks for all that it lacks."""

    vector: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """An update of the document. answers: it is sync step 2, the answer to a `Step1`."""

    update: bytes
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Presence:
    """What clients say about themselves, as `awareness.decode` reads it."""

    states: bytes


@dataclass(frozen=True, slots=True)
class AskPresence:
    """Asks for all that is known of clients."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The receiver may not do this. For people."""

    reason: str


RoomMessage: TypeAlias = Step1 | Changes | Presence | AskPresence | Denied


def encode(message: RoomMessage) -> bytes:
    """The bytes of a message."""
    match message:
        case Step1(vector):
            return bytes((SYNC, _STEP_1)) + sized(vector)
        case Changes(update, answers):
            return bytes((SYNC, _STEP_2 if answers else _UPDATE)) + sized(update)
        case Presence(states):
            return bytes((AWARENESS,)) + sized(states)
        case AskPresence():
            return bytes((QUERY_AWARENESS,))
        case Denied(reason):
            return bytes((AUTH, _DENIED)) + sized(reason.encode())


def decode(raw: bytes) -> RoomMessage:
    """The message with these bytes. Raises RemoteProtocolError."""
    reader = Reader(raw)
    message = _decode(reader)
    if not reader.is_at_end:
        raise RemoteProtocolError("a message with more bytes than belong to it")
    return message


def _decode(reader: "Reader") -> RoomMessage:
    match reader.number():
        case 0:
            match reader.number():
                case 0:
                    return Step1(reader.sized())
                case 1:
                    return Changes(reader.sized(), answers=True)
                case 2:
                    return Changes(reader.sized())
                case step:
                    raise RemoteProtocolError(f"an unknown sync message: {step}")
        case 1:
            return Presence(reader.sized())
        case 2:
            if reader.number() != _DENIED:
                raise RemoteProtocolError("an unknown message about permissions")
            return Denied(reader.text())
        case 3:
            return AskPresence()
        case kind:
            raise RemoteProtocolError(f"an unknown kind of message: {kind}")


def sized(content: bytes) -> bytes:
    """Bytes after their length."""
    return number(len(content)) + content


def joined(parts: Iterable[bytes]) -> bytes:
    """Several parts after their number."""
    listed = [*parts]
    return number(len(listed)) + b"".join(listed)


class Reader:
    """Reads numbers and texts one after the other. All methods raise RemoteProtocolError where there are none."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether everything is read."""
        return self._at == len(self._raw)

    def number(self, most: int = MOST) -> int:
        """The next number, of at most `most`."""
        value = shift = 0
        while True:
            if self._at == len(self._raw):
                raise RemoteProtocolError("a message that ends too early")
            byte = self._raw[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if value > most or shift > _MOST_SHIFT:
                raise RemoteProtocolError("a number that no client can write")
            if byte < 0x80:
                return value
            shift += 7

    def sized(self) -> bytes:
        """The next bytes, after their length."""
        length = self.number()
        if length > len(self._raw) - self._at:
            raise RemoteProtocolError("a message that ends too early")
        content = self._raw[self._at : self._at + length]
        self._at += length
        return content

    def text(self) -> str:
        """The next text."""
        try:
            return self.sized().decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("a text that is not UTF-8") from error
