"""What the proxies do to the bytes between two nodes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack
import pytest
import trio

from crdtcast.chaos.proxy import ProxyNetwork
from crdtcast.testing import simulated
from crdtcast.wire.frames import FrameKind


def hello(name: str) -> bytes:
    body: bytes = msgpack.packb([FrameKind.HELLO, {"name": name}])
    return len(body).to_bytes(4, "big") + body


class Between:
    """A dials b through b's proxy. What b hears on each connection is in `heard`; it answers with the same."""

    def __init__(self, network: ProxyNetwork, proxy: trio.SocketListener) -> None:
        self.network = network
        self.heard: list[bytes] = []
        self._proxy = proxy

    async def answer(self, stream: trio.SocketStream) -> None:
        number = len(self.heard)
        self.heard.append(b"")
        async with stream:
            async for piece in stream:
                self.heard[number] += piece
                await stream.send_all(piece)

    async def dial(self) -> trio.SocketStream:
        stream = await trio.open_tcp_stream(*self._proxy.socket.getsockname())
        await stream.send_all(hello("a"))
        return stream

    async def says(self, stream: trio.SocketStream, words: bytes) -> None:
        """Return when the answer is here."""
        await stream.send_all(words)
        answer = b""
        while not answer.endswith(words):
            answer += await stream.receive_some()


@asynccontextmanager
async def between() -> AsyncIterator[Between]:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            network = ProxyNetwork(1)
            place = network.place("b")
            (proxy,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            (target,) = await trio.open_tcp_listeners(place.address[1], host="127.0.0.1")
            both = Between(network, proxy)
            nursery.start_soon(trio.serve_listeners, both.answer, [target])
            nursery.start_soon(network.serve, "b", place.address, proxy)
            yield both
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fault", ["black hole", "one-way"])
def test_connection_stays_silent_after_bytes_were_swallowed(fault: str) -> None:
    async def course() -> None:
        async with between() as both:
            place, there = both.network.place("b"), both.network.between("a", "b")
            old = await both.dial()
            await both.says(old, b"before")
            if fault == "one-way":
                there.deaf = True
            else:
                place.swallow()
                lost = await both.dial()  # nobody answers, and nobody refuses
            await old.send_all(b"lost")
            while there.swallowed < 4:  # noqa: ASYNC110
                await trio.sleep(0.01)
            there.deaf = False
            place.swallow_nothing()
            await old.send_all(b"too late")
            await old.aclose()
            new = await both.dial()
            await both.says(new, b"after")
            await new.aclose()
            assert both.heard == [hello("a") + b"before", hello("a") + b"after"]
            if fault == "black hole":
                await lost.aclose()

    trio.run(course)


@simulated
async def test_loss_delays_the_requested_share_of_packets() -> None:
    network = ProxyNetwork(3)
    network.place("b").lose(30)
    waited = []
    for _ in range(200):
        began = trio.current_time()
        await network._lose(("a", "b"))
        waited.append(trio.current_time() - began)
    assert 40 <= len([pause for pause in waited if pause]) <= 80
    assert max(waited) > 0.5  # lost twice
    began = trio.current_time()
    await network._lose(("a", "c"))
    network.place("b").lose_nothing()
    await network._lose(("a", "b"))
    assert trio.current_time() == began
