"""Counters against their specifications, and mutations that the harness must catch."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.causality.hlc import HLC
from crdtcast.datatypes import (
    Arrival,
    Arrived,
    BoundedCounter,
    Entry,
    GCounter,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    Site,
)
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import Group, VisibleOperation, check_crdt
from crdtcast.testing.model_group import Call
from tests.datatypes import cases
from tests.datatypes.cases import Case, check_forgetting, not_forgotten
from tests.effort import examples, first_seed

amounts = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)]))
operations = st.one_of(
    st.tuples(st.just("increment"), amounts),
    st.tuples(st.just("decrement"), amounts),
    st.tuples(st.sampled_from(["increment", "decrement"])),
    st.just(("reset",)),
)


def observed_reset(visible: Sequence[VisibleOperation]) -> int:
    """The sum of the deltas that came before no reset."""
    sign = {"increment": 1, "decrement": -1}
    return sum(
        sign[delta.name] * delta.args[0]
        for delta in visible
        if delta.name in sign
        if not any(delta < other for other in visible if other.name == "reset")
    )


def test_counter_of_five_replicas() -> None:
    check_crdt(
        ResettableCounter,
        operations,
        observed_reset,
        members=5,
        examples=examples(60),
        actions=50,
        seed=first_seed(),
    )


class ResetForgetsConcurrency(ResettableCounter):
    """A reset zeroes whatever is here."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class ResetKeepsWhatIsUnstable(ResettableCounter):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return False


class ResetKeepsStable(ResettableCounter):
    def clear_stable(self, slot: Any) -> None:
        pass


class FoldsAtDelivery(ResettableCounter):
    """A delta goes into the sum at once."""

    def redundant(self, new: Entry) -> bool:
        self.stabilise(new)
        return True


class FoldsWithTheFirstStable(ResettableCounter):
    """When one delta is stable, all are folded: the others too early."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        for early in [other for other in self.log if other.tag != entry.tag]:
            self.log.discard(early)
            self.left(early)
            super().stabilise(early)


class AddsUpAcrossMessages(ResettableCounter):
    """A delta is merged into an unstable one of another message, which a reset may see alone."""

    def redundant(self, new: Entry) -> bool:
        for entry in self.log.in_slot(None):
            if abs(entry.content + new.content) < 2**63:
                entry.content += new.content
                self.entered(new)
                return True
        return False


class LosesDeltaAtStability(ResettableCounter):
    def stabilise(self, entry: Entry) -> None:
        pass


class ForgetsOrderInMessage(ResettableCounter):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return old.tag < new.tag


class DecrementIsIncrement(ResettableCounter):
    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "decrement":
            return Arrival(leaves=((None, operation.args[0]),))
        return super().arrival(operation)


@pytest.mark.parametrize(
    "mutant",
    [
        ResetForgetsConcurrency,
        ResetKeepsWhatIsUnstable,
        ResetKeepsStable,
        FoldsAtDelivery,
        FoldsWithTheFirstStable,
        AddsUpAcrossMessages,
        LosesDeltaAtStability,
        ForgetsOrderInMessage,
        DecrementIsIncrement,
    ],
)
def test_the_harness_catches(mutant: type[ResettableCounter]) -> None:
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, operations, observed_reset, examples=2000, seed=2, shrink=False)


def test_sum_beyond_64_bits_stays_exact_in_a_snapshot() -> None:
    group = Group(ResettableCounter, 1)
    (only,) = group.members
    for _ in range(3):
        group.issue(only, [Call("increment", 2**63 - 1)])
    group.stabilise(only, group.can_stabilise(only))
    restored = ResettableCounter.restore(only.crdt.snapshot())
    assert restored.value == only.crdt.value == 3 * (2**63 - 1)
    assert restored.log_size == 0


# Grow-only, PN and bounded.

growing = st.one_of(
    st.tuples(st.just("increment"), st.integers(0, 5) | st.just(2**63 - 1)),
    st.just(("increment",)),
)
deltas = st.one_of(
    st.tuples(st.sampled_from(["increment", "decrement"]), amounts), st.just(("decrement",))
)
small = st.integers(1, 4)
spending = st.one_of(
    st.tuples(st.just("increment"), small),
    st.tuples(st.just("decrement"), small),
    st.tuples(st.just("transfer"), small, st.sampled_from(["a", "b", "c", "heir"])),
)


def rights(visible: Sequence[VisibleOperation]) -> dict[str, Any]:
    """Who made, spent, gave and got how much; without the resets of a container, nobody is below
    zero in any state.
    """
    owned: dict[str, int] = {}
    for operation in visible:
        amount, owner = operation.args[0], operation.args[-1]
        owned[owner] = owned.get(owner, 0) + (amount if operation.name == "increment" else -amount)
        if operation.name == "transfer":
            to = operation.args[1]
            owned[to] = owned.get(to, 0) + amount
    return {"total": sum(owned.values()), "rights": owned}


def rights_never_below_zero(visible: Sequence[VisibleOperation]) -> dict[str, Any]:
    expected = rights(visible)
    assert min(expected["rights"].values(), default=0) >= 0, expected
    return expected


def rights_not_forgotten(visible: Sequence[VisibleOperation]) -> dict[str, Any]:
    return rights(not_forgotten(visible))


UP_AND_DOWN = [("increment", 1), ("decrement", 2)]
CASES = [
    Case(GCounter, growing, observed_reset, [("increment", 1), ("increment", 2)]),
    Case(PNCounter, deltas, observed_reset, UP_AND_DOWN),
    Case(ResettableCounter, operations, observed_reset, [*UP_AND_DOWN, ("reset",)]),
    Case(
        BoundedCounter,
        spending,
        rights_never_below_zero,
        [("increment", 3), *UP_AND_DOWN[1:], ("transfer", 1, "b")],
        rights_not_forgotten,
    ),
]


class GrowKeepsTheGreatest(GCounter):
    """Of two deltas of one slot, the greater."""

    def stabilise(self, entry: Entry) -> None:
        self._stable = max(self._stable, entry.content)


class GrowCountsTwice(GCounter):
    """A delta counts at delivery, and again when it is stable."""

    def left(self, entry: Entry) -> None:
        pass


class GrowCompressesToTheLast(GCounter):
    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return list(operations[-1:])


class GrowWraps(GCounter):
    def stabilise(self, entry: Entry) -> None:
        self._stable = (self._stable + entry.content) % 2**63


class DeltasReplace(PNCounter):
    """A delta replaces those that it has seen."""

    def arrival(self, operation: Arrived) -> Arrival:
        return Arrival((None,), super().arrival(operation).leaves)


class CompressionForgetsTheSign(PNCounter):
    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return super().compress([["increment", amount] for _, amount in operations])


class StabilityDropsDecrements(PNCounter):
    def stabilise(self, entry: Entry) -> None:
        self._stable += max(0, entry.content)


class AnybodySpendsAll(BoundedCounter):
    """The value allows it, so anybody may."""

    def rights(self, owner: str) -> int:
        return self.total

    @property
    def value(self) -> dict[str, Any]:
        owners = {*self._stable, *self._unstable}
        held = {one: super(AnybodySpendsAll, self).rights(one) for one in owners}
        return {"total": self.total, "rights": held}


class TransferMakesRights(BoundedCounter):
    """The giver keeps what he gave."""

    def arrival(self, operation: Arrived) -> Arrival:
        leaves = list(super().arrival(operation).leaves)
        return Arrival(leaves=leaves[-1:])


class BatchSpendsTwice(BoundedCounter):
    """Rights are looked up without the operations that go before in the same message."""

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        super().permit(name, args, ())


class TransfersAreNotPermitted(BoundedCounter):
    """Refused at the source, but only decrements."""

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        if name == "decrement":
            super().permit(name, args, after)


class CompressionMixesOwners(BoundedCounter):
    """What one gives to several in one message goes to the first."""

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        first: dict[str, list[Any]] = {}
        named = [first.setdefault(each[0], each[2:]) for each in operations]
        return [[*each[:2], *to] for each, to in zip(operations, named, strict=True)]


class StabilityLosesTheGift(BoundedCounter):
    """Of a stable transfer only the giver's part is kept."""

    def stabilise(self, entry: Entry) -> None:
        if entry.content < 0 or entry.slot == entry.tag.dot.origin:
            super().stabilise(entry)


@pytest.mark.parametrize(
    "mutant",
    [
        GrowKeepsTheGreatest,
        GrowCountsTwice,
        pytest.param(GrowCompressesToTheLast, marks=pytest.mark.slow),  # rare: costs seconds
        GrowWraps,
        DeltasReplace,
        CompressionForgetsTheSign,
        StabilityDropsDecrements,
        AnybodySpendsAll,
        TransferMakesRights,
        pytest.param(BatchSpendsTwice, marks=pytest.mark.slow),  # rare: costs seconds
        TransfersAreNotPermitted,
        pytest.param(CompressionMixesOwners, marks=pytest.mark.slow),  # rare: costs seconds
        StabilityLosesTheGift,
    ],
)
def test_the_harness_catches_in_the_other_counters(mutant: type[PureOpCRDT[Any]]) -> None:
    case = cases.of(mutant, CASES)
    with pytest.raises(AssertionError) as failure:
        check_crdt(mutant, case.operations, case.specification, examples=2000, seed=2, shrink=False)
    assert f"{mutant.__name__} failed with seed=2" in failure.value.__notes__


def test_container_reset_detects_a_counter_folded_at_delivery() -> None:
    class Folds(GCounter):
        def redundant(self, new: Entry) -> bool:
            self.stabilise(new)
            return True

    with pytest.raises(AssertionError, match="Folds"):
        check_forgetting(cases.of(Folds, CASES)._replace(crdt=Folds), examples=2000, shrink=False)


def test_without_rights_an_operation_is_refused_at_its_source() -> None:
    group = Group(BoundedCounter, 2)
    ann, bob = group.members
    group.issue(ann, [Call("increment", 10)])
    group.deliver_all()
    assert bob.crdt.total == 10
    with pytest.raises(InvalidOperationError, match="'b' has 0 of 10 rights, and 1 are needed"):
        bob.crdt.prepare("decrement")
    group.issue(ann, [Call("transfer", 4, "b"), Call("decrement", 6)])
    with pytest.raises(InvalidOperationError, match="'a' has 0 of"):
        ann.crdt.prepare("transfer", 1, "b")
    group.deliver_all()
    first = bob.crdt.prepare("decrement", 3)
    with pytest.raises(InvalidOperationError, match="1 of 4 rights, and 2 are needed"):
        bob.crdt.prepare("decrement", 2, after=[first])
    assert first == ["decrement", 3, "b"]
    assert bob.crdt.rights("b") == 4
    with pytest.raises(InvalidOperationError, match="0 is not positive"):
        bob.crdt.prepare("increment", 0)
    with pytest.raises(InvalidOperationError, match="set `site`"):
        BoundedCounter().prepare("increment")


def test_successor_reissues_what_its_predecessor_spent() -> None:
    """What an evicted owner spent is spent with the owner's rights, by whatever id it returns."""
    group = Group(BoundedCounter, 2)
    ann, bob = group.members
    group.issue(ann, [Call("increment", 10), Call("transfer", 4, "b")])
    group.deliver_all()
    base = ann.crdt.clone()
    lost = ann.crdt.prepare("decrement", 6)
    group.issue(bob, [Call("decrement", 4)])
    (again,) = BoundedCounter.rebase(lost, base, bob.crdt)
    assert again == ["decrement", 6, "a"]
    bob.crdt.site = Site("successor", HLC(lambda: 0))
    group.issue(bob, [])
    bob.crdt.effect(again, group.issue(bob, []).tag)
    assert bob.crdt.value == {"total": 0, "rights": {"a": 0, "b": 0}}


def test_deltas_of_a_message_are_summed_within_64_bits() -> None:
    counter = ResettableCounter()
    assert counter.compress(
        [["increment", 5], ["reset"], ["increment", 2], ["decrement", 3], ["increment", 4]]
    ) == [["reset"], ["increment", 3]]
    top = 2**63 - 1
    assert counter.compress([["increment", top], ["increment", 1]]) == [
        ["increment", top],
        ["increment", 1],
    ]
    assert counter.compress([["decrement", -(2**63)]]) == [["decrement", -(2**63)]]


def test_amounts_of_a_message_are_summed_by_owners() -> None:
    top = 2**63 - 1
    counter = BoundedCounter()
    given = [
        ["increment", 5, "a"],
        ["transfer", 1, "b", "a"],
        ["increment", 2, "a"],
        ["decrement", 3, "a"],
        ["transfer", 2, "c", "a"],
        ["transfer", 1, "b", "a"],
        ["decrement", 1, "a"],
    ]
    kept = [list(operation) for operation in given]
    assert counter.compress(given) == [
        ["increment", 7, "a"],
        ["transfer", 2, "b", "a"],
        ["decrement", 4, "a"],
        ["transfer", 2, "c", "a"],
    ]
    assert given == kept
    wide = [["increment", top, "a"], ["increment", 1, "a"], ["increment", 2, "a"]]
    assert counter.compress(wide) == [["increment", top, "a"], ["increment", 3, "a"]]
