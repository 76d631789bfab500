"""PUBLISH and SUBSCRIBE through a gateway: what the plain server says, byte for byte, and no message too few."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.clients.subscriptions import glob
from crdtcast.adapters.redis.server.raw_client import RawClient, packed
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, RunningGateway, gateway, options, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def beside() -> Iterator[int]:
    """Port of the server beside the gateway."""
    with servers.borrowed("no") as lent:
        yield lent.port


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    """Port of a plain server."""
    with servers.borrowed("no") as lent:
        yield lent.port


@pytest.fixture(scope="module")
def running(beside: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with gateway(tmp_path_factory.mktemp("pubsub"), beside) as running:
        yield running
        hub = running.gateway.subscriptions
        until(lambda: not any(hub._topics.values()) and not hub._sent)
        assert running.gateway.front.queued == 0


class Client(RawClient):
    """One of either protocol. What is pushed is a reply like all else."""

    def __init__(self, port: int, hello: str = "2") -> None:
        super().__init__(port, PATIENCE)
        self.call("HELLO", hello)

    def receive(self) -> Any:
        """The next reply, or message."""
        while (reply := self.reader.gets()) is False:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the connection was closed")
            self.reader.feed(piece)
        return str(reply) if isinstance(reply, hiredis.ReplyError) else reply


@contextlib.contextmanager
def clients(port: int, *hello: str) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Client(port, protocol)) for protocol in hello]


def exchange(port: int, hello: str, commands: list[str]) -> bytes:
    """All that comes for these commands, which are sent one after the other as the replies come."""
    with Client(port, hello) as client:
        received = b""
        for command in [*commands, "RESET", "ECHO the-end"]:
            client.socket.sendall(packed(command.split()))
        while not received.endswith(b"$7\r\nthe-end\r\n"):
            piece = client.socket.recv(1 << 16)
            assert piece, received
            received += piece
        return received


NAMES = st.sampled_from(["a", "b", "a*", "?"])
CONVERSATION = st.lists(
    st.one_of(
        st.builds(
            "{} {} {}".format,
            st.sampled_from(["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]),
            NAMES,
            NAMES,
        ),
        st.builds(
            "{} {}".format,
            st.sampled_from(["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"]),
            NAMES,
        ),
        st.sampled_from(["PING", "PING x", "GET k", "INCRBY n 0", "NOSUCH", "SUBSCRIBE", "GET"]),
        st.sampled_from(["MULTI", "EXEC", "DISCARD", "RESET", "HELLO 9", "CLIENT SETNAME x"]),
        st.sampled_from(["PUBSUB NUMPAT", "PUBSUB NUMSUB", "PUBSUB", "PUBSUB X", "PUBLISH a"]),
        st.sampled_from(["CLIENT REPLY SKIP", "CLIENT REPLY ON", "AUTH x", "SELECT 0"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("hello", ["2", "3"])
def test_any_conversation_is_answered_as_by_the_plain_server(
    running: RunningGateway, plain: int, hello: str
) -> None:
    @given(CONVERSATION)
    def check(commands: list[str]) -> None:
        assert exchange(running.port, hello, commands) == exchange(plain, hello, commands)

    check()


@pytest.mark.parametrize("hello", ["2", "3"])
def test_messages_are_the_servers_byte_for_byte(
    running: RunningGateway, plain: int, hello: str
) -> None:
    def run(port: int) -> list[bytes]:
        with clients(port, hello, "2") as (listener, publisher):
            listener.pipeline([("SUBSCRIBE", "a", "b"), ("PSUBSCRIBE", "a*"), ("SSUBSCRIBE", "s")])
            for _ in range(1):  # the second reply to SUBSCRIBE
                listener.receive()
            counts = [
                publisher.call("PUBLISH", "a", "one\r\n"),
                publisher.call("PUBLISH", "b", ""),
                publisher.call("PUBLISH", "ab", b"\x00\xff"),
                publisher.call("PUBLISH", "c", "no one"),
                publisher.call("SPUBLISH", "s", "shard"),
            ]
            received = b""
            while not received.endswith(b"$5\r\nshard\r\n"):
                received += listener.socket.recv(1 << 16)
            return [received, repr(counts).encode()]

    assert run(running.port) == run(plain)


def test_subscribers_are_counted_as_at_the_server(
    running: RunningGateway, beside: int, plain: int
) -> None:
    """Those at the gateway and those at its server's own port, several of each, together."""

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from(["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"]),
                NAMES,
            ),
            max_size=10,
        )
    )
    def check(steps: list[tuple[int, str, str]]) -> None:
        answers = []
        for ports in ((plain,) * 4, (running.port,) * 3 + (beside,)):
            with contextlib.ExitStack() as stack:
                made = [stack.enter_context(Client(port, "3")) for port in ports]
                asking = stack.enter_context(Client(ports[0]))
                for who, command, name in steps:
                    made[who].call(command, name)
                answers.append(
                    [
                        asking.call("PUBLISH", "a", "x"),
                        asking.call("PUBLISH", "aa", "x"),
                        asking.call("PUBSUB", "NUMSUB", "a", "b", "none"),
                        asking.call("PUBSUB", "NUMPAT"),
                        sorted(asking.call("PUBSUB", "CHANNELS")),  # type: ignore[type-var, arg-type]
                        asking.pipeline(
                            [
                                ("MULTI",),
                                ("PUBLISH", "b", "x"),
                                ("PUBSUB", "NUMSUB", "a"),
                                ("EXEC",),
                            ]
                        )[-1],
                    ]
                )
                for client in made:  # so that no one is left for the next example
                    client.pipeline([("RESET",)])
            # The plain server forgets connections in its own time.
            for port in {ports[0], ports[-1]}:
                with RawClient(port) as looking:
                    until(lambda looking=looking: looking.call("PUBSUB", "CHANNELS") == [])  # type: ignore[misc]
                    until(lambda looking=looking: looking.call("PUBSUB", "NUMPAT") == 0)  # type: ignore[misc]
        assert answers[1] == answers[0]

    check()


def test_messages_pass_between_the_gateway_and_its_servers_port(
    running: RunningGateway, beside: int
) -> None:
    with clients(running.port, "2", "3") as (two, three), clients(beside, "2") as (direct,):
        for client in (two, three, direct):
            client.call("SUBSCRIBE", "news")
        with RawClient(beside) as at_server, running.client() as at_gateway:
            assert at_server.call("PUBLISH", "news", "1") == 2  # one of them is the gateway
            assert at_gateway.call("PUBLISH", "news", "2") == 3
        for client in (two, three, direct):
            assert client.receive() == [b"message", b"news", b"1"]
            assert client.receive() == [b"message", b"news", b"2"]


def test_a_message_in_a_transaction_comes_with_its_data(running: RunningGateway) -> None:
    with clients(running.port, "2", "2", "2") as (listener, writer, reader):
        writer.call("DEL", "n")
        listener.call("SUBSCRIBE", "news")
        for n in range(1, 30):
            run = [("MULTI",), ("INCR", "n"), ("PUBLISH", "news", str(n)), ("GET", "n"), ("EXEC",)]
            assert writer.pipeline(run)[-1] == [n, 1, b"%d" % n]
            assert listener.receive() == [b"message", b"news", b"%d" % n]
            assert int(reader.call("GET", "n")) >= n  # type: ignore[arg-type]
        assert writer.pipeline([("MULTI",), ("PUBLISH", "news", "x"), ("DISCARD",)])[-1] == b"OK"
        replies = writer.pipeline([("WATCH", "n"), ("INCR", "n"), *run])
        assert replies[-1] is None  # nothing is published either
        assert writer.pipeline([("INCR", "n"), ("PUBLISH", "news", "end")]) == [31, 1]
        assert listener.receive() == [b"message", b"news", b"end"]


def test_redis_py_listens(running: RunningGateway) -> None:
    for protocol in (2, 3):
        with (
            redis.Redis(port=running.port, protocol=protocol) as client,
            client.pubsub() as listening,
        ):
            listening.subscribe("news")
            listening.psubscribe("n?ws")
            first = [listening.get_message(timeout=30) for _ in range(2)]
            assert [m and m["type"] for m in first] == ["subscribe", "psubscribe"]
            assert client.publish("news", "x") == 2
            found = [listening.get_message(timeout=30) for _ in range(2)]
            assert [m and m["data"] for m in found] == [b"x", b"x"]


def test_a_lost_connection_is_subscribed_again(tmp_path: Path) -> None:
    with (
        servers.borrowed("no") as lent,
        Proxy(lent.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        clients(running.port, "2", "2") as (listener, other),
        RawClient(lent.port) as direct,
    ):
        listener.pipeline([("SUBSCRIBE", "a"), ("PSUBSCRIBE", "b*")])
        for pair in list(proxy.pairs):
            pair.cut()
        until(lambda: other.call("INCR", "n") == 1)
        until(lambda: direct.call("PUBLISH", "a", "again") == 1)
        assert listener.receive() == [b"message", b"a", b"again"]
        until(lambda: direct.call("PUBLISH", "bb", "again") == 1)
        assert listener.receive() == [b"pmessage", b"b*", b"bb", b"again"]
        assert listener.call("UNSUBSCRIBE", "a") == [b"unsubscribe", b"a", 1]
        assert direct.call("PUBSUB", "NUMSUB", "a") == [b"a", 0]


def test_a_message_is_not_sent_twice_when_the_connection_breaks(tmp_path: Path) -> None:
    """The reply to PUBLISH is lost: the client is told that nobody knows."""
    with (
        servers.borrowed("no") as lent,
        Proxy(lent.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        clients(running.port, "2") as (publisher,),
        clients(lent.port, "2") as (direct,),
    ):
        direct.call("SUBSCRIBE", "a")
        assert publisher.call("PUBLISH", "a", "first") == 1

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            if data == b":1\r\n":
                proxy.receiving = lambda pair, data: data
                pair.cut()
                return b""
            return data

        proxy.receiving = cut
        reply = publisher.call("PUBLISH", "a", "once")
        assert isinstance(reply, str) and "may or may not have been published" in reply
        until(lambda: publisher.call("PUBLISH", "a", "last") == 1)
        got = [direct.receive()[2] for _ in range(3)]
        assert got == [b"first", b"once", b"last"]


def test_a_subscriber_that_does_not_read_is_closed(tmp_path: Path) -> None:
    with servers.borrowed("no") as lent:
        given = options(tmp_path, lent.port)
        running = RunningGateway(replace(given, limits=ClientLimits(output=3_000_000))).wait_ready()
        try:
            with clients(running.port, "2", "3", "2") as (slow, reading, publisher):
                slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for client in (slow, reading):
                    client.call("SUBSCRIBE", "a")
                thread = threading.Thread(
                    target=lambda: [reading.receive() for _ in range(400)], daemon=True
                )
                thread.start()
                for _ in range(400):
                    assert publisher.call("PUBLISH", "a", "x" * 100_000) in (1, 2)
                thread.join(PATIENCE)
                assert not thread.is_alive()
                assert publisher.call("PUBSUB", "NUMSUB", "a") == [b"a", 1]
                found = running.gateway.front.clients
                assert all(len(client.unread) < 3_200_000 for client in found.values())
        finally:
            running.stop()


def test_a_client_that_hangs_up_is_forgotten(running: RunningGateway, beside: int) -> None:
    with RawClient(beside) as direct:
        with clients(running.port, "2", "2") as (one, two):
            one.call("SUBSCRIBE", "gone")
            two.call("SUBSCRIBE", "gone")
            assert direct.call("PUBSUB", "NUMSUB", "gone") == [b"gone", 1]
        until(lambda: direct.call("PUBSUB", "NUMSUB", "gone") == [b"gone", 0])


def test_client_list_shows_subscribers(running: RunningGateway) -> None:
    with clients(running.port, "2", "3") as (listener, other):
        listener.pipeline([("SUBSCRIBE", "a"), ("PSUBSCRIBE", "b")])
        line = other.call("CLIENT", "LIST", "TYPE", "pubsub")
        assert "flags=P db=0 sub=1 psub=1" in str(line)
        assert "flags=P" not in str(other.call("CLIENT", "LIST", "TYPE", "normal"))


def test_a_pattern_matches_as_at_the_server(plain: int) -> None:
    with RawClient(plain) as server:

        @given(st.text("ab*?[]^-\\", max_size=9), st.text("ab]-^", min_size=1, max_size=5))
        def check(pattern: str, name: str) -> None:
            server.call("SET", name, "")
            found = server.call("KEYS", pattern) == [name.encode()]
            server.call("DEL", name)
            assert (glob(pattern.encode()).fullmatch(name.encode()) is not None) == found

        check()


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert glob(b"*a" * 30 + b"*b").fullmatch(b"a" * 5000) is None
    assert glob(b"*a" * 30 + b"*b").fullmatch(b"a" * 5000 + b"b") is not None


def test_aborted_exec_undoes_its_subscribe(
    running: RunningGateway,
) -> None:
    with clients(running.port, "2", "2") as (watcher, other):
        assert watcher.call("WATCH", "n") == b"OK"
        other.call("INCR", "n")
        run = [("MULTI",), ("SUBSCRIBE", "aborted"), ("INCR", "n"), ("EXEC",)]
        assert watcher.pipeline(run)[-1] is None
        assert isinstance(watcher.call("GET", "n"), bytes)
        until(lambda: other.call("PUBSUB", "NUMSUB", "aborted") == [b"aborted", 0])


def test_total_of_subscriptions_is_bounded(tmp_path: Path) -> None:
    with servers.borrowed("no") as lent:
        given = options(tmp_path, lent.port)
        limits = ClientLimits(queued_bytes=300_000)
        running = RunningGateway(replace(given, limits=limits)).wait_ready()
        try:
            with clients(running.port, "3") as (client,):
                reply = client.call("SUBSCRIBE", *map(str, range(2000)))
                assert isinstance(reply, str) and "too many subscriptions" in reply
                assert client.call("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
        finally:
            running.stop()
