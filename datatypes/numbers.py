"""Exact numbers with assignment, increments and removal, like a Redis key or hash field.

A slot is its present number and the log of its unstable operations. Stability removes an operation from the log and
leaves the number as it is. That is safe because every assignment clears its slot first, so a stable number is only ever
shown, extended or cleared.
"""

import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Rounded,
)
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

from crdtcast.datatypes.canonical import plain
from crdtcast.datatypes.operations import Operation, natural
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import Arrival, Arrived, PureOpCRDT
from crdtcast.short_repr import shown

V = TypeVar("V")

Numeric: TypeAlias = int | float | Decimal | str
"""A number to send; text must be a decimal number."""

DIGITS: Final = 40
"""Most significant digits of a number that is sent; sums may have more."""
EXPONENT: Final = 400
"""Most places between the decimal point and a number's first or last digit."""

_EXACT: Final = Context(
    prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, Rounded]
)  # never rounds: raises instead
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def decimal(value: Numeric) -> str:
    """A finite number, from int, float, Decimal or decimal text; sent as text, exactly.

    A float stands for the shortest decimal that converts back to it.
    """
    return plain(_finite(value))


def score(value: Numeric) -> str:
    """As `decimal`, or one of the infinities."""
    if (
        (type(value) is float and math.isinf(value))
        or (type(value) is Decimal and value.is_infinite())
        or (type(value) is str and value in ("Infinity", "-Infinity"))
    ):
        return str(Decimal(value))
    return decimal(value)


def _finite(value: Any) -> Decimal:
    kind = type(value)
    if kind is int:
        number = Decimal(value) if value.bit_length() < 4 * DIGITS else None
    elif kind is float:
        number = Decimal(repr(value))
    elif kind is str:
        fits = len(value) <= 2 * EXPONENT + 10 and _NUMBER.fullmatch(value)
        number = Decimal(value) if fits else None
    else:
        number = value if kind is Decimal else None
    if number is None or not number.is_finite():
        raise ValueError(
            f"{shown(value)} is not a finite decimal number of at most {DIGITS} digits"
        )
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).strip("0")
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if significant and (
        len(significant) > DIGITS or exponent + trailing < -EXPONENT or number.adjusted() > EXPONENT
    ):
        raise ValueError(
            f"{shown(value)} has more than {DIGITS} digits, or some further than {EXPONENT} "
            "places from the decimal point"
        )
    return number


def loaded(dumped: Any) -> Decimal:
    """A number from a snapshot. It may be a sum, so it may have any length."""
    try:
        number = Decimal(dumped) if type(dumped) is str else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_nan():
        raise ValueError(f"{shown(dumped)} is not a number")
    return number


class NumberSlots(PureOpCRDT[V]):
    """The common part of `Number` and `SortedMap`: slots that are set, incremented and cleared."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._numbers: dict[Hashable, Decimal] = {}

    def show(self, slot: Hashable, number: Decimal | None) -> None:
        """A slot has this number now, or None if it is absent."""
        if number is None:
            self._numbers.pop(slot, None)
        else:
            self._numbers[slot] = number

    def ship(self, name: str, args: list[Any], after: Sequence[Sequence[Any]]) -> list[Any]:
        return [self._located().clock.now()]

    def arrival(self, operation: Arrived) -> Arrival:
        name, args = operation.name, operation.args
        if name == "reset":
            return Arrival(EVERYTHING)
        slot = self.slot_of(args)
        if name == "set":
            *_, number, time = args
            return Arrival((slot,), ((slot, [number, time]),))
        if name == "increment":
            return Arrival((), ((slot, [args[-1]]),))
        return Arrival((slot,))

    def slot_of(self, args: Sequence[Any]) -> Hashable:
        """The slot that an operation other than `reset` concerns."""
        raise NotImplementedError

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING:
            for present in list(self._numbers):
                self._recount(present)
        else:
            self._recount(slot)

    def entered(self, entry: Entry) -> None:
        if len(entry.content) == 1:
            by = Decimal(entry.content[0])
            self.show(entry.slot, _EXACT.add(self._numbers.get(entry.slot, Decimal(0)), by))
        else:
            if self.site is not None:
                self.site.clock.observe(entry.content[1], entry.tag.dot.origin)
            self._recount(entry.slot)

    def reentered(self, entry: Entry) -> None:
        """The dumped number includes the entry already; raises an error if its content is not a number."""
        self.worth([entry])

    def _recount(self, slot: Hashable) -> None:
        self.show(slot, self.worth(self.log.in_slot(slot)))

    def worth(self, entries: Collection[Entry]) -> Decimal | None:
        """The number of a slot with only these entries: the last of the assignments, plus all increments."""
        if not entries:
            return None
        assignments = [entry for entry in entries if len(entry.content) == 2]
        number = Decimal(max(assignments, key=_recency).content[0] if assignments else 0)
        for entry in entries:
            if len(entry.content) == 1:
                number = _EXACT.add(number, Decimal(entry.content[0]))
        return number

    def stabilise(self, entry: Entry) -> None:
        """Nothing to do: the number includes it."""

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        """An assignment or a removal is issued if that number is unchanged. `reset` yields to any change."""
        name, *args = operation
        if name not in ("set", "remove"):
            return super().rebase(operation, base, theirs)
        slot = base.slot_of(args)
        return [operation] if base._numbers.get(slot) == theirs._numbers.get(slot) else []

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """An assignment is issued if there is no number, since a concurrent removal would have missed it, too. A number
        that own operations have made since may be assigned again, and removed.
        """
        name, *args = operation
        noted = former.noted
        if name == "reset":
            is_own = bool(noted) and noted == present._numbers
            noted.clear()
            return [operation] if is_own else []
        slot = present.slot_of(args)
        now = present._numbers.get(slot)
        is_own = slot in noted and noted[slot] == now
        if name == "increment":
            if slot in noted:
                noted[slot] = _EXACT.add(noted[slot], Decimal(args[-1]))
        elif name == "set" and (now is None or is_own):
            noted[slot] = Decimal(args[-2])
        elif name == "remove" and is_own:
            del noted[slot]
        else:
            return []
        return [operation]

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Increments of a slot without another operation in between are summed, if the sum can be sent."""
        kept: list[list[Any]] = []
        last: dict[Hashable, list[Any]] = {}
        for operation in self.without_overwritten(operations):
            name, *args = operation
            slot = None if name == "reset" else self.slot_of(args)
            previous = last.get(slot)
            if name == "increment" and previous is not None and previous[0] == "increment":
                try:
                    by = decimal(_EXACT.add(Decimal(previous[-1]), Decimal(args[-1])))
                except ValueError:
                    by = None
                if by is not None:
                    previous[-1] = by
                    continue
            operation = list(operation)
            if name == "reset":
                last.clear()
            else:
                last[slot] = operation
            kept.append(operation)
        return kept


def _recency(entry: Entry) -> tuple[Any, ...]:
    return entry.content[1], entry.tag.dot.origin, entry.tag.dot.counter, entry.index


class Number(NumberSlots[Decimal | None]):
    """A number with `SET`, `INCR` and `DEL`: the last of concurrent assignments wins, and increments count unless an
    assignment or removal has seen them.

    Operations: `set(number)`, `increment(by=1)`, `remove()` (also `reset()`). The value is an exact Decimal of any
    size, None when absent; an increment of an absent number starts from 0. `set` ships a time of the hybrid logical
    clock; the others are pure.
    """

    TYPE: ClassVar[str] = "number"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "set": Operation(
            "Write a number. The last of concurrent writes wins; increments that it has not seen "
            "are added to it.",
            number=decimal,
            ships=(natural,),
        ),
        "increment": Operation(
            "Add a number, exactly. An absent one counts as 0.",
            by=decimal,
            defaults=(1,),
            additive=True,
        ),
        "reset": Operation("The same as `remove`."),
        "remove": Operation("Make it absent. Concurrent operations survive.", sent_as="reset"),
    }

    def slot_of(self, args: Sequence[Any]) -> Hashable:
        return None

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._recount(None)

    @property
    def value(self) -> Decimal | None:
        return self._numbers.get(None)

    @property
    def blank(self) -> bool:
        return not self._numbers

    @property
    def slight(self) -> bool:
        return True

    def dump_stable(self) -> Any:
        number = self.value
        return None if number is None else plain(number)

    def load_stable(self, dumped: Any, version: int) -> None:
        self.show(None, None if dumped is None else loaded(dumped))
