"""Unfinished state of a client: a transaction, keys that it watches, names that it has subscribed to.

All of it counts towards what all clients together may have queued.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeAlias

from crdtcast.adapters.redis.clients.large_request import size_of
from crdtcast.adapters.redis.commands.table import Command
from crdtcast.adapters.redis.commit.batch import MAX_COMMAND_BYTES
from crdtcast.adapters.redis.server.parsing import Args
from crdtcast.adapters.redis.server.resp import Raw, ReplyError
from crdtcast.adapters.redis.store.effects import NEVER

MAX_CALLS = 16_384
"""Commands of one transaction; each key of a removal counts as one. One turn of the gateway and one EXEC execute all of
them.
"""
MAX_ARGUMENTS = 1 << 20


class Queue:
    """The commands of an open transaction.

    size: bytes of arguments.
    steps: commands, or keys of a removal.
    """

    __slots__ = ("_arguments", "calls", "size", "steps")

    def __init__(self) -> None:
        self.calls: list[tuple[Args, Command]] = []
        self.size: int = 0
        self.steps: int = 0
        self._arguments = 0

    def add(self, args: Args, command: Command) -> ReplyError | None:
        """Keep one command. Returns an error if the transaction is too large now."""
        self.calls.append((args, command))
        self.size += size_of(args)
        self.steps += len(args) - 1 if command.removes_keys else 1
        self._arguments += len(args)
        if self.steps > MAX_CALLS:
            return _too_large(f"{MAX_CALLS} commands, and keys that it removes,")
        if self._arguments > MAX_ARGUMENTS:
            return _too_large(f"{MAX_ARGUMENTS} arguments")
        if self.size > MAX_COMMAND_BYTES:
            return _too_large(f"{MAX_COMMAND_BYTES} bytes")
        return None


def _too_large(limit: str) -> ReplyError:
    return ReplyError(
        f"ERR crdtcast: the transaction is too large: it may have {limit} at most; nothing was "
        "written: split it"
    )


class Marks(Protocol):
    """Marks a watch when one of its keys has been written."""

    def forget(self, watch: Watch) -> None:
        """The watch has ended."""


NOT_YET = (-1, 0)
"""The start of a watched key while its WATCH is under way."""


class Watch:
    """The keys that one client watches. `marked`: EXEC will answer null. Its size counts towards what may be queued."""

    __slots__ = ("_note_queued", "ended", "keys", "marked", "registered", "size", "until")

    def __init__(self, note_queued: Callable[[int], object]) -> None:
        """note_queued: counts bytes added, or removed."""
        self._note_queued = note_queued
        self.keys: dict[bytes, tuple[int, int]] = {}
        """Round, and place in its plan, from which a write of the key marks; `NOT_YET` while WATCH is under way."""
        self.size: int = 0
        self.marked: bool = False
        self.ended: bool = False
        self.until: int = NEVER
        """The first deadline of these keys."""
        self.registered: Marks | None = None

    def end(self) -> None:
        """End the watch: EXEC is decided, or the client has given it up."""
        if not self.ended:
            self.ended = True
            self._note_queued(-self.size)
            if self.registered is not None:
                self.registered.forget(self)


class Family(Enum):
    """A kind of names: the command that subscribes, the one that unsubscribes, and the type of its messages."""

    CHANNELS = (b"subscribe", b"unsubscribe", b"message")
    PATTERNS = (b"psubscribe", b"punsubscribe", b"pmessage")
    SHARDS = (b"ssubscribe", b"sunsubscribe", b"smessage")


Names: TypeAlias = dict[Family, dict[bytes, None]]


class Subscriber(Protocol):
    """The client that subscribes."""

    @property
    def protocol(self) -> int: ...
    def note_queued(self, size: int) -> bool:
        """Count bytes added to its subscriptions, or removed. Returns whether the bytes of all clients fit."""

    def push(self, message: Raw) -> None:
        """Send a message that answers no request."""


class Hub(Protocol):
    """Subscribes to names at the server."""

    def add(self, subscribed: Subscribed, family: Family, name: bytes) -> object:
        """A client subscribes."""

    def drop(self, subscribed: Subscribed, family: Family, name: bytes) -> object:
        """A client unsubscribes."""


class Subscribed:
    """The subscriptions of one client."""

    __slots__ = ("_hub", "client", "names")

    def __init__(self, hub: Hub, client: Subscriber) -> None:
        self._hub = hub
        self.client: Subscriber = client
        self.names: Names = {family: {} for family in Family}

    def count(self, family: Family) -> int:
        """The count as the server gives it: channels and patterns together."""
        if family is Family.SHARDS:
            return len(self.names[family])
        return len(self.names[Family.CHANNELS]) + len(self.names[Family.PATTERNS])

    def copy(self) -> Names:
        """A copy for `restore`."""
        return {family: dict(names) for family, names in self.names.items()}

    def restore(self, before: Names | None) -> None:
        """Restore the subscriptions of a copy; None: no subscriptions."""
        before = before or {family: {} for family in Family}
        for family, names in self.names.items():
            for name in [name for name in names if name not in before[family]]:
                self._hub.drop(self, family, name)
            for name in before[family]:
                self._hub.add(self, family, name)

    def end(self) -> None:
        """Drop all subscriptions: the client has gone, or starts again."""
        self.restore(None)
