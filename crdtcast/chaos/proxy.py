"""A proxy before each node, through which all others reach it: cuts, one-way cuts, delays and torn connections.

The first frame of a connection says who has dialled (the hello of the handshake), so a fault can concern one pair only.
Bytes are passed on as they are; a fault swallows them, holds them back, or ends the connection.
"""

from collections import defaultdict
from dataclasses import dataclass

import msgpack
import trio

from crdtcast.wire import FrameKind

_READ = 64 * 1024
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass(slots=True)
class Weather:
    """What happens to bytes from one node to another. deaf: swallowed, and with them all that the same connection
    carries later: it is half-open until somebody notices. delay: seconds.
    """

    deaf: bool = False
    cut: bool = False
    delay: float = 0.0


class Network:
    """The weather between nodes, by (from, to), and the connections that it is about."""

    def __init__(self) -> None:
        self._weather: defaultdict[tuple[str, str], Weather] = defaultdict(Weather)
        self._scopes: defaultdict[frozenset[str], set[trio.CancelScope]] = defaultdict(set)

    def between(self, source: str, target: str) -> Weather:
        """Bytes from `source` to `target`."""
        return self._weather[source, target]

    def both(self, one: str, other: str) -> tuple[Weather, Weather]:
        """Both directions."""
        return self.between(one, other), self.between(other, one)

    def tear(self, one: str, other: str) -> None:
        """End all connections of this pair."""
        for scope in self._scopes[frozenset((one, other))]:
            scope.cancel()

    def calm(self) -> None:
        """Nothing disturbs anybody any more."""
        for weather in self._weather.values():
            weather.deaf = weather.cut = False
            weather.delay = 0.0

    async def serve(self, node: str, port: int, listener: trio.SocketListener) -> None:
        """Pass on what arrives here to the node of that name and port."""

        async def handle(stream: trio.SocketStream) -> None:
            async with stream:
                await self._connection(node, port, stream)

        await trio.serve_listeners(handle, [listener])

    async def _connection(self, node: str, port: int, dialler: trio.SocketStream) -> None:
        try:
            first, name = await _first_frame(dialler)
            pair = frozenset((node, name))
            if self.between(name, node).cut:
                return
            with trio.CancelScope() as scope:
                self._scopes[pair].add(scope)
                try:
                    async with await trio.open_tcp_stream("127.0.0.1", port) as target:
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
                swallowed = swallowed or weather.deaf
                if not swallowed:
                    await target.send_all(piece)
        except _BROKEN:
            pass
        finally:
            scope.cancel()


async def _first_frame(stream: trio.SocketStream) -> tuple[bytes, str]:
    """The first frame, and the name in it; "" if it is no hello."""
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
