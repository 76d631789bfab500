"""A proxy before each node, through which all others reach it: cuts, one-way cuts, delays and torn connections.

The first frame of a connection names the dialling node (the hello of the handshake), so a fault can concern one pair.
Bytes are passed on unchanged; a fault swallows them, delays them, or ends the connection.
"""

import random
from collections import defaultdict
from dataclasses import dataclass

import msgpack
import trio

from crdtcast.ports import free_ports
from crdtcast.wire.frames import FrameKind

_READ = 64 * 1024
_SEND_AGAIN = 0.2
"""Seconds after which TCP sends a packet again, at the earliest; the time doubles with each attempt."""
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass(slots=True)
class Weather:
    """What happens to bytes from one node to another.

    deaf: they are swallowed, with all that the same connection carries later: it is half-open until a node notices.
    delay: seconds.
    """

    deaf: bool = False
    cut: bool = False
    delay: float = 0.0
    swallowed: int = 0
    """Bytes so far."""


class ProxyPlace:
    """The place of a node that shares the loopback with all others. Its proxy does to the bytes what a kernel would do
    to packets: see `spaces.Space`, which is the same for a node in a namespace.
    """

    words: tuple[str, ...] = ()

    def __init__(self, network: "ProxyNetwork", name: str) -> None:
        self.address: tuple[str, int] = ("127.0.0.1", free_ports(1)[0])
        self._network = network
        self._name = name

    def lose(self, percent: int) -> None:
        """Lose pieces: what follows a lost piece waits until TCP has sent that again."""
        self._network.losses[self._name] = percent / 100

    def lose_nothing(self) -> None:
        """Undo `lose`."""
        self._network.losses.pop(self._name, None)

    def swallow(self) -> None:
        """Let nothing arrive there or leave. Connections stay, and stay silent until they are closed."""
        self._network.holes.add(self._name)

    def swallow_nothing(self) -> None:
        """Undo `swallow`."""
        self._network.holes.discard(self._name)

    def close(self) -> None:
        """Does nothing."""


class ProxyNetwork:
    """The weather between nodes, by (from, to), and the connections that it affects."""

    def __init__(self, seed: int = 0) -> None:
        self.losses: dict[str, float] = {}
        """Share of lost pieces to and from each node."""
        self.holes: set[str] = set()
        self._dice = random.Random(seed)
        self._weather: defaultdict[tuple[str, str], Weather] = defaultdict(Weather)
        self._scopes: defaultdict[frozenset[str], set[trio.CancelScope]] = defaultdict(set)

    def between(self, source: str, target: str) -> Weather:
        """The weather for bytes from `source` to `target`."""
        return self._weather[source, target]

    def place(self, name: str) -> ProxyPlace:
        """A place for another node."""
        return ProxyPlace(self, name)

    def both(self, one: str, other: str) -> tuple[Weather, Weather]:
        """Both directions."""
        return self.between(one, other), self.between(other, one)

    def tear(self, one: str, other: str) -> None:
        """End all connections of this pair."""
        for scope in self._scopes[frozenset((one, other))]:
            scope.cancel()

    def calm(self) -> None:
        """Undo all faults."""
        for weather in self._weather.values():
            weather.deaf = weather.cut = False
            weather.delay = 0.0
        self.losses.clear()
        self.holes.clear()

    async def serve(
        self, node: str, address: tuple[str, int], listener: trio.SocketListener
    ) -> None:
        """Pass on what arrives at `listener` to the node of that name, at its address."""

        async def handle(stream: trio.SocketStream) -> None:
            async with stream:
                await self._connection(node, address, stream)

        await trio.serve_listeners(handle, [listener])

    async def _connection(
        self, node: str, address: tuple[str, int], dialler: trio.SocketStream
    ) -> None:
        try:
            first, name = await _first_frame(dialler)
            pair = frozenset((node, name))
            if self.between(name, node).cut:
                return
            if self.holes & pair:
                while await dialler.receive_some(_READ):
                    pass
                return
            with trio.CancelScope() as scope:
                self._scopes[pair].add(scope)
                try:
                    async with await trio.open_tcp_stream(*address) as target:
                        await target.send_all(first)
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(self._pass, dialler, target, (name, node), scope)
                            nursery.start_soon(self._pass, target, dialler, (node, name), scope)
                finally:
                    self._scopes[pair].discard(scope)
        except _BROKEN:
            pass

    async def _pass(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        direction: tuple[str, str],
        scope: trio.CancelScope,
    ) -> None:
        weather = self.between(*direction)
        swallowed = False
        try:
            while piece := await source.receive_some(_READ):
                if weather.delay:
                    await trio.sleep(weather.delay)
                await self._lose(direction)
                swallowed = swallowed or weather.deaf or not self.holes.isdisjoint(direction)
                if swallowed:
                    weather.swallowed += len(piece)
                else:
                    await target.send_all(piece)
        except _BROKEN:
            pass
        finally:
            if not swallowed:  # else its end is swallowed, too
                scope.cancel()

    async def _lose(self, direction: tuple[str, str]) -> None:
        """Wait as long as TCP would for a piece that is lost, maybe again and again."""
        share = max(self.losses.get(name, 0.0) for name in direction)
        pause = _SEND_AGAIN
        while self._dice.random() < share:
            await trio.sleep(pause)
            pause *= 2


async def _first_frame(stream: trio.SocketStream) -> tuple[bytes, str]:
    """The first frame, and the name in it; "" if it is not a hello."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = await stream.receive_some(_READ)
        if not piece:
            return data, ""
        data += piece
    return data, _name_in(msgpack.unpackb(data[4 : 4 + int.from_bytes(data[:4], "big")]))


def _name_in(frame: object) -> str:
    match frame:
        case [FrameKind.HELLO, {"name": str(name)}, *_]:
            return name
    return ""
