"""Registers. Multi-value: Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data Types", 2017, section 5.
Last writer wins: Johnson and Thomas, "Maintenance of duplicate databases" (RFC 677, 1975), with the clock of Kulkarni
and others, "Logical physical clocks", 2014.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from crdtcast.datatypes.canonical import canonical, rank
from crdtcast.datatypes.differences import Difference, whole
from crdtcast.datatypes.operations import Operation, Plain, exact, natural
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import SLIGHT, Arrival, Arrived, PureOpCRDT

_OWN: Final = "own"
"""Key in `Former.noted` of what own operations have written."""


class MVRegister(PureOpCRDT[list[Plain]]):
    """A register that shows all values written concurrently; a later write that has seen them replaces them.

    Operations: `assign(value)` with anything that `exact` accepts, `reset()` (also `clear()`). The value is a list in
    the order of `rank`, each value once; empty before the first write.
    """

    TYPE: ClassVar[str] = "register_mv"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "assign": Operation(
            "Write a value that replaces all values seen. Concurrent values are kept, too.",
            value=exact,
        ),
        "reset": Operation("Remove all values seen. Concurrent ones survive."),
        "clear": Operation("The same as `reset`.", sent_as="reset"),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stable: list[Any] = []

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "assign":
            return Arrival((None,), ((None, operation.args[0]),))
        return Arrival(EVERYTHING)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = []

    def stabilise(self, entry: Entry) -> None:
        self._stable = _distinct([*self._stable, entry.content])

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return self.without_overwritten(operations)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        return _assigned_again(operation, present.value, former)

    def differences(self, before: list[Plain], after: list[Plain]) -> tuple[Difference, ...]:
        """One step to the new value: its items are concurrent values."""
        return whole(before, after)

    @property
    def value(self) -> list[Plain]:
        written = [entry.content for entry in self.log.in_slot(None)]
        return [exact(value) for value in _distinct([*self._stable, *written])]

    @property
    def blank(self) -> bool:
        return not (self._stable or self.log)

    @property
    def slight(self) -> bool:
        return len(self._stable) <= SLIGHT

    def dump_stable(self) -> Any:
        return self._stable

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = [exact(value) for value in dumped]


def _assigned_again(operation: list[Any], now: list[Any], former: Former[Any]) -> list[list[Any]]:
    """`rebase_blind` of both registers: an assignment is issued if nothing is written, since a concurrent reset would
    have missed it, too. What own operations have written since may be overwritten, and reset.
    """
    name, *args = operation
    is_own = former.noted.get(_OWN) == canonical(now)
    if name != "assign":
        return [operation] if is_own and former.noted.pop(_OWN) else []
    if now and not is_own:
        return []
    former.noted[_OWN] = canonical([args[0]])
    return [operation]


def _distinct(values: Sequence[Any]) -> list[Any]:
    return sorted({canonical(value): value for value in values}.values(), key=rank)


class LWWRegister(PureOpCRDT[Plain]):
    """A register that shows the last of the values written concurrently, by the clock.

    Operations: `assign(value)` with anything that `exact` accepts, `reset()` (also `clear()`); None before the first
    write. `assign` ships the time of the site's hybrid logical clock; of equal times the greater value wins (`rank`).

    A write replaces all that it has seen, whatever the times are. So a fast clock wins only over concurrent writes, and
    no other clock follows it farther than the limit of `HLC`. A loser stays in the log until it is stable: after a
    reset that saw only the winner, it is shown.
    """

    TYPE: ClassVar[str] = "register_lww"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "assign": Operation(
            "Write a value that replaces all values seen. The last of concurrent ones is shown.",
            value=exact,
            ships=(natural,),
        ),
        "reset": Operation("Remove all values seen. Concurrent ones survive."),
        "clear": Operation("The same as `reset`.", sent_as="reset"),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        # [value, time] of the winner among the stable writes. The time is 0 once the log is empty:
        # every later write has seen it.
        self._stable: list[Any] = []

    def ship(self, name: str, args: list[Any], after: Sequence[Sequence[Any]]) -> list[Any]:
        clock = self._located().clock
        for entry in self.log:  # a restored object may be ahead of its site's clock
            clock.observe(entry.content[1])
        return [clock.now()]

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "assign":
            return Arrival((None,), ((None, list(operation.args)),))
        return Arrival(EVERYTHING)

    def entered(self, entry: Entry) -> None:
        if self.site is not None:
            self.site.clock.observe(entry.content[1], entry.tag.dot.origin)

    def reentered(self, entry: Entry) -> None:
        value, time = entry.content
        exact(value)
        natural(time)
        self.entered(entry)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = []

    def stabilise(self, entry: Entry) -> None:
        value, time = max(self._candidates([entry]), key=_time_then_value)
        self._stable = [value, time if self.log else 0]

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return self.without_overwritten(operations)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        written = present._stable or present.log
        return _assigned_again(operation, [present.value] if written else [], former)

    def _candidates(self, entries: Sequence[Entry]) -> list[list[Any]]:
        stable = [self._stable] if self._stable else []
        return [*stable, *(entry.content for entry in entries)]

    def differences(self, before: Plain, after: Plain) -> tuple[Difference, ...]:
        """One step to the new value: a write replaces all."""
        return whole(before, after)

    @property
    def value(self) -> Plain:
        candidates = self._candidates(list(self.log.in_slot(None)))
        if not candidates:
            return None
        return exact(max(candidates, key=_time_then_value)[0])

    @property
    def blank(self) -> bool:
        return self.value is None

    @property
    def slight(self) -> bool:
        return True

    def dump_stable(self) -> Any:
        return self._stable

    def load_stable(self, dumped: Any, version: int) -> None:
        if dumped:
            value, time = dumped
            self._stable = [exact(value), natural(time)]


def _time_then_value(written: list[Any]) -> tuple[int, tuple[str, Any]]:
    value, time = written
    return time, rank(value)
