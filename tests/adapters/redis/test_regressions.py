"""What once broke the gateway, each in its smallest form, against a real server."""

import json
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.group.recovery import Durability
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.inspection import durability
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.exceptions import ConfigurationError, ServerError
from tests.adapters.redis.gateways import RunningGateway, gateway, options, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy

pytestmark = pytest.mark.process


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """One that the test may configure and kill."""
    with start_server(tmp_path / "server") as running:
        yield running


def vector_of(running: RunningGateway) -> int:
    engine = running.gateway.committer.engine
    assert engine is not None
    return engine.vector.get(engine.me, 0)


def test_takeover_under_load_keeps_acknowledged_writes(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with (
        Proxy(server.port) as proxy,
        gateway(tmp_path, server.port) as first,
        first.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        answered = threading.Event()

        def between(pair: ProxiedConnection, data: bytes) -> bytes:
            # The second gateway has read everything, and is about to take the fence.
            if b"WATCH" in data and not answered.is_set():
                assert client.call("INCR", "n") == 2
                answered.set()
            return data

        proxy.sending = between
        with gateway(tmp_path, proxy.port) as second:
            assert answered.is_set()
            assert vector_of(second) == 2
            first_of_second = second.client()
            assert first_of_second.call("INCR", "n") == 3
            first_of_second.close()
            assert vector_of(second) == 3


def test_an_exec_that_arrives_late_is_not_forgotten(tmp_path: Path, server: EmbeddedServer) -> None:
    with (
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
        RawClient(server.port) as direct,
    ):
        assert client.call("INCR", "n") == 1
        main = next(pair for pair in proxy.pairs if b"MULTI" in pair.sent)
        arrived = threading.Event()
        held: list[bytes] = []

        def late(pair: ProxiedConnection, data: bytes) -> bytes:
            if pair is main and b"EXEC" in data:
                held.append(data)
                pair.detach()
                return b""
            if held and b"WATCH" in data and not arrived.is_set():
                main.far.sendall(held[0])
                until(lambda: direct.call("GET", "n") == b"2")
                arrived.set()
            return data

        proxy.sending = late
        reply = client.call("INCR", "n")
        assert arrived.is_set()
        assert reply == 2
        assert direct.call("GET", "n") == b"2"
        assert vector_of(running) == 2


def test_server_that_lost_the_last_claim_still_belongs_to_us(
    tmp_path: Path, own_server: EmbeddedServer
) -> None:
    with gateway(tmp_path, own_server.port) as running, RawClient(own_server.port) as direct:
        direct.call("SELECT", "15")
        before = direct.call("GET", "state"), direct.call("GET", "fence")
    with gateway(tmp_path, own_server.port) as running:
        own_server.kill()
        own_server.restart()
        # (Its file, cut there, would give the same.)
        with RawClient(own_server.port) as direct:
            direct.call("SELECT", "15")
            direct.pipeline([["SET", "state", before[0]], ["SET", "fence", before[1]]])  # type: ignore[list-item]
        with running.client() as client:
            until(lambda: client.call("INCR", "n") == 1)
    assert running.error is None


@pytest.mark.parametrize("connected", [True, False])
def test_dots_that_the_server_lost_are_not_used_again(tmp_path: Path, connected: bool) -> None:
    with (
        start_server(tmp_path / "server", appendfsync="always") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
    ):
        assert running.gateway.committer.engine is not None
        before = running.gateway.committer.engine.me
        file = next((server.directory / "appendonlydir").glob("*.incr.aof"))
        assert client.call("INCR", "n") == 1
        size = file.stat().st_size
        assert client.call("INCR", "n") == 2
        if connected:
            server.kill()
            with file.open("r+b") as stream:
                stream.truncate(size)
            server.restart()
        else:
            with RawClient(server.port) as direct:
                direct.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        def again() -> bool:
            return not isinstance(client.call("INCR", "m"), ErrorReply)

        until(again)
        until(lambda: client.call("GET", "n") == b"2")
        assert (running.gateway.committer.engine.me == before) is not connected


def test_a_lost_probe_connection_does_not_stop_stability(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with (
        gateway(tmp_path, server.port) as running,
        RawClient(server.port) as direct,
        running.client() as client,
    ):

        def durable() -> bool:
            engine = running.gateway.committer.engine
            assert engine is not None
            return engine.durable.get(engine.me, 0) == vector_of(running)

        assert client.call("INCR", "n") == 1
        until(durable)
        listed = direct.call("CLIENT", "LIST")
        assert isinstance(listed, bytes)
        probes = [
            line.split(b"id=")[1].split()[0]
            for line in listed.splitlines()
            if b"cmd=waitaof" in line
        ]
        assert len(probes) == 1
        assert direct.call("CLIENT", "KILL", "ID", probes[0]) == 1
        assert client.call("INCR", "n") == 2
        until(durable)


def test_room_that_came_while_the_server_was_away_is_seen(
    tmp_path: Path, own_server: EmbeddedServer
) -> None:
    with (
        gateway(tmp_path, own_server.port) as running,
        RawClient(own_server.port) as direct,
        running.client() as client,
    ):
        direct.call("SET", "ballast", "x" * (20 << 20))

        def full() -> bool:
            info = direct.call("INFO", "memory")
            assert isinstance(info, bytes)
            used = int(info.split(b"used_memory:")[1].split()[0])
            direct.call("CONFIG", "SET", "maxmemory", str(int(used * 1.03)))
            return "remove data" in str(client.call("INCR", "n"))

        until(full)
        direct.pipeline(
            [
                ["CONFIG", "SET", "maxmemory", "0"],
                ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
            ]
        )
        until(lambda: not isinstance(client.call("INCR", "n"), ErrorReply))


def test_relay_lost_right_after_its_greeting_is_answered(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with (
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        known = len(proxy.pairs)

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            if pair.number >= known:
                pair.near.sendall(data)
                pair.cut()
                return b""
            return data

        proxy.receiving = cut
        for _ in range(20):
            assert isinstance(client.call("STRLEN", "n"), ErrorReply)
        proxy.receiving = lambda pair, data: data
        until(lambda: client.call("STRLEN", "n") == 1)


def test_a_number_of_five_thousand_digits_is_text(tmp_path: Path, server: EmbeddedServer) -> None:
    with (
        gateway(tmp_path, server.port) as running,
        RawClient(server.port) as direct,
        running.client() as client,
    ):
        direct.call("SET", "k", "9" * 5000)
        reply = client.call("INCR", "k")
        assert isinstance(reply, ErrorReply) and "not an integer" in reply.text


def test_callback_error_counts_as_a_lost_connection(
    tmp_path: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise ValueError("made to fail")

    with gateway(tmp_path, server.port) as running, running.client() as client:
        monkeypatch.setattr(Keyspace, "learn", fails)
        assert client.call("INCR", "k") == 1


def test_a_command_that_always_breaks_the_connection_is_answered(
    tmp_path: Path, own_server: EmbeddedServer
) -> None:
    with gateway(tmp_path, own_server.port) as running, RawClient(own_server.port) as direct:
        direct.call("CONFIG", "SET", "proto-max-bulk-len", str(1 << 20))
        with running.client() as client:
            reply = client.call("SADD", "k", "x" * (2 << 20))
            assert isinstance(reply, ErrorReply)
            assert client.call("SADD", "k", "x") == 1


def test_verify_is_answered_when_the_connection_breaks(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with (
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            inspects = any(word in data for word in (b"hidden", b"exact", b"crdtcast:rights"))
            if b"SCAN" in data and not inspects:
                pair.cut()
                return b""
            return data

        proxy.sending = cut
        assert isinstance(client.call("CRDTCAST", "VERIFY"), ErrorReply)
        proxy.sending = lambda pair, data: data
        assert isinstance(client.call("CRDTCAST", "VERIFY"), bytes)


def test_the_first_send_is_logged_though_the_gateway_died_before(
    tmp_path: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    with Proxy(server.port) as proxy:
        with gateway(tmp_path, proxy.port, log_dir=logs) as running, running.client() as client:
            # EXEC is applied; its answer never comes, and the process ends meanwhile.
            def swallow(pair: ProxiedConnection, data: bytes) -> bytes:
                return b"" if b"QUEUED" in data else data

            proxy.receiving = swallow
            client.socket.sendall(b"INCR n\r\n")
            with RawClient(server.port) as direct:
                until(lambda: direct.call("GET", "n") == b"1")
        proxy.receiving = lambda pair, data: data
        with gateway(tmp_path, proxy.port, log_dir=logs) as running:
            assert vector_of(running) == 1
    events = [
        json.loads(line)
        for path in sorted(logs.glob("*.jsonl*"))
        for line in path.read_text().splitlines()
    ]
    assert [event["counter"] for event in events if event["kind"] == "SEND"] == [1]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_a_member_that_is_named_like_a_damaged_key_can_be_added(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with gateway(tmp_path, server.port) as running, running.client() as client:
        keyspace = running.gateway.committer.keyspace
        keyspace.damaged.add(b"bad")
        keyspace.refused.add(b"bad")
        assert client.call("SADD", "s", "bad") == 1
        for words in (["SCARD", "bad"], ["SINTER", "s", "bad"], ["SADD", "bad", "x"]):
            reply = client.call(*words)
            assert isinstance(reply, ErrorReply) and "restored" in reply.text


def test_a_gateway_that_was_taken_over_writes_no_line_more(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    logs = tmp_path / "logs"
    first = RunningGateway(options(tmp_path, server.port, log_dir=logs)).wait_ready()
    with first.client() as client:
        assert client.call("INCR", "n") == 1
        with gateway(tmp_path, server.port, log_dir=logs) as second:
            with pytest.raises(ServerError):
                client.call("INCR", "n")
            first.wait_ended()
            with second.client() as other:
                assert other.call("INCR", "n") == 2
    lines = [
        line for path in sorted(logs.glob("*.jsonl*")) for line in path.read_text().splitlines()
    ]
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    "damage",
    [
        ["SET", "fence", "x"],
        ["HSET", "store", "a.1:x", "y"],
        ["HSET", "store", "b.1:1", "y"],
        ["HSET", "orphans", "k", ""],
        ["HSET", "orphans", "k", "junk"],
        ["HSET", "pinned", "k", "1.5"],
        ["HSET", "pinned", "k", "9" * 40],
        *(
            ["SET", key, "x"]
            for key in ("store", "damaged", "joining", "record", "orphans", "pinned", "due")
        ),
    ],
)
def test_damaged_metadata_is_refused_with_a_clear_message(
    tmp_path: Path, server: EmbeddedServer, damage: list[str]
) -> None:
    with gateway(tmp_path, server.port):
        pass
    with RawClient(server.port) as direct:
        direct.pipeline([["SELECT", "15"], damage])
    broken = RunningGateway(options(tmp_path, server.port))
    broken.wait_ended()
    assert isinstance(broken.error, BaseExceptionGroup)
    assert broken.error.subgroup(ConfigurationError) is not None
    assert "is damaged" in "".join(traceback.format_exception(broken.error))


def test_skipped_syncs_are_not_called_always() -> None:
    config = [b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"yes"]
    assert durability({"aof_enabled": "1"}, config, (7, 2)) is Durability.EVERYSEC


def test_clock_does_not_advance_beyond_valid_timestamps(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    with gateway(tmp_path, server.port) as running, running.client() as client:
        for absurd in ("9" * 21, "-" + "9" * 13):
            assert isinstance(client.call("CRDTCAST", "ADVANCE", absurd), ErrorReply)
        assert client.call("CRDTCAST", "ADVANCE", "-86400000") == b"OK"
        assert client.call("INCR", "n") == 1


def test_unusable_log_directory_is_found_before_any_server_use(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    running = RunningGateway(options(tmp_path, 1, log_dir=tmp_path / "file"))
    running.wait_ended()
    assert isinstance(running.error, BaseExceptionGroup)
    (error,) = running.error.exceptions
    assert isinstance(error, ConfigurationError) and "that this user may write to" in str(error)
