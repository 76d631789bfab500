"""Numbers for ids and compression: whatever is sent comes back, on every link, whenever it began."""

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import LocalProtocolError, RemoteProtocolError
from crdtcast.transport.options import MIN_FRAME
from crdtcast.wire import compression, id_table
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.encoder import PIECE_BYTES, EncodedPiece, Encoder
from crdtcast.wire.fields import MAX_ORIGINS, Named, Section
from crdtcast.wire.frames import Frame, encode
from crdtcast.wire.group_frames import Grouped
from crdtcast.wire.id_table import KnownNames, Numbering
from crdtcast.wire.sections import SECTION_BYTES, LongFrame

FORMS = [False, True]
"""Whether long frames are compressed."""
ids = st.integers(0, 30).map("n{}.0006400000abc".format)
dots = st.builds(Dot, ids, st.integers(1, 2**63 - 1))
messages = st.builds(
    Message,
    dots,
    st.lists(dots, max_size=8).map(tuple),
    st.binary(max_size=50),
    st.integers(0, 255),
)
digests = st.builds(
    Digest,
    st.sampled_from(DigestKind),
    st.dictionaries(ids, st.integers(0, 2**63 - 1), max_size=8),
    st.integers(0, 99),
)
long = st.integers(3000, 6000).map(lambda n: Message(Dot("n1.00", 1), (), b"long " * n))
longest = st.integers(-9, 1_000_000).map(
    lambda n: Message(Dot("n1.00", 1), (), b"very long " * ((SECTION_BYTES + n) // 10))
)
frames = st.one_of(
    messages, digests, long, longest, st.builds(Grouped, st.integers(0, 9), messages | digests)
)


def stream_of(piece: EncodedPiece) -> bytes:
    """All its bytes."""
    if isinstance(piece.stream, bytes):
        return piece.stream
    return b"".join(map(piece.stream.section, range(piece.stream.sections)))


class Link:
    """What a sender and a receiver keep for one link."""

    def __init__(self, zstd: bool) -> None:
        self.zstd = zstd
        self.told = 0
        self.sent_bytes = 0
        self.decoder = FrameDecoder()
        self.decoder.zstd = zstd

    def receive(self, encoder: Encoder, encoded: bytes) -> list[Frame]:
        names = list(encoder.numbering.names(self.told))
        for named in names:
            self.told = named.first + len(named.ids)
        stream = b"".join(map(encode, names)) + encoded
        self.sent_bytes += len(stream)
        return self.decoder.feed(stream)


def send(encoder: Encoder, links: list[Link], sent: list[Frame]) -> None:
    for link in links:
        received: list[Frame] = []
        for piece in encoder.pieces(sent, link.zstd):
            frames = link.receive(encoder, stream_of(piece))
            assert len(frames) == piece.frames
            received += frames
        assert received == sent


def encoded(frame: Frame, zstd: bool, encoder: Encoder | None = None) -> bytes:
    """A frame alone."""
    (piece,) = (encoder or Encoder()).pieces([frame], zstd)
    return stream_of(piece)


@given(
    st.lists(
        st.one_of(st.lists(frames, min_size=1, max_size=5), st.sampled_from(FORMS)), max_size=8
    ),
    st.sampled_from([2, 4096]),
)
@settings(deadline=None)
def test_every_link_gets_every_frame_from_any_start(
    steps: list[list[Frame] | bool], renewal: int
) -> None:
    """With a renewal after two ids nearly every frame begins anew."""
    encoder = Encoder()
    links = [Link(zstd) for zstd in FORMS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_table, "RENEWAL", renewal)
        for step in steps:
            if isinstance(step, bool):
                links.append(Link(step))
            else:
                send(encoder, links, step)
    assert all(len(link.decoder._names) <= renewal + 20 for link in links)


def test_numbers_are_never_reused_and_old_ones_are_forgotten() -> None:
    numbers, known = Numbering(), KnownNames()
    seen: dict[int, str] = {}
    told = 0
    for life in range(3 * id_table.RENEWAL):
        if numbers.is_full:
            numbers.begin_anew()
        incarnation = f"n.{life:x}"
        assert seen.setdefault(numbers[incarnation], incarnation) == incarnation
        for named in numbers.names(told):
            known.learn(named)
            told = named.first + len(named.ids)
        assert known[numbers[incarnation]] == incarnation
    assert len(numbers) <= id_table.RENEWAL
    assert len(known) <= id_table.RENEWAL


def test_new_link_learns_only_the_numbers_in_use() -> None:
    numbers = Numbering()
    for life in range(id_table.RENEWAL + 10):
        if numbers.is_full:
            numbers.begin_anew()
        numbers[f"n.{life:x}"]
    assert [named.first for named in numbers.names(0)] == [id_table.RENEWAL]


@pytest.mark.parametrize(
    "frame",
    [
        Message(Dot("n1.00", 1), (Dot("n2.00", 2),), b""),
        Digest(DigestKind.NEWS, {"n1.00": 1}),
        Grouped(1, Message(Dot("n1.00", 1), (), b"")),
    ],
)
def test_unassigned_numbers_are_refused(frame: Frame) -> None:
    stream = encoded(frame, False)
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError, match="numbers of unknown incarnations"):
        decoder.feed(stream)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
)
ANY_FIELDS = st.lists(st.one_of(scalars, st.lists(scalars, max_size=6)), max_size=8)


@given(st.lists(st.tuples(st.sampled_from([4, 5, 9, 18]), ANY_FIELDS), max_size=4))
def test_any_fields_after_numbers_give_frames_or_an_error(
    said: list[tuple[int, list[object]]],
) -> None:
    decoder = FrameDecoder()
    decoder.zstd = True
    names = Named(0, 0, tuple(f"n{n}.0006400000abc" for n in range(64)))
    assert decoder.feed(encode(names)) == []
    try:
        for kind, fields in said:
            body = msgpack.packb([kind, *([1, 4] if kind == 9 else []), *fields])
            for frame in decoder.feed(len(body).to_bytes(4, "big") + body):
                assert isinstance(frame, Message | Digest | Grouped)
                encode(frame)
    except RemoteProtocolError:
        return
    assert len(decoder._names) <= 64 + 4 * 8


def test_a_peer_cannot_fill_our_memory_with_names() -> None:
    known = KnownNames()
    most = id_table.RENEWAL + MAX_ORIGINS + 1
    known.learn(Named(0, 0, tuple(f"n.{n:x}" for n in range(most))))
    with pytest.raises(RemoteProtocolError, match="more than 69,633 numbered ids"):
        known.learn(Named(0, most, ("n.ffffff",)))


def test_numbers_save_most_of_a_message() -> None:
    names = [f"member{n}.0006400000abcdef{n:x}" for n in range(32)]
    message = Message(Dot(names[0], 999), tuple(Dot(name, 999) for name in names[1:]), bytes(64))
    assert len(encoded(message, False)) < len(encode(message)) / 4


def test_a_frame_above_the_limit_is_not_sent_in_any_form() -> None:
    message = Message(Dot("a.1", 1), (), bytes(20_000))
    for zstd in FORMS:
        with pytest.raises(LocalProtocolError, match="at most 10,000"):
            encoded(message, zstd, Encoder(10_000))


def test_a_frame_above_the_limit_keeps_no_other_one_back() -> None:
    short, long = (Message(Dot("a.1", 1), (), bytes(n)) for n in (10, 20_000))
    refused: list[LocalProtocolError] = []
    pieces = Encoder(10_000).pieces([short, long, short], False, refused.append)
    assert [piece.frames for piece in pieces] == [2]
    assert len(refused) == 1


def test_long_frame_is_sent_alone() -> None:
    short, long = (Message(Dot("a.1", 1), (), bytes(n)) for n in (10, PIECE_BYTES + 1))
    pieces = list(Encoder().pieces([short, short, long, short], True))
    assert [piece.frames for piece in pieces] == [2, 1, 1]
    assert [piece.longest > PIECE_BYTES for piece in pieces] == [False, True, False]
    assert PIECE_BYTES <= MIN_FRAME, "what may be put together, every peer must take"


def test_without_the_package_nothing_is_compressed_or_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "zstandard", None)
    assert not compression.available()


def test_short_or_incompressible_frames_stay_uncompressed() -> None:
    import random

    noise = random.Random(7).randbytes(20_000)
    for payload, gains in [(bytes(3000), False), (bytes(20_000), True), (noise, False)]:
        message = Message(Dot("a.1", 1), (), payload)
        (plain,), (packed,) = (Encoder().pieces([message], zstd) for zstd in (False, True))
        assert packed.longest == plain.longest == len(plain.stream) - 4
        assert (len(packed.stream) < len(plain.stream) / 2) is gains
        assert gains or packed == plain


def bomb(length: int) -> bytes:
    body = compression.Compressor().compressed(bytes(length))
    return len(body).to_bytes(4, "big") + body


def test_compression_bomb_is_refused_before_memory_is_used() -> None:
    decoder = FrameDecoder(limit=10_000)
    decoder.zstd = True
    with pytest.raises(RemoteProtocolError, match="claims 10,001 bytes, where 10,000 are allowed"):
        decoder.feed(bomb(10_001))


def test_a_compressed_frame_that_was_not_agreed_on_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(bomb(10_000))


@given(st.binary(max_size=300) | st.binary(max_size=300).map(compression.MAGIC.__add__))
def test_any_compressed_bytes_give_a_frame_or_a_protocol_error(body: bytes) -> None:
    decoder = FrameDecoder(limit=10_000)
    decoder.zstd = True
    try:
        decoder.feed(len(body).to_bytes(4, "big") + body)
    except RemoteProtocolError:
        return


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_flipped_compressed_byte_gives_frame_or_protocol_error(at: int, value: int) -> None:
    message = Message(Dot("a.1", 1), (), b"abcdefgh" * 1000)
    body = bytearray(encoded(message, True)[4:])
    body[at % len(body)] = value
    decoder = FrameDecoder()
    decoder.zstd = True
    try:
        decoder.feed(len(body).to_bytes(4, "big") + bytes(body))
    except RemoteProtocolError:
        return


def test_a_frame_that_fits_a_section_goes_whole() -> None:
    fits = Message(Dot("n.0", 1), (), bytes(SECTION_BYTES - 100))
    cut = Message(Dot("n.0", 2), (), bytes(SECTION_BYTES))
    short, long = Encoder().pieces([fits, cut], False)
    assert isinstance(short.stream, bytes)
    assert isinstance(long.stream, LongFrame)
    assert long.stream.sections == 2
    assert long.longest == len(long.stream)


def test_each_section_is_compressed_by_itself() -> None:
    message = Message(Dot("n.0", 1), (), b"again " * SECTION_BYTES)
    (piece,) = Encoder().pieces([message], True)
    assert isinstance(piece.stream, LongFrame)
    for number in range(piece.stream.sections - 1):  # the last one may be too short to gain
        assert piece.stream.section(number)[4:8] == compression.MAGIC


def test_a_section_is_made_once_for_all_links() -> None:
    made: list[Section] = []

    def note(section: Section) -> bytes:
        made.append(section)
        return b""

    frame = LongFrame(bytes(3 * SECTION_BYTES), note)
    for _ in range(2):
        for number in range(frame.sections):
            frame.section(number)
    assert [section.left for section in made] == [2 * SECTION_BYTES, SECTION_BYTES, 0]
