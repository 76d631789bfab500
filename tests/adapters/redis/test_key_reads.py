"""Reads about keys, and longer reads of strings, sets and hashes, through a gateway: the plain server's replies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.test_transactions import BINARIES, Both, both

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("reads"), request.param) as made:
        yield made


KEYS = st.sampled_from(["k", "l", "key:1", "none"])
WORDS = st.sampled_from(["x", "y", "7", "12", "a longer text", "7.5"])
PATTERNS = st.sampled_from(["*", "k*", "key:?", "[kl]", "", "none"])
WRITES = st.one_of(
    st.tuples(st.sampled_from(["SET", "SADD", "SREM", "GETSET", "SETNX"]), KEYS, WORDS),
    st.tuples(st.just("HSET"), KEYS, WORDS, WORDS),
    st.tuples(st.sampled_from(["INCR", "DEL", "PERSIST", "GETDEL"]), KEYS),
    st.tuples(st.just("EXPIRE"), KEYS, st.just("1000")),
)
NUMBERS = st.sampled_from(["0", "-1", "2", "100", "-3", "x", ""])
READS = st.one_of(
    st.tuples(st.just("TOUCH"), KEYS, KEYS),
    st.tuples(st.just("EXISTS"), KEYS, KEYS, KEYS),
    st.tuples(
        st.just("OBJECT"),
        st.sampled_from(["ENCODING", "FREQ", "encoding", "NONE"]),
        KEYS,
    ),
    st.sampled_from(
        [
            ("DBSIZE",),
            ("TOUCH",),
            ("KEYS",),
            ("RANDOMKEY", "x"),
            ("OBJECT",),
            ("OBJECT", "ENCODING"),
        ]
    ),
    st.sampled_from(
        [
            ("SCAN",),
            ("SCAN", "x"),
            ("SCAN", "0", "COUNT", "0"),
            ("SCAN", "0", "NONE", "1"),
            ("LCS", "k"),
        ]
    ),
    st.tuples(
        st.sampled_from(["STRLEN", "SCARD", "HLEN", "TYPE", "GET", "HKEYS", "SMEMBERS"]), KEYS
    ),
    st.tuples(st.sampled_from(["GETRANGE", "SUBSTR"]), KEYS, NUMBERS, NUMBERS),
    st.tuples(st.just("LCS"), KEYS, KEYS),
    st.tuples(st.just("LCS"), KEYS, KEYS, st.sampled_from(["LEN", "IDX", "NONE"])),
    st.tuples(
        st.just("LCS"),
        KEYS,
        KEYS,
        st.just("IDX"),
        st.just("MINMATCHLEN"),
        NUMBERS,
        st.just("WITHMATCHLEN"),
    ),
    st.tuples(st.just("SORT_RO"), KEYS),
    st.tuples(
        st.just("SORT_RO"),
        KEYS,
        st.just("LIMIT"),
        NUMBERS,
        NUMBERS,
        st.sampled_from(["ALPHA", "DESC", "FOO"]),
    ),
    st.tuples(
        st.just("SORT_RO"),
        KEYS,
        st.sampled_from(["BY", "GET"]),
        st.sampled_from(["key:*", "#"]),
        st.just("ALPHA"),
    ),
    st.tuples(
        st.sampled_from(["SMISMEMBER", "HMGET", "SISMEMBER", "HEXISTS", "HSTRLEN", "HGET"]),
        KEYS,
        WORDS,
    ),
    st.tuples(st.sampled_from(["SINTER", "SUNION", "SDIFF", "MGET"]), KEYS, KEYS),
    st.tuples(st.just("SINTERCARD"), st.sampled_from(["2", "0", "x"]), KEYS, KEYS),
    st.tuples(
        st.sampled_from(["SRANDMEMBER", "HRANDFIELD"]), KEYS, st.sampled_from(["100", "0", "x"])
    ),
    st.tuples(st.sampled_from(["SSCAN", "HSCAN"]), KEYS, st.just("0"), st.just("MATCH"), PATTERNS),
)
ABOUT_ALL = st.one_of(
    st.tuples(st.just("KEYS"), PATTERNS),
    st.tuples(
        st.just("SCAN"), st.just("0"), st.just("MATCH"), PATTERNS, st.just("COUNT"), st.just("1000")
    ),
    st.tuples(
        st.just("SCAN"),
        st.just("0"),
        st.just("TYPE"),
        st.sampled_from(["string", "set", "hash", "none"]),
    ),
)


def unordered(reply: Any) -> Any:
    """Where the order says nothing: of sets, fields, keys."""
    if isinstance(reply, list):
        return sorted(map(repr, map(unordered, reply)))
    return reply


@given(st.lists(WRITES | READS | ABOUT_ALL, min_size=4, max_size=25), st.booleans())
def test_reads_are_answered_as_by_the_plain_server(
    pair: Both, commands: list[tuple[str, ...]], in_one: bool
) -> None:
    """in_one: in a transaction."""
    if in_one:
        commands = [("MULTI",), *commands, ("EXEC",)]
    with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
        plain.call("FLUSHALL")
        ours.call("FLUSHALL")
        expected = unordered(plain.pipeline(commands))
        found = unordered(ours.pipeline(commands))
        assert found == expected
    assert pair.running.gateway.committer.changed_behind == 0


def test_randomkey_returns_an_existing_key(pair: Both) -> None:
    with pair.running.client() as client:
        client.call("FLUSHALL")
        assert client.call("RANDOMKEY") is None
        client.pipeline([("SET", "k", "1"), ("SADD", "s", "x")])
        assert {client.call("RANDOMKEY") for _ in range(20)} <= {b"k", b"s"}
        # What a server says of a value depends on when it is asked: within EXEC its queue holds the value, too.
        idle, references = (client.call("OBJECT", what, "k") for what in ("IDLETIME", "REFCOUNT"))
        assert isinstance(idle, int) and isinstance(references, int) and references > idle >= 0
        assert client.call("OBJECT", "IDLETIME", "none") is None


def test_object_help_is_refused_with_a_reason(pair: Both) -> None:
    with pair.running.client() as client:
        reply = client.call("OBJECT", "HELP")
        assert isinstance(reply, ErrorReply) and "concerns one server" in reply.text
