"""Delivered messages until they are stable: SMap and its counter in Younes 2023, Algorithm 7."""

from collections import deque
from collections.abc import Iterable

from crdtcast.causality.tags import Dot, Tag


class StableMap:
    """Tags of delivered, unstable messages by dot, each with its place in the order of delivery.

    `ready` has the tags that were released but not yet reported.
    """

    __slots__ = ("_counter", "_members", "_waiting", "ready")

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._waiting: dict[tuple[str, int], tuple[int, Tag]] = {}
        self._counter = 0
        self.ready: deque[Tag] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def remember(self, tag: Tag) -> None:
        """Add a message that was just delivered or sent."""
        self._counter += 1
        self._waiting[tag.dot] = (self._counter, tag)

    def get(self, origin: str, counter: int) -> Tag | None:
        """The tag of a message that is not stable yet, or None."""
        entry = self._waiting.get(Dot(origin, counter))
        return None if entry is None else entry[1]

    def release(self, rose: Iterable[tuple[int, int, int]]) -> None:
        """Release all messages after `old` up to `new` of each (position, old, new), since they are stable.

        They are released in the order of their delivery, which respects causality.
        """
        found = [
            self._waiting.pop((self._members[position], counter))
            for position, old, new in rose
            for counter in range(old + 1, new + 1)
        ]
        found.sort(key=_place)
        self.ready.extend([tag for _, tag in found])

    def take(self, limit: int) -> list[Tag]:
        """Up to `limit` released tags, in order, each once."""
        ready = self.ready
        return [ready.popleft() for _ in range(min(limit, len(ready)))]


def _place(entry: tuple[int, Tag]) -> int:
    return entry[0]
