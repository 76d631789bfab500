"""Number and SortedMap against their specifications, and mutations that the harness must catch."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.datatypes import Arrival, Arrived, Entry, Number, SortedMap
from crdtcast.datatypes.canonical import plain
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import Group, VisibleOperation, check_crdt, weighted
from crdtcast.testing.model_group import Call
from tests.datatypes.cases import Case
from tests.effort import examples

amounts = st.sampled_from([1, 2, -3, "0.1", 1e16, Decimal("1e-20"), 2**63])
number_operations = weighted(
    (4, st.tuples(st.just("increment"), amounts)),
    (4, st.tuples(st.just("set"), amounts)),
    (2, st.sampled_from([("remove",), ("reset",), ("increment",)])),
)
members = st.sampled_from(["x", "x", "y", 1])
map_operations = weighted(
    (4, st.tuples(st.just("increment"), members, amounts)),
    (4, st.tuples(st.just("set"), members, st.one_of(amounts, st.just(float("inf"))))),
    (3, st.tuples(st.just("remove"), members)),
    (1, st.just(("reset",))),
)

Count = Fraction | float


def read(spelt: str) -> Count:
    return float("inf") if spelt == "Infinity" else Fraction(spelt)


def worth(visible: Sequence[VisibleOperation], slot: Sequence[Any]) -> Count | None:
    """Last assignment that nothing removed or replaced, plus the increments that nothing did."""

    def about(operation: VisibleOperation) -> bool:
        return operation.name == "reset" or list(operation.args[: len(slot)]) == list(slot)

    alive = [
        operation
        for operation in visible
        if operation.name in ("set", "increment") and about(operation)
        if not any(
            operation < other and about(other) and other.name != "increment" for other in visible
        )
    ]
    if not alive:
        return None
    assignments = [
        (set_.args[-1], set_.tag.dot, set_.index, set_.args[-2])
        for set_ in alive
        if set_.name == "set"
    ]
    base = read(max(assignments)[-1]) if assignments else Fraction(0)
    return base + sum(
        (Fraction(delta.args[-1]) for delta in alive if delta.name == "increment"), Fraction(0)
    )


def exactly(count: Count) -> Decimal:
    if isinstance(count, float):
        return Decimal(count)
    return Decimal(f"{count.numerator * 10**40 // count.denominator}e-40")


def last_assignment_and_increments(visible: Sequence[VisibleOperation]) -> Decimal | None:
    count = worth(visible, ())
    return None if count is None else exactly(count)


def by_score(visible: Sequence[VisibleOperation]) -> list[tuple[Any, Decimal]]:
    named = {operation.args[0] for operation in visible if operation.name != "reset"}
    counts = {member: worth(visible, (member,)) for member in named}
    scored = {member: count for member, count in counts.items() if count is not None}

    def key(member: Any) -> tuple[Count, bool, Any]:
        return scored[member], isinstance(member, str), member

    return [(member, exactly(scored[member])) for member in sorted(scored, key=key)]


CASES = [
    Case(
        Number,
        number_operations,
        last_assignment_and_increments,
        [("set", 1), ("increment", 2), ("remove",)],
    ),
    Case(
        SortedMap,
        map_operations,
        by_score,
        [("set", "x", 1), ("increment", "x", 2), ("remove", "x"), ("reset",)],
    ),
]


class KillsWhatIsConcurrent(Number):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class KeepsStableOnSet(Number):
    """An assignment adds to what was stable."""

    def clear_stable(self, slot: Any) -> None:
        if len(self.log):
            super().clear_stable(slot)


class LastArrivalWins(Number):
    def worth(self, entries: Any) -> Decimal | None:
        assignments = [entry for entry in entries if len(entry.content) == 2]
        return super().worth(
            [entry for entry in entries if entry not in assignments] + assignments[-1:]
        )


class DropsTheLoser(Number):
    """Of two concurrent assignments the earlier is forgotten on arrival."""

    def entered(self, entry: Entry) -> None:
        super().entered(entry)
        assignments = [each for each in self.log.in_slot(None) if len(each.content) == 2]
        for loser in sorted(assignments, key=lambda each: each.content[1])[:-1]:
            self.log.discard(loser)


class SetWithoutItsKill(Number):
    def arrival(self, operation: Arrived) -> Arrival:
        arrival = super().arrival(operation)
        return Arrival((), arrival.leaves) if operation.name == "set" else arrival


class RecountsAtStability(Number):
    """The number is recomputed from the log, which has just lost an entry."""

    def stabilise(self, entry: Entry) -> None:
        if len(self.log):
            self._recount(None)


class FoldsAtDelivery(Number):
    def redundant(self, new: Entry) -> bool:
        if len(new.content) == 1:
            self.entered(new)
            return True
        return False


class RoundsAtStability(Number):
    """What only a longer number could say is dropped when an operation is stable."""

    def stabilise(self, entry: Entry) -> None:
        if self.value is not None:
            self.show(None, Decimal(repr(float(self.value))))


@pytest.mark.parametrize(
    "mutant",
    [
        KillsWhatIsConcurrent,
        KeepsStableOnSet,
        pytest.param(LastArrivalWins, marks=pytest.mark.slow),
        pytest.param(DropsTheLoser, marks=pytest.mark.slow),
        SetWithoutItsKill,
        RecountsAtStability,
        FoldsAtDelivery,
        pytest.param(RoundsAtStability, marks=pytest.mark.slow),
    ],
)
def test_the_harness_catches(mutant: type[Number]) -> None:
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(
            mutant,
            number_operations,
            last_assignment_and_increments,
            examples=2000,
            seed=2,
            shrink=False,
        )


class RemovesConcurrentMembers(SortedMap):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class KeepsPlaceInOrder(SortedMap):
    """A member with a new score stays where it was."""

    def show(self, slot: Any, number: Decimal | None) -> None:
        if slot in self._numbers and number is not None:
            self._numbers[slot] = number
        else:
            super().show(slot, number)


class ResetForgetsOneSlot(SortedMap):
    def clear_stable(self, slot: Any) -> None:
        super().clear_stable("x" if type(slot) not in (str, int) else slot)


class ScoresAreDoubles(SortedMap):
    def show(self, slot: Any, number: Decimal | None) -> None:
        super().show(slot, None if number is None else Decimal(repr(float(number))))


@pytest.mark.parametrize(
    "mutant", [RemovesConcurrentMembers, KeepsPlaceInOrder, ResetForgetsOneSlot, ScoresAreDoubles]
)
def test_the_harness_catches_in_the_sorted_map(mutant: type[SortedMap]) -> None:
    with pytest.raises((AssertionError, IndexError)) as caught:
        check_crdt(mutant, map_operations, by_score, examples=2000, seed=2, shrink=False)
    assert any(mutant.__name__ in note for note in caught.value.__notes__)


def test_loser_reappears_if_a_removal_saw_only_the_winner() -> None:
    group = Group(Number, 3)
    a, b, c = group.members
    loser = group.issue(b, [Call("set", 7)])
    winner = group.issue(a, [Call("set", 4), Call("set", 5)])
    group.deliver(c, winner)
    removal = group.issue(c, [Call("remove")])
    group.deliver(b, winner)
    assert b.crdt.value == 5
    group.deliver(b, removal)
    group.deliver(c, loser)
    assert b.crdt.value == c.crdt.value == 7


@pytest.mark.parametrize(
    "wrong",
    [float("nan"), Decimal("sNaN"), "0x10", "1_000", "", "1e500", "1e-500", "9" * 41, True, None],
)
def test_invalid_number_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOperationError):
        Number().prepare("increment", wrong)


def test_an_infinity_is_a_score_but_no_increment() -> None:
    group = Group(SortedMap, 1)
    (only,) = group.members
    group.issue(only, [Call("set", "x", float("-inf")), Call("set", "y", 2), Call("set", 3, 2)])
    group.issue(only, [Call("increment", "x", 5)])
    assert only.crdt.value == [("x", Decimal("-inf")), (3, 2), ("y", 2)]
    with pytest.raises(InvalidOperationError):
        only.crdt.prepare("increment", "y", float("inf"))
    with pytest.raises(InvalidOperationError):
        Number().prepare("set", "Infinity")


@settings(max_examples=examples(200))
@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
    )
)
def test_number_arrives_unchanged(number: Decimal) -> None:
    (_, spelt) = Number().prepare("increment", number)
    assert Decimal(spelt) == number
    assert spelt == plain(number) == Number().prepare("increment", spelt)[1]


@pytest.mark.parametrize("crdt", [Number, SortedMap])
def test_compressed_operations_have_the_same_effect(crdt: type[Any]) -> None:
    slot = () if crdt is Number else ("x",)
    calls = [
        Call("increment", *slot, 5),
        Call("set", *slot, 2),
        Call("increment", *slot, "0.5"),
        Call("increment", *slot, 1),
    ]
    group = Group(crdt, 1)
    (only,) = group.members
    message = group.issue(only, calls)
    compressed = only.crdt.compress(message.operations())
    assert [operation[0] for operation in compressed] == ["set", "increment"]
    other = crdt()
    for index, operation in enumerate(compressed):
        other.effect(operation, message.tag, index)
    assert other == only.crdt


def test_rebased_increments_count_and_assignments_yield() -> None:
    group = Group(Number, 1)
    (only,) = group.members
    base = only.crdt.clone()
    increment = only.crdt.prepare("increment", 2)
    assignment = only.crdt.prepare("set", 9)
    assert Number.rebase(assignment, base, only.crdt) == [assignment]
    group.issue(only, [Call("set", 4)])
    assert Number.rebase(assignment, base, only.crdt) == []
    assert Number.rebase(increment, base, only.crdt) == [increment]


def test_ranks_of_many_members_are_those_of_a_sorted_list() -> None:
    group = Group(SortedMap, 1)
    (only,) = group.members
    calls = [Call("set", f"m{number}", (number * 7919) % 1009) for number in range(1009)]
    group.issue(only, calls)
    group.issue(only, [Call("increment", f"m{number}", number % 13) for number in range(900)])
    group.issue(only, [Call("remove", f"m{number}") for number in range(100, 800)])
    group.stabilise(only, group.can_stabilise(only))
    ranked: SortedMap = only.crdt
    kept = [number for number in range(1009) if not 100 <= number < 800]
    scores = {
        f"m{number}": (number * 7919) % 1009 + (number % 13 if number < 900 else 0)
        for number in kept
    }
    expected = sorted(scores, key=lambda member: (scores[member], member))
    assert [member for member, _ in ranked] == expected
    assert [ranked.rank(member) for member in expected] == list(range(len(expected)))
    assert [ranked.at(position)[0] for position in range(-len(expected), 0)] == expected
    assert ranked.rank("m100") is None and "m100" not in ranked and ranked.score("m99") is not None
    with pytest.raises(IndexError):
        ranked.at(len(expected))
