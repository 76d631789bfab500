"""The unstable deadlines of keys. A stable one *is* the native deadline in the server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from crdtcast.adapters.redis.store.databases import names_in
from crdtcast.adapters.redis.store.effects import NEVER
from crdtcast.adapters.redis.store.slot_value import Only
from crdtcast.causality.tags import Dot, Tag, make_tuple


class Deadline(NamedTuple):
    """A deadline that was set.

    at: milliseconds since the epoch, or `NEVER`.
    timestamp: hybrid logical time.
    """

    at: int
    timestamp: int
    dot: Dot
    place: int
    only: Only


Deadlines: TypeAlias = tuple[Deadline, ...]


def winner(deadlines: Deadlines) -> Deadline | None:
    """The deadline that counts: the latest; the earliest if all were set with LT."""
    if not deadlines:
        return None
    pick = min if all(each.only is Only.LESS for each in deadlines) else max
    return pick(deadlines, key=lambda each: (each.at, each.timestamp, each.dot.origin, each.place))


def seen(deadline: Deadline, tag: Tag) -> bool:
    """Whether the deadline is in the causal past of an effect of `tag` that is being applied now."""
    return tag.past.get(deadline.dot.origin, 0) >= deadline.dot.counter or deadline.dot == tag.dot


class DeadlineLog:
    """Unstable deadlines by key, with an index by message, so that stability costs only what the message wrote."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Deadlines] = {}
        self.by_dot: defaultdict[Dot, list[bytes]] = defaultdict(list)
        """Keys whose deadlines a message has set. Read-only."""

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def entries(self) -> int:
        """Number of deadlines."""
        return sum(map(len, self._keys.values()))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys)

    def any_ends(self) -> bool:
        """Whether any deadline is a point in time."""
        return any(each.at != NEVER for some in self._keys.values() for each in some)

    def of(self, key: bytes) -> Deadlines:
        """The unstable part of a key's deadline, in the order in which it came."""
        return self._keys.get(key, ())

    def take(self, key: bytes, deadlines: Deadlines) -> None:
        """Take over what another log has for a key. It never becomes stable in this log."""
        self._keep(key, deadlines)

    def set(
        self, key: bytes, at: int, only: Only, tag: Tag, timestamp: int, place: int
    ) -> Deadline | None:
        """Set a deadline, after a kill of those that it has seen. Returns the one that counts now."""
        left = tuple(each for each in self.of(key) if not seen(each, tag))
        deadline = Deadline(at, timestamp, tag.dot, place, only)
        self._keys[key] = (*left, deadline)
        self.by_dot[tag.dot].append(key)
        return winner(self._keys[key]) if left else deadline

    def assign(self, key: bytes, at: int, dot: Dot, timestamp: int, place: int) -> None:
        """Set the deadline of a write that has seen all that is in the log."""
        self._keys[key] = (make_tuple(Deadline, (at, timestamp, dot, place, Only.ALWAYS)),)
        self.by_dot[dot].append(key)

    def assign_again(self, key: bytes, at: int) -> None:
        """Change the deadline that the same write set."""
        (before,) = self._keys[key]
        if before.at != at:
            self._keys[key] = (before._replace(at=at),)

    def drop(self, key: bytes) -> None:
        """Remove a key locally, by a removal that has seen all that is in the log."""
        self._keys.pop(key, None)

    def kill(self, key: bytes, tag: Tag) -> Deadline | None:
        """Drop the deadlines that `tag` has seen. Returns the one that counts of the rest."""
        deadlines = self._keys.get(key)
        if deadlines is None:
            return None
        left = tuple(each for each in deadlines if not seen(each, tag))
        self._keep(key, left)
        return winner(left)

    def kill_all(self, db: int | None, tag: Tag) -> None:
        """Drop the deadlines that `tag` has seen, of all keys or those of a database."""
        for key in names_in(self._keys, db):
            self.kill(key, tag)

    def stabilise(self, dot: Dot) -> None:
        """Forget a stable message's deadlines."""
        for key in self.by_dot.pop(dot, ()):
            deadlines = self._keys.get(key, ())
            if len(deadlines) == 1:  # mostly
                if deadlines[0].dot == dot:
                    del self._keys[key]
            elif deadlines:
                self._keep(key, tuple(each for each in deadlines if each.dot != dot))

    def _keep(self, key: bytes, deadlines: Deadlines) -> None:
        if deadlines:
            self._keys[key] = deadlines
        else:
            self._keys.pop(key, None)
