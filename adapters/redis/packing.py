"""Large commands as bytes, a slice at a time, so that no other client waits for the whole."""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.faults import crash_point
from crdtcast.adapters.redis.server import pack

SLICE_WORDS = 32_768
"""Words that are packed in one turn of the loop: about ten milliseconds."""


class SlicedCommand:
    """`name key word…`. Call `step` until it returns True; `packed` is the command then."""

    def __init__(self, name: bytes, key: bytes, words: Sequence[bytes]) -> None:
        self.packed = b""
        self._words = words
        self._at = 0
        self._pieces = [b"*%d\r\n" % (2 + len(words)), _without_header((name, key))]

    def step(self) -> bool:
        """Pack one more slice. Returns whether it was the last one."""
        self._pieces.append(_without_header(self._words[self._at : self._at + SLICE_WORDS]))
        self._at += SLICE_WORDS
        if self._at < len(self._words):
            crash_point("slice-packed")
            return False
        self.packed = b"".join(self._pieces)
        return True


def _without_header(words: Sequence[bytes]) -> bytes:
    packed = pack(words)
    return packed[packed.index(b"\n") + 1 :]
