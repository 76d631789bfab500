"""What waits to be written to one peer: bounded in bytes, and never a reason for anyone else to
wait.

A peer that does not keep up loses frames here, not time at its neighbours: what it lacks is in its
next digest, and the engine repairs it.
"""

from collections import deque
from collections.abc import Callable

import trio


def _nothing() -> None:
    pass


class OutgoingQueue:
    """Encoded frames for one peer, in pieces. `offer` is synchronous and never blocks; one task takes.

    Once `limit` bytes wait, everything is dropped until half of it has been written: frames behind
    a gap would mostly wait at the peer for the repair of that gap. A lone piece longer than `limit`
    is still taken.

    fill: called before anything is taken; it may offer.
    """

    def __init__(self, limit: int, fill: Callable[[], None] = _nothing) -> None:
        self.limit = limit
        self._fill = fill
        self.queued_bytes = 0
        self.overflowing = False
        self._pieces: deque[bytes] = deque()
        self._idle = False
        self._taker = trio.lowlevel.ParkingLot()
        self._emptied = trio.lowlevel.ParkingLot()

    def offer(self, piece: bytes) -> bool:
        """Queue `piece`; False if it was dropped."""
        queued = self.queued_bytes + len(piece)
        if self.queued_bytes and (self.overflowing or queued > self.limit):
            self.overflowing = True
            return False
        self._pieces.append(piece)
        self.queued_bytes = queued
        self.expect()
        return True

    def expect(self) -> None:
        """Something is there, or will be when it is asked for."""
        if self._idle:
            self._idle = False
            self._taker.unpark()

    def written(self) -> None:
        """(By the taker.) What was taken last is on its way."""
        if not self._pieces:
            self._emptied.unpark_all()

    async def drained(self) -> None:
        """Return when everything that waits has been taken and written."""
        await self._emptied.park()

    async def take(self, batch_bytes: int = 256 * 1024) -> bytes:
        """Several pieces as one: what waits, up to about `batch_bytes`. Waits for the first."""
        self._fill()
        while not self._pieces:
            self._idle = True
            await self._taker.park()
            self._fill()
        pieces = self._pieces
        if self.queued_bytes <= batch_bytes:
            batch = b"".join(pieces)
            pieces.clear()
        else:
            taken = [pieces.popleft()]
            size = len(taken[0])
            while pieces and size + len(pieces[0]) <= batch_bytes:
                size += len(pieces[0])
                taken.append(pieces.popleft())
            batch = b"".join(taken)
        self.queued_bytes -= len(batch)
        if self.queued_bytes <= self.limit // 2:
            self.overflowing = False
        return batch
