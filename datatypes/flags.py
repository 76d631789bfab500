"""Flags, off at first. Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data Types", 2017, section 5."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

from crdtcast.datatypes.operations import Operation
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import Arrival, Arrived, PureOpCRDT
from crdtcast.short_repr import shown


class EWFlag(PureOpCRDT[bool]):
    """A flag where enabling wins: a disable removes only the enables that it has seen.

    Operations: `enable()`, `disable()` (also `reset()`, `clear()`). Disables are never stored.
    """

    TYPE: ClassVar[str] = "flag_ew"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "enable": Operation(
            "Switch it on. This survives each disable that has not seen it.", additive=True
        ),
        "disable": Operation("Switch it off. A concurrent enable survives."),
        "reset": Operation("The same as `disable`.", sent_as="disable"),
        "clear": Operation("The same as `disable`.", sent_as="disable"),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stable = False

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "enable":
            return Arrival((None,), ((None, None),))
        return Arrival((None,))

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = False

    def stabilise(self, entry: Entry) -> None:
        self._stable = True

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return self.without_overwritten(operations)

    @property
    def value(self) -> bool:
        return self._stable or bool(self.log)

    @property
    def blank(self) -> bool:
        return not self.value

    @property
    def slight(self) -> bool:
        return True

    def dump_stable(self) -> Any:
        return self._stable

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = _boolean(dumped)


class DWFlag(PureOpCRDT[bool]):
    """A flag where disabling wins: on if it was enabled, and each disable was seen by some enable.

    Operations: `enable()`, `disable()`; `reset()` (also `clear()`) forgets the enables and disables that it has seen.
    Disables stay in the log until they are stable.
    """

    TYPE: ClassVar[str] = "flag_dw"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "enable": Operation("Switch it on. A disable that has not seen this wins."),
        # It wins over enables that it has not seen, so issuing it again undoes nothing more.
        "disable": Operation("Switch it off. This wins over concurrent enables.", additive=True),
        "reset": Operation("Forget all enables and disables seen. Concurrent ones survive."),
        "clear": Operation("The same as `reset`.", sent_as="reset"),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._enabled = False
        # If a stable disable has concurrent enables in the log, these lose.
        self._disabled = False

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "reset":
            return Arrival(EVERYTHING)
        return Arrival((None,), ((None, operation.name == "enable"),))

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._enabled = self._disabled = False

    def stabilise(self, entry: Entry) -> None:
        if not entry.content:
            self._disabled = True
        self._enabled = not self._disabled
        if not self.log:
            self._disabled = False

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return self.without_overwritten(operations)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """`enable` is issued again unless the flag was on, or may have been, and a disable has followed."""
        if operation[0] == "enable":
            return [operation] if present.value or former.remembered is False else []
        return super().rebase_blind(operation, present, former)

    def remember(self, operation: list[Any]) -> Any:
        """Whether the flag was on before `enable`."""
        return self.value if operation[0] == "enable" else None

    @property
    def value(self) -> bool:
        if self._disabled:
            return False
        entries = self.log.in_slot(None)
        return all(entry.content for entry in entries) and (bool(entries) or self._enabled)

    @property
    def blank(self) -> bool:
        return not self.value

    @property
    def slight(self) -> bool:
        return True

    def dump_stable(self) -> Any:
        """None stands for a stable disable, which keeps the flag off while the log has entries."""
        return None if self._disabled else self._enabled

    def load_stable(self, dumped: Any, version: int) -> None:
        self._disabled = dumped is None
        self._enabled = not self._disabled and _boolean(dumped)


def _boolean(dumped: Any) -> bool:
    if type(dumped) is not bool:
        raise ValueError(f"{shown(dumped)} is not a boolean")
    return dumped
