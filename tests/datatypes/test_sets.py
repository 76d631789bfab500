"""Sets against their specifications, and mutations of their rules that the harness must catch."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.datatypes import (
    EVERYTHING,
    Arrival,
    Arrived,
    AWSet,
    Entry,
    GSet,
    PureOpCRDT,
    RWSet,
    TwoPhaseSet,
)
from crdtcast.testing import VisibleOperation, check_crdt, weighted
from tests.datatypes import cases
from tests.datatypes.cases import Case, check_forgetting
from tests.effort import examples, first_seed

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


def test_add_wins_set_of_five_replicas() -> None:
    check_crdt(
        AWSet,
        operations,
        add_wins,
        members=5,
        examples=examples(60),
        actions=50,
        seed=first_seed(),
    )


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
        pytest.param(PresenceDropsAStableTwin, marks=pytest.mark.slow),  # rare: costs seconds
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


def test_custom_rule_is_applied_to_every_entry() -> None:
    check_crdt(SameRuleByScan, operations, add_wins, examples=examples(100), seed=first_seed())


# Grow-only, remove-wins and two-phase.

growing = weighted(
    (6, st.tuples(st.just("add"), elements)),
    (1, st.tuples(st.just("add_all"), st.sets(elements))),
)
without_reset = weighted(
    (12, st.tuples(st.sampled_from(["add", "remove"]), elements)),
    (1, st.tuples(st.sampled_from(["add_all", "remove_all"]), st.lists(elements))),
)


def removed(operation: VisibleOperation) -> Sequence[Any]:
    if operation.name == "remove":
        return operation.args
    return operation.args[0] if operation.name == "remove_all" else ()


def grow_only(visible: Sequence[VisibleOperation]) -> set[Any]:
    return {element for operation in visible for element in added(operation)}


def two_phase(visible: Sequence[VisibleOperation]) -> set[Any]:
    """Added, and never removed by anybody."""
    return grow_only(visible) - {gone for operation in visible for gone in removed(operation)}


def remove_wins(visible: Sequence[VisibleOperation]) -> set[Any]:
    """Of what no reset came after: added, and each removal is before some add."""
    resets = [operation for operation in visible if operation.name == "reset"]
    counts = [one for one in visible if not any(one < reset for reset in resets)]
    return {
        element
        for element in grow_only(counts)
        if all(
            any(removal < add and element in added(add) for add in counts)
            for removal in counts
            if element in removed(removal)
        )
    }


ON_X = [("add", "x"), ("remove", "x")]
CASES = [
    Case(GSet, growing, grow_only, [("add", "x"), ("add", "y"), ("add_all", ["x", "y"])]),
    Case(AWSet, operations, add_wins, [*ON_X, ("reset",)]),
    Case(RWSet, operations, remove_wins, [*ON_X, ("reset",)]),
    Case(TwoPhaseSet, without_reset, two_phase, [*ON_X, ("add", "y")]),
]


def checked_length(crdt: type[PureOpCRDT[Any]]) -> type[PureOpCRDT[Any]]:
    """The type with a value that has been compared with its length, membership and iteration."""

    class Compared(crdt):  # type: ignore[misc, valid-type]
        @property
        def value(self) -> Any:
            listed = list(self)
            assert len(listed) == len(set(listed)) == len(self)
            assert [element in self for element in ("x", 1, "never")] == [
                element in listed for element in ("x", 1, "never")
            ]
            return set(listed)

    return Compared


@pytest.mark.parametrize("case", CASES, ids=[case.crdt.__name__ for case in CASES])
def test_a_sets_length_membership_and_iteration_agree(case: Case) -> None:
    crdt = checked_length(case.crdt)
    check_crdt(crdt, case.operations, case.specification, examples=examples(15), seed=first_seed())


class GrowFoldsAtDelivery(GSet):
    """Right but for a reset by a container: caught by the forgetting one only."""

    def redundant(self, new: Entry) -> bool:
        self.stabilise(new)
        return True


class GrowForgetsAtStability(GSet):
    def stabilise(self, entry: Entry) -> None:
        pass


class GrowTakesOneOfMany(GSet):
    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "add_all":
            return Arrival(leaves=[(member, None) for member in operation.args[0][:1]])
        return super().arrival(operation)


class GrowClearsEverything(GSet):
    """An add replaces whatever came before, as in a register."""

    def arrival(self, operation: Arrived) -> Arrival:
        return Arrival(EVERYTHING, super().arrival(operation).leaves)


class GrowCompressesToTheLast(GSet):
    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return list(operations[-1:])


class AddWinsInstead(RWSet):
    """A removal leaves nothing, so a concurrent add that comes later wins."""

    def arrival(self, operation: Arrived) -> Arrival:
        clears, leaves = super().arrival(operation)
        return Arrival(clears, [(slot, adds) for slot, adds in leaves if adds])


class RemovalForgottenAtStability(RWSet):
    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        self._removed.clear()


class RemovalKeptForEver(RWSet):
    """A stable removal is not forgotten when nothing concurrent is left."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        if not entry.content:
            self._removed.add(entry.slot)  # type: ignore[arg-type]

    def clear_stable(self, slot: Any) -> None:
        if slot is not EVERYTHING:
            self._stable.discard(slot)


class StableAddOutlivesARemoval(RWSet):
    def stabilise(self, entry: Entry) -> None:
        if entry.content:
            super().stabilise(entry)


class RemoveWinsOverLaterAdds(RWSet):
    """An add does not cancel the removals that it has seen."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return super().obsolete(old, new) and (old.content or new.name == "reset")


class TwoPhaseWithAWayBack(TwoPhaseSet):
    """An add cancels a removal that it has seen."""

    def arrival(self, operation: Arrived) -> Arrival:
        clears, leaves = super().arrival(operation)
        return Arrival([(slot[0], flag) for slot in clears for flag in (False, True)], leaves)  # type: ignore[union-attr]


class TwoPhaseRemovesWhatItSaw(TwoPhaseSet):
    """An add that is concurrent with a removal counts once that is stable."""

    def stabilise(self, entry: Entry) -> None:
        member, removed = entry.slot  # type: ignore[misc]
        if removed:
            self._stable.discard(member)
        else:
            self._stable.add(member)


class TwoPhaseStableAddStays(TwoPhaseSet):
    """A removal does not take back an add that is stable."""

    @property
    def value(self) -> frozenset[Any]:
        return frozenset([*self._stable, *super().value])


class TwoPhaseDropsTombstonesInSnapshots(TwoPhaseSet):
    def dump_stable(self) -> Any:
        return [super().dump_stable()[0], []]


@pytest.mark.parametrize(
    "mutant",
    [
        GrowForgetsAtStability,
        pytest.param(GrowTakesOneOfMany, marks=pytest.mark.slow),  # rare: costs seconds
        GrowClearsEverything,
        pytest.param(GrowCompressesToTheLast, marks=pytest.mark.slow),  # rare: costs seconds
        AddWinsInstead,
        RemovalForgottenAtStability,
        RemovalKeptForEver,
        StableAddOutlivesARemoval,
        RemoveWinsOverLaterAdds,
        TwoPhaseWithAWayBack,
        TwoPhaseRemovesWhatItSaw,
        TwoPhaseStableAddStays,
        TwoPhaseDropsTombstonesInSnapshots,
    ],
)
def test_the_harness_catches_in_the_other_sets(mutant: type[PureOpCRDT[Any]]) -> None:
    case = cases.of(mutant, CASES)
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, case.operations, case.specification, examples=2000, seed=2, shrink=False)


def test_container_reset_detects_a_set_folded_at_delivery() -> None:
    case = cases.of(GSet, CASES)._replace(crdt=GrowFoldsAtDelivery)
    with pytest.raises(AssertionError, match="GrowFoldsAtDelivery"):
        check_forgetting(case, examples=2000, shrink=False)
