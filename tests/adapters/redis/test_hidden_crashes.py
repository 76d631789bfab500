"""Gateways that die while a value comes out that another type has hidden (H7), and what their servers lose besides."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from crdtcast.adapters.redis.cluster import GatewayProcess, LocalCluster, Region
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.eventlog.check import check_logs
from crdtcast.exceptions import ServerError
from tests.adapters.redis import named_points
from tests.adapters.redis.gateways import PATIENCE, call
from tests.adapters.redis.test_crashes import append_only_file, dying_at, lose_the_end_of_the_file

pytestmark = [pytest.mark.process, pytest.mark.crashes]

NAMES = ("a", "b")
METADATA_DB = "15"
PREPARED, SENT, ANSWERED = named_points.HIDING_POINTS
Words = tuple[tuple[str, ...], ...]
PLAIN: Words = (("HDEL", "k", "f"),)
"""The gateway knows what it does."""
RECORDED: Words = (("MULTI",), ("GETDEL", "nothing"), ("HDEL", "k", "f"), ("EXEC",))
"""The server does it by itself, and the value comes out in the same step."""
LATER: Words = (("MULTI",), ("GETDEL", "k"), ("HDEL", "k", "f"), ("EXEC",))
"""It might have ended the value, so that comes out in the step behind the record's."""
CASES = (
    ("b", PLAIN, PREPARED, False),
    ("b", PLAIN, SENT, True),
    ("b", PLAIN, ANSWERED, True),
    ("b", RECORDED, SENT, True),
    ("b", RECORDED, ANSWERED, True),
    ("b", LATER, "record-derived", True),
    ("b", LATER, PREPARED, True),
    ("b", LATER, SENT, True),
    ("a", PLAIN, PREPARED, True),
    ("a", PLAIN, SENT, True),
    ("a", PLAIN, ANSWERED, True),
)
"""Who removes the field that hides the set, how, the point at which b dies, and whether the removal is done by then."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("hidden")
    logs = directory / "logs"
    with LocalCluster(directory, NAMES, group="hidden", log_directory=logs) as running:
        yield running
    assert not check_logs([logs]).violations


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("fragile")
    logs = directory / "logs"
    with LocalCluster(directory, NAMES, group="fragile", log_directory=logs) as running:
        yield running
    assert not check_logs([logs]).violations


def hide(cluster: LocalCluster, hiding: tuple[str, ...] = ("HSET", "k", "f", "v")) -> None:
    """In both regions what that command writes hides a set."""
    for region in cluster:
        call(region, "DEL", "k")
    settle(cluster)
    cluster.isolate("b")
    assert call(cluster["a"], "SADD", "k", "x", "y") == 2
    assert call(cluster["b"], *hiding) in (1, b"OK")
    cluster.rejoin("b")
    settle(cluster)
    for region in cluster:
        assert shown(region)[1] == [b"hidden:set:k"]


def settle(cluster: LocalCluster) -> None:
    cluster.wait_equal(NAMES, quiet=True, timeout=PATIENCE)


def shown(region: Region) -> tuple[object, object]:
    """What the server shows of k, and what is hidden there."""
    with RawClient(region.server.port, PATIENCE) as client:
        kind = client.call("TYPE", "k")
        client.call("SELECT", METADATA_DB)
        return kind, client.call("KEYS", "hidden:*")


def run(gateway: GatewayProcess, words: Words) -> None:
    """A client's commands, of which no answer may come."""
    try:
        with RawClient(gateway.port, PATIENCE) as client:
            client.pipeline(list(words))
    except (ServerError, OSError):
        pass


def check(cluster: LocalCluster, *, is_removed: bool) -> None:
    """Both regions show what is left, and hide nothing that nobody hides."""
    settle(cluster)
    expected = (b"set", []) if is_removed else (b"hash", [b"hidden:set:k"])
    for region in cluster:
        assert shown(region) == expected, region.name
    equal(cluster)


def equal(cluster: LocalCluster) -> None:
    told = [json.loads(region.command("VERIFY")) for region in cluster]
    assert len({(each["keys"], each["digest"]) for each in told}) == 1, told
    assert not any(region.status()["changed_past_the_gateway"] for region in cluster)


@pytest.mark.parametrize(("remover", "words", "point", "is_removed"), CASES)
def test_a_hidden_value_comes_out_once_whenever_its_gateway_dies(
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    remover: str,
    words: Words,
    point: str,
    is_removed: bool,
) -> None:
    hide(cluster)
    gateway = cluster["b"].gateway
    cluster["b"].close()
    gateway.stop()
    with dying_at(gateway, point, 1, monkeypatch):
        gateway.wait_ready()
        run(cluster[remover].gateway, words)
    check(cluster, is_removed=is_removed)


@pytest.mark.parametrize(
    ("remover", "words", "point", "is_removed"), [case for case in CASES if case[2] != PREPARED]
)
def test_a_hidden_value_comes_out_whole_or_not_at_all(
    fragile: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    remover: str,
    words: Words,
    point: str,
    is_removed: bool,
) -> None:
    """The server loses its last second: what a remembers comes again, what only b had is lost whole."""
    cluster, region = fragile, fragile["b"]
    hide(cluster)
    region.close()
    region.gateway.stop()
    with RawClient(region.server.port, PATIENCE) as admin:
        admin.call("CONFIG", "SET", "appendfsync", "no")  # so that nothing counts as synced
    synced = append_only_file(region).stat().st_size
    with dying_at(region.gateway, point, 1, monkeypatch):
        region.gateway.wait_ready()
        run(cluster[remover].gateway, words)
        assert region.gateway.process is not None
        region.gateway.process.wait(PATIENCE)
        region.server.kill()
        lose_the_end_of_the_file(region, synced)
        region.server.restart()
    check(cluster, is_removed=is_removed and remover == "a")


@pytest.mark.parametrize("words", [("GETSET", "k", "w"), ("SET", "k", "w", "KEEPTTL", "GET")])
def test_hidden_value_goes_with_its_key_when_the_server_dies(
    fragile: LocalCluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Another incarnation stores what this one has recorded."""
    cluster, region = fragile, fragile["b"]
    hide(cluster, ("SET", "k", "v"))
    region.close()
    region.gateway.stop()
    before = region.gateway.incarnation
    with dying_at(region.gateway, "record-derived", 1, monkeypatch):
        region.gateway.wait_ready()
        run(region.gateway, (words,))
        region.server.kill()
        region.server.restart()
    assert region.gateway.incarnation > before
    settle(cluster)
    for each in cluster:
        assert shown(each) == (b"string", []), each.name
    equal(cluster)


def test_an_orphan_ends_with_its_key_when_the_server_dies(
    fragile: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, a, b = fragile, fragile["a"], fragile["b"]
    for words in (("DEL", "k"), ("SADD", "k", "x"), ("EXPIRE", "k", "1000")):
        call(a, *words)
    settle(cluster)
    cluster.isolate("b")
    assert call(a, "SADD", "k", "y") == 1
    assert call(b, "SREM", "k", "x") == 1
    b.close()
    b.gateway.stop()
    with dying_at(b.gateway, "record-derived", 1, monkeypatch):
        b.gateway.wait_ready()
        b.command("CUT", "a")
        run(b.gateway, (("MULTI",), ("SETNX", "k", "1"), ("GETDEL", "k"), ("EXEC",)))
        b.server.kill()
        b.server.restart()
    b.close()
    cluster.rejoin("b")
    settle(cluster)
    for each in cluster:
        assert call(each, "SMEMBERS", "k") == [b"y"]
        assert call(each, "TTL", "k") == -1, each.name
    equal(cluster)
