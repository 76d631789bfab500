"""Clients of rooms as y-websocket's are, in memory: a document of pycrdt, and a channel that is read when they want."""

import json
from collections import deque
from typing import Any

import anyio
from pycrdt import Doc, Text

from crdtcast.adapters.pycrdt.rooms import awareness, messages
from crdtcast.adapters.pycrdt.rooms.awareness import ClientState
from crdtcast.adapters.pycrdt.rooms.channels import Visit
from crdtcast.adapters.pycrdt.rooms.service import Rooms
from crdtcast.exceptions import RemoteProtocolError


class Line:
    """A channel in memory. buffer: messages that wait for the client, which then blocks who sends."""

    def __init__(self, buffer: int = 8) -> None:
        self.closed: tuple[int, str] | None = None
        self.sent: deque[bytes] = deque()
        self._buffer = buffer
        self._received: deque[bytes | None] = deque()
        self._changed = anyio.Event()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def receive(self) -> bytes | None:
        while not self._received:
            await self._changed.wait()
        raw = self._received.popleft()
        if raw == b"text":
            raise RemoteProtocolError("a message of text: this protocol has bytes")
        return raw

    async def send(self, message: bytes) -> None:
        while len(self.sent) >= self._buffer:
            await self._changed.wait()
        self.sent.append(message)
        self._change()

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason
        self._change()

    # For the client

    def give(self, message: bytes | None) -> None:
        self._received.append(message)
        self._change()

    async def take(self) -> bytes | None:
        """The next message; None once it is closed."""
        while not self.sent:
            if self.closed is not None:
                return None
            await self._changed.wait()
        message = self.sent.popleft()
        self._change()
        return message


class Browser:
    """One tab. It answers as y-websocket does, while `run` runs."""

    def __init__(self, doc: Doc[Any] | None = None, *, buffer: int = 8) -> None:
        self.line = Line(buffer)
        self.doc: Doc[Any] = Doc() if doc is None else doc
        self.text: Text = self.doc.get("text", type=Text)
        self.clock = 0
        self.present: dict[int, ClientState] = {}
        """As its Awareness has it; those that are gone stay with their clock."""
        self.denied: list[str] = []
        self.kinds: list[str] = []
        self.news = anyio.Event()
        self._applying = False
        self._subscription = self.doc.observe(self._changed)

    def _changed(self, event: Any) -> None:
        if not self._applying:
            self.say(messages.Changes(event.update))

    def say(self, message: messages.RoomMessage) -> None:
        self.line.give(messages.encode(message))

    def announce(self, state: Any, clock: int | None = None) -> None:
        self.clock = self.clock + 1 if clock is None else clock
        mine = ClientState(self.doc.client_id, self.clock, json.dumps(state))
        self.say(messages.Presence(awareness.encode([mine])))

    def state_of(self, other: "Browser") -> Any:
        known = self.present.get(other.doc.client_id)
        return None if known is None else json.loads(known.state)

    def greet(self) -> None:
        self.say(messages.Step1(self.doc.get_state()))

    async def run(self, rooms: Rooms, name: str, **visit: Any) -> None:
        """Enter a room, and answer until it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.read)
            self.greet()
            await rooms.serve(self.line, Visit(name, **visit))
            if self.line.closed is None:
                await self.line.close(1000, "")

    async def read(self) -> None:
        while (raw := await self.line.take()) is not None:
            self.take(messages.decode(raw))
        self.news.set()

    def take(self, message: messages.RoomMessage) -> None:
        self.kinds.append(type(message).__name__)
        match message:
            case messages.Step1(vector):
                self.say(messages.Changes(self.doc.get_update(vector), answers=True))
            case messages.Changes(update):
                self._applying = True
                self.doc.apply_update(update)
                self._applying = False
            case messages.Presence(states):
                self._meet(awareness.decode(states))
            case messages.Denied(reason):
                self.denied.append(reason)
        self.news.set()
        self.news = anyio.Event()

    def _meet(self, states: list[ClientState]) -> None:
        for each in states:
            known = self.present.get(each.client)
            if each.client == self.doc.client_id:
                if each.is_gone and each.clock >= self.clock:
                    self.clock = each.clock
                    self.announce({"back": True})
            elif (
                known is None
                or known.clock < each.clock
                or (known.clock == each.clock and each.is_gone and not known.is_gone)
            ):
                self.present[each.client] = each

    async def until(self, condition: Any, seconds: float = 60) -> None:
        """Return when the condition holds; looked at whenever something has come, or the line was closed."""
        with anyio.fail_after(seconds):
            while not condition():
                assert self.line.closed is None, self.line.closed
                await self.news.wait()

    async def reads(self, text: str) -> None:
        await self.until(lambda: str(self.text) == text)

    def leave(self) -> None:
        self.line.give(None)
