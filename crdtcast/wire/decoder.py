"""Cuts a stream of bytes into frames. Sans-I/O; the counterpart of `wire/encoder.py`."""

import struct
import sys

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire import compression
from crdtcast.wire.fields import Named, Section
from crdtcast.wire.frames import MAX_FRAME, PREFIX, Frame, decode
from crdtcast.wire.id_table import KnownNames
from crdtcast.wire.sections import Gathering

_length = struct.Struct(">I").unpack_from
_OURS = frozenset({Named, Section})
"""Frames that the decoder does not pass on."""
_HTTP = frozenset({b"HTTP", b"GET ", b"HEAD", b"POST"})
"""How a server of the Web answers, and its clients begin."""


class FrameDecoder:
    """Cuts a stream of bytes into frames, in whatever pieces they arrive.

    `limit` (bytes of a body) may be raised while decoding: it starts small, for a peer that is not identified yet.
    `zstd`: whether the peer may compress. The decoder also processes the peer's numbers for ids. After a
    `RemoteProtocolError` the position in the stream is lost, and every further call raises again. It keeps the received
    bytes of one frame, never what a length claims.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self.zstd = False
        self._names = KnownNames()
        self._gathering = Gathering()
        self._chunk = b""
        self._at = 0
        self._partial = bytearray()
        self._needed = 0
        self._failed: str | None = None

    def feed(self, received: bytes | bytearray) -> list[Frame]:
        """Return all frames that `received` completes. Frames before a wrong one in the same piece are lost with it."""
        self.push(received)
        return self.drain()

    def drain(self, most: int = sys.maxsize) -> list[Frame]:
        """Return all complete frames that were pushed and not yet taken, or the first `most` of them."""
        frames: list[Frame] = []
        gathering = self._gathering
        while len(frames) < most and (frame := self._next()) is not None:
            if type(frame) in _OURS or gathering.is_under_way:
                if (whole := self._take_in(frame)) is None:
                    continue
                frame = whole
            frames.append(frame)
        return frames

    def push(self, received: bytes | bytearray) -> None:
        """Add bytes without decoding them."""
        if self._at < len(self._chunk):
            self._partial += self._chunk[self._at :]
            self._needed = 0
        self._chunk, self._at = b"", 0
        if not self._partial:
            self._chunk = bytes(received)
            return
        self._partial += received
        if len(self._partial) >= self._needed:
            # Only now: joining at every piece would copy a long frame as often as it has pieces.
            self._chunk = bytes(self._partial)
            self._partial.clear()

    def next_frame(self) -> Frame | None:
        """The next complete frame, or None until more is pushed."""
        frames = self.drain(1)
        return frames[0] if frames else None

    def _take_in(self, frame: Frame) -> Frame | None:
        """Process meanings of numbers, and sections, inside the decoder; the last section completes a frame."""
        if type(frame) is Section:
            return self._gather(frame)
        if type(frame) is not Named or self._gathering.is_under_way:
            raise self._fail(f"a {type(frame).__name__} in the middle of a long frame")
        self._learn(frame)
        return None

    def _gather(self, section: Section) -> Frame | None:
        """The frame that this section completes, or None."""
        try:
            body = self._gathering.add(section, self.limit)
            frame = None if body is None else decode(body, self._names)
        except RemoteProtocolError as error:
            raise self._fail(str(error)) from error
        if type(frame) in _OURS:
            raise self._fail(f"a {type(frame).__name__} as a long frame")
        return frame

    def _learn(self, named: Named) -> None:
        try:
            self._names.learn(named)
        except RemoteProtocolError as error:
            raise self._fail(str(error)) from error

    def _next(self) -> Frame | None:
        if self._failed is not None:
            raise RemoteProtocolError(self._failed)
        chunk = self._chunk
        start = self._at + PREFIX
        if start > len(chunk):
            self._keep(PREFIX)
            return None
        (length,) = _length(chunk, self._at)
        if not 0 < length <= self.limit:
            if chunk[self._at : start] in _HTTP:
                raise self._fail("HTTP instead of frames: not a crdtcast peer")
            raise self._fail(
                f"a frame that claims {length:,} bytes, where 1 to {self.limit:,} are allowed: "
                "not a crdtcast peer, or one with another max_frame"
            )
        end = start + length
        if end > len(chunk):
            self._keep(PREFIX + length)
            return None
        self._at = end
        body = chunk[start:end]
        try:
            if self.zstd and body[:4] == compression.MAGIC:
                body = compression.decompressed(body, min(self.limit, compression.MOST))
            return decode(body, self._names)
        except RemoteProtocolError as error:
            self._failed = str(error)
            raise

    def _keep(self, needed: int) -> None:
        """Put the beginning of an incomplete frame aside until `needed` bytes have come."""
        if self._at < len(self._chunk):
            self._partial += self._chunk[self._at :]
            self._chunk, self._at = b"", 0
            self._needed = needed

    def _fail(self, text: str) -> RemoteProtocolError:
        self._failed = text
        return RemoteProtocolError(text)
