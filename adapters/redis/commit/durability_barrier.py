"""What an engine wants sent waits here until the commit that it rests on cannot be lost any more.

Commits are numbered. An effect that was produced while commit *n* was the last one prepared, and that rests on nothing
later, may leave when *n* is synced. This file knows neither engine nor network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from crdtcast.causality.messages import Transmit


class DurabilityBarrier:
    """Effects by the number of their commit, in order. `transmit` gets what may leave."""

    def __init__(self, transmit: Callable[[list[Transmit]], None]) -> None:
        self._transmit = transmit
        self._waiting: deque[tuple[int, list[Transmit]]] = deque()
        self._synced = 0
        self._risen = trio.Event()

    def begin(self, synced: int) -> None:
        """Start anew, with another engine: the old one's effects rest on what may be lost, and repair replaces them.

        What waits in `wait_synced` is told by a `trio.Cancelled` of its own, or never: cancel it.
        """
        self._waiting.clear()
        self._synced = synced

    def add(self, effects: list[Transmit], number: int) -> None:
        """These rest on commit `number`."""
        if effects:
            self._waiting.append((number, effects))

    def synced(self, number: int) -> None:
        """Nothing can take back the commits up to this one."""
        if number > self._synced:
            self._synced = number
            self._risen.set()
            self._risen = trio.Event()

    def is_synced(self, number: int) -> bool:
        """Whether nothing can take back that commit."""
        return number <= self._synced

    def release(self) -> None:
        """Let go what may leave."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._synced:
            self._transmit(waiting.popleft()[1])

    async def wait_synced(self, number: int) -> None:
        """Return when commit `number` is synced."""
        while not self.is_synced(number):
            await self._risen.wait()
