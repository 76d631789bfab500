"""The base class: what may be sent, what may arrive, snapshots, digests, cost of an operation."""

import enum
import subprocess
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crdtcast.datatypes as datatypes
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    EVERYTHING,
    MAX_DEPTH,
    Arrival,
    Arrived,
    AWSet,
    Entry,
    Operation,
    POLog,
    PureOpCRDT,
    ResettableCounter,
    exact,
    text,
)
from crdtcast.exceptions import InvalidOperationError, RemoteProtocolError, UnusableInputError


class Register(PureOpCRDT[frozenset[bytes]]):
    """Takes any value that travels: a multi-value register over encodings."""

    TYPE: ClassVar[str] = "register_test"
    OPERATIONS = {  # noqa: RUF012
        "assign": Operation(value=exact),
        "name": Operation(name=text, of=exact, defaults=(None,)),
    }

    def arrival(self, operation: Arrived) -> Arrival:
        return Arrival((None,), ((None, operation.args),))

    def clear_stable(self, slot: Hashable) -> None:
        self.last = None

    def stabilise(self, entry: Entry) -> None:
        self.last = entry.content

    @property
    def value(self) -> Any:
        return [list(entry.content) for entry in self.log.in_slot(None)]

    def dump_stable(self) -> Any:
        return None

    def load_stable(self, dumped: Any, version: int) -> None:
        pass


class Text(str):
    pass


class Size(enum.IntEnum):
    SMALL = 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


travels = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@given(travels)
def test_accepted_value_arrives_unchanged(value: Any) -> None:
    operation = Register().prepare("assign", value)
    arrived = msgpack.unpackb(msgpack.packb(operation))
    assert repr(arrived) == repr(operation) == repr(["assign", value])


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        [(1,)],
        {1, 2},
        2**64,
        -(2**63) - 1,
        10**5000,
        float("nan"),
        "\ud800",
        {"\ud800": 1},
        {1: "a"},
        {None: "a"},
        {("a",): 1},
        {"a": {2: 3}},
        {True: 1},
        Text("a"),
        Size.SMALL,
        bytearray(b"a"),
        memoryview(b"a"),
        1j,
        object(),
        nested(MAX_DEPTH + 1),
        msgpack.Timestamp(1, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unencodable_value_is_refused_at_the_source(value: Any) -> None:
    register = Register()
    with pytest.raises(InvalidOperationError, match=r"register_test\.assign: "):
        register.prepare("assign", value)
    assert register.prepare("assign", nested(MAX_DEPTH)) == ["assign", nested(MAX_DEPTH)]


@pytest.mark.parametrize(
    ("crdt", "name", "args", "reason"),
    [
        (AWSet, "append", ("x",), "has no operation 'append': use one of add, add_all, clear"),
        (AWSet, "add", (), "takes 1 argument, 0 given"),
        (AWSet, "add", ("x", "y"), "takes 1 argument, 2 given"),
        (AWSet, "reset", ("x",), "takes 0 arguments, 1 given"),
        (AWSet, "add", (1.0,), "1.0 is a float: an element is a str, bytes or int"),
        (AWSet, "add", (True,), "True is a bool"),
        (AWSet, "add", (None,), "None is a NoneType"),
        (AWSet, "add", (("x",),), "is a tuple"),
        (AWSet, "add", (["x"],), "is a list"),
        (AWSet, "add", (2**63,), "beyond signed 64 bits"),
        (AWSet, "add", ("\ud800",), "not valid Unicode"),
        (AWSet, "add_all", ("xyz",), "is a str, not a list, tuple, set or frozenset"),
        (AWSet, "add_all", (["x", None],), "None is a NoneType"),
        (AWSet, "add_all", (iter("x"),), "not a list, tuple, set or frozenset"),
        (ResettableCounter, "increment", (True,), "True is a bool, not an int"),
        (ResettableCounter, "increment", (1.5,), "1.5 is a float, not an int"),
        (ResettableCounter, "decrement", (-(2**63) - 1,), "beyond signed 64 bits"),
        (ResettableCounter, "increment", (1, 2), "takes 0 to 1 arguments, 2 given"),
    ],
)
def test_a_refusal_says_what_is_wrong(
    crdt: type[PureOpCRDT[Any]], name: str, args: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(InvalidOperationError) as refusal:
        crdt().prepare(name, *args)
    assert reason in str(refusal.value)


def test_defaults_aliases_and_collections_are_normalised() -> None:
    assert ResettableCounter().prepare("increment") == ["increment", 1]
    assert AWSet().prepare("clear") == ["reset"]
    assert AWSet().prepare("add_all", ("b", "a", "b")) == ["add_all", ["b", "a"]]
    assert AWSet().prepare("add_all", {"b", 2, b"c", 1}) == ["add_all", [b"c", 1, 2, "b"]]


def test_later_change_of_an_argument_leaves_the_operation() -> None:
    register, given = Register(), {"a": [1]}
    operation = register.prepare("assign", given)
    given["a"].append(2)
    assert operation == ["assign", {"a": [1]}]


def tag(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), past)


@pytest.mark.parametrize(
    "operation",
    [
        [],
        ["add"],
        ["add", "x", "y"],
        ["add", ["x"]],
        ["add", None],
        ["clear"],
        ["unknown", 1],
        [["add"], "x"],
        [3],
        ["add_all", "xyz"],
        ["add_all", ["x", {}]],
        3,
        None,
    ],
    ids=repr,
)
def test_invalid_operation_is_refused_and_changes_nothing(operation: Any) -> None:
    crdt = AWSet()
    crdt.effect(["add", "a"], tag("a", 1))
    before = crdt.snapshot()
    with pytest.raises(RemoteProtocolError, match="set_aw cannot apply"):
        crdt.effect(operation, tag("b", 1))
    assert crdt.snapshot() == before


def test_an_alias_for_nothing_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="define that operation"):
        type("Wrong", (AWSet,), {"OPERATIONS": {"clear": Operation(sent_as="reset")}})
    with pytest.raises(
        TypeError, match=r"OPERATIONS\['vote'\] is <function text.*give an Operation"
    ):
        type("Wrong", (AWSet,), {"OPERATIONS": {"vote": text}})
    with pytest.raises(TypeError, match="2 defaults for 1 argument"):
        Operation(name=text, defaults=("a", "b"))


def test_an_argument_without_a_name_or_a_check_is_refused() -> None:
    with pytest.raises(TypeError, match="name the arguments"):
        Operation(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="aditive=True: give a check"):
        Operation(aditive=True)  # type: ignore[arg-type]


def example() -> AWSet:
    crdt = AWSet()
    crdt.effect(["add_all", ["a", b"a", 7]], tag("a", 1))
    crdt.stable(tag("a", 1))
    crdt.effect(["add", "b"], tag("a", 2, a=1))
    crdt.effect(["add", "b"], tag("b", 1, a=1), 0)
    crdt.effect(["add_all", ["c", "d"]], tag("b", 1, a=1), 1)
    return crdt


def test_restored_object_continues_from_its_snapshot() -> None:
    restored = AWSet.restore(example().snapshot())
    assert restored == example()
    assert restored.log_size == example().log_size == 4
    for crdt in (restored, example()):
        crdt.effect(["remove_all", ["a", "b", "c"]], tag("c", 1, a=2))
        assert crdt.value == {b"a", 7, "b", "c", "d"}
        crdt.stable(tag("a", 2))
        crdt.stable(tag("b", 1))
        assert crdt.log_size == 0


def test_state_that_cannot_be_dumped_names_its_type() -> None:
    class Loose(AWSet):
        def dump_stable(self) -> Any:
            return self._stable

    with pytest.raises(TypeError, match=r"cannot write the state of this set_aw.*'set' object"):
        Loose().snapshot()


def test_equality_is_of_type_and_value() -> None:
    unstable, stable = AWSet(), AWSet()
    for crdt in (unstable, stable):
        crdt.effect(["add", "x"], tag("a", 1))
    stable.stable(tag("a", 1))
    assert unstable == stable
    assert unstable.digest() == stable.digest()
    assert unstable != AWSet()
    assert AWSet() != ResettableCounter()
    assert AWSet() != frozenset()
    assert repr(unstable) == "<AWSet frozenset({'x'}), 1 unstable>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(unstable)


def test_a_snapshot_keeps_slots_that_are_tuples() -> None:
    class Pairs(AWSet):
        def arrival(self, operation: Arrived) -> Arrival:
            return Arrival(leaves=((("key", (operation.args[0], 1)), None),))

        def reentered(self, entry: Entry) -> None:
            """Its slots are no elements."""

    crdt = Pairs()
    crdt.effect(["add", "x"], tag("a", 1))
    assert Pairs.restore(crdt.snapshot()).value == {("key", ("x", 1))} == crdt.value


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (b"", "set_aw"),
        (b"\xc1", "set_aw"),
        (example().snapshot()[:-1], "set_aw"),
        (example().snapshot() + b"\x00", "extra"),
        (msgpack.packb([1, "set_aw", 1, []]), "set_aw"),
        (msgpack.packb(7), "set_aw"),
        (msgpack.packb([1, "set_aw", 1, 3, {}]), "set_aw"),
        (msgpack.packb([1, "set_aw", 1, [[1]], {}]), "is a list"),
        (msgpack.packb([1, "set_aw", 1, [], {"a": [[2, {}, []], [1, {}, []]]}]), "out of order"),
        (msgpack.packb([1, "set_aw", 1, [], {"a": [[1, 3, []]]}]), "out of order"),
        (msgpack.packb([1, "set_aw", 2, [], {}]), "reads up to 1, 1: upgrade it"),
        (msgpack.packb([2, "set_aw", 1, [], {}]), "format 2"),
        (ResettableCounter().snapshot(), "it is a snapshot of a 'counter_resettable'"),
    ],
)
def test_an_unusable_snapshot_is_refused_by_name(snapshot: bytes, reason: str) -> None:
    with pytest.raises(UnusableInputError, match=reason) as refusal:
        AWSet.restore(snapshot)
    assert "cannot restore a set_aw" in str(refusal.value)


PRINT_STATE = """
from crdtcast.datatypes import AWSet
from crdtcast.causality.tags import Dot, Tag
crdt = AWSet()
for number in range(50):
    tag = Tag(Dot("a", number + 1), (), {"a": number, "z": 1, "b": 2})
    crdt.effect(crdt.prepare("add_all", {f"e{number}", str(number), b"e%d" % number}), tag)
    if number % 3:
        crdt.stable(tag)
print(crdt.digest(), crdt.snapshot().hex())
"""


@pytest.mark.process
def test_digest_and_snapshot_do_not_depend_on_the_hash_seed() -> None:
    root = Path(datatypes.__file__).resolve().parents[1]
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_STATE],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_log_finds_earlier_entries_and_leaves_no_remains() -> None:
    log = POLog()
    entries = [Entry(tag("a", counter, a=counter - 1), 0, "s", None) for counter in (1, 2, 3)]
    entries.append(Entry(tag("b", 1, a=1), 0, "t", None))
    entries.append(Entry(tag("b", 1, a=1), 1, "s", None))
    for entry in entries:
        log.add(entry)
    assert log.before(tag("c", 1, a=2), 0) == entries[:2]
    assert log.before(tag("b", 1, a=1), 1) == [entries[0], entries[3]]
    assert list(log.in_slot("s")) == [*entries[:3], entries[4]]
    assert log.of_message(Dot("b", 1)) == entries[3:]
    assert log.of_message(Dot("b", 2)) == log.of_message(Dot("z", 1)) == []
    for entry in entries:
        log.discard(entry)
    assert (len(log), list(log), list(log.slots)) == (0, [], [])
    assert (log._slots, log._origins) == ({}, {})


class Counting(AWSet):
    """Counts the entries it is asked about."""

    asked = 0

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        self.asked += 1
        return super().obsolete(old, new)


def test_operation_on_one_element_visits_only_that_element() -> None:
    crdt = Counting()
    for number in range(1000):
        crdt.effect(["add", number], tag("a", number + 1, a=number))
    assert crdt.asked == 0
    crdt.effect(["remove", 5], tag("b", 1, a=1000))
    crdt.effect(["add", 6], tag("b", 2, a=1000, b=1))
    assert crdt.asked == 2


def lines_executed(action: Any) -> int:
    """Lines of Python run by `action`: a cost that no busy machine changes."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("name", ["add", "remove"])
def test_the_cost_of_an_operation_does_not_grow_with_the_set(name: str, stable: bool) -> None:
    costs = []
    for size in (10, 5000):
        crdt = AWSet()
        for number in range(size):
            crdt.effect(["add", number], tag("a", number + 1, a=number))
            if stable:
                crdt.stable(tag("a", number + 1))
        new = tag("b", 1, a=size)

        def act(crdt: AWSet = crdt, new: Tag = new) -> None:
            crdt.effect(crdt.prepare(name, 5), new)
            crdt.stable(new)

        costs.append(lines_executed(act))
    assert costs[0] == costs[1]


def test_reset_skips_concurrent_entries_at_no_cost() -> None:
    costs = []
    for concurrent in (10, 5000):
        crdt = ResettableCounter()
        for number in range(concurrent):
            crdt.effect(["increment", 1], tag("a", number + 1, a=number))
        new = tag("b", 1)

        def act(crdt: ResettableCounter = crdt, new: Tag = new) -> None:
            crdt.effect(["reset"], new)
            assert crdt.value == crdt.log_size

        costs.append(lines_executed(act))
    assert costs[0] == costs[1]


def test_everything_public_is_exported() -> None:
    assert all(hasattr(datatypes, name) for name in datatypes.__all__)
    assert EVERYTHING is datatypes.Everything.EVERYTHING
