"""SharedList and SharedText against the whole tree of the history, and mutations that the harness
must catch.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import Arrival, Arrived, Entry, SharedList, SharedText
from crdtcast.datatypes.elements import GONE, SequenceElement
from crdtcast.datatypes.sequence import Positions
from crdtcast.exceptions import InvalidOperationError, RemoteProtocolError, UnusableInputError
from crdtcast.testing import Group, VisibleOperation, check_crdt, check_every_order, weighted
from crdtcast.testing.model_group import Call
from tests.datatypes import cases
from tests.datatypes.cases import Case
from tests.datatypes.rebasing import rebased

indices = st.integers(-3, 4)
letters = st.sampled_from("abcdefgh")
operations = weighted(
    (6, st.tuples(st.just("insert"), indices, letters)),
    (1, st.tuples(st.just("insert_all"), indices, st.lists(letters, max_size=3))),
    (3, st.tuples(st.just("replace"), indices, letters)),
    (4, st.tuples(st.just("delete"), indices)),
    (1, st.tuples(st.just("delete"), indices, st.integers(0, 3))),
    (1, st.just(("reset",))),
)
typing = weighted(
    (5, st.tuples(st.just("insert"), indices, st.text("abc", min_size=1, max_size=3))),
    (3, st.tuples(st.just("delete"), indices, st.integers(1, 2))),
    (1, st.just(("reset",))),
)


Identity = tuple[Any, ...]


def stamps(visible: Sequence[VisibleOperation]) -> dict[Dot, int]:
    """Lamport's stamp of each message that inserts or replaces something: one above all such in its past."""
    counting = {
        operation.tag.dot: operation.tag
        for operation in visible
        if operation.name in ("place", "write") and operation.sent is not None
    }
    found: dict[Dot, int] = {}
    for tag in sorted(counting.values(), key=lambda tag: sum(tag.past.values())):
        seen = [stamp for dot, stamp in found.items() if tag.past.get(dot.origin, 0) >= dot.counter]
        found[tag.dot] = 1 + max(seen, default=0)
    return found


def whole_tree(visible: Sequence[VisibleOperation]) -> list[Any]:
    """Every element ever inserted, in its place for ever: the newest of siblings is next to their
    parent. Each shows, of the values that nothing later took back, the last by its stamp; the one
    it was inserted with is older than any. Without a value it is not shown.
    """
    hanging: dict[Any, list[tuple[int, Identity]]] = {}
    values: dict[Identity, list[tuple[VisibleOperation, Any, Any]]] = {}
    stamp_of = stamps(visible)
    for operation in visible:
        # What `compress` has dropped gets a name that nobody else has: nothing of it is shown.
        dot, at = operation.tag.dot, operation.sent
        at = -1 - operation.index if at is None else at
        if operation.name == "place":
            parent, side, inserted = operation.args
            stamp = stamp_of.get(dot, 0)
            for number, value in enumerate(inserted):
                name = (*dot, at, number)
                above = None if parent is None else tuple(parent)
                hanging.setdefault((above, side), []).append((stamp, name))
                values[name] = [(operation, (0,), value)]
                parent, side = name, "R"
        elif operation.name == "write":
            target, value = operation.args
            values[tuple(target)].append((operation, (stamp_of.get(dot, 0), dot, at), value))

    def shown(name: Identity) -> list[Any]:
        hits = [operation for operation in visible if _hits(operation, name)]
        alive = [
            (recency, value)
            for operation, recency, value in values[name]
            if not any(operation < hit for hit in hits)
        ]
        return [value for _, value in sorted(alive, key=lambda each: each[0])[-1:]]

    def below(parent: Any, side: str) -> list[Any]:
        siblings = sorted(hanging.get((parent, side), []), reverse=side == "R")
        return [
            value
            for _, name in siblings
            for value in [*below(name, "L"), *shown(name), *below(name, "R")]
        ]

    return below(None, "R") + below(None, "L")


def _hits(operation: VisibleOperation, name: Identity) -> bool:
    if operation.name == "kill":
        return any(
            list(name[:3]) == message and first <= name[3] < first + count
            for *message, first, count in operation.args[0]
        )
    return operation.name == "reset" or (
        operation.name == "write" and tuple(operation.args[0]) == name
    )


def as_text(visible: Sequence[VisibleOperation]) -> str:
    return "".join(whole_tree(visible))


CASES = [
    Case(
        SharedList,
        operations,
        whole_tree,
        [("insert", 0, "a"), ("insert_all", 1, ["b", "c"]), ("replace", 0, "d"), ("delete", 0)],
    ),
    Case(SharedText, typing, as_text, [("insert", 0, "ab"), ("insert", 1, "c"), ("delete", 0)]),
]


class OldestNextToTheParent(SharedList):
    def arrival(self, operation: Arrived) -> Arrival:
        arrival = super().arrival(operation)
        if operation.name != "place":
            return arrival
        turned = [
            (name, [parent, side, 2**40 - stamp, value])
            for name, (parent, side, stamp, value) in arrival.leaves
        ]
        return Arrival(arrival.clears, turned)


class NextToTheParentAlways(SharedList):
    """What has arrived last stands next to the parent."""

    def _where(self, new: SequenceElement) -> Any:
        kept, self._children = self._children, {}
        try:
            return super()._where(new)
        finally:
            self._children = kept


class NoClimbing(SharedList):
    """A newcomer steps over a newer sibling, but not over what hangs from it."""

    def _outermost(self, member: SequenceElement, side: str) -> SequenceElement:
        return member


class KillForgetsConcurrency(SharedList):
    """A reset deletes what it has not seen."""

    def _seen(self, members: Any, tag: Tag, index: int) -> Any:
        return [member.identity for member in members]


class DropsDeadPositionsAtOnce(SharedList):
    def _show(self, member: SequenceElement, value: Any) -> None:
        super()._show(member, value)
        if value is GONE and member.identity in self._elements:
            self._members.remove(member.leaf, member.leaf.items.index(member))
            self._elements.remove(member)
            for siblings in self._children.values():
                if member in siblings:
                    siblings.remove(member)
            member.place = None

    def entered(self, entry: Entry) -> None:
        name: Any = entry.slot
        if len(name) == 4 or name[1:] in self._elements:
            super().entered(entry)

    def stabilise(self, entry: Entry) -> None:
        if len(entry.slot) == 5 or entry.slot in self._elements:  # type: ignore[arg-type]
            super().stabilise(entry)


class ForgetsPlacesEarly(SharedList):
    """An unstable element counts as stable: only its identity is kept."""

    def _adopt(self, member: SequenceElement) -> None:
        pass

    def _settle(self, member: SequenceElement) -> None:
        member.place = None


class KeepsTheDead(SharedList):
    """A removal that nobody remembers brings its element back when it is stable."""

    def stabilise(self, entry: Entry) -> None:
        name: Any = entry.slot
        if name[0] == "x" and len(name) == 5:
            self._show(self._elements[name[1:]], "back")
        else:
            super().stabilise(entry)


class InsertsBesideTheDead(SharedList):
    """Each removal hits the next element, too."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "kill" and operation.args[0]:
            origin, counter, index, first, count = operation.args[0][0]
            wider = [[origin, counter, index, first, count + 1]]
            return super().arrival(Arrived("kill", (wider,), operation.tag, operation.index))
        return super().arrival(operation)


class DeletionsWin(SharedList):
    """A deletion takes a replacement that it has not seen, if it finds it."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class LastReplacementDelivered(SharedList):
    """Of concurrent replacements, what came last is shown."""

    def entered(self, entry: Entry) -> None:
        super().entered(entry)
        name: Any = entry.slot
        if name[0] == "w" and len(name) == 5:
            self._show(self._elements[name[1:]], entry.content[0])


class ReplacesOnlyWhatIsAlive(SharedList):
    """A replacement that finds its element deleted is too late."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "write" and self.index_of(tuple(operation.args[0])) is None:
            return Arrival()
        return super().arrival(operation)


class PlaceGoesWithOneOfItsDeletions(SharedList):
    """A dead place is dropped at the first of several deletions that is stable."""

    def stabilise(self, entry: Entry) -> None:
        name: Any = entry.slot
        if name[0] == "x" and (member := self._elements.get(name[1:])) is not None:
            member.kills = 1
        super().stabilise(entry)


class DeletionTakesAReplacedElement(SharedList):
    """A stable deletion drops its element, though somebody has replaced it since."""

    def stabilise(self, entry: Entry) -> None:
        name: Any = entry.slot
        if name[0] == "x" and (member := self._elements.get(name[1:])) is not None:
            self._show(member, GONE)
        super().stabilise(entry)


class CompressionKeepsTheFirst(SharedList):
    """Of the replacements of one element in a message, not the last is sent."""

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return super().compress(operations[::-1])[::-1]


class IndicesCountTheDead(SharedText):
    """What is inserted hangs from its neighbour even if that is dead."""

    def _hook(self, index: int) -> Any:
        members = list(self._members)[:index]
        return (list(members[-1].identity), "R") if members else (None, "L")

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        pass


class TypedBackwards(SharedText):
    """Of what is inserted in one go, the last letter comes first."""

    def inserted(self, name: str, given: str) -> str:
        return given

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "place":
            parent, side, values = operation.args
            args = (parent, side, values[::-1])
            return super().arrival(Arrived("place", args, operation.tag, operation.index))
        return super().arrival(operation)


class TextSnapshotForgetsTheDead(SharedText):
    """A restored text knows nothing of places to which others may refer."""

    def load_stable(self, dumped: Any, version: int) -> None:
        stamps, runs = dumped
        super().load_stable([stamps, [run for run in runs if run[4] is not None]], version)


class TextCompressesToTheLast(SharedText):
    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return list(operations[-1:])


class TextResetIsADeletionOfAll(SharedText):
    """A reset takes what is here, seen by its sender or not."""

    def _seen(self, members: Any, tag: Tag, index: int) -> Any:
        return [member.identity for member in members]


SLOW = pytest.mark.slow  # rare: costs seconds


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(NextToTheParentAlways, marks=SLOW),
        NoClimbing,
        pytest.param(KillForgetsConcurrency, marks=SLOW),
        pytest.param(DropsDeadPositionsAtOnce, marks=SLOW),
        ForgetsPlacesEarly,
        KeepsTheDead,
        InsertsBesideTheDead,
        OldestNextToTheParent,
        pytest.param(DeletionsWin, marks=SLOW),
        pytest.param(LastReplacementDelivered, marks=SLOW),
        pytest.param(ReplacesOnlyWhatIsAlive, marks=SLOW),
        pytest.param(PlaceGoesWithOneOfItsDeletions, marks=SLOW),
        pytest.param(DeletionTakesAReplacedElement, marks=SLOW),
        pytest.param(CompressionKeepsTheFirst, marks=SLOW),
        pytest.param(IndicesCountTheDead, marks=SLOW),
        TypedBackwards,
        TextSnapshotForgetsTheDead,
        TextCompressesToTheLast,
        TextResetIsADeletionOfAll,
    ],
)
def test_the_harness_catches(mutant: type[Positions[Any, Any]]) -> None:
    case = cases.of(mutant, CASES)
    with pytest.raises((AssertionError, KeyError, UnusableInputError)) as caught:
        check_crdt(
            mutant,
            case.operations,
            case.specification,
            examples=3000,
            actions=50,
            seed=2,
            shrink=False,
        )
    assert any(mutant.__name__ in note for note in caught.value.__notes__)


REPLACING = [("insert", 0, "a"), ("replace", 0, "b"), ("replace", 0, "c"), ("delete", 0)]


@pytest.mark.parametrize(
    "mutant", [DeletionsWin, LastReplacementDelivered, ReplacesOnlyWhatIsAlive]
)
def test_every_order_catches(mutant: type[SharedList]) -> None:
    """What random schedules take seconds to come upon."""
    with pytest.raises(AssertionError, match="should be"):
        check_every_order(mutant, REPLACING, whole_tree)


def test_replacement_survives_a_concurrent_deletion() -> None:
    group = Group(SharedList, 2)
    a, b = group.members
    group.issue(a, [Call("insert_all", 0, ["x", "y", "z"])])
    group.deliver_all()
    name = a.crdt.identity_at(1)
    group.issue(a, [Call("replace", 1, "Y")])
    group.issue(b, [Call("delete", 0, 2)])
    group.deliver_all()
    assert a.crdt.value == b.crdt.value == ["Y", "z"]
    assert b.crdt.identity_at(0) == name
    group.issue(b, [Call("delete", -2)])
    group.deliver_all()
    assert a.crdt.value == b.crdt.value == ["z"]
    for refused in (("replace", 1, "x"), ("write", list(name), "x"), ("replace", 0, {1})):
        with pytest.raises(InvalidOperationError):
            a.crdt.prepare(*refused)


def test_rebased_replacement_yields_to_a_foreign_change() -> None:
    group = Group(SharedList, 1)
    (only,) = group.members
    group.issue(only, [Call("insert_all", 0, ["x", "y"])])
    base = only.crdt.clone()
    mine = only.crdt.prepare("replace", 0, "mine")
    group.issue(only, [Call("insert", 0, "before"), Call("delete", 1)])
    assert SharedList.rebase(mine, base, only.crdt) == [["write", mine[1], "mine"]]
    group.issue(only, [Call("replace", 1, "theirs")])
    assert SharedList.rebase(mine, base, only.crdt) == []


@pytest.mark.parametrize("forwards", [True, False])
def test_concurrent_typing_does_not_interleave(forwards: bool) -> None:
    group = Group(SharedText, 2)
    a, b = group.members
    group.issue(a, [Call("insert", 0, "()")])
    group.deliver_all()
    for letter_a, letter_b in zip("hello", "WORLD", strict=True):
        for member, letter in ((a, letter_a), (b, letter_b)):
            at = len(member.crdt) - 1 if forwards else 1
            group.issue(member, [Call("insert", at, letter)])
    group.deliver_all()
    hello, world = ("hello", "WORLD") if forwards else ("olleh", "DLROW")
    assert a.crdt.value == b.crdt.value
    assert a.crdt.value in (f"({hello}{world})", f"({world}{hello})")


def test_insertion_finds_its_place_after_its_parent_is_gone() -> None:
    """[r t]: x goes behind t, elsewhere t is deleted and n goes behind r, here t is gone for good
    when n comes.
    """
    group = Group(SharedList, 3)
    i, j, k = group.members
    group.issue(i, [Call("insert_all", 0, ["r", "t"])])
    group.deliver_all()
    x = group.issue(k, [Call("insert", 2, "x")])
    removal = group.issue(j, [Call("delete", 1)])
    n = group.issue(j, [Call("insert", 1, "n")])
    for member, message in ((i, x), (i, removal), (j, x), (k, removal)):
        group.deliver(member, message)
    group.stabilise(i, group.can_stabilise(i))
    assert len(i.crdt._elements) == 2 + 1 - 1
    group.deliver(i, n)
    group.deliver_all()
    assert [member.crdt.value for member in group.members] == [["r", "n", "x"]] * 3


def test_deleted_element_is_kept_until_its_removal_is_stable() -> None:
    group = Group(SharedList, 2)
    a, b = group.members
    group.issue(a, [Call("insert_all", 0, [1, 2, 3])])
    removal = group.issue(a, [Call("delete", 1)])
    assert (a.crdt.value, len(a.crdt), a.crdt.log_size) == ([1, 3], 2, 4)
    assert len(a.crdt._elements) == 3
    group.deliver_all()
    group.stabilise(a, group.can_stabilise(a))
    assert removal in b.unstable
    assert (len(a.crdt._elements), a.crdt.log_size) == (2, 0)


def test_a_list_of_thousands_edits_like_a_python_list() -> None:
    print("seed 11")
    source = random.Random(11)
    group = Group(SharedList, 1)
    (only,) = group.members
    model: list[int] = []
    for step in range(400):
        index = source.randrange(len(model) + 1)
        if source.random() < 0.6 or len(model) < 20:
            added = [step * 100 + number for number in range(source.randrange(40))]
            group.issue(only, [Call("insert_all", index, added)])
            model[index:index] = added
        else:
            count = source.randrange(min(30, len(model) - min(index, len(model))) + 1)
            group.issue(only, [Call("delete", index, count)] if count else [Call("delete", 0, 0)])
            del model[index : index + count]
        if step % 7 == 0:
            group.stabilise(only, group.can_stabilise(only))
    edited: SharedList = only.crdt
    assert edited.value == model and len(model) > 1000
    assert [edited[index] for index in range(-5, len(model), 37)] == [
        model[index] for index in range(-5, len(model), 37)
    ]
    named = [edited.identity_at(index) for index in range(len(model))]
    assert [edited.index_of(name) for name in named] == list(range(len(model)))
    group.issue(only, [Call("delete", 0, len(model))])
    group.stabilise(only, group.can_stabilise(only))
    assert not edited._elements and edited.index_of(named[0]) is None


def test_indices_are_those_of_a_python_list() -> None:
    group = Group(SharedText, 1)
    (only,) = group.members
    group.issue(only, [Call("insert", 99, "bd")])
    group.issue(only, [Call("insert", -1, "c")])
    group.issue(only, [Call("insert", -99, "a")])
    assert only.crdt.value == "abcd"
    group.issue(only, [Call("delete", -2, 2)])
    assert (only.crdt.value, only.crdt[-1], list(only.crdt)) == ("ab", "b", ["a", "b"])
    for refused in (("delete", 2), ("delete", -3), ("delete", 0, 3), ("delete", 0, -1)):
        with pytest.raises(InvalidOperationError):
            only.crdt.prepare(*refused)
    with pytest.raises(IndexError):
        only.crdt[2]


@pytest.mark.parametrize(
    "wrong",
    [
        ("place", ["a", 1, 0, 5], "R", ["x"]),  # nobody has that element
        ("place", ["a", 1, 0], "R", ["x"]),
        ("place", None, "M", ["x"]),
        ("place", None, "L", "x"),
        ("kill", [["a", 1, 0, 0]]),
        ("kill", [["a", 1, 0, 0, 2**40]]),
        ("kill", "a"),
        ("insert", 0, {1}),
    ],
)
def test_invalid_element_or_index_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOperationError):
        SharedList().prepare(*wrong)
    if wrong[:2] != ("place", ["a", 1, 0, 5]) and wrong[0] != "insert":
        with pytest.raises(RemoteProtocolError):
            SharedList().effect([*wrong, 1][: 5 if wrong[0] == "place" else 2], Tag(Dot("a", 1)))


def test_rebased_run_of_text_keeps_its_place() -> None:
    group = Group(SharedText, 1)
    (only,) = group.members
    group.issue(only, [Call("insert", 0, "[]")])
    base, theirs = only.crdt.clone(), only.crdt.clone()
    theirs.effect(theirs.prepare("insert", 0, ">>"), Tag(Dot("b", 1), (), {"a": 1}))
    issued: list[list[Any]] = []
    mine = only.crdt.clone()
    for counter, letter in enumerate("abc", 2):
        operation = mine.prepare("insert", counter - 1, letter)
        issued.append(operation)
        mine.effect(operation, Tag(Dot("a", counter), (), {"a": counter - 1}))
    issued.append(mine.prepare("delete", 4))
    issued.append(mine.prepare("delete", 2))
    dots = [Dot("a", counter) for counter in range(2, 7)]
    for counter, rebased_ in enumerate(rebased(base, issued, theirs.clone(), dots), 1):
        for again in rebased_.issued:
            past = {"a": 1, "b": 1, "again": counter - 1}
            theirs.effect(again, Tag(Dot("again", counter), (), past))
    assert theirs.value == ">>[ac"
    assert SharedText.rebase(["reset"], base, theirs) == []


def test_restored_list_keeps_children_of_removed_parents() -> None:
    group = Group(SharedList, 2)
    a, b = group.members
    first = group.issue(a, [Call("insert_all", 0, ["p", "q"])])
    group.deliver_all()
    group.issue(a, [Call("insert", 1, "x")])
    removal = group.issue(b, [Call("delete", 0)])
    group.deliver(a, removal)
    a.crdt.stable(first.tag)
    a.crdt.stable(removal.tag)
    restored = SharedList.restore(a.crdt.snapshot())
    assert restored._children.keys() == a.crdt._children.keys()
    assert restored.value == a.crdt.value == ["x", "q"]


def test_replaced_operation_of_a_message_is_not_sent() -> None:
    group = Group(SharedList, 1)
    (only,) = group.members
    group.issue(only, [Call("insert_all", 0, ["x", "y", "z"])])
    first, second, third = (list(only.crdt.identity_at(index)) for index in range(3))
    crdt = only.crdt
    operations = [
        crdt.prepare(*call)
        for call in (
            ("replace", 0, "a"),
            ("replace", 1, "b"),
            ("replace", 0, "c"),
            ("delete", 1, 2),
            ("insert", 0, "d"),
            ("replace", 2, "e"),
        )
    ]
    assert crdt.compress(operations) == [
        ["write", first, "c"],
        ["kill", [[*second, 2]]],
        ["place", first, "L", ["d"]],
        ["write", third, "e"],
    ]
    reset = [*operations, crdt.prepare("reset"), crdt.prepare("insert", 0, "f")]
    assert crdt.compress(reset) == reset[-2:]
    assert SharedText().compress([["place", None, "L", "a"], ["reset"]]) == [["reset"]]
