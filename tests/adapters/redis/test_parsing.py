"""Requests and replies out of bytes, however they are cut; what is refused is refused at its header."""

import itertools
import random
import re
import tracemalloc

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.parsing import (
    UNAUTHENTICATED,
    FastReader,
    ReplySplitter,
    RequestLimits,
    RequestParser,
)
from crdtcast.adapters.redis.server.resp import StatusReply, Verbatim, encode
from crdtcast.exceptions import RemoteProtocolError
from tests.effort import seeds

COMMANDS = st.lists(
    st.lists(st.one_of(st.binary(max_size=30), st.just(b"*1000\r\n$9")), min_size=1, max_size=5),
    max_size=8,
)
CUTS = st.lists(st.integers(0, 400), max_size=12)
LIMITS = RequestLimits(bulk=1000, arguments=2000, request=5000)


def pieces(whole: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [whole[a:b] for a, b in itertools.pairwise(bounds)]


def parse(chunks: list[bytes], limits: RequestLimits = LIMITS) -> tuple[list[list[bytes]], object]:
    parser = RequestParser(FastReader(), limits)
    commands: list[list[bytes]] = []
    for chunk in chunks:
        got = parser.feed(chunk)
        while got:
            commands += got
            got = parser.resume() if limits is UNAUTHENTICATED else []
        if parser.error is not None:
            break
    return commands, parser.error


@given(COMMANDS, CUTS)
def test_commands_are_the_same_however_the_bytes_are_cut(
    commands: list[list[bytes]], cuts: list[int]
) -> None:
    whole = b"".join(hiredis.pack_command(tuple(command)) for command in commands)
    assert parse(pieces(whole, cuts)) == (commands, None)


@given(COMMANDS, CUTS, st.data())
@example([[b"PING"]], [], None)
def test_damaged_bytes_are_judged_alike_by_both_ways(
    commands: list[list[bytes]], cuts: list[int], data: st.DataObject | None
) -> None:
    """hiredis takes whole chunks, the careful parser single bytes: the outcome must not differ."""
    whole = bytearray(b"".join(hiredis.pack_command(tuple(command)) for command in commands))
    if data is not None and whole:
        for _ in range(data.draw(st.integers(1, 3))):
            position = data.draw(st.integers(0, len(whole) - 1))
            whole[position] = data.draw(st.sampled_from(b"*$0123456789-\r\nab\x00'%>#"))
    expected = parse([bytes([byte]) for byte in whole])
    assert parse(pieces(bytes(whole), [])) == expected
    assert parse(pieces(bytes(whole), cuts)) == expected


@pytest.mark.parametrize(
    ("received", "error"),
    [
        (b"*3\r\n$1073741824\r\n", "invalid bulk length: 1073741824 bytes, the limit is 1000"),
        (b"*1073741824\r\n", "invalid multibulk length: 1073741824 arguments, the limit is 625"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*" + b"1" * 40, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 40, "too big bulk count string"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*2\r\n$4\r\nECHO\r\n*1\r\n$1\r\na\r\n", "expected '$', got '*'"),
        (b"\x16\x03\x01\x02\x00\n", "expected '*' or an inline command, got byte 22"),
        (b"a" * 70000, "too big inline request"),
        (b"set 'a\r\n", "unbalanced quotes in request"),
        (
            b"*9\r\n" + b"$1000\r\n%b\r\n" % (b"x" * 1000) * 6,
            "request too large: more than 5000 bytes",
        ),
    ],
)
def test_oversized_request_is_refused_at_its_header(received: bytes, error: str) -> None:
    good = b"*1\r\n$4\r\nPING\r\n"
    for chunks in ([good + received], [good, received], [good, *pieces(received, [1, 5, 9])]):
        assert parse(chunks) == ([[b"PING"]], f"ERR Protocol error: {error}")


def test_a_stranger_may_send_little_until_trusted() -> None:
    big = hiredis.pack_command((b"SADD", b"k", *[b"m"] * 20))
    login = hiredis.pack_command((b"AUTH", b"secret"))
    parser = RequestParser(FastReader(), UNAUTHENTICATED)
    assert parser.feed(login + big + big) == [[b"AUTH", b"secret"]]
    parser.limits = LIMITS
    assert len(parser.resume()) == 2
    assert parse([login + big], UNAUTHENTICATED) == (
        [[b"AUTH", b"secret"]],
        "ERR Protocol error: unauthenticated multibulk length",
    )
    assert parse([b"*2\r\n$4\r\nAUTH\r\n$20000\r\n"], UNAUTHENTICATED)[1] == (
        "ERR Protocol error: unauthenticated bulk length"
    )


def test_client_that_loses_trust_is_limited_from_the_next_chunk() -> None:
    big = hiredis.pack_command((b"SADD", b"k", *[b"m"] * 20))
    parser = RequestParser(FastReader(), LIMITS)
    assert len(parser.feed(big + big)) == 2
    parser.limits = UNAUTHENTICATED
    assert parser.feed(b"*1\r\n$4\r\nPING\r\n") == [[b"PING"]]
    assert parser.feed(big) == []
    assert parser.error == "ERR Protocol error: unauthenticated multibulk length"


@pytest.mark.parametrize(
    "end", [b"*0\r\n", b"*1\r\n$4\r\nPI", b"*2\r\n$4\r\nECHO\r\n$9\r\n", b"$", b"\r\n"]
)
def test_complete_commands_come_out_of_a_cut_chunk(end: bytes) -> None:
    whole = [[b"SADD", b"k", b"m"], [b"", b""], [b"*1\r\n", b"$0\r\n\r\n"]]
    received = b"".join(hiredis.pack_command(tuple(words)) for words in whole)
    for count in range(4):
        parser = RequestParser(FastReader(), LIMITS)
        assert parser.feed(b"*1\r\n$4\r\nPING\r\n") == [[b"PING"]]  # hiredis has the next chunk
        assert parser.feed(received * count + end) == whole * count


def test_inline_commands_and_empty_lines() -> None:
    received = b"\r\nPING\r\n  \r\nsadd k 'a b' \"c\"\n*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\nPING\r\n"
    expected = [[b"PING"], [b"sadd", b"k", b"a b", b"c"], [b"PING"], [b"PING"]]
    assert parse([received]) == (expected, None)
    assert parse([bytes([byte]) for byte in received]) == (expected, None)


def test_a_large_value_tells_how_much_is_missing() -> None:
    parser = RequestParser(FastReader(), RequestLimits())
    assert parser.feed(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 10) == []
    assert parser.missing == 1_000_002 - 10
    assert parser.feed(b"x" * 999_990 + b"\r\n*1\r\n$4\r\nPING\r\n*1\r\n$") == [
        [b"ECHO", b"x" * 1_000_000],
        [b"PING"],
    ]
    assert parser.missing == 0
    assert parser.feed(b"4\r\nPING\r\n") == [[b"PING"]]


REPLIES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.binary(max_size=20),
        st.just(StatusReply(b"OK")),
        st.binary(max_size=9).map(Verbatim),
        st.floats(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3),
        st.sets(st.integers(), max_size=3),
    ),
)


@given(st.lists(REPLIES, max_size=6), CUTS, st.sampled_from([2, 3]))
def test_replies_are_split_at_their_ends(
    values: list[object], cuts: list[int], protocol: int
) -> None:
    replies = [encode(value, protocol) for value in values]
    splitter = ReplySplitter()
    seen: list[bytes] = []
    for chunk in pieces(b"".join(replies), cuts):
        splitter.feed(chunk)
        while (reply := splitter.next()) is not None:
            seen.append(reply)
    assert seen == replies


def test_attributes_stay_with_their_reply_and_pushes_are_dropped() -> None:
    splitter = ReplySplitter()
    annotated = b"*2\r\n|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n!5\r\nERR x\r\n"
    splitter.feed(b">2\r\n+invalidate\r\n_\r\n|1\r\n+a\r\n*1\r\n:1\r\n:5\r\n" + annotated)
    assert splitter.next() == b"|1\r\n+a\r\n*1\r\n:1\r\n:5\r\n"
    assert splitter.next() == annotated
    assert splitter.next() is None


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400\r\n", b"$x\r\n", b"*1\r\nx\r\n"])
def test_a_server_that_sends_something_else_is_an_error(garbage: bytes) -> None:
    splitter = ReplySplitter()
    splitter.feed(garbage)
    with pytest.raises(RemoteProtocolError, match="server's reply"):
        splitter.next()


def test_random_bytes_never_raise_and_never_pile_up() -> None:
    for seed in seeds(300):
        rng = random.Random(seed)
        parser = RequestParser(FastReader(), LIMITS)
        for _ in range(20):
            chunk = bytes(rng.choices(b"*$\r\n0123456789 abP%~>|:+", k=rng.randrange(1, 60)))
            parser.feed(chunk)
            if parser.error is not None:
                break
        # Some may wait for a bulk string that is within the limits, none for more.
        assert parser.missing <= LIMITS.bulk + 2


@given(
    counts=st.lists(st.sampled_from([1, 2, 999, 1000, 1500]), min_size=1, max_size=4),
    size=st.integers(0, 12),
    step=st.integers(1, 9000),
    looks=st.booleans(),
)
def test_large_and_small_requests_follow_each_other(
    counts: list[int], size: int, step: int, looks: bool
) -> None:
    commands = [[b"%0*d" % (size, n) if size else b"" for n in range(count)] for count in counts]
    if looks:  # like a header
        commands[0][-1] = b"\n*123456\r\n"
    whole = b"".join(hiredis.pack_command(tuple(command)) for command in commands) + b"PING\r\n"
    limits = RequestLimits()
    chunks = [whole[start : start + step] for start in range(0, len(whole), step)]
    assert parse(chunks, limits) == ([*commands, [b"PING"]], None)


@pytest.mark.parametrize(
    ("behind", "error"),
    [
        (b"$1\r\nx\r\n" * 10 + b":1\r\n" + b"$1\r\nx\r\n" * 1000, "expected .\\$. before each"),
        (b"$1\r\nx\r\n" * 10 + b"+OK\r\n" * 2000, "request too large|expected|Protocol error"),
        (b"+x\r\n" + b"$1\r\nx\r\n" * 1000, "expected .\\$. before each"),
        (b"=5\r\ntxt:x\r\n" + b"$1\r\nx\r\n" * 1000, "expected .\\$. before each"),
        (b"$1\r\nx\r\n" * 999 + b"(7\r\n*1\r\n", "expected .\\$. before each"),
        (b"$1\r\nx\r\n" * 10 + b"?" * 9000, "Protocol error"),
        (b"$x\r\n" + b"$1\r\nx\r\n" * 2000, "Protocol error"),
        (b"$99999999\r\n" + b"y" * 20_000, "request too large: more than 9000 bytes"),
        (b"*2000000\r\n$1\r\nx\r\n" * 900, r"expected '\$', got '\*'"),
        (b"$10\r\n0123456789\r\n" * 1000, "request too large: more than 9000 bytes"),
    ],
)
def test_a_large_request_that_is_wrong_is_refused(behind: bytes, error: str) -> None:
    limits = RequestLimits(request=9000)
    for step in (1, 100, 10**6):
        whole = b"*1000\r\n" + behind
        chunks = [whole[start : start + step] for start in range(0, len(whole), step)]
        commands, refused = parse(chunks, limits)
        assert not commands
        assert re.search(error, str(refused)), (step, refused)


@pytest.mark.parametrize("odd", [b"+GET", b"=7\r\ntxt:GET", b"(123"])
def test_a_string_of_another_kind_before_a_cut_is_refused(odd: bytes) -> None:
    commands, refused = parse(
        [b"*2\r\n" + odd + b"\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$900\r\n", b"k\r\n"]
    )
    assert not commands
    assert "expected '$', got" in str(refused)


def test_a_header_alone_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        parsers = [RequestParser(FastReader(), RequestLimits()) for _ in range(100)]
        for parser in parsers:
            assert parser.feed(b"*8000000\r\n$1\r\nx\r\n") == []
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
