"""One large key that is copied in pages while it is written: no page is large, and what is written meanwhile is read
again, slot by slot.

Pages are of several instants. The last read, `closing`, is of one: with it the copy is what the key is worth then. No
deadline travels before that: the copy must not end by one that was put off later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from crdtcast.adapters.redis.databases import Home, in_home
from crdtcast.adapters.redis.deadlines.index import unpinned
from crdtcast.adapters.redis.effects import (
    NEVER,
    Effect,
    Inc,
    KillSlots,
    One,
    RedisType,
    Reg,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.slices import Patch, Row
from crdtcast.adapters.redis.steps import Steps
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import BEGINNING, PAGE_BYTES, NativeType
from crdtcast.adapters.redis.worth import Worth

Slot: TypeAlias = tuple[RedisType, bytes]
Rows: TypeAlias = list[Row | Patch]
LARGE_SLOT = PAGE_BYTES // 16
"""From so many bytes on each value is asked for by itself: servers scan several slots at least."""
MOST_SLOTS = 10_000
"""Of a page: what a turn of the loop has time for."""


class KeyPages:
    """The giver's side of one key. homes: where its values stand by type, the visible one first. weight: their bytes,
    about.
    """

    def __init__(self, key: bytes, homes: Mapping[RedisType, Home], weight: int) -> None:
        self.key = key
        self.is_stale = False
        """What was read is worth nothing: the key has to be read from its beginning."""
        self._homes = dict(homes)
        self._left = list(homes)
        self._start = BEGINNING
        self._weight = weight
        self._slots = 0
        """Of the next page; 0 before the first one."""
        self._is_begun = False
        self._dirty: dict[Slot, None] = {}
        """Written since the first page, and not read again yet."""
        self._again: dict[Slot, None] = {}
        """To be read again in this round."""
        self._went: list[Slot] = []
        """Went with an admission, which may not have come through."""

    @property
    def has_more(self) -> bool:
        """Whether there are pages left, of the key or of this round."""
        return bool(self._left or self._again)

    @property
    def hides(self) -> frozenset[RedisType]:
        """Types that are hidden, as long as this is not stale."""
        return frozenset(list(self._homes)[1:])

    @property
    def open_bytes(self) -> int:
        """Of what has to be read again, about."""
        return len(self._dirty) * PAGE_BYTES // max(self._slots, 1)

    def touched(self, effects: Iterable[Effect]) -> None:
        """The key was written by these."""
        for effect in effects:
            slots = _slots_of(effect)
            if (
                slots is None
                or (slots and self.hides)
                or any(s[0] not in self._homes for s in slots)
            ):
                self.is_stale = True
                return
            self._dirty.update(dict.fromkeys(slots))

    def begin_round(self) -> None:
        """What is written by now is to be read again."""
        self._again, self._dirty = self._dirty, {}

    def take_back(self) -> None:
        """What went with an admission has not come through."""
        self._dirty.update(dict.fromkeys(self._went))
        self._went = []

    def steps(self) -> Steps[Rows]:
        """Read the next page, of the key or of this round. It is stale if its type is another one now."""
        return self._page() if self._left else self._some_again()

    def _page(self) -> Steps[Rows]:
        type_, start = self._left[0], self._start
        native, home = TYPES[type_], self._homes[type_]
        if not self._slots:
            names = yield from self._begin(native, home)
            if names is not None:
                return names
        (reply,) = yield from in_home(home, [native.page_reading(home.key, start, self._slots)])
        page = native.page_of(start, reply)
        if page is None:
            self.is_stale = True
            return []
        size = sum(len(slot) + len(worth) for slot, worth in page.content.items())
        fitting = self._slots * PAGE_BYTES // max(size, 1)
        self._slots = _bounded(min(fitting, 2 * self._slots))
        if page.following is None:
            self._left.pop(0)
            self._start = BEGINNING
        else:
            self._start = page.following
        rows: Rows = [] if self._is_begun else [Row(self.key, {})]
        self._is_begun = True
        if page.content:
            rows.append(Patch(self.key, self._visible, {type_: page.content}, at=page.at))
        return rows

    def _begin(self, native: type[NativeType], home: Home) -> Steps[Rows | None]:
        """Find out how many slots are a page. If each is large, all of them are only named, to be read then."""
        (count,) = yield from in_home(home, [[native.size, home.key]])
        self._slots = slots_of_a_page(count, self._weight)
        is_few = isinstance(count, int) and self._weight > LARGE_SLOT * count
        if native.names is None or self.hides or not is_few:
            return None
        (names,) = yield from in_home(home, [[native.names, home.key]])
        self._left.clear()
        if not isinstance(names, list):
            self.is_stale = True
            return []
        self._again.update(dict.fromkeys((native.type, name) for name in names))
        self._is_begun = True
        return [Row(self.key, {})]

    def _some_again(self) -> Steps[Rows]:
        slots = list(self._again)[: self._slots]
        for slot in slots:
            del self._again[slot]
        if not slots:
            return []
        replies = yield from in_home(self._visible_home, self._asking(slots))
        return [self._patch(slots, replies)]

    def closing(self) -> Steps[Rows]:
        """All that is left, in one step: with it the copy is what the key is worth at the step's instant."""
        slots = [*self._again, *self._dirty]
        self._again, self._dirty = {}, {}
        self._went += slots
        home = self._visible_home
        commands = [[b"PEXPIRETIME", home.key], *self._asking(slots)]
        until, *replies = yield from in_home(home, commands)
        if not isinstance(until, int) or until == _NOT_THERE:
            return [Row(self.key, {})]
        at = NEVER if until < 0 else unpinned(until)
        return [self._patch(slots, replies, at)] if slots or at != NEVER else []

    @property
    def _visible(self) -> RedisType:
        return next(iter(self._homes))

    @property
    def _visible_home(self) -> Home:
        return self._homes[self._visible]

    def _asking(self, slots: Iterable[Slot]) -> list[list[bytes]]:
        """Of a key that hides nothing: a write makes another one stale."""
        return [TYPES[type_].asking(self._homes[type_].key, slot) for type_, slot in slots]

    def _patch(self, slots: Sequence[Slot], replies: Sequence[Any], until: int = NEVER) -> Patch:
        contents: dict[RedisType, dict[bytes, Worth]] = {}
        gone: dict[RedisType, list[bytes]] = {}
        for (type_, slot), reply in zip(slots, replies, strict=True):
            worth = TYPES[type_].slot_of(reply)
            if worth is None:
                gone.setdefault(type_, []).append(slot)
            else:
                contents.setdefault(type_, {})[slot] = worth
        return Patch(self.key, self._visible, contents, gone, until=until)


_NOT_THERE = -2
"""PEXPIRETIME of a key that is not there."""


def slots_of_a_page(count: object, weight: object) -> int:
    """How many slots are a page, by the server's replies to how many there are, and what they weigh."""
    if not isinstance(count, int) or not isinstance(weight, int):
        return 1
    return _bounded(PAGE_BYTES * count // max(weight, 1))


def _bounded(slots: int) -> int:
    return min(max(slots, 1), MOST_SLOTS)


def _slots_of(effect: Effect) -> Collection[Slot] | None:
    """What an effect writes; None for the whole key. A deadline is read at the end anyhow."""
    match effect:
        case One(_, type_, slots) | KillSlots(_, type_, slots):
            written: Collection[bytes] = slots
        case Reg(_, type_, words):
            written = pairs_of(words)
        case Inc(_, type_, slot):
            written = (slot,)
        case Until():
            return ()
        case _:
            return None
    return None if TYPES[type_].get is None else [(type_, slot) for slot in written]
