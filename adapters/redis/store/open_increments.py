"""Increments of one commit that were not sent to the server yet: it gets one INCRBY per key, however many there are.

The replies need no server: the gateway knows each number, and the one INCRBY is checked to the digit. Open increments
are sent before anything in the commit can see them: a read of the key, a removal, the end of the message.
"""

from __future__ import annotations

from collections.abc import Collection

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Number


class _Increment:
    """An open increment.

    index: place of the effect in its message.
    total: its delta.
    base: the number in the server, if that is behind the known one.
    """

    __slots__ = ("base", "index", "total")

    def __init__(self, index: int) -> None:
        self.index = index
        self.total = 0
        self.base: Number | None = None


class OpenIncrements:
    """Open increments, by key."""

    def __init__(self, plan: Plan, keyspace: Keyspace) -> None:
        self._plan = plan
        self._keyspace = keyspace
        self.by_key: dict[bytes, _Increment] = {}
        """In the order in which they came. Read-only."""

    def __contains__(self, key: bytes) -> bool:
        return key in self.by_key

    def add(self, key: bytes, delta: int, index: int) -> bool:
        """Increase the number under the key. Returns whether that is a new effect, to be at `index`."""
        increment = self.by_key.get(key)
        is_new = increment is None
        if increment is None:
            increment = self.by_key[key] = _Increment(index)
        increment.total += delta
        base = self._keyspace.count(key, delta, self._plan)
        if increment.base is None:
            increment.base = base
        return is_new

    def show(self, keys: Collection[bytes]) -> None:
        """Send the open increments of these keys, or of all if none is given."""
        if self.by_key:
            for key in keys or self.by_key:
                if (increment := self.by_key.get(key)) is not None:
                    self._show(key, increment)

    def take(self, key: bytes) -> tuple[int, int]:
        """End the open effect and send all of it. Returns its place and its delta."""
        increment = self.by_key.pop(key)
        self._show(key, increment)
        return increment.index, increment.total

    def _show(self, key: bytes, increment: _Increment) -> None:
        base, increment.base = increment.base, None
        if base is not None:
            self._keyspace.show_number(key, base, self._plan)
