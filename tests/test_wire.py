"""The codec and the frame decoder: what is encoded comes back, and nothing else gets through."""

import contextlib
import itertools
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import MAX_COUNTER, Dot
from crdtcast.engine import Span
from crdtcast.engine.whispers import MAX_TOPIC, MAX_WHISPER, WhisperFrame
from crdtcast.exceptions import LocalProtocolError, RemoteProtocolError
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.fields import Named, Section
from crdtcast.wire.frames import (
    KEEPALIVE_FRAME,
    MAX_HANDSHAKE_FRAME,
    Frame,
    Hello,
    KeepAlive,
    Proof,
    Refusal,
    Welcome,
    decode,
    encode,
)
from crdtcast.wire.group_frames import (
    Admit,
    Apart,
    Copy,
    Grouped,
    Here,
    Known,
)
from crdtcast.wire.offer_frames import Ask, Fetch, Offer, Part, Unable
from crdtcast.wire.view_frames import read_views, views_fields
from tests.view_values import FRAME, JUNK, at, frames_of_views, places, put

identifiers = st.text(min_size=1, max_size=64)
names = st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True)
printable = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=64)
counters = st.integers(1, MAX_COUNTER)
dots = st.builds(Dot, identifiers, counters)
incarnations = st.builds("{}.{:017x}".format, names, st.integers(0, 2**68 - 1))
joined = incarnations | st.builds("{}+{}+{}".format, incarnations, incarnations, counters)
numbers = st.integers(0, MAX_COUNTER)
messages = st.builds(
    Message,
    dots,
    st.lists(dots, max_size=5).map(tuple),
    st.binary(max_size=200),
    st.integers(0, 255),
)
vectors = st.dictionaries(identifiers, numbers, max_size=5)
spans = st.builds(lambda low, more: Span(low, low + more), st.integers(1, 9), st.integers(0, 9))
digests = st.builds(Digest, st.sampled_from(DigestKind), vectors)
asking = st.one_of(
    st.builds(Ask, numbers, st.binary(max_size=50)),
    st.builds(Offer, numbers, numbers),
    st.builds(Unable, numbers, st.booleans(), printable),
    st.builds(Fetch, numbers, numbers),
    st.builds(Part, numbers, numbers, st.binary(max_size=50)),
)
in_group = st.one_of(
    messages,
    digests,
    st.builds(Digest, st.sampled_from(DigestKind), vectors, numbers),
    st.builds(Ended, joined, st.none() | numbers),
    frames_of_views,
    st.builds(Copy, numbers, spans),
    st.builds(
        Admit,
        numbers,
        joined,
        st.lists(joined | names, max_size=3).map(tuple),
        st.booleans(),
        spans,
    ),
    asking,
    st.builds(
        WhisperFrame,
        counters,
        st.text(min_size=1, max_size=MAX_TOPIC),
        st.integers(1, 3_600_000),
        st.binary(max_size=50),
    ),
)
sections = st.builds(Section, numbers, st.binary(min_size=1, max_size=50))
frames = st.one_of(
    asking,
    messages,
    digests,
    st.builds(KeepAlive),
    st.builds(Welcome, numbers),
    st.builds(Refusal, printable, printable),
    st.builds(Proof, st.binary(max_size=160)),
    st.builds(
        Hello,
        group=names,
        name=names,
        incarnation=incarnations,
        process=st.binary(min_size=1, max_size=8),
        fence=numbers,
        max_frame=numbers,
        clock_ms=st.none() | numbers,
        version=st.integers(0, 9),
        oldest=st.integers(0, 9),
        nonce=st.just(b"") | st.binary(min_size=32, max_size=32),
        level=st.integers(1, 9),
        reads=spans,
    ),
    st.builds(
        Hello,
        group=names,
        name=names,
        incarnation=incarnations,
        process=st.binary(min_size=1, max_size=8),
        shared=st.just(True),
        address=printable,
    ),
    st.builds(Here, numbers, names, st.none() | joined, st.just("") | incarnations),
    st.builds(Apart, names, printable, printable),
    st.builds(Known, st.dictionaries(names, printable, max_size=3)),
    st.builds(Grouped, numbers, in_group),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 10_000), max_size=20))
def test_every_frame_is_decoded_from_any_pieces(sent: list[Frame], cuts: list[int]) -> None:
    decoder = FrameDecoder()
    received: list[Frame] = []
    for piece in pieces(b"".join(map(encode, sent)), cuts):
        received += decoder.feed(piece)
    assert received == sent


@given(st.lists(frames, min_size=1, max_size=4))
def test_one_byte_at_a_time_and_frame_by_frame(sent: list[Frame]) -> None:
    decoder = FrameDecoder()
    received = []
    for byte in b"".join(map(encode, sent)):
        decoder.push(bytes([byte]))
        if (frame := decoder.next_frame()) is not None:
            received.append(frame)
    assert received == sent


@given(st.lists(frames, min_size=2, max_size=4), st.binary(max_size=5))
def test_frames_taken_singly_survive_further_pushes(sent: list[Frame], tail: bytes) -> None:
    stream = b"".join(map(encode, sent))
    decoder = FrameDecoder()
    decoder.push(stream[:-1])
    received = [decoder.next_frame()]
    decoder.push(stream[-1:])
    received += decoder.drain()
    assert received == sent


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_garbage_is_frames_or_a_protocol_error(garbage: list[bytes]) -> None:
    decoder = FrameDecoder(limit=4096)
    failed = False
    for piece in garbage:
        try:
            decoder.feed(piece)
            assert not failed, "a decoder that has lost its place went on"
        except RemoteProtocolError:
            failed = True


@given(
    sections.map(lambda section: encode(section)[4:])
    | st.binary(max_size=100)
    | anything.map(msgpack.packb)
)
def test_any_body_is_a_frame_or_a_protocol_error(body: bytes) -> None:
    try:
        frame = decode(body)
    except RemoteProtocolError:
        return
    assert decode(encode(frame)[4:]) == frame


@given(st.sampled_from([*range(9), *range(17, 22)]), st.lists(anything, max_size=8))
def test_any_fields_of_a_kind_give_a_frame_or_a_protocol_error(
    kind: int, fields: list[object]
) -> None:
    try:
        frame = decode(msgpack.packb([kind, *fields]))
    except RemoteProtocolError:
        return
    assert decode(encode(frame)[4:]) == frame


@given(frames, st.integers(0, 10_000), st.integers(0, 255))
def test_a_flipped_byte_is_another_frame_or_a_protocol_error(
    frame: Frame, at: int, value: int
) -> None:
    body = bytearray(encode(frame)[4:])
    body[at % len(body)] = value
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(body))


def test_the_keep_alive_is_tiny() -> None:
    assert len(KEEPALIVE_FRAME) == 6
    assert encode(KeepAlive()) == KEEPALIVE_FRAME


@pytest.mark.parametrize("claimed", [0, 4097, 2**31, 2**32 - 1])
def test_a_lying_length_is_refused_before_anything_is_kept(claimed: int) -> None:
    decoder = FrameDecoder(limit=4096)
    with pytest.raises(RemoteProtocolError, match=f"claims {claimed:,} bytes"):
        decoder.feed(claimed.to_bytes(4, "big"))
    with pytest.raises(RemoteProtocolError):
        decoder.feed(KEEPALIVE_FRAME)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_http_is_reported_as_not_a_peer(said: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="HTTP instead of frames: not a crdtcast peer"):
        FrameDecoder(limit=4096).feed(said)


def test_header_with_too_many_elements_is_refused() -> None:
    # array 32 with 2**32 - 1 elements; nested claims must not reserve memory either
    for body in (b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff" * 1000, b"\xdf\x00\xff\xff\xff"):
        with pytest.raises(RemoteProtocolError):
            decode(body)


@pytest.mark.parametrize("header", [b"\xdc\xff\xff", b"\xdd\x00\x02\x00\x00", b"\xde\xff\xff\x00"])
def test_nested_claims_cost_no_more_memory_than_was_received(header: bytes) -> None:
    body = header * (MAX_HANDSHAKE_FRAME // len(header))
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        decode(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MAX_HANDSHAKE_FRAME**2


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=20))
def test_decoder_buffers_at_most_one_frame(pushed: list[bytes]) -> None:
    decoder = FrameDecoder(limit=4096)
    with contextlib.suppress(RemoteProtocolError):
        for piece in pushed:
            decoder.push(piece)
            while decoder.next_frame() is not None:
                pass
            assert len(decoder._chunk) - decoder._at + len(decoder._partial) <= 4096 + 4


def test_deep_nesting_is_refused_without_recursion_errors() -> None:
    with pytest.raises(RemoteProtocolError):
        decode(b"\x91" * 100_000 + b"\x00")


def test_boolean_counter_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decode(msgpack.packb([4, "a.1", True, 0, b""]))


def test_a_frame_above_the_limit_is_not_sent() -> None:
    message = Message(Dot("a.1", 1), (), bytes(2000))
    with pytest.raises(LocalProtocolError, match="at most 1,000"):
        encode(message, 1000)


def test_the_limit_can_be_raised_between_two_frames_of_one_piece() -> None:
    message = Message(Dot("a.1", 1), (), bytes(10_000))
    decoder = FrameDecoder(limit=4096)
    decoder.push(encode(Welcome(1)) + encode(message))
    assert decoder.next_frame() == Welcome(1)
    decoder.limit = 20_000
    assert decoder.drain() == [message]


def test_a_later_version_may_say_more_in_its_hello() -> None:
    hello = Hello(group="g", name="a", incarnation="a.1", process=b"p", version=2)
    fields = msgpack.unpackb(encode(hello)[4:])
    fields[1]["colour"] = ["unknown"]
    assert decode(msgpack.packb(fields)) == hello


def test_a_refusal_cannot_write_lines_of_its_own_into_the_log() -> None:
    frame = decode(encode(Refusal("busy\n", "no\r\nERROR all is lost\x1b[2J"))[4:])
    assert frame == Refusal("busy?", "no??ERROR all is lost?[2J")


def test_name_with_a_line_break_is_refused() -> None:
    hello = Hello(group="g", name="a\nERROR", incarnation="a.1", process=b"p")
    with pytest.raises(RemoteProtocolError, match="invalid 'name'"):
        decode(encode(hello)[4:])


@given(st.sampled_from(range(4, 18)), st.lists(anything, max_size=6))
def test_any_fields_in_a_group_give_a_frame_or_a_protocol_error(
    kind: int, fields: list[object]
) -> None:
    try:
        frame = decode(msgpack.packb([9, 1, kind, *fields]))
    except RemoteProtocolError:
        return
    assert decode(encode(frame)[4:]) == frame


def test_fields_of_shared_links_are_not_sent_to_version_1() -> None:
    hello = Hello(group="g", name="a", incarnation="a.0001", process=b"p")
    told = msgpack.unpackb(encode(hello)[4:])[1]
    assert not {"shared", "address"} & set(told)
    assert len(msgpack.unpackb(encode(Digest(DigestKind.NEWS, {"a.0001": 1}))[4:])) == 3


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([Section(3, b"a"), KeepAlive()], "in the middle"),
        ([Section(3, b"a"), Named(0, 0, ("n.0",))], "in the middle"),
        ([Section(3, b"a"), Section(3, b"a")], "does not follow"),
        ([Section(3, b"a"), Section(0, b"abcd")], "does not follow"),
        ([Section(4096, b"a")], "claims 4,097 bytes"),
        ([Section(2, b"a"), Section(0, b"bc")], "not valid msgpack"),
        ([Section(0, encode(Section(0, b"a"))[4:])], "as a long frame"),
        ([Section(0, encode(Named(0, 0, ("n.0",)))[4:])], "as a long frame"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_sections_that_are_not_one_frame_end_the_stream(sent: list[Frame], why: str) -> None:
    decoder = FrameDecoder(limit=4096)
    decoder.numbered = True
    with pytest.raises(RemoteProtocolError, match=why):
        decoder.feed(b"".join(map(encode, sent)))
    with pytest.raises(RemoteProtocolError, match=why):
        decoder.feed(KEEPALIVE_FRAME)


def test_tiny_sections_hold_no_more_than_their_bytes() -> None:
    size = 1 << 16
    decoder = FrameDecoder(limit=size)
    stream = [encode(Section(size - number, b"x")) for number in range(1, size)]
    tracemalloc.start()
    try:
        for section in stream:
            assert not decoder.feed(section)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * size


@pytest.mark.parametrize(
    "fields",
    [
        [23, 1, "topic", 1000],
        [23, 1, "topic", 1000, b"x", 1],
        [23, 0, "topic", 1000, b"x"],
        [23, True, "topic", 1000, b"x"],
        [23, 1, "", 1000, b"x"],
        [23, 1, "x" * (MAX_TOPIC + 1), 1000, b"x"],
        [23, 1, b"topic", 1000, b"x"],
        [23, 1, "topic", 0, b"x"],
        [23, 1, "topic", 3_600_001, b"x"],
        [23, 1, "topic", 1.5, b"x"],
        [23, 1, "topic", 1000, "x"],
        [23, 1, "topic", 1000, bytes(MAX_WHISPER + 1)],
        [23, 1, "topic", 1000, [b"x"] * 3000],
    ],
    ids=range(13),
)
def test_whisper_frame_beyond_its_limits_is_refused(fields: list[object]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(msgpack.packb([9, 1, *fields]))
    longest = WhisperFrame(1, "\U0001f44b" * MAX_TOPIC, 3_600_000, bytes(MAX_WHISPER))
    assert decode(encode(Grouped(1, longest))[4:]) == Grouped(1, longest)
    with pytest.raises(RemoteProtocolError, match="unknown frame kind 23"):
        decode(msgpack.packb([23, 1, "topic", 1000, b"x"]))


FIELDS_OF_VIEWS = msgpack.unpackb(msgpack.packb(views_fields(FRAME)), strict_map_key=False)


@pytest.mark.parametrize(
    "place", [each for each in places(FIELDS_OF_VIEWS) if each not in ((), (0,))]
)
def test_junk_in_any_field_of_views_is_a_protocol_error(
    place: tuple[object, ...],
) -> None:
    before = at(FIELDS_OF_VIEWS, place)
    for junk in JUNK:
        if type(junk) is type(before) is bool:
            continue
        with pytest.raises(RemoteProtocolError):
            read_views(put(FIELDS_OF_VIEWS, place, junk))
    if isinstance(before, list):
        for fields in ([*before, []], [*before[:-1], b"\xff"]):
            with pytest.raises(RemoteProtocolError):
                read_views(put(FIELDS_OF_VIEWS, place, fields))
