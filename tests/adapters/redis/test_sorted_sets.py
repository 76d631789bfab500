"""Sorted sets and places at one gateway: its replies are the plain server's, byte for byte, where no digit is lost."""

from collections.abc import Iterator
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.commands.geo import geohash
from crdtcast.adapters.redis.recorded import exact_scores, exact_sums
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.databases import LUA_HOME
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    Inc,
    KillKey,
    KillSlots,
    RedisType,
    Reg,
    Replace,
)
from crdtcast.adapters.redis.store.slot_value import Only
from crdtcast.adapters.redis.types.sorted_sets import SortedSet, decimal_of
from tests.adapters.redis.test_recorded_commands import effects_since, sent
from tests.adapters.redis.test_transactions import BINARIES, Both, both, conversation

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("sorted"), request.param) as made:
        yield made


KEYS = st.sampled_from(["k", "l", "m"])
MEMBERS = st.sampled_from(["x", "y", "z", "5"])
SCORES = st.sampled_from(
    [
        *("1", "2", "-3", "0", "2.5", "0.25", "1e3", "5e-1", "007", ".5", "5.", "1e300"),
        *("inf", "-inf", "+inf", "Infinity", "nan", "1e400", "text", "9007199254740993", "1e-7"),
        *("12345678901234567890", "0.1", "3.14159", "123456789.125", "+4", "1e21", "-2.5e-9"),
    ]
)
"""All that a client may write."""
STEPS = st.sampled_from(["1", "-1", "2.5", "0.25", "4096", "inf", "-inf", "text", "1e2"])
"""Increments that a double adds exactly."""
FLAGS = st.lists(
    st.sampled_from(["NX", "XX", "GT", "LT", "CH", "INCR", "nx", "ch"]), max_size=3
).map(" ".join)
BOUNDS = st.sampled_from(["0", "-inf", "+inf", "(1", "2", "-1", "inf", "text", "(2.5"])
RANKS = st.sampled_from(["0", "1", "-1", "-2", "100", "x"])
LEXES = st.sampled_from(["-", "+", "[x", "(x", "[y", "(z", "x"])
HOW = st.sampled_from(
    [
        *("", "REV", "LIMIT 0 1", "BYSCORE", "BYSCORE REV", "BYSCORE LIMIT 0 1", "WITHSCORES"),
        *("BYLEX", "BYLEX REV", "BYLEX LIMIT 1 2", "BYSCORE LIMIT x 1", "FOO"),
    ]
)
COMBINED = st.sampled_from(
    [
        *("2 k l", "2 k m", "1 k", "3 k l m", "0 k", "x k", "9 k l", "2 k l WEIGHTS 2 3"),
        *("2 k l AGGREGATE MAX", "2 k l WEIGHTS 1 .5 AGGREGATE MIN", "2 k l AGGREGATE FOO"),
        *("2 k s", "1 s", "2 s t", "2 k text", "2 k l WITHSCORES"),
    ]
)
PLACES = st.sampled_from(
    [
        *("13.361389 38.115556 x", "15.087269 37.502669 y", "-122.4 37.77 z", "2.35 48.85 x"),
        *("0 0 z", "180 85 y", "-180 -85 z", "181 0 x", "0 86 x", "text 0 x", "0 0", "nan 0 x"),
        *("13.36 38.11 x 15.08 37.50 y", "1e1 .5 x", "+5 5. y", "0 0 x 0 0 y 0", "inf 0 x"),
    ]
)
CENTRES = st.sampled_from(["15 37", "0 0", "-122 37", "200 0", "x 0"])
RADII = st.sampled_from(["200 km", "100000 m", "5000 mi", "20000 km", "1 ft"])
INVALID = st.sampled_from(["-1 km", "1 parsec", "x m"])
"""Which of several errors the old forms with STORE tell may differ: they are other commands here."""
ORDERS = st.sampled_from(["", "ASC", "DESC", "COUNT 1", "COUNT 2 ANY", "COUNT 0", "FOO", "COUNT"])
SEARCHES = ORDERS | st.sampled_from(["WITHDIST", "WITHCOORD WITHDIST", "WITHHASH ASC"])
STORED = st.sampled_from(["STORE l", "STOREDIST l", "STORE k STOREDIST m", "STORE"])
ORIGINS = st.sampled_from(["FROMMEMBER x", "FROMMEMBER q", "FROMLONLAT 15 37", "FROMLONLAT 0 0"])
SHAPES = st.sampled_from(["BYRADIUS 500 km", "BYBOX 400 400 km", "BYRADIUS x km", ""])


def command(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(form.format, *parts)


WRITES = st.one_of(
    command("ZADD {} {} {}", KEYS, SCORES, MEMBERS),
    command("ZADD {} {} {} {} {}", KEYS, SCORES, MEMBERS, SCORES, MEMBERS),
    command("ZADD {} {} {} {}", KEYS, FLAGS, SCORES, MEMBERS),
    command("ZADD {} {} {} {} {} {}", KEYS, FLAGS, SCORES, MEMBERS, SCORES, MEMBERS),
    command("ZADD {} GT CH {} {} {} {}", KEYS, SCORES, MEMBERS, SCORES, MEMBERS),
    command("ZADD {} LT {} {} {} {}", KEYS, SCORES, MEMBERS, SCORES, MEMBERS),
    command("ZADD {} {} INCR {} {}", KEYS, FLAGS, STEPS, MEMBERS),
    command("ZINCRBY {} {} {}", KEYS, STEPS, MEMBERS),
    command("ZREM {} {} {}", KEYS, MEMBERS, MEMBERS),
    command("ZREMRANGEBYRANK {} {} {}", KEYS, RANKS, RANKS),
    command("ZREMRANGEBYSCORE {} {} {}", KEYS, BOUNDS, BOUNDS),
    command("ZREMRANGEBYLEX {} {} {}", KEYS, LEXES, LEXES),
    command("{} {}", st.sampled_from(["ZPOPMIN", "ZPOPMAX", "zpopmin"]), KEYS),
    command("ZPOPMIN {} {}", KEYS, RANKS),
    command(
        "ZMPOP {} {} {}",
        st.sampled_from(["1 k", "2 k l", "3 l m k", "0 k", "x k", "1 text", "2 k"]),
        st.sampled_from(["MIN", "MAX", "FOO"]),
        st.sampled_from(["", "COUNT 2", "COUNT 0", "COUNT"]),
    ),
    command("ZRANGESTORE {} {} {} {} {}", KEYS, KEYS, RANKS, RANKS, HOW),
    command("ZRANGESTORE {} {} {} {} BYSCORE {}", KEYS, KEYS, BOUNDS, BOUNDS, HOW),
    command("ZRANGESTORE {} {} {} {} BYLEX {}", KEYS, KEYS, LEXES, LEXES, HOW),
    command(
        "{} {} {}",
        st.sampled_from(["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]),
        KEYS,
        COMBINED,
    ),
    command("GEOADD {} {} {}", KEYS, st.sampled_from(["", "NX", "XX CH", "CH", "NX XX"]), PLACES),
    command("GEOSEARCHSTORE {} {} {} {} {}", KEYS, KEYS, ORIGINS, SHAPES, SEARCHES),
    command("GEOSEARCHSTORE {} {} {} {} STOREDIST {}", KEYS, KEYS, ORIGINS, SHAPES, SEARCHES),
    command("GEORADIUS {} {} {} {} {}", KEYS, CENTRES, RADII, ORDERS, STORED),
    command("GEORADIUSBYMEMBER {} {} {} {} {}", KEYS, MEMBERS, RADII, ORDERS, STORED),
)
READS = st.one_of(
    command("ZRANGE {} 0 -1 WITHSCORES", KEYS),
    command("ZRANGE {} {} {} {}", KEYS, RANKS, RANKS, HOW),
    command("ZRANGEBYSCORE {} {} {} WITHSCORES", KEYS, BOUNDS, BOUNDS),
    command("ZREVRANGE {} {} {}", KEYS, RANKS, RANKS),
    command("ZREVRANGEBYSCORE {} {} {}", KEYS, BOUNDS, BOUNDS),
    command("ZRANGEBYLEX {} {} {}", KEYS, LEXES, LEXES),
    command("ZREVRANGEBYLEX {} {} {}", KEYS, LEXES, LEXES),
    command("{} {} {}", st.sampled_from(["ZRANK", "ZREVRANK", "ZSCORE", "ZMSCORE"]), KEYS, MEMBERS),
    command("ZMSCORE {} {} {}", KEYS, MEMBERS, MEMBERS),
    command("ZCARD {}", KEYS),
    command("ZCOUNT {} {} {}", KEYS, BOUNDS, BOUNDS),
    command("ZLEXCOUNT {} {} {}", KEYS, LEXES, LEXES),
    command("ZSCAN {} 0", KEYS),
    command("ZRANDMEMBER {} -0", KEYS),
    command("{} {}", st.sampled_from(["ZUNION", "ZINTER", "ZDIFF", "ZINTERCARD"]), COMBINED),
    command("GEOPOS {} {} {}", KEYS, MEMBERS, MEMBERS),
    command("GEODIST {} {} {} km", KEYS, MEMBERS, MEMBERS),
    command("GEOHASH {} {}", KEYS, MEMBERS),
    command("GEOSEARCH {} {} {} {}", KEYS, ORIGINS, SHAPES, SEARCHES),
    command("GEORADIUS {} {} {} {}", KEYS, CENTRES, RADII | INVALID, SEARCHES),
    command("GEORADIUSBYMEMBER {} {} {} {}", KEYS, MEMBERS, RADII, SEARCHES),
    command("GEORADIUS_RO {} {} {} {}", KEYS, CENTRES, RADII, SEARCHES),
)
OTHERS = st.one_of(
    st.sampled_from(["MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "GETDEL nothing", "PING"]),
    st.sampled_from(["SADD s x y", "SADD t y z", "SET text hello", "FLUSHALL", "TYPE k", "ZADD k"]),
    command("{} {} {}", st.sampled_from(["RENAME", "RENAMENX", "COPY"]), KEYS, KEYS),
    command("{} {}", st.sampled_from(["DEL", "TYPE", "EXISTS"]), KEYS),
    command("SADD {} {}", KEYS, MEMBERS),
    command("SET {} 5", KEYS),
    command("PERSIST {}", KEYS),
    command("BZPOPMIN", KEYS).filter(lambda _: False) | st.just("GET k"),
)


@pytest.mark.parametrize("protocol", [2, 3])
def test_any_conversation_is_answered_as_by_the_plain_server(pair: Both, protocol: int) -> None:
    @settings(max_examples=settings().max_examples * 4)
    @given(st.lists(st.one_of(WRITES, WRITES, READS, OTHERS), min_size=4, max_size=25))
    def check(commands: list[str]) -> None:
        for port in (pair.plain.port, pair.running.port):
            with RawClient(port) as client:
                client.call("FLUSHALL")
        expected = conversation(pair.plain.port, protocol, commands)
        assert conversation(pair.running.port, protocol, commands) == expected

    check()
    assert pair.running.gateway.committer.changed_behind == 0


# Decimals and places


DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
DECIMAL_OF = (
    b"local ours = 15\n"
    + LUA_HOME
    + exact_sums.LUA
    + exact_scores.LUA
    + b"return added(decimal(shortest(tonumber(ARGV[1]))), decimal('0'))"
)


def test_a_script_takes_a_double_for_the_same_decimal(pair: Both) -> None:
    with RawClient(pair.plain.port) as server:

        @settings(max_examples=settings().max_examples * 10)
        @example(5e-324)
        @example(1.7976931348623157e308)
        @example(5.684341886080802e-14)
        @example(9007199254740993.0)
        @given(DOUBLES)
        def check(score: float) -> None:
            told = server.call("EVAL", DECIMAL_OF, "0", repr(score))
            assert told == decimal_of(score)
            assert float(decimal_of(score)) == score
            assert SortedSet.shown(decimal_of(score)) == decimal_of(score)

        check()


def test_a_place_has_the_score_that_the_server_gives_it(pair: Both) -> None:
    with RawClient(pair.plain.port) as server:

        @settings(max_examples=settings().max_examples * 4)
        @given(st.floats(-180, 180), st.floats(-85.05112878, 85.05112878))
        def check(longitude: float, latitude: float) -> None:
            words = f"{longitude:.12f}", f"{latitude:.12f}"
            server.call("GEOADD", "place", *words, "x")
            told = server.call("ZSCORE", "place", "x")
            assert isinstance(told, bytes)
            assert int(float(told)) == geohash(*map(float, words))

        check()


INCREMENTS = st.sampled_from(
    ["0.1", "0.2", "-0.3", "1e16", "-1e16", "0.7", "1e-9", "1e22", "0.30000000000000004", "1e300"]
)
HOWS = st.sampled_from(["alone", "recorded", "in a transaction", "with ZADD"])


def test_sums_are_those_of_decimals(pair: Both) -> None:
    @settings(max_examples=settings().max_examples * 2)
    @given(st.lists(st.tuples(INCREMENTS, HOWS), min_size=1, max_size=12))
    def check(steps: list[tuple[str, str]]) -> None:
        total = Decimal(0)
        with pair.running.client() as client, localcontext() as context:
            context.prec = 700
            client.call("DEL", "sum")
            for step, how in steps:
                words = {
                    "alone": [("ZINCRBY", "sum", step, "x")],
                    "recorded": [("GETDEL", "nothing"), ("ZINCRBY", "sum", step, "x")],
                    "in a transaction": [("MULTI",), ("ZINCRBY", "sum", step, "x"), ("EXEC",)],
                    "with ZADD": [("ZADD", "sum", "INCR", step, "x")],
                }[how]
                told = client.pipeline(words)[-1]
                score = told[0] if isinstance(told, list) else told
                assert isinstance(score, bytes), score
                total += Decimal(decimal_of(float(step)).decode())
                assert float(score) == float(total)
            assert SortedSet.shown(f"{total:f}".encode()) == decimal_of(float(total))

    check()
    assert pair.running.gateway.committer.changed_behind == 0


# One message


@pytest.fixture
def client(pair: Both) -> Iterator[RawClient]:
    with pair.running.client() as made:
        made.call("FLUSHALL")
        yield made


ZSET = RedisType.ZSET


def test_what_a_command_has_written_is_sent_and_nothing_else(pair: Both, client: RawClient) -> None:
    before = sent(pair.running)
    client.call("ZADD", "z", "5", "x", "007.50", "y", "1e3", "w")
    client.call("ZADD", "z", "GT", "CH", "9", "x", "1", "y", "3", "new")
    client.call("ZADD", "z", "NX", "9", "x")
    client.call("ZADD", "z", "XX", "5e-1", "y", "1", "none")
    client.call("ZADD", "z", "LT", "INCR", "1", "x")
    client.call("ZINCRBY", "z", "1e-1", "x")
    client.call("ZINCRBY", "z", "-inf", "w")
    client.call("ZPOPMIN", "z")
    client.call("ZREMRANGEBYRANK", "z", "0", "0")
    client.call("ZUNIONSTORE", "u", "1", "z", "WEIGHTS", "2")
    told = effects_since(pair.running, before)
    assert told == [
        KillKey(b"z"),
        Reg(b"z", ZSET, (b"x", b"5", b"y", b"7.5", b"w", b"1000")),
        Reg(b"z", ZSET, (b"x", b"9", b"new", b"3"), only=Only.GREATER),
        Reg(b"z", ZSET, (b"y", b"0.5")),
        Inc(b"z", ZSET, b"x", told[4].delta),  # type: ignore[attr-defined]
        Reg(b"z", ZSET, (b"w", b"-inf")),
        KillSlots(b"z", ZSET, (b"w",)),
        KillSlots(b"z", ZSET, (b"y",)),
        Replace(b"u", NEVER),
        Reg(b"u", ZSET, (b"new", b"6", b"x", b"18.2")),
    ]
    assert told[4].delta * 10 == 1  # type: ignore[attr-defined]


def test_many_members_are_one_command(client: RawClient) -> None:
    words = [word for number in range(50_000) for word in (f"{number}.5", f"m{number}")]
    assert client.call("ZADD", "z", *words) == 50_000
    assert client.pipeline([("GETDEL", "nothing"), ("ZADD", "z", *words)])[1] == 0
    assert client.call("ZREM", "z", *words[1:-2:2]) == 49_999
    assert client.call("ZRANGE", "z", "0", "-1", "WITHSCORES") == [b"m49999", b"49999.5"]
    told = client.call("ZADD", "z", "NX", *words)
    assert isinstance(told, ErrorReply) and "at most 4000 words: split it" in told.text
    assert client.call("ZADD", "z", *words) == 49_999
    assert client.call("ZREMRANGEBYRANK", "z", "0", "-2") == 49_999
    assert client.call("ZPOPMAX", "z", "9") == [b"m49999", b"49999.5"]
