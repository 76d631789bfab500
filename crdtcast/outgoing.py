"""What waits to be written to one peer: bounded in bytes, and never a reason for anyone else to
wait.

A peer that does not keep up loses frames here, not time at its neighbours: what it lacks is in its
next digest, and the engine repairs it.
"""

from collections import deque

import trio


class OutgoingQueue:
    """Encoded frames for one peer. `offer` is synchronous and never blocks; one task takes.

    Once `limit` bytes wait, everything is dropped and counted until half of it has been written:
    frames behind a gap would mostly wait at the peer for the repair of that gap. A lone frame
    longer than `limit` is still taken.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.queued_bytes = 0
        self.dropped = 0
        self.overflowing = False
        self._frames: deque[bytes] = deque()
        self._idle = False
        self._taker = trio.lowlevel.ParkingLot()
        self._emptied = trio.lowlevel.ParkingLot()

    def offer(self, frame: bytes) -> bool:
        """Queue `frame`; False if it was dropped."""
        if self.queued_bytes and (self.overflowing or self.queued_bytes + len(frame) > self.limit):
            self.overflowing = True
            self.dropped += 1
            return False
        self._frames.append(frame)
        self.queued_bytes += len(frame)
        if self._idle:
            self._idle = False
            self._taker.unpark()
        return True

    def written(self) -> None:
        """(By the taker.) What was taken last is on its way."""
        if not self._frames:
            self._emptied.unpark_all()

    async def drained(self) -> None:
        """Return when everything that waits has been taken and written."""
        await self._emptied.park()

    async def take(self, batch_bytes: int = 256 * 1024) -> bytes:
        """Several frames as one piece: what waits, up to about `batch_bytes`. Waits for the
        first.
        """
        while not self._frames:
            self._idle = True
            await self._taker.park()
        frames = self._frames
        if self.queued_bytes <= batch_bytes:
            batch = b"".join(frames)
            frames.clear()
        else:
            taken = [frames.popleft()]
            size = len(taken[0])
            while frames and size + len(frames[0]) <= batch_bytes:
                size += len(frames[0])
                taken.append(frames.popleft())
            batch = b"".join(taken)
        self.queued_bytes -= len(batch)
        if self.queued_bytes <= self.limit // 2:
            self.overflowing = False
        return batch
