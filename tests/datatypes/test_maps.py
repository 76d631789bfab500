"""GOMap and AWMap against specifications that are made of those of the values, and mutations that
the harness must catch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    Arrival,
    AWMap,
    AWSet,
    BoundedCounter,
    DWFlag,
    Entry,
    EWFlag,
    GOMap,
    LWWRegister,
    MVRegister,
    Number,
    Operation,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    SharedList,
    SharedText,
    text,
)
from crdtcast.datatypes.canonical import canonical
from crdtcast.exceptions import (
    InvalidOperationError,
    NewerOperationError,
    RemoteProtocolError,
    UnusableInputError,
)
from crdtcast.testing import Group, VisibleOperation, check_crdt, weighted
from crdtcast.testing.model_group import Call
from tests.datatypes.cases import Case, not_forgotten
from tests.datatypes.test_sequence import whole_tree

CART = ("cart", AWSet.TYPE)
COUNT = ("count", ResettableCounter.TYPE)
LIST = ("list", SharedList.TYPE)
INNER = ("inner", AWMap.TYPE)

elements = st.sampled_from("xy")
on_values = weighted(
    (5, st.tuples(st.sampled_from(["add", "add", "remove"]), elements).map(lambda op: (*CART, op))),
    (3, st.tuples(st.just("increment"), st.integers(-1, 2)).map(lambda op: (*COUNT, op))),
    (
        2,
        st.sampled_from(
            [("insert", 0, "a"), ("insert", 9, "b"), ("replace", 0, "c"), ("delete", 0)]
        ).map(lambda op: (*LIST, op)),
    ),
)
updates = on_values.map(lambda update: ("update", *update))
keys = st.sampled_from([CART, CART, COUNT, LIST])
flat = weighted(
    (9, updates),
    (4, keys.map(lambda key: ("remove", *key))),
    (1, st.just(("reset",))),
    (1, st.just(("batch", [(*CART, ["add", "y"]), (*COUNT, ["increment"])], [LIST]))),
)
within = st.one_of(
    updates,
    keys.map(lambda key: ("remove", *key)),
    st.just(("update", *INNER, ("update", *CART, ("add", "y")))),
)
operations = weighted(
    (5, flat),
    (4, within.map(lambda op: ("update", *INNER, op))),
    (1, st.just(("remove", *INNER))),
)
growing = weighted(
    (3, updates),
    (1, updates.map(lambda op: ("update", "grown", GOMap.TYPE, op))),
).filter(lambda operation: LIST[0] not in repr(operation))

Pieces = list[tuple[tuple[Any, str], VisibleOperation]]


def pieces(operation: VisibleOperation) -> Pieces:
    """What an operation does to each value, as operations on them."""

    def on(key: Sequence[Any], name: str, *args: Any) -> tuple[tuple[Any, str], VisibleOperation]:
        nested = VisibleOperation(name, args, operation.tag, operation.index, operation.sent)
        return tuple(key), nested  # type: ignore[return-value]

    if operation.name == "update":
        *key, nested = operation.args
        return [on(key, *nested)]
    if operation.name == "remove":
        return [on(operation.args, "reset")]
    if operation.name == "batch":
        made, removed = operation.args
        return [on(key, *nested) for *key, nested in made] + [on(key, "reset") for key in removed]
    return []


def history_of_values(
    visible: Sequence[VisibleOperation],
) -> dict[tuple[Any, str], list[VisibleOperation]]:
    histories: dict[tuple[Any, str], list[VisibleOperation]] = {}
    split = [pieces(operation) for operation in visible]
    for made in split:
        for key, _ in made:
            histories[key] = []
    for operation, made in zip(visible, split, strict=True):
        if operation.name == "reset":
            for history in histories.values():
                history.append(VisibleOperation("reset", (), operation.tag, operation.index, None))
        for key, nested in made:
            histories[key].append(nested)
    return histories


def worth(key: tuple[Any, str], history: Sequence[VisibleOperation]) -> Any:
    """What a value is worth, by the specification of its type."""
    if key[1] == AWSet.TYPE:
        return frozenset(
            add.args[0]
            for add in history
            if add.name == "add"
            if not any(
                add < other and (other.name == "reset" or other.name == "remove")
                for other in history
                if other.args in ((), add.args)
            )
        )
    if key[1] == ResettableCounter.TYPE:
        return sum(
            delta.args[0]
            for delta in history
            if delta.name == "increment"
            if not any(delta < other for other in history if other.name == "reset")
        )
    if key[1] == SharedList.TYPE:
        return whole_tree(history)
    return grown(history) if key[1] == GOMap.TYPE else observed_removal(history)


def observed_removal(visible: Sequence[VisibleOperation]) -> dict[Any, Any]:
    """Each value by its own specification; empty ones are not there."""
    values = {key: worth(key, history) for key, history in history_of_values(visible).items()}
    return {key: value for key, value in values.items() if value}


def grown(visible: Sequence[VisibleOperation]) -> dict[Any, Any]:
    return {key: worth(key, history) for key, history in history_of_values(visible).items()}


def grown_and_forgotten(visible: Sequence[VisibleOperation]) -> dict[Any, Any]:
    """A container's reset leaves the keys, worth what it has not seen."""
    forgets = [operation for operation in visible if operation.name == "forget"]
    others = [operation for operation in visible if operation.name != "forget"]
    return {
        key: grown_and_forgotten([*history, *forgets])
        if key[1] == GOMap.TYPE
        else worth(key, not_forgotten([*history, *forgets]))
        for key, history in history_of_values(others).items()
    }


CASES = [
    Case(
        AWMap,
        operations,
        observed_removal,
        [
            ("update", *CART, ("add", "x")),
            ("remove", *CART),
            ("update", *LIST, ("insert", 0, "a")),
            ("update", *INNER, ("update", *COUNT, ("increment", 1))),
        ],
    ),
    Case(
        GOMap,
        growing,
        grown,
        [("update", *CART, ("add", "x")), ("update", *CART, ("remove", "x"))],
        grown_and_forgotten,
    ),
]


class RemovalDropsTheObject(AWMap):
    """A removal forgets the value, whatever it had seen of it."""

    def _take(self, piece: Any, tag: Tag, index: int) -> None:
        super()._take(piece, tag, index)
        if piece.operation is None and piece.key in self._objects:
            self._entries -= self._objects.pop(piece.key).log_size
            self._shown.pop(piece.key, None)


class RemovalForgetsConcurrency(AWMap):
    """A removal resets the value also as far as it has not seen it."""

    def _take(self, piece: Any, tag: Tag, index: int) -> None:
        if piece.operation is None and piece.key in self._objects:
            seen = dict.fromkeys("abcde", 10**9)
            super()._take(piece, Tag(tag.dot, (), seen), index)
        else:
            super()._take(piece, tag, index)


class ResetOnlyOfWhatIsShown(AWMap):
    """Removes keys without telling the values: no nested reset at all."""

    def _reset_of(self, held: PureOpCRDT[Any]) -> list[Any] | None:
        return None if isinstance(held, AWMap) else super()._reset_of(held)


class EmptyKeysStay(AWMap):
    def shows(self, held: PureOpCRDT[Any]) -> bool:
        return True


class VanishesWithItsLog(AWMap):
    """A value that is empty now is dropped although its log is not."""

    def _review(self, key: Any, held: PureOpCRDT[Any]) -> None:
        super()._review(key, held)
        if key not in self._shown and key in self._objects:
            self._entries -= held.log_size
            del self._objects[key]


class StabilityStopsAtTheMap(AWMap):
    def stable(self, tag: Tag) -> None:
        self._unstable.pop(tag.dot, None)


class SnapshotForgetsWhoIsUnstable(AWMap):
    def load_stable(self, dumped: Any, version: int) -> None:
        super().load_stable(dumped, version)
        self._unstable.clear()


class SleepsWithItsLog(AWMap):
    """A value is packed although something of it is unstable."""

    def _rest(self, key: Any, held: PureOpCRDT[Any]) -> None:
        self._entries -= held.log_size
        self._asleep.lay(key, held)
        del self._objects[key], self._shown[key]


class WakesAsNew(AWMap):
    """An operation on a value that sleeps begins with an empty one."""

    def _awake(self, key: Any) -> PureOpCRDT[Any] | None:
        self._asleep.wake(key)
        return self._objects.get(key)


class SleepersAreNotReset(AWMap):
    """A reset of the map reaches only what is awake."""

    def _pieces(self, name: str, args: Any) -> Any:
        made = super()._pieces(name, args)
        return [each for each in made if name != "reset" or each.key in self._objects]


@pytest.mark.parametrize(
    "mutant",
    [
        RemovalDropsTheObject,
        RemovalForgetsConcurrency,
        ResetOnlyOfWhatIsShown,
        EmptyKeysStay,
        pytest.param(VanishesWithItsLog, marks=pytest.mark.slow),
        StabilityStopsAtTheMap,
        SnapshotForgetsWhoIsUnstable,
        SleepsWithItsLog,
        WakesAsNew,
        SleepersAreNotReset,
    ],
)
def test_the_harness_catches(mutant: type[AWMap]) -> None:
    with pytest.raises((AssertionError, KeyError, UnusableInputError)) as caught:
        check_crdt(
            mutant, operations, observed_removal, examples=2000, seed=2, actions=40, shrink=False
        )
    assert any(mutant.__name__ in note for note in caught.value.__notes__)


class KeysVanish(GOMap):
    def shows(self, held: PureOpCRDT[Any]) -> bool:
        return not held.blank


class StableKeysVanish(GOMap):
    def shows(self, held: PureOpCRDT[Any]) -> bool:
        return bool(held.log_size) or not held.blank

    def stable(self, tag: Tag) -> None:
        super().stable(tag)
        self._shown = {key: None for key, held in self._objects.items() if self.shows(held)}


class OneTypeAName(GOMap):
    """The type is no part of the key: what comes second overwrites what came first."""

    def effect(
        self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
    ) -> None:
        super().effect(operation, tag, index, version)
        self._shown = dict([*self._shown.items()][-1:])


@pytest.mark.parametrize("mutant", [KeysVanish, StableKeysVanish, OneTypeAName])
def test_the_harness_catches_in_the_grow_only_map(mutant: type[GOMap]) -> None:
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, growing, grown, examples=2000, seed=2, shrink=False)


def test_list_forgotten_by_some_replicas_converges_again() -> None:
    """It is filled, emptied, forgotten at a and b but not at c, and then filled by a and c: c counts its stamps on, the
    others from 0.
    """
    group = Group(AWMap, 3)
    a, b, c = group.members

    def issue(member: Any, *operation: Any) -> Any:
        return group.issue(member, [Call("update", "l", SharedList, list(operation))])

    for number in range(4):
        issue(c, "insert", 9, number)
    group.deliver_all()
    group.issue(c, [Call("remove", "l", SharedList)])
    group.deliver_all()
    for member in (a, b):
        group.stabilise(member, group.can_stabilise(member))
        assert not member.crdt._objects
    group.stabilise(c, group.can_stabilise(c)[:4])
    from_a, from_c = issue(a, "insert", 0, "a"), issue(c, "insert", 0, "c")
    later = issue(a, "insert", 0, "b")
    for member, messages in ((b, (from_c, from_a, later)), (c, (from_a, later))):
        for message in messages:
            group.deliver(member, message)
    group.deliver_all()
    first, *others = [member.crdt["l", SharedList].value for member in group.members]
    assert others == [first, first]
    group.stabilise(c, group.can_stabilise(c))
    restored = [AWMap.restore(member.crdt.snapshot()).value for member in group.members]
    assert restored == [{("l", "sequence"): first}] * 3


def deep(depth: int, operation: list[Any]) -> list[Any]:
    for level in range(depth):
        operation = ["update", f"level-{level}", AWMap.TYPE, operation]
    return operation


def test_maps_nest_as_deep_as_an_argument_can() -> None:
    group = Group(AWMap, 2)
    a, b = group.members
    group.issue(a, [Call(*deep(29, ["update", "s", AWSet, ["add", "x"]]))])
    group.deliver_all()
    value: Any = b.crdt.value
    while AWMap.TYPE in {type_of for _, type_of in value}:
        ((_, value),) = value.items()
    assert value == {("s", AWSet.TYPE): {"x"}}
    group.issue(b, [Call("remove", "level-28", AWMap)])
    group.deliver_all()
    for member in group.members:
        group.stabilise(member, group.can_stabilise(member))
        assert (member.crdt.value, member.crdt.log_size, member.crdt._objects) == ({}, 0, {})
    with pytest.raises(InvalidOperationError, match="nested deeper"):
        a.crdt.prepare(*deep(40, ["update", "s", AWSet, ["add", "x"]]))


class Votes(MVRegister):
    TYPE = "votes_of_mine"


class Board(AWMap):
    TYPE = "board"
    TYPES = {Votes.TYPE: Votes}  # noqa: RUF012


def test_map_subclass_holds_custom_types_and_itself() -> None:
    board = Board()
    tag = Tag(Dot("a", 1))
    board.effect(board.prepare("update", "sub", Board, ["update", "v", Votes, ["assign", 1]]), tag)
    assert board.value == {("sub", "board"): {("v", "votes_of_mine"): [1]}}
    assert type(board["sub", Board]["v", Votes]) is Votes
    operation = ["update", "v", Votes.TYPE, ["assign", 1]]
    with pytest.raises(InvalidOperationError, match="votes_of_mine"):
        AWMap().prepare(*operation)
    with pytest.raises(RemoteProtocolError, match="votes_of_mine") as refused:
        AWMap().effect(operation, tag)
    assert not isinstance(refused.value, NewerOperationError)
    with pytest.raises(NewerOperationError, match="upgrade"):
        AWMap().effect(operation, tag, 0, AWMap.VERSION + 1)


def test_a_batch_of_which_a_part_is_unknown_changes_nothing() -> None:
    board = AWMap()
    batch = [["update", "s", AWSet.TYPE, ["add", "x"]], ["n", Number.TYPE, ["halve"]]]
    for wrong in (
        [["s", AWSet.TYPE, ["add", "x"]], ["n", Number.TYPE, ["halve"]]],
        [["s", AWSet.TYPE, ["add", "x"]], ["n", "nothing_known", ["add", "x"]]],
        [["s", AWSet.TYPE, ["add", "x"]], ["s", AWSet.TYPE, ["add", "y"]]],
        [["s", AWSet.TYPE, ["add", "x"]], ["m", AWMap.TYPE, ["batch", batch[1:], []]]],
        [["s", AWSet.TYPE]],
    ):
        with pytest.raises(RemoteProtocolError):
            board.effect(["batch", wrong, []], Tag(Dot("a", 1)))
        with pytest.raises(InvalidOperationError):
            board.prepare("batch", wrong, [])
        assert (board.value, board.log_size, board._objects) == ({}, 0, {})


def test_reading_a_map() -> None:
    group = Group(AWMap, 1)
    (only,) = group.members
    board = only.crdt
    told: list[Any] = []
    stop = board.observe(lambda change: told.append(change.slots))
    group.issue(only, [Call("update", "n", PNCounter, ["increment", 2])])
    group.issue(only, [Call("update", "n", PNCounter, ["decrement", 2])])
    group.issue(only, [Call("update", "f", EWFlag, ["enable"]), Call("reset")])
    stop()
    assert told[:2] == [(("n", PNCounter.TYPE),)] * 2 and len(told) == 4
    assert (list(board), len(board), board.log_size) == ([], 0, 2)
    assert ("n", PNCounter) not in board and "n" not in board
    group.issue(only, [Call("update", "n", PNCounter, ["increment", 1])])
    group.issue(only, [Call("remove", "n", PNCounter)])
    assert board["n", PNCounter].value == 1  # a counter without a reset cannot be removed
    with pytest.raises(KeyError):
        board["f", EWFlag]
    assert board.memory().log > 0 and board.memory().entries == 3


def equal_effect(calls: Sequence[Call]) -> list[list[Any]]:
    group = Group(AWMap, 1)
    (only,) = group.members
    group.issue(only, [Call("update", "old", AWSet, ["add", "x"])])
    restored = only.crdt.clone()
    restored.site = only.crdt.site
    message = group.issue(only, calls)
    compressed = restored.compress(message.operations())
    for index, operation in enumerate(compressed):
        restored.effect(operation, message.tag, index)
    assert restored == only.crdt
    return compressed


def test_compressed_operations_have_the_same_effect() -> None:
    number = Call("update", "n", Number, ["increment", 2])
    assert equal_effect([number, number, number]) == [
        ["update", "n", Number.TYPE, ["increment", "6"]]
    ]
    add = Call("update", "s", AWSet, ["add", "x"])
    gone = Call("remove", "s", AWSet)
    assert equal_effect([add, add, gone, Call("remove", "old", AWSet), add])[-1][0] == "remove"
    assert equal_effect([add, Call("reset"), number, Call("batch", [], [["old", AWSet]])])
    assert equal_effect([Call("update", "c", PNCounter, ["increment"]), Call("reset"), gone])


def rebased(crdt: type[PureOpCRDT[Any]], *operation: Any) -> tuple[Any, Any]:
    """What is issued again when nobody touched the value, and when somebody did."""
    base, theirs = AWMap(), AWMap()
    tag = Tag(Dot("b", 1))
    theirs.effect(theirs.prepare("update", "other", AWSet, ["add", "x"]), tag)
    untouched = AWMap.rebase(list(operation), base, theirs)
    change: dict[str, Callable[[], list[Any]]] = {
        AWSet.TYPE: lambda: ["add", "y"],
        Number.TYPE: lambda: ["increment", 1],
    }
    tag = Tag(Dot("b", 2), (), {"b": 1})
    theirs.effect(theirs.prepare("update", "k", crdt, change[crdt.TYPE]()), tag, 0)
    return untouched, AWMap.rebase(list(operation), base, theirs)


def test_map_rebases_each_value_by_the_rule_of_its_type() -> None:
    add = ["update", "k", AWSet.TYPE, ["add", "x"]]
    assert rebased(AWSet, *add) == ([add], [add])
    remove = ["remove", "k", AWSet.TYPE]
    assert rebased(AWSet, *remove) == ([remove], [])
    assignment = ["update", "k", Number.TYPE, ["set", "3", 1]]
    assert rebased(Number, *assignment) == ([assignment], [])
    batch = ["batch", [assignment[1:]], [["other", AWSet.TYPE]]]
    assert rebased(Number, *batch) == ([assignment], [])
    assert rebased(Number, "reset") == ([], [])


def test_a_damaged_snapshot_is_refused() -> None:
    board = AWMap()
    board.effect(board.prepare("update", "t", SharedText, ["insert", 0, "hi"]), Tag(Dot("a", 1)))
    assert AWMap.restore(board.snapshot()).value == board.value
    with pytest.raises(UnusableInputError):
        GOMap.restore(board.snapshot())
    with pytest.raises(UnusableInputError):
        AWMap.restore(board.snapshot().replace(b"text", b"next"))


def test_operations_of_a_message_know_each_other_inside_a_value() -> None:
    """Two decrements of one bounded counter in one message do not spend the same rights twice."""
    group = Group(AWMap, 1)
    (only,) = group.members
    group.issue(only, [Call("update", "b", BoundedCounter, ["increment", 1])])
    spend = Call("update", "b", BoundedCounter, ["decrement", 1])
    with pytest.raises(InvalidOperationError):
        group.issue(only, [spend, spend])
    group.issue(only, [spend])


def test_equal_maps_have_equal_bytes_in_any_order() -> None:
    first = Tag(Dot("a", 1)), "s"
    second = Tag(Dot("b", 1)), "t"
    snapshots = set()
    for order in ((first, second), (second, first)):
        board = AWMap()
        for tag, name in order:
            board.effect(board.prepare("update", name, AWSet, ["add", name]), tag)
        snapshots.add(board.snapshot())
        assert canonical(board.value)
    assert len(snapshots) == 1


def test_fully_stable_value_is_kept_packed() -> None:
    group = Group(AWMap, 1)
    (only,) = group.members
    board = only.crdt
    group.issue(only, [Call("update", "n", Number, ["set", 7])])
    group.issue(only, [Call("update", "few", AWSet, ["add_all", list(range(16))])])
    group.issue(only, [Call("update", "many", AWSet, ["add_all", list(range(17))])])
    group.issue(only, [Call("update", "sub", AWMap, ["update", "f", EWFlag, ["enable"]])])
    assert len(board._objects) == 4
    group.stabilise(only, group.can_stabilise(only))
    many = ("many", AWSet.TYPE)
    assert list(board._objects) == [many]  # packing it again and again would cost too much
    assert (len(board), board.log_size, board["n", Number].value) == (4, 0, 7)
    assert board["sub", AWMap]["f", EWFlag].value is True
    assert list(board._objects) == [many]  # looking wakes nobody
    restored = AWMap.restore(board.snapshot())
    assert restored.value == board.value and list(restored._objects) == [many]
    group.issue(only, [Call("update", "n", Number, ["increment", 1]), Call("remove", "few", AWSet)])
    assert (board["n", Number].value, board.log_size) == (8, 1)
    assert ("few", AWSet) not in board
    group.stabilise(only, group.can_stabilise(only))
    assert list(board._objects) == [many] and len(board) == 3


class Whole(PureOpCRDT[str]):
    """Shows how a type is nested that has no `reset` and no cheap `blank`."""

    TYPE = "whole"
    OPERATIONS = {"say": Operation(word=text)}  # noqa: RUF012

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._said = ""

    def arrival(self, operation: Any) -> Any:
        return Arrival((None,), ((None, operation.args[0]),))

    def clear_stable(self, slot: Any) -> None:
        self._said = ""

    def stabilise(self, entry: Entry) -> None:
        self._said = max(self._said, entry.content)

    @property
    def value(self) -> str:
        return max([self._said, *(entry.content for entry in self.log)])

    def dump_stable(self) -> Any:
        return self._said

    def load_stable(self, dumped: Any, version: int) -> None:
        self._said = dumped


class Holds(AWMap):
    TYPE = "holds"
    TYPES = {Whole.TYPE: Whole}  # noqa: RUF012


def test_any_type_can_be_held() -> None:
    group = Group(Holds, 1)
    (only,) = group.members
    for said, shown in (("x", {("w", "whole"): "x"}), ("", {})):
        group.issue(only, [Call("update", "w", Whole, ["say", said])])
        assert only.crdt.value == shown
    group.stabilise(only, group.can_stabilise(only))
    assert not only.crdt._objects


@pytest.mark.parametrize(
    ("crdt", "operations", "hidden"),
    [
        (AWSet, [["add", "x"], ["remove", "x"]], True),
        (PNCounter, [["increment", 2], ["decrement", 2]], True),
        (EWFlag, [["enable"], ["disable"]], True),
        (DWFlag, [["disable"]], True),
        (LWWRegister, [["assign", 1], ["assign", None]], True),
        (MVRegister, [["assign", None]], False),
        (Number, [["set", 0]], False),
        (Number, [["set", 1], ["remove"]], True),
        (SharedText, [["insert", 0, "x"], ["delete", 0]], True),
        (GOMap, [["update", "k", "counter_pn", ["increment", 0]]], False),
        (AWMap, [["update", "k", "counter_pn", ["increment", 0]]], True),
        (BoundedCounter, [["increment", 1], ["decrement", 1]], False),
    ],
    ids=lambda value: value.TYPE if isinstance(value, type) else "",
)
def test_a_key_with_the_value_of_a_new_object_is_hidden(
    crdt: type[PureOpCRDT[Any]], operations: list[Any], hidden: bool
) -> None:
    group = Group(AWMap, 1)
    (only,) = group.members
    for operation in operations:
        group.issue(only, [Call("update", "k", crdt, operation)])
    for _ in range(2):
        assert (("k", crdt) not in only.crdt) == hidden
        group.stabilise(only, group.can_stabilise(only))


def test_item_updated_during_its_deletion_keeps_only_the_update() -> None:
    group = Group(AWMap, 2)
    a, b = group.members
    group.issue(a, [Call("update", "i", AWMap, ["update", "title", LWWRegister, ["assign", "x"]])])
    group.deliver_all()
    group.issue(a, [Call("remove", "i", AWMap)])
    group.issue(b, [Call("update", "i", AWMap, ["update", "done", EWFlag, ["enable"]])])
    group.deliver_all()
    for member in group.members:
        assert member.crdt.value == {("i", "map_aw"): {("done", "flag_ew"): True}}
