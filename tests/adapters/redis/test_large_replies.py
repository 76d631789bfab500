"""Replies of any size, and clients that do not read theirs: others go on, and every byte is the server's."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crdtcast.adapters.redis.clients.client import UNREAD_PAUSE, ClientLimits
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.server.connection import Replies
from crdtcast.adapters.redis.server.raw_client import RawClient, packed
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, RunningGateway, gateway, options, until

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[RawClient]:
    """A client of the plain server."""
    lent = servers.borrow()
    with RawClient(lent.port) as client:
        client.port = lent.port  # type: ignore[attr-defined]
        yield client
    servers.give_back(lent)


@pytest.fixture
def running(server: RawClient, tmp_path: Path) -> Iterator[RunningGateway]:
    with gateway(tmp_path, server.port) as running:  # type: ignore[attr-defined]
        yield running


def exchange(port: int, *commands: tuple[str | bytes, ...], end: bytes) -> bytes:
    """All bytes of the replies to these commands, sent at once; the last of them is `end`."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(b"".join(map(packed, commands)))
        received = bytearray()
        while not received.endswith(end):
            piece = sock.recv(1 << 20)
            assert piece, bytes(received[-100:])
            received += piece
        return bytes(received)


def fill(client: RawClient, key: str, members: int) -> None:
    for first in range(0, members, 100_000):
        names = [f"member-{n}" for n in range(first, min(first + 100_000, members))]
        client.call("SADD", key, *names)


LIMIT = 400_000


@pytest.mark.parametrize("sign", [b"*", b"~"], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("other", [(), ("LRANGE", "list", "0", "-1")], ids=["sets", "other types"])
def test_transaction_reads_are_held_as_bytes_up_to_the_limit(
    server: RawClient, tmp_path: Path, sign: bytes, other: tuple[str, ...]
) -> None:
    given = options(tmp_path, server.port)  # type: ignore[attr-defined]
    running = RunningGateway(replace(given, limits=ClientLimits(output=LIMIT))).wait_ready()
    most: list[int] = []
    objects: list[object] = []
    answered = running.gateway.committer._answered

    def watched(commit: Commit, replies: Replies) -> None:
        held = next((r for r in replies if isinstance(r, list) and len(r) > 2), [])
        objects.extend(r for r in held if isinstance(r, list) and len(r) > 100)
        most.append(sum(len(r) for r in held if isinstance(r, bytes)))
        answered(commit, replies)

    try:
        with running.client() as client:
            server.call("RPUSH", "list", "a", "b")
            fill(client, "set", 5_000)  # a reply of 89 kB
            fill(client, "big", 30_000)
            names = [b"member-%d" % n for n in range(30_000)]
            alone = 8 + sum(len(b"$%d\r\n%b\r\n" % (len(name), name)) for name in names)
            running.gateway.committer._answered = watched  # type: ignore[method-assign]
            asked = [("SMEMBERS", "set")] * 40
            asked.insert(0, ("SMEMBERS", "big"))
            if other:
                asked.insert(1, other)
            asked.append(("DBSIZE",))
            got = exchange(
                running.port,
                ("HELLO", "3" if sign == b"~" else "2"),
                ("MULTI",),
                ("INCR", "n"),
                *asked,
                ("INCR", "n"),
                ("EXEC",),
                ("PING", "the end"),
                end=b"$7\r\nthe end\r\n",
            )
            executed = got[got.index(b"*%d\r\n" % (len(asked) + 2)) :]
            sets = executed.count(sign + b"5000\r\n")
            assert sets == 4, "as many as fit"
            assert executed.count(b"client_output_limit") == 41 - sets
            assert b"dropped this reply of %d bytes" % alone in executed
            assert b":1\r\n" in executed and executed.endswith(b":2\r\n$7\r\nthe end\r\n")
            assert 0 < max(most) <= LIMIT
            assert not objects, "members are bytes of the reply"
            assert client.call("GET", "n") == b"2"
    finally:
        running.stop()


@pytest.mark.parametrize("hello", ["2", "3"], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("frame", [("PING", "PING"), ("MULTI", "EXEC")], ids=["plain", "MULTI"])
def test_reads_sent_with_a_commit_equal_the_servers_bytes(
    server: RawClient, running: RunningGateway, hello: str, frame: tuple[str, str]
) -> None:
    server.call("SET", "text", "x" * 300_000)
    with running.client() as client:
        fill(client, "set", 15_000)  # not so many that its reads are relayed
        client.call("INCR", "n")
    asked: list[tuple[str, ...]] = [
        (frame[0],),
        ("SADD", "set", "member-1"),  # what follows goes behind it, with its commit
        ("SMEMBERS", "set"),
        ("SMEMBERS", "none"),
        ("SMEMBERS", "n"),
        ("GET", "none"),
        ("GET", "text"),
        ("GET", "n"),
        ("TYPE", "set"),
        ("SMISMEMBER", "set", "member-1", "none"),
        ("SISMEMBER", "set", "member-1"),
        ("EXISTS", "set", "text"),
        ("SCARD", "set"),
        ("SMEMBERS", "set"),
        (frame[1],),
        ("PING", "the end"),
    ]
    begin, end = b"$5\r\nbegin\r\n", b"$7\r\nthe end\r\n"
    plain, through = (
        exchange(port, ("HELLO", hello), ("ECHO", "begin"), *asked, end=end).partition(begin)[2]
        for port in (server.port, running.port)  # type: ignore[attr-defined]
    )
    assert through == plain


@pytest.mark.parametrize("hello", [("PING",), ("HELLO", "3")], ids=["RESP2", "RESP3"])
def test_large_replies_are_the_servers_byte_for_byte(
    server: RawClient, running: RunningGateway, hello: tuple[str, ...]
) -> None:
    with running.client() as client:
        fill(client, "set", 300_000)
    server.call("HSET", "hash", *(str(n) for n in range(40_000)))
    server.call("SET", "text", b"\r\n$5\r\n*3\r\n" * 300_000)
    asked: list[tuple[str, ...]] = [
        ("SMEMBERS", "set"),
        ("HGETALL", "hash"),
        ("HGET", "hash", "0"),
        ("HGET", "hash", "none"),
        ("STRLEN", "text"),
        ("GETRANGE", "text", "0", "-1"),
        ("GET", "text"),
        ("LRANGE", "hash", "0", "1"),
        ("SMISMEMBER", "set", *(f"member-{n}" for n in range(5000))),
        ("SSCAN", "set", "0", "COUNT", "30000"),
        ("PING", "the end"),
    ]
    end = b"$7\r\nthe end\r\n"
    plain, through = (
        exchange(port, hello, *asked, end=end)
        for port in (server.port, running.port)  # type: ignore[attr-defined]
    )
    if hello[0] == "HELLO":  # their ids and names differ
        plain, through = (text[text.index(b"300000\r\n") :] for text in (plain, through))
    assert through == plain


def test_session_commands_keep_their_order_among_relayed_reads(
    server: RawClient, running: RunningGateway
) -> None:
    server.call("HSET", "hash", "f", "v", "large", b"x" * 3_000_000)
    with running.client() as client:
        commands: list[tuple[str, ...]] = []
        expected: list[object] = []
        for n in range(40):
            commands += [("HGET", "hash", "f"), ("ECHO", str(n)), ("INCR", "n"), ("GET", "n")]
            expected += [b"v", str(n).encode(), n + 1, str(n + 1).encode()]
            commands += [("HSTRLEN", "hash", "large"), ("HGET", "hash", "f"), ("SMEMBERS", "n-set")]
            expected += [3_000_000, b"v", []]
        assert client.pipeline(commands) == expected


def unread(running: RunningGateway) -> list[int]:
    return [len(client.unread) for client in list(running.gateway.front.clients.values())]


def test_a_client_that_does_not_read_holds_back_no_one_else(
    server: RawClient, running: RunningGateway
) -> None:
    with running.client() as client, running.client() as other:
        fill(client, "mid", 20_000)
        size = len(exchange(running.port, ("SMEMBERS", "mid"), ("PING",), end=b"+PONG\r\n"))
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            reads = 120
            slow.sendall(b"SMEMBERS mid\r\n" * reads)
            until(lambda: max(unread(running)) > UNREAD_PAUSE)
            for n in range(50):
                assert other.call("INCR", "n") == n + 1
                assert other.call("SISMEMBER", "mid", "member-1") == 1
                assert len(other.call("SMEMBERS", "mid")) == 20_000  # type: ignore[arg-type]
                # What it has asked for waits at the gateway as a request, not as a reply.
                assert max(unread(running)) < 20 * size
            received = 0
            while received < reads * (size - len(b"+PONG\r\n")):
                received += len(slow.recv(1 << 20))
            slow.sendall(b"PING\r\n")
            assert slow.recv(100) == b"+PONG\r\n"


def test_writes_of_a_slow_client_wait_until_it_has_read(
    server: RawClient, running: RunningGateway
) -> None:
    with running.client() as client, running.client() as other:
        fill(client, "mid", 20_000)
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            slow.sendall(b"SMEMBERS mid\r\n" * 60 + b"INCR mine\r\n")
            until(lambda: max(unread(running)) > UNREAD_PAUSE)
            for _ in range(50):
                other.call("INCR", "n")
            assert other.call("EXISTS", "mine") == 0
            tail = b""
            while not tail.endswith(b":1\r\n"):
                tail = (tail + slow.recv(1 << 20))[-20:]
            assert other.call("GET", "mine") == b"1"


def test_a_slow_client_that_hangs_up_leaves_nothing_behind(
    server: RawClient, running: RunningGateway
) -> None:
    with running.client() as client:
        fill(client, "mid", 20_000)
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as slow:
            slow.sendall(b"SMEMBERS mid\r\n" * 400)
            until(lambda: max(unread(running)) > UNREAD_PAUSE)
        until(lambda: len(running.gateway.front.clients) == 1)
        assert client.call("STRLEN", "none") == 0
        until(lambda: not running.gateway.relay.waiting)
