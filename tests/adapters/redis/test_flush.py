"""FLUSHALL and FLUSHDB: one message that removes what its region had seen of every key, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.group.lifecycle import Belonging
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.transfer import region_copy
from crdtcast.eventlog.check import check_logs
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, Gateways, RunningGateway, gateway
from tests.adapters.redis.stage import Stage

pytestmark = pytest.mark.process


@pytest.fixture
def stage() -> Iterator[Stage]:
    lent = [servers.borrow() for _ in range(2)]
    made = Stage([server.port for server in lent], [0, 0])
    yield made
    made.close()
    for server in lent:
        servers.give_back(server)


def exchange(stage: Stage) -> None:
    """All that is on its way arrives."""
    stage.collect()
    while links := stage.waiting():
        stage.arrive(links[0])
        stage.sites[links[0][1]].run()
        stage.collect()


def test_flush_removes_only_what_it_has_seen(stage: Stage) -> None:
    a, b = stage.sites.values()
    a.call((b"SET", b"t", b"old"), (b"SADD", b"s", b"old"), (b"HSET", b"h", b"f", b"1"))
    a.call((b"SET", b"due", b"1", b"EX", b"1000"), (b"EXPIRE", b"h", b"1000"))
    exchange(stage)
    b.call((b"INCR", b"h"))  # hides the hash
    exchange(stage)
    b.call((b"SADD", b"s", b"new"), (b"HINCRBY", b"g", b"f", b"2"), (b"EXPIRE", b"s", b"500"))
    assert a.call((b"FLUSHALL",)) == [b"OK"]
    exchange(stage)
    for site in (a, b):
        ask = site.server.ask
        assert sorted(ask(b"KEYS", b"*")) == [b"g", b"s"]
        assert ask(b"SMEMBERS", b"s") == [b"new"] and ask(b"HGETALL", b"g") == [b"f", b"2"]
        assert ask(b"TTL", b"s") > 0
        names = site.server.ask_metadata(b"KEYS", b"*")
        assert [n for n in names if n.startswith(b"due:")] == [
            b"due:" + second for second in site.server.ask_metadata(b"ZRANGE", b"due", b"0", b"-1")
        ]
        assert not [n for n in names if n.startswith(b"hidden:")]
        (second,) = site.server.ask_metadata(b"ZRANGE", b"due", b"0", b"-1")
        assert site.server.ask_metadata(b"HKEYS", b"due:" + second) == [b"s"]
        assert not site.committer.keyspace.hidden


def test_writes_in_the_message_of_a_flush_apply_after_it(stage: Stage) -> None:
    a, b = stage.sites.values()
    a.call((b"SET", b"s", b"old"))
    exchange(stage)
    b.call((b"HSET", b"h", b"f", b"5"), (b"INCR", b"n"), (b"SADD", b"s2", b"unseen"))
    a.call(
        *(
            (b"GETDEL", b"nothing"),
            (b"FLUSHALL",),
            (b"HINCRBY", b"h", b"f", b"2"),
            (b"SADD", b"s2", b"x"),
        ),
        *((b"INCRBYFLOAT", b"n", b"0.5"), (b"HINCRBYFLOAT", b"new", b"f", b"0.5"), (b"INCR", b"s")),
    )
    exchange(stage)
    for site in (a, b):
        ask = site.server.ask
        assert sorted(ask(b"KEYS", b"*")) == [b"h", b"n", b"new", b"s", b"s2"]
        assert ask(b"HGETALL", b"h") == [b"f", b"7"] and ask(b"GET", b"n") == b"1.5"
        assert ask(b"HGETALL", b"new") == [b"f", b"0.5"] and ask(b"GET", b"s") == b"1"
        assert sorted(ask(b"SMEMBERS", b"s2")) == [b"unseen", b"x"]


def test_flush_of_many_keys_is_one_small_step(stage: Stage) -> None:
    a, b = stage.sites.values()
    for some in range(10):
        a.call(*((b"SET", b"key %d" % (1000 * some + n), b"v") for n in range(1000)))
        exchange(stage)
    sizes: list[int] = []
    for site in (a, b):
        send = site.server.send

        def measured(payload: bytes, *rest: Any, send: Any = send, **more: Any) -> None:
            sizes.append(len(payload))
            send(payload, *rest, **more)

        site.server.send = measured  # type: ignore[method-assign]
    assert a.call((b"FLUSHDB", b"async")) == [b"OK"]
    exchange(stage)
    assert a.server.ask(b"DBSIZE") == b.server.ask(b"DBSIZE") == 0
    assert max(sizes) < 20_000  # most of which is a script


def test_flush_makes_refused_keys_usable_again(stage: Stage) -> None:
    a, b = stage.sites.values()
    a.call((b"SADD", b"s", b"x"), (b"SADD", b"t", b"x"))
    exchange(stage)
    for site in (a, b):
        keyspace = site.committer.keyspace
        keyspace.damaged.add(b"s")
        keyspace.disputed.add(b"t")
        keyspace.refused |= {b"s", b"t"}
        site.server.ask_metadata(b"SADD", b"damaged", b"s")
        site.server.ask_metadata(b"SADD", b"disputed", b"t")
    assert str(a.call((b"SADD", b"s", b"y"))[0]).startswith("ERR crdtcast: key")
    a.call((b"FLUSHALL",))
    exchange(stage)
    for site in (a, b):
        assert site.call((b"SADD", b"s", b"y"), (b"SADD", b"t", b"y")) == [1, 1]
        assert not site.server.ask_metadata(b"EXISTS", b"damaged", b"disputed")
        exchange(stage)
        site.call((b"FLUSHALL",))
        exchange(stage)


def test_restart_between_flush_and_its_message_loses_neither(stage: Stage) -> None:
    a, b = stage.sites.values()
    a.call((b"SADD", b"s", b"x"), (b"EXPIRE", b"s", b"1000"))
    exchange(stage)
    a.call(
        (b"GETDEL", b"nothing"), (b"FLUSHALL",), (b"SETNX", b"s", b"7"), (b"EXPIRE", b"s", b"500")
    )
    stage.restart("a")
    exchange(stage)
    for site in (a, b):
        assert site.server.ask(b"KEYS", b"*") == [b"s"] and site.server.ask(b"GET", b"s") == b"7"
        assert 0 < site.server.ask(b"TTL", b"s") <= 500


# Clients


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with (
        servers.borrowed("no") as lent,
        gateway(tmp_path_factory.mktemp("flush"), lent.port) as made,
    ):
        yield made


def test_watched_keys_count_as_written(running: RunningGateway) -> None:
    with running.client() as one, running.client() as other:
        one.call("SET", "k", "1")
        assert one.call("WATCH", "k") == b"OK"
        assert other.call("FLUSHALL") == b"OK"
        assert one.pipeline([("MULTI",), ("SET", "k", "2"), ("EXEC",)])[-1] is None
        assert one.pipeline([("MULTI",), ("SET", "k", "2"), ("EXEC",)])[-1] == [b"OK"]


def test_commands_after_a_flush_in_multi_see_its_effect(running: RunningGateway) -> None:
    with running.client() as client:
        client.call("SADD", "s", "x")
        assert client.pipeline(
            [
                *(
                    ("MULTI",),
                    ("SADD", "s", "y"),
                    ("FLUSHDB", "SYNC"),
                    ("SCARD", "s"),
                    ("INCR", "s"),
                ),
                *(
                    ("FLUSHALL", "NOW"),
                    ("EXPIRE", "s", "100"),
                    ("HINCRBYFLOAT", "h", "f", "0.5"),
                    ("DBSIZE",),
                ),
                *(("EXEC",), ("GET", "s"), ("TTL", "s")),
            ]
        )[-3:] == [
            [1, b"OK", 0, 1, ErrorReply("ERR syntax error"), 1, b"0.5", 2],
            b"1",
            100,
        ]


def test_the_gateway_s_own_keys_stay(running: RunningGateway) -> None:
    with running.client() as client:
        client.call("SET", "k", "1")
        assert client.call("FLUSHALL") == b"OK"
        assert client.call("DBSIZE") == 0
        assert client.call("SET", "k", "1") == b"OK"
    assert running.gateway.committer.changed_behind == 0


def verified(port: int) -> Any:
    with RawClient(port, PATIENCE) as client:
        return client.call("CRDTCAST", "VERIFY")


def test_regions_agree_and_the_log_says_so(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with OpenCluster(
        tmp_path, "ab", group="flush", appendfsync="no", log_directory=logs
    ) as cluster:
        ports = [region.gateway.port for region in cluster]
        for member in ("x", "y"):
            for port in ports:
                with RawClient(port, PATIENCE) as client:
                    client.call("SET", f"k{port}", "1")
                    client.call("HSET", "h", str(port), "1")
                    client.call("SET", "soon", "1", "EX", "1000")
            cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)
            cluster.isolate("b")
            with RawClient(ports[0], PATIENCE) as a, RawClient(ports[1], PATIENCE) as b:
                assert a.call("FLUSHALL") == b"OK"
                assert b.call("SADD", "s", member) == 1
            cluster.rejoin("b")
            cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)
            for port in ports:
                with RawClient(port, PATIENCE) as client:
                    assert client.call("KEYS", "*") == [b"s"]
                    assert client.call("SMEMBERS", "s") == [member.encode()]
            digests = {json.loads(verified(port))["digest"] for port in ports}
            assert len(digests) == 1
    checked = check_logs([logs])
    assert not checked.violations
    assert checked.counts["values"] > 0


def test_flush_during_a_copy_restarts_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    tell = Belonging._tell_progress

    def flushed(belonging: Belonging, received: int, total: int) -> None:
        told.append(received)
        tell(belonging, received, total)
        if len(told) == 2:
            assert received < total
            town.call("a", "FLUSHALL")
            town.call("a", "SET", "new", "1")

    monkeypatch.setattr(region_copy, "_SLICE_KEYS", 200)
    monkeypatch.setattr(Belonging, "_tell_progress", flushed)
    with Gateways(tmp_path) as town:
        town.start("a")
        with town.running["a"].client() as client:
            client.pipeline([("SADD", f"s{key}", "base") for key in range(1500)])
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert town.call("b", "DBSIZE") == 1
