"""Bodies too long for one frame: they go in consecutive sections, which the peer joins. Sans-I/O.

All work on bytes (compress, decompress, copy, write) is done for one section at a time; in between other tasks have
their turn. The order of frames on a link stays the same, because digests depend on it.
"""

from collections.abc import Callable

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import Section

SECTION_BYTES = 256 * 1024
"""Bytes of each section except the last; a longer body is cut into sections."""


class LongFrame:
    """A body in sections, each made when the first link needs it, and once for all links.

    encode: bytes of a section, with its length in front.
    """

    def __init__(self, body: bytes, encode: Callable[[Section], bytes]) -> None:
        self._body = memoryview(body)
        self._encode = encode
        self._made: list[bytes] = []

    def __len__(self) -> int:
        """Bytes of the body."""
        return len(self._body)

    def section(self, number: int) -> bytes:
        """The bytes of section `number`: from 0, at most the number of sections made so far."""
        if number == len(self._made):
            begin = number * SECTION_BYTES
            piece = self._body[begin : begin + SECTION_BYTES]
            left = len(self._body) - begin - len(piece)
            self._made.append(self._encode(Section(left, bytes(piece))))
        return self._made[number]

    @property
    def sections(self) -> int:
        """The number of sections."""
        return -(-len(self._body) // SECTION_BYTES)


class Gathering:
    """Joins sections of one peer's long frames. It holds only received bytes, never what a section claims."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._left = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self._body)

    def add(self, section: Section, limit: int) -> bytes | None:
        """The body, once it is complete. limit: bytes of a body. Raises RemoteProtocolError if the section does not
        fit.
        """
        left, body = section.left, self._body
        if body and left + len(section.piece) != self._left:
            raise RemoteProtocolError("a section of a long frame that does not follow the last one")
        body += section.piece
        if len(body) + left > limit:
            raise RemoteProtocolError(
                f"a long frame that claims {len(body) + left:,} bytes, where {limit:,} are allowed: a peer with "
                "another max_frame"
            )
        self._left = left
        if left:
            return None
        self._body = bytearray()
        return bytes(body)
