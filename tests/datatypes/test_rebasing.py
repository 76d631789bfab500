"""An evicted replica's operations against what the group did meanwhile: on numbers, and in a group of real engines."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    AWMap,
    AWSet,
    DWFlag,
    Former,
    LWWRegister,
    MVRegister,
    Number,
    PureOpCRDT,
    RWSet,
    SharedList,
    SharedText,
    Site,
    SortedMap,
    TwoPhaseSet,
    sequence,
)
from crdtcast.engine import Parked, Standing
from crdtcast.testing import Call
from tests.datatypes.rebasing import rebased
from tests.engine.town import Town
from tests.node.boards import OldBoard


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


class Numbers:
    """A group whose applications are one number each."""

    def __init__(self, names: str) -> None:
        self.town = Town(names)
        self.clock = Clock()
        self.seen: dict[str, int] = dict.fromkeys(names, 0)
        self.payloads: dict[bytes, tuple[Tag, list[Any]]] = {}
        self.numbers = {name: self._number(name) for name in names}

    def _number(self, name: str) -> Number:
        number = Number(retain=1000)
        number.site = Site(name, HLC(self.clock))
        return number

    def issue(self, name: str, *call: Any) -> None:
        self.send(name, self.numbers[name].prepare(*call))

    def send(self, name: str, operation: list[Any]) -> Tag:
        payload = b"%d" % len(self.payloads)
        (tag,) = self.town.send(name, payload)
        self.payloads[payload] = tag, operation
        self.take(name)
        return tag

    def take(self, name: str) -> None:
        """Let the number of `name` have what its log has got."""
        for payload in self.town.log[name][self.seen[name] :]:
            tag, operation = self.payloads[payload]
            self.numbers[name].effect(operation, tag)
        self.seen[name] = len(self.town.log[name])

    def run(self, ticks: int = 40) -> None:
        self.town.run(ticks)
        for name in self.town.engines:
            self.take(name)

    def values(self) -> set[Decimal | None]:
        return {self.numbers[name].value for name in self.town.engines}


def _come_back(
    group: Numbers, name: str, contact: str, rule: Callable[..., Any]
) -> list[list[Any]]:
    """`name` was evicted and is told so; it joins again and issues what `rule` says. What has yielded."""
    town = group.town
    old = town.take_down(name)
    assert old is not None and old.standing is Standing.EVICTED
    parked = Parked.of(old.state(), old.me)
    engine = town.join(name, contact, [old.me])
    town.run()
    group.seen[name] = len(town.log[name])
    theirs = group.numbers[contact].clone()
    theirs.site = Site(name, HLC(group.clock))
    uncovered = parked.uncovered(engine)
    mine = [group.payloads[operation.payload][1] for operation in uncovered]
    cut = engine.fate(old.me)
    base = group.numbers[name].clone(until={**old.vector, old.me: cut})
    group.numbers[name] = theirs
    yielded = []
    for operation, issued in rule(base, mine, theirs):
        for again in issued:
            group.send(name, again)
        if not issued:
            yielded.append(operation)
    engine.settle(old.me)
    group.run()
    return yielded


def _evicted_with(calls: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]) -> Numbers:
    group = Numbers("abc")
    group.issue("a", "set", 10)
    group.run()
    group.town.cut("c", "ab")
    for call in calls:
        group.issue("c", *call)
    for call in meanwhile:
        group.issue("a", *call)
    group.town.engines["b"].evict(group.town.id("c"))
    group.run()
    group.town.heal()
    group.run(5)
    return group


@pytest.mark.parametrize(
    ("calls", "meanwhile", "value", "yields"),
    [
        ([("remove",)], [("set", 99)], 99, 1),
        ([("remove",)], [("increment", 5)], 15, 1),
        ([("remove",)], [], None, 0),
        ([("set", 7)], [("set", 99)], 99, 1),
        ([("set", 7)], [], 7, 0),
        ([("increment", 1)], [("set", 99)], 100, 0),
        ([("set", 7), ("increment", 2)], [("set", 99)], 101, 1),
        ([("remove",), ("increment", 2)], [], 2, 0),
        ([("remove",), ("set", 4)], [("set", 99)], 99, 2),
    ],
)
def test_del_and_set_of_an_evicted_member_against_newer_writes(
    calls: list[Any], meanwhile: list[Any], value: int | None, yields: int
) -> None:
    group = _evicted_with(calls, meanwhile)
    assert len(_come_back(group, "c", "a", rebased)) == yields
    assert group.values() == {None if value is None else Decimal(value)}
    group.town.assert_one_group("a", "b", "c")


def _as_it_was(base: Number, mine: list[Any], theirs: Number) -> list[tuple[Any, list[Any]]]:
    return [(operation, [operation]) for operation in mine]


def test_removal_resent_without_rebase_erases_newer_writes() -> None:
    group = _evicted_with([("remove",)], [("set", 99)])
    _come_back(group, "c", "a", _as_it_was)
    assert group.values() == {None}


calls = st.one_of(
    st.builds(Call, st.just("add"), st.sampled_from("xyz")),
    st.builds(Call, st.just("remove"), st.sampled_from("xyz")),
    st.builds(Call, st.just("reset")),
)


@given(before=st.lists(calls, max_size=4), mine=st.lists(calls, max_size=4), since=st.lists(calls))
def test_rebase_loses_no_newer_add_and_changes_neither_side(
    before: list[Call], mine: list[Call], since: list[Call]
) -> None:
    def play(crdt: AWSet, origin: str, calls: list[Call]) -> list[list[Any]]:
        operations = []
        for number, call in enumerate(calls, 1):
            operation = crdt.prepare(call.name, *call.args)
            crdt.effect(
                operation, Tag(Dot(origin, number), (), {"g": len(before), origin: number - 1})
            )
            operations.append(operation)
        return operations

    base: AWSet = AWSet()
    play(base, "g", before)
    theirs, home = base.clone(), base.clone()
    play(theirs, "t", since)
    own = play(home, "m", mine)
    held = base.snapshot(), theirs.snapshot()
    result = theirs.clone()
    for number, (_, issued) in enumerate(rebased(base, own, theirs), 1):
        for index, again in enumerate(issued):
            past = {"g": len(before), "t": len(since), "r": number - 1}
            result.effect(again, Tag(Dot("r", number), (), past), index)
    assert (base.snapshot(), theirs.snapshot()) == held
    assert theirs.value - base.value <= result.value, "an element that was new to us"


def again(base: PureOpCRDT[Any], mine: list[Any], since: list[Any]) -> list[list[Any]]:
    """What is issued for operations of one's own that followed `base`, as `since` did elsewhere."""
    theirs = base.clone()
    for number, operation in enumerate(since, 1):
        theirs.effect(operation, Tag(Dot("t", number), (), {"g": 1, "t": number - 1}))
    return [each for _, issued in rebased(base, mine, theirs) for each in issued]


def holding(crdt: PureOpCRDT[Any], operation: list[Any]) -> Any:
    crdt.effect(operation, Tag(Dot("g", 1)))
    return crdt


@pytest.mark.parametrize(
    ("since", "removed"),
    [([["add_all", ["own"]]], ["tea"]), ([], ["own", "tea"]), ([["remove", "tea"]], ["own"])],
)
def test_rebased_removal_takes_only_own_adds(since: list[Any], removed: list[str]) -> None:
    base = holding(AWSet(), ["add", "tea"])
    mine = [["add", "own"], ["remove_all", ["own", "tea"]]]
    assert again(base, mine, since) == [["add", "own"], ["remove_all", removed]]
    assert again(base, [["add", "own"], ["reset"]], [["remove", "tea"]])[1:] == [
        ["remove_all", ["own"]]
    ]
    assert again(base, [["add", "own"], ["reset"]], []) == [["add", "own"], ["reset"]]


def test_rebase_treats_a_non_additive_add_as_an_overwrite() -> None:
    base = holding(OldBoard(), ["add", "x"])
    assert again(base, [["add", "x"]], [["add", "y"]]) == []
    assert again(base, [["add", "x"]], []) == [["add", "x"]]


def test_own_removal_and_add_do_not_hide_a_foreign_removal() -> None:
    base = holding(RWSet(), ["add", "x"])
    mine = [["remove", "x"], ["add_all", ["x", "y"]]]
    assert again(base, mine, [["remove", "x"]]) == [["remove", "x"], ["add_all", ["y"]]]
    assert again(base, mine, []) == [["remove", "x"], ["add_all", ["x", "y"]]]


def test_parts_of_a_batch_that_others_touched_yield() -> None:
    base = holding(AWMap(), ["update", "n", Number.TYPE, ["set", "1", 1]])
    own = ["update", "s", AWSet.TYPE, ["add", "own"]]
    batch = [["n", Number.TYPE, ["set", "2", 2]], ["s", AWSet.TYPE, ["remove", "own"]]]
    mine = [own, ["batch", batch, []]]
    changed = [["update", "n", Number.TYPE, ["increment", "1"]]]
    assert again(base, mine, changed) == [
        own,
        ["update", "s", AWSet.TYPE, ["remove_all", ["own"]]],
    ]
    assert again(base, [own, ["remove", "s", AWSet.TYPE]], []) == [own, ["remove", "s", AWSet.TYPE]]
    assert again(base, [["reset"]], changed) == []


def blindly(
    base: PureOpCRDT[Any], mine: list[Any], since: list[Any], *, forgotten: bool = False
) -> list[list[Any]]:
    """What is issued for operations of one's own that followed `base`, where no copy of it was kept; forgotten: nor
    what the type remembers.
    """
    home, theirs = base.clone(), base.clone()
    for number, operation in enumerate(since, 1):
        theirs.effect(operation, Tag(Dot("t", number), (), {"g": 1, "t": number - 1}))
    remembered = []
    for number, operation in enumerate(mine, 1):
        remembered.append(None if forgotten else home.remember(operation))
        home.effect(operation, Tag(Dot("m", number), (), {"g": 1, "m": number - 1}))
    noted: dict[Any, Any] = {}
    copies: dict[Dot, tuple[Dot, int]] = {}
    issued = []
    for number, operation in enumerate(mine, 1):
        dot = Dot("m", number)
        at_home = None if forgotten else home
        former = Former(
            dot, 0, at_home, lambda dot, _: copies.get(dot), remembered[number - 1], noted
        )
        for again in type(base).rebase_blind(operation, theirs, former):
            copy = copies[dot] = Dot("r", len(issued) + 1), 0
            past = {"g": 1, "t": len(since), "r": len(issued)}
            theirs.effect(again, Tag(copy[0], (), past))
            issued.append(again)
    return issued


ADD = ["add", "x"]
SET = ["set", "1", 5]
SCORE = ["set", "m", "1", 5]


@pytest.mark.parametrize(
    ("crdt", "base", "mine", "since", "issued"),
    [
        (AWSet, None, [ADD, ["remove", "x"], ["reset"]], [], [ADD]),
        (TwoPhaseSet, None, [ADD, ["remove", "x"]], [], [ADD, ["remove", "x"]]),
        # What was there before has to be there still: somebody may have removed it.
        (RWSet, ["add", "y"], [ADD, ["remove", "y"]], [], [["add_all", ["x"]], ["remove", "y"]]),
        (RWSet, ["add", "x"], [ADD], [["remove", "x"]], []),
        (RWSet, ["add", "x"], [ADD], [], [["add_all", ["x"]]]),
        (DWFlag, None, [["enable"], ["disable"]], [], [["enable"], ["disable"]]),
        (DWFlag, ["enable"], [["enable"]], [["disable"]], []),
        (DWFlag, ["enable"], [["enable"]], [], [["enable"]]),
        # What is fresh is assigned, and again, but not over somebody else.
        (
            Number,
            None,
            [SET, ["increment", "2"], SET, ["reset"], SET],
            [],
            None,
        ),
        (Number, SET, [["set", "2", 6], ["increment", "2"]], [], [["increment", "2"]]),
        (Number, None, [SET], [["increment", "2"]], []),
        (SortedMap, None, [SCORE, ["remove", "m"]], [], [SCORE, ["remove", "m"]]),
        (SortedMap, SCORE, [["set", "n", "2", 6], SCORE], [], [["set", "n", "2", 6]]),
        (SortedMap, SCORE, [["remove", "m"]], [], []),
        (LWWRegister, None, [["assign", 1, 5], ["assign", 2, 6]], [], None),
        (LWWRegister, None, [["assign", None, 5], ["reset"]], [], None),
        (LWWRegister, ["assign", 1, 5], [["assign", 2, 6]], [], []),
        (LWWRegister, None, [["assign", 2, 6]], [["assign", None, 5]], []),
        (MVRegister, None, [["assign", 1], ["assign", 2], ["reset"]], [], None),
        (MVRegister, None, [["assign", 2]], [["assign", 3]], []),
    ],
)
def test_additive_operation_is_resent_without_a_known_base(
    crdt: type[PureOpCRDT[Any]], base: Any, mine: Any, since: Any, issued: Any
) -> None:
    held = crdt() if base is None else holding(crdt(), base)
    assert blindly(held, mine, since) == (mine if issued is None else issued)
    # So it does in a map.
    board: AWMap = AWMap()
    if base is not None:
        holding(board, _in_map(crdt, base))
    again = blindly(
        board, [_in_map(crdt, each) for each in mine], [_in_map(crdt, each) for each in since]
    )
    assert again == [_in_map(crdt, each) for each in (mine if issued is None else issued)]


def _in_map(crdt: type[PureOpCRDT[Any]], operation: list[Any]) -> list[Any]:
    return ["update", "k", crdt.TYPE, operation]


def test_additive_parts_of_a_batch_are_resent_as_one_in_order() -> None:
    board = holding(AWMap(), ["update", "n", Number.TYPE, SET])
    updates = [
        ["n", Number.TYPE, ["set", "2", 6]],
        ["s", RWSet.TYPE, ["add", "x"]],
        ["t", SharedText.TYPE, ["place", None, "L", "hi"]],
    ]
    mine = [
        ["batch", updates, [["other", Number.TYPE]]],
        ["update", "t", SharedText.TYPE, ["place", ["m", 1, 0, 1], "R", "!"]],
        ["remove", "n", Number.TYPE],
        ["reset"],
    ]
    left = [["s", RWSet.TYPE, ["add_all", ["x"]]], updates[2]]
    place = ["place", ["r", 1, 0, 1], "R", "!"]
    assert blindly(board, mine, []) == [
        ["batch", left, []],
        ["update", "t", SharedText.TYPE, place],
    ]
    # Whether an element of a remove-wins set was removed meanwhile, nobody knows after a restart.
    assert blindly(board, mine, [], forgotten=True)[0] == ["update", *updates[2]]


@pytest.mark.parametrize(
    ("since", "mine", "value"),
    [
        # At the anchor, or where that was.
        ([], [(1, "x"), (2, "y")], "axybcd"),
        ([["kill", [["g", 1, 0, 0, 1]]]], [(1, "x"), (2, "y")], "xybcd"),
        ([["kill", [["g", 1, 0, 1, 2]]]], [(2, "x"), (4, "y"), (2, "z")], "azxyd"),
        ([["kill", [["g", 1, 0, 0, 4]]]], [(4, "x"), (0, "y")], "yx"),
        ([["place", ["g", 1, 0, 0], "R", "*"]], [(1, "x"), (2, "y")], "axy*bcd"),
    ],
)
@pytest.mark.parametrize("is_stable", [False, True])
def test_rebased_insertion_keeps_its_place_without_its_anchor(
    since: list[Any], mine: list[tuple[int, str]], value: str, is_stable: bool
) -> None:
    base = holding(SharedText(), ["place", None, "L", "abcd"])
    base.stable(Tag(Dot("g", 1)))
    home, theirs = base.clone(), base.clone()
    for number, operation in enumerate(since, 1):
        tag = Tag(Dot("t", number), (), {"g": 1, "t": number - 1})
        theirs.effect(operation, tag)
        if is_stable:
            theirs.stable(tag)
    operations = []
    for number, (index, character) in enumerate(mine, 1):
        operations.append(home.prepare("insert", index, character))
        home.effect(operations[-1], Tag(Dot("m", number), (), {"g": 1, "m": number - 1}))
    for number, operation in enumerate(operations, 1):
        former = Former(
            Dot("m", number),
            0,
            home,
            lambda dot, at: (Dot("r", dot.counter), at) if dot.origin == "m" else None,
        )
        (again,) = SharedText.rebase_blind(operation, theirs, former)
        past = {"g": 1, "t": len(since), "r": number - 1}
        theirs.effect(again, Tag(Dot("r", number), (), past))
    assert theirs.value == value


def test_rebased_removal_spares_unseen_replacements() -> None:
    base = holding(SharedList(), ["place", None, "L", [1, 2, 3]])
    replaced = [["write", ["g", 1, 0, 1], "new"]]
    mine = [["kill", [["g", 1, 0, 0, 3]]]]
    left = [["kill", [["g", 1, 0, 0, 1], ["g", 1, 0, 2, 1]]]]
    assert again(base, mine, replaced) == blindly(base, mine, replaced) == left
    own = [
        ["place", ["g", 1, 0, 0], "R", ["x", "y"]],
        ["write", ["m", 1, 0, 1], "z"],
        ["kill", [["m", 1, 0, 0, 2]]],
    ]
    issued = [own[0], ["write", ["r", 1, 0, 1], "z"], ["kill", [["r", 1, 0, 0, 2]]]]
    assert blindly(base, own, replaced) == issued
    dots = [Dot("m", number) for number in range(1, 4)]
    told = [each for _, issued in rebased(base, own, base, dots) for each in issued]
    assert told == [
        own[0],
        ["write", ["again", 1, 0, 1], "z"],
        ["kill", [["again", 1, 0, 0, 2]]],
    ]


def test_insertion_without_neighbours_follows_the_nearest_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = holding(SharedText(), ["place", None, "L", "abc" + "." * 1000 + "xyz"])
    base.stable(Tag(Dot("g", 1)))
    home, theirs = base.clone(), base.clone()
    tag = Tag(Dot("t", 1), (), {"g": 1})
    theirs.effect(["kill", [["g", 1, 0, 3, 1000]]], tag)
    theirs.stable(tag)
    operation = home.prepare("insert", 800, "!")
    home.effect(operation, Tag(Dot("m", 1), (), {"g": 1}))
    former = Former(Dot("m", 1), 0, home, lambda dot, index: None)
    places = []
    for most in (1000, 100):
        monkeypatch.setattr(sequence, "MOST_WALKED", most)
        again = theirs.clone()
        (issued,) = SharedText.rebase_blind(operation, theirs, former)
        again.effect(issued, Tag(Dot("r", 1), (), {"g": 1, "t": 1}))
        places.append(again.value)
    assert places == ["abc!xyz", "abcxyz!"]
