"""Sorted sets and places in several regions: what concurrent writes end as, exactly, and what keeps the digits."""

import json
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster, Region
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.eventlog.check import check_logs
from tests.adapters.redis.gateways import PATIENCE, call, until
from tests.adapters.redis.test_types import executed, members, settled
from tests.effort import first_seed, size

pytestmark = pytest.mark.process

LARGE = "10000000000000000"
"""From here on a double holds even integers only."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCluster]:
    directory = tmp_path_factory.mktemp("sorted")
    logs = directory / "logs"
    with OpenCluster(
        directory, "ab", group="sorted", appendfsync="always", log_directory=logs
    ) as running:
        yield running
    checked = check_logs([logs])
    assert not checked.violations
    assert checked.counts["values"] > 0


def apart(cluster: OpenCluster, *pairs: tuple[str, str]) -> list[Any]:
    """Commands at two regions of which neither has seen the other's."""
    cluster.isolate("b")
    replies = [call(cluster[name], *words.split()) for name, words in pairs]
    cluster.rejoin("b")
    settled(cluster)
    return replies


def scores(region: Region, key: str) -> dict[str, float]:
    words = call(region, "ZRANGE", key, 0, -1, "WITHSCORES")
    if isinstance(words, ErrorReply):
        return {words.text: 0}
    return {
        member.decode(): float(score) for member, score in zip(words[::2], words[1::2], strict=True)
    }


def check(cluster: OpenCluster, key: str, **expected: float) -> None:
    for region in cluster:
        assert scores(region, key) == expected, region.name


def exact(region: Region, key: str) -> dict[bytes, bytes]:
    """The digits that the region's server keeps beside the scores of a key."""
    with RawClient(region.server.port, PATIENCE) as server:
        server.call("SELECT", "15")
        words: Any = server.call("HGETALL", f"exact:zset:{key}")
    return dict(zip(words[::2], words[1::2], strict=True))


# What concurrent writes mean


def test_later_score_wins_and_removal_takes_what_it_saw(
    cluster: OpenCluster,
) -> None:
    apart(cluster, ("a", "ZADD s 1 x 5 y"), ("b", "ZADD s 2 x"))
    check(cluster, "s", x=2, y=5)
    assert apart(cluster, ("a", "ZREM s x y"), ("b", "ZADD s 2 x")) == [2, 0]
    check(cluster, "s", x=2)


def test_new_score_keeps_the_increments_that_it_has_not_seen(
    cluster: OpenCluster,
) -> None:
    call(cluster["a"], "ZADD", "i", "10", "x")
    settled(cluster)
    assert apart(cluster, ("a", "ZINCRBY i 3 x"), ("b", "ZINCRBY i -0.5 x")) == [b"13", b"9.5"]
    check(cluster, "i", x=12.5)
    apart(cluster, ("a", "ZADD i 100 x"), ("b", "ZINCRBY i 7 x"))
    check(cluster, "i", x=107)
    apart(cluster, ("a", "ZINCRBY i 1 new"), ("b", "ZADD i NX 20 new"), ("b", "ZADD i INCR 1 x"))
    check(cluster, "i", x=108, new=21)


def test_greatest_shows_if_all_said_gt_and_least_if_all_said_lt(
    cluster: OpenCluster,
) -> None:
    call(cluster["a"], "ZADD", "c", "5", "high", "5", "low", "5", "mixed", "5", "kept")
    settled(cluster)
    apart(
        cluster,
        ("a", "ZADD c GT 9 high 6 mixed 9 kept"),
        ("a", "ZADD c LT 1 low"),
        ("b", "ZADD c GT 7 high 1 kept"),
        ("b", "ZADD c LT 3 low 4 mixed"),
    )
    check(cluster, "c", high=9, low=1, mixed=4, kept=9)


def test_beaten_score_comes_out_when_the_winner_is_removed(
    cluster: OpenCluster,
) -> None:
    cluster.isolate("b")
    call(cluster["a"], "ZADD", "out", "GT", "9", "x")
    call(cluster["b"], "ZADD", "out", "GT", "7", "x")
    call(cluster["a"], "ZREM", "out", "x")
    cluster.rejoin("b")
    settled(cluster)
    check(cluster, "out", x=7)


def test_infinite_increments_are_assignments(cluster: OpenCluster) -> None:
    call(cluster["a"], "ZADD", "inf", "5", "x", "5", "y")
    settled(cluster)
    apart(
        cluster,
        ("a", "ZINCRBY inf inf x"),
        ("b", "ZINCRBY inf -inf x"),
        ("a", "ZINCRBY inf +inf y"),
        ("b", "ZINCRBY inf 3 y"),
    )
    check(cluster, "inf", x=float("-inf"), y=float("inf"))
    refused = call(cluster["a"], "ZINCRBY", "inf", "inf", "x")
    assert "resulting score is not a number (NaN)" in str(refused)


def test_negative_zero_is_zero_everywhere(cluster: OpenCluster) -> None:
    call(cluster["a"], "ZADD", "zero", "-0", "x")
    call(cluster["b"], "ZINCRBY", "zero", "-0", "y")
    call(cluster["b"], "ZADD", "zero", "CH", "-0.0", "z")
    settled(cluster)
    for region in cluster:
        assert call(region, "ZMSCORE", "zero", "x", "y", "z") == [b"0"] * 3


def test_pop_removes_what_it_took_and_an_unseen_score_stays(
    cluster: OpenCluster,
) -> None:
    call(cluster["a"], "ZADD", "q", "1", "j1", "2", "j2", "3", "j3", "4", "j4")
    settled(cluster)
    told = apart(
        cluster,
        ("a", "ZPOPMIN q"),
        ("b", "ZADD q 9 j1"),
        ("a", "ZPOPMAX q 1"),
        ("b", "ZMPOP 2 none q MIN"),
    )
    assert told[0] == [b"j1", b"1"] and told[2] == [b"j4", b"4"]
    assert told[3] == [b"q", [[b"j2", b"2"]]]
    check(cluster, "q", j3=3, j1=9)


def test_ranges_are_removed_as_they_were_seen(cluster: OpenCluster) -> None:
    words = [word for number in range(10) for word in (str(number), f"m{number}")]
    call(cluster["a"], "ZADD", "r", *words)
    call(cluster["a"], "ZADD", "lexes", *(word for member in "abcd" for word in ("0", member)))
    settled(cluster)
    assert apart(
        cluster,
        ("a", "ZREMRANGEBYSCORE r -inf (3"),
        ("b", "ZADD r 1 m1 0 new"),
        ("a", "ZREMRANGEBYRANK r -2 -1"),
        ("b", "ZREMRANGEBYLEX lexes [b (d"),
        ("a", "ZADD lexes 0 c"),
    ) == [3, 1, 2, 2, 0]
    check(cluster, "r", new=0, m1=1, m3=3, m4=4, m5=5, m6=6, m7=7)
    check(cluster, "lexes", a=0, c=0, d=0)


def test_results_that_are_stored_travel_by_value(cluster: OpenCluster) -> None:
    call(cluster["a"], "ZADD", "u1", "1", "x", "2", "y")
    call(cluster["a"], "ZADD", "u2", "10", "y", "20", "z")
    settled(cluster)
    apart(
        cluster,
        ("a", "ZUNIONSTORE u 2 u1 u2 WEIGHTS 2 1"),
        ("b", "ZADD u1 100 x"),
        ("a", "ZINTERSTORE n 2 u1 u2 AGGREGATE MAX"),
        ("a", "ZDIFFSTORE d 2 u1 u2"),
        ("a", "ZRANGESTORE best u2 0 0 REV"),
        ("a", "ZRANGESTORE lex u1 - + BYLEX LIMIT 1 1"),
    )
    check(cluster, "u", x=2, y=14, z=20)
    check(cluster, "n", y=10)
    check(cluster, "d", x=1)
    check(cluster, "best", z=20)
    check(cluster, "lex", y=2)
    assert call(cluster["a"], "ZUNIONSTORE", "u", "1", "nothing") == 0
    settled(cluster)
    check(cluster, "u")


def test_places_are_the_same_everywhere(cluster: OpenCluster) -> None:
    assert apart(
        cluster,
        ("a", "GEOADD geo 13.361389 38.115556 Palermo"),
        ("b", "GEOADD geo 15.087269 37.502669 Catania 2.35 48.85 Paris"),
    ) == [1, 2]
    assert call(cluster["b"], "GEOADD", "geo", "NX", "0", "0", "Paris") == 0
    apart(
        cluster,
        ("a", "GEOSEARCHSTORE near geo FROMLONLAT 15 37 BYRADIUS 200 km"),
        ("b", "GEORADIUSBYMEMBER geo Palermo 200 km STOREDIST far"),
        ("b", "GEORADIUS geo 15 37 100 km STORE near2"),
    )
    told = []
    for region in cluster:
        told.append(
            [
                call(region, "GEOPOS", "geo", "Palermo", "Catania", "Paris"),
                call(region, "GEODIST", "geo", "Palermo", "Catania"),
                call(region, "ZRANGE", "near", 0, -1, "WITHSCORES"),
                call(region, "ZRANGE", "far", 0, -1, "WITHSCORES"),
                call(region, "GEORADIUS", "geo", "15", "37", "200", "km", "ASC"),
            ]
        )
        assert call(region, "ZRANGE", "near2", 0, -1) == [b"Catania"]
    assert told[0] == told[1]
    assert told[0][2][::2] == [b"Palermo", b"Catania"] and told[0][4] == [b"Catania", b"Palermo"]
    # Where nothing is to be stored, they only read, in a transaction, too.
    assert executed(cluster["a"], "ZADD t 1 x", "GEORADIUS geo 15 37 100 km", "ZCARD t") == [
        1,
        [b"Catania"],
        1,
    ]


def test_a_transaction_is_one_message(cluster: OpenCluster) -> None:
    assert executed(
        cluster["a"],
        "ZADD m1 1 x 2 y",
        "ZINCRBY m1 0.5 x",
        "ZADD m1 GT CH 5 x 1 y",
        "ZREM m1 y",
        "ZPOPMAX m1",
        "ZADD m1 7 z",
        "RENAME m1 m2",
        "ZINCRBY m2 1 z",
        "ZCARD m2",
    ) == [2, b"1.5", 1, 1, [b"x", b"5"], 1, b"OK", b"8", 1]
    settled(cluster)
    check(cluster, "m2", z=8)
    check(cluster, "m1")


def test_a_hidden_sorted_set_goes_on_and_comes_out(cluster: OpenCluster) -> None:
    apart(cluster, ("a", "HSET k f 1"), ("b", "ZADD k 1 x"))
    apart(cluster, ("a", "SADD k2 m"), ("b", "ZADD k2 1 x"))
    for region in cluster:
        assert call(region, "TYPE", "k") == b"hash"
        assert call(region, "TYPE", "k2") == b"zset"
    call(cluster["a"], "HDEL", "k", "f")
    assert call(cluster["b"], "ZPOPMIN", "k2") == [b"x", b"1"]
    settled(cluster)
    check(cluster, "k", x=1)
    for region in cluster:
        assert call(region, "SMEMBERS", "k2") == [b"m"]


def test_what_comes_out_behind_a_pop_keeps_the_deadline(cluster: OpenCluster) -> None:
    apart(cluster, ("a", "SADD dated1 m"), ("b", "ZADD dated1 1 x"))
    apart(cluster, ("a", "SADD dated2 m"), ("b", "HSET dated2 f 1"))
    for key in ("dated1", "dated2"):
        assert call(cluster["a"], "EXPIRE", key, "1000") == 1
    settled(cluster)
    assert call(cluster["b"], "ZPOPMIN", "dated1") == [b"x", b"1"]
    with RawClient(cluster["a"].gateway.port, PATIENCE) as client:
        assert client.pipeline([("GETDEL", "nothing"), ("HDEL", "dated2", "f")]) == [None, 1]
    settled(cluster)
    for region in cluster:
        for key in ("dated1", "dated2"):
            assert call(region, "SMEMBERS", key) == [b"m"]
            assert 900 < call(region, "TTL", key) <= 1000


def test_in_another_database_and_under_a_name_of_high_bytes(cluster: OpenCluster) -> None:
    for region in cluster:
        with RawClient(region.gateway.port, PATIENCE) as client:
            if region.name == "a":
                client.pipeline(
                    [
                        ("SELECT", "3"),
                        ("ZADD", "k", LARGE, "x", "1", "y"),
                        ("ZADD", b"\xffk", "5", "z"),
                        ("ZINCRBY", "k", "0.7", "x"),
                        ("ZUNIONSTORE", "u", "2", "k", b"\xffk"),
                        ("ZMPOP", "2", "none", b"\xffk", "MIN"),
                        ("COPY", "k", "c", "DB", "4"),
                        ("RENAME", "k", "r"),
                        ("GEOADD", "g", "0", "0", "here"),
                    ]
                )
                settled(cluster)
            assert client.pipeline([("SELECT", "3"), ("ZRANGE", "u", "0", "-1")])[1] == [
                b"y",
                b"z",
                b"x",
            ]
            assert client.pipeline([("EXISTS", b"\xffk", "k"), ("ZCARD", "r"), ("ZCARD", "g")]) == [
                0,
                2,
                1,
            ]
            client.pipeline([("SELECT", "4")])
            assert client.call("ZCARD", "c") == 2
        assert exact(region, "k") == {}
        with RawClient(region.server.port, PATIENCE) as server:
            server.call("SELECT", "15")
            for name in (b"exact:zset:\xff\x03r", b"exact:zset:\xff\x04c"):
                assert server.call("HGET", name, "x") == LARGE.encode() + b".7"


def test_blocking_commands_are_refused_by_name(cluster: OpenCluster) -> None:
    for words in ("BZPOPMIN k 0", "BZPOPMAX k 0", "BZMPOP 0 1 k MIN"):
        told = call(cluster["a"], *words.split())
        assert isinstance(told, ErrorReply) and "ZMPOP in a loop with pauses" in told.text


# Digits that a double loses


def test_lost_digits_are_kept_until_the_member_is_written(
    cluster: OpenCluster,
) -> None:
    """A region that rounded when it knows the first increment to be everywhere would be off by 2."""
    call(cluster["a"], "ZADD", "z", LARGE, "x", LARGE, "y")
    call(cluster["a"], "ZINCRBY", "z", "0.7", "x")
    call(cluster["a"], "ZINCRBY", "z", "0.7", "y")
    settled(cluster)
    for region in cluster:
        assert exact(region, "z") == {b"x": LARGE.encode() + b".7", b"y": LARGE.encode() + b".7"}
    assert call(cluster["b"], "ZINCRBY", "z", "0.7", "x").startswith(b"1000000000000000")
    settled(cluster)
    check(cluster, "z", x=1e16 + 2, y=1e16)
    assert (
        executed(
            cluster["a"],
            f"ZADD z XX {LARGE} x",
            "ZINCRBY z 0.7 x",
            f"ZADD z GT {LARGE} y",
            "ZCARD z",
        )[3]
        == 2
    )
    settled(cluster)
    for region in cluster:
        assert exact(region, "z") == {b"x": LARGE.encode() + b".7", b"y": LARGE.encode() + b".7"}
    call(cluster["a"], "ZADD", "z", LARGE, "x")
    call(cluster["b"], "ZREM", "z", "y")
    settled(cluster)
    for region in cluster:
        assert exact(region, "z") == {}


def test_the_digits_go_with_a_renamed_and_with_a_copied_key(cluster: OpenCluster) -> None:
    call(cluster["a"], "ZADD", "d1", LARGE, "x")
    executed(cluster["a"], "ZINCRBY d1 0.7 x", "COPY d1 d2", "RENAME d1 d3", "ZINCRBY d3 0.7 x")
    settled(cluster)
    for region in cluster:
        assert exact(region, "d2") == {b"x": LARGE.encode() + b".7"}
        assert exact(region, "d3") == {b"x": b"10000000000000001.4"}
        assert call(region, "ZSCORE", "d3", "x") in (
            b"10000000000000002",
            b"1.0000000000000002e+16",
        )
    call(cluster["b"], "DEL", "d2", "d3")
    settled(cluster)
    for region in cluster:
        assert exact(region, "d2") == exact(region, "d3") == {}


def test_sums_are_those_of_decimals_whatever_the_order(cluster: OpenCluster) -> None:
    """Random increments of three members from two regions, with breaks."""
    seed = first_seed()
    print("seed", seed)
    rng = Random(seed)
    total = dict.fromkeys("xyz", Decimal(0))
    steps = ("0.1", "0.2", "-0.3", "1e16", "-1e16", "0.7", "1e-9", "123456789.9876543", "1e22")
    with localcontext() as context:
        context.prec = 100
        for number in range(size(ci=60, release=400)):
            member, step = rng.choice("xyz"), rng.choice(steps)
            region = cluster[rng.choice("ab")]
            if number % 20 == 7:
                cluster.isolate("b")
            call(region, "ZINCRBY", "sums", step, member)
            total[member] += Decimal(step)
            if number % 20 == 17:
                cluster.rejoin("b")
                settled(cluster)
        cluster.rejoin("b")
        settled(cluster)
        for region in cluster:
            assert scores(region, "sums") == {m: float(value) for m, value in total.items()}
            for member, kept in exact(region, "sums").items():
                assert Decimal(kept.decode()) == total[member.decode()]


def test_digits_survive_a_restart_and_are_copied_to_a_joiner(cluster: OpenCluster) -> None:
    words = [word for number in range(6000) for word in (LARGE, f"m{number}")]
    call(cluster["a"], "ZADD", "big", *words)
    call(cluster["a"], "ZINCRBY", "big", "0.7", "m17")
    call(cluster["a"], "ZADD", "small", LARGE, "x")
    call(cluster["a"], "ZINCRBY", "small", "0.7", "x")
    gateway = cluster["a"].gateway
    cluster["a"].close()
    gateway.kill()
    gateway.launch()
    gateway.wait_ready()
    cluster.add("c")
    settled(cluster)
    for region in cluster:
        assert call(region, "ZCARD", "big") == 6000
        assert exact(region, "big") == {b"m17": LARGE.encode() + b".7"}
    call(cluster["c"], "ZINCRBY", "big", "0.7", "m17")
    call(cluster["a"], "ZINCRBY", "small", "0.7", "x")
    settled(cluster)
    for region in cluster:
        assert scores(region, "small") == {"x": 1e16 + 2}
        assert scores(region, "big")["m17"] == 1e16 + 2


# What an evicted region wrote, and what was changed past a gateway


def test_evicted_region_sends_its_writes_again_by_member(tmp_path: Path) -> None:
    with OpenCluster(tmp_path, "abc", group="sorted", appendfsync="always") as cluster:
        call(cluster["a"], "ZADD", "e", "5", "sum", "2", "out", "2", "kept", "1", "old", "3", "top")
        settled(cluster)
        cluster.isolate("b")
        call(cluster["b"], "ZINCRBY", "e", "10", "sum")
        call(cluster["b"], "ZADD", "e", "1", "new", "7", "old")
        call(cluster["b"], "ZADD", "e", "GT", "8", "top")
        call(cluster["b"], "ZREM", "e", "out", "kept")
        call(cluster["b"], "ZADD", "e", "0", "popped")
        assert call(cluster["b"], "ZPOPMIN", "e") == [b"popped", b"0"]
        cluster["a"].command("EVICT", "b")
        until(lambda: all("b" not in members(cluster[name]) for name in "ac"))
        call(cluster["a"], "ZADD", "e", "9", "kept")
        call(cluster["a"], "ZINCRBY", "e", "100", "sum")
        cluster.rejoin("b")
        until(lambda: "b" in members(cluster["a"]))
        expected = {"sum": 115.0, "new": 1.0, "old": 7.0, "kept": 9.0, "top": 8.0}
        until(lambda: all(scores(region, "e") == expected for region in cluster))
        settled(cluster)


def test_what_was_changed_past_a_gateway_is_put_right(tmp_path: Path) -> None:
    with OpenCluster(tmp_path, "abc", group="sorted", appendfsync="always") as cluster:
        call(cluster["a"], "ZADD", "past", "1", "x", "2", "y")
        call(cluster["a"], "ZADD", "lost", LARGE, "x")
        call(cluster["a"], "ZINCRBY", "lost", "0.7", "x")
        settled(cluster)
        with RawClient(cluster["a"].server.port, PATIENCE) as server:
            server.call("ZADD", "past", "7", "x")
            server.call("ZREM", "lost", "x")
        call(cluster["a"], "CRDTCAST", "REPAIR", "past", "FROM", "b")
        call(cluster["a"], "CRDTCAST", "REPAIR", "lost", "FROM", "b")
        until(lambda: scores(cluster["a"], "past") == {"x": 1.0, "y": 2.0})
        until(lambda: scores(cluster["a"], "lost") == {"x": 1e16})
        settled(cluster)
        assert exact(cluster["a"], "lost") == {b"x": LARGE.encode() + b".7"}
        with RawClient(cluster["a"].server.port, PATIENCE) as server:
            server.call("SET", "past", "text")
        assert call(cluster["b"], "ZINCRBY", "past", "3", "x") == b"4"
        until(lambda: scores(cluster["a"], "past") == {"x": 4.0, "y": 2.0})
        told = {json.loads(call(region, "CRDTCAST", "VERIFY"))["digest"] for region in cluster}
        assert len(told) == 1
