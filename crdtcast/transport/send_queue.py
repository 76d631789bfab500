"""Frames that wait to be written to one peer: limited in bytes, and never a reason to wait for anything else.

A peer that does not keep up loses frames, and delays no other peer: its next digest shows what it lacks, and the engine
repairs it.
"""

from collections import deque
from collections.abc import Callable

import trio

from crdtcast.wire.sections import SECTION_BYTES, LongFrame


def _nothing() -> None:
    pass


class OutgoingQueue:
    """Encoded frames for one peer, in pieces; a long frame is one piece, and is taken section by section. `offer` is
    synchronous and never blocks; one task takes.

    Once `limit` bytes wait, everything is dropped until half of it was written: frames after a gap would mostly wait at
    the peer for the repair of that gap. A single piece longer than `limit` is still accepted.

    fill: called before anything is taken; it may offer.
    """

    def __init__(self, limit: int, fill: Callable[[], None] = _nothing) -> None:
        self.limit = limit
        self._fill = fill
        self.queued_bytes: int = 0
        self.overflowing: bool = False
        self._pieces: deque[bytes | LongFrame] = deque()
        self._taken = 0
        """Number of sections of the first piece that were taken."""
        self._idle = False
        self._taker = trio.lowlevel.ParkingLot()
        self._emptied = trio.lowlevel.ParkingLot()

    def offer(self, piece: bytes | LongFrame) -> bool:
        """Queue `piece`. Returns False if it was dropped."""
        queued = self.queued_bytes + len(piece)
        if self.queued_bytes and (self.overflowing or queued > self.limit):
            self.overflowing = True
            return False
        self._pieces.append(piece)
        self.queued_bytes = queued
        self.expect()
        return True

    def expect(self) -> None:
        """Wake the taker: a piece is queued, or `fill` will offer one."""
        if self._idle:
            self._idle = False
            self._taker.unpark()

    def written(self) -> None:
        """The pieces taken last were written."""
        if not self._pieces:
            self._emptied.unpark_all()

    async def drained(self) -> None:
        """Return when everything queued was taken and written."""
        await self._emptied.park()

    async def take(self, batch_bytes: int = 256 * 1024) -> bytes:
        """Return queued pieces as one, up to about `batch_bytes`. Waits for the first."""
        self._fill()
        while not self._pieces:
            self._idle = True
            await self._taker.park()
            self._fill()
        batch, size = (
            self._take_section()
            if type(self._pieces[0]) is LongFrame
            else self._take_pieces(batch_bytes)
        )
        self.queued_bytes -= size
        if self.queued_bytes <= self.limit // 2:
            self.overflowing = False
        return batch

    def _take_pieces(self, most: int) -> tuple[bytes, int]:
        """As many of the first pieces as fit, at least one, up to the next long frame."""
        pieces = self._pieces
        taken: list[bytes] = []
        size = 0
        while (
            pieces
            and type(piece := pieces[0]) is bytes
            and (not taken or size + len(piece) <= most)
        ):
            size += len(piece)
            taken.append(piece)
            pieces.popleft()
        return b"".join(taken), size

    def _take_section(self) -> tuple[bytes, int]:
        """The next section of the long frame at the front, and how many bytes of its body are done with it."""
        frame = self._pieces[0]
        assert type(frame) is LongFrame
        section = frame.section(self._taken)
        before = self._taken * SECTION_BYTES
        self._taken += 1
        if self._taken < frame.sections:
            return section, SECTION_BYTES
        self._pieces.popleft()
        self._taken = 0
        return section, len(frame) - before
