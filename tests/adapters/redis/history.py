"""What a key is worth by definition: a function of the messages that a replica has delivered, which forgets nothing.

Written apart from the gateway's rules: it knows no log, no stability, no server. Whether a deadline is over is for the
reader to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from crdtcast.adapters.redis.store.databases import db_of
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    Expire,
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
from crdtcast.adapters.redis.store.slot_value import Only
from crdtcast.causality.tags import Tag


@dataclass(eq=False)
class Told:
    """One message, with its true past."""

    tag: Tag
    timestamp: int
    effects: list[Effect]


class _Placed(NamedTuple):
    told: Told
    place: int

    def is_before(self, other: _Placed) -> bool:
        if self.told is other.told:
            return self.place < other.place
        return self.told.tag < other.told.tag


class _Register(NamedTuple):
    stamp: tuple[int, str, int]
    value: bytes
    only: Only


Slot: TypeAlias = tuple[RedisType, bytes]


@dataclass
class Past:
    """values: by type and slot. at: the deadline. setter: the incarnation that has set it."""

    values: dict[RedisType, dict[bytes, bytes]] = field(default_factory=dict)
    at: int = NEVER
    setter: str = ""


def past_of(key: bytes, delivered: Iterable[Told]) -> Past:
    """The key as these messages make it."""
    about = [
        (_Placed(told, place), effect)
        for told in delivered
        for place, effect in enumerate(told.effects)
        if _is_about(effect, key)
    ]
    past = Past()
    ones: set[Slot] = set()
    registers: dict[Slot, list[_Register]] = {}
    deltas: dict[Slot, Fraction] = {}
    deadlines: list[tuple[int, tuple[int, str, int], Only]] = []
    for where, effect in about:
        stamp = where.told.timestamp, where.told.tag.dot.origin, where.place
        match effect:
            case One(_, type_, slots):
                ones |= {(type_, s) for s in slots if not _is_killed(where, (type_, s), about)}
            case Reg(_, type_, words, since):
                written = (where.told.timestamp if since is None else since), *stamp[1:]
                for slot, value in pairs_of(words).items():
                    if not _is_killed(where, (type_, slot), about):
                        register = _Register(written, value, effect.only)
                        registers.setdefault((type_, slot), []).append(register)
            case Inc(_, type_, slot, delta):
                if not _is_killed(where, (type_, slot), about):
                    deltas[type_, slot] = deltas.get((type_, slot), Fraction(0)) + delta
            case Until(_, at, only):
                if not _is_killed(where, None, about):
                    deadlines.append((at, stamp, only))
            case Replace(_, at):
                if not _is_killed(where, None, about):
                    deadlines.append((at, stamp, Only.ALWAYS))
            case Assign(_, value, at):
                if not _is_killed(where, None, about):
                    deadlines.append((at, stamp, Only.ALWAYS))
                if not _is_killed(where, slot := (RedisType.STRING, WHOLE), about):
                    registers.setdefault(slot, []).append(_Register(stamp, value, Only.ALWAYS))
    for type_, slot in ones:
        past.values.setdefault(type_, {})[slot] = b""
    for type_, slot in registers.keys() | deltas.keys():
        ranked = registers.get((type_, slot))
        value = _shown(ranked) if ranked else b"0"
        delta = deltas.get((type_, slot))
        if delta is not None and (number := _number(value)) is not None:
            value = _written(number + delta)
        past.values.setdefault(type_, {})[slot] = value
    if deadlines:
        is_least = all(only is Only.LESS for *_, only in deadlines)
        at, (_, origin, _), _ = min(deadlines) if is_least else max(deadlines)
        past.at, past.setter = at, origin
    return past


def _shown(registers: list[_Register]) -> bytes:
    """The greatest, if each was written only to make it greater; the least likewise; else the last one."""
    registers = sorted(registers)
    conditions = {register.only for register in registers}
    if conditions == {Only.GREATER}:
        registers.sort(key=lambda register: _size(register.value))
    elif conditions == {Only.LESS}:
        registers.sort(key=lambda register: _size(register.value))
        least = _size(registers[0].value)
        registers = [register for register in registers if _size(register.value) == least]
    return registers[-1].value


def _size(value: bytes) -> Fraction | float:
    number = _number(value)
    return float(value) if number is None else number


_NUMBER = re.compile(rb"[+-]?(?=\.?[0-9])[0-9]*(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def _number(value: bytes) -> Fraction | None:
    """Short ones only: the tests write no others."""
    return Fraction(value.decode()) if _NUMBER.fullmatch(value) else None


def _written(number: Fraction) -> bytes:
    with localcontext() as context:
        context.prec = 2000
        context.traps[Inexact] = True
        text = f"{Decimal(number.numerator) / number.denominator:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).encode()


def _is_killed(where: _Placed, slot: Slot | None, about: list[tuple[_Placed, Effect]]) -> bool:
    """slot: None for the deadline."""
    return any(where.is_before(other) and _kills(effect, slot) for other, effect in about)


def _is_about(effect: Effect, key: bytes) -> bool:
    return effect.db in (None, db_of(key)) if isinstance(effect, KillAll) else effect.key == key


def _kills(effect: Effect, slot: Slot | None) -> bool:
    match effect:
        case KillKey() | KillAll() | Replace() | Assign() | Expire(_, True):
            return True
        case Expire() | KillData():
            return slot is not None
        case Until():
            return slot is None
        case KillSlots(_, type_, slots) | One(_, type_, slots):
            return slot is not None and slot[0] == type_ and slot[1] in slots
        case Reg(_, type_, words):
            return slot is not None and slot[0] == type_ and slot[1] in words[::2]
    return False
