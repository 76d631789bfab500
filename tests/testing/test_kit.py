"""The test kit itself: its group obeys causality, its failures can be read and repeated."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.vendor.pretty import RepresentationPrinter

import crdtcast.testing
from crdtcast.datatypes import Arrived, AWSet, Entry
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import (
    Call,
    Group,
    VisibleOperation,
    check_crdt,
    check_every_order,
    run_schedule,
)
from crdtcast.testing.schedules import Deliver, Issue, Restart, Schedule, Stabilise, schedules


def test_message_is_deliverable_after_its_causal_past() -> None:
    group = Group(AWSet, 3)
    a, b, c = group.members
    first = group.issue(a, [Call("add", "x")])
    group.deliver(b, first)
    second = group.issue(b, [Call("remove", "x")])
    assert group.deliverable(c) == [first]
    group.deliver(c, first)
    assert group.deliverable(c) == [second]
    assert group.deliverable(a) == [second]
    assert group.deliverable(b) == []


def test_stable_means_no_concurrent_message_can_arrive() -> None:
    group = Group(AWSet, 3)
    a, b, c = group.members
    first = group.issue(a, [Call("add", "x")])
    concurrent = group.issue(b, [Call("add", "y")])
    for member in (b, c):
        group.deliver(member, first)
    group.deliver(c, concurrent)
    # Everybody has `first`, but `concurrent` is still on its way to a.
    assert group.can_stabilise(a) == []
    assert group.can_stabilise(b) == group.can_stabilise(c) == [first]
    group.deliver(a, concurrent)
    assert group.can_stabilise(a) == [first, concurrent]
    group.stabilise(a, [first])
    assert group.can_stabilise(a) == [concurrent]


def test_a_refused_call_sends_nothing_of_its_message() -> None:
    group = Group(AWSet, 2)
    a, b = group.members
    with pytest.raises(InvalidOperationError):
        group.issue(a, [Call("add", "x"), Call("add", 1.5)])
    assert a.crdt.value == frozenset()
    assert group.deliverable(b) == []


class RemoveWins(AWSet):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class Crashes(AWSet):
    def stabilise(self, entry: Entry) -> None:
        raise ZeroDivisionError


class PreparesWithSideEffects(AWSet):
    def permit(self, name: str, args: Sequence[Any], after: Sequence[Any]) -> None:
        self._stable.add("prepared")


class DigestForgets(AWSet):
    def digest(self) -> str:
        return ""


class KeepsLog(AWSet):
    def stable(self, tag: Any) -> None:
        pass


operations = st.tuples(st.sampled_from(["add", "remove"]), st.just("x"))


def add_wins(visible: Sequence[VisibleOperation]) -> set[str]:
    adds = [add for add in visible if add.name == "add"]
    removes = [remove for remove in visible if remove.name == "remove"]
    return {"x" for add in adds if not any(add < remove for remove in removes)}


def failure_of(crdt: type[AWSet], **options: Any) -> Exception:
    with pytest.raises((AssertionError, ZeroDivisionError)) as caught:
        check_crdt(crdt, operations, add_wins, **options)
    error = caught.value
    assert isinstance(error, Exception)
    return error


def test_a_failure_shrinks_to_the_shortest_schedule() -> None:
    failure = failure_of(RemoveWins, seed=7)
    steps, seed = failure.__notes__[:2]
    assert steps.splitlines()[0] == "RemoveWins, steps taken:"
    assert len(steps.splitlines()) == 4
    assert "issues add('x') as" in steps
    assert "issues remove('x') as" in steps
    assert seed == "RemoveWins failed with seed=7"


def test_hypothesis_shows_a_schedule_by_its_own_repr() -> None:
    """How each part of it was drawn took ten times as long to write as its failure to find."""

    @given(schedules(st.just(("add", "x"))))
    def holds(schedule: Schedule) -> None:
        printer = RepresentationPrinter(context=current_build_context())
        printer.pretty(schedule)
        assert printer.getvalue() == repr(schedule)

    holds()


def test_the_same_seed_gives_the_same_failure() -> None:
    notes = {"".join(failure_of(RemoveWins, seed=3, shrink=False).__notes__) for _ in range(2)}
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("mutant", "reason"),
    [
        (PreparesWithSideEffects, "changed the state of"),
        (DigestForgets, "has the same digest as for another value"),
        (KeepsLog, "keeps 1 log entries, although all operations are stable"),
    ],
)
def test_a_failure_says_what_is_wrong(mutant: type[AWSet], reason: str) -> None:
    assert reason in str(failure_of(mutant))


def test_an_error_that_the_type_raises_comes_with_the_steps() -> None:
    failure = failure_of(Crashes)
    assert isinstance(failure, ZeroDivisionError)
    assert "becomes stable at" in failure.__notes__[0]


def test_a_schedule_can_be_written_by_hand() -> None:
    schedule = Schedule(
        members=2,
        eager=False,
        actions=(
            Issue(0, (Call("add", "x"),)),
            Issue(0, (Call("add", 1.5),)),  # refused, so nothing happens
            Issue(1, (Call("remove", "x"), Call("add", "x"))),
            Deliver(1, 5),
            Stabilise(1, 1),
            Restart(1),
        ),
    )
    run_schedule(AWSet, schedule, add_wins)
    with pytest.raises(AssertionError, match="should have"):
        run_schedule(AWSet, schedule, lambda visible: set())


@pytest.mark.process
def test_the_kit_needs_hypothesis_only_for_what_uses_it() -> None:
    root = Path(crdtcast.testing.__file__).resolve().parents[2]
    code = "import sys, crdtcast.testing; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(root)}, check=True)
    assert all(hasattr(crdtcast.testing, name) for name in crdtcast.testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = crdtcast.testing.nothing


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("ad", "x"), "'ad' was refused each of the .* set_aw has no operation 'ad'"),
        (("add",), "'add' was refused each of the .* takes 1 argument"),
        ("add", "'a' was refused each of the .* set_aw has no operation 'a'"),
    ],
)
def test_check_fails_if_no_operation_is_ever_accepted(call: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_crdt(AWSet, st.just(call), add_wins, examples=5)
    with pytest.raises(AssertionError, match=reason):
        check_every_order(AWSet, [call], add_wins, operations=1)


def test_never_accepted_operation_is_found_among_others() -> None:
    wrong = st.one_of(operations, st.just(("reset", "x")))
    with pytest.raises(AssertionError, match="'reset' was refused each"):
        check_crdt(AWSet, wrong, add_wins, examples=60)


class GivesItsStateAway(AWSet):
    @property
    def value(self) -> Any:
        return self._stable if not self.log else super().value


def test_value_that_exposes_the_state_is_found() -> None:
    with pytest.raises(AssertionError, match="must return a copy"):
        check_crdt(GivesItsStateAway, operations, add_wins)


def test_a_type_without_a_name_is_refused_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match="TYPE is None"):

        class Nameless(AWSet):
            TYPE = None  # type: ignore[assignment]
