"""What a frame may cost its receiver: its kind is looked at first, and elements are bounded, not only bytes."""

import contextlib
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.compare.comparison import _opened as opened
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.transfer.state_messages import Ending, Slice, States
from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import OperationKind
from crdtcast.engine.operations import decode as decode_operation
from crdtcast.engine.views import Asked, Ballot, Promise, Record, Views
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import TooManyError, unpacked
from crdtcast.wire import compression
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.encoder import Encoder
from crdtcast.wire.fields import FrameKind, Named
from crdtcast.wire.frame_shapes import SHORT
from crdtcast.wire.frames import MAX_FRAME, decode, framed
from crdtcast.wire.group_frames import Admit, Grouped, InGroup, Known
from crdtcast.wire.sections import SECTION_BYTES
from crdtcast.wire.state import unpack_entry
from tests.effort import examples, size

MEGABYTE = 2**20
ID = "a.00000000000010000"


def lists(number: int) -> bytes:
    """A list of so many empty lists."""
    return b"\xdd" + number.to_bytes(4, "big") + b"\x90" * number


def taken_by(work: Any, *arguments: object) -> int:
    """Bytes of memory at most, while a protocol error is raised."""
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        work(*arguments)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize(
    "decoded", [effects.decode, States.decode, Slice.decode, Ending.decode, opened]
)
def test_gateway_payload_of_empty_lists_costs_little_memory(decoded: Any) -> None:
    many = lists(size(ci=MEGABYTE, release=4 * MEGABYTE))
    for raw in (many, b"\x93\x01\x07" + many):
        assert taken_by(decoded, raw) < 10 * len(
            raw
        )  # a list reserves eight bytes for each element


def fed(body: bytes, limit: int = MAX_FRAME) -> None:
    decoder = FrameDecoder(limit)
    decoder.zstd = decoder.numbered = True
    decoder.feed(framed(body))


@pytest.mark.parametrize("kind", [*FrameKind, 77, 127])
def test_frame_of_empty_lists_of_any_kind_costs_little_memory(kind: int) -> None:
    inside = [bytes([k]) for k in FrameKind] if kind == FrameKind.GROUPED else [b""]
    for inner in inside:
        body = b"\xdc\x00\x20" + bytes([kind]) + (b"\x01" + inner if inner else b"")
        body += b"".join(lists(131_000) for _ in range(2))
        # Records of views are many small lists, as an admission is.
        most = 12 if inner == bytes([FrameKind.VIEWS]) else 3
        assert taken_by(fed, body) < most * len(body) + MEGABYTE


def test_sixteen_mib_of_empty_lists_are_refused_at_the_first() -> None:
    body = b"\x9f\x04" + lists(131_072) * 127
    assert taken_by(fed, body) < 2.5 * len(body)


@pytest.mark.parametrize("fill", [b"\x90", b"\x80", b"\x91\x90", b"\x81\xa0\x90", b"\xc0", b"\x00"])
def test_some_bytes_of_zstd_become_no_more_than_a_section(fill: bytes) -> None:
    zstandard = pytest.importorskip("zstandard")
    for length in (MEGABYTE, SECTION_BYTES):
        number = length // len(fill)
        raw = b"\x92\x04\xdd" + number.to_bytes(4, "big") + fill * number
        bomb = zstandard.ZstdCompressor(level=3).compress(raw)
        assert len(bomb) < 200
        assert taken_by(fed, bomb) < 4 * MEGABYTE


def test_compressed_frame_that_claims_too_much_is_refused() -> None:
    zstandard = pytest.importorskip("zstandard")
    body = zstandard.ZstdCompressor().compress(bytes(compression.MOST + 1))
    with pytest.raises(RemoteProtocolError, match="where 262,400 are allowed"):
        fed(body)


@pytest.mark.parametrize("size", [SECTION_BYTES - 100, SECTION_BYTES, 3 * SECTION_BYTES, MEGABYTE])
def test_encoded_frames_are_within_the_bounds(size: int) -> None:
    zstd = compression.available()
    message = Message(Dot(ID, 1), (), bytes(size))
    encoder = Encoder()
    decoder = FrameDecoder()
    decoder.zstd = zstd
    got = []
    for piece in encoder.pieces([message], zstd):
        for named in encoder.numbering.names(0):
            decoder.feed(framed(msgpack.packb([18, named.oldest, named.first, *named.ids])))
        parts = (
            [piece.stream]
            if isinstance(piece.stream, bytes)
            else [piece.stream.section(n) for n in range(piece.stream.sections)]
        )
        for part in parts:
            got += decoder.feed(part)
    assert got == [message]


MANY = tuple(f"{ID}+{ID}+{n}" for n in range(1, 200))
PROMISES = [
    Record(who, 9, 3, "89ab", 7, Ballot(2, ID), Promise(Ballot(2, ID), {ID: 9}, MANY))
    for who in MANY
]
LARGE: list[InGroup | Known] = [
    Message(Dot(ID, 1), tuple(Dot(f"{ID}+{ID}+{n}", n) for n in range(1, 5000)), b"x" * 9000, 3),
    Digest(
        DigestKind.REPLY,
        {f"{ID}+{ID}+{n}": n for n in range(1, 5000)},
        5,
    ),
    Views(3, "89ab", dict.fromkeys(MANY, 9), tuple(PROMISES), (), (Asked(ID, 1, frozenset(MANY)),)),
    Admit(1, ID, tuple(f"{ID}+{ID}+{n}" for n in range(1, 1000)), False),
    Known({f"n{n}": "host.of.a.node:12345" for n in range(4096)}),
]


@pytest.mark.parametrize("frame", LARGE, ids=lambda frame: type(frame).__name__)
def test_large_frames_of_honest_members_fit(frame: InGroup | Known) -> None:
    """All kinds that may be long, as they are made."""
    whole = frame if isinstance(frame, Known) else Grouped(2**40, frame)
    encoder = Encoder()
    for zstd in (False, True):
        decoder = FrameDecoder()
        decoder.zstd = zstd
        (piece,) = encoder.pieces([whole], zstd)
        for named in encoder.numbering.names(0):
            decoder.feed(framed(msgpack.packb([18, named.oldest, named.first, *named.ids])))
        stream = piece.stream
        parts = (
            [stream]
            if isinstance(stream, bytes)
            else [stream.section(n) for n in range(stream.sections)]
        )
        assert [frame for part in parts for frame in decoder.feed(part)] == [whole]
        assert piece.longest > SHORT


shapes = st.recursive(
    st.none() | st.integers(-5, 2**64 - 1) | st.binary(max_size=9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=60,
)


@settings(max_examples=examples(60))
@given(st.sampled_from(list(FrameKind)), st.lists(shapes, max_size=8), st.integers(0, 2))
def test_any_fields_of_a_long_frame_give_a_frame_or_an_error(
    kind: int, fields: list[Any], where: int
) -> None:
    fields.insert(where, b"\x00" * (SHORT + 1))
    with contextlib.suppress(RemoteProtocolError):
        decode(msgpack.packb([kind, *fields]))


@pytest.mark.parametrize("kind", [k for k in OperationKind if k])
def test_a_membership_operation_of_empty_lists_costs_little(kind: OperationKind) -> None:
    payload = b"\x9f" + lists(200_000) * 15
    assert taken_by(decode_operation, kind, payload) < 16 * MEGABYTE


def test_an_admission_of_empty_lists_costs_little() -> None:
    packed = b"\x94" + lists(100_000) * 4
    assert taken_by(unpack_entry, packed) < 12 * len(packed)


@settings(max_examples=examples(60))
@given(shapes)
def test_ordinary_values_are_unpacked_unchanged(value: Any) -> None:
    assert unpacked(msgpack.packb(value)) == value


def test_element_count_includes_lists_and_maps() -> None:
    with pytest.raises(TooManyError):
        unpacked(lists(1000))
    assert unpacked(msgpack.packb([[b"x" * 20]] * 1000)) == [[b"x" * 20]] * 1000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 5)), max_size=20))
def test_numbers_for_ids_only_rise_and_are_forgotten_in_order(
    told: list[tuple[int, int, int]],
) -> None:
    decoder = FrameDecoder()
    decoder.numbered = True
    known: dict[int, str] = {}
    following = 0
    for oldest, first, many in told:
        oldest = min(oldest, first)
        named = Named(oldest, first, (ID,) * many)
        frame = framed(msgpack.packb([18, oldest, first, *named.ids]))
        if first < following:
            with pytest.raises(RemoteProtocolError, match="number"):
                decoder.feed(frame)
            return
        decoder.feed(frame)
        following = first + many
        known = {n: ID for n in known if n >= oldest} | {first + n: ID for n in range(many)}
        assert decoder._names == known
