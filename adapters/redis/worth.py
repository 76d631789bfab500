"""What a slot is worth by its atoms: the one place that says it (docs/redis-internals.md, Types).

A register's value shows if no later one is there; every increment counts on top of it, exactly, as long as it is a
number, and on top of nothing if there is no register. A text hides the increments beside it. A presence has no
value of its own: the slot is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from crdtcast.adapters.redis.unstable import Atoms

Worth: TypeAlias = bytes
"""A value as the server shows it; of a presence it is empty."""

PRESENT: Worth = b""
_CANONICAL_INTEGER = re.compile(rb"0|-?[1-9][0-9]*\Z")
LONGEST_NUMBER = 1000
"""Digits; no sum of increments comes near it, and Python refuses to read a number of more than 4300."""


def integer_of(text: object) -> int | None:
    """The number that a string stands for, if it is written as a server writes numbers."""
    if not isinstance(text, bytes) or len(text) > LONGEST_NUMBER:
        return None
    return int(text) if _CANONICAL_INTEGER.fullmatch(text) else None


def increased(base: bytes, delta: int) -> bytes:
    """A value after an increment that it has not seen."""
    number = integer_of(base)
    return base if number is None else b"%d" % (number + delta)


def worth_of(atoms: Atoms, deltas: Collection[int]) -> Worth | None:
    """What presences or registers, and increments, of one slot are worth; None if there are none."""
    value: bytes | None = None
    if atoms:
        value = PRESENT
        if len(first := atoms[0]) > 2:  # registers
            last = first if len(atoms) == 1 else max(atoms, key=lambda atom: atom.rank)  # type: ignore[union-attr]
            value = last.value  # type: ignore[union-attr]
    if not deltas:
        return value
    return b"%d" % sum(deltas) if value is None else increased(value, sum(deltas))
