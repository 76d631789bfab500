"""ResettableCounter against its specification, and mutations that the harness must catch."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.datatypes import Arrival, Arrived, Entry, ResettableCounter
from crdtcast.testing import Group, VisibleOperation, check_crdt
from crdtcast.testing.group import Call

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


def test_counter_is_what_its_history_says() -> None:
    check_crdt(ResettableCounter, operations, observed_reset, examples=200)


def test_counter_of_five_replicas() -> None:
    check_crdt(
        ResettableCounter, operations, observed_reset, members=5, examples=60, actions=50, seed=1
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


def test_a_sum_beyond_64_bits_stays_exact_through_stability_and_snapshot() -> None:
    group = Group(ResettableCounter, 1)
    (only,) = group.members
    for _ in range(3):
        group.issue(only, [Call("increment", 2**63 - 1)])
    group.stabilise(only, group.can_stabilise(only))
    restored = ResettableCounter.restore(only.crdt.snapshot())
    assert restored.value == only.crdt.value == 3 * (2**63 - 1)
    assert restored.log_size == 0
