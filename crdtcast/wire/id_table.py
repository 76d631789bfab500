"""Numbers that replace incarnation ids, which would be most of a message's bytes. Pure.

Each node numbers the ids that it sends, the same on all its links, so that a broadcast is still encoded once for all
peers. On each link it announces the meaning of a number before it first uses it.
"""

from collections import deque
from collections.abc import Iterator

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import MAX_ORIGINS, Named

RENEWAL = 4096
"""Number of ids after which a node starts a new numbering, so that old ids are forgotten."""
IDS_PER_FRAME = 256
_MOST = RENEWAL + MAX_ORIGINS + 1
"""Most numbers of a peer in use: the last frame before a renewal may use as many as fit into it."""


class Numbering(dict[str, int]):
    """Id -> number, of one node. Looking an id up gives it a number; a number is never given to another id.

    oldest: lower numbers are no longer used.
    following: the next number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.oldest: int = 0
        self.following: int = 0
        self._in_order: list[str] = []

    def __missing__(self, incarnation: str) -> int:
        number = self[incarnation] = self.following
        self.following += 1
        self._in_order.append(incarnation)
        return number

    @property
    def is_full(self) -> bool:
        """Whether to `begin_anew` before the next frame: the numbers in one frame must all be valid together."""
        return len(self._in_order) >= RENEWAL

    def begin_anew(self) -> None:
        """Invalidate all numbers. Frames that use them must have been queued by now."""
        self.oldest = self.following
        self.clear()
        self._in_order.clear()

    def names(self, told: int) -> Iterator[Named]:
        """The meanings that a peer lacks which knows those of all numbers below `told`."""
        for first in range(max(told, self.oldest), self.following, IDS_PER_FRAME):
            ids = self._in_order[first - self.oldest :][:IDS_PER_FRAME]
            yield Named(self.oldest, first, tuple(ids))


class KnownNames(dict[int, str]):
    """Number -> id, as announced by the peer of a link."""

    def __init__(self) -> None:
        super().__init__()
        self._following = 0
        self._in_order: deque[int] = deque()

    def learn(self, named: Named) -> None:
        """Raises RemoteProtocolError if too many numbers are in use, or if a number is announced twice."""
        if named.first < self._following:
            raise RemoteProtocolError(
                f"unexpected number {named.first:,} for an id, after {self._following:,}"
            )
        in_order = self._in_order
        while in_order and in_order[0] < named.oldest:
            del self[in_order.popleft()]
        self._following = named.first + len(named.ids)
        self.update(enumerate(named.ids, named.first))
        in_order.extend(range(named.first, self._following))
        if len(self) > _MOST:
            raise RemoteProtocolError(f"more than {_MOST:,} numbered ids")
