"""Which writes of an evicted gateway still apply after all that the group has written since: a three-way comparison.

base: what a write removed or overwrote at home, as far as the group had it, too.
mine: the writes that the group does not have, in their order.
theirs: what the server holds after the join.

It works by slot. Presences and increments are sent, unless a later removal or value of mine has revoked them. A value
is sent if the slot still holds what it overwrote, or an older value that is unstable. A removal is sent if the slot
still holds what it removed; that of a presence, if the slot has only adds that the removal has seen. Everything else
yields: it is not sent. This file knows no server; see `PureOpCRDT.rebase` for the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgpack

from crdtcast.adapters.redis.store.contents import Contents, packed, unpacked
from crdtcast.adapters.redis.store.databases import db_of, described, names_in
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Assign,
    Effect,
    Inc,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.slot_value import (
    PRESENT,
    Number,
    Only,
    Worth,
    exact,
    increased,
    number_of,
    text_of,
)
from crdtcast.adapters.redis.types import TYPES
from crdtcast.causality.tags import Vector
from crdtcast.exceptions import UnusableInputError

_WHAT = "crdtcast parked"
_LEVEL = 2
"""The format level that introduced rows like these."""
_pack: Callable[[object], bytes] = msgpack.packb
_SHOWN = 3

Slot: TypeAlias = tuple[RedisType, bytes]


@dataclass(frozen=True, slots=True)
class Removal:
    """The removal of a key, or of slots of a type.

    taken: what it removed; None if that is not known any more.
    back: slots that existed again in the end, at home: others, who had not seen it, or a later write added them.
    """

    key: bytes
    type: RedisType | None
    slots: tuple[bytes, ...] | None
    taken: Contents | None
    back: frozenset[Slot] = frozenset()

    def __str__(self) -> str:
        if self.type is None or self.slots is None:
            return f"DEL {described(self.key)}"
        verb = TYPES[self.type].remove.decode()
        return f"{verb} {described(self.key)} {' '.join(map(repr, self.slots[:_SHOWN]))}"


@dataclass(frozen=True, slots=True)
class Write:
    """Values of slots.

    taken: the values that it overwrote; None if they are not known any more.
    only: the condition under which it was written.
    """

    key: bytes
    type: RedisType
    values: Mapping[bytes, bytes]
    taken: Mapping[bytes, Worth] | None
    only: Only = Only.ALWAYS

    def __str__(self) -> str:
        verb = TYPES[self.type].write.decode()
        shown = " ".join(repr(slot) for slot in list(self.values)[:_SHOWN] if slot)
        return f"{verb} {described(self.key)} {shown}".rstrip()


@dataclass(frozen=True, slots=True)
class Flush:
    """The removal of all keys of a database, or of all databases. What it removed is not known: it yields, and only
    revokes what mine had written before.
    """

    db: int | None
    key: bytes = b""

    def __str__(self) -> str:
        return "FLUSHALL" if self.db is None else f"FLUSHDB of database {self.db}"


Part: TypeAlias = One | Inc | Until | Write | Removal | Flush


@dataclass(frozen=True, slots=True)
class Mine:
    """One parked message.

    home: what its incarnation had delivered in the end.
    timestamp: its hybrid logical time.
    rebased: whether it was compared with the other messages of mine; then it stands for itself.
    """

    parts: tuple[Part, ...]
    home: Vector
    timestamp: int = 0
    rebased: bool = False

    @classmethod
    def of(
        cls,
        effects: Sequence[Effect],
        taken: Mapping[int, Contents | None],
        home: Vector,
        timestamp: int = 0,
        back: Mapping[int, Collection[Slot]] | None = None,
    ) -> Mine:
        """From the effects of a message as it was sent. taken, back: by the places of effects that remove something."""
        parts: list[Part] = []
        for place, effect in enumerate(effects):
            again = frozenset(() if back is None else back.get(place, ()))
            match effect:
                case One() | Inc() | Until():
                    parts.append(effect)
                case Reg(key, type_, words):
                    found = taken.get(place)
                    over = None if found is None else found.get(type_, {})
                    parts.append(Write(key, type_, pairs_of(words), over, effect.only))
                case KillKey(key) | KillData(key):
                    parts.append(Removal(key, None, None, taken.get(place), again))
                case Replace(key, at):
                    parts.append(Removal(key, None, None, taken.get(place), again))
                    parts.append(Until(key, at))
                case Assign(key, value, at):
                    parts.append(Removal(key, None, None, taken.get(place), again))
                    parts.append(Until(key, at))
                    over = {} if place in taken else None  # its removal has what was there before
                    parts.append(Write(key, RedisType.STRING, {WHOLE: value}, over))
                case KillSlots(key, type_, slots):
                    parts.append(Removal(key, type_, tuple(slots), taken.get(place), again))
                case KillAll(db):
                    parts.append(Flush(db))
        return cls(tuple(parts), home, timestamp)

    def encode(self) -> bytes:
        rows = [_row(part) for part in self.parts]
        return _pack([_WHAT, _LEVEL, self.rebased, self.timestamp, dict(self.home), rows])

    @classmethod
    def decode(cls, raw: bytes) -> Mine:
        """From its bytes. Raises UnusableInputError if they have another version."""
        try:
            what, level, *fields = msgpack.unpackb(raw, strict_map_key=False)
            if what != _WHAT or level != _LEVEL:
                raise ValueError(f"{what!r:.40} of format level {level!r:.40}")
            rebased, timestamp, home, rows = fields
            return cls(tuple(_part(*row) for row in rows), home, timestamp, rebased)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            msgpack.UnpackException,
        ) as error:
            raise UnusableInputError(
                f"a parked write has another version ({error}): use the gateway version that "
                "parked it"
            ) from error


def _row(part: Part) -> list[object]:
    match part:
        case One(key, type_, slots):
            return ["one", key, type_, list(slots)]
        case Inc(key, type_, slot, delta):
            return ["inc", key, type_, slot, text_of(delta)]
        case Until(key, at, only):
            return ["until", key, None, at, only]
        case Write(key, type_, values, taken, only):
            row = ["write", key, type_, dict(values), None if taken is None else dict(taken)]
            return [*row, only] if only else row
        case Removal(key, type_, slots, taken, back):
            packed_ = None if taken is None else packed(taken)
            return ["removal", key, type_, slots, packed_, sorted(back)]
        case Flush(db, key):
            return ["flush", key, None, db]


def _part(what: str, key: bytes, number: int | None, *fields: Any) -> Part:
    type_ = None if number is None else RedisType(number)
    match what, fields:
        case "removal", (slots, taken, back):
            return Removal(
                key,
                type_,
                None if slots is None else tuple(slots),
                None if taken is None else unpacked(taken),
                frozenset((RedisType(each), slot) for each, slot in back),
            )
        case "flush", (db,) if db is None or type(db) is int:
            return Flush(db)
        case "until", (at, only):
            return Until(key, at, Only(only))
        case "one", (slots,) if type_ is not None:
            return One(key, type_, tuple(slots))
        case "inc", (slot, delta) if type_ is not None:
            if (added := number_of(delta)) is None:
                raise ValueError(f"an increment of {delta!r:.40}")
            return Inc(key, type_, slot, added)
        case "write", (values, taken, *only) if type_ is not None:
            return Write(key, type_, values, taken, *map(Only, only))
    raise ValueError(f"a part {what!r:.40}")


Rebased: TypeAlias = "tuple[list[Mine], list[Part]]"
"""The same messages, each standing for itself; and the parts that yield whatever the group has."""


def rebasing(mine: Iterable[Mine]) -> Generator[None, None, Rebased]:
    """Compare the messages with each other, one in each step. `mine` may be lazy: each step takes one message."""
    told, yielding = yield from _against_what_was_of_others(mine)
    told.reverse()
    later = _Later()
    found: list[Mine] = []
    for message in told:
        parts = [
            part
            for each in reversed(message.parts)
            if (part := later.left_of(each, message)) is not None
        ]
        found.append(replace(message, parts=tuple(reversed(parts)), rebased=True))
        yield
    found.reverse()
    return found, yielding


class _Later:
    """The effect of those writes of mine that come after the present one."""

    def __init__(self) -> None:
        self._flushed: set[int | None] = set()
        self._dead_keys: set[bytes] = set()
        self._dated: set[bytes] = set()
        self._dead: defaultdict[bytes, set[Slot]] = defaultdict(set)
        """Slots that are removed or overwritten: that write compares with what was there before all of mine."""
        self._there: defaultdict[bytes, set[Slot]] = defaultdict(set)
        """Slots that are added again."""
        self._counted: defaultdict[bytes, set[Slot]] = defaultdict(set)
        """Slots that are incremented again."""

    def left_of(self, part: Part, message: Mine) -> Part | None:
        """What is left of a part; None if nothing. From then on it counts as a later one."""
        key = part.key
        dead, is_dead = self._dead[key], self._is_dead(key)
        match part:
            case Flush():
                self._flushed.add(part.db)
                return None
            case Until():
                if is_dead or key in self._dated:
                    return None
                self._dated.add(key)
                return part
            case Inc(_, type_, slot):
                if is_dead or (type_, slot) in dead:
                    return None
                self._counted[key].add((type_, slot))
                return part
            case One(_, type_, slots):
                alive = () if is_dead else tuple(s for s in slots if (type_, s) not in dead)
                self._there[key].update((type_, slot) for slot in alive)
                return One(key, type_, alive) if alive else None
            case Write(_, type_, values, taken):
                if message.rebased:
                    return part
                kept = {s: v for s, v in values.items() if not is_dead and (type_, s) not in dead}
                dead.update((type_, slot) for slot in values)
                if not kept:
                    return None
                over = None if taken is None else {s: w for s, w in taken.items() if s in kept}
                return replace(part, values=kept, taken=over)
            case Removal():
                return self._left_of_removal(part, message)

    def _is_dead(self, key: bytes) -> bool:
        """Whether a later write of mine has removed the whole key."""
        if key in self._dead_keys:
            return True
        return bool(self._flushed) and not self._flushed.isdisjoint((None, db_of(key)))

    def _left_of_removal(self, part: Removal, message: Mine) -> Removal | None:
        key = part.key
        gone = set(self._there[key])
        if not message.rebased:
            gone |= self._dead[key] | (part.back - self._counted[key])
        is_dead = self._is_dead(key) and not message.rebased
        left: dict[RedisType, dict[bytes, Worth]] = {}
        for type_, content in (part.taken or {}).items() if not is_dead else ():
            if kept := {s: w for s, w in content.items() if (type_, s) not in gone}:
                left[type_] = kept
        if not message.rebased:
            if part.type is None or part.slots is None:
                self._dead_keys.add(key)
            else:
                self._dead[key].update((part.type, slot) for slot in part.slots)
        return replace(part, taken=left, back=frozenset()) if left else None


class _State:
    """The state of a slot after writes of mine."""

    __slots__ = ("base", "is_written", "left", "sum")

    def __init__(
        self,
        left: Worth | None = None,
        base: Worth | None = None,
        total: Number = 0,
        *,
        is_written: bool = False,
    ) -> None:
        self.is_written = is_written
        """False: it was only incremented."""
        self.left = left
        """The value written; None if it was removed."""
        self.base = base
        """The others' value before that."""
        self.sum = total
        """The sum of increments since."""

    def base_below(self, found: Worth | None) -> Worth | None:
        """The value of others. found: the value when the next write of mine came."""
        if not self.is_written:
            number = None if found is None else number_of(found)
            if number is None or not self.sum:
                return found
            return text_of(exact(number - self.sum)) if number != self.sum else None
        expected = self.left
        if self.sum:
            expected = increased(b"0" if expected is None else expected, self.sum)
        return self.base if found == expected else found


class _Mine:
    """All slots that mine have touched so far, by key."""

    def __init__(self) -> None:
        self._keys: defaultdict[bytes, dict[Slot, _State]] = defaultdict(dict)

    def present(self, part: One) -> None:
        states = self._keys[part.key]
        for name in part.slots:
            state = states.get(slot := (part.type, name))
            base = state.base if state is not None and state.is_written else None
            states[slot] = _State(PRESENT, base, is_written=True)

    def count(self, part: Inc) -> None:
        self._keys[part.key].setdefault((part.type, part.slot), _State()).sum += part.delta

    def write(self, part: Write) -> Write:
        """The write, with those values of others that it overwrote."""
        states = self._keys[part.key]
        over: dict[bytes, Worth] = {}
        is_known = True
        for name, value in part.values.items():
            slot = part.type, name
            state = states.get(slot, _State())
            if part.taken is None:
                is_known &= state.is_written
                base = state.base
            else:
                base = state.base_below(part.taken.get(name))
            states[slot] = _State(value, base, is_written=True)
            if base is not None:
                over[name] = base
        return replace(part, taken=over if is_known else None)

    def flush(self, db: int | None) -> None:
        """Remove what mine had written there."""
        for key in names_in(self._keys, db):
            states = self._keys[key]
            for slot, state in states.items():
                states[slot] = _State(
                    None, state.base if state.is_written else None, is_written=True
                )

    def remove(self, part: Removal) -> Removal:
        """The removal, with those values of others that it removed. If these are not known: with those that earlier
        writes of mine had found.
        """
        states = self._keys[part.key]
        found = part.taken or {}
        if part.type is None or part.slots is None:
            slots = {(type_, name) for type_, content in found.items() for name in content}
            slots |= states.keys()
        else:
            slots = {(part.type, name) for name in part.slots}
        left: dict[RedisType, dict[bytes, Worth]] = {}
        for slot in slots:
            type_, name = slot
            state = states.get(slot, _State())
            if part.taken is None:
                base = state.base if state.is_written else None
            else:
                base = state.base_below(found.get(type_, {}).get(name))
            states[slot] = _State(None, base, is_written=True)
            if base is not None:
                left.setdefault(type_, {})[name] = base
        return replace(part, taken=left)


def _against_what_was_of_others(mine: Iterable[Mine]) -> Generator[None, None, Rebased]:
    """A removal removes values of others, and values that only mine had written before: keep only the former."""
    own = _Mine()
    yielding: list[Part] = []
    told: list[Mine] = []
    for message in mine:
        parts: list[Part] = []
        for part in message.parts:
            kept: Part = part
            match part:
                case One():
                    own.present(part)
                case Inc():
                    own.count(part)
                case Flush():
                    own.flush(part.db)
                    yielding.append(part)
                case Write() if not message.rebased:
                    kept = own.write(part)
                case Removal() if not message.rebased:
                    if part.taken is None:
                        yielding.append(part)
                    kept = own.remove(part)
            parts.append(kept)
        told.append(replace(message, parts=tuple(parts)))
        yield
    return told, yielding
