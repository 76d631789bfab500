"""Limits on the shape of a frame by its kind, checked before any of it is built.

A frame is short, or its kind limits its length and the number of lists and maps in it. So any frame costs its receiver
at most a small multiple of its bytes.
"""

from typing import Any, NamedTuple

from crdtcast.engine.whispers import MAX_TOPIC, MAX_WHISPER
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked, unpacked_within
from crdtcast.wire.fields import MAX_IDENTIFIER, FrameKind
from crdtcast.wire.group_frames import MAX_FOUNDERS, MAX_REPLACED
from crdtcast.wire.offer_frames import MAX_QUESTION, PART_BYTES
from crdtcast.wire.sections import SECTION_BYTES

SHORT = 8192
"""Bytes of a body that any kind may have; so few bytes need no check of their elements."""
_MARGIN = 256
"""Bytes for the rest of a frame, besides its one long part."""


class Shape(NamedTuple):
    """Limits of a kind: bytes of its body (None: the limit of any frame), lists and maps (None: as many as its length
    allows).
    """

    bytes: int | None = SHORT
    containers: int | None = 4


_SHAPES: dict[int, Shape] = {
    FrameKind.MESSAGE: Shape(None, 1),
    FrameKind.DIGEST: Shape(None, 3),
    FrameKind.KNOWN: Shape(None, 2),
    FrameKind.FOUNDING: Shape(MAX_FOUNDERS * (MAX_IDENTIFIER + 80) + _MARGIN, MAX_FOUNDERS + 3),
    FrameKind.NAMED: Shape(None, 1),
    FrameKind.SECTION: Shape(SECTION_BYTES + _MARGIN, 1),
    FrameKind.ASK: Shape(MAX_QUESTION + _MARGIN, 1),
    FrameKind.PART: Shape(PART_BYTES + _MARGIN, 1),
}
_INSIDE: dict[int, Shape] = {
    FrameKind.MESSAGE: _SHAPES[FrameKind.MESSAGE],
    FrameKind.DIGEST: _SHAPES[FrameKind.DIGEST],
    FrameKind.ASK: _SHAPES[FrameKind.ASK],
    FrameKind.PART: _SHAPES[FrameKind.PART],
    FrameKind.VIEWS: Shape(None, None),
    FrameKind.ADMIT: Shape(MAX_REPLACED * (MAX_IDENTIFIER + 3) + _MARGIN, 3),
    FrameKind.WHISPER: Shape(4 * MAX_TOPIC + MAX_WHISPER + _MARGIN, 1),
}
"""Of frames inside a grouped frame."""
_OTHER = Shape()


def unpacked_frame(body: bytes, **options: Any) -> Any:
    """Unpack a long body. Raises RemoteProtocolError if it exceeds the limits of its kind, and what msgpack raises."""
    kind, shape = _shape_of(body)
    if shape.bytes is not None and len(body) > shape.bytes:
        raise RemoteProtocolError(
            f"a frame of kind {kind} of {len(body):,} bytes, where {shape.bytes:,} are allowed"
        )
    if shape.containers is None:
        return unpacked(body, **options)
    return unpacked_within(body, shape.containers, **options)


def _shape_of(body: bytes) -> tuple[int, Shape]:
    first = body[0]
    at = 1 if 0x90 <= first <= 0x9F else {0xDC: 3, 0xDD: 5}.get(first, 0)
    if not at:
        raise RemoteProtocolError("a frame's body is not a list that begins with a kind")
    kind, at = _integer(body, at)
    if kind == FrameKind.GROUPED:
        _, at = _integer(body, at)
        kind, _ = _integer(body, at)
        return kind, _INSIDE.get(kind, _OTHER)
    return kind, _SHAPES.get(kind, _OTHER)


def _integer(body: bytes, at: int) -> tuple[int, int]:
    """The unsigned number that begins there, and the place after it."""
    first = body[at]
    if first < 0x80:
        return first, at + 1
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(first, 0)
    if not size:
        raise RemoteProtocolError("a frame whose kind is not a number")
    return int.from_bytes(body[at + 1 : at + 1 + size], "big"), at + 1 + size
