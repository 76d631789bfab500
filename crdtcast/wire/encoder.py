"""The frames of one node as bytes, encoded once for all links with the same options. Sans-I/O."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, NoReturn

from crdtcast.exceptions import LocalProtocolError
from crdtcast.wire import compression
from crdtcast.wire.fields import Section
from crdtcast.wire.frames import MAX_FRAME, Frame, encode, encode_body, framed, length_of
from crdtcast.wire.id_table import Numbering
from crdtcast.wire.sections import SECTION_BYTES, LongFrame

PIECE_BYTES = 32 * 1024
"""Frames are joined up to about so many bytes. A longer frame goes alone: some peers may not accept it, and no other
frame should be dropped with it.
"""


class EncodedPiece(NamedTuple):
    """Consecutive frames as bytes, or one long frame. longest: bytes of the longest body before compression."""

    stream: bytes | LongFrame
    frames: int
    longest: int


def _raise(error: LocalProtocolError) -> NoReturn:
    raise error


class Encoder:
    """The encoder of one node. numbering: for the ids on all its links."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self.numbering: Numbering = Numbering()
        self.compressor: compression.Compressor | None = (
            compression.Compressor() if compression.available() else None
        )

    def pieces(
        self,
        frames: Iterable[Frame],
        zstd: bool,
        refused: Callable[[LocalProtocolError], object] = _raise,
    ) -> Iterator[EncodedPiece]:
        """The bytes of these frames, in order.

        zstd: compress long ones, which the peer must understand.
        refused: gets the error for each frame that is longer than allowed; the others are encoded.

        Send each piece, after the meanings of its numbers, before you ask for the next one.
        """
        numbering, most = self.numbering, self.max_frame
        compressor = self.compressor if zstd else None
        made: list[bytes] = []
        size = longest = 0
        for frame in frames:
            if numbering.is_full:
                if made:
                    yield EncodedPiece(b"".join(made), len(made) // 2, longest)
                    made, size, longest = [], 0, 0
                numbering.begin_anew()
            try:
                body = encode_body(frame, most, numbering)
            except LocalProtocolError as error:
                refused(error)
                continue
            length = len(body)
            if made and size + length > PIECE_BYTES:
                yield EncodedPiece(b"".join(made), len(made) // 2, longest)
                made, size, longest = [], 0, 0
            if length > SECTION_BYTES:
                yield EncodedPiece(LongFrame(body, self._section if zstd else encode), 1, length)
                continue
            if compressor is not None and length >= compression.WORTHWHILE:
                body = compressor.compressed(body)
            made += length_of(body), body
            size += length
            if length > longest:
                longest = length
        if made:
            yield EncodedPiece(b"".join(made), len(made) // 2, longest)

    def _section(self, section: Section) -> bytes:
        """A section as bytes, compressed if that is possible."""
        body = encode_body(section)
        return framed(body if self.compressor is None else self.compressor.compressed(body))
