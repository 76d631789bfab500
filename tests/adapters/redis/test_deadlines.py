"""Deadlines in real regions: what a model with time of its own does not show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster, Region
from crdtcast.adapters.redis.deadlines import index
from crdtcast.adapters.redis.deadlines.dates import Dates
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.eventlog.check import check_logs
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, call, until
from tests.adapters.redis.stage import DirectServer, Stage

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCluster]:
    directory = tmp_path_factory.mktemp("deadlines")
    logs = directory / "logs"
    with OpenCluster(
        directory, "ab", group="deadlines", appendfsync="always", log_directory=logs
    ) as running:
        yield running
    checked = check_logs([logs])
    assert not checked.violations
    assert checked.counts["values"] > 0


def natively(region: Region, *words: object) -> Any:
    with RawClient(region.server.port, PATIENCE) as client:
        return client.call(*map(str, words))


def in_metadata(region: Region, *words: object) -> Any:
    with RawClient(region.server.port, PATIENCE) as client:
        client.call("SELECT", "15")
        return client.call(*map(str, words))


def settled(cluster: OpenCluster) -> None:
    cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)


def verified(cluster: OpenCluster) -> dict[str, Any]:
    """What all regions answer, but for their vectors, once they were asked within one minute."""
    while True:
        told = [json.loads(call(region, "CRDTCAST", "VERIFY")) for region in cluster]
        if len({each["with_deadlines"]["until"] for each in told}) == 1:
            break
    for each in told:
        del each["vector"]
    assert all(each == told[0] for each in told), told
    found = told[0]
    assert isinstance(found, dict)
    return found


def test_all_regions_drop_a_key_at_the_same_deadline(cluster: OpenCluster) -> None:
    assert call(cluster["a"], "SADD", "gone", "x") == 1
    assert call(cluster["a"], "PEXPIRE", "gone", "900") == 1
    cluster.wait_equal(cluster.names, quiet=False, timeout=PATIENCE)
    assert len({natively(region, "PEXPIRETIME", "gone") for region in cluster}) == 1
    until(lambda: all(call(region, "EXISTS", "gone") == 0 for region in cluster))
    # One region has told the others, so what is written next is the whole of it everywhere.
    assert call(cluster["b"], "SADD", "gone", "y") == 1
    settled(cluster)
    for region in cluster:
        assert call(region, "SMEMBERS", "gone") == [b"y"]
        assert call(region, "TTL", "gone") == -1


@pytest.mark.parametrize("base", ["0", "3"])
def test_keys_that_expire_together_leave_regions_and_index(cluster: OpenCluster, base: str) -> None:
    """More than one look finds, and one commit tells; some are written again while the others go."""
    with RawClient(cluster["a"].gateway.port, PATIENCE) as client:
        client.call("SELECT", base)
        keys = [b"\xffk%d" % n if n % 7 == 0 else b"many:%d" % n for n in range(3_000)]
        client.pipeline([("SET", key, "x", "PX", str(700 + n % 900)) for n, key in enumerate(keys)])
        until(lambda: client.call("EXISTS", *keys[:50]) == 0)
        assert client.pipeline([("SADD", key, "again") for key in keys[:10]]) == [1] * 10
        until(lambda: not any(client.pipeline([("EXISTS", key) for key in keys[10:]])))
    settled(cluster)
    until(lambda: not any(in_metadata(region, "ZCARD", "due") for region in cluster))
    for region in cluster:
        with RawClient(region.gateway.port, PATIENCE) as client:
            client.call("SELECT", base)
            found = client.pipeline([("SMEMBERS", key) for key in keys[:10]])
            assert found == [[b"again"]] * 10, region.name
            assert not any(client.pipeline([("EXISTS", key) for key in keys[10:]]))


@pytest.mark.parametrize(
    "damage",
    [
        ["ZADD", "due", "1.5", "1.5"],
        ["ZADD", "due", "0", "soon"],
        ["SET", "due", "x"],
        ["SET", "due:{}", "x"],
        ["HSET", "due:{0}", "dated", "junk"],
        ["SET", "orphans", "x"],
        ["SET", "pinned", "x"],
    ],
)
def test_damaged_deadline_index_loses_no_write(cluster: OpenCluster, damage: list[str]) -> None:
    region = cluster["a"]
    assert call(region, "SET", "dated", "x", "PX", "2500") == b"OK"
    at = natively(region, "PEXPIRETIME", "dated") // 1000
    assert not isinstance(in_metadata(region, *(word.format(at) for word in damage)), ErrorReply)
    assert call(region, "SADD", "undated", "x") in (0, 1)
    assert call(region, "SET", "dated too", "x", "PX", "1200") == b"OK"
    assert call(region, "PEXPIRE", "undated", "1300") == 1
    until(lambda: call(region, "EXISTS", "dated", "undated", "dated too") == 0)
    assert call(region, "SADD", "undated", "y") == 1
    settled(cluster)
    until(lambda: call(cluster["b"], "EXISTS", "dated", "dated too") == 0)
    assert call(cluster["b"], "SMEMBERS", "undated") == [b"y"]
    call(region, "DEL", "undated")
    if in_metadata(region, "TYPE", damage[1].format(at)) == b"string":
        in_metadata(region, "DEL", damage[1].format(at))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_deadline_that_was_extended_in_time_keeps_the_contents(
    cluster: OpenCluster, is_told: bool
) -> None:
    """is_told: the extension comes behind the message that the key has expired, or before it."""
    call(cluster["a"], "HSET", "session", "user", "u", "visits", "1")
    call(cluster["a"], "PEXPIRE", "session", "1500")
    settled(cluster)
    cluster.isolate("b")
    assert call(cluster["b"], "EXPIRE", "session", "100") == 1
    assert call(cluster["b"], "HINCRBY", "session", "visits", "1") == 2
    until(lambda: call(cluster["a"], "EXISTS", "session") == 0)
    if is_told:
        until(lambda: json.loads(call(cluster["a"], "CRDTCAST", "STATUS"))["unstable"] > 0)
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        words = call(region, "HGETALL", "session")
        assert dict(zip(words[::2], words[1::2], strict=True)) == {b"user": b"u", b"visits": b"2"}
        assert 90 < call(region, "TTL", "session") <= 100


def test_persist_in_time_leaves_nothing_in_the_index(
    cluster: OpenCluster,
) -> None:
    a, b = cluster["a"], cluster["b"]
    call(a, "SET", "kept", "v", "PX", "1500")
    settled(cluster)
    cluster.isolate("b")
    assert call(b, "PERSIST", "kept") == 1
    until(lambda: natively(a, "EXISTS", "kept") == 0)
    cluster.rejoin("b")
    settled(cluster)
    until(lambda: all(in_metadata(region, "EXISTS", "orphans") == 0 for region in cluster))
    for region in cluster:
        assert (call(region, "GET", "kept"), call(region, "TTL", "kept")) == (b"v", -1)
    a.close()
    assert a.gateway.stop()
    a.gateway.launch()
    a.gateway.wait_ready()
    settled(cluster)


def test_access_to_a_hidden_type_keeps_the_deadline(cluster: OpenCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    cluster.isolate("b")
    call(a, "SADD", "two", "x")
    call(b, "SET", "two", "abc", "EX", "100")
    cluster.rejoin("b")
    settled(cluster)
    with RawClient(a.gateway.port, PATIENCE) as client:
        words = [("MULTI",), ("SETNX", "two", "1"), ("SREM", "two", "y"), ("EXEC",)]
        assert isinstance(client.pipeline(words)[-1], list)
    assert call(b, "APPEND", "two", "d") == 4
    settled(cluster)
    for region in cluster:
        assert call(region, "GET", "two") == b"abcd"
        assert 90 < call(region, "TTL", "two") <= 100
        call(region, "DEL", "two")
        settled(cluster)
        call(cluster["a"], "SET", "two", "abcd", "EX", "100")
        settled(cluster)


def test_server_decided_deadlines_are_equal_in_all_regions(
    cluster: OpenCluster,
) -> None:
    a = cluster["a"]
    assert call(a, "SET", "one", "1", "NX", "EX", "500") == b"OK"
    assert call(a, "RENAME", "one", "two") == b"OK"
    assert call(a, "COPY", "two", "three") == 1
    assert call(a, "SET", "two", "2", "XX", "KEEPTTL") == b"OK"
    assert call(a, "GETSET", "three", "3") == b"1"
    with RawClient(a.gateway.port, PATIENCE) as client:
        client.call("MULTI")
        for words in (("SETEX", "four", "400", "4"), ("TTL", "four"), ("PERSIST", "four")):
            assert client.call(*words) == b"QUEUED"
        client.call("EXPIRE", "four", "300")
        assert client.call("EXEC") == [b"OK", 400, 1, 1]
    settled(cluster)
    for region in cluster:
        ttls = [call(region, "TTL", key) for key in ("one", "two", "three", "four")]
        assert ttls[0] == -2 and ttls[2] == -1
        assert 490 < ttls[1] <= 500 and 290 < ttls[3] <= 300
    assert len({natively(region, "PEXPIRETIME", "two") for region in cluster}) == 1


def test_a_copy_has_all_deadlines_and_those_without_data(cluster: OpenCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    with RawClient(a.gateway.port, PATIENCE) as client:
        client.pipeline([("SET", f"k{n}", "v", "EX", str(600 + n)) for n in range(300)])
    call(a, "SADD", "orphan", "x")
    call(a, "EXPIRE", "orphan", "500")
    settled(cluster)
    cluster.isolate("b")
    call(b, "SADD", "orphan", "y")
    call(
        a, "SREM", "orphan", "x"
    )  # nothing is left here, and what b has added is under the deadline
    cluster.rejoin("b")
    cluster.add("c")
    settled(cluster)
    for region in cluster:
        assert 490 < call(region, "TTL", "orphan") <= 500
        assert 590 < call(region, "TTL", "k5") <= 605
    assert verified(cluster)["with_deadlines"]["keys"] >= 301
    for region in cluster:
        assert in_metadata(region, "EXISTS", "orphans", "pinned") == 0


def test_a_deadline_that_is_renewed_has_one_entry() -> None:
    with servers.borrowed() as one, servers.borrowed() as other:
        stage = Stage([one.port, other.port], [0, 0])
        site = stage.sites["a"]
        keys = [b"k%d" % n for n in range(20)]
        site.call(*((b"SADD", key, b"x") for key in keys))
        for round_ in range(1, 30):
            ttl = b"%d" % (1000 * round_)
            site.call(*((b"EXPIRE", key, ttl) for key in keys[::2]))
            site.call(*((b"SET", key, b"v", b"EX", ttl) for key in keys[1::2]))
        buckets = site.server.ask_metadata(b"KEYS", b"due:*")
        entries = [site.server.ask_metadata(b"HLEN", bucket) for bucket in buckets]
        assert sum(entries) == len(keys)
        stage.close()


def test_scan_skips_deadlines_owned_by_other_members() -> None:
    over, also_over = b"1000", b"1001"
    long = 1_000_000_000_000_000
    with servers.borrowed() as server:
        direct = DirectServer(server.port)
        for second, name, owner in ((over, b"k", index.OTHER), (also_over, b"l", index.MINE)):
            direct.ask_metadata(b"ZADD", b"due", second, second)
            direct.ask_metadata(b"HSET", b"due:" + second, name, owner)

        def keys(grace_ms: int, none_of_mine: int) -> list[bytes]:
            found = direct.ask(*index.find_due(15, 0, grace_ms, none_of_mine=none_of_mine))
            return sorted(due.key for due in index.found_due(found)[2])

        assert keys(0, 0) == keys(0, 1001) == [b"k", b"l"]
        assert keys(long, 0) == keys(long, 1000) == [b"l"]
        assert keys(long, 1001) == []
        direct.close()


def test_scan_round_reports_how_far_no_own_deadline_exists() -> None:
    dates, page = Dates(), index.DeadlinePlace(b"7", b"3")
    mine, others = (index.Due(b"k", owner, b"8") for owner in (index.MINE, index.OTHER))
    dates.looked(10_500, page, [others])
    dates.looked(11_500, index.BEGINNING, [])
    assert dates.none_of_mine == 9  # of the first look's time
    dates.looked(12_500, page, [mine])
    dates.looked(13_500, index.BEGINNING, [])
    assert dates.none_of_mine == 0
    dates.looked(14_500, index.BEGINNING, [])
    assert dates.none_of_mine == 13
    dates.advance(5)
    assert dates.none_of_mine == 0


def test_deadline_set_and_renamed_in_one_message_has_one_entry() -> None:
    with servers.borrowed() as one, servers.borrowed() as other:
        stage = Stage([one.port, other.port], [0, 0])
        site = stage.sites["a"]
        site.call((b"SET", b"k", b"v"))
        assert site.call((b"EXPIRE", b"k", b"500"), (b"RENAME", b"k", b"l")) == [1, b"OK"]
        (bucket,) = site.server.ask_metadata(b"KEYS", b"due:*")
        assert site.server.ask_metadata(b"HKEYS", bucket) == [b"l"]
        stage.close()


def test_deadlines_without_data_are_forgotten_once_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crdtcast.adapters.redis.deadlines.dates._FORGOTTEN_AT_ONCE", 2)
    with servers.borrowed() as one, servers.borrowed() as other:
        stage = Stage([one.port, other.port], [0, 0])
        site = stage.sites["a"]
        for key in (b"k%d" % n for n in range(9)):
            site.call((b"SADD", key, b"x"), (b"EXPIRE", key, b"500"), (b"SREM", key, b"x"))
        assert site.server.ask_metadata(b"HLEN", b"orphans") == 9
        for _ in range(30):
            for each in stage.sites.values():
                each.tick()
            stage.collect()
            while waiting := stage.waiting():
                stage.arrive(waiting[0])
                stage.collect()
        for each in stage.sites.values():
            assert each.server.ask_metadata(b"EXISTS", b"orphans") == 0
        stage.close()


def test_new_orphan_deadline_replaces_the_one_removed_with_it() -> None:
    with servers.borrowed() as one, servers.borrowed() as other:
        stage = Stage([one.port, other.port], [0, 0])
        a, b = stage.sites["a"], stage.sites["b"]
        ends: tuple[tuple[bytes, ...], ...]
        ends = (b"SADD", b"k", b"x"), (b"EXPIRE", b"k", b"500"), (b"SREM", b"k", b"x")
        a.call(*ends)
        deliver(stage, "a", "b")
        while not b.engine.has_stable():
            b.tick()
            deliver(stage, "b", "a")
            a.tick()
            stage.collect()
            while ("a", "b") in stage.waiting():
                stage.arrive(("a", "b"))
        a.call(*ends)
        stage.collect()
        while ("a", "b") in stage.waiting():
            stage.arrive(("a", "b"))
        b.tick()
        assert b.server.ask_metadata(b"HKEYS", b"orphans") == [b"k"]
        assert set(b.committer.keyspace.dates.orphans) == {b"k"}
        stage.close()


def deliver(stage: Stage, sender: str, receiver: str) -> None:
    """What is on the link arrives, and is delivered."""
    stage.collect()
    while (sender, receiver) in stage.waiting():
        stage.arrive((sender, receiver))
    stage.sites[receiver].run()


def test_process_ending_before_its_commit_postpones_nothing(tmp_path: Path) -> None:
    """A look puts off a deadline that is near, until the commit sets it again."""
    with servers.borrowed() as one, servers.borrowed() as other:
        stage = Stage([one.port, other.port], [0, 0])
        site = stage.sites["a"]
        site.call((b"SADD", b"k", b"x"), (b"EXPIRE", b"k", b"10"))
        at = site.server.ask(b"PEXPIRETIME", b"k")
        site.crash([(b"SADD", b"k", b"y")], 0, unheard=True)
        assert site.server.ask(b"PEXPIRETIME", b"k") > at
        stage.restart("a")
        assert site.server.ask(b"PEXPIRETIME", b"k") == at
        assert site.server.ask_metadata(b"EXISTS", b"pinned") == 0
        stage.close()
