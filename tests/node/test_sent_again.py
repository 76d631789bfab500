"""What an evicted member has added is there in the end, once and in its order, however large the object is."""

from typing import Any

import pytest

from tests.node.shelves import Shelves

TEXT = ("t", "text")


def large(group: Shelves, by: str = "a") -> None:
    group.issue(by, [*TEXT, "insert", 0, "." * 150])


def parted() -> Shelves:
    group = Shelves("abc")
    large(group)
    group.run()
    group.cut("c", "ab")
    return group


def back(group: Shelves) -> None:
    group.evict("c", "a")
    group.come_back("c", "b")


def over(group: Shelves) -> Any:
    """All that was to be sent again is: what all have."""
    group.send_again("c")
    group.settle_old("c")
    states = {name: shelf.objects for name, shelf in group.shelves.items()}
    values = [[(*each.key, each.crdt.value) for each in objects] for objects in states.values()]
    assert values[0] == values[1] == values[2]
    assert "c" not in group.parked
    group.issue("a", ["likes", "counter_go", "increment"])
    group.run()
    for shelf in group.shelves.values():
        assert shelf._left is None and not shelf._copies
    return {name: value for name, _, value in values[0]}


def test_an_insertion_into_a_large_text_goes_to_its_anchor() -> None:
    group = parted()
    group.issue("c", [*TEXT, "insert", 75, "x"])
    group.issue("c", [*TEXT, "insert", 76, "y"])
    group.issue("c", [*TEXT, "insert", 76, "z"])
    group.issue("a", [*TEXT, "insert", 0, ">>"])
    back(group)
    assert over(group)["t"] == ">>" + "." * 75 + "xzy" + "." * 75
    assert group.shelves["c"].yielded == 0
