"""The interface between a room and the connection of a client. `asgi` implements it for WebSockets."""

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class Channel(Protocol):
    """One client's connection, which carries whole messages. `send` may be called while `receive` waits."""

    async def receive(self) -> bytes | None:
        """The next message; None when the client has gone. Raises RemoteProtocolError if it is not bytes."""

    async def send(self, message: bytes) -> None:
        """Send a message; returns when there is room for another one. Does nothing if the client has gone."""

    async def close(self, code: int, reason: str) -> None:
        """End it, and tell the client why: a close code of WebSockets, and a sentence."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody who wants to enter a room.

    room: its name, the name of the object.
    headers: of the request, by names in small letters: `cookie`, `authorization`, `origin`.
    query: the part of the address after `?`, undecoded: y-websocket's `params`.
    address: where the client is, if that is known.
    """

    room: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    address: str = ""


MAX_REASON = 123
"""Most bytes of the reason for a close, as WebSockets limit it."""


def reason_to_close(text: str) -> str:
    """As much of a text as fits into the close of a WebSocket."""
    return text.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")


class Access(enum.Enum):
    """What a visitor may do in a room."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


Judge: TypeAlias = Callable[[Visit], Access | Awaitable[Access]]
"""Decides about a visitor. An exception that it raises refuses the visitor, and is logged."""


def anyone(visit: Visit) -> Access:
    """Everybody may read and write every room: for a laptop, or behind something that has asked before."""
    return Access.WRITE


class CloseCode(enum.IntEnum):
    """Why a room ends a connection. y-websocket gives up for 4400 to 4499, and tries again for all others."""

    BAD_MESSAGE = 4400
    DENIED = 4403
    NOT_A_DOCUMENT = 4409
    TRY_AGAIN = 4503
    TOO_SLOW = 4508
