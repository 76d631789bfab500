"""Bodies too long for one frame go in sections, one behind the other, and are whole again at the peer. Sans-I/O.

Whatever has to be done to bytes (compress, decompress, copy, write) is done to one section at a time, and in between
other tasks have their turn. The order of frames on a link stays as it is: digests rest on it.
"""

from collections.abc import Callable

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import Section

SECTION_BYTES = 256 * 1024
"""Of a body, from which on it is cut, and in each section but the last."""


class LongFrame:
    """A body that is being cut; its sections are made when the first link wants them, and once for all links.

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
        """The bytes of a section; number: 0 for the first one, at most one more than were made so far."""
        if number == len(self._made):
            begin = number * SECTION_BYTES
            piece = self._body[begin : begin + SECTION_BYTES]
            left = len(self._body) - begin - len(piece)
            self._made.append(self._encode(Section(left, bytes(piece))))
        return self._made[number]

    @property
    def sections(self) -> int:
        """How many there are."""
        return -(-len(self._body) // SECTION_BYTES)


class Gathering:
    """Sections of one peer's long frames. Memory held is what has come, never what a section claims."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._left = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a frame is not complete yet."""
        return bool(self._body)

    def add(self, section: Section, limit: int) -> bytes | None:
        """The body, once it is complete. limit: bytes of a body. Raises RemoteProtocolError."""
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
