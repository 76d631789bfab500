"""One client in a room: what it sends is applied, and what it lacks is sent to it. Runs in Trio and in asyncio.

    channel.receive ──> _read ──> waiting updates ──> _apply ──> the object
    channel.send <───── _write <── flags, queued updates, numbers of clients

What waits for a client is limited. A client that falls behind loses the queue and gets one update with all that it
lacks; one that takes nothing for a while is cut off. It holds up nobody else.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import anyio

from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.rooms import awareness, messages
from crdtcast.adapters.pycrdt.rooms.awareness import ClientState
from crdtcast.adapters.pycrdt.rooms.channels import Channel, CloseCode, reason_to_close
from crdtcast.exceptions import (
    CrdtcastError,
    InvalidOperationError,
    RemoteProtocolError,
    TypeClashError,
)

EMPTY = b"\x00\x00"
"""An update without content."""
_AT_ONCE = 64
"""Messages that are read before others have their turn."""
_MESSAGE_BYTES = 64
"""Bytes that each waiting message takes, besides its update."""
_PRESENT_AT_ONCE = 256
"""Clients in one message: y-websocket sends back all that is news to it."""
_KEEPALIVE = 15.0
"""Seconds: y-websocket takes a connection for dead on which nothing has come for 30."""


@dataclass(frozen=True, slots=True)
class RoomLimits:
    """Limits for each client.

    queue_bytes: of updates that wait for a client; beyond that they are dropped, and made up for later by one update.
    incoming_bytes: of a client's updates that are not applied yet; beyond that it is not read.
    stall_seconds: a client that takes no message for so long is cut off.
    message_bytes: of one message of a client.
    pieces: items, deletions and values in one message of a client. A million take two to three seconds.
    judge_seconds: a visitor whose judge takes longer is to come again.
    awareness_seconds: clients that say nothing about themselves for so long are gone.
    """

    queue_bytes: int = 1024 * 1024
    incoming_bytes: int = 4 * 1024 * 1024
    stall_seconds: float = 30.0
    message_bytes: int = 64 * 1024 * 1024
    pieces: int = 1_000_000
    awareness_seconds: float = 45.0
    judge_seconds: float = 30.0


class SessionRoom(Protocol):
    """The room, as a client in it needs it."""

    limits: RoomLimits

    def vector(self) -> bytes:
        """The state vector of the document."""

    def since(self, vector: bytes) -> bytes:
        """What lacks in a document with that state vector. Raises InvalidOperationError."""

    def merged(self, updates: list[bytes]) -> bytes:
        """Several updates as one. Raises ValueError."""

    def check(self, update: bytes) -> None:
        """Raises InvalidOperationError if it has too many pieces."""

    def lacks(self, update: bytes) -> bool:
        """See `YDoc.lacks`."""

    async def apply(self, update: bytes) -> None:
        """Apply an update to the object. Raises CrdtcastError."""

    async def durable(self) -> None:
        """Return when all that is applied survives a power loss, if the replica has a journal."""

    def announce(self, session: "Session", states: list[ClientState]) -> list[ClientState]:
        """The client announces clients. Returns those that it must be told at once."""

    def everyone(self) -> list[ClientState]:
        """All clients that are here."""

    def presence(self, clients: list[int]) -> list[ClientState]:
        """What is known of these clients."""


class Session:
    """One client. may_write: whether its updates are applied."""

    def __init__(self, room: SessionRoom, channel: Channel, *, may_write: bool) -> None:
        self.may_write = may_write
        self.resyncs: int = 0
        self._room = room
        self._channel = channel
        self._end: tuple[CloseCode, str] | None = None
        self._scope = anyio.CancelScope()
        # From the client.
        self._incoming: list[messages.Changes] = []
        self._incoming_bytes = 0
        self._has_gone = False
        self._came = anyio.Event()
        self._applied = anyio.Event()
        # To the client.
        self._asks = may_write
        self._lacks = False
        """Whether the client has sent what refers to something that this node does not have."""
        self._asks_later = False
        self._asked: bytes | None = None
        self._denied = ""
        self._was_denied = False
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._base: bytes | None = None
        """The state vector before the first update that waits, or was dropped."""
        self._is_behind = False
        self._clients: dict[int, None] = {}
        self._late: dict[int, ClientState] = {}
        """What the client must be told, whatever is known by now."""
        self._to_write = anyio.Event()

    # What the room tells

    def offer(self, message: bytes, before: bytes) -> None:
        """An update was applied. message: it, for clients. before: the state vector without it."""
        if self._asks_later:
            self._asks, self._asks_later = True, False
        if self._base is None:
            self._base = before
        if not self._is_behind:
            self._queue.append(message)
            self._queued_bytes += len(message)
            if self._queued_bytes > self._room.limits.queue_bytes and len(self._queue) > 1:
                self._is_behind = True
                self.resyncs += 1
                self._queue.clear()
                self._queued_bytes = 0
        self._to_write.set()

    def offer_presence(self, clients: list[int]) -> None:
        """Something else is known of these clients."""
        self._clients.update(dict.fromkeys(clients))
        self._to_write.set()

    def offer_late(self, state: ClientState) -> None:
        """A client of this connection must know that others take it for gone."""
        self._late[state.client] = state
        self._to_write.set()

    def end(self, code: CloseCode, reason: str) -> None:
        """End the connection; the first reason counts."""
        if self._end is None:
            self._end = code, reason
        self._scope.cancel()

    @property
    def ended_by(self) -> CloseCode | None:
        """Why the room has ended the connection; None if the client did."""
        return None if self._end is None else self._end[0]

    @property
    def queued_bytes(self) -> int:
        """Bytes of updates that wait for the client."""
        return self._queued_bytes

    # Life

    async def run(self) -> None:
        """Serve the client until it goes, or is cut off."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._read)
                await self._guarded_apply()
                tasks.cancel_scope.cancel()
        if self._end is not None:
            code, reason = self._end
            with anyio.move_on_after(1, shield=True):
                await self._channel.close(code, reason_to_close(reason))

    async def _read(self) -> None:
        limits, count = self._room.limits, 0
        try:
            while (raw := await self._channel.receive()) is not None:
                if len(raw) > limits.message_bytes:
                    raise RemoteProtocolError(
                        f"a message of {len(raw):,} bytes: at most {limits.message_bytes:,} are taken"
                    )
                self._take(messages.decode(raw))
                count += 1
                if not count % _AT_ONCE:
                    await anyio.lowlevel.checkpoint()
                while self._incoming_bytes > limits.incoming_bytes:
                    self._applied = anyio.Event()
                    await self._applied.wait()
        except RemoteProtocolError as error:
            self.end(CloseCode.BAD_MESSAGE, str(error))
        self._has_gone = True
        self._came.set()

    def _take(self, message: messages.RoomMessage) -> None:
        match message:
            case messages.Changes(update, answers):
                if update == EMPTY:
                    self._asks_later |= answers and self._lacks
                elif self.may_write:
                    self._incoming.append(message)
                    self._incoming_bytes += len(update) + _MESSAGE_BYTES
                    self._came.set()
                elif not self._was_denied:
                    self._was_denied = True
                    self._denied = "this room is read-only for you: nothing that you change is kept"
            case messages.Step1(vector):
                self._asked = vector
            case messages.Presence(states):
                late = self._room.announce(self, awareness.decode(states))
                self._late.update({each.client: each for each in late})
            case messages.AskPresence():
                self.offer_presence([each.client for each in self._room.everyone()])
            case messages.Denied():
                raise RemoteProtocolError("a client cannot deny anything")
        self._to_write.set()

    # Applying

    async def _guarded_apply(self) -> None:
        try:
            await self._apply()
        except TypeClashError as error:
            self.end(CloseCode.NOT_A_DOCUMENT, str(error))
        except InvalidOperationError as error:
            self.end(CloseCode.BAD_MESSAGE, str(error))
        except CrdtcastError as error:
            self.end(CloseCode.TRY_AGAIN, str(error))

    async def _apply(self) -> None:
        """Apply what has come, all that waits as one, until the client has gone and nothing is left."""
        while True:
            if not self._incoming:
                if self._has_gone:
                    return
                self._came = anyio.Event()
                await self._came.wait()
                continue
            changes, self._incoming = self._incoming, []
            self._incoming_bytes = 0
            self._applied.set()
            try:
                for together in self._merged(changes):
                    await self._apply_one(together)
            except InvalidOperationError:
                if len(changes) == 1:
                    raise
                for each in changes:  # those before the wrong one count
                    await self._apply_one(each)
            # What comes while the disk works is applied together.
            await self._room.durable()

    def _merged(self, changes: list[messages.Changes]) -> list[messages.Changes]:
        if len(changes) == 1:
            return changes
        try:
            update = self._room.merged([each.update for each in changes])
        except ValueError:
            return changes  # one of them is none: the others count
        return [messages.Changes(update, any(each.answers for each in changes))]

    async def _apply_one(self, changes: messages.Changes) -> None:
        self._room.check(changes.update)
        if changes.answers and not self._room.lacks(changes.update):
            # Each client that dials again sends all deletions that it knows: none of them is an operation.
            self._asks_later |= self._lacks
            return
        try:
            await self._room.apply(changes.update)
        except MissingUpdatesError:
            # This client was at another node before, and knows more than this one. If it has just told all that it
            # has, then it waits for others, too: it is asked again when something has come.
            self._lacks = True
            if changes.answers:
                self._asks_later = True
            else:
                self._asks = True
                self._to_write.set()
        else:
            self._lacks = self._lacks and not changes.answers

    # Writing

    async def _write(self) -> None:
        try:
            while True:
                message = await self._next()
                if message is None:
                    self._to_write = anyio.Event()
                    with anyio.move_on_after(_KEEPALIVE) as idle:
                        await self._to_write.wait()
                    if not idle.cancelled_caught:
                        continue
                    message = messages.Presence(awareness.encode([]))
                await self._send(
                    messages.encode(message) if not isinstance(message, bytes) else message
                )
        except InvalidOperationError as error:
            self.end(CloseCode.BAD_MESSAGE, str(error))
        except CrdtcastError as error:
            self.end(CloseCode.TRY_AGAIN, str(error))

    async def _send(self, message: bytes) -> None:
        seconds = self._room.limits.stall_seconds
        with anyio.move_on_after(seconds) as stall:
            await self._channel.send(message)
        if stall.cancelled_caught:
            self.end(CloseCode.TOO_SLOW, f"took nothing for {seconds:g} s")

    async def _next(self) -> messages.RoomMessage | bytes | None:
        """What the client gets next; None for nothing. Nothing is told that is not durable."""
        if self._denied:
            reason, self._denied = self._denied, ""
            return messages.Denied(reason)
        if self._asks:
            self._asks = False
            vector = self._room.vector()
            await self._room.durable()  # a vector says what need not be sent again
            return messages.Step1(vector)
        if self._asked is not None or self._is_behind:
            asked, self._asked = self._asked, None
            since = asked if asked is not None else self._base
            self._is_behind, self._base = False, None
            self._queue.clear()  # all of that is in the answer
            self._queued_bytes = 0
            update = self._room.since(since or b"\x00")
            await self._room.durable()
            return messages.Changes(update, answers=asked is not None)
        if self._queue:
            message = self._queue.popleft()
            self._queued_bytes -= len(message)
            if not self._queue:
                self._base = None
            return message
        if self._clients or self._late:
            clients = [*islice(self._clients, _PRESENT_AT_ONCE)]
            for client in clients:
                del self._clients[client]
            late, self._late = self._late, {}
            states = [*self._room.presence(clients), *late.values()]
            return messages.Presence(awareness.encode(states))
        return None
