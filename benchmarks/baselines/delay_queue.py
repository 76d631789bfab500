"""The delay queue: messages that arrived before their causes, scanned again after each delivery.

As in CBCAST (Birman, Schiper, Stephenson 1991) and `deliver` of Younes 2023, Algorithms 3 and 7.
"""

from operator import le
from typing import Generic, Protocol, TypeVar

from crdtcast.causality.tags import Dot


class Timestamped(Protocol):
    """A message with the vector that orders it."""

    @property
    def dot(self) -> Dot: ...

    @property
    def vector(self) -> tuple[int, ...]: ...


M = TypeVar("M", bound=Timestamped)


def advance(ordered: list[int], position: int, vector: tuple[int, ...]) -> bool:
    """Whether a message can be delivered: it is the sender's next one, and `ordered` covers the rest of its vector.

    If so, `ordered` covers the message afterwards.
    """
    if vector[position] != ordered[position] + 1:
        return False
    ordered[position] += 1
    if all(map(le, vector, ordered)):
        return True
    ordered[position] -= 1
    return False


class DelayQueue(Generic[M]):
    """Messages in order of arrival, each once. `scans` counts visited entries, `compared` full vector comparisons."""

    __slots__ = ("compared", "dots", "entries", "scans")

    def __init__(self) -> None:
        self.entries: list[tuple[int, M]] = []
        self.dots: set[Dot] = set()
        self.scans: int = 0
        self.compared: int = 0

    def add(self, position: int, message: M) -> None:
        """Keep a message of the member at `position` that cannot be delivered yet."""
        self.entries.append((position, message))
        self.dots.add(message.dot)

    def release(self, ordered: list[int]) -> list[tuple[int, M]]:
        """Take out what can be delivered after `ordered`, which rises: pass after pass, until one finds nothing.

        Entries that stay move to the left within the pass, so that a pass visits each entry once and shifts nothing.
        """
        entries = self.entries
        released: list[tuple[int, M]] = []
        before = -1
        while entries and len(released) > before:
            before = len(released)
            self.scans += len(entries)
            kept = 0
            for entry in entries:
                position, message = entry
                vector = message.vector
                if vector[position] == ordered[position] + 1:
                    self.compared += 1
                    if advance(ordered, position, vector):
                        released.append(entry)
                        continue
                entries[kept] = entry
                kept += 1
            del entries[kept:]
        for _, message in released:
            self.dots.remove(message.dot)
        return released
