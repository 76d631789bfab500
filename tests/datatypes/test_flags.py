"""Flags against their specifications, and mutations that the harness must catch."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.datatypes import Arrival, Arrived, DWFlag, Entry, EWFlag, PureOpCRDT
from crdtcast.testing import VisibleOperation, check_crdt, weighted
from tests.datatypes import cases
from tests.datatypes.cases import Case

operations = weighted(
    (6, st.sampled_from([("enable",), ("disable",)])),
    (1, st.sampled_from([("reset",), ("clear",)])),
)


def enable_wins(visible: Sequence[VisibleOperation]) -> bool:
    """Some enable came before no disable."""
    return any(
        one.name == "enable"
        and not any(one < other for other in visible if other.name == "disable")
        for one in visible
    )


def disable_wins(visible: Sequence[VisibleOperation]) -> bool:
    """Of what no reset came after: there is an enable, and each disable is before some."""
    resets = [operation for operation in visible if operation.name == "reset"]
    counts = [one for one in visible if not any(one < reset for reset in resets)]
    enables = [operation for operation in counts if operation.name == "enable"]
    return bool(enables) and all(
        any(disable < enable for enable in enables)
        for disable in counts
        if disable.name == "disable"
    )


CALLS = [("enable",), ("disable",), ("reset",)]
CASES = [
    Case(EWFlag, operations, enable_wins, CALLS),
    Case(DWFlag, operations, disable_wins, CALLS),
]


class DisableWinsInstead(EWFlag):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class SecondEnableIsRedundant(EWFlag):
    """Enabling what is on is dropped, and does not survive a disable that missed it."""

    def redundant(self, new: Entry) -> bool:
        return self.value


class EnableFoldsAtDelivery(EWFlag):
    def redundant(self, new: Entry) -> bool:
        self.stabilise(new)
        return True


class StableEnableStays(EWFlag):
    def clear_stable(self, slot: Any) -> None:
        pass


class EnableWinsInstead(DWFlag):
    """A disable leaves nothing."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "disable":
            return Arrival((None,))
        return super().arrival(operation)


class DisableForgottenAtStability(DWFlag):
    """A concurrent enable that becomes stable later turns the flag on."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        self._disabled = False


class ResetDisables(DWFlag):
    """A reset also wins over concurrent enables."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "reset":
            return Arrival((None,), ((None, False),))
        return super().arrival(operation)


class StableEnableOutlivesADisable(DWFlag):
    def stabilise(self, entry: Entry) -> None:
        if entry.content:
            super().stabilise(entry)


@pytest.mark.parametrize(
    "mutant",
    [
        DisableWinsInstead,
        SecondEnableIsRedundant,
        EnableFoldsAtDelivery,
        StableEnableStays,
        EnableWinsInstead,
        DisableForgottenAtStability,
        ResetDisables,
        StableEnableOutlivesADisable,
    ],
)
def test_the_harness_catches(mutant: type[PureOpCRDT[Any]]) -> None:
    specification = cases.of(mutant, CASES).specification
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, operations, specification, examples=2000, seed=2, shrink=False)
