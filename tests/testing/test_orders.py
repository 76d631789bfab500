"""Every causal order of small cases: all are made, and a fault in any of them is found."""

from collections.abc import Sequence
from typing import Any

import pytest

from crdtcast.datatypes import Arrived, AWSet, Entry, ResettableCounter
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import VisibleOperation, check_every_order
from crdtcast.testing.orders import OrderPlace, shapes

CALLS = [("add", "x"), ("add", "y"), ("remove", "x"), ("reset",)]


def add_wins(visible: Sequence[VisibleOperation]) -> set[str]:
    return {
        add.args[0]
        for add in visible
        if add.name == "add"
        and not any(
            add < other
            and (other.name == "reset" or (other.name == "remove" and other.args == add.args))
            for other in visible
        )
    }


def worth(visible: Sequence[VisibleOperation]) -> int:
    resets = [reset for reset in visible if reset.name == "reset"]
    return sum(
        delta.args[0]
        for delta in visible
        if delta.name == "increment" and not any(delta < reset for reset in resets)
    )


def test_all_histories_of_two_messages() -> None:
    apart, seen = frozenset[int](), frozenset({0})
    assert list(shapes(2, 3)) == [
        [OrderPlace(0, apart), OrderPlace(1, apart)],
        [OrderPlace(0, apart), OrderPlace(0, seen)],
        [OrderPlace(0, apart), OrderPlace(1, seen)],
    ]
    assert len(list(shapes(2, 1))) == 1
    # Three of one member, in a row, are one; a fourth member is not needed for three messages.
    assert len(list(shapes(3, 1))) == 1
    assert list(shapes(3, 3)) == list(shapes(3, 4))


def test_our_types_hold_in_every_order() -> None:
    ran = check_every_order(AWSet, [("add", "x"), ("remove", "x"), ("reset",)], add_wins)
    assert ran.refused == 0
    assert ran.histories == 3 + 3 * 3**2 + len(list(shapes(3, 3))) * 3**3
    assert ran.runs > ran.histories
    check_every_order(ResettableCounter, [("increment", 1), ("increment", 2), ("reset",)], worth)


class RemoveWins(AWSet):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class ForgetsConcurrency(ResettableCounter):
    """A delta folded too early: it is lost to a reset that has not seen it."""

    def effect(
        self, operation: Sequence[Any], tag: Any, index: int = 0, version: int | None = None
    ) -> None:
        super().effect(operation, tag, index)
        self.stable(tag)


class KeepsLog(AWSet):
    def stable(self, tag: Any) -> None:
        pass


class LastArrivalWins(AWSet):
    """A removal that came before, but arrives later, does not exist; one that arrives later does."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return new.name == "reset" or super().obsolete(old, new)


@pytest.mark.parametrize("mutant", [RemoveWins, KeepsLog, LastArrivalWins])
def test_a_wrong_set_is_caught_by_a_shortest_history(mutant: type[AWSet]) -> None:
    with pytest.raises(AssertionError) as caught:
        check_every_order(mutant, CALLS, add_wins)
    steps = caught.value.__notes__[0]
    assert steps.startswith(f"{mutant.__name__}, steps taken:\n   1 a issues add('x') as a:1, has")
    assert steps.count("issues") == (1 if mutant is KeepsLog else 2)


def test_a_delta_that_is_folded_too_early_is_caught() -> None:
    with pytest.raises(AssertionError, match="value is 0, but should be 1"):
        check_every_order(ForgetsConcurrency, [("increment", 1), ("reset",)], worth, operations=2)


def test_a_refused_operation_ends_its_history() -> None:
    class NeverTwice(AWSet):
        def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
            if args[0] in self:
                raise InvalidOperationError("it is there")

    ran = check_every_order(NeverTwice, [("add", "x")], add_wins, operations=2)
    assert (ran.histories, ran.refused) == (2, 2)


def test_an_error_of_the_type_comes_with_the_steps() -> None:
    class Crashes(AWSet):
        def stabilise(self, entry: Entry) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        check_every_order(Crashes, CALLS, add_wins)
    assert caught.value.__notes__[0].endswith("3 a:1 becomes stable there")
