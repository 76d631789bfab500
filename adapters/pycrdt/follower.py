"""The updates that a document gets, for one reader that may be slow."""

from collections import deque
from dataclasses import dataclass

from crdtcast.causality.tags import Tag


@dataclass(frozen=True, slots=True)
class Applied:
    """An update that was applied, local or remote, in the order of delivery; a deletion of the object is one, too.

    tag: of the message that brought it: that which `apply` has returned, if it is one of this replica's.
    """

    update: bytes
    tag: Tag


class Follower:
    """What was applied since the reader has taken it last. Holds `most_bytes` at most: a reader that is farther behind
    has lost updates, and asks for what it lacks by state vector.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes: int = most_bytes
        self.is_behind: bool = False
        """Whether updates were dropped since `take`."""
        self._waiting: deque[Applied] = deque()
        self._bytes: int = 0

    def add(self, applied: Applied) -> None:
        """One more was applied."""
        if self.is_behind:
            return
        self._waiting.append(applied)
        self._bytes += len(applied.update)
        if self._bytes > self.most_bytes:
            self.take()
            self.is_behind = True

    def take(self) -> list[Applied]:
        """What is waiting, in order; it is not behind any more."""
        taken = list(self._waiting)
        self._waiting.clear()
        self._bytes, self.is_behind = 0, False
        return taken
