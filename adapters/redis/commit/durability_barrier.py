"""Holds what an engine sends until the commit that it rests on cannot be lost.

Commits are numbered. An effect that was produced while commit *n* was the last one prepared rests on nothing later, so
it may leave when *n* is synced. This file knows neither engine nor network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from crdtcast.causality.messages import Transmit


class DurabilityBarrier:
    """Effects by the number of their commit, in order. `transmit` gets those that may leave."""

    def __init__(self, transmit: Callable[[list[Transmit]], None]) -> None:
        self._transmit = transmit
        self._waiting: deque[tuple[int, list[Transmit]]] = deque()
        self._synced = 0
        self._risen = trio.lowlevel.ParkingLot()

    def begin(self, synced: int) -> None:
        """Start again with another engine: the old one's effects rest on what may be lost, and repair replaces them.

        A task in `wait_synced` does not notice this and may wait forever: cancel it.
        """
        self._waiting.clear()
        self._synced = synced

    def add(self, effects: list[Transmit], number: int) -> None:
        """Hold these effects, which rest on commit `number`."""
        if effects:
            self._waiting.append((number, effects))

    def synced(self, number: int) -> None:
        """The commits up to this one are synced: nothing can undo them."""
        if number > self._synced:
            self._synced = number
            if self._risen:
                self._risen.unpark_all()

    def is_synced(self, number: int) -> bool:
        """Whether that commit is synced."""
        return number <= self._synced

    @property
    def is_releasing(self) -> bool:
        """Whether `release` has something to transmit."""
        return bool(self._waiting) and self._waiting[0][0] <= self._synced

    def release(self) -> None:
        """Transmit what may leave."""
        waiting = self._waiting
        leaving: list[Transmit] = []
        while waiting and waiting[0][0] <= self._synced:
            leaving += waiting.popleft()[1]
        if leaving:
            self._transmit(leaving)

    async def wait_synced(self, number: int) -> None:
        """Return when commit `number` is synced."""
        while not self.is_synced(number):
            await self._risen.park()
