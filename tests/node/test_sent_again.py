"""What an evicted member has added is there in the end, once and in its order, however large the object is."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.datatypes import AWSet, SharedList, SharedText
from crdtcast.exceptions import NotReadyError
from tests.effort import examples
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
    for name in sorted(group.parked):
        group.send_again(name)
        group.settle_old(name)
    assert not group.parked
    states = {name: shelf.objects for name, shelf in group.shelves.items()}
    values = [[(*each.key, each.crdt.value) for each in objects] for objects in states.values()]
    assert all(each == values[0] for each in values)
    group.issue("a", ["over", "counter_go", "increment"])
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


def test_restart_during_the_return_keeps_resent_element_names() -> None:
    for snapshot in (False, True):
        group = parted()
        group.issue(
            "c", ["n", "number", "set", 5]
        )  # it yields, so that what is behind it is first in its message
        first = [
            ["n", "number", "set", 6],
            [*TEXT, "insert", 75, "[]"],
            ["x", "counter_go", "increment"],
        ]
        group.issue("c", *first)
        group.issue("c", [*TEXT, "insert", 76, "x"])
        group.issue("c", [*TEXT, "insert", 77, "!"])
        group.issue("c", [*TEXT, "delete", 75])
        group.issue("a", ["n", "number", "set", 7])
        back(group)
        group.send_again("c", 1 + 1)
        if snapshot:
            group.snapshot("c")
        group.restart("c")
        assert over(group)["t"] == "." * 75 + "x!]" + "." * 75


@pytest.mark.parametrize("is_restarted", [False, True])
def test_restart_during_the_return_keeps_the_base_of_objects(
    is_restarted: bool,
) -> None:
    group = parted()
    for name in ("n", "changed"):
        group.issue("a", [name, "number", "set", 1])
    group.issue("b", ["cart", "set_aw", "add_all", ["milk", "tea"]])
    group.heal()
    group.run()
    group.cut("c", "ab")
    for name in ("n", "changed"):
        group.issue("c", [name, "number", "set", 2])
        group.issue("c", [name, "number", "set", 3])
    group.issue("c", ["cart", "set_aw", "remove", "tea"])
    group.issue("c", ["members", "set_rw", "add", "ann"])
    group.issue("c", ["small", "text", "insert", 0, "xyz"], ["small", "text", "insert", 0, "ab"])
    group.issue("c", ["small", "text", "insert", 2, "!"])
    group.issue("c", ["small", "text", "delete", 1, 3])
    group.issue("a", ["changed", "number", "set", 5], ["cart", "set_aw", "add", "bread"])
    back(group)
    while group.missing("c"):
        if is_restarted:
            group.restart("c")
        group.send_again("c", 1, fails=not is_restarted)
    found = over(group)
    assert (found["n"], found["changed"], found["cart"]) == (3, 5, {"milk", "bread"})
    assert (found["members"], found["small"]) == ({"ann"}, "xab")


def test_yielded_operation_is_logged_and_takes_no_other_along() -> None:
    group = parted()
    group.issue("a", ["l", "sequence", "insert_all", 0, list(range(150))])
    group.heal()
    group.run()
    group.cut("c", "ab")
    group.issue(
        "c", ["l", "sequence", "replace", 0, "too late"], ["l", "sequence", "insert", 1, "new"]
    )
    group.issue("a", ["l", "sequence", "replace", 0, "first"])
    back(group)
    assert over(group)["l"] == ["first", "new", *range(1, 150)]
    assert group.shelves["c"].yielded == 1


def test_two_returning_members_lose_no_element() -> None:
    group = Shelves("abcde")
    large(group)
    group.run()
    group.cut("cd", "abe")
    group.issue("c", [*TEXT, "insert", 75, "c"])
    group.run()
    group.issue("d", [*TEXT, "insert", 76, "d"])
    group.engines["a"].evict(group.id("c"))
    group.engines["a"].evict(group.id("d"))
    group.run()
    group.heal()
    group.run(5)
    group.come_back("c", "a")
    group.come_back("d", "b")
    text = over(group)["t"]
    assert text.replace("d", "").replace("c", "") == "." * 150
    assert sorted(text[75:77]) == ["c", "d"]


class Notes(AWSet):
    TYPE: ClassVar[str] = "notes_example"


class NewNotes(Notes):
    VERSION = 2


def test_resend_to_an_object_of_a_newer_version_waits() -> None:
    group = parted()
    for name, notes in (("a", NewNotes), ("b", NewNotes), ("c", Notes)):
        group.shelves[name].objects.learn(notes)
    group.issue("c", ["n", Notes.TYPE, "add", "c"])
    group.issue("a", ["n", Notes.TYPE, "add", "a"])
    back(group)
    with pytest.raises(NotReadyError, match="an older version than the group"):
        group.send_again("c")
    group.shelves["c"].objects.learn(NewNotes)
    assert over(group)["n"] == {"a", "c"}
    assert group.shelves["c"].yielded == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_additions_to_large_objects_of_every_kind_survive(is_restarted: bool) -> None:
    group = Shelves("abc")
    many = list(range(200))
    for kind in ("set_go", "set_aw", "set_rw", "set_2p"):
        group.issue("a", [kind, kind, "add_all", many])
    group.issue("a", *(["scores", "map_sorted", "set", each, 1] for each in many))
    group.issue(
        "a", *(["map", "map_aw", "update", each, "counter_pn", ["increment"]] for each in many)
    )
    group.issue("a", *(["grows", "map_go", "update", each, "flag_ew", ["enable"]] for each in many))
    group.run()
    group.cut("c", "ab")
    for kind in ("set_go", "set_aw", "set_rw", "set_2p"):
        group.issue("c", [kind, kind, "add", "new"], [kind, kind, "add_all", ["newer", 7]])
    group.issue("c", ["scores", "map_sorted", "set", "new", 1])
    group.issue("c", ["scores", "map_sorted", "set", "new", 2])
    group.issue("c", ["scores", "map_sorted", "increment", 7, 2])
    for kind, call in {
        "counter_pn": ["increment"],
        "counter_go": ["increment"],
        "counter_resettable": ["increment"],
        "register_lww": ["assign", "new"],
        "register_mv": ["assign", "new"],
        "flag_dw": ["enable"],
        "flag_ew": ["enable"],
        "number": ["set", 5],
        "map_sorted": ["set", "new", 5],
        "set_rw": ["add", "new"],
        "sequence": ["insert_all", 0, ["n", "ew"]],
        "text": ["insert", 0, "new"],
    }.items():
        group.issue("c", ["grows", "map_go", "update", "new", kind, call])
        group.issue(
            "c",
            ["map", "map_aw", "batch", [["new", kind, call], [7, "set_aw", ["add", "new"]]], []],
        )
    here = {each.key: each.crdt.value for each in group.shelves["c"].objects}
    if is_restarted:
        group.snapshot("c")
        group.restart("c")
    group.issue("a", *([kind, kind, "remove", 7] for kind in ("set_aw", "set_rw")))
    back(group)
    if is_restarted:
        group.restart("c")
        group.send_again("c", 3)
        group.restart("c")
    there = over(group)
    assert there["set_rw"] == here["set_rw", "set_rw"] - {7}, "a removal wins"
    for (name, _), value in here.items():
        assert name == "set_rw" or there[name] == value, name
    assert group.shelves["c"].yielded == 0


class Writer:
    """One member that edits two texts and two lists, one of each in a map, with values that nobody else writes.

    runs: values that it has inserted next to each other, one after the other, in the order that they have.
    """

    def __init__(self, group: Shelves, name: str, random: Random, values: Iterator[int]) -> None:
        self.group = group
        self.name = name
        self.random = random
        self.values = values
        self.runs: list[list[Any]] = []
        self.removed: set[Any] = set()
        self.killed: set[str] = set()
        self.likes = 0

    def places(self) -> list[tuple[Callable[..., list[Any]], Any]]:
        """Calls on each sequence, and what it is now."""
        places: list[tuple[Callable[..., list[Any]], Any]] = []
        board = self.group.object(self.name, "board", "map_aw")
        for crdt in (SharedText, SharedList):
            kind = crdt.TYPE
            places.append((lambda *call, kind=kind: [kind, kind, *call], self.now(kind, kind)))
            inner = board["inner", crdt] if ("inner", crdt) in board else crdt()
            places.append(
                (
                    lambda *call, kind=kind: ["board", "map_aw", "update", "inner", kind, [*call]],
                    inner,
                )
            )
        return places

    def now(self, name: str, kind: str) -> Any:
        return self.group.object(self.name, name, kind)

    def value(self, sequence: Any) -> Any:
        number = next(self.values)
        return chr(0xE000 + number) if isinstance(sequence, SharedText) else number

    def act(self, *, only_adds: bool = False) -> None:
        place = self.random.randrange(4)
        call, sequence = self.places()[place]
        kinds = ["forwards", "backwards", "batch"] + ([] if only_adds else ["delete", "replace"])
        kind = self.random.choice(kinds)
        size = len(sequence)
        at = self.random.randint(0, size)
        if kind == "delete":
            if size > 20:
                many = self.random.choice([1, 1, 2, 10])
                at = self.random.randint(0, size - many)
                deleted = {sequence[number] for number in range(at, at + many)}
                self.removed |= deleted
                if isinstance(sequence, SharedText):  # where nobody replaces anything
                    self.killed |= deleted
                self.group.issue(self.name, call("delete", at, many))
        elif kind == "replace":
            if isinstance(sequence, SharedList) and size > 20:
                at = self.random.randrange(size)
                self.removed.add(sequence[at])
                self.group.issue(self.name, call("replace", at, next(self.values)))
        elif kind == "batch":
            value = self.value(sequence)
            self.runs.append([value])
            self.likes += 1
            number = ["number", "number", "set", len(self.runs)]
            likes = ["likes", "counter_pn", "increment"]
            self.group.issue(self.name, number, call("insert", at, value), likes)
        else:
            run: list[Any] = []
            for _ in range(self.random.randint(1, 4)):
                run.append(self.value(sequence))
                self.group.issue(self.name, call("insert", at, run[-1]))
                at += kind == "forwards"
            self.runs.append(run if kind == "forwards" else run[::-1])


@settings(max_examples=examples(60))
@given(st.randoms(use_true_random=False))
def test_insertions_are_never_lost_or_repeated(random: Random) -> None:
    cut, rest = random.choice([("c", "ab"), ("c", "ab"), ("cd", "abe")])
    group = Shelves(sorted(cut + rest))
    values = count(1)
    size = random.choice([80, 110, 300])
    writers = {name: Writer(group, name, random, values) for name in cut + rest}
    for call, sequence in writers["a"].places():
        many = [writers["a"].value(sequence) for _ in range(size)]
        text = isinstance(sequence, SharedText)
        group.issue("a", call("insert", 0, "".join(many)) if text else call("insert_all", 0, many))
    group.issue("a", ["number", "number", "set", 0])
    group.run()
    group.cut(cut, rest)
    restarted = False

    def act(names: str, most: int, *, only_adds: bool = False) -> None:
        for _ in range(random.randint(0, most)):
            writers[random.choice(names)].act(only_adds=only_adds)

    for evictions in reversed(range(random.choice([1, 1, 2]))):
        for _ in range(len(cut)):
            act(cut, 8)
            if len(cut) > 1:
                group.run()
        act(rest, 8)
        if random.random() < 0.2:
            group.snapshot("c")
        if random.random() < 0.2:
            group.restart("c")
        group.evict(cut, "a")
        act(rest, 3)
        for name in cut:
            group.come_back(name, random.choice("ab"))
        group.run()
        if evictions:
            group.cut(cut, rest)
        while any(map(group.missing, cut)):
            if random.random() < 0.1:
                restarted = True
                group.restart("c")
            elif random.random() < 0.1:
                group.snapshot("c")
            fails = random.random() < 0.1
            group.send_again(random.choice(cut), random.randint(1, 5), fails=fails)
            act(cut + rest, 1, only_adds=restarted)
            if random.random() < 0.5:
                group.run()
            if evictions and random.random() < 0.3:
                break
    found = over(group)
    board = found["board"]
    everything = [
        *found["text"],
        *board["inner", "text"],
        *found["sequence"],
        *board["inner", "sequence"],
    ]
    place = {value: number for number, value in enumerate(everything)}
    assert len(place) == len(everything), "something is there twice"
    gone = set().union(*(writer.removed for writer in writers.values()))
    for writer in writers.values():
        for run in writer.runs:
            left = [value for value in run if value not in gone]
            assert set(left) <= place.keys(), "an insertion is lost"
            assert [place[value] for value in left] == sorted(place[value] for value in left)
    assert found.get("likes", 0) == sum(writer.likes for writer in writers.values())
    if (
        size == 300 and cut == "c"
    ):  # nothing was small; and nobody removes what another one sends again
        killed = set().union(*(writer.killed for writer in writers.values()))
        assert not killed & place.keys(), "a deletion is lost"
