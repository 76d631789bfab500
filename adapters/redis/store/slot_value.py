"""The atoms of a slot, its value, and what a number is: the one place that defines them (docs/redis-internals.md,
Types).

The register with the latest value shows; if all were written only to make the value greater, the greatest one; if all
were written only to make it less, the least. If it is a number, every increment is added to it exactly; without a
register, increments are added to zero. If it is a text, increments do not show. A presence only says that the slot
exists: its value is empty.

Numbers are exact decimals. A number with increments is written canonically: no exponent, no plus sign, no superfluous
zeros. So the order of increments does not change a single digit.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from fractions import Fraction
from math import inf
from typing import NamedTuple, TypeAlias

from crdtcast.causality.tags import Dot

Worth: TypeAlias = bytes
"""A value as the server shows it; empty for a presence."""

Number: TypeAlias = int | Fraction
"""Decimals that are not integers are fractions."""

PRESENT: Worth = b""
_CANONICAL_INTEGER = re.compile(rb"0|-?[1-9][0-9]*\Z")
_CANONICAL = re.compile(rb"(-?(?:0|[1-9][0-9]*))\.([0-9]*[1-9])\Z")
_FIGURES = re.compile(rb"[+-]?\.?[0-9][0-9.eE+-]*\Z")
_PLAIN = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?\Z")
_INFINITIES = {b"inf": inf, b"-inf": -inf}
MOST_DIGITS = 40
"""Digits of a number that is not written canonically, and of a decimal increment."""
MOST_EXPONENT = 400
LONGEST_INTEGER = 1000
"""Digits. No sum of increments comes near it, and Python refuses to read a number of more than 4300 digits."""
MOST_PLACES = MOST_DIGITS + MOST_EXPONENT
"""Digits after the point: a sum has no more than its parts."""
LONGEST_NUMBER = LONGEST_INTEGER + 1 + MOST_PLACES
"""Bytes."""


class Atom(NamedTuple):
    """A presence. Its identity is that of its effect: the message's dot and the place in the message."""

    dot: Dot
    place: int


class Only(enum.IntEnum):
    """The condition under which a value, or a deadline, was written; it keeps it. Of several that were all written only
    if they were less, the least counts; of several only if they were greater, the greatest.
    """

    ALWAYS = 0
    GREATER = 1
    LESS = 2


class Register(NamedTuple):
    """A written value; of several, `shown_of` decides which one shows. timestamp: hybrid logical time."""

    dot: Dot
    place: int
    timestamp: int
    value: bytes
    only: Only = Only.ALWAYS

    @property
    def rank(self) -> tuple[int, str, int]:
        """Later values are greater; of two at the same time, the origin decides, then the place in the message."""
        return self.timestamp, self.dot.origin, self.place


Atoms: TypeAlias = tuple[Atom | Register, ...]


class Figures:
    """A text that may be a number, but is not written as an integer: it shows unchanged until it is counted."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text: bytes = text

    def __repr__(self) -> str:
        return f"<figures {self.text!r:.40}>"

    @property
    def number(self) -> Fraction | None:
        """None if it is not a number. An integer value is a fraction, too: no server counts with this text."""
        number = number_of(self.text)
        return None if number is None else Fraction(number)


def integer_of(text: object) -> int | None:
    """The integer of a string, if it is written as a server writes integers."""
    if not isinstance(text, bytes) or len(text) > LONGEST_INTEGER:
        return None
    return int(text) if _CANONICAL_INTEGER.fullmatch(text) else None


def plain_decimal(text: bytes) -> Number | None:
    """The decimal of a text in any notation that a client may use, if it is within the limits."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    sign, whole, part, exponent = found.groups(b"")
    digits, shift = whole + part, int(exponent or 0)
    if not 0 < len(digits) <= MOST_DIGITS or abs(shift) > MOST_EXPONENT:
        return None
    value = Fraction(int(digits)) * Fraction(10) ** (shift - len(part))
    return exact(-value if sign == b"-" else value)


def number_of(text: bytes) -> Number | None:
    """The number of a string; None for any other text."""
    integer = integer_of(text)
    if integer is not None:
        return integer
    found = _CANONICAL.fullmatch(text)
    if found is None:
        return plain_decimal(text)
    whole, part = found.groups()
    if len(whole) > LONGEST_INTEGER or len(part) > MOST_PLACES:
        return None
    return Fraction(int(whole + part), 10 ** len(part))


def figures(text: bytes) -> int | Figures | None:
    """Cheap test whether a text may be a number; None if it cannot be one."""
    if _FIGURES.match(text) is None:
        return None
    integer = integer_of(text)
    return Figures(text) if integer is None and len(text) <= LONGEST_NUMBER else integer


def exact(number: Number) -> Number:
    """The same number, as an integer if it is one."""
    return number.numerator if number.denominator == 1 else Fraction(number)


def text_of(number: Number) -> bytes:
    """The canonical form of a number."""
    if type(number) is int:
        return b"%d" % number
    denominator = number.denominator
    twos = (denominator & -denominator).bit_length() - 1
    rest, fives = denominator >> twos, 0
    while rest > 1:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    digits = b"%d" % (abs(number.numerator) * 10**places // denominator)
    if not places:
        return b"-" + digits if number < 0 else digits
    digits = digits.rjust(places + 1, b"0")
    sign = b"-" if number < 0 else b""
    return b"%b%b.%b" % (sign, digits[:-places], digits[-places:])


def increased(base: bytes, delta: Number) -> bytes:
    """A value after an increment that it has not seen."""
    number = number_of(base)
    return base if number is None else text_of(exact(number + delta))


def shown_of(registers: Collection[Register]) -> Register:
    """The register that shows: the greatest or the least value if all were written only for that, otherwise the last
    one.
    """
    (only, *others) = {register.only for register in registers}
    if only is Only.ALWAYS or others:
        return max(registers, key=lambda register: register.rank)
    sign = 1 if only is Only.GREATER else -1
    return max(registers, key=lambda register: (sign * size_of(register.value), register.rank))


def size_of(value: bytes) -> Number | float:
    """The number by which values are compared; an infinity does not count as one (`number_of`)."""
    number = number_of(value)
    return _INFINITIES.get(value, 0) if number is None else number


def worth_of(atoms: Atoms, deltas: Collection[Number]) -> Worth | None:
    """The value of a slot with these presences or registers and increments; None if there are none."""
    value: bytes | None = None
    if atoms:
        value = PRESENT
        if len(first := atoms[0]) > 2:  # registers
            value = first.value if len(atoms) == 1 else shown_of(atoms).value  # type: ignore[arg-type, union-attr]
    if not deltas:
        return value
    return text_of(exact(sum(deltas))) if value is None else increased(value, sum(deltas))
