"""One large key that is copied in pages while clients write it: each page is small, and slots that are written
meanwhile are read again.

Pages are of several instants. The last read, `closing`, is of one instant, and makes the copy the key's value then. The
deadline is only sent with it: the copy must not expire by a deadline that was postponed later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.adapters.redis.store.databases import Home, in_home
from crdtcast.adapters.redis.store.effects import (
    Effect,
    Inc,
    KillSlots,
    One,
    RedisType,
    Reg,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.value_pages import MOST_SLOTS, ValuePages
from crdtcast.adapters.redis.transfer.key_rows import Row, RowsPart
from crdtcast.adapters.redis.transfer.row_reads import Subject, reading
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import PAGE_BYTES

Slot: TypeAlias = tuple[RedisType, bytes]
Sizes: TypeAlias = dict[Slot, int]
"""Slots, with their approximate bytes."""
Rows: TypeAlias = list[Row]
LARGE_SLOT = PAGE_BYTES // 16
"""A value of at least this many bytes is read by itself: a scan always returns several slots."""


class KeyPages:
    """The giver's side of one key. homes: places of its values by type, the visible one first."""

    def __init__(self, key: bytes, homes: Mapping[RedisType, Home], keyspace: Keyspace) -> None:
        self.key = key
        self.is_stale: bool = False
        """The copy is worthless: the key must be read from its beginning."""
        self.hides: frozenset[RedisType] = frozenset(list(homes)[1:])
        """Hidden types, as long as the copy is not stale."""
        self._types = homes.keys()
        self._walks = [ValuePages(TYPES[type_], home) for type_, home in homes.items()]
        self._left = list(self._walks)
        self._keyspace = keyspace
        self._is_begun = False
        self._dirty: Sizes = {}
        """Slots written since the first page, and not read again yet."""
        self._again: Sizes = {}
        """Slots to read again in this round."""
        self._went: Sizes = {}
        """Slots sent with an admission that may have failed."""

    @property
    def has_more(self) -> bool:
        """Whether pages of the key or of this round are left."""
        return bool(self._left or self._again)

    @property
    def open_bytes(self) -> int:
        """Approximate bytes to read again."""
        return sum(self._dirty.values())

    def touched(self, effects: Iterable[Effect]) -> None:
        """These effects were applied to the key."""
        for effect in effects:
            slots = _slots_of(effect)
            if (
                slots is None
                or (slots and self.hides)
                or any(type_ not in self._types for type_, _ in slots)
            ):
                self.is_stale = True
                return
            self._dirty.update(slots)

    def begin_round(self) -> None:
        """Start a round: read again what has been written so far."""
        self._again, self._dirty = self._dirty, {}

    def take_back(self) -> None:
        """The admission has failed: its slots must be read again."""
        self._dirty.update(self._went)
        self._went = {}

    def steps(self) -> Steps[Rows]:
        """Read the next page, of the key or of this round. The copy becomes stale if the type has changed."""
        if self._is_begun:
            return (yield from self._page() if self._left else self._some_again())
        self._is_begun = True
        (walk, *_), first = self._left, Row(self.key, {})
        weight = yield from walk.weigh()
        if weight > LARGE_SLOT and walk.native.names and not self.hides:
            yield from self._name_slots(walk, weight)
            return [first]
        return [first, *(yield from self._page())]

    def _name_slots(self, walk: ValuePages, weight: int) -> Steps[None]:
        """Read each slot by name, because each is large."""
        self._left.clear()
        assert walk.native.names is not None
        (names,) = yield from in_home(walk.home, [[walk.native.names, walk.home.key]])
        if isinstance(names, list):
            self._again.update(dict.fromkeys(((walk.native.type, name) for name in names), weight))
        else:
            self.is_stale = True

    def _page(self) -> Steps[Rows]:
        walk = self._left[0]
        page = yield from walk.page()
        if page is None:
            self.is_stale = True
            return []
        if walk.following is None:
            self._left.remove(walk)
        type_ = walk.native.type
        part = RowsPart(hidden=self.hides & {type_}, at=page.at)
        content = self._keyspace.exact.over(self.key, type_, page.content)
        return [Row(self.key, {type_: content}, part)] if content else []

    def _some_again(self) -> Steps[Rows]:
        slots: list[Slot] = []
        room = PAGE_BYTES
        for slot, size in self._again.items():
            room -= size
            if slots and (room < 0 or len(slots) == MOST_SLOTS):
                break
            slots.append(slot)
        if not slots:
            return []
        for slot in slots:
            del self._again[slot]
        (row,) = yield from reading([self._subject(slots)], self._keyspace)
        worth = dict(row.contents or {})
        worth.pop(RedisType.DEADLINE, None)  # it may still be postponed
        return [replace(row, contents=worth)]

    def closing(self) -> Subject:
        """The slots that are left: with them the copy is the key's value at the instant of this read."""
        slots = self._again | self._dirty
        self._again, self._dirty = {}, {}
        self._went.update(slots)
        return self._subject(slots)

    def _subject(self, slots: Iterable[Slot]) -> Subject:
        by_type: dict[RedisType, list[bytes]] = {}
        for type_, slot in slots:
            by_type.setdefault(type_, []).append(slot)
        return Subject(self.key, by_type)


def _slots_of(effect: Effect) -> Sizes | None:
    """The slots that an effect writes, with their bytes; None for the whole key. A deadline is read at the end in any
    case.
    """
    match effect:
        case One(_, type_, slots) | KillSlots(_, type_, slots):
            written = {slot: len(slot) for slot in slots}
        case Reg(_, type_, words):
            written = {slot: len(slot) + len(word) for slot, word in pairs_of(words).items()}
        case Inc(_, type_, slot):
            written = {slot: len(slot)}
        case Until():
            return {}
        case _:
            return None
    if TYPES[type_].get is None:
        return None
    return {(type_, slot): size for slot, size in written.items()}
