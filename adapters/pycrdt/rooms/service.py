"""Rooms: replicated Yjs documents for browsers, by the y-websocket protocol.

A room is an object of type `YDoc`, and the clients of this node that edit it. Clients of other nodes get its updates by
the group's causal broadcast, and their cursors by its whispers.
"""

import contextlib
import hashlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from pycrdt import merge_updates

from crdtcast import aio
from crdtcast.adapters.pycrdt.handle import YDocHandle
from crdtcast.adapters.pycrdt.rooms import awareness, messages
from crdtcast.adapters.pycrdt.rooms.asgi import Application, Receive, Scope, Send, serve_asgi
from crdtcast.adapters.pycrdt.rooms.awareness import Awareness, ClientState
from crdtcast.adapters.pycrdt.rooms.channels import (
    Access,
    Channel,
    CloseCode,
    Judge,
    Visit,
    reason_to_close,
)
from crdtcast.adapters.pycrdt.rooms.session import EMPTY, RoomLimits, Session
from crdtcast.adapters.pycrdt.update import parsed
from crdtcast.engine.whispers import MAX_TOPIC, MAX_WHISPER, Whisper, is_text
from crdtcast.exceptions import (
    CrdtcastError,
    EndedError,
    InvalidOperationError,
    LocalProtocolError,
    RemoteProtocolError,
    TypeClashError,
)
from crdtcast.replica.handle import check_door
from crdtcast.replica.replica import Replica
from crdtcast.short_repr import shown

MAX_NAME = 1000
"""Most characters of a room's name."""
_TOPIC = "room:"
_WHISPER_SECONDS = 30.0
_WHISPER_AGAIN = 10.0
"""Seconds after which what is whispered is whispered again: others forget it after `_WHISPER_SECONDS`."""
_WHISPER_EVERY = 0.05
"""Seconds between two whispers of one room, at least."""


class Rooms:
    """The rooms of one replica, in Trio or in asyncio.

    judge: decides for each visitor whether it may read or write a room: `anyone`, or your own.
    limits: for each client.

    `asgi` is an application for any ASGI server: y-websocket's clients connect to it, or where it is mounted, with the
    room's name after that. For other servers, give `serve` a channel. Rooms end with their replica.
    """

    def __init__(
        self,
        replica: Replica | aio.Replica,
        judge: Judge,
        *,
        limits: RoomLimits | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        check_door(self, replica, "held", "a replica of crdtcast.open_replica or crdtcast.aio")
        if not callable(judge):
            raise LocalProtocolError(f"the judge of Rooms is a function, not {shown(judge)}")
        self.limits: RoomLimits = limits or RoomLimits()
        self.counts: Counter[str] = Counter()
        """How many clients have entered, by `Access`; and were refused, cut off or left, by the name of the code."""
        self._replica = replica
        self._judge = judge
        self._logger = logger or logging.getLogger("crdtcast.rooms")
        self._rooms: dict[str, _Room] = {}
        self._heard: dict[str, dict[str, bytes]] = {}
        """Topic -> node -> its last whisper."""
        self._stop: Callable[[], None] | None = None

    @property
    def open(self) -> dict[str, int]:
        """The rooms that have clients at this node, with their number."""
        return {name: len(room.sessions) for name, room in self._rooms.items()}

    @property
    def asgi(self) -> Application:
        """The application: WebSockets only. The path, without that of a mount, is the name of the room."""

        # A function, since uvicorn takes a method for an application of ASGI 2.
        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await serve_asgi(self.serve, scope, receive, send)

        return application

    async def serve(self, channel: Channel, visit: Visit) -> None:
        """Serve one client until it goes, or is cut off. Raises nothing that a client causes."""
        access, code, why = await self._judged(visit)
        if access is Access.NONE:
            await self._refuse(channel, code, why)
            return
        room = self._rooms.get(visit.room)
        try:
            if room is None or room.is_over:
                self._listen()
                room = self._rooms[visit.room] = _Room(
                    visit.room, self._replica, self.limits, self._logger
                )
                for node, whispered in self._heard.get(room.topic, {}).items():
                    room.hear(node, whispered)
                room.begin()
        except TypeClashError as error:
            await self._refuse(channel, CloseCode.NOT_A_DOCUMENT, str(error))
            return
        except CrdtcastError as error:
            await self._refuse(channel, CloseCode.TRY_AGAIN, str(error))
            return
        self.counts[access.value] += 1
        session = Session(room, channel, may_write=access is Access.WRITE)
        room.enter(session)
        try:
            await session.run()
        finally:
            self.counts["resyncs"] += session.resyncs
            if session.ended_by is not None:
                self.counts[session.ended_by.name.lower()] += 1
            if not room.leave(session) and self._rooms.get(visit.room) is room:
                del self._rooms[visit.room]
                room.fall_silent()

    async def _judged(self, visit: Visit) -> tuple[Access, CloseCode, str]:
        """What a visitor may do; and if that is nothing, with which code and why it is refused."""
        if not 0 < len(visit.room) <= MAX_NAME or not is_text(visit.room):
            why = f"a room's name has 1 to {MAX_NAME:,} characters of Unicode"
            return Access.NONE, CloseCode.DENIED, why
        try:
            # Without a limit, clients that give up and come again would pile up.
            with anyio.move_on_after(self.limits.judge_seconds):
                judged = self._judge(visit)
                access = await judged if inspect.isawaitable(judged) else judged
                if not isinstance(access, Access):
                    raise LocalProtocolError(f"a judge returns an Access, not {shown(access)}")
                return access, CloseCode.DENIED, "you may not enter this room"
        except Exception:
            self._logger.exception(
                "the judge of room %r has failed: the visitor is refused", visit.room
            )
            why = "the server could not decide whether you may enter"
            return Access.NONE, CloseCode.DENIED, why
        self._logger.warning(
            "the judge of room %r has not decided within %g s: the visitor is to come again",
            visit.room,
            self.limits.judge_seconds,
        )
        why = "the server has not decided in time whether you may enter"
        return Access.NONE, CloseCode.TRY_AGAIN, why

    async def _refuse(self, channel: Channel, code: CloseCode, why: str) -> None:
        self.counts[code.name.lower()] += 1
        with anyio.move_on_after(self.limits.stall_seconds):
            await channel.send(messages.encode(messages.Denied(why)))
            await channel.close(code, reason_to_close(why))

    # Other nodes' clients

    def _listen(self) -> None:
        if self._stop is None:
            self._stop = self._replica.on_whisper(self._hear)

    def _hear(self, whisper: Whisper) -> None:
        if not whisper.topic.startswith(_TOPIC):
            return
        nodes = self._heard.setdefault(whisper.topic, {})
        if whisper.payload:
            nodes[whisper.sender] = whisper.payload
        else:
            nodes.pop(whisper.sender, None)
        if not nodes:
            del self._heard[whisper.topic]
        for room in self._rooms.values():
            if room.topic == whisper.topic:
                room.hear(whisper.sender, whisper.payload)


class _Room:
    """One document, and its clients at this node. Raises TypeClashError if the name belongs to another type."""

    def __init__(
        self,
        name: str,
        replica: Replica | aio.Replica,
        limits: RoomLimits,
        logger: logging.Logger,
    ) -> None:
        self.limits = limits
        self.topic: str = _topic(name)
        self.sessions: dict[Session, None] = {}
        self.is_over: bool = False
        """Whether it has failed: who comes now needs another one."""
        self._name = name
        self._replica = replica
        self._logger = logger
        self._handle = YDocHandle(replica, name)
        self._awareness = Awareness()
        self._updates = self._handle.updates(limits.queue_bytes)
        self._vector = self._handle.state_vector()
        """What the clients were told."""
        self._announced = anyio.Event()
        self._objections: list[ClientState] = []
        """Those that the other nodes were told."""
        self._whispered = b""
        self._whispered_at = 0.0
        self._stops: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Start to tell the clients what is applied, and other nodes who is here."""
        for work in (self._tell_updates, self._tell_nodes):
            self._stops.append(self._replica.spawn(partial(self._guarded, work)))

    def enter(self, session: Session) -> None:
        """A client has come."""
        self.sessions[session] = None
        session.offer_presence([each.client for each in self.everyone()])

    def leave(self, session: Session) -> bool:
        """A client has gone. Returns whether some are left; else this room is over."""
        del self.sessions[session]
        self._changed(self._awareness.left(session))
        if self.sessions:
            return True
        for stop in self._stops:
            stop()
        return False

    def fall_silent(self) -> None:
        """Tell other nodes that nobody is here."""
        self._say(b"")

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except CrdtcastError as error:
            if not isinstance(error, EndedError):
                self._logger.warning("room %r ends: %s", self._name, error)
            code = (
                CloseCode.NOT_A_DOCUMENT
                if isinstance(error, TypeClashError)
                else CloseCode.TRY_AGAIN
            )
            self._end(code, str(error))
        except Exception:
            self._logger.exception("room %r has failed: its clients are to come again", self._name)
            self._end(CloseCode.TRY_AGAIN, "the room has failed")

    def _end(self, code: CloseCode, reason: str) -> None:
        self._say(b"")  # who comes now enters another room, which whispers for itself
        self.is_over = True
        for session in [*self.sessions]:
            session.end(code, reason)

    # The document

    def vector(self) -> bytes:
        """See `SessionRoom`."""
        return self._handle.state_vector()

    def since(self, vector: bytes) -> bytes:
        """See `SessionRoom`."""
        return self._handle.update_since(vector)

    def merged(self, updates: list[bytes]) -> bytes:
        """See `SessionRoom`."""
        for update in updates:
            parsed(update, self.limits.pieces)  # pycrdt's own errors are no exceptions
        return merge_updates(*updates)

    def check(self, update: bytes) -> None:
        """See `SessionRoom`."""
        if len(update) > self.limits.pieces:  # a piece takes a byte at least
            try:
                parsed(update, self.limits.pieces)
            except ValueError as error:
                raise InvalidOperationError(f"not an update for a room: {error}") from error

    def lacks(self, update: bytes) -> bool:
        """See `SessionRoom`."""
        return self._handle.lacks(update)

    async def apply(self, update: bytes) -> None:
        """See `SessionRoom`."""
        await self._handle.apply(update)

    async def durable(self) -> None:
        """See `SessionRoom`."""
        if self._replica.is_journaled:
            await self._replica.wait_durable()

    async def _tell_updates(self) -> None:
        """Send each applied update to all clients, its author included, once it is durable."""
        while True:
            before, update = self._vector, self._take()
            if update == EMPTY:
                await self._updates.changed()
                continue
            self._vector = self._handle.state_vector()
            await self.durable()
            message = messages.encode(messages.Changes(update))
            for session in self.sessions:
                session.offer(message, before)

    def _take(self) -> bytes:
        """All that was applied since the last time, as one update."""
        applied = self._updates.take()
        if applied is None:
            return self._handle.update_since(self._vector)
        updates = [each.update for each in applied]
        return updates[0] if len(updates) == 1 else merge_updates(*updates) if updates else EMPTY

    # Who is here

    def announce(self, session: Session, states: list[ClientState]) -> list[ClientState]:
        """See `SessionRoom`."""
        announced = self._awareness.announce(session, states, anyio.current_time())
        self._changed(announced.changed)
        return announced.late

    def everyone(self) -> list[ClientState]:
        """See `SessionRoom`."""
        return [each for each in self._awareness.known() if not each.is_gone]

    def presence(self, clients: list[int]) -> list[ClientState]:
        """See `SessionRoom`."""
        found = (self._awareness.state(client) for client in clients)
        return [each for each in found if each is not None]

    def hear(self, node: str, whispered: bytes) -> None:
        """Another node has told which clients it has in this room."""
        try:
            states = awareness.decode(whispered) if whispered else []
        except RemoteProtocolError as error:
            self._logger.warning("room %r: %s whispers what is wrong: %s", self._name, node, error)
            states = []
        self._tell_clients(self._awareness.hear(node, states))
        for session, state in self._awareness.objected():
            session.offer_late(state)
        if self._awareness.objections() != self._objections:
            self._announced.set()

    def _changed(self, clients: list[int]) -> None:
        """Clients of this node have changed."""
        if clients:
            self._announced.set()
            self._tell_clients(clients)

    def _tell_clients(self, clients: list[int]) -> None:
        for session in self.sessions if clients else ():
            session.offer_presence(clients)

    async def _tell_nodes(self) -> None:
        """Whisper who is here, when that has changed; and find out who is silent."""
        while True:
            with anyio.move_on_after(min(self.limits.awareness_seconds / 4, _WHISPER_AGAIN)):
                await self._announced.wait()
            silent_since = anyio.current_time() - self.limits.awareness_seconds
            self._changed(self._awareness.expire(silent_since))
            again = self._whispered_at + _WHISPER_AGAIN
            if self._announced.is_set() or (self._whispered and again <= anyio.current_time()):
                self._announced = anyio.Event()
                self._whisper()
                await anyio.sleep(_WHISPER_EVERY)

    def _whisper(self) -> None:
        self._objections = self._awareness.objections()
        said = [*self._awareness.own, *self._objections][: awareness.MAX_CLIENTS]
        fitting = awareness.fitting(said, MAX_WHISPER)
        self._say(awareness.encode(fitting.values()) if fitting else b"")

    def _say(self, payload: bytes) -> None:
        self._whispered, self._whispered_at = payload, anyio.current_time()
        if not self.is_over:
            with contextlib.suppress(EndedError):
                self._replica.whisper(self.topic, payload, seconds=_WHISPER_SECONDS)


def _topic(name: str) -> str:
    topic = _TOPIC + name
    return topic if len(topic) <= MAX_TOPIC else _TOPIC + hashlib.sha256(name.encode()).hexdigest()
