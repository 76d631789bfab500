"""What the writes of an evicted gateway still mean behind all that the group has written since: a three-way comparison.

base: what a removal took away at home of what the group had, too. mine: the writes that the group does not have, in
their order. theirs: what the server holds after the join. Additions and increments go out, unless a removal of mine
behind them has taken them back. A removal of set members goes out for those that it took away; one of a number, if
the number still is what it was. Any other yields. This file knows no server; see `PureOpCRDT.rebase` for the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis.effects import WHOLE, Effect, Inc, KillKey, KillSlots, One, RedisType
from crdtcast.exceptions import UnusableInputError
from crdtcast.tags import Vector

_WHAT = "crdtcast parked"
_LEVEL = 1
"""The format level that has brought in rows like these."""
_pack: Callable[[object], bytes] = msgpack.packb


class Taken(NamedTuple):
    """What a removal took away: the number of its key, or members of its set."""

    number: int | None = None
    members: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """Of a key, or of these slots of its set. taken: None if nobody knows any more what it took away."""

    key: bytes
    slots: tuple[bytes, ...] | None
    taken: Taken | None

    def __str__(self) -> str:
        if self.slots is None:
            return f"DEL {self.key!r}"
        return f"SREM {self.key!r} {' '.join(map(repr, self.slots[:3]))}"


Part: TypeAlias = One | Inc | Removal


@dataclass(frozen=True, slots=True)
class Mine:
    """One parked message. home: what its incarnation had delivered in the end. rebased: whether it has been compared
    with the others of mine; then it stands for itself.
    """

    parts: tuple[Part, ...]
    home: Vector
    rebased: bool = False

    @classmethod
    def of(cls, effects: Sequence[Effect], taken: Mapping[int, Taken | None], home: Vector) -> Mine:
        """From the effects of a message as it was sent; `taken` by the removals' places."""
        parts: list[Part] = []
        for place, effect in enumerate(effects):
            match effect:
                case One() | Inc():
                    parts.append(effect)
                case KillKey(key):
                    parts.append(Removal(key, None, taken.get(place)))
                case KillSlots(key, _, slots):
                    parts.append(Removal(key, tuple(slots), taken.get(place)))
        return cls(tuple(parts), home)

    def encode(self) -> bytes:
        rows = [_row(part) for part in self.parts]
        return _pack([_WHAT, _LEVEL, self.rebased, dict(self.home), rows])

    @classmethod
    def decode(cls, raw: bytes) -> Mine:
        """Raises UnusableInputError."""
        try:
            what, level, rebased, home, rows = msgpack.unpackb(raw)
            if what != _WHAT or level != _LEVEL:
                raise ValueError(f"{what!r:.40} of format level {level!r:.40}")
            return cls(tuple(_part(*row) for row in rows), home, rebased)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise UnusableInputError(
                f"a parked write of another version ({error}): use the gateway's version that parked it"
            ) from error


def _row(part: Part) -> list[object]:
    match part:
        case One(key, _, slots):
            return [key, list(slots)]
        case Inc(key, _, _, delta):
            return [key, str(delta)]
        case Removal(key, slots, taken):
            number, members = taken or Taken()
            return [key, slots, taken is not None, None if number is None else str(number), members]


def _part(key: bytes, what: list[bytes] | str | None, *taken: object) -> Part:
    if not taken:
        if isinstance(what, str):
            return Inc(key, RedisType.STRING, WHOLE, int(what))
        return One(key, RedisType.SET, tuple(what or ()))
    if isinstance(what, str):
        raise ValueError("an increment removes nothing")
    known, number, members = taken
    assert isinstance(members, list)
    base = Taken(None if number is None else int(str(number)), tuple(members)) if known else None
    return Removal(key, None if what is None else tuple(what), base)


Rebased: TypeAlias = "tuple[list[Mine], list[Removal]]"
"""The same messages, each standing for itself; and the removals that yield whatever the group has."""


def rebased(mine: Sequence[Mine]) -> Rebased:
    """The whole at one go."""
    steps = rebasing(mine)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: Rebased = ended.value
            return result


def rebasing(mine: Iterable[Mine]) -> Generator[None, None, Rebased]:
    """One message a step. `mine` may be taken from one step at a time, too."""
    told, yielding = yield from _without_what_was_only_mine(mine)
    told.reverse()
    dead_keys: set[bytes] = set()
    dead: dict[bytes, set[bytes]] = defaultdict(set)
    again: dict[bytes, set[bytes]] = defaultdict(set)
    found: list[Mine] = []
    for message in told:
        parts: list[Part] = []
        for part in reversed(message.parts):
            match part:
                case Inc(key) if key not in dead_keys:
                    parts.append(part)
                case One(key, type_, slots) if key not in dead_keys:
                    alive = tuple(slot for slot in slots if slot not in dead[key])
                    again[key].update(alive)
                    if alive:
                        parts.append(One(key, type_, alive))
                case Removal(key, slots, taken):
                    if not message.rebased:
                        if slots is None:
                            dead_keys.add(key)
                        else:
                            dead[key].update(slots)
                    if taken is not None:
                        left = tuple(m for m in taken.members if m not in again[key])
                        if left or taken.number is not None:
                            parts.append(replace(part, taken=Taken(taken.number, left)))
        found.append(Mine(tuple(reversed(parts)), message.home, rebased=True))
        yield
    found.reverse()
    return found, yielding


def _without_what_was_only_mine(mine: Iterable[Mine]) -> Generator[None, None, Rebased]:
    """Removals took away what others had, and what only mine had put there before: they keep the former."""
    own: dict[bytes, set[bytes]] = defaultdict(set)
    sums: dict[bytes, int] = defaultdict(int)
    yielding: list[Removal] = []
    told: list[Mine] = []
    for message in mine:
        parts: list[Part] = []
        for part in message.parts:
            kept: Part = part
            match part:
                case One(key, _, slots):
                    own[key].update(slots)
                case Inc(key, _, _, delta):
                    sums[key] += delta
                case Removal(key, slots, taken):
                    if not message.rebased:
                        if taken is None:
                            yielding.append(part)
                        else:
                            kept = replace(part, taken=_of_others(taken, own[key], sums[key]))
                    if slots is None:
                        own.pop(key, None)
                        sums.pop(key, None)
                    else:
                        own[key].difference_update(slots)
            parts.append(kept)
        told.append(replace(message, parts=tuple(parts)))
        yield
    return told, yielding


def _of_others(taken: Taken, own: set[bytes], own_sum: int) -> Taken:
    number = None if taken.number is None else taken.number - own_sum
    return Taken(number or None, tuple(m for m in taken.members if m not in own))
