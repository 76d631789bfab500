"""Reads behind an unanswered write of their own client: they go with its commit, whatever command they are."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, packed
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, RunningGateway, gateway

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the plain server."""
    with servers.borrowed("no") as lent:
        yield lent.port


@pytest.fixture(scope="module")
def running(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), port) as running:
        yield running


@pytest.fixture
def relayed(running: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Names of the reads that were passed past the commits."""
    names: list[bytes] = []
    send = running.gateway.relay.send

    def noting(request: Request) -> None:
        names.append(request.args[0])
        send(request)

    monkeypatch.setattr(running.gateway.relay, "send", noting)
    return names


def exchange(port: int, commands: list[tuple[str, ...]]) -> bytes:
    """All bytes of the replies behind the greeting, the commands sent at once."""
    begin, end = b"$5\r\nbegin\r\n", b"$7\r\nthe end\r\n"
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(b"".join(map(packed, [*commands, ("PING", "the end")])))
        received = bytearray()
        while not received.endswith(end):
            piece = sock.recv(1 << 20)
            assert piece, bytes(received[-100:])
            received += piece
        return bytes(received).partition(begin)[2]


@pytest.mark.parametrize("hello", ["2", "3"], ids=["RESP2", "RESP3"])
def test_reads_after_a_write_equal_the_servers_bytes(
    port: int, running: RunningGateway, relayed: list[bytes], hello: str
) -> None:
    with RawClient(port) as server:
        server.call("FLUSHDB")
        server.call("RPUSH", "list", "a", "b", "")
        server.call("HSET", "hash", "f", "v", "g", "2")
        server.call("ZADD", "zset", "1.5", "x", "2", "y", "-inf", "z")
        server.call("XADD", "stream", "1-1", "f", "v")
        server.call("SET", "text", "\r\n+OK\r\n")
    asked: list[tuple[str, ...]] = [
        ("HELLO", hello),
        ("ECHO", "begin"),
        ("SADD", "set", "one"),  # what follows goes behind it, with its commit
        *(("LRANGE", "list", "0", "-1"), ("LINDEX", "list", "9"), ("HGETALL", "hash")),
        *(("GET", "text"), ("SMEMBERS", "set"), ("ZRANGE", "zset", "0", "-1", "WITHSCORES")),
        *(("ZSCORE", "zset", "x"), ("ZSCORE", "zset", "none"), ("HMGET", "hash", "f", "none")),
        *(("XRANGE", "stream", "-", "+"), ("SINTERCARD", "2", "set", "set"), ("STRLEN", "hash")),
        *(("GET", "list"), ("TYPE", "zset"), ("SINTERCARD", "x", "set"), ("GET", "none")),
        ("SADD", "set", "two"),
        *(("SCARD", "set"), ("HGETALL", "hash"), ("SISMEMBER", "set", "two"), ("HLEN", "hash")),
        *(("OBJECT", "ENCODING", "list"), ("ZRANGEBYSCORE", "zset", "-inf", "1"), ("DBSIZE",)),
    ]
    through = exchange(running.port, asked)
    assert not relayed
    with RawClient(running.port) as client:
        client.call("DEL", "set")
    assert through == exchange(port, asked)


def test_writes_and_reads_in_turn_are_few_commits(
    running: RunningGateway, relayed: list[bytes]
) -> None:
    with running.client() as client:
        client.call("DEL", "n")
        before = running.gateway.committer.commits
        replies = client.pipeline([("INCRBY", "n", "7"), ("STRLEN", "n")] * 32)
        assert replies == [reply for n in range(1, 33) for reply in (7 * n, len(str(7 * n)))]
    assert not relayed
    assert running.gateway.committer.commits - before <= 4  # the pipeline may come in pieces


@pytest.mark.parametrize("read", [("LRANGE", "long", "0", "-1"), ("KEYS", "*")], ids=lambda r: r[0])
def test_a_large_reply_goes_with_a_commit_only_once(
    port: int, running: RunningGateway, relayed: list[bytes], read: tuple[str, ...]
) -> None:
    with RawClient(port) as server:
        server.call("FLUSHDB")
        server.call("RPUSH", "long", *["x" * 1000] * 1500)
        server.call("MSET", *(word for n in range(20_000) for word in (f"key:{n}", "v")))
        expected = server.call(*read)
        assert isinstance(expected, list)
    running.gateway.committer._reads.large.clear()
    with running.client() as client:
        for times in range(3):
            one, large, two = client.pipeline([("INCR", "n"), read, ("INCR", "n")])
            assert isinstance(large, list) and isinstance(one, int) and two == one + 1
            assert set(expected) <= set(large)
            assert relayed == [read[0].encode()] * times


def test_a_read_that_is_denied_harms_no_write(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server", appendfsync="no") as server,
        RawClient(server.port) as direct,
    ):
        direct.call("ACL", "SETUSER", "default", "-hstrlen", "-object|encoding")
        with gateway(tmp_path, server.port) as running, running.client() as client:
            reads = ("HSTRLEN", "n", "f"), ("OBJECT", "ENCODING", "n")
            one, *denied, two = client.pipeline([("INCR", "n"), *reads, ("INCR", "n")])
            assert (one, two) == (1, 2)
            assert all(isinstance(r, ErrorReply) and r.text.startswith("NOPERM") for r in denied)
            replies = client.pipeline([("MULTI",), reads[0], ("INCR", "n"), ("EXEC",)])
            shown = [r.text if isinstance(r, ErrorReply) else "" for r in replies]
            assert shown[1].startswith("NOPERM") and shown[3].startswith("EXECABORT")
            assert client.call("GET", "n") == b"2"
