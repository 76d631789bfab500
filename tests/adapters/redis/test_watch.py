"""WATCH: EXEC answers null if a watched key was written by anyone, anywhere, and never loses an update."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests import servers
from tests.adapters.redis.gateways import Gateways, RunningGateway, gateway, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy

pytestmark = pytest.mark.process

Exchange = list[tuple[int, str]]


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
    with gateway(tmp_path_factory.mktemp("watch"), beside) as running:
        yield running
        until(lambda: not running.gateway.committer._watches._by_key)
        assert running.gateway.front.queued == 0
        assert running.gateway.committer.changed_behind == 0


KEYS = st.sampled_from(["s", "t", "n"])
MEMBERS = st.sampled_from(["x", "y"])
WRITES = st.one_of(
    st.builds("SADD {} {}".format, KEYS, MEMBERS),
    st.builds("SREM {} {}".format, KEYS, MEMBERS),
    st.builds("INCRBY {} {}".format, KEYS, st.sampled_from(["1", "0"])),
    st.builds("DEL {} {}".format, KEYS, KEYS),
    st.builds(
        "{} {}".format, st.sampled_from(["SET", "HDEL"]), st.builds("{} {}".format, KEYS, MEMBERS)
    ),
    st.builds("HSET {} {} 1".format, KEYS, MEMBERS),
    st.builds("HINCRBY {} {} 2".format, KEYS, MEMBERS),
    # The server decides these, and their effects are recorded.
    st.builds("{} {} {}".format, st.sampled_from(["SETNX", "GETSET", "APPEND"]), KEYS, MEMBERS),
    st.builds("GETDEL {}".format, KEYS),
)
RELAYED = st.builds("{} {}".format, st.sampled_from(["STRLEN", "SMEMBERS"]), KEYS)
READS = st.builds("{} {}".format, st.sampled_from(["GET", "SCARD", "TYPE"]), KEYS)
WATCHES = st.one_of(
    st.builds("WATCH {}".format, KEYS),
    st.builds("WATCH {} {}".format, KEYS, KEYS),
)
ENDS = st.sampled_from(["UNWATCH", "DISCARD", "RESET", "EXEC"])
TRANSACTIONS = st.builds(
    lambda calls, end: ["MULTI", *calls, end],
    st.lists(WRITES | READS, max_size=2),
    st.sampled_from(["EXEC", "EXEC", "EXEC", "DISCARD", "RESET"]),
)
STEPS = st.one_of(
    WATCHES.map(lambda c: [c]),
    WRITES.map(lambda c: [c]),
    TRANSACTIONS,
    (READS | ENDS | st.just("MULTI")).map(lambda c: [c]),
)


def normal(reply: object) -> object:
    """In an order that says nothing: sets, and keys of a removal."""
    if isinstance(reply, hiredis.ReplyError):
        return str(reply)
    if isinstance(reply, set | frozenset):
        return sorted(map(repr, reply))
    if isinstance(reply, list):
        members = all(isinstance(part, bytes) and len(part) == 1 for part in reply)
        return sorted(map(repr, reply)) if members else [normal(part) for part in reply]
    return reply


def clear(port: int) -> None:
    with RawClient(port) as client:
        client.call("DEL", "s", "t", "n")


class Client(RawClient):
    """One of either protocol: replies are what hiredis makes of them."""

    def receive(self) -> Any:
        """The next reply."""
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(1 << 16))
        return reply


@contextlib.contextmanager
def clients(port: int, count: int, hello: str) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(Client(port)) for _ in range(count)]
        for client in made:
            client.call("HELLO", hello)
        yield made


@pytest.mark.parametrize("hello", ["2", "3"])
def test_clients_in_turn_are_answered_as_by_the_plain_server(
    running: RunningGateway, plain: int, hello: str
) -> None:
    @given(st.lists(st.tuples(st.integers(0, 2), STEPS | RELAYED.map(lambda c: [c])), max_size=14))
    def check(steps: list[tuple[int, list[str]]]) -> None:
        answers = []
        for port in (plain, running.port):
            clear(port)
            with clients(port, 3, hello) as made:
                answers.append(
                    [
                        (who, command, normal(made[who].call(*command.split())))
                        for who, commands in steps
                        for command in commands
                    ]
                )
        assert answers[1] == answers[0]

    check()


def all_at_once(
    running: RunningGateway, made: list[Client], chunks: Sequence[list[str]]
) -> list[object]:
    """What each client is answered when the gateway finds the commands of all in one turn."""
    may_go_on, sent = threading.Event(), threading.Event()

    def hold() -> None:
        sent.set()
        may_go_on.wait(30)

    running.call(hold)
    assert sent.wait(30)
    for client, chunk in zip(made, chunks, strict=True):
        client.socket.sendall(
            b"".join(hiredis.pack_command(tuple(command.split())) for command in chunk)
        )
    may_go_on.set()
    return [
        [normal(client.receive()) for _ in chunk]
        for client, chunk in zip(made, chunks, strict=True)
    ]


# No read that may go past the commits: those of other clients could come between it and what follows it.
CHUNKS = st.lists(STEPS, min_size=1, max_size=3).map(lambda steps: list(chain(*steps)))


def test_clients_at_once_are_answered_as_in_some_order(running: RunningGateway, plain: int) -> None:
    @given(
        st.lists(st.tuples(st.integers(0, 2), WRITES), max_size=3),
        st.tuples(WATCHES, WATCHES, WATCHES),
        st.tuples(CHUNKS, CHUNKS, CHUNKS),
    )
    def check(before: Exchange, watches: tuple[str, ...], chunks: tuple[list[str], ...]) -> None:
        chunks = tuple(
            [*chunk, "GET n", "SISMEMBER s x", "SISMEMBER s y", "TYPE t"] for chunk in chunks
        )

        def begin(made: list[Client]) -> None:
            for who, command in before:
                made[who].call(*command.split())
            for client, command in zip(made, watches, strict=True):
                assert client.call(*command.split()) == b"OK"

        clear(running.port)
        with clients(running.port, 3, "2") as made:
            begin(made)
            got = all_at_once(running, made, chunks)
        possible: list[object] = []
        for order in permutations(range(3)):
            clear(plain)
            with clients(plain, 3, "2") as made:
                begin(made)
                found: list[object] = [None] * 3
                for who in order:
                    replies = made[who].pipeline([command.split() for command in chunks[who]])
                    found[who] = list(map(normal, replies))
            if found == got:
                return
            possible.append(found)
        raise AssertionError(f"{got} is none of {possible}")

    check()


def test_no_update_is_lost(running: RunningGateway) -> None:
    """Compare and set by redis-py's own means: a counter that each client reads, removes and writes anew."""
    clients, times = 8, 15
    aborted: list[int] = []

    def work() -> None:
        with redis.Redis(port=running.port) as client:
            for _ in range(times):
                tries = 0

                def step(pipe: redis.client.Pipeline) -> None:
                    nonlocal tries
                    tries += 1
                    value = int(pipe.get("n") or 0)  # type: ignore[arg-type]
                    pipe.multi()
                    pipe.delete("n")
                    pipe.incrby("n", value + 1)

                client.transaction(step, "n")
                aborted.append(tries - 1)

    clear(running.port)
    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with running.client() as client:
        assert client.call("GET", "n") == b"%d" % (clients * times)
    assert sum(aborted), "they met"


def test_own_earlier_writes_come_before_a_watch(running: RunningGateway) -> None:
    clear(running.port)
    with running.client() as client:
        before = [("INCR", "n"), ("SADD", "s", "x"), ("WATCH", "n", "s"), ("GET", "n")]
        own = [("MULTI",), ("INCR", "n"), ("SADD", "s", "y"), ("EXEC",)]
        assert client.pipeline([*before, *own])[-1] == [2, 1]
        later = [("WATCH", "n"), ("INCR", "n"), *own]
        assert client.pipeline(later)[-1] is None


def test_watch_on_the_empty_key_sees_only_its_own_writes(running: RunningGateway) -> None:
    clear(running.port)
    with running.client() as client, running.client() as other:
        for write, expected in ((("SETNX", "n", "1"), [b"PONG"]), (("SETNX", "", "1"), None)):
            client.call("WATCH", "")
            assert other.call(*write) == 1
            assert client.pipeline([("MULTI",), ("PING",), ("EXEC",)])[-1] == expected
        assert other.call("DEL", "n", "") == 2


def test_a_write_that_changes_nothing_is_waited_for(running: RunningGateway) -> None:
    clear(running.port)
    with clients(running.port, 2, "2") as (one, two):
        one.call("SADD", "s", "x")
        for member, expected in (("x", [[1]]), ("y", [None])):
            assert two.call("WATCH", "s") == b"OK"
            assert two.pipeline([("MULTI",), ("INCR", "n")]) == [b"OK", b"QUEUED"]
            # Whichever comes first: without a change the transaction is carried out.
            replies = all_at_once(running, [one, two], [[f"SADD s {member}"], ["EXEC"]])
            assert replies[1] in (expected, [[2]])
            two.call("DEL", "n")


def test_a_commit_in_flight_comes_before_a_watch(tmp_path: Path, beside: int) -> None:
    """WATCH is answered behind it, and it marks no one; what is gathered behind WATCH does."""
    arrived, may_go_on = threading.Event(), threading.Event()
    may_go_on.set()

    def receive(pair: ProxiedConnection, data: bytes) -> bytes:
        if not may_go_on.is_set() and b"*" in data:
            arrived.set()
            may_go_on.wait(30)
        return data

    with (
        servers.borrowed("no") as lent,
        Proxy(lent.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        clients(running.port, 3, "2") as (writer, watcher, other),
    ):
        proxy.receiving = receive
        may_go_on.clear()
        writer.socket.sendall(b"INCR n\r\n")
        assert arrived.wait(30)
        watcher.socket.sendall(b"WATCH n\r\nGET n\r\n")
        found = running.gateway.front.clients
        until(lambda: 2 in [len(client.pending) for client in list(found.values())])
        may_go_on.set()
        assert writer.receive() == 1
        assert [watcher.receive(), watcher.receive()] == [b"OK", b"1"]
        run = [("MULTI",), ("INCR", "n"), ("EXEC",)]
        assert watcher.pipeline(run)[-1] == [2]
        assert watcher.call("WATCH", "n") == b"OK"
        assert other.call("INCR", "n") == 3
        assert watcher.pipeline(run)[-1] is None
        assert watcher.pipeline(run)[-1] == [4]


def test_a_lost_connection_marks_every_watcher(tmp_path: Path) -> None:
    with (
        servers.borrowed("no") as lent,
        Proxy(lent.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        clients(running.port, 2, "3") as (watcher, other),
    ):
        assert watcher.call("WATCH", "n", "s") == b"OK"
        for pair in proxy.pairs:
            pair.cut()
        until(lambda: not isinstance(other.call("INCR", "m"), hiredis.ReplyError))
        run = [("MULTI",), ("INCR", "n"), ("CLIENT", "SETNAME", "me"), ("EXEC",)]
        assert watcher.pipeline(run)[-1] is None
        assert watcher.call("CLIENT", "GETNAME") in (None, b"")
        assert watcher.call("GET", "n") is None
        assert watcher.pipeline(run)[-1] == [1, b"OK"]


def test_direct_change_aborts_exec_once_it_is_found(tmp_path: Path) -> None:
    with (
        servers.borrowed("no") as lent,
        RawClient(lent.port) as direct,
        gateway(tmp_path, lent.port) as running,
        clients(running.port, 2, "2") as (watcher, other),
    ):
        assert other.call("INCRBY", "n", "5") == 5
        assert watcher.call("WATCH", "n") == b"OK"
        direct.call("SET", "n", "100")
        assert other.call("INCRBY", "n", "0") is not None
        assert watcher.pipeline([("MULTI",), ("INCR", "n"), ("EXEC",)])[-1] is None
        until(lambda: other.call("GET", "n") == b"5")


def test_a_refused_watch_does_not_let_exec_go_on(tmp_path: Path) -> None:
    with (
        servers.borrowed("no") as lent,
        gateway(tmp_path, lent.port) as running,
        running.client() as client,
    ):
        running.gateway.committer.keyspace.refused.add(b"k")
        running.gateway.committer.keyspace.damaged.add(b"k")
        assert isinstance(client.call("WATCH", "k"), ErrorReply)
        run = [("MULTI",), ("INCR", "n"), ("EXEC",)]
        assert client.pipeline(run)[-1] is None
        assert client.pipeline(run)[-1] == [1]


def test_copy_kept_by_a_removal_does_not_abort_exec(tmp_path: Path) -> None:
    """Where members come and go: before a removal, what it removes is copied."""
    with Gateways(tmp_path) as town:
        town.start("a")
        port = town.running["a"].port
        with clients(port, 2, "2") as (watcher, other):
            run = [("MULTI",), ("INCR", "n"), ("EXEC",)]
            other.pipeline([("SADD", "s", "x", "y"), ("HSET", "h", "f", "v", "g", "w")])
            for write, reply, executed in (
                (("SREM", "s", "none"), 0, [1]),
                (("HDEL", "h", "none"), 0, [2]),
                (("SREM", "s", "x"), 1, None),
                (("HSET", "h", "f", "v"), 0, None),  # natively that is a write, too
                (("DEL", "none"), 0, [3]),
            ):
                assert watcher.call("WATCH", "s", "h", "none") == b"OK"
                assert other.call(*write) == reply
                assert watcher.pipeline(run)[-1] == executed, write


@pytest.mark.parametrize(
    ("watched", "elsewhere", "reply"),
    [
        (("short",), ("PING",), None),
        (("short", "long"), ("PING",), None),
        (("long", "plain", "absent"), ("PING",), [b"OK"]),
        (("over",), ("PING",), [b"OK"]),
        (("long",), ("EXPIRE", "long", "5"), None),
        (("plain",), ("EXPIRE", "plain", "5"), None),
        (("long",), ("PERSIST", "long"), None),
        (("long",), ("PERSIST", "plain"), [b"OK"]),
    ],
)
def test_a_watched_key_that_expires_aborts_exec(
    running: RunningGateway, watched: tuple[str, ...], elsewhere: tuple[str, ...], reply: object
) -> None:
    with Client(running.port) as client, Client(running.port) as other:
        other.call("DEL", "short", "long", "plain", "over", "absent", "k")
        other.pipeline([("SET", "over", "v", "EX", "5"), ("CRDTCAST", "ADVANCE", "6000")])
        other.pipeline(
            [
                ("SET", "short", "v", "EX", "5"),
                ("SET", "long", "v", "EX", "500"),
                ("SET", "plain", "v"),
            ]
        )
        assert client.call("WATCH", *watched) == b"OK"
        other.call(*elsewhere)
        other.call("CRDTCAST", "ADVANCE", "6000")
        client.pipeline([("MULTI",), ("SET", "k", "w")])
        assert client.call("EXEC") == reply


def test_a_write_of_another_region_aborts_exec(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ("a", "b"), group="w") as cluster:
        with (
            RawClient(cluster["a"].gateway.port) as watcher,
            RawClient(cluster["a"].gateway.port) as reader,
            RawClient(cluster["b"].gateway.port) as other,
        ):
            run = [("MULTI",), ("INCR", "n"), ("EXEC",)]
            assert other.call("SADD", "s", "x") == 1
            until(lambda: reader.call("SCARD", "s") == 1)
            assert watcher.call("WATCH", "s") == b"OK"
            assert other.call("SADD", "s", "y") == 1
            until(lambda: reader.call("SCARD", "s") == 2)
            assert watcher.pipeline(run)[-1] is None
            # It is there already: natively nothing changes.
            assert watcher.call("WATCH", "s") == b"OK"
            assert other.pipeline([("SADD", "s", "y"), ("SADD", "t", "x")]) == [0, 1]
            until(lambda: reader.call("SCARD", "t") == 1)
            assert watcher.pipeline(run)[-1] == [1]
        for region in cluster:
            region.close()
        cluster.wait_equal(cluster.names, quiet=True, timeout=60)
