"""Replies against expectations: literals, every matcher, and what must not match."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.raw_client import ErrorReply, Reply
from crdtcast.conformance.matchers import comparable, matches, show

WRONG_TYPE = ErrorReply("WRONGTYPE Operation against a key holding the wrong kind of value")


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        ("6", b"6"),
        ("OK", b"OK"),
        ("é", "é".encode()),
        (6, 6),
        (None, None),
        ([], []),
        (["a", 1, None], [b"a", 1, None]),
        ({"any_of": [2, 3]}, 3),
        ({"any_of": ["OK", {"error": "ERR"}]}, ErrorReply("ERR no")),
        ({"unordered": ["y", "z"]}, [b"z", b"y"]),
        ({"unordered": []}, []),
        ({"unordered": [{"any_of": ["a", "b"]}, "a"]}, [b"a", b"b"]),
        ({"map": {"name": "Ada", "n": {"between": [1, 2]}}}, [b"n", b"2", b"name", b"Ada"]),
        ({"map": {}}, []),
        ({"error": "WRONGTYPE"}, WRONG_TYPE),
        ({"hex": "00ff"}, b"\x00\xff"),
        ({"between": [58, 60]}, 58),
        ({"between": [0, 1]}, b"0.5"),
        ({"contains_in_order": ["a2", "a1"]}, [b"b2", b"a2", b"b1", b"a1"]),
        ({"not": "in-sync"}, b"behind"),
        ({"not": {"error": "ERR"}}, b"OK"),
    ],
)
def test_matches(expected: Any, reply: Reply) -> None:
    assert matches(expected, reply)


@pytest.mark.parametrize(
    ("expected", "reply"),
    [
        ("6", 6),
        (6, b"6"),
        (1, None),
        (None, []),
        (None, b""),
        ("ERR", ErrorReply("ERR")),
        (["a"], [b"a", b"a"]),
        ({"unordered": ["a", "a"]}, [b"a", b"b"]),
        ({"unordered": ["a"]}, b"a"),
        ({"unordered": [{"any_of": ["a", "b"]}, {"any_of": ["a", "b"]}]}, [b"a", b"c"]),
        ({"map": {"a": "1"}}, [b"a", b"1", b"a", b"1"]),
        ({"map": {"a": "1", "b": "1"}}, [b"a", b"1", b"a", b"1"]),
        ({"map": {"a": "1"}}, [b"a"]),
        ({"error": "ERR"}, WRONG_TYPE),
        ({"error": "ERR"}, b"ERR"),
        ({"between": [58, 60]}, 61),
        ({"between": [58, 60]}, b"x"),
        ({"between": [0, 1]}, None),
        ({"contains_in_order": ["a1", "a2"]}, [b"a2", b"a1"]),
        ({"contains_in_order": ["a", "a"]}, [b"a"]),
        ({"not": {"any_of": [1, 2]}}, 2),
    ],
)
def test_does_not_match(expected: Any, reply: Reply) -> None:
    assert not matches(expected, reply)


@pytest.mark.parametrize("wrong", [{"near": 1}, {"any_of": [1], "not": 2}, True])
def test_an_unknown_matcher_is_an_error_not_a_mismatch(wrong: Any) -> None:
    with pytest.raises(ValueError):
        matches(wrong, 1)


@given(st.lists(st.binary(max_size=3)), st.randoms())
def test_unordered_accepts_exactly_the_permutations(items: list[bytes], random: Any) -> None:
    expected = {"unordered": [{"hex": item.hex()} for item in items]}
    reply: list[Reply] = list(items)
    random.shuffle(reply)
    assert matches(expected, reply)
    assert not matches(expected, [*reply, b"one more"])


def test_only_an_order_that_redis_leaves_open_does_not_count() -> None:
    forth: list[Reply] = [b"a", b"1", b"b", b"0"]
    back: list[Reply] = [b"b", b"0", b"a", b"1"]
    crossed: list[Reply] = [b"a", b"0", b"b", b"1"]
    assert comparable((b"hgetall", b"h"), forth) == comparable((b"HGETALL", b"h"), back)
    assert comparable((b"HGETALL", b"h"), forth) != comparable((b"HGETALL", b"h"), crossed)
    assert comparable((b"SMEMBERS", b"s"), forth) == comparable((b"SMEMBERS", b"s"), back)
    assert comparable((b"LRANGE", b"l", b"0", b"-1"), forth) == forth
    assert comparable((b"SMEMBERS", b"s"), WRONG_TYPE) == WRONG_TYPE
    assert comparable((), 3) == 3


def test_long_replies_are_shown_short() -> None:
    assert show([b"a", None, 3, WRONG_TYPE]).startswith("['a', null, 3, error 'WRONGTYPE")
    assert len(show(b"x" * 10_000)) < 300
    assert "10000 elements" in show([1] * 10_000)
