"""What an evicted member has added is there in the end, once and in its order, however large the object is."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.datatypes import SharedList, SharedText
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


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_nothing_that_anybody_has_inserted_is_lost_or_there_twice(random: Random) -> None:
    group = Shelves("abc")
    values = count(1)
    size = random.choice([80, 110, 300])
    writers = {name: Writer(group, name, random, values) for name in "abc"}
    for call, sequence in writers["a"].places():
        many = [writers["a"].value(sequence) for _ in range(size)]
        text = isinstance(sequence, SharedText)
        group.issue("a", call("insert", 0, "".join(many)) if text else call("insert_all", 0, many))
    group.issue("a", ["number", "number", "set", 0])
    group.run()
    group.cut("c", "ab")
    restarted = False

    def act(names: str, most: int, *, only_adds: bool = False) -> None:
        for _ in range(random.randint(0, most)):
            writers[random.choice(names)].act(only_adds=only_adds)

    for evictions in reversed(range(random.choice([1, 1, 2]))):
        act("c", 12)
        act("ab", 8)
        if random.random() < 0.2:
            group.snapshot("c")
        if random.random() < 0.2:
            group.restart("c")
        group.evict("c", "a")
        act("ab", 3)
        group.come_back("c", random.choice("ab"))
        group.run()
        if evictions:
            group.cut("c", "ab")
        while group.missing("c"):
            if random.random() < 0.1:
                restarted = True
                group.restart("c")
            elif random.random() < 0.1:
                group.snapshot("c")
            group.send_again("c", random.randint(1, 5))
            act("abc", 1, only_adds=restarted)
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
    if size == 300:  # nothing was ever small
        killed = set().union(*(writer.killed for writer in writers.values()))
        assert not killed & place.keys(), "a deletion is lost"
