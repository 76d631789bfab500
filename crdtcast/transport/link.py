"""One established connection to one peer: two tasks, neither of which ever lets an error out.

The writer empties the peer's bounded queue in batches. The reader passes on decoded frames, and stops reading while the
node is congested: TCP then carries the back-pressure to the sender.
"""

import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from crdtcast.exceptions import CrdtcastError, RemoteProtocolError
from crdtcast.transport.send_queue import OutgoingQueue
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.frames import (
    KEEPALIVE_FRAME,
    Frame,
    FrameKind,
    Hello,
    Refusal,
    encode,
)
from crdtcast.wire.sections import LongFrame

MISSED_KEEPALIVES = 3
"""After so many intervals of silence a peer counts as dead."""

CLOSED_BY_PEER = "the peer closed the connection"

STREAM_ERRORS = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
_FAREWELL = 1.0
"""Seconds for the last frame to a peer."""
_READ_SIZE = 16 * 1024
AT_ONCE = 64
"""Frames of one peer that are passed on before others have their turn: their delivery must not take more than a few
milliseconds.
"""


class ReadGate:
    """Readers wait while it is closed; it is open most of the time."""

    def __init__(self) -> None:
        self.closed: bool = False
        self._waiting = trio.lowlevel.ParkingLot()

    def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        self.closed = False
        self._waiting.unpark_all()

    async def wait(self) -> None:
        """Return at once if it is open, else when it is opened."""
        while self.closed:
            await self._waiting.park()


@dataclass(slots=True)
class Traffic:
    """Bytes exchanged with one peer over all its connections, and frames, by kind."""

    sent_bytes: Counter[FrameKind] = field(default_factory=Counter)
    sent_frames: Counter[FrameKind] = field(default_factory=Counter)
    received_bytes: int = 0
    dropped_frames: int = 0


class Link:
    """A connection whose handshake is done.

    number: given by the settling side; of two connections with one process the higher number counts.
    zstd: both ends understand compressed frames.
    told: the peer knows our numbers for ids below this one.
    fill: called when something may be written next; it may offer more.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        decoder: FrameDecoder,
        peer: Hello,
        *,
        number: int,
        zstd: bool,
        traffic: Traffic,
        queue_bytes: int,
        fill: Callable[["Link"], None],
        logger: logging.Logger,
    ) -> None:
        self.peer = peer
        self.name: str = peer.name
        self.incarnation: str = peer.incarnation
        self.number = number
        self.zstd = zstd
        self.told = 0
        self.traffic = traffic
        self.queue: OutgoingQueue = OutgoingQueue(queue_bytes, lambda: fill(self))
        self.since: float = trio.current_time()
        self.last_heard: float = self.since
        self.last_sent: float = self.since
        self.paused: bool = False
        self.closed: str | None = None
        self.objection: bool = False
        """Whether it ended because one side sent what the other cannot accept, which may happen again."""
        self.wrong: str | None = None
        """What the peer has sent that no peer may send, if that ended the link."""
        self._offered = self._written = self._large_end = 0  # bytes
        self._large: dict[object, int] = {}
        self._stream = stream
        self._descriptor: int | None = None
        if isinstance(stream, trio.SocketStream) and os.name == "posix":
            self._descriptor = stream.socket.fileno()
        self._decoder = decoder
        self._logger = logger
        self._writing = False
        self._scope = trio.CancelScope()

    def offer(
        self, kind: FrameKind, stream: bytes | LongFrame, frames: int = 1, longest: int = 0
    ) -> bool:
        """Queue encoded frames. Returns False if they were dropped: the queue is full, or the peer accepts no body of
        `longest` bytes.
        """
        if self.closed is not None:
            return False
        traffic = self.traffic
        if longest > self.peer.max_frame or not self.queue.offer(stream):
            traffic.dropped_frames += frames
            return False
        traffic.sent_frames[kind] += frames
        traffic.sent_bytes[kind] += len(stream)
        self._offered += len(stream)
        return True

    def note_large(self, names: Iterable[object]) -> None:
        """Large frames of these names were just queued."""
        self._large = {name: end for name, end in self._large.items() if end > self._written}
        self._large.update(dict.fromkeys(names, self._offered))
        self._large_end = self._offered

    @property
    def has_large(self) -> bool:
        """Whether large frames are not written yet."""
        return self._large_end > self._written

    def is_under_way(self, name: object) -> bool:
        """Whether a large frame of that name is not written yet: sent again, it would only follow itself."""
        return self._large.get(name, 0) > self._written

    def close(self, reason: str) -> None:
        """End the link; the first reason counts. No frame is passed on afterwards."""
        if self.closed is None:
            self.closed = reason
            self._scope.cancel()

    def refused(self, text: str) -> None:
        """The peer has refused, and ends the link."""
        self.objection = True
        self.close(f"the peer refused: {text}")

    async def object_to(self, text: str) -> None:
        """The peer turns out to have sent what no member may send: tell it why, and end the link."""
        self.objection = True
        await self._say_why(text)
        self.close(text)

    def watch(self, now: float, interval: float) -> None:
        """Send a keep-alive after a long silence of ours, and end the link after one of the peer. Call it several times
        per keep-alive interval.
        """
        silence = now - self.last_heard
        if silence > MISSED_KEEPALIVES * interval and not self.paused:
            self.close(f"no frame for {silence:.1f} s")
        elif now - self.last_sent >= interval and not self._writing and not self.queue.queued_bytes:
            self.offer(FrameKind.KEEPALIVE, KEEPALIVE_FRAME)

    async def run(self, received: Callable[["Link", list[Frame]], None], gate: ReadGate) -> None:
        """Run until the link ends; `closed` then says why. `received` must be synchronous."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guarded, self._write)
                await self._guarded(lambda: self._read(received, gate))

    @trio.lowlevel.enable_ki_protection
    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except STREAM_ERRORS as error:
            self.close(f"the connection broke: {error or type(error).__name__}")
        except CrdtcastError as error:
            self.objection = True
            if isinstance(error, RemoteProtocolError):
                self.wrong = str(error)
            await self._say_why(str(error))
            self.close(str(error))
        except Exception as error:
            # An error of ours must end neither the node nor the other links.
            self._logger.exception("unexpected error on the link with %s", self.name)
            self.close(f"unexpected {type(error).__name__}: {error}")

    async def _say_why(self, text: str) -> None:
        """Tell the peer, if it still reads, why its link ends: its operator looks in its log."""
        refusal = encode(Refusal("protocol", text))
        if self.offer(FrameKind.REFUSAL, refusal):
            with trio.move_on_after(_FAREWELL):
                await self.queue.drained()

    async def _write(self) -> None:
        while True:
            batch = await self.queue.take()
            end = self._offered - self.queue.queued_bytes
            self._writing = True
            await self._stream.send_all(batch)
            self._writing = False
            self._written = end
            self.queue.written()
            self.last_sent = trio.current_time()

    async def _receive(self) -> bytes | bytearray:
        """The next piece of the stream.

        A plain socket is read directly: Trio's stream tries to read before it waits, mostly in vain, and takes several
        times as long.
        """
        descriptor = self._descriptor
        if descriptor is None:
            return await self._stream.receive_some(_READ_SIZE)
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            try:
                return os.read(descriptor, _READ_SIZE)
            except BlockingIOError:
                continue

    async def _read(self, received: Callable[["Link", list[Frame]], None], gate: ReadGate) -> None:
        decoder = self._decoder
        while True:
            frames = decoder.drain(AT_ONCE)
            if frames:
                received(self, frames)
            if gate.closed:
                self.paused = True
                await gate.wait()
                self.paused = False
                self.last_heard = trio.current_time()
            if len(frames) == AT_ONCE:
                await trio.lowlevel.checkpoint()
                if self.closed is not None:
                    return None
                continue
            piece = await self._receive()
            if self.closed is not None:
                return None
            if not piece:
                return self.close(CLOSED_BY_PEER)
            self.last_heard = trio.current_time()
            self.traffic.received_bytes += len(piece)
            decoder.push(piece)


class LinkHost(Protocol):
    """What links need of their node. All methods are synchronous."""

    def hello(self) -> Hello:
        """The present hello. Raises NotReadyError if no peer can be linked yet."""
        ...

    def admit(self, peer: Hello) -> Refusal | None: ...
    def link_up(self, link: Link) -> None: ...
    def link_down(self, link: Link) -> None: ...
    def received(self, link: Link, frames: list[Frame]) -> None: ...
    def fill(self, link: Link) -> None: ...
    def ended(self, error: Exception) -> None: ...
