"""Real nodes in one process, on links in memory that a test drives, on a clock that jumps.

    @simulated
    async def test_my_process():
        with Network() as network:
            async with open_member("eu", found=True, machine=Mine()) as eu:
                async with open_member("us", join=eu.address, machine=Mine()) as us:
                    network.cut("us")

What is opened inside the block (`open_member`, `open_host`, `open_replica`) listens and dials on this network. It opens
no socket, and no waiting takes real time.
"""

import errno
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Token
from itertools import count
from types import TracebackType
from typing import Any

import trio
import trio.testing

from crdtcast.transport.options import WILDCARDS, Address
from crdtcast.transport.tcp import TRANSPORT, Transport, cannot_listen
from crdtcast.transport.tls import RECORD_TYPES
from crdtcast.wire.frames import FrameKind

_LENGTH = 4
_DRIVEN = frozenset({FrameKind.MESSAGE, FrameKind.DIGEST, FrameKind.GROUPED})
"""Kinds that a test may hold. All others must arrive in order, or the link is unusable."""


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn an async test into an ordinary function. It runs on Trio's mock clock, which jumps to the next deadline
    whenever all tasks wait.

    A journal on disk works in threads, whose time is not simulated: use `MemoryJournal` or `DiskJournal`.
    """

    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(functools.partial(test, *args, **more), clock=clock)

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined] # for pytest
    return run


async def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Return when `condition()` is true. Raises trio.TooSlowError if it is not after this simulated time."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 (anything may make it true)
            await trio.sleep(0.01)


class Line:
    """The messages from one node to another. Made by `Network.line`; outlives connections.

    While it `hold`s, messages and digests wait in it, and the test delivers them in any order, or never. Frames that
    open a link or concern groups pass at once. With TLS it cannot tell frames apart, and all pass.
    """

    def __init__(self) -> None:
        self.holding: bool = False
        self.silent = False
        """Whether everything sent vanishes, without notice to either side."""
        self.bytes_per_second: float | None = None
        """How fast it is. None: it takes no time."""
        self._waiting: list[tuple[_SendEnd, bytes]] = []

    @property
    def waiting(self) -> int:
        """The number of waiting frames."""
        return len(self._waiting)

    def hold(self) -> None:
        """Make messages and digests wait from now on."""
        self.holding = True

    def deliver(self, index: int = 0) -> None:
        """Deliver the waiting frame at this index. Raises IndexError if there is none."""
        end, frame = self._waiting.pop(index)
        end.hand_over(frame)

    def drop(self, index: int = 0) -> None:
        """Lose the waiting frame at this index. Raises IndexError if there is none."""
        del self._waiting[index]

    def flow(self) -> None:
        """Deliver all waiting frames, in order, and stop holding."""
        self.holding = False
        while self._waiting:
            self.deliver()

    def sent(self, end: "_SendEnd", frame: bytes) -> None:
        """A connection's end has sent a frame."""
        if self.holding and _is_driven(frame):
            self._waiting.append((end, frame))
        else:
            end.hand_over(frame)

    def ended(self, end: "_SendEnd") -> None:
        """A connection's end is closed; its waiting frames are lost."""
        self._waiting = [(e, frame) for e, frame in self._waiting if e is not end]


class Network(Transport):
    """A network in memory: a `with` block in which nodes listen and dial by name.

    buffer_bytes: most bytes of a connection that were sent and are not read yet; the sender of more waits. None: any.
    """

    def __init__(self, *, buffer_bytes: int | None = None) -> None:
        self.dialled: list[tuple[str, str]] = []
        """Who has connected to whom, in order."""
        self._buffer_bytes = math.inf if buffer_bytes is None else buffer_bytes
        self._listeners: dict[Address, _Listener] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._connections: list[tuple[str, str, _SendEnd, _SendEnd]] = []
        self._parted: frozenset[str] = frozenset()
        self._ports = count(1)
        self._token: Token[Transport] | None = None

    def __enter__(self) -> "Network":
        self._token = TRANSPORT.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._token is not None
        TRANSPORT.reset(self._token)

    def line(self, sender: str, receiver: str) -> Line:
        """Return the line from `sender` to `receiver`, which the test controls."""
        return self._lines.setdefault((sender, receiver), Line())

    def cut(self, *names: str) -> None:
        """Separate these nodes from all others: connections between the two sides end, and new ones fail."""
        self._parted = frozenset(names)
        for one, other, *ends in self._connections:
            if self._is_parted(one, other):
                for end in ends:
                    end.close()

    def silence(self, sender: str, receiver: str) -> None:
        """Drop everything that `sender` sends to `receiver`, without notice to either: half a link."""
        line = self.line(sender, receiver)
        line.silent = True
        for _, _, *ends in self._connections:
            for end in ends:
                end.lost = end.lost or end.line is line

    def heal(self) -> None:
        """Undo `cut` and `silence`. A connection that was silent stays so until a node gives it up."""
        self._parted = frozenset()
        for line in self._lines.values():
            line.silent = False

    def disconnect(self, name: str) -> None:
        """End all connections of this node, and let nobody reach it any more: its process is dead."""
        self._listeners = {at: each for at, each in self._listeners.items() if each.name != name}
        for one, other, *ends in self._connections:
            if name in (one, other):
                for end in ends:
                    end.close()

    def _is_parted(self, one: str, other: str) -> bool:
        return (one in self._parted) != (other in self._parted)

    # Transport

    async def listen(
        self, name: str, address: Address
    ) -> tuple[Address, Sequence[trio.abc.Listener[trio.abc.Stream]]]:
        """See `Transport`. Port 0 stands for any free port."""
        await trio.lowlevel.checkpoint()
        host, port = address
        taken = {used for _, used in self._listeners}
        address = host, port or next(free for free in self._ports if free not in taken)
        if address in self._listeners:
            raise cannot_listen(address, OSError(errno.EADDRINUSE, "address in use"))
        listener = self._listeners[address] = _Listener(name, self._closed)
        return address, [listener]

    def _closed(self, listener: "_Listener") -> None:
        self._listeners = {at: each for at, each in self._listeners.items() if each is not listener}

    async def connect(self, name: str, host: str, port: int) -> trio.abc.Stream:
        """See `Transport`."""
        await trio.lowlevel.checkpoint()
        listener = next(
            (
                self._listeners[where, port]
                for where in (host, *sorted(WILDCARDS))
                if (where, port) in self._listeners
            ),
            None,
        )
        if listener is None or self._is_parted(name, listener.name):
            raise OSError("connection refused, or the network is cut")
        self.dialled.append((name, listener.name))
        out = _SendEnd(self.line(name, listener.name), self._buffer_bytes)
        back = _SendEnd(self.line(listener.name, name), self._buffer_bytes)
        self._connections = [c for c in self._connections if not (c[2].closed and c[3].closed)]
        self._connections.append((name, listener.name, out, back))
        listener.give(trio.StapledStream(back, out.there))
        return trio.StapledStream(out, back.there)


class _Listener(trio.abc.Listener[trio.abc.Stream]):
    def __init__(self, name: str, on_close: Callable[["_Listener"], object]) -> None:
        self.name = name
        self._on_close = on_close
        self._put, self._take = trio.open_memory_channel[trio.abc.Stream](math.inf)

    def give(self, stream: trio.abc.Stream) -> None:
        self._put.send_nowait(stream)

    async def accept(self) -> trio.abc.Stream:
        try:
            return await self._take.receive()
        except trio.EndOfChannel as error:
            raise trio.ClosedResourceError from error

    async def aclose(self) -> None:
        self._on_close(self)
        self._take.close()
        await trio.lowlevel.checkpoint()


class _ReceiveEnd(trio.abc.ReceiveStream):
    """Reads as fast as its line is."""

    def __init__(self, line: Line) -> None:
        self.unread: int = 0
        self.was_read: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        self._inner = trio.testing.MemoryReceiveStream()
        self._line = line
        self._free_at = -math.inf

    async def receive_some(self, max_bytes: int | None = None) -> bytearray:
        if trio.current_time() < self._free_at:
            await trio.sleep_until(self._free_at)
        data = await self._inner.receive_some(max_bytes)
        if self._line.bytes_per_second is not None:
            self._free_at = trio.current_time() + len(data) / self._line.bytes_per_second
        self.unread -= len(data)
        self.was_read.unpark_all()
        return data

    def put(self, data: bytes) -> None:
        self._inner.put_data(data)
        self.unread += len(data)

    def end(self) -> None:
        """Nothing more comes."""
        self._inner.put_eof()

    async def aclose(self) -> None:
        self.was_read.unpark_all()
        await self._inner.aclose()


class _SendEnd(trio.abc.SendStream):
    """Cuts what is written into frames, for its line. If frames cannot be told apart, everything passes."""

    def __init__(self, line: Line, buffer_bytes: float) -> None:
        self.closed: bool = False
        self.line = line
        self.there: _ReceiveEnd = _ReceiveEnd(line)
        self.lost: bool = line.silent
        """Whether nothing more arrives, and nobody is told."""
        self._buffer_bytes = buffer_bytes
        self._opaque: bool | None = None
        self._buffer = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self.closed:
            raise trio.BrokenResourceError("the connection was cut")
        if self.lost:
            return
        if self._opaque is None:
            self._opaque = bytes(data[:1]) in RECORD_TYPES
        if self._opaque:
            self.hand_over(bytes(data))
        else:
            self._buffer += data
            while (size := self._first()) and len(self._buffer) >= size:
                frame = bytes(self._buffer[:size])
                del self._buffer[:size]
                self.line.sent(self, frame)
        await self.wait_send_all_might_not_block()

    def _first(self) -> int:
        """Bytes of the first frame with its length, or 0 while that is not known."""
        if len(self._buffer) < _LENGTH:
            return 0
        return _LENGTH + int.from_bytes(self._buffer[:_LENGTH], "big")

    def hand_over(self, data: bytes) -> None:
        if self.closed or self.lost:
            return
        try:
            self.there.put(data)
        except trio.ClosedResourceError:
            self.close()  # the other end is closed: the next write fails

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()
        while self.there.unread > self._buffer_bytes and not self.closed:
            await self.there.was_read.park()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.line.ended(self)
            self.there.was_read.unpark_all()
            if not self.lost:
                self.there.end()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


def _is_driven(frame: bytes) -> bool:
    """Whether it is a message, a digest or something else of a group, compressed or not."""
    first, kind = frame[_LENGTH : _LENGTH + 1], frame[_LENGTH + 1 : _LENGTH + 2]
    is_list = b"\x90" <= first <= b"\x9f"  # as in msgpack; a compressed frame is not a list
    return not is_list or (kind != b"" and kind[0] in _DRIVEN)
