"""Replies: what is encoded comes back from hiredis, and doubles look as the server prints them."""

import math

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.resp import (
    OK,
    Push,
    Raw,
    ReplyError,
    StatusReply,
    Verbatim,
    double_text,
    encode,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
LINES = st.binary(max_size=20).filter(lambda text: b"\r" not in text and b"\n" not in text)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INT64,
    st.integers(2**63, 2**80),
    st.binary(max_size=40),
    LINES.map(StatusReply),
    st.binary(max_size=40).map(Verbatim),
    st.text(max_size=20),
    st.floats(allow_nan=False),
    st.text(alphabet="abc DEF", min_size=1).map(lambda text: ReplyError("ERR " + text)),
)
HASHABLE = st.one_of(INT64, st.binary(max_size=20))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.frozensets(HASHABLE, max_size=5),
        st.dictionaries(HASHABLE, inner, max_size=5),
    ),
    max_leaves=20,
)


def parsed(encoded: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(encoded)
    value = reader.gets()
    reader.feed(b"+END\r\n")
    assert reader.gets() == b"END", "a reply must end where it ends"
    return value


def as_hiredis_gives(value: object, protocol: int) -> object:
    resp3 = protocol == 3
    match value:
        case bool():
            return value if resp3 else int(value)
        case int():
            return value if -(2**63) <= value < 2**63 else b"%d" % value
        case float():
            return value if resp3 else double_text(value)
        case str():
            return value.encode()
        case bytes():
            return bytes(value)
        case ReplyError():
            return f"ReplyError {value}"
        case hiredis.ReplyError():
            return f"ReplyError {value}"
        case list() | tuple() | frozenset():
            return [as_hiredis_gives(item, protocol) for item in value]
        case dict() if resp3:
            return {key: as_hiredis_gives(item, protocol) for key, item in value.items()}
        case dict():
            return [as_hiredis_gives(part, 2) for pair in value.items() for part in pair]
    return value


@pytest.mark.parametrize("protocol", [2, 3])
@given(value=VALUES)
def test_encoded_reply_decodes_to_the_same_value(protocol: int, value: object) -> None:
    expected = as_hiredis_gives(value, protocol)
    assert as_hiredis_gives(parsed(encode(value, protocol)), 3) == expected


@given(st.floats(allow_nan=False))
def test_a_printed_double_is_the_same_double(value: float) -> None:
    assert float(double_text(value)) == value
    assert len(double_text(value)) <= 26


@pytest.mark.parametrize(
    ("value", "text"),
    [  # as ZSCORE answers in Valkey 9
        (10.0, b"10"),
        (0.1, b"0.1"),
        (1e17, b"100000000000000000"),
        (123456789012345678.0, b"123456789012345680"),
        (1e20, b"1e+20"),
        (1.25e25, b"1.25e+25"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (0.00001, b"0.00001"),
        (0.000001, b"0.000001"),
        (1e-7, b"1e-7"),
        (0.00012345, b"1.2345e-4"),
        (12345678901.5, b"12345678901.5"),
        (5e-324, b"5e-324"),
        (-3.14, b"-3.14"),
        (math.inf, b"inf"),
        (-math.inf, b"-inf"),
        (math.nan, b"nan"),
    ],
)
def test_doubles_are_printed_as_the_server_does(value: float, text: bytes) -> None:
    assert double_text(value) == text
    assert encode(value, 3) == b",%b\r\n" % text
    assert encode(value, 2) == b"$%d\r\n%b\r\n" % (len(text), text)


@pytest.mark.parametrize(
    ("value", "resp2", "resp3"),
    [
        (OK, b"+OK\r\n", b"+OK\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (True, b":1\r\n", b"#t\r\n"),
        ({b"a"}, b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n"),
        ({b"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
        (Verbatim(b"hi"), b"$2\r\nhi\r\n", b"=6\r\ntxt:hi\r\n"),
        (Push([b"a"]), b"*1\r\n$1\r\na\r\n", b">1\r\n$1\r\na\r\n"),
        (2**64, b"$20\r\n18446744073709551616\r\n", b"(18446744073709551616\r\n"),
        (Raw(b"~0\r\n"), b"~0\r\n", b"~0\r\n"),
        ([Raw(b"*-1\r\n")], b"*1\r\n*-1\r\n", b"*1\r\n*-1\r\n"),
    ],
)
def test_each_type_in_both_protocols(value: object, resp2: bytes, resp3: bytes) -> None:
    assert encode(value, 2) == resp2
    assert encode(value, 3) == resp3


def test_an_error_is_one_line_and_keeps_its_text() -> None:
    assert encode(ReplyError("ERR a\r\nb"), 2) == b"-ERR a  b\r\n"
    assert encode(ReplyError(b"ERR \xff"), 3) == b"-ERR \xff\r\n"
    native = parsed(b"-WRONGTYPE Operation against a key\r\n")
    assert encode(native, 2) == b"-WRONGTYPE Operation against a key\r\n"
    assert Raw(b"-ERR x\r\n").is_error
    assert not Raw(b"*1\r\n-ERR x\r\n").is_error


def test_unencodable_value_raises_type_error() -> None:
    with pytest.raises(TypeError, match="object"):
        encode(object(), 2)
