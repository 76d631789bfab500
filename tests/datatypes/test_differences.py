"""What an observer is told leads from one value to the other, step by step."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.datatypes import (
    Added,
    Assigned,
    AWMap,
    Became,
    BoundedCounter,
    Difference,
    LWWRegister,
    MVRegister,
    Removed,
    SharedList,
    SortedMap,
    Spliced,
    Unassigned,
)
from crdtcast.datatypes.differences import differences

PLAIN = st.one_of(st.integers(0, 3), st.booleans(), st.sampled_from("abc"))
VALUES = st.one_of(
    st.frozensets(PLAIN),
    st.dictionaries(st.sampled_from("abcd"), PLAIN),
    st.lists(PLAIN, max_size=12),
    st.text("ab c", max_size=30),
    PLAIN,
    st.none(),
)


def applied(value: Any, steps: tuple[Difference, ...]) -> Any:
    """The value after these steps, each on what the one before it has left."""
    for step in steps:
        match step:
            case Added(element):
                assert element not in value
                value = value | {element}
            case Removed(element):
                assert element in value
                value = value - {element}
            case Assigned(key, new):
                value = {**value, key: new}
            case Unassigned(key):
                value = {k: v for k, v in value.items() if k != key}
            case Spliced(index, removed, inserted):
                assert index + removed <= len(value) and (removed or inserted)
                value = value[:index] + inserted + value[index + removed :]
            case Became(new):
                value = new
    return value


@given(st.one_of(st.tuples(kind, kind) for kind in (VALUES, st.text("ab c"), st.lists(PLAIN))))
def test_steps_lead_from_one_value_to_the_other(values: tuple[Any, Any]) -> None:
    before, after = values
    steps = differences(before, after)
    assert applied(before, steps) == after
    assert bool(steps) == ((before, type(before)) != (after, type(after))) or before == after
    assert not differences(after, after)


def test_two_edits_of_a_text_are_told_apart() -> None:
    before = "the cat sat on the mat"
    assert differences(before, "the dog sat on the rug") == (
        Spliced(4, 3, "dog"),
        Spliced(19, 3, "rug"),
    )
    assert differences(before, before[:8] + before[12:]) == (Spliced(8, 4, ""),)
    assert differences("aaa", "aaaa") == (Spliced(3, 0, "a"),)
    long = "x" * 5000
    assert differences(f"{long}ab{long}", f"{long}cd{long}") == (Spliced(5000, 2, "cd"),)


@pytest.mark.parametrize(
    ("crdt", "before", "after", "steps"),
    [
        (MVRegister(), ["a"], ["a", "b"], (Became(["a", "b"]),)),
        (LWWRegister(), {"a": 1}, {"a": 2}, (Became({"a": 2}),)),
        (LWWRegister(), 1, True, (Became(True),)),
        (BoundedCounter(), {"total": 1, "rights": {}}, {"total": 2, "rights": {}}, None),
        (LWWRegister(), 0.0, -0.0, (Became(-0.0),)),
        (LWWRegister(), [True], [1], (Became([1]),)),
        (MVRegister(), [{"a": [1]}], [{"a": [1.0]}], (Became([{"a": [1.0]}]),)),
        (SharedList(), ["a", [True]], ["a", [1]], (Spliced(1, 1, [[1]]),)),
        (AWMap(), {"a": {"b": 1}}, {"a": {"b": True}}, (Assigned("a", {"b": True}),)),
        (LWWRegister(), [float("nan")], [1], (Became([1]),)),
        (SortedMap(), [("a", 1), ("b", 2)], [("b", 0), ("a", 1)], (Assigned("b", 0),)),
    ],
)
def test_a_type_says_what_its_value_is(crdt: Any, before: Any, after: Any, steps: Any) -> None:
    assert crdt.differences(before, after) == (steps or (Became(after),))
    assert crdt.differences(after, after) == crdt.differences(after, deepcopy(after)) == ()


def test_nan_of_an_own_type_is_no_endless_change() -> None:
    assert differences(float("nan"), float("nan")) == ()
    assert differences({"a": [float("nan")]}, {"a": [float("nan")]}) == ()
