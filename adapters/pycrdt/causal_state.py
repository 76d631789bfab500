"""How much of each client a document had at some point of causal history.

The operations before one point, all together, always have the first clocks of each client: each needs what comes before
it. So what a deletion has seen, or what an update may refer to, is a number for each client, the same at every replica,
whatever else has arrived there.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from crdtcast.causality.tags import Tag


class CausalState:
    """The clocks of each client in the stable part, and those that unstable messages have added."""

    def __init__(self, stable: Mapping[int, int] | None = None) -> None:
        self.stable: dict[int, int] = dict(stable or {})
        self._ends: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
        """Client -> origin -> counter, index and end of each operation with structs of the client."""
        self._now: dict[int, int] = dict(self.stable)

    def add(self, tag: Tag, index: int, ends: Iterable[tuple[int, int]]) -> None:
        """An operation has arrived that brings a client's clocks up to an end, each."""
        origin, counter = tag.dot
        for client, end in ends:
            steps = self._ends.setdefault(client, {}).setdefault(origin, [])
            # An operation of one origin comes after its earlier ones, so it has seen what they brought.
            steps.append((counter, index, max(end, steps[-1][2] if steps else 0)))
            self._now[client] = max(end, self._now.get(client, 0))

    def settle(self, tag: Tag, index: int, ends: Iterable[tuple[int, int]]) -> None:
        """That operation is stable."""
        origin, counter = tag.dot
        for client, end in ends:
            self.stable[client] = max(end, self.stable.get(client, 0))
            origins = self._ends[client]
            steps = origins[origin]
            steps.pop(bisect_left(steps, (counter, index)))
            if not steps:
                del origins[origin]
                if not origins:
                    del self._ends[client]

    def now(self, client: int) -> int:
        """The client's clocks after everything that has arrived."""
        return self._now.get(client, 0)

    @property
    def clients(self) -> Iterable[int]:
        """All clients with a clock."""
        return self._now.keys()

    def before(self, client: int, tag: Tag, index: int) -> int:
        """The client's clocks before operation `index` of the message tagged `tag`."""
        end = self.stable.get(client, 0)
        for origin, steps in self._ends.get(client, {}).items():
            if origin == tag.dot.origin:
                at = bisect_right(steps, (tag.dot.counter, index - 1, _LAST))
            else:
                at = bisect_right(steps, (tag.past.get(origin, 0), _LAST, _LAST))
            if at:
                end = max(end, steps[at - 1][2])
        return end


_LAST = 1 << 64
