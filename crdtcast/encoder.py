"""What one node sends, as bytes: each frame once for all links that understand the same. Sans-I/O."""

from typing import NamedTuple

from crdtcast import compression
from crdtcast.numbering import Numbering
from crdtcast.wire import MAX_FRAME, Frame, encode_body, framed


class Form(NamedTuple):
    """What the two ends of a link have agreed on. numbered: ids are numbers; zstd: long frames are
    compressed.
    """

    numbered: bool = False
    zstd: bool = False


class Encoded(NamedTuple):
    """A frame's bytes, and the length that its body has when it is not compressed."""

    frame: bytes
    length: int


class Encoder:
    """Of one node. numbering: for the ids on all its links."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self.numbering = Numbering()
        self.compressor = compression.Compressor() if compression.available() else None

    def encoding(self, frame: Frame) -> "Encoding":
        """`frame` in whatever forms are asked for; only until the next frame is begun."""
        self.numbering.begin_frame()
        return Encoding(self, frame)


class Encoding:
    """One frame. Each form of it is made once."""

    def __init__(self, encoder: Encoder, frame: Frame) -> None:
        self._encoder = encoder
        self._frame = frame
        self._bodies: dict[bool, bytes] = {}
        self._made: dict[Form, Encoded] = {}

    def in_form(self, form: Form) -> Encoded:
        """The bytes for a link. LocalProtocolError if the frame is longer than may be sent."""
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = self._make(form)
        return made

    def _make(self, form: Form) -> Encoded:
        body = self._bodies.get(form.numbered)
        if body is None:
            encoder = self._encoder
            numbers = encoder.numbering if form.numbered else None
            body = encode_body(self._frame, encoder.max_frame, numbers)
            self._bodies[form.numbered] = body
        length = len(body)
        compressor = self._encoder.compressor
        if form.zstd and compressor is not None and length >= compression.WORTHWHILE:
            body = compressor.compressed(body)
        return Encoded(framed(body), length)
