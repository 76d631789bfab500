"""SPOP without a record: the look before a commit draws the slots, and the commit removes them by name.

The server chooses them at random (`NativeType.draw`). What the commit itself does to a key before SPOP is followed
here. If that leaves too few of those drawn, or if something else than a request changes the key, the server decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commit.batch import CommitSender, LocalBatch
from crdtcast.adapters.redis.commit.lookup import Lookup
from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import NEVER, EffectsEvent, KillAll, KillSlots, RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import PRESENT
from crdtcast.causality.messages import Delivery

if TYPE_CHECKING:
    from crdtcast.adapters.redis.server.connection import Replies

MOST = 1024
"""Slots that are drawn from one key for one commit: a look has no limit for the bytes of its replies."""


class Drawn:
    """Slots drawn from one key that it still has.

    is_all: whether it has no others.
    """

    __slots__ = ("_left", "is_all", "present")

    def __init__(self, slots: Sequence[bytes], *, is_all: bool) -> None:
        self._left = list(slots)
        self.present: set[bytes] = set(slots)
        self.is_all: bool = is_all

    def take(self, number: int) -> list[bytes] | None:
        """Take so many slots, or all that there are; None if some are not known."""
        present, left = self.present, self._left
        if not self.is_all and len(present) < number:
            return None
        taken: list[bytes] = []
        while present and len(taken) < number:
            # Any of them: the server draws at random, but in its own order, and others were added.
            at = int(random.random() * len(left))
            left[at], left[-1] = left[-1], left[at]
            slot = left.pop()
            if slot in present:
                present.remove(slot)
                taken.append(slot)
        return taken

    def add(self, slots: Collection[bytes]) -> None:
        """They exist now. As long as others do that are not known, these would be taken too often."""
        if self.is_all:
            new = [slot for slot in dict.fromkeys(slots) if slot not in self.present]
            self.present.update(new)
            self._left += new

    def remove(self, slots: Collection[bytes]) -> None:
        """They do not exist any more."""
        self.present.difference_update(slots)

    def empty(self) -> None:
        """The key is gone."""
        self.present.clear()
        self._left.clear()
        self.is_all = True


class Draws:
    """What the requests of one commit take at random."""

    def __init__(self) -> None:
        self._wanted: dict[bytes, tuple[RedisType, int]] = {}
        self.by_key: dict[bytes, Drawn] = {}

    def want(self, key: bytes, type_: RedisType, number: int) -> None:
        """One more request takes so many slots."""
        self._wanted[key] = type_, self._wanted.get(key, (type_, 0))[1] + number

    def ask(self, lookup: Lookup) -> None:
        """Draw them."""
        for key, (type_, number) in self._wanted.items():
            if number < MOST:
                # One more shows whether the key has others.
                lookup.drawn(key, type_, number + 1, partial(self._learn, key, number))

    def _learn(self, key: bytes, number: int, replies: Replies) -> None:
        (slots,) = replies
        if isinstance(slots, list):  # else it has another type
            self.by_key[key] = Drawn(slots, is_all=len(slots) <= number)

    def outdate(
        self, deliveries: Sequence[tuple[Delivery, EffectsEvent]], *, by_gateway: bool
    ) -> None:
        """Forget the keys that the commit changes before its requests.

        by_gateway: whether operations of the gateway itself are among these changes.
        """
        if by_gateway:
            self.by_key.clear()
        for _, event in deliveries if self.by_key else ():
            for effect in event.effects:
                if isinstance(effect, KillAll):
                    self.by_key.clear()
                else:
                    self.by_key.pop(effect.key, None)


class DrawingBatch(LocalBatch):
    """A batch with requests that take slots at random: it follows what the others do to these keys."""

    def __init__(
        self,
        plan: Plan,
        keyspace: Keyspace,
        engine: CommitSender,
        timestamp: Callable[[], int],
        draws: Mapping[bytes, Drawn],
    ) -> None:
        self._drawn = draws
        self._removed: list[tuple[int, RedisType, tuple[bytes, ...]]] = []
        """What effects of the open message have taken, by their places: to be kept."""
        super().__init__(plan, keyspace, engine, timestamp)

    def take_any(
        self, key: bytes, type_: RedisType, number: int
    ) -> tuple[list[bytes], tuple[int, ...]] | None:
        drawn, keyspace = self._drawn.get(key), self.keyspace
        if drawn is None or key in keyspace.hidden or (slots := drawn.take(number)) is None:
            return None
        if not slots:
            return slots, ()
        if self.bounded:
            self._count(len(slots), len(key) + sum(map(len, slots)))
        self._seal(key)
        place, kept = len(self._effects), tuple(slots)
        self._effects.append(KillSlots(key, type_, kept))
        if keyspace.aside is not None:
            self._removed.append((place, type_, kept))
        return slots, keyspace.kill_slots(key, type_, slots, self.tag, self.plan)

    def add(
        self, key: bytes, type_: RedisType, slots: Sequence[bytes], *, begins: bool = True
    ) -> int:
        if (drawn := self._drawn.get(key)) is not None:
            drawn.add(slots)
        return super().add(key, type_, slots, begins=begins)

    def remove(self, key: bytes, type_: RedisType, slots: Sequence[bytes]) -> tuple[int, ...]:
        if (drawn := self._drawn.get(key)) is not None:
            drawn.remove(slots)
        return super().remove(key, type_, slots)

    def assign(self, key: bytes, value: bytes, at: int = NEVER) -> None:
        if (drawn := self._drawn.get(key)) is not None:
            drawn.empty()
        super().assign(key, value, at)

    def kill_key(self, key: bytes) -> int:
        if (drawn := self._drawn.get(key)) is not None:
            drawn.empty()
        return super().kill_key(key)

    def _close(self) -> None:
        removed, aside = self._removed, self.keyspace.aside
        if removed and aside is not None:
            self._removed = []
            for place, type_, slots in removed:
                contents: Contents = {type_: dict.fromkeys(slots, PRESENT)}
                aside.executed(self.tag.dot, place, contents, self.plan)
        super()._close()
