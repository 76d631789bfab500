"""What the base class gives every type: rebase, observers, the retained log, compression, shipping,
memory.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    EVERYTHING,
    Arrival,
    Arrived,
    AWSet,
    BoundedCounter,
    Change,
    DWFlag,
    EWFlag,
    GSet,
    LWWRegister,
    MVRegister,
    Operation,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    RWSet,
    Site,
    TwoPhaseSet,
    natural,
    positive,
)
from crdtcast.datatypes.canonical import canonical, rank
from crdtcast.exceptions import LocalProtocolError
from crdtcast.testing import Call, Group


def tag(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), past)


def holding(crdt: type[PureOpCRDT[Any]], *operations: list[Any]) -> Any:
    held = crdt()
    for number, operation in enumerate(operations, 1):
        held.effect(operation, tag("g", number, g=number - 1))
    return held


ADD_XY = ["add_all", ["x", "y"]]


@pytest.mark.parametrize(
    ("crdt", "base", "since", "operation", "issued"),
    [
        # Additive: out as they are, whatever the group has done.
        (AWSet, [ADD_XY], [["reset"]], ["add", "x"], [["add", "x"]]),
        (PNCounter, [], [["increment", 7]], ["decrement", 2], [["decrement", 2]]),
        (GSet, [], [["add", "y"]], ["add", "x"], [["add", "x"]]),
        (TwoPhaseSet, [ADD_XY], [["add", "z"]], ["remove", "x"], [["remove", "x"]]),
        (EWFlag, [], [["disable"]], ["enable"], [["enable"]]),
        # Removals element by element, and only of what is still there.
        (AWSet, [ADD_XY], [["add", "z"]], ["remove", "x"], [["remove_all", ["x"]]]),
        (AWSet, [ADD_XY], [["remove", "x"]], ["remove", "x"], []),
        (AWSet, [], [["add", "x"]], ["remove", "x"], []),
        (AWSet, [ADD_XY], [["add", "z"]], ["remove_all", ["x", "z"]], [["remove_all", ["x"]]]),
        (AWSet, [ADD_XY], [["add", "z"]], ["reset"], [["remove_all", ["x", "y"]]]),
        (AWSet, [ADD_XY], [], ["reset"], [["reset"]]),
        # Remove wins: a removal is as it was, an add yields to somebody's removal.
        (RWSet, [], [["add", "x"]], ["remove", "x"], [["remove", "x"]]),
        (RWSet, [ADD_XY], [["remove", "x"]], ["add_all", ["x", "y"]], [["add_all", ["y"]]]),
        (RWSet, [ADD_XY], [["remove", "x"]], ["add", "x"], []),
        (RWSet, [ADD_XY], [["add", "z"]], ["reset"], []),
        (DWFlag, [], [["enable"]], ["disable"], [["disable"]]),
        (DWFlag, [["enable"]], [["disable"]], ["enable"], []),
        (EWFlag, [["enable"]], [["disable"], ["enable"]], ["disable"], [["disable"]]),
        # Overwrites: only where theirs still is what base was.
        (MVRegister, [["assign", 1]], [["assign", 2]], ["assign", 3], []),
        (MVRegister, [["assign", 1]], [], ["assign", 3], [["assign", 3]]),
        (LWWRegister, [["assign", 1, 5]], [["assign", 2, 6]], ["assign", 3, 9], []),
        (LWWRegister, [["assign", 1, 5]], [], ["assign", 3, 9], [["assign", 3, 9]]),
        (ResettableCounter, [["increment", 5]], [["increment", 1]], ["reset"], []),
        (ResettableCounter, [["increment", 5]], [], ["reset"], [["reset"]]),
    ],
)
def test_an_operation_issued_again_keeps_its_meaning(
    crdt: type[PureOpCRDT[Any]], base: Any, since: Any, operation: Any, issued: Any
) -> None:
    at_home, theirs = holding(crdt, *base), holding(crdt, *base, *since)
    before = at_home.snapshot(), theirs.snapshot()
    assert crdt.rebase(operation, at_home, theirs) == issued
    assert (at_home.snapshot(), theirs.snapshot()) == before


def test_observer_gets_changes_until_it_stops() -> None:
    crdt, told = AWSet(), list[Change]()
    stop = crdt.observe(told.append)
    crdt.effect(["add_all", ["x", "y"]], tag("a", 1))
    crdt.stable(tag("a", 1))
    crdt.effect(["reset"], tag("a", 2, a=1))
    assert [(change.operation.name, change.slots) for change in told] == [
        ("add_all", ("x", "y")),
        ("reset", EVERYTHING),
    ]
    assert told[0].operation.tag == tag("a", 1)
    stop()
    stop()
    crdt.effect(["add", "z"], tag("a", 3, a=2))
    assert len(told) == 2


def test_observer_sees_the_new_state_and_may_stop_itself() -> None:
    crdt, seen = ResettableCounter(), list[int]()

    def once(change: Change) -> None:
        seen.append(crdt.value)
        stop()

    stop = crdt.observe(once)
    crdt.effect(["increment", 3], tag("a", 1))
    crdt.effect(["increment", 4], tag("a", 2, a=1))
    assert seen == [3]


class Lazy(AWSet):
    """Gives iterators, which can be read once."""

    def arrival(self, operation: Arrived) -> Arrival:
        clears, leaves = super().arrival(operation)
        return Arrival(clears if clears is EVERYTHING else iter(clears), iter(leaves))  # type: ignore[arg-type]


def test_iterators_of_an_arrival_are_read_once() -> None:
    crdt, told = Lazy(), list[Change]()
    crdt.observe(told.append)
    crdt.effect(["add", "x"], tag("a", 1))
    assert (crdt.value, told[0].slots) == ({"x"}, ("x",))
    assert crdt.compress([["add", "x"], ["remove", "x"]]) == [["remove", "x"]]


def test_past_state_is_available_within_the_retained_log() -> None:
    crdt = AWSet(retain=3)
    operations = [["add", "x"], ["add", "y"], ["remove", "x"], ["add", "z"], ["reset"]]
    for number, operation in enumerate(operations, 1):
        crdt.effect(operation, tag("a", number, a=number - 1))
        crdt.stable(tag("a", number))
    states = [crdt.clone(until={"a": number}).value for number in (2, 3, 4, 5)]
    assert states == [{"x", "y"}, {"y"}, {"y", "z"}, set()]
    assert crdt.clone(since={"a": 3}, until={"a": 4}).value == {"z"}
    with pytest.raises(LocalProtocolError, match="the last 3, after"):
        crdt.clone(until={"a": 1})
    with pytest.raises(LocalProtocolError, match="since="):
        crdt.clone(since={})
    with pytest.raises(LocalProtocolError, match="does not retain operations"):
        AWSet().clone(until={})
    with pytest.raises(ValueError, match="number of operations"):
        AWSet().retain(-1)


def test_a_clone_is_independent_and_lives_at_the_same_site() -> None:
    crdt = LWWRegister()
    crdt.site = Site("a", HLC(lambda: 5))
    crdt.effect(crdt.prepare("assign", "x"), tag("a", 1))
    copy = crdt.clone()
    copy.effect(copy.prepare("assign", "y"), tag("a", 2, a=1))
    assert (crdt.value, copy.value) == ("x", "y")


steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from("xyz")))


@given(steps, st.integers(1, 6), st.data())
def test_clone_at_a_cut_equals_the_state_at_that_cut(
    steps: list[tuple[int, int, str]], retain: int, draw: Any
) -> None:
    """Concurrency and early stability included: a cut is what some replica has seen."""
    group = Group(AWSet, 3)
    watched = group.members[0]
    watched.crdt.retain(retain)
    cuts = []
    for who, what, element in steps:
        member = group.members[who]
        if what == 0:
            group.issue(member, [Call("add", element)])
        elif what == 1:
            group.issue(member, [Call("remove", element)])
        elif what == 2:
            for ready in group.deliverable(member)[:1]:
                group.deliver(member, ready)
        else:
            group.stabilise(member, group.can_stabilise(member))
        if member is not watched:
            cuts.append((dict(member.vector), member.crdt.value))
    group.deliver_all()
    assert watched.crdt.clone(until=watched.vector) == watched.crdt
    for vector, value in cuts:
        try:
            assert watched.crdt.clone(until=vector).value == value
        except LocalProtocolError:
            continue


def test_retaining_can_begin_late() -> None:
    crdt = holding(AWSet, ["add", "x"])
    crdt.retain(5, {"g": 1})
    crdt.effect(["add", "y"], tag("g", 2, g=1))
    assert crdt.clone(until={"g": 1}).value == {"x"}
    assert crdt.clone(since={"g": 1}).value == {"y"}
    with pytest.raises(LocalProtocolError):
        crdt.clone(since={})


@pytest.mark.parametrize(
    ("crdt", "operations", "sent"),
    [
        (AWSet, [["add", "x"], ["add", "y"], ["remove", "x"]], [["add", "y"], ["remove", "x"]]),
        (AWSet, [["add", "x"], ["reset"], ["add", "y"]], [["reset"], ["add", "y"]]),
        (AWSet, [["add_all", ["x", "y"]], ["remove", "x"]], None),
        (GSet, [["add", "x"], ["add", "x"]], [["add", "x"]]),
        (RWSet, [["remove", "x"], ["add", "x"]], [["add", "x"]]),
        (TwoPhaseSet, [["remove", "x"], ["add", "x"]], None),
        (TwoPhaseSet, [["add", "x"], ["remove", "x"]], [["remove", "x"]]),
        (EWFlag, [["enable"], ["disable"], ["enable"]], [["enable"]]),
        (DWFlag, [["disable"], ["enable"]], [["enable"]]),
        (MVRegister, [["assign", 1], ["assign", 2]], [["assign", 2]]),
        (LWWRegister, [["assign", 1, 5], ["assign", 2, 6]], [["assign", 2, 6]]),
        (PNCounter, [["increment", 3], ["decrement", 5]], [["increment", -2]]),
        (BoundedCounter, [["increment", 3, "a"], ["decrement", 2, "a"]], None),
    ],
)
def test_overwritten_operation_of_a_message_is_not_sent(
    crdt: type[PureOpCRDT[Any]], operations: Any, sent: Any
) -> None:
    assert crdt().compress(operations) == (operations if sent is None else sent)


def test_type_with_shipped_arguments_must_define_ship() -> None:
    class Silent(AWSet):
        OPERATIONS = {"add": Operation(by=natural, ships=(natural,))}  # noqa: RUF012

    with pytest.raises(NotImplementedError, match="define `ship`"):
        Silent().prepare("add", 1)


@pytest.mark.parametrize(("check", "value"), [(natural, -1), (positive, 0), (positive, True)])
def test_numbers_out_of_range_are_refused(check: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"negative|positive|bool"):
        check(value)


@given(st.lists(st.integers() | st.text() | st.binary() | st.floats(allow_nan=False) | st.none()))
def test_rank_is_a_total_order_consistent_with_encodings(values: list[Any]) -> None:
    one_way = sorted(values, key=rank)
    values.reverse()
    other_way = sorted(values, key=rank)
    assert [canonical(value) for value in one_way] == [canonical(value) for value in other_way]


def test_memory_is_reported_by_part_and_shrinks_with_stability() -> None:
    crdt = AWSet()
    for number in range(100):
        crdt.effect(["add", f"element-{number}"], tag("a", number + 1, a=number))
    unstable = crdt.memory()
    for number in range(100):
        crdt.stable(tag("a", number + 1))
    stable = crdt.memory()
    assert (unstable.entries, stable.entries) == (100, 0)
    assert stable.log < 1000 < unstable.log
    assert stable.stable > unstable.stable
    assert stable.retained == 0
    assert stable.total == stable.stable + stable.log
    crdt.retain(10)
    assert crdt.memory().retained > 0
