"""Lamport stamps that every replica computes: the stamp of a message is one above the greatest in its past.

Stamps are not sent, so no member can send a wrong one. Lamport, "Time, Clocks, and the Ordering of Events in a
Distributed System" (1978).
"""

from bisect import bisect_right
from typing import Any

from crdtcast.causality.tags import Dot, Tag


class Stamps:
    """The stamps of an object's counted messages; `settled` is the greatest of the stable ones.

    Stamps extend causality, and all replicas order the same unstable messages alike. Their numbers may differ between
    replicas, all by the same amount: once everything is stable, counting starts again, since all later arrivals have
    the same past. The object that follows a deleted one starts again, too.
    """

    __slots__ = ("_origins", "settled")

    def __init__(self) -> None:
        self.settled: int = 0
        # Origin -> counters and stamps of its unstable messages, both rising.
        self._origins: dict[str, tuple[list[int], list[int]]] = {}

    def __bool__(self) -> bool:
        """Whether a counted message is unstable."""
        return bool(self._origins)

    def of(self, tag: Tag) -> int:
        """The stamp of a message, before or after it is counted."""
        greatest = self.settled
        for origin, (counters, stamps) in self._origins.items():
            if origin == tag.dot.origin and counters[-1] == tag.dot.counter:
                return stamps[-1]
            seen = tag.past.get(origin, 0)
            known = len(counters) if counters[-1] <= seen else bisect_right(counters, seen)
            if known:
                greatest = max(greatest, stamps[known - 1])
        return greatest + 1

    def count(self, tag: Tag) -> None:
        """Count a message, if that was not done."""
        stamp = self.of(tag)
        counters, stamps = self._origins.setdefault(tag.dot.origin, ([], []))
        if not counters or counters[-1] != tag.dot.counter:
            counters.append(tag.dot.counter)
            stamps.append(stamp)

    def stable(self, dot: Dot) -> None:
        """The message is stable."""
        counters, stamps = self._origins.get(dot.origin, ((), ()))
        at = bisect_right(counters, dot.counter) - 1
        if at < 0 or counters[at] != dot.counter:
            return
        self.settled = max(self.settled, stamps[at])
        del counters[at], stamps[at]
        if not counters:
            del self._origins[dot.origin]
        if not self._origins:
            self.settled = 0

    def dump(self) -> Any:
        """[settled, {origin: [[counter, stamp], ...]}]."""
        unstable = {
            origin: [list(pair) for pair in zip(*self._origins[origin], strict=True)]
            for origin in sorted(self._origins)
        }
        return [self.settled, unstable]

    def load(self, dumped: Any) -> None:
        """Load the result of `dump`. Raises ValueError or TypeError for anything else."""
        settled, unstable = dumped
        numbers = [settled]
        self.settled = settled
        for origin, pairs in unstable.items():
            counters = [counter for counter, _ in pairs]
            stamps = [stamp for _, stamp in pairs]
            numbers += counters + stamps
            if type(origin) is not str or counters != sorted(set(counters)) or not counters:
                raise ValueError("messages out of order")
            if stamps != sorted(set(stamps)):
                raise ValueError("stamps out of order")
            self._origins[origin] = counters, stamps
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("stamps and counters must be integers from 0")
