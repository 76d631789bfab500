"""Sends one parked message again, except parts that the group has overwritten since (see `rebase`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from crdtcast.adapters.redis.group.rebase import Mine, Part, Removal, Write
from crdtcast.adapters.redis.store.effects import Inc, One, RedisType, Until
from crdtcast.adapters.redis.store.slot_value import (
    Number,
    Only,
    Register,
    Worth,
    increased,
    size_of,
)
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.tags import covers

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.batch import LocalBatch

Theirs: TypeAlias = dict[tuple[bytes, RedisType, bytes], Worth | None]
"""The values of slots, as far as they are compared; kept up to date."""


class Performing:
    """Performs the parts of one message; the effects go into the batch."""

    def __init__(self, mine: Mine, batch: LocalBatch, theirs: Theirs, begun: set[bytes]) -> None:
        """begun: keys that did not exist before messages were sent again; kept up to date."""
        self._mine = mine
        self._batch = batch
        self._theirs = theirs
        self._deadlines = {part.key: part for part in mine.parts if isinstance(part, Until)}
        types = batch.keyspace.types
        begun.update(part.key for part in mine.parts if types[part.key] is NOTHING)
        self._begun = begun
        self._overwritten: set[bytes] = set()

    def finish(self) -> list[Until]:
        """Send the deadlines, last: their keys have to exist. Returns those that yield.

        The deadline that one replaced is not kept, and a value must never end by a deadline that the group has revoked
        since. So where the group has the key, a deadline is only sent if it is later.
        """
        keyspace = self._batch.keyspace
        left: list[Until] = []
        for key, until in self._deadlines.items():
            if keyspace.types[key] is NOTHING:
                continue
            unseen = keyspace.log.deadlines.of(key)
            is_seen = all(covers(self._mine.home, each.dot) for each in unseen)
            is_own = key in self._begun or key in self._overwritten
            if is_seen and (is_own or keyspace.dates.at(key) < until.at):
                self._batch.until(key, until.at, until.only)
            else:
                left.append(until)
        return left

    def perform(self, part: Part) -> Part | None:
        """Perform a part. Returns what of it yields."""
        batch = self._batch
        match part:
            case One(key, type_, slots):
                batch.add(key, type_, slots)
            case Inc(key, type_, slot, delta):
                self._increase(key, type_, slot, delta)
            case Write():
                return self._write(part) if not self._is_over(part.key) else None
            case Removal():
                return self._remove(part)
        return None

    def _is_over(self, key: bytes) -> bool:
        """Whether a value that the message wrote there would have expired by now."""
        until = self._deadlines.get(key)
        return until is not None and until.at <= self._batch.keyspace.dates.now

    def _increase(self, key: bytes, type_: RedisType, slot: bytes, delta: Number) -> None:
        if type_ is String.type and isinstance(delta, int):
            self._batch.increment(key, delta)
        else:
            self._batch.increase(key, type_, slot, delta)
        if (key, type_, slot) in self._theirs:
            before = self._theirs[key, type_, slot]
            self._theirs[key, type_, slot] = increased(b"0" if before is None else before, delta)

    def _write(self, part: Write) -> Write | None:
        key, type_, taken = part.key, part.type, part.taken
        going: list[bytes] = []
        left: dict[bytes, bytes] = {}
        for slot, value in part.values.items():
            theirs = self._theirs[key, type_, slot]
            is_same = taken is not None and theirs == taken.get(slot)
            is_beaten = part.only and theirs is not None and _beats(value, theirs, part.only)
            if is_same or is_beaten or self._is_later(key, type_, slot):
                going += slot, value
                self._theirs[key, type_, slot] = value
            else:
                left[slot] = value
        if going:
            self._batch.write(key, type_, going, only=part.only)
            if type_ is String.type:
                self._overwritten.add(key)
        elif type_ is String.type:
            self._deadlines.pop(key, None)  # it belongs to the value that yields
        return replace(part, values=left) if left else None

    def _is_later(self, key: bytes, type_: RedisType, slot: bytes) -> bool:
        """Whether the present value is unstable and older than mine."""
        held = self._batch.unstable(key, type_).held.get(slot, ())
        times = [atom.timestamp for atom in held if isinstance(atom, Register)]
        return bool(times) and max(times) < self._mine.timestamp

    def _remove(self, part: Removal) -> Removal | None:
        left: dict[RedisType, dict[bytes, Worth]] = {}
        for type_, content in (part.taken or {}).items():
            if not TYPES[type_].valued:
                self._remove_presences(part.key, type_, content)
            elif kept := self._remove_values(part.key, type_, content):
                left[type_] = kept
        if not left:
            return None
        slots = part.slots
        if slots is not None:
            slots = tuple(slot for content in left.values() for slot in content)
        return replace(part, slots=slots, taken=left)

    def _remove_presences(
        self, key: bytes, type_: RedisType, content: Mapping[bytes, Worth]
    ) -> None:
        """Remove slots with no other adds than those that the removal has seen. Other adds win, without a report."""
        unseen = self._batch.unstable(key, type_).held
        home = self._mine.home
        seen = [
            slot for slot in content if all(covers(home, atom.dot) for atom in unseen.get(slot, ()))
        ]
        if seen:
            self._batch.remove(key, type_, seen)

    def _remove_values(
        self, key: bytes, type_: RedisType, content: Mapping[bytes, Worth]
    ) -> dict[bytes, Worth]:
        """Remove slots that still hold what was removed. Returns the others, except those that are gone."""
        going: list[bytes] = []
        left: dict[bytes, Worth] = {}
        for slot, worth in content.items():
            theirs = self._theirs[key, type_, slot]
            if theirs == worth:
                going.append(slot)
            elif theirs is not None:
                left[slot] = worth
        if type_ is String.type and going and key in self._batch.keyspace.hidden:
            return dict(content)  # the removal of a key would remove what it hides, too
        for slot in going:
            self._theirs[key, type_, slot] = None
        if type_ is String.type and going:
            self._batch.kill_key(key)
        elif going:
            self._batch.remove(key, type_, going)
        return left


def _beats(value: bytes, other: Worth, only: Only) -> bool:
    """Whether a value is greater or less than another one."""
    mine, theirs = size_of(value), size_of(other)
    return mine > theirs if only is Only.GREATER else mine < theirs
