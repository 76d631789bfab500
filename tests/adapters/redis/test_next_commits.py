"""The commit that is prepared while another one is in flight: what becomes of it if that one fails, or the gateway."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import GatewayProcess, LocalCluster, OpenCluster
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, packed
from crdtcast.eventlog.check import check_logs
from crdtcast.eventlog.writer import EventLog
from crdtcast.exceptions import ServerError, SupersededError
from tests.adapters.redis import named_points
from tests.adapters.redis.adopted import entries
from tests.adapters.redis.gateways import (
    PATIENCE,
    RunningGateway,
    error_of,
    gateway,
    options,
    until,
)
from tests.adapters.redis.proxy import ProxiedConnection, Proxy
from tests.adapters.redis.test_crashes import dying_at

pytestmark = pytest.mark.process


class Held:
    """A gateway whose server gets no EXEC, or gives no answer to one, as long as the test wants.

    requests, replies: set while these pass.
    """

    def __init__(self, directory: Path, server: EmbeddedServer, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        self.requests, self.replies = threading.Event(), threading.Event()
        self.requests.set()
        self.replies.set()
        self.held = 0
        """Times that something was held."""
        self._committing: ProxiedConnection | None = None
        proxy.sending, proxy.receiving = self._sending, self._receiving
        chosen = options(directory, proxy.port, log_dir=directory / "logs")
        # Behind a tick no commit is prepared: what could wait for the tick comes first.
        rarely = replace(chosen, node=replace(chosen.node, digest_interval=3600.0))
        self.running = RunningGateway(rarely).wait_ready()
        self.clients = [self.running.client() for _ in range(3)]
        for number, client in enumerate(self.clients):
            assert client.call("SADD", f"s{number}", "known") == 1
            assert client.call("SET", "text", "known") == b"OK"

    def _sending(self, pair: ProxiedConnection, data: bytes) -> bytes:
        if b"EXEC\r\n" in data:
            self._committing = pair
            self._pass(self.requests)
        return data

    def _receiving(self, pair: ProxiedConnection, data: bytes) -> bytes:
        if pair is self._committing:
            self._pass(self.replies)
        return data

    def _pass(self, gate: threading.Event) -> None:
        if not gate.is_set():
            self.held += 1
            assert gate.wait(PATIENCE)

    def send(self, number: int, *words: str) -> None:
        self.clients[number].socket.sendall(packed(words))

    def two(self, first: tuple[str, ...], second: tuple[str, ...], *, executes: bool) -> None:
        """The first command is in flight, the second one prepared behind it. executes: the server executes the first
        one, and its answer is held; else the server does not get it.
        """
        (self.replies if executes else self.requests).clear()
        before = self.held
        self.send(0, *first)
        until(lambda: self.held > before)
        self.send(1, *second)
        committer = self.running.gateway.committer
        until(lambda: committer._next is not None)

    def go_on(self) -> None:
        self.requests.set()
        self.replies.set()

    def cut(self) -> None:
        """The gateway loses its connection. What it has sent does not come to the server, if it was held."""
        assert self._committing is not None
        self._committing.cut()
        self.go_on()

    def past(self, *words: str) -> Any:
        """The server's reply, past the gateway."""
        with RawClient(self.server.port) as client:
            return client.call(*words)


@contextmanager
def holding(folder: Path) -> Iterator[Held]:
    """Such a gateway, until the block ends."""
    with start_server(folder / "server") as server, Proxy(server.port) as proxy:
        each = Held(folder, server, proxy)
        try:
            yield each
        finally:
            each.go_on()
            for client in each.clients:
                client.close()
            each.running.stop()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with holding(tmp_path) as each:
        yield each


def members(held: Held, key: str) -> set[bytes]:
    return set(held.past("SMEMBERS", key))


def test_prepared_commit_is_sent_after_the_answer(held: Held) -> None:
    held.two(("SADD", "s0", "first"), ("SADD", "s1", "second"), executes=True)
    assert members(held, "s0") == {b"known", b"first"}
    assert members(held, "s1") == {b"known"}
    held.go_on()
    assert [client.receive() for client in held.clients[:2]] == [1, 1]
    assert members(held, "s1") == {b"known", b"second"}
    assert held.clients[1].call("SADD", "s1", "second") == 0


def test_key_with_a_deadline_is_replaced_by_the_prepared_commit(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deadlines of other keys hinder nothing; only their ends, which are searched for, would."""
    monkeypatch.setattr(Committer, "expire", lambda self, grace_ms: None)
    assert held.clients[0].call("SET", "dated", "x", "EX", "100") == b"OK"
    for member, until_, kept in (("x", ("EX", "99"), {b"dated", b"text"}), ("y", (), {b"dated"})):
        held.two(("SADD", "s0", member), ("SET", "text", "new", *until_), executes=True)
        held.go_on()
        assert [client.receive() for client in held.clients[:2]] == [1, b"OK"]
        assert set(entries(held.server.port)) == kept


def test_log_of_an_ended_incarnation_is_complete(held: Held, tmp_path: Path) -> None:
    """The server dies when it has executed a commit: a new incarnation sends what clients and log had not heard of."""
    engine = held.running.gateway.committer.engine
    assert engine is not None
    ended = engine.me
    held.two(("SADD", "s0", "first"), ("SADD", "s1", "second"), executes=True)
    held.server.kill()
    held.server.restart()
    held.go_on()
    for client in held.clients[:2]:
        client.receive()
    engine = held.running.gateway.committer.engine
    assert engine is not None and engine.me != ended
    told = EventLog.recover(tmp_path / "logs", "a", incarnation=ended).vector
    assert told[ended] == engine.vector[ended]


@contextmanager
def taken(tmp_path: Path, held: Held) -> Iterator[None]:
    """Another gateway has the server during the block. At its end the first one has stopped."""
    with gateway(tmp_path, held.server.port) as other:
        yield
        held.go_on()
        assert isinstance(error_of(held.running), SupersededError)
        with other.client() as client:
            assert client.call("SADD", "s1", "other") == 1


def test_server_taken_before_it_gets_the_first_commit(held: Held, tmp_path: Path) -> None:
    held.two(("SADD", "s0", "first"), ("SADD", "s1", "second"), executes=False)
    with taken(tmp_path, held):
        pass
    assert members(held, "s0") == {b"known"}
    assert members(held, "s1") == {b"known", b"other"}


def test_server_taken_before_the_first_commit_is_answered(held: Held, tmp_path: Path) -> None:
    held.two(("SADD", "s0", "first"), ("SADD", "s1", "second"), executes=True)
    with taken(tmp_path, held):
        pass
    assert members(held, "s0") == {b"known", b"first"}
    assert members(held, "s1") == {b"known", b"other"}


def test_server_taken_before_it_gets_the_prepared_commit(held: Held, tmp_path: Path) -> None:
    held.two(("SADD", "s0", "first"), ("SADD", "s1", "second"), executes=True)
    before = held.held
    held.requests.clear()
    held.replies.set()
    until(lambda: held.held > before)
    assert held.clients[0].receive() == 1
    with taken(tmp_path, held):
        pass
    assert members(held, "s1") == {b"known", b"other"}


@pytest.mark.parametrize("executes", [False, True])
def test_commands_of_both_commits_run_in_order_after_a_break(held: Held, executes: bool) -> None:
    held.two(("SET", "text", "1"), ("SET", "text", "2"), executes=executes)
    held.send(2, "APPEND", "text", "3")  # waits behind both
    held.cut()
    first, *others = (client.receive() for client in held.clients)
    assert first == b"OK"
    assert others == [b"OK", 2]
    assert held.past("GET", "text") == b"23"
    assert held.running.gateway.committer.unsure == set()


def test_increments_behind_a_lost_answer_are_exact(held: Held) -> None:
    assert held.clients[0].call("INCR", "number") == 1
    held.two(("INCR", "number"), ("INCR", "number"), executes=True)
    held.cut()
    assert held.clients[0].receive() == 2
    assert held.clients[1].receive() == 3
    assert held.past("GET", "number") == b"3"


def test_prepared_commit_behind_a_refused_one_runs_again(held: Held) -> None:
    """The server has no memory when it gets the first one."""
    held.two(("SADD", "s0", "first"), ("SREM", "s1", "known"), executes=False)
    assert held.past("CONFIG", "SET", "maxmemory", "1") == b"OK"
    held.requests.set()
    refused = held.clients[0].receive()
    assert isinstance(refused, ErrorReply) and "OOM" in refused.text
    assert held.past("CONFIG", "SET", "maxmemory", "0") == b"OK"
    assert held.clients[1].receive() == 1
    assert members(held, "s0") == {b"known"} and members(held, "s1") == set()


def test_nothing_is_prepared_behind_what_the_server_decides(held: Held) -> None:
    """The answer tells what the first one has written."""
    held.replies.clear()
    held.send(0, "SMOVE", "s0", "moved", "known")
    until(lambda: held.held)
    held.send(1, "SADD", "s0", "second")
    rounds: list[None] = []
    held.running.call(lambda: rounds.append(None))
    until(lambda: rounds and held.running.gateway.committer._requests)
    assert held.running.gateway.committer._next is None
    held.go_on()
    assert [client.receive() for client in held.clients[:2]] == [1, 1]
    assert members(held, "s0") == {b"second"}


def test_a_pop_is_not_prepared_behind_another_commit(held: Held) -> None:
    """What it takes is drawn when the first one is answered."""
    held.replies.clear()
    before = held.held
    held.send(0, "SADD", "s0", "first")
    until(lambda: held.held > before)
    held.send(1, "SPOP", "s1")
    rounds: list[None] = []
    held.running.call(lambda: rounds.append(None))
    until(lambda: rounds and held.running.gateway.committer._requests)
    assert held.running.gateway.committer._next is None
    held.go_on()
    assert [client.receive() for client in held.clients[:2]] == [1, b"known"]
    assert members(held, "s1") == set()


def test_both_commits_keep_writes_of_a_key_changed_past_them(held: Held) -> None:
    held.two(("SADD", "s0", "first"), ("SADD", "s0", "second"), executes=False)
    held.past("SET", "s0", "foreign")
    held.go_on()
    for client in held.clients[:2]:
        reply = client.receive()
        assert isinstance(reply, ErrorReply) and "this write is kept" in reply.text


# Gateways that die


class Writers:
    """Clients that write one after the other until their gateway dies: each its own key, a new member each time."""

    def __init__(self, target: GatewayProcess, label: str, number: int = 12) -> None:
        self._port, self._label = target.port, label
        self.acknowledged = [0] * number
        self._threads = [
            threading.Thread(target=self._write, args=(n,), daemon=True) for n in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def key(self, number: int) -> str:
        return f"{self._label}:{number}"

    def _write(self, number: int) -> None:
        with suppress(ServerError, OSError), RawClient(self._port, PATIENCE) as client:
            while client.call("SADD", self.key(number), str(self.acknowledged[number])) == 1:
                self.acknowledged[number] += 1

    def check(self, target: GatewayProcess) -> None:
        """All that was acknowledged is there, and at most what each client has sent."""
        for thread in self._threads:
            thread.join(PATIENCE)
        with RawClient(target.port, PATIENCE) as client:
            for number, acknowledged in enumerate(self.acknowledged):
                found = client.call("SMEMBERS", self.key(number))
                assert isinstance(found, list)
                sent = {b"%d" % n for n in range(acknowledged + 1)}
                assert sent - {b"%d" % acknowledged} <= set(found) <= sent


@pytest.mark.parametrize("kind", [LocalCluster, OpenCluster])
def test_gateway_killed_with_a_prepared_commit_loses_nothing(
    kind: type[LocalCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "b")
    logs = tmp_path / "logs"
    with kind(tmp_path, names, group="next", log_directory=logs) as cluster:
        target = cluster["b"].gateway
        all_writers = []
        for point in named_points.NEXT_POINTS:
            print("point", point)
            target.stop()
            with dying_at(target, point, 5, monkeypatch):
                target.wait_ready()
                all_writers.append(Writers(target, point))
        cluster.wait_equal(names, quiet=True, timeout=PATIENCE)
        for writers in all_writers:
            for name in names:
                writers.check(cluster[name].gateway)
    assert not check_logs([logs]).violations
