"""Exact values of slots whose type can hold only an approximation (`NativeType.shown`).

    exact:TYPE:KEY    hash in the metadata database, slot -> its exact value

An entry lives until its slot is written or removed. Copies, comparisons and increments use it instead of the native
value. Values that the type holds exactly, which are nearly all, have no entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from crdtcast.adapters.redis.commit.plan import Expect, Plan
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import names_in
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import Worth
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import Content

Value: TypeAlias = tuple[bytes, RedisType]
"""A key, and one type under it, visible or hidden."""


def exact_key(type_: RedisType, key: bytes) -> bytes:
    """Where the metadata database keeps the exact values of a key's slots."""
    return b"%s%s:%s" % (metadata.EXACT_PREFIX, type_.name.lower().encode(), key)


def value_named(name: bytes) -> Value:
    """The key and type of such a name."""
    _, word, key = name.split(b":", 2)
    return key, RedisType[word.decode().upper()]


class ExactValues:
    """All entries, in memory, and what the metadata database still has to learn of them."""

    def __init__(self) -> None:
        self.slots: dict[Value, dict[bytes, Worth]] = {}
        """By key and type, then by slot. Read-only."""
        self._changed: dict[Value, set[bytes] | None] = {}
        """Slots that changed since the last `store`; None: all of the value."""

    @property
    def has_changed(self) -> bool:
        """Whether `store` has work to do."""
        return bool(self._changed)

    def resume(self, found: Mapping[Value, dict[bytes, Worth]]) -> None:
        """Take in what the metadata database has."""
        self.slots.update(found)

    def of(self, key: bytes, type_: RedisType, slot: bytes, native: Worth | None) -> Worth | None:
        """The exact value of a slot. native: the value that the server shows; None if it does not exist.

        An entry whose approximation is another value was overwritten directly in the server: it does not count.
        """
        if native is None or (slots := self.slots.get((key, type_))) is None:
            return native
        worth = slots.get(slot)
        return native if worth is None or TYPES[type_].shown(worth) != native else worth

    def over(self, key: bytes, type_: RedisType, content: Content) -> Content:
        """These slots, read from the server, with their exact values."""
        slots = self.slots.get((key, type_)) if self.slots else None
        if slots is None:
            return content
        exact = {
            slot: self.of(key, type_, slot, content[slot]) for slot in slots.keys() & content.keys()
        }
        return {**content, **exact}  # type: ignore[dict-item]  # all of them exist

    def written(self, key: bytes, type_: RedisType, content: Content) -> None:
        """These slots have these values now."""
        native = TYPES[type_]
        if not native.rounds:
            return
        slots = self.slots.get((key, type_), {})
        for slot, worth in content.items():
            if native.shown(worth) != worth:
                slots = self.slots.setdefault((key, type_), {})
                slots[slot] = worth
                self._note(key, type_, slot)
            elif slots.pop(slot, None) is not None:
                self._note(key, type_, slot)
        self._drop_if_empty(key, type_)

    def removed(self, key: bytes, type_: RedisType, gone: Collection[bytes]) -> None:
        """These slots are gone."""
        slots = self.slots.get((key, type_))
        for slot in slots.keys() & set(gone) if slots else ():
            del slots[slot]  # type: ignore[union-attr]  # it is not empty
            self._note(key, type_, slot)
        self._drop_if_empty(key, type_)

    def emptied(self, key: bytes, kept: Collection[RedisType] = ()) -> None:
        """The key has been emptied, except for the types in `kept`."""
        for type_ in TYPES:
            if type_ not in kept and self.slots.pop((key, type_), None) is not None:
                self._changed[key, type_] = None

    def flushed(self, db: int | None) -> None:
        """A database is empty; all are if `db` is None."""
        for key in names_in({key for key, _ in self.slots}, db):
            self.emptied(key)

    def store(self, plan: Plan) -> None:
        """Write to the metadata database what has changed."""
        for words in self._commands():
            plan.metadata(Expect.INTEGER, *words)
        self._changed.clear()

    def _commands(self) -> Iterator[list[bytes]]:
        for (key, type_), changed in self._changed.items():
            name, slots = exact_key(type_, key), self.slots.get((key, type_), {})
            if changed is None or not slots:
                yield [b"DEL", name]
            if gone := () if changed is None else changed - slots.keys():
                yield [b"HDEL", name, *gone]
            if some := slots if changed is None else slots.keys() & changed:
                yield [b"HSET", name, *(word for slot in some for word in (slot, slots[slot]))]

    def _note(self, key: bytes, type_: RedisType, slot: bytes) -> None:
        changed = self._changed.setdefault((key, type_), set())
        if changed is not None:
            changed.add(slot)

    def _drop_if_empty(self, key: bytes, type_: RedisType) -> None:
        if (key, type_) in self.slots and not self.slots[key, type_]:
            del self.slots[key, type_]


def commands_for(name: bytes, type_: RedisType, content: Content) -> Iterator[list[bytes]]:
    """Commands that store the exact values of slots that are written without a plan, in the metadata database."""
    if not TYPES[type_].rounds:
        return
    shown = TYPES[type_].shown
    exact: Mapping[bytes, Worth] = {s: w for s, w in content.items() if shown(w) != w}
    if others := content.keys() - exact.keys():
        yield [b"HDEL", exact_key(type_, name), *others]
    if exact:
        yield [
            b"HSET",
            exact_key(type_, name),
            *(word for slot, worth in exact.items() for word in (slot, worth)),
        ]
