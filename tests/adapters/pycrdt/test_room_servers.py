"""Rooms over real WebSockets: hypercorn in Trio, uvicorn in asyncio, and a mount in FastAPI."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from pycrdt import Doc

from crdtcast import aio, open_replica
from crdtcast.adapters.pycrdt import RoomLimits, Rooms, anyone
from crdtcast.adapters.pycrdt.rooms import messages
from crdtcast.ports import free_ports
from crdtcast.testing import Network, simulated
from tests.adapters.pycrdt.browsers import Browser

pytest.importorskip("trio_websocket")
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url


async def browse(browser: Browser, url: str) -> None:
    """Connect a browser to a server, until either ends."""
    async with (
        open_websocket_url(url, max_message_size=2**26) as connection,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(speak, browser, connection)
        browser.greet()
        try:
            while True:
                browser.take(messages.decode(await connection.get_message()))
        except ConnectionClosed as closed:
            await browser.line.close(closed.reason.code, closed.reason.reason or "")
        browser.news.set()
        nursery.cancel_scope.cancel()


async def speak(browser: Browser, connection: WebSocketConnection) -> None:
    while (raw := await browser.line.receive()) is not None:
        await connection.send_message(raw)
    await connection.aclose()


# hypercorn does not close the socket on which it listens.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_rooms_under_hypercorn_in_trio() -> None:
    from hypercorn.config import Config
    from hypercorn.trio import serve

    async def main() -> None:
        port = free_ports(1)[0]
        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.errorlog = None
        stop = trio.Event()
        async with open_replica("a", found=True) as replica, trio.open_nursery() as nursery:
            rooms = Rooms(replica, anyone)
            await nursery.start(
                lambda task_status: serve(
                    rooms.asgi,
                    config,
                    shutdown_trigger=stop.wait,
                    task_status=task_status,  # type: ignore[arg-type]
                )
            )
            url = f"ws://127.0.0.1:{port}/a%20page"
            ann, bob, bad = Browser(), Browser(), Browser()
            for each in (ann, bob, bad):
                nursery.start_soon(browse, each, url)
            ann.text += "Hello"
            await bob.reads("Hello")
            ann.announce({"name": "Ann"})
            await bob.until(lambda: bob.state_of(ann) == {"name": "Ann"})
            bad.line.give(b"\x09")
            await bad.until(lambda: bad.line.closed)
            assert bad.line.closed == (4400, "an unknown kind of message: 9")
            ann.leave()
            await bob.until(lambda: bob.state_of(ann) is None)
            assert rooms.open == {"a page": 1}
            bob.leave()
            stop.set()

    trio.run(main)


@asynccontextmanager
async def under_uvicorn(port: int, limits: RoomLimits | None = None) -> AsyncIterator[Rooms]:
    """Rooms, mounted in an application of FastAPI."""
    import uvicorn
    from fastapi import FastAPI

    async with aio.open_replica("a", found=True) as replica:
        rooms = Rooms(replica, anyone, limits=limits)
        app = FastAPI()
        app.mount("/rooms", rooms.asgi)
        config = uvicorn.Config(
            app, port=port, log_level="warning", ws="wsproto", ws_max_size=2**26, lifespan="off"
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server._serve())
        while not server.started:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
        try:
            yield rooms
        finally:
            server.should_exit = True
            await serving


@simulated
async def test_uvicorn_takes_rooms_alone_for_asgi_3() -> None:
    import uvicorn

    with Network():
        async with open_replica("a", found=True) as replica:
            config = uvicorn.Config(Rooms(replica, anyone).asgi)
            config.load()
            assert config.interface == "asgi3"


def against_uvicorn(
    visit: Callable[[str, Rooms], Awaitable[None]], limits: RoomLimits | None = None
) -> None:
    """Let clients in Trio, in a thread, visit a server in asyncio"""
    port = free_ports(1)[0]

    async def main() -> None:
        async with under_uvicorn(port, limits) as rooms:
            await asyncio.to_thread(trio.run, visit, f"ws://127.0.0.1:{port}/rooms", rooms)

    asyncio.run(main())


@pytest.mark.slow
def test_rooms_mounted_in_fastapi_under_uvicorn(caplog: pytest.LogCaptureFixture) -> None:
    limits = RoomLimits(queue_bytes=20_000, stall_seconds=0.5)

    async def visit(url: str, rooms: Rooms) -> None:
        ann, bob = Browser(), Browser()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browse, ann, f"{url}/page")
            nursery.start_soon(browse, bob, f"{url}/page")
            # One that never reads: its socket, and all buffers on the way, fill up.
            host, _, port = url.removeprefix("ws://").split("/")[0].partition(":")
            dead = trio.SocketStream(small := trio.socket.socket())
            small.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
            await small.connect((host, int(port)))
            key = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            key += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            await dead.send_all(f"GET /rooms/page HTTP/1.1\r\nHost: x\r\n{key}".encode())
            with trio.fail_after(60):
                while not rooms.counts["too_slow"]:
                    much = len(ann.text) < 8_000_000
                    ann.text.insert(0, "0123456789" * (100_000 if much else 1))
                    await bob.until(lambda: len(bob.text) == len(ann.text))
                    await trio.sleep(0.01)
            assert str(bob.text) == str(ann.text)
            for _ in range(5):  # tabs that are reloaded
                tab = Browser()
                async with trio.open_nursery() as tabs:
                    tabs.start_soon(browse, tab, f"{url}/page")
                    await tab.until(lambda tab=tab: len(tab.text) == len(ann.text))
                    tab.leave()
            ann.leave()
            bob.leave()
        await dead.aclose()
        assert (rooms.counts["too_slow"], rooms.counts["write"]) == (1, 8)

    with caplog.at_level(logging.WARNING):
        against_uvicorn(visit, limits)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_paste_of_20_mb_goes_through_a_room() -> None:
    paste = "".join(random.Random(5).choices("abcdefgh ", k=20_000_000))

    async def visit(url: str, rooms: Rooms) -> None:
        doc: Doc[Any] = Doc()
        ann, bob = Browser(doc), Browser()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browse, ann, f"{url}/page")
            nursery.start_soon(browse, bob, f"{url}/page")
            ann.text.insert(0, paste)
            await bob.reads(paste)
            ann.leave()
            bob.leave()

    against_uvicorn(visit)
