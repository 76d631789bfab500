"""Operations that no program of ours sends: every replica skips them, later programs, too, and the object goes on."""

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import pytest

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    AWMap,
    AWSet,
    GOMap,
    Operation,
    PureOpCRDT,
    RWSet,
    SharedList,
    SharedText,
    SortedMap,
)
from crdtcast.datatypes.maps import NestedMap
from crdtcast.datatypes.site import Site
from crdtcast.exceptions import NewerOperationError, RemoteProtocolError
from crdtcast.replica.objects import Key, Objects
from tests.effort import seeds

MAP: Key = ("m", AWMap.TYPE)
TEXT: Key = ("t", SharedText.TYPE)


def replica(*types: type[PureOpCRDT[Any]]) -> Objects:
    return Objects(types, Site("me", HLC(lambda: 10**12)))


def tag_of(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), {**past, origin: counter - 1} if counter > 1 else past)


def issue(objects: Objects, key: Key, tag: Tag, name: str, *args: Any) -> list[str]:
    prepared = objects.prepare(key, name, args)
    return objects.deliver([objects.entry(key, prepared)], tag)[1]


@pytest.mark.parametrize(
    "operation",
    [
        ["place", None, "R", "!", 2**63 - 1],
        ["place", None, "R", "!", 5],
        ["place", ["evil", 2**64 - 1, 0, 0], "R", "!"],
        ["kill", [["evil", 1, 0, 0, 2**24 + 1]]],
        ["kill", [["evil", 1, 0, 2**63, 1]]],
    ],
)
def test_numbers_out_of_bounds_in_a_text_are_skipped(operation: list[Any]) -> None:
    objects = replica()
    assert len(objects.deliver([[*TEXT, *operation]], tag_of("evil", 1))[1]) == 1
    assert issue(objects, TEXT, tag_of("me", 1, evil=1), "insert", 0, "x") == []
    assert objects.crdt(TEXT).value == "x"
    other: Key = ("other", SharedList.TYPE)
    assert issue(objects, other, tag_of("me", 2, evil=1), "insert", 0, "x") == []


HANGING = [["evil", 1, 0, 0], ["evil", 1, 1, 0], ["evil", 2, 0, 0], ["a", 1, 0, 0]]


@pytest.mark.parametrize("parent", HANGING)
@pytest.mark.parametrize("side", ["L", "R"])
def test_cyclic_or_future_parent_puts_the_element_at_an_end(parent: list[Any], side: str) -> None:
    """In any order of arrival, the same text; a replica that follows parents round and round would not return."""
    messages: dict[Tag, list[list[Any]]] = {
        tag_of("evil", 1): [["place", parent, side, "12"], ["place", ["evil", 1, 0, 0], side, "3"]],
        tag_of("evil", 2): [["place", ["evil", 1, 0, 1], "L", "4"]],
        tag_of("a", 1): [["place", None, "L", "ab"]],
        tag_of("b", 1): [["place", parent, side, "x"]],
    }
    first, second = messages, dict(sorted(messages.items(), key=lambda each: each[0].dot.origin))
    values = set()
    for order in (first, second):
        text = SharedText()
        for tag, operations in order.items():
            for index, operation in enumerate(operations):
                text.effect(operation, tag, index)
        copy = SharedText.restore(text.snapshot())
        assert copy.value == text.value
        values.add(text.value)
        for tag in order:
            text.stable(tag)
        assert text.value in values and text.log_size == 0
    assert len(values) == 1 and sorted(values.pop()) == sorted("1234abx")


def test_removal_costs_only_what_it_removes() -> None:
    """Each of these runs claims 2^24 elements: to look for all of them would take hours."""
    text = SharedText()
    text.effect(["place", None, "L", "a" * 40], tag_of("a", 1))
    everything = ["a", 1, 0, 0, 2**24]
    text.effect(["kill", [["a", 1, 0, 10, 5]]], tag_of("a", 2))
    text.effect(["kill", [[*everything[:3], 12, 2**24], ["b", 7, 0, 0, 2**24]]], tag_of("a", 3))
    assert text.value == "a" * 10 and text.log_size == 40 + 30
    for counter in range(4, 1000):
        text.effect(["kill", [everything] * 100], tag_of("a", counter))
        text.effect(["reset"], tag_of("a", counter), 1)
    assert text.value == "" and text.log_size == 40 + 40
    for counter in range(1, 1000):
        text.stable(tag_of("a", counter))
    assert text.untouched


def test_removal_of_unseen_elements_removes_nothing() -> None:
    text = SharedText()
    text.effect(["place", None, "L", "abc"], tag_of("a", 1))
    text.effect(["kill", [["a", 1, 0, 0, 3]]], tag_of("evil", 1))
    assert text.value == "abc"


class Votes(AWSet):
    TYPE = "votes_of_these_tests"


class LaterVotes(Votes):
    VERSION = 2
    OPERATIONS: ClassVar = {**Votes.OPERATIONS, "withdraw": Operation(since=2)}


class Board(AWMap):
    TYPE = "board_of_these_tests"
    TYPES: ClassVar = {Votes.TYPE: Votes}


class LaterBoard(Board):
    VERSION = 2
    TYPES: ClassVar = {Votes.TYPE: LaterVotes}


@pytest.mark.parametrize(
    "operation",
    [
        ["nonsense"],
        [],
        [["list"]],
        ["update", "k", "set_aw", ["halve"]],
        ["update", "k", "set_aw", ["add"]],
        ["update", "k", "no_such_type", ["add", "x"]],
        ["update", "k", ["set_aw", 1], ["add", "x"]],
        ["update", "k", ["set_aw", True], ["add", "x"]],
        ["batch", [["k", "set_aw", ["add", "x"]], ["l", "no_such_type", ["add", "x"]]], []],
        ["batch", [["k", "set_aw", ["add", "x"]]], [["l", "no_such_type"]]],
        ["remove", "k", "no_such_type"],
    ],
)
def test_nonsense_in_a_map_is_skipped_and_the_map_goes_on(operation: list[Any]) -> None:
    objects = replica()
    assert issue(objects, MAP, tag_of("a", 1), "update", "k", "set_aw", ["add", "y"]) == []
    assert len(objects.deliver([[*MAP, *operation]], tag_of("evil", 1))[1]) == 1
    assert objects.listing()[0].unknown == 0
    again = issue(objects, MAP, tag_of("a", 2, evil=1), "update", "k", "set_aw", ["add", "z"])
    assert (again, objects.crdt(MAP).value) == ([], {("k", "set_aw"): {"y", "z"}})


def test_operation_below_its_version_is_skipped_everywhere() -> None:
    votes: Key = ("v", Votes.TYPE)
    withdraw = ["v", Votes.TYPE, "withdraw"]
    for program in (replica(Votes), replica(LaterVotes)):
        program.deliver([["v", Votes.TYPE, "add", "x"]], tag_of("a", 1))
        assert len(program.deliver([withdraw], tag_of("evil", 1))[1]) == 1
        assert program.crdt(votes).value == {"x"} and program.listing()[0].unknown == 0
    inside = ["update", "k", Votes.TYPE, ["withdraw"]]
    for board in (Board(), LaterBoard()):
        with pytest.raises(RemoteProtocolError) as refused:
            board.effect(inside, tag_of("evil", 1))
        assert type(refused.value) is RemoteProtocolError and board.untouched


@pytest.mark.parametrize("outer", [AWMap, GOMap])
def test_version_of_a_value_marks_a_newer_operation(outer: type[NestedMap]) -> None:
    class Holding(outer):  # type: ignore[valid-type,misc]
        TYPE = f"{outer.TYPE}_of_this_test"
        TYPES: ClassVar = {Votes.TYPE: Votes}

    newer = ["update", "k", [Votes.TYPE, 2], ["withdraw"]]
    with pytest.raises(NewerOperationError, match="upgrade"):
        Holding().effect(newer, tag_of("a", 1))
    objects, key = replica(Holding), ("m", Holding.TYPE)
    assert objects.deliver([[*key, *newer]], tag_of("a", 1))[1] == []
    assert objects.listing()[0].unknown == 1


def test_map_skips_a_type_added_in_a_later_version() -> None:
    class Late(AWMap):
        TYPE = "late_of_this_test"
        VERSION = 3
        TYPES: ClassVar = {Votes.TYPE: Votes}
        SINCE: ClassVar = {Votes.TYPE: 3}

    update = ["update", "k", Votes.TYPE, ["add", "x"]]
    with pytest.raises(RemoteProtocolError, match="version 2 does not hold"):
        Late().effect(update, tag_of("a", 1), 0, 2)
    late = Late()
    late.effect(update, tag_of("a", 1), 0, 3)
    late.effect(update, tag_of("a", 2), 0, 4)
    assert late.value == {("k", Votes.TYPE): {"x"}}


@pytest.mark.parametrize("entry", [["m", "map_aw"], ["m", "unheard_of", "x"]])
def test_deletion_frees_a_name_with_unknown_operations(entry: list[Any]) -> None:
    """Whatever version the operation claims to be of: else the name would wait for that program for ever."""
    name, type_name, *rest = entry
    objects = replica()
    objects.deliver([[name, [type_name, 10**6], *(rest or ["nonsense"])]], tag_of("evil", 1))
    objects.deliver([["m", None]], tag_of("a", 1, evil=1))
    concurrent = tag_of("evil", 2)
    objects.deliver([["m", [type_name, 7], "x"]], concurrent)
    for tag in (tag_of("evil", 1), tag_of("a", 1, evil=1)):
        objects.stable(tag)
    assert [info.unknown > 0 for info in objects.listing()] == [True]  # not deleted: unseen
    objects.deliver([["m", None]], tag_of("a", 2, evil=2))
    assert objects.listing() == []
    objects.stable(concurrent)
    assert len(list(objects._all())) == 1  # something concurrent with the deletion may still come
    objects.stable(tag_of("a", 2, evil=2))
    assert list(objects._all()) == []
    assert issue(objects, MAP, tag_of("a", 3, evil=2), "update", "k", "set_aw", ["add", "x"]) == []


@pytest.mark.parametrize("version", [0, 1, -1, True, 2.0, 2**63, None, "2"])
def test_operation_with_an_invalid_version_is_skipped(version: Any) -> None:
    objects = replica()
    assert len(objects.deliver([["s", ["set_aw", version], "add", "x"]], tag_of("a", 1))[1]) == 1
    assert objects.listing() == []


def test_a_type_whose_compression_is_wrong_sends_nothing() -> None:
    class Hasty(AWSet):
        def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
            return [["add_everything"]]

    with pytest.raises(TypeError, match=r"Hasty.compress made an invalid operation"):
        Hasty().compressed([["add", "x"]])


def test_operation_newer_than_its_type_raises_type_error() -> None:
    with pytest.raises(TypeError, match="has since=2"):

        class Ahead(AWSet):
            OPERATIONS: ClassVar = {**AWSet.OPERATIONS, "later": Operation(since=2)}


PARTS = 1000


def crowded(key: Key) -> Objects:
    """An object with many parts that no message of `evil` has seen."""
    calls: dict[str, tuple[Any, ...]] = {
        AWMap.TYPE: ("update", "part", AWSet, ["add", 1]),
        GOMap.TYPE: ("update", "part", AWSet, ["add", 1]),
        SortedMap.TYPE: ("set", "part", 1),
        SharedText.TYPE: ("insert", 0, "x"),
        SharedList.TYPE: ("insert", 0, "x"),
    }
    objects = replica()
    for at in range(PARTS):
        name, *args = (at if each == "part" else each for each in calls[key[1]])
        issue(objects, key, tag_of("good", at + 1), name, *args)
    return objects


class Counted(dict[str, int]):
    """A past that counts how often it is looked at."""

    looks = 0

    def get(self, origin: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(origin, default)


@pytest.mark.parametrize("crdt", [AWMap, GOMap, SortedMap, SharedText, SharedList])
def test_many_resets_in_one_message_scan_the_state_once(crdt: type[PureOpCRDT[Any]]) -> None:
    """Each of them would look at all that is there, and remove nothing: minutes for one small message."""
    key: Key = ("crowded", crdt.TYPE)
    objects = crowded(key)
    before = objects.crdt(key).digest()
    past = Counted()
    entries = [[*key, "reset"], [key[0], None]] * PARTS
    objects.deliver(entries, Tag(Dot("evil", 1), (), past))
    assert objects.crdt(key).digest() == before
    assert past.looks < 20 * PARTS


def test_element_named_twice_in_a_removal_is_searched_once() -> None:
    objects = crowded(TEXT)
    past = Counted()
    runs = [["good", at, 0, 0, 2**24] for at in range(1, PARTS + 1)]
    objects.deliver([[*TEXT, "kill", runs * 100]], Tag(Dot("evil", 1), (), past))
    assert past.looks < 20 * PARTS


def test_deletion_of_unknown_operations_has_constant_cost() -> None:
    objects = replica()
    for counter in range(1, 3001):
        objects.deliver([["k", "later", "do"], ["k", None]], tag_of("evil", counter))
    (held,) = objects.named("k")
    assert len(held.backlog) == 6000 and not held.presence and held.needed
    for counter in range(1, 3001):
        objects.stable(tag_of("evil", counter))
    assert objects.named("k") == []


def test_resets_mean_the_same_in_one_message_as_in_several() -> None:
    issued = {
        AWMap: [
            ["update", "a", "set_aw", ["add", 1]],
            ["update", "b", "map_aw", ["update", "c", "counter_pn", ["increment", 1]]],
            ["update", "b", "map_aw", ["reset"]],
            ["remove", "a", "set_aw"],
        ],
        SortedMap: [["increment", "a", 2], ["increment", "b", 3], ["remove", "a"]],
        SharedText: [["place", None, "R", "ab"], ["place", ["good", 1, 0, 0], "L", "c"]],
        SharedList: [["place", None, "L", ["d"]], ["write", ["good", 1, 0, 0], "e"]],
        RWSet: [["add", 1], ["remove", 2], ["add", 2]],
    }
    for crdt, operations in issued.items():
        for seed in seeds(60):
            random = Random(seed)
            chosen = random.choices([["reset"], ["forget"], *operations], k=8)
            one, several = crdt(), crdt()
            for each in (one, several):
                each.effect(operations[0], tag_of("good", 1))
                each.effect(operations[1], tag_of("unseen", 1))
            for index, operation in enumerate(chosen):
                at_once = tag_of("evil", 1, good=1), index
                apart = tag_of("evil", index + 1, good=1), 0
                for each, where in ((one, at_once), (several, apart)):
                    if operation == ["forget"]:
                        each.forget(*where)
                    else:
                        each.effect(operation, *where)
            assert one == several, (crdt, seed)
