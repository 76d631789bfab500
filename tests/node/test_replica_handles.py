"""The handle of each type has its operations as methods, which do what the operations do."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast import Handle, InvalidOperationError, Replica, Tag, handle_source, open_replica
from crdtcast.datatypes import AWSet, Operation, PureOpCRDT, text
from crdtcast.datatypes.operations import accepted
from crdtcast.replica import batch_handles, handles
from crdtcast.replica.handle import BatchHandle
from crdtcast.replica.objects import known_types
from examples.own_crdt import Poll

from .boards import Likes, NewBoard

TYPES = known_types()
DOCS = Path(__file__).parents[2] / "docs"
BY_IDENTITY = {"place", "write", "kill"}
"""Operations of sequences that applications seldom need: one page names them without arguments."""

each_type = pytest.mark.parametrize("crdt", TYPES.values(), ids=TYPES)


# What is generated


def test_the_generated_files_are_those_of_the_types() -> None:
    root = Path(handle_source.__file__).parent
    for module in handle_source.MODULES:
        again = f"{module.path}: run `python -m crdtcast.handle_source`"
        assert (root / module.path).read_text() == module.source(), again


def test_every_type_has_a_handle_of_its_own() -> None:
    assert set(handles.HANDLES) == set(batch_handles.BATCH_HANDLES) == set(TYPES.values())
    assert len(set(handles.HANDLES.values())) == len(TYPES)


def methods(of: type[Any]) -> dict[str, Any]:
    return {name: each for name, each in vars(of).items() if inspect.isfunction(each)}


@each_type
def test_each_operation_is_a_method_with_its_arguments(crdt: type[PureOpCRDT[Any]]) -> None:
    for of, is_coroutine, returns in (
        (handles.HANDLES[crdt], True, Tag),
        (batch_handles.BATCH_HANDLES[crdt], False, type(None)),
    ):
        assert set(methods(of)) == set(crdt.OPERATIONS)
        for name, operation in crdt.OPERATIONS.items():
            method = getattr(of, name)
            _, *parameters = inspect.signature(method).parameters.values()
            defaults = [each.default for each in parameters if each.default is not each.empty]
            assert tuple(each.name for each in parameters) == operation.names
            assert tuple(defaults) == operation.defaults
            annotations = inspect.get_annotations(method)
            assert annotations.pop("return") in (returns, None)
            assert [*annotations.values()] == [*map(accepted, operation.arguments)]
            assert inspect.iscoroutinefunction(method) is is_coroutine
            assert operation.doc and " ".join(method.__doc__.split()) == operation.doc


# What the documentation says


def documented(page: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """By type, the operations in a table, with their arguments."""
    for row in (DOCS / page).read_text().splitlines():
        cells = row.split("|")
        named = re.match(r" `(\w+)` \(`(\w+)`\)", cells[1]) if len(cells) > 5 else None
        if named and named[2] in TYPES:
            calls = re.findall(r"`(\w+)\(([^)]*)\)`", cells[2])
            yield named[2], {name: args.split(", ") if args else [] for name, args in calls}


def as_documented(operation: Operation) -> list[str]:
    required = len(operation.names) - len(operation.defaults)
    optional = zip(operation.names[required:], operation.defaults, strict=True)
    return [*operation.names[:required], *(f"{name}={default}" for name, default in optional)]


@pytest.mark.parametrize("page", ["datatypes.md", "datatypes-nested.md"])
def test_the_tables_name_each_operation_with_its_arguments(page: str) -> None:
    tables = dict(documented(page))
    for name, calls in tables.items():
        operations = TYPES[name].OPERATIONS
        assert set(calls) == set(operations) - BY_IDENTITY, name
        for call, arguments in calls.items():
            assert arguments == as_documented(operations[call]), f"{name}.{call}"
    if page == "datatypes.md":
        assert set(tables) == set(TYPES)


# What they do

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "counter_b": [
        ("increment", {"by": 5}),
        ("decrement", {}),
        ("transfer", {"amount": 1, "to": "us"}),
    ],
    "counter_go": [("increment", {"by": 2})],
    "counter_pn": [("increment", {}), ("decrement", {"by": 2})],
    "counter_resettable": [("increment", {}), ("decrement", {"by": 2}), ("reset", {})],
    "flag_dw": [("enable", {}), ("disable", {}), ("reset", {}), ("clear", {})],
    "flag_ew": [("enable", {}), ("disable", {}), ("reset", {}), ("clear", {})],
    "map_aw": [
        ("update", {"name": "k", "crdt_type": AWSet, "operation": ["add", "x"]}),
        ("remove", {"name": "k", "crdt_type": "set_aw"}),
        ("batch", {"updates": [("l", AWSet, ["add", 1])], "removals": [["k", AWSet]]}),
        ("reset", {}),
    ],
    "map_go": [("update", {"name": 1, "crdt_type": Likes.__base__, "operation": ("increment",)})],
    "map_sorted": [
        ("set", {"member": "m", "score": 2.5}),
        ("increment", {"member": "m"}),
        ("remove", {"member": "m"}),
        ("reset", {}),
    ],
    "number": [("set", {"number": "1.5"}), ("increment", {}), ("remove", {}), ("reset", {})],
    "register_lww": [("assign", {"value": {"a": [1]}}), ("reset", {}), ("clear", {})],
    "register_mv": [("assign", {"value": None}), ("reset", {}), ("clear", {})],
    "sequence": [
        ("insert", {"index": 0, "value": "x"}),
        ("insert_all", {"index": 1, "values": ["y", 2]}),
        ("replace", {"index": 0, "value": 7}),
        ("delete", {"index": 0}),
        ("place", {"parent": None, "side": "L", "values": [1, 2]}),
        ("write", {"identity": "first", "value": 3}),
        ("kill", {"runs": "first"}),
        ("reset", {}),
    ],
    "set_2p": [
        ("add", {"element": "x"}),
        ("add_all", {"elements": {1, 2}}),
        ("remove", {"element": b"x"}),
        ("remove_all", {"elements": ["x"]}),
    ],
    "set_go": [("add", {"element": "x"}), ("add_all", {"elements": ("y",)})],
    "text": [
        ("insert", {"index": 0, "text": "hello"}),
        ("delete", {"index": 0, "count": 2}),
        ("place", {"parent": None, "side": "R", "text": "x"}),
        ("kill", {"runs": "first"}),
        ("reset", {}),
    ],
}
CALLS["set_aw"] = CALLS["set_rw"] = [*CALLS["set_2p"], ("reset", {}), ("clear", {})]


def filled_in(arguments: dict[str, Any], crdt: Any) -> dict[str, Any]:
    """With the identity of the first element, and a run of it, where they are asked for."""
    now = dict(arguments)
    if now.get("identity") == "first":
        now["identity"] = crdt.identity_at(0)
    if now.get("runs") == "first":
        now["runs"] = [(*crdt.identity_at(0), 1)]
    return now


async def alone(use: Any) -> None:
    async with open_replica("eu", found=True) as replica:
        await use(replica)


@each_type
def test_each_operation_can_be_called(crdt: type[PureOpCRDT[Any]]) -> None:
    calls = CALLS[crdt.TYPE]
    assert {name for name, _ in calls} == set(crdt.OPERATIONS)

    async def use(replica: Replica) -> None:
        one, other = (replica.object(name, crdt) for name in ("one", "other"))
        assert type(one) is handles.HANDLES[crdt] and isinstance(one.crdt, crdt)
        for name, arguments in calls:
            tag = await getattr(one, name)(**filled_in(arguments, one.crdt))
            assert isinstance(tag, Tag)
            with replica.batch() as batch:
                inside = batch.object("other", crdt)
                assert type(inside) is batch_handles.BATCH_HANDLES[crdt]
                assert getattr(inside, name)(**filled_in(arguments, other.crdt)) is None
            assert isinstance(batch.tag, Tag)
            assert one.value == other.value, name

    trio.run(alone, use)


# Types of one's own


class PollHandle(Handle[Poll]):
    async def vote(self, voter: str, option: str) -> Tag:
        return await self.perform("vote", voter, option)


def test_a_type_of_your_own_has_a_general_handle_or_yours() -> None:
    async def use(replica: Replica) -> None:
        general = replica.object("lunch", Poll)
        assert type(general) is Handle
        await general.perform("vote", "ann", "tea")
        await PollHandle(replica, "lunch", Poll).vote("bob", "tea")
        with replica.batch() as batch:
            inside = batch.object("lunch", Poll)
            assert type(inside) is BatchHandle
            inside.perform("vote", "eve", "coffee")
        assert general.value == {"tea": 2, "coffee": 1}
        with pytest.raises(AttributeError, match=r"no method 'vote': use perform\('vote', …\)"):
            general.vote("ann", "tea")
        with pytest.raises(AttributeError, match=r"PollHandle has no method 'close': use vote$"):
            PollHandle(replica, "lunch", Poll).close()
        with pytest.raises(InvalidOperationError, match="has no operation 'abstain'"):
            await general.perform("abstain")

    trio.run(alone, use)


def test_a_subclass_has_the_handle_of_its_base() -> None:
    async def use(replica: Replica) -> None:
        board = replica.object("board", NewBoard)
        assert type(board) is handles.AWSetHandle
        await board.add("x")
        await board.perform("rewrite", "x", "y")
        with replica.batch() as batch:
            batch.object("board", NewBoard).add("z")
        assert board.value == {"y", "z"}
        assert isinstance(board.crdt, NewBoard)

    trio.run(alone, use)


def test_handles_of_your_own_can_be_generated() -> None:
    source = handle_source.own_handles([Poll])
    made: dict[str, Any] = {}
    exec(source, made)
    assert issubclass(made["PollHandle"], Handle)
    assert issubclass(made["PollBatchHandle"], BatchHandle)
    assert set(methods(made["PollHandle"])) == {"vote", "withdraw", "close"}
    begin = "class PollHandle(Handle[Poll]):\n    async def vote(self, voter: str, option: str) -> Tag:\n"
    assert begin in source

    async def use(replica: Replica) -> None:
        lunch = made["PollHandle"](replica, "lunch", Poll)
        await lunch.vote("ann", "tea")
        with replica.batch() as batch:
            made["PollBatchHandle"](batch, "lunch", Poll).vote("bob", "tea")
        assert lunch.value == {"tea": 2}

    trio.run(alone, use)


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ({"value": Operation()}, "each Handle has a value already"),
        ({"take": Operation(**{"from": text})}, "'from' is not a name in Python"),
        ({"del": Operation()}, "'del' is not a name in Python"),
    ],
)
def test_an_operation_that_can_be_no_method_is_named(
    operations: dict[str, Operation], why: str
) -> None:
    odd = type("Odd", (AWSet,), {"OPERATIONS": operations})
    with pytest.raises(ValueError, match=rf"Odd\.\w+: {why}"):
        handle_source.own_handles([odd])


def test_a_long_signature_is_broken_up() -> None:
    names = [f"argument_{number}" for number in range(6)]
    many = type("Many", (AWSet,), {"OPERATIONS": {"say": Operation(**dict.fromkeys(names, text))}})
    many.__module__ = __name__
    source = handle_source.own_handles([many])
    assert "    async def say(\n        self,\n        argument_0: str,\n" in source
    assert max(map(len, source.splitlines())) <= handle_source.WIDTH
