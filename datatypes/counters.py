"""Counters. Resettable: Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data
Types", 2017, section 5. Bounded: Balegas, Serra, Duarte, Ferreira, Shapiro, Rodrigues and Preguiça,
"Extending Eventually Consistent Cloud Databases for Enforcing Numeric Invariants", 2015.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypedDict

from crdtcast.datatypes.differences import Difference, whole
from crdtcast.datatypes.operations import (
    MAX_INTEGER,
    MIN_INTEGER,
    Operation,
    integer,
    natural,
    positive,
    text,
)
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.pure import SLIGHT, Arrival, Arrived, PureOpCRDT
from crdtcast.exceptions import InvalidOperationError
from crdtcast.short_repr import shown


class DeltaCounter(PureOpCRDT[int]):
    """The common part of the unbounded counters: everything except their operations."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stable = 0
        self._unstable = 0  # sum over the log, so that reading needs no scan

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "increment":
            return Arrival(leaves=((None, operation.args[0]),))
        if operation.name == "decrement":
            return Arrival(leaves=((None, -operation.args[0]),))
        return Arrival(EVERYTHING)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = 0

    def entered(self, entry: Entry) -> None:
        self._unstable += entry.content

    def reentered(self, entry: Entry) -> None:
        _check_delta(entry.content)
        self.entered(entry)

    def left(self, entry: Entry) -> None:
        self._unstable -= entry.content

    def stabilise(self, entry: Entry) -> None:
        self._stable += entry.content

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Deltas between two resets become one, or more if their sum does not fit."""
        summed: list[list[Any]] = []
        for operation in self.without_overwritten(operations):
            if operation[0] == "decrement" and operation[1] != MIN_INTEGER:
                operation = ["increment", -operation[1]]
            last = summed[-1] if summed else operation
            if last is not operation and last[0] == operation[0] == "increment":
                total = last[1] + operation[1]
                if MIN_INTEGER <= total <= MAX_INTEGER:
                    summed[-1] = ["increment", total]
                    continue
            summed.append(operation)
        return summed

    @property
    def value(self) -> int:
        return self._stable + self._unstable

    @property
    def blank(self) -> bool:
        return self.value == 0

    @property
    def slight(self) -> bool:
        return True

    def dump_stable(self) -> Any:
        return _dumped(self._stable)

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = _loaded(dumped)


class GCounter(DeltaCounter):
    """A counter that only grows.

    Operation: `increment(by=1)` with an integer from 0 to 2^63 - 1. The value is exact and unbounded. Every delta stays
    separate in the log until it is stable, so that a reset of its container removes exactly the deltas that it has
    seen.
    """

    TYPE: ClassVar[str] = "counter_go"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "increment": Operation(
            "Add a number that is not negative.", by=natural, defaults=(1,), additive=True
        ),
    }


class PNCounter(DeltaCounter):
    """A counter that goes up and down.

    Operations: `increment(by=1)`, `decrement(by=1)` with signed 64-bit integers. Otherwise like `GCounter`.
    """

    TYPE: ClassVar[str] = "counter_pn"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "increment": Operation("Add a number.", by=integer, defaults=(1,), additive=True),
        "decrement": Operation("Subtract a number.", by=integer, defaults=(1,), additive=True),
    }


class ResettableCounter(DeltaCounter):
    """A counter whose reset removes exactly the deltas that it has seen; concurrent ones stay.

    Operations: `increment(by=1)`, `decrement(by=1)` with signed 64-bit integers, `reset()`. The value is exact and
    unbounded. Every delta stays separate in the log until it is stable: from then on every later reset has seen it, so
    it can be added to the others. Resets are never stored.
    """

    TYPE: ClassVar[str] = "counter_resettable"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        **PNCounter.OPERATIONS,
        "reset": Operation(
            "Reset to the seen past: removes all deltas seen. Concurrent deltas survive."
        ),
    }


class Rights(TypedDict):
    """The value of a bounded counter: the total, and the rights of each owner."""

    total: int
    rights: dict[str, int]


class BoundedCounter(PureOpCRDT[Rights]):
    """A counter that never goes below zero: a decrement needs rights, and spends them.

    Operations: `increment(by=1)` gives that many rights to its issuer, `decrement(by=1)` spends the issuer's rights,
    `transfer(amount, to)` gives some of them to another owner. Amounts are from 1 to 2^63 - 1. Without enough rights,
    an operation is refused at its source, without asking another replica, even if the value is large. The value is the
    sum of all rights.

    Every operation ships its owner (`Site.owner`), so that it keeps its meaning when a successor issues it again.
    `value` is {"total": n, "rights": {owner: n}}; owners that were once named stay in it. A container's reset of a
    bounded counter removes rights that other replicas may be spending: then the value may fall below zero.
    """

    TYPE: ClassVar[str] = "counter_b"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "increment": Operation(
            "Add a positive number, which gives this member the same number of rights.",
            by=positive,
            defaults=(1,),
            ships=(text,),
            additive=True,
        ),
        "decrement": Operation(
            "Subtract a positive number. Refused if this member has fewer rights.",
            by=positive,
            defaults=(1,),
            ships=(text,),
            additive=True,
        ),
        "transfer": Operation(
            "Give rights of this member to another owner. Refused if it has fewer.",
            amount=positive,
            to=text,
            ships=(text,),
            additive=True,
        ),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stable: dict[str, int] = {}
        self._unstable: dict[str, int] = {}  # sums over the log, by owner

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        owner = self._located().owner
        if name == "increment":
            return
        rights = self.rights(owner)
        for earlier, *arguments in after:
            rights += dict(_deltas(earlier, arguments)).get(owner, 0)
        if args[0] > rights:
            raise InvalidOperationError(
                f"{self.TYPE}.{name}: {owner!r} has {rights} of {self.total} rights, and {args[0]} "
                "are needed: another owner has to transfer some"
            )

    def ship(self, name: str, args: list[Any], after: Sequence[Sequence[Any]]) -> list[Any]:
        return [self._located().owner]

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Amounts of one kind between the same owners become one, or more if their sum does not fit."""
        summed: list[list[Any]] = []
        last: dict[tuple[Any, ...], list[Any]] = {}
        for name, amount, *owners in operations:
            alike = last.get((name, *owners))
            if alike is not None and alike[1] + amount <= MAX_INTEGER:
                alike[1] += amount
                continue
            last[name, *owners] = [name, amount, *owners]
            summed.append(last[name, *owners])
        return summed

    def arrival(self, operation: Arrived) -> Arrival:
        return Arrival(leaves=_deltas(operation.name, operation.args))

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = {}

    def entered(self, entry: Entry) -> None:
        owner: Any = entry.slot
        self._unstable[owner] = self._unstable.get(owner, 0) + entry.content

    def reentered(self, entry: Entry) -> None:
        owner: Any = entry.slot
        text(owner)
        _check_delta(entry.content)
        self.entered(entry)

    def left(self, entry: Entry) -> None:
        owner: Any = entry.slot
        if self.log.in_slot(owner):
            self._unstable[owner] -= entry.content
        else:
            del self._unstable[owner]

    def stabilise(self, entry: Entry) -> None:
        owner: Any = entry.slot
        self._stable[owner] = self._stable.get(owner, 0) + entry.content

    def rights(self, owner: str) -> int:
        """The amount that `owner` may decrement or transfer."""
        return self._stable.get(owner, 0) + self._unstable.get(owner, 0)

    @property
    def total(self) -> int:
        return sum(self._stable.values()) + sum(self._unstable.values())

    def differences(self, before: Rights, after: Rights) -> tuple[Difference, ...]:
        """One step to the new value: total and rights belong together."""
        return whole(before, after)

    @property
    def value(self) -> Rights:
        owners = sorted({*self._stable, *self._unstable})
        return {"total": self.total, "rights": {owner: self.rights(owner) for owner in owners}}

    @property
    def blank(self) -> bool:
        return not (self._stable or self._unstable)

    @property
    def slight(self) -> bool:
        return len(self._stable) <= SLIGHT

    def dump_stable(self) -> Any:
        return {owner: _dumped(rights) for owner, rights in sorted(self._stable.items())}

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = {text(owner): _loaded(rights) for owner, rights in dumped.items()}


def _check_delta(content: Any) -> None:
    """Raises ValueError if no operation leaves such a delta. A decrement may leave 2^63."""
    if type(content) is not int or abs(content) > -MIN_INTEGER:
        raise ValueError(f"{shown(content)} is not a 64-bit delta")


def _dumped(total: int) -> int | str:
    """A sum that exceeds msgpack's integers is written as text."""
    return total if MIN_INTEGER <= total <= MAX_INTEGER else hex(total)


def _loaded(dumped: Any) -> int:
    return int(dumped, 16) if type(dumped) is str else integer(dumped)


def _deltas(name: str, args: Sequence[Any]) -> list[tuple[str, int]]:
    """The changes of owners' rights by an operation as sent."""
    owner = args[-1]
    if name == "increment":
        return [(owner, args[0])]
    if name == "decrement" or args[1] == owner:
        return [(owner, -args[0] if name == "decrement" else 0)]
    return [(owner, -args[0]), (args[1], args[0])]
