"""Real sockets on this machine: a group, garbage on the peer port, and a clean end."""

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio

from crdtcast.engine import Engine
from crdtcast.exceptions import ConfigurationError
from crdtcast.fixed.node import Node
from crdtcast.group.running import run_until_signal, running
from crdtcast.transport.options import NodeOptions, format_address
from crdtcast.wire.frames import Hello, Welcome, encode
from tests.node.fixed import Member, incarnation

LOCAL = ("127.0.0.1", 0)


@asynccontextmanager
async def members(*names: str, **options: object) -> AsyncIterator[dict[str, Member]]:
    """A chain is enough: each later member dials the earlier ones."""
    started: dict[str, Member] = {}
    async with AsyncExitStack() as stack:
        for name in names:
            peers = {n: started[n].node.address if n in started else None for n in names}
            del peers[name]
            member = Member(
                NodeOptions(name=name, listen=LOCAL, peers=peers, **options),  # type: ignore[arg-type]
                set(names),
            )
            await stack.enter_async_context(running(member.node))
            started[name] = member
        yield started


async def until(condition: Callable[[], bool], member: Member) -> None:
    """Wait until `condition` holds; looked at whenever the member's node calls, ticks included."""
    with trio.fail_after(30):
        while not condition():
            await member.worked.park()


def test_three_nodes_over_tcp() -> None:
    async def main() -> None:
        async with members("a", "b", "c", digest_interval=0.01) as group:
            for member in group.values():
                for _ in range(100):
                    member.send(member.name.encode() * 10)
            for member in group.values():
                await until(lambda m=member: len(m.stable) == 300, member)
                assert len({dot for dot, _ in member.delivered}) == 200

    trio.run(main)


GARBAGE = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a length that lies": b"\x7f\xff\xff\xff" + b"x" * 100,
    "no length at all": b"\x00\x00\x00\x00",
    "no msgpack": b"\x00\x00\x00\x05\xc1\xc1\xc1\xc1\xc1",
    "a welcome first": encode(Welcome(0)),
    "half a hello": encode(Hello(group="default", name="b", incarnation="b.1", process=b"p"))[:-5],
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_on_the_peer_port_closes_that_connection_only(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with members("a", "b", handshake_timeout=0.2) as group:
            a, b = group.values()
            for _ in range(5):
                stream = await trio.open_tcp_stream(*a.node.address)
                await stream.send_all(garbage)
                with trio.fail_after(10):
                    try:
                        while await stream.receive_some():
                            pass
                    except trio.BrokenResourceError:
                        pass  # reset instead of an orderly end: closed as well
                await stream.aclose()
            b.send(b"alive")
            await until(lambda: a.payloads == [b"alive"], a)

    trio.run(main)
    said = [r for r in caplog.records if r.levelno >= logging.WARNING and "closed:" in r.message]
    assert len(said) == 1, "one line, however often it knocks"
    assert "connection from 127.0.0.1:" in said[0].message


def test_a_handshake_that_never_goes_on_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with members("a", "b", handshake_timeout=0.1) as group:
            stream = await trio.open_tcp_stream(*group["a"].node.address)
            with trio.fail_after(10):
                assert await stream.receive_some() == b""
            await stream.aclose()

    trio.run(main)
    assert "handshake not finished within 0.1 s" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [b"", b"-ERR unknown command\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    ids=["silence", "RESP", "HTTP"],
)
def test_dialled_port_of_something_else_is_named(
    caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    """A join through the port of the other gateway's clients, or of its server."""

    async def serve(stream: trio.SocketStream) -> None:
        if answer:
            await stream.send_all(answer)
        while await stream.receive_some():
            pass

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners: list[trio.SocketListener] = await nursery.start(
                partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
            )
            address = listeners[0].socket.getsockname()[:2]
            options = NodeOptions(
                name="a", listen=LOCAL, peers={"b": address}, handshake_timeout=0.1
            )
            async with running(Member(options, {"a", "b"}).node):
                with trio.fail_after(10):
                    while "--listen)" not in caplog.text:  # noqa: ASYNC110
                        await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_flood_of_half_handshakes_does_not_block_a_member(caplog: pytest.LogCaptureFixture) -> None:
    """Each one says half a hello and then nothing; a member that comes last is linked all the same."""
    half = encode(Hello(group="default", name="c", incarnation="c.1", process=b"p"))[:-5]

    async def main() -> None:
        async with members("a", "b", handshake_timeout=60.0, max_handshakes=4) as group:
            a, b = group.values()
            await until(lambda: a.linked() == {"b"}, a)
            async with AsyncExitStack() as stack:
                for _ in range(200):
                    stream = await trio.open_tcp_stream(*a.node.address)
                    await stack.enter_async_context(stream)
                    await stream.send_all(half)
                with trio.fail_after(10):
                    while a.node.refusals().get("limit", 0) < 196:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                b.node.links().restart("comes back")
                b.send(b"alive")
                await until(lambda: a.payloads == [b"alive"], a)

    trio.run(main)
    said = [r for r in caplog.records if "too many handshakes at once" in r.message]
    assert 1 <= len(said) <= 3, "the flood chooses how much is logged"


def test_one_host_has_so_many_connections_and_no_more() -> None:
    async def main() -> None:
        async with members("a", "b", handshake_timeout=60.0, max_host_connections=8) as group:
            a, b = group.values()
            await until(lambda: a.linked() == {"b"}, a)
            async with AsyncExitStack() as stack:
                streams = [
                    await stack.enter_async_context(await trio.open_tcp_stream(*a.node.address))
                    for _ in range(10)
                ]
                with trio.fail_after(10):
                    assert await streams[-1].receive_some() == b""
                b.send(b"alive")
                await until(lambda: a.payloads == [b"alive"], a)
                await streams[0].aclose()
                with trio.fail_after(10):
                    while len(a.node.links()._admission._greeting) > 6:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                again = await stack.enter_async_context(await trio.open_tcp_stream(*a.node.address))
                await again.send_all(GARBAGE["an HTTP request"])
                with trio.fail_after(10):
                    while a.node.refusals().get("protocol", 0) < 1:  # noqa: ASYNC110
                        await trio.sleep(0.01)

    trio.run(main)


def test_bytes_after_the_handshake_that_are_no_frame(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with members("b") as group:
            b = group["b"]
            b.names.add("a")
            b.node.engine = Engine(b.engine.me, {"a", "b"})
            stream = await trio.open_tcp_stream(*b.node.address)
            hello = Hello(group="default", name="a", incarnation=incarnation("a"), process=b"p")
            await stream.send_all(encode(hello) + encode(Welcome(1)))
            await until(lambda: b.linked() == {"a"}, b)
            await stream.send_all(b"\x00\x00\x00\x02\x91\x63")
            with trio.fail_after(10):
                while piece := await stream.receive_some():
                    farewell = piece
            assert b"unknown frame kind 99" in farewell
            await stream.aclose()
            await until(lambda: b.linked() == set(), b)

    trio.run(main)
    assert "unknown frame kind 99" in caplog.text


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        (None, "another process listens there: stop it, or choose another port"),
        (("203.0.113.1", 7001), "203.0.113.1:7001: this machine does not have that address"),
        (("no such host", 7001), "cannot resolve 'no such host': correct the host name"),
        (("x" * 300, 7001), "correct the host name"),
    ],
)
def test_an_address_that_cannot_be_bound_is_one_clear_line(
    listen: tuple[str, int] | None, words: str
) -> None:
    async def main() -> None:
        async with members("a") as group:
            address = listen or group["a"].node.address
            options = NodeOptions(name="b", listen=address)
            with pytest.raises(ConfigurationError, match=words) as caught:
                async with running(Node(options, Engine(incarnation("b"), {"b"}))):
                    raise AssertionError("it listens")
            assert str(caught.value).startswith(f"cannot listen on {format_address(address)}: ")

    trio.run(main)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_node_cleanly(number: signal.Signals) -> None:
    addresses = []

    async def serve() -> None:
        async with members("a", "b") as group:
            await until(lambda: group["a"].linked() == {"b"}, group["a"])
            addresses.extend(m.node.address for m in group.values())
            os.kill(os.getpid(), number)
            await trio.sleep_forever()

    async def free() -> None:
        for host, port in addresses:
            for listener in await trio.open_tcp_listeners(port, host=host):
                await listener.aclose()

    assert trio.run(partial(run_until_signal, serve)) == number
    assert len(addresses) == 2
    trio.run(free)


def test_run_until_signal_returns_none_or_raises_unchanged() -> None:
    async def fine() -> None:
        await trio.lowlevel.checkpoint()

    async def failing() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("as it is")

    assert trio.run(partial(run_until_signal, fine)) is None
    with pytest.raises(KeyError):
        trio.run(partial(run_until_signal, failing))


@pytest.mark.parametrize("named", [True, False])
def test_log_says_why_a_peer_is_unreachable(
    named: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdtcast.transport.link_table._STARTING", 0.0)

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(LOCAL)  # and nobody listens
            where = taken.getsockname()
            options = NodeOptions(name="a", listen=LOCAL, peers={"b": where} if named else [where])
            member = Member(options, {"a", "b"})
            async with running(member.node):
                await until(lambda: bool(caplog.records), member)
        whom = f"b at {format_address(where)}" if named else format_address(where)
        assert caplog.records[0].getMessage() == f"cannot reach {whom}: Connection refused"

    caplog.set_level(logging.WARNING)
    trio.run(main)
