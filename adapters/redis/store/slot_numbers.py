"""Known values of slots that are counted; not of strings, whose keys have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from crdtcast.adapters.redis.store.databases import names_in
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import Figures, figures
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import Content, Holds
from crdtcast.adapters.redis.types.strings import String

Known: TypeAlias = int | Figures | Holds
"""The native value of a key or a slot; for an integer the integer itself."""

_MOST = 200_000
"""Slots to remember."""


def known_of(value: bytes) -> Known:
    """A text as a number, or `String.here` if it is not one."""
    number = figures(value)
    return String.here if number is None else number


class SlotNumbers(dict[tuple[bytes, RedisType], dict[bytes, Known]]):
    """Values by key and type, then by slot."""

    _learned = 0
    """Slots learned since the last clearing."""

    def of(self, key: bytes, type_: RedisType, slot: bytes) -> Known | None:
        """None if it is not known."""
        slots = self.get((key, type_))
        return None if slots is None else slots.get(slot)

    def learn(self, key: bytes, type_: RedisType, slot: bytes, known: Known) -> None:
        """Remember what a slot holds."""
        self.setdefault((key, type_), {})[slot] = known
        self._learned += 1

    def written(self, key: bytes, type_: RedisType, content: Content) -> None:
        """These slots have been written."""
        slots = self.get((key, type_))
        if slots is not None:
            slots.update((slot, known_of(worth)) for slot, worth in content.items())

    def counted(self, key: bytes, type_: RedisType, slot: bytes, known: Known) -> None:
        """A slot has this value now."""
        slots = self.get((key, type_))
        if slots is not None:
            slots[slot] = known

    def removed(self, key: bytes, type_: RedisType, gone: Iterable[bytes]) -> None:
        """These slots are gone."""
        slots = self.get((key, type_))
        if slots:
            slots.update(dict.fromkeys(slots.keys() & set(gone), 0))

    def emptied(self, key: bytes, kept: Collection[RedisType] = ()) -> None:
        """The key has been emptied, except for the types in `kept`."""
        for type_ in TYPES:
            slots = self.get((key, type_))
            if slots is not None and type_ not in kept:
                slots.update(dict.fromkeys(slots, 0))

    def forget(self, key: bytes) -> None:
        """Ask the server again."""
        for type_ in TYPES:
            self.pop((key, type_), None)

    def forget_database(self, db: int) -> None:
        """Ask the server again of every key of a database."""
        for key in names_in({key for key, _ in self}, db):
            self.forget(key)

    def trim(self) -> None:
        """Bound the memory."""
        if self._learned > _MOST:
            self.forget_all()

    def forget_all(self) -> None:
        """Ask the server again of every key."""
        self.clear()
        self._learned = 0
