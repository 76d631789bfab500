"""Decimals: what a number is, sums that are exact in any order, and the server's replies."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdtcast.adapters.redis.recorded.exact_sums import LUA
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Inc,
    RedisType,
    UnreadableError,
    decode,
    encode,
)
from crdtcast.adapters.redis.store.slot_value import (
    LONGEST_NUMBER,
    MOST_PLACES,
    Figures,
    Register,
    figures,
    increased,
    number_of,
    plain_decimal,
    text_of,
    worth_of,
)
from crdtcast.causality.tags import Dot
from tests.adapters.redis.test_transactions import BINARIES, Both, both

pytestmark = pytest.mark.process

NOT_A_FLOAT = ErrorReply("ERR value is not a valid float")
HASH_NOT_A_FLOAT = ErrorReply("ERR hash value is not a float")
DIGITS = st.text("0123456789", max_size=40)
EXPONENTS = st.one_of(st.just(""), st.builds("e{}".format, st.integers(-402, 402)), st.just("E+7"))
PLAIN = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.sampled_from(["", "."]),
    DIGITS,
    EXPONENTS,
)
ODD = st.sampled_from(
    [
        *(
            "",
            " ",
            "1 ",
            " 1",
            "nan",
            "inf",
            "-INF",
            "infinity",
            "0x10",
            "1e",
            "1e+",
            "e5",
            ".",
            "-",
            "1.2.3",
            "1,5",
        ),
        *(
            "1_0",
            "-0",
            "007",
            "1e400",
            "1e401",
            "1e-400",
            "1e-401",
            "1" * 40,
            "1" * 41,
            "1" * 1000,
            "1" * 1001,
        ),
        *("0." + "1" * 440, "0." + "1" * 441, "-" + "1" * 999 + ".5", "9" * 60 + ".50", "\x001"),
        *("1e9999999999", "1e000000004", "1e0000000004", "1e-000000004", "1e-0000000004"),
    ]
)
TEXTS = st.one_of(PLAIN, ODD, st.integers().map(str))
DELTAS = st.one_of(PLAIN, st.sampled_from(["0.1", "-0.1", "5.0e3", "1e400", "1e-400"])).filter(
    lambda text: plain_decimal(text.encode()) is not None
)


@given(TEXTS)
def test_incremented_number_is_written_canonically(text: str) -> None:
    number = number_of(raw := text.encode())
    if number is None:
        assert increased(raw, 1) == raw
        return
    assert isinstance(known := figures(raw), Figures) or known == number
    canonical = increased(raw, 0)
    assert len(canonical) <= LONGEST_NUMBER
    again = number_of(canonical)
    assert again == number and text_of(again) == canonical == text_of(number)
    assert b"e" not in canonical and canonical != b"-0" and not canonical.startswith(b"+")
    assert b"." not in canonical or not canonical.endswith((b"0", b"."))


@given(TEXTS, st.lists(DELTAS, min_size=1, max_size=4))
@example("007", ["0.1", "0.2", "-0.3"])
@example("text", ["1"])
def test_sums_are_the_same_bytes_in_any_order(base: str, deltas: list[str]) -> None:
    exact = [d for delta in deltas if (d := plain_decimal(delta.encode())) is not None]
    ends = set()
    for order in permutations(exact):
        value = base.encode()
        for delta in order:
            value = increased(value, delta)
        ends.add(value)
    register = Register(Dot("a", 1), 0, 7, base.encode())
    assert ends == {worth_of((register,), exact)}


@given(st.lists(DELTAS, min_size=1, max_size=5))
def test_an_increment_travels_as_a_decimal(deltas: list[str]) -> None:
    found = [plain_decimal(delta.encode()) for delta in deltas]
    sent = [Inc(b"k", RedisType.STRING, WHOLE, delta) for delta in found if delta is not None]
    assert decode(encode(7, [*sent])).effects == sent


@pytest.mark.parametrize("text", ["0.50", "5", "text", "1e5", "", "-0"])
def test_an_increment_that_is_not_canonical_is_refused(text: str) -> None:
    payload = encode(7, [Inc(b"k", RedisType.HASH, b"f", Fraction(1, 2))])
    spoilt = payload.replace(b"\xa30.5", bytes((0xA0 + len(text),)) + text.encode())
    assert spoilt != payload
    with pytest.raises(UnreadableError):
        decode(spoilt)


# In the server's scripts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with start_server(tmp_path_factory.mktemp("script"), appendfsync="no") as made:
        yield made


@given(TEXTS | st.none(), TEXTS | DELTAS)
@example(None, "-0.1")
@example("10", "-0.1")
@example("-1", "1")
@example("999.999", "0.001")
@example("0." + "1" * MOST_PLACES, "1e400")
def test_scripts_count_as_the_gateway_does(
    server: EmbeddedServer, base: str | None, delta: str
) -> None:
    by = plain_decimal(delta.encode())
    number = 0 if base is None else number_of(base.encode())
    with RawClient(server.port) as client:
        client.call("FLUSHALL")
        if base is not None:
            client.call("SET", "k", base)
            client.call("HSET", "h", "f", base)
        for command in (["INCRBYFLOAT", "k"], ["hincrbyfloat", "h", "f"]):
            found = client.call("EVAL", LUA + b"return counted(ARGV)", "0", *command, delta)
            if by is None or number is None:
                assert isinstance(found, ErrorReply), found
            else:
                assert found == increased(base.encode() if base is not None else b"0", by)
        kept = client.call("GET", "k"), client.call("HGET", "h", "f")
        if by is None or number is None:
            assert kept == ((None if base is None else base.encode()),) * 2
        else:
            assert kept == (increased(base.encode() if base is not None else b"0", by),) * 2


# Beside the plain server


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("decimals"), request.param) as made:
        yield made


KEYS = st.sampled_from(["k", "l", "s", "h"])
FIELDS = st.sampled_from(["f", "g"])
SHORT = ["0.1", "-0.1", "2", "-7", "5.0e3", ".5", "5.", "+5", "-0", "1.5E1", "00.250", "1e-10"]
BAD = [
    "",
    " ",
    " 1",
    "1 ",
    "nan",
    "-nan",
    "inf",
    "+inf",
    "-Infinity",
    "x",
    "1e",
    "1.2.3",
    "1e5000",
    "\x00",
]
NUMBERS = st.sampled_from(SHORT + BAD)
COMMANDS = st.one_of(
    st.tuples(st.just("INCRBYFLOAT"), KEYS, NUMBERS),
    st.tuples(st.just("HINCRBYFLOAT"), KEYS, FIELDS, NUMBERS),
    st.tuples(
        st.just("SET"), KEYS, st.sampled_from(["7", "3.0", "text", "", "5.0e3", "0.25", " 1"])
    ),
    st.tuples(st.just("HSET"), KEYS, FIELDS, st.sampled_from(["7", "3.0", "text", "0.25"])),
    st.tuples(st.sampled_from(["INCR", "GET", "HGETALL", "DEL", "SPOP", "GETDEL", "TYPE"]), KEYS),
    st.tuples(st.just("HINCRBY"), KEYS, FIELDS, st.just("2")),
    st.tuples(st.just("SADD"), KEYS, st.just("x")),
    st.tuples(st.just("EXPIRE"), KEYS, st.just("1000")),
    st.sampled_from([("MULTI",), ("EXEC",), ("INCRBYFLOAT", "k"), ("HINCRBYFLOAT", "k", "f")]),
)


@given(st.lists(COMMANDS, min_size=3, max_size=20))
@example(
    [
        ("SPOP", "s"),
        ("INCRBYFLOAT", "k", "inf"),
        ("HINCRBYFLOAT", "h", "f", "inf"),
        ("INCRBYFLOAT", "k", "nan"),
    ]
)
@example(
    [("SADD", "s", "x"), ("SPOP", "l"), ("INCRBYFLOAT", "s", "x"), ("HINCRBYFLOAT", "s", "f", "x")]
)
def test_decimals_are_answered_as_by_the_plain_server(
    pair: Both, commands: list[tuple[str, ...]]
) -> None:
    with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
        plain.call("FLUSHALL")
        ours.call("DEL", "k", "l", "s", "h")
        assert ours.pipeline(commands) == plain.pipeline(commands)
    assert pair.running.gateway.committer.changed_behind == 0


LONG = "1234567890123456789012345678901234567890"


@pytest.mark.parametrize("behind", [(), (("GETDEL", "nothing"),)], ids=["plain", "recorded"])
def test_decimals_stay_exact_where_the_plain_server_rounds(
    pair: Both, behind: tuple[tuple[str, ...], ...]
) -> None:
    with pair.running.client() as client:
        client.call("DEL", "k", "h")

        def answered(*words: str) -> object:
            client.call("DEL", "k")
            return client.pipeline([*behind, words])[-1]

        for bad in ("0x10", "1e401", "1e-401", LONG + "1", "0." + LONG, "1e400000000000"):
            assert answered("INCRBYFLOAT", "k", bad) == NOT_A_FLOAT
            assert answered("HINCRBYFLOAT", "h", "f", bad) == NOT_A_FLOAT
        assert answered("INCRBYFLOAT", "k", "1e400") == b"1" + b"0" * 400
        assert answered("INCRBYFLOAT", "k", "1e-400") == b"0." + b"0" * 399 + b"1"
        assert answered("INCRBYFLOAT", "k", LONG) == LONG.encode()
        assert answered("INCRBYFLOAT", "k", "0.1234567890123456789") == b"0.1234567890123456789"
        for text in ("inf", "0x10", "1e401"):
            client.call("SET", "k", text)
            client.call("HSET", "h", "f", text)
            assert client.pipeline([*behind, ("INCRBYFLOAT", "k", "1")])[-1] == NOT_A_FLOAT
            assert (
                client.pipeline([*behind, ("HINCRBYFLOAT", "h", "f", "1")])[-1] == HASH_NOT_A_FLOAT
            )


def test_integers_and_decimals_are_one_number(pair: Both) -> None:
    with pair.running.client() as client:
        client.call("DEL", "k", "h")
        assert client.pipeline(
            [
                *(
                    ("INCRBY", "k", "3"),
                    ("INCRBYFLOAT", "k", "0.5"),
                    ("INCR", "k"),
                    ("INCRBYFLOAT", "k", "0.5"),
                ),
                *(
                    ("INCR", "k"),
                    ("GET", "k"),
                    ("HINCRBYFLOAT", "h", "f", "1.5"),
                    ("HINCRBY", "h", "f", "1"),
                ),
                *(("HINCRBYFLOAT", "h", "f", "-.5"), ("HINCRBY", "h", "f", "1")),
            ]
        ) == [
            *(3, b"3.5", ErrorReply("ERR value is not an integer or out of range"), b"4"),
            *(5, b"5", b"1.5", ErrorReply("ERR hash value is not an integer")),
            *(b"1", 2),
        ]
