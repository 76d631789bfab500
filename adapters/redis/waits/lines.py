"""What waits for messages, by what it waits for, the nearest first: a look costs little however much waits."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Notion(NamedTuple):
    """A message of `origin` that this region has, and so many others; with 0 others only the server must have it."""

    origin: str
    others: int


class WaitingLines(Generic[Item]):
    """Items that wait until so many messages of an origin have come so far. is_over: whether an item waits no more."""

    def __init__(self, is_over: Callable[[Item], bool]) -> None:
        self._is_over = is_over
        self._lines: dict[Notion, list[tuple[int, int, Item]]] = {}
        self._serial = itertools.count()
        self._over = 0

    def __iter__(self) -> Iterator[Item]:
        for line in self._lines.values():
            yield from (item for _, _, item in line if not self._is_over(item))

    def add(self, notion: Notion, counter: int, item: Item) -> None:
        """Let an item wait for that message."""
        line = self._lines.setdefault(notion, [])
        heapq.heappush(line, (counter, next(self._serial), item))

    def note_over(self) -> None:
        """One more item waits no more. It goes when that is true of most."""
        self._over += 1
        if 2 * self._over > sum(map(len, self._lines.values())):
            self._over = 0
            for notion, line in list(self._lines.items()):
                line[:] = [entry for entry in line if not self._is_over(entry[2])]
                heapq.heapify(line)
                if not line:
                    del self._lines[notion]

    def take(self, reached: Callable[[Notion], int]) -> list[Item]:
        """Remove and return the items whose message is reached. reached: the last such message of a notion."""
        taken: list[Item] = []
        for notion, line in list(self._lines.items()):
            counter = reached(notion)
            while line and line[0][0] <= counter:
                item = heapq.heappop(line)[2]
                if not self._is_over(item):
                    taken.append(item)
            if not line:
                del self._lines[notion]
        return taken
