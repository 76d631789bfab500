"""The form in which values of keys are sent, for a joiner and for a comparison: a row for each key, or for a part of
one.

A row of a part says nothing about the rest of its key. It covers some slots, including missing ones; or, for a key with
only one slot, a range of its value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from crdtcast.adapters.redis.deadlines.atoms import Deadline, Deadlines
from crdtcast.adapters.redis.store.contents import Contents, Slots, packed, types_of, unpacked
from crdtcast.adapters.redis.store.databases import check_name
from crdtcast.adapters.redis.store.effects import NEVER, RedisType
from crdtcast.adapters.redis.store.slot_value import (
    Atom,
    Number,
    Only,
    Register,
    number_of,
    text_of,
)
from crdtcast.adapters.redis.store.unstable import KeyLog, SlotLog
from crdtcast.adapters.redis.types import TYPES
from crdtcast.causality.tags import Dot

T = TypeVar("T")


class RowsPart(NamedTuple):
    """The part of a key that a row covers.

    gone: slots that are missing.
    hidden: types that another one hides.
    at: for a single slot, where in its value the row's range begins.
    """

    gone: Slots = MappingProxyType({})
    hidden: frozenset[RedisType] = frozenset()
    at: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A key as its giver has it, or a part of it. A part without a deadline says nothing about the deadline.

    contents: None if no gateway wrote what it holds; `foreign` describes it.
    """

    key: bytes
    contents: Contents | None
    part: RowsPart | None = None
    """None for the whole key."""
    foreign: str = ""
    log: KeyLog = field(default_factory=dict)
    """The part of the contents that is unstable at the giver."""
    deadlines: Deadlines = ()
    """The unstable part of its deadline."""


def packed_row(row: Row) -> list[object]:
    """The form in which a row is sent: usually only key and value, otherwise all fields."""
    worth = row.foreign if row.contents is None else packed(row.contents)
    if row.part is None and not row.log and not row.deadlines:
        return [row.key, worth]
    part = None if row.part is None else _packed_part(row.part)
    log = {int(type_): _packed_log(log) for type_, log in row.log.items()}
    deadlines = [
        [*each.dot, each.place, each.timestamp, each.at, each.only] for each in row.deadlines
    ]
    return [row.key, worth, part, log, deadlines]


def unpacked_row(raw: Any) -> Row:
    """Raises ValueError, TypeError or AttributeError if no gateway packed this."""
    key, worth, *rest = checked(list, raw)
    check_name(checked(bytes, key))
    contents, foreign = (None, worth) if type(worth) is str else (unpacked(worth), "")
    if not rest:
        return Row(key, contents, None, foreign)
    said, log, deadlines = rest
    part = None if said is None else _part(*checked(list, said))
    if part and part.at and any(TYPES[type_].get is not None for type_ in types_of(contents or {})):
        raise ValueError("only a value of one slot has parts")
    logs = {_type(number): _log(*checked(list, rows)) for number, rows in log.items()}
    set_ = tuple(_deadline(*checked(list, each)) for each in checked(list, deadlines))
    return Row(key, contents, part, foreign, logs, set_)


def _packed_part(part: RowsPart) -> list[object]:
    return [packed_slots(part.gone), sorted(part.hidden), part.at]


def _part(gone: Any, hidden: Any, at: Any) -> RowsPart:
    types = frozenset(map(_type, checked(list, hidden)))
    return RowsPart(unpacked_slots(gone), types, natural(at))


def packed_slots(slots: Slots) -> dict[int, list[bytes]]:
    """The form in which names of slots are sent."""
    return {int(type_): list(some) for type_, some in slots.items()}


def unpacked_slots(raw: Any) -> Slots:
    """Raises ValueError, TypeError or AttributeError if no gateway packed this."""
    return {
        _type(number): [checked(bytes, slot) for slot in checked(list, some)]
        for number, some in raw.items()
    }


def _packed_log(log: SlotLog) -> list[object]:
    deltas = [
        [slot, [[*_packed_atom(atom), text_of(delta)] for atom, delta in each.items()]]
        for slot, each in log.increments.items()
    ]
    held = [[slot, [_packed_atom(atom) for atom in atoms]] for slot, atoms in log.held.items()]
    return [deltas, held]


def _packed_atom(atom: Atom | Register) -> list[object]:
    (origin, counter), *rest = atom
    if len(rest) > 3 and not rest[3]:
        del rest[3]  # a condition is new: programs that do not know it read all other rows
    return [origin, counter, *rest]


def _log(deltas: Any, held: Any) -> SlotLog:
    increments: dict[bytes, dict[Atom, Number]] = {
        checked(bytes, slot): {
            Atom(_dot(origin, counter), natural(place)): _delta(delta)
            for origin, counter, place, delta in checked(list, each)
        }
        for slot, each in checked(list, deltas)
    }
    atoms = {
        checked(bytes, slot): tuple(_atom(*checked(list, row)) for row in checked(list, rows))
        for slot, rows in checked(list, held)
    }
    return SlotLog(increments, atoms)


def _delta(raw: Any) -> Number:
    delta = number_of(checked(bytes, raw))
    if delta is None:
        raise ValueError("an increment is a number")
    return delta


def _atom(origin: Any, counter: Any, place: Any, *written: Any) -> Atom | Register:
    dot = _dot(origin, counter)
    if not written:
        return Atom(dot, natural(place))
    timestamp, value, *condition = written
    only = Only(natural(*condition)) if condition else Only.ALWAYS
    return Register(dot, natural(place), natural(timestamp), checked(bytes, value), only)


def _deadline(
    origin: Any, counter: Any, place: Any, timestamp: Any, at: Any, only: Any
) -> Deadline:
    if natural(at) > NEVER:
        raise ValueError("a deadline beyond all time")
    condition = Only(natural(only))
    return Deadline(at, natural(timestamp), _dot(origin, counter), natural(place), condition)


def _dot(origin: Any, counter: Any) -> Dot:
    return Dot(checked(str, origin), natural(counter))


def _type(number: Any) -> RedisType:
    type_ = RedisType(natural(number))
    if type_ not in TYPES:
        raise ValueError(f"this gateway has no type {type_.name}")
    return type_


def checked(kind: type[T], raw: Any) -> T:
    """The value itself. Raises TypeError if it has another type."""
    if type(raw) is not kind:
        raise TypeError(f"{raw!r:.40} where {kind.__name__} was expected")
    return raw


def natural(raw: Any) -> int:
    """The number itself. Raises TypeError or ValueError if it is not a natural number."""
    if (number := checked(int, raw)) < 0:
        raise ValueError(f"{raw} where a natural number was expected")
    return number
