"""AWSet against its specification, and mutations of its rules that the harness must catch."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.datatypes import EVERYTHING, Arrival, Arrived, AWSet, Entry
from crdtcast.testing import VisibleOperation, check_crdt, weighted

elements = st.sampled_from(["x", "x", "x", 1])
operations = weighted(
    # Mostly single operations on one element: else rare conflicts stay rare.
    (12, st.tuples(st.sampled_from(["add", "remove"]), elements)),
    (1, st.tuples(st.just("add_all"), st.sets(elements))),
    (1, st.tuples(st.just("remove_all"), st.lists(elements))),
    (1, st.tuples(st.sampled_from(["reset", "clear"]))),
)


def added(operation: VisibleOperation) -> Sequence[Any]:
    if operation.name == "add":
        return operation.args
    return operation.args[0] if operation.name == "add_all" else ()


def removes(operation: VisibleOperation, element: Any) -> bool:
    if operation.name == "remove":
        return operation.args[0] == element
    return operation.name == "reset" or (
        operation.name == "remove_all" and element in operation.args[0]
    )


def add_wins(visible: Sequence[VisibleOperation]) -> set[Any]:
    """An element is in when some add of it came before no removal of it."""
    return {
        element
        for add in visible
        for element in added(add)
        if not any(add < other and removes(other, element) for other in visible)
    }


def test_add_wins_set_is_what_its_history_says() -> None:
    check_crdt(AWSet, operations, add_wins, examples=200)


def test_add_wins_set_of_five_replicas() -> None:
    check_crdt(AWSet, operations, add_wins, members=5, examples=60, actions=50, seed=1)


class RemoveWins(AWSet):
    """A removal also removes concurrent adds that are already here."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class ForgetsOrderInMessage(AWSet):
    """Operations of one message count as concurrent."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return old.tag < new.tag


class KeepsStableOnRemove(AWSet):
    def clear_stable(self, slot: Any) -> None:
        if slot is EVERYTHING:
            super().clear_stable(slot)


class KeepsStableOnReset(AWSet):
    def clear_stable(self, slot: Any) -> None:
        if slot is not EVERYTHING:
            super().clear_stable(slot)


class ClearsAllStableOnRemove(AWSet):
    """A removal of one element empties the stable part."""

    def clear_stable(self, slot: Any) -> None:
        super().clear_stable(EVERYTHING)


class FoldsAtDelivery(AWSet):
    """An add counts as stable at once."""

    def redundant(self, new: Entry) -> bool:
        self.stabilise(new)
        return True


class SecondAddIsRedundant(AWSet):
    """An add of what is present is dropped."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "add" and operation.args[0] in self:
            return Arrival()
        return super().arrival(operation)


class PresenceDropsAStableTwin(AWSet):
    """At stability of an add, a concurrent add of the element is dropped as well."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        for twin in list(self.log.in_slot(entry.slot)):
            self.log.discard(twin)


class ForgetsAtStability(AWSet):
    def stabilise(self, entry: Entry) -> None:
        pass


class SnapshotLosesStable(AWSet):
    def dump_stable(self) -> Any:
        return []


class DigestOfTheLog(AWSet):
    def digest(self) -> str:
        return f"{super().digest()}{self.log_size}"


@pytest.mark.parametrize(
    "mutant",
    [
        RemoveWins,
        ForgetsOrderInMessage,
        KeepsStableOnRemove,
        KeepsStableOnReset,
        ClearsAllStableOnRemove,
        FoldsAtDelivery,
        SecondAddIsRedundant,
        PresenceDropsAStableTwin,
        ForgetsAtStability,
        SnapshotLosesStable,
        DigestOfTheLog,
    ],
)
def test_the_harness_catches(mutant: type[AWSet]) -> None:
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, operations, add_wins, examples=2000, seed=2, shrink=False)


class SameRuleByScan(AWSet):
    """The default rule, written out: takes the scanning path for `reset`."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return old.before(new.tag, new.index)


def test_a_rule_of_ones_own_is_asked_about_every_entry() -> None:
    check_crdt(SameRuleByScan, operations, add_wins, examples=100)


def test_length_membership_and_iteration_agree_with_the_value() -> None:
    def contents(visible: Sequence[VisibleOperation]) -> list[Any]:
        expected = add_wins(visible)
        return [len(expected), expected, [element in expected for element in ("x", 1)]]

    class Contents(AWSet):
        @property
        def value(self) -> Any:
            listed = list(self)
            assert len(listed) == len(set(listed))
            return [len(self), set(listed), [element in self for element in ("x", 1)]]

    check_crdt(Contents, operations, contents, examples=100)
