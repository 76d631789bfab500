"""`crdtcast vectors`: our types pass their vectors, wrong types fail them, unusable files say why."""

import json
from collections.abc import Iterator
from dataclasses import replace
from math import factorial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from crdtcast.datatypes import (
    Arrival,
    Arrived,
    AWSet,
    Entry,
    PureOpCRDT,
    ResettableCounter,
)
from crdtcast.exceptions import UnusableInputError
from crdtcast.testing.vectors.cli import vectors as command
from crdtcast.testing.vectors.format import LOADER, load, parse
from crdtcast.testing.vectors.run import (
    MAX_ORDERS,
    VECTOR_TYPES,
    VectorOutcome,
    linear_extensions,
    run_vector,
)

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "tests" / "data" / "vectors" / "crdt-vectors.yaml"
SHARED = ROOT.parent / "shared" / "vectors" / "crdt-vectors.yaml"


@pytest.fixture(params=[OURS, SHARED], ids=["copy", "shared"])
def vector_file(request: pytest.FixtureRequest) -> Iterator[Path]:
    path: Path = request.param
    if not path.exists():
        pytest.skip(f"{path} is not here")
    yield path


def test_every_vector_of_our_types_passes_in_every_order(vector_file: Path) -> None:
    listed = yaml.load(vector_file.read_bytes(), LOADER)["vectors"]
    executed = {
        vector["id"]: vector["peers"]["orders_checked"]
        for vector in listed
        # What the source refuses is never delivered: it has no place in an order of ours.
        if not any(event.get("rejected") for event in vector["events"])
    }
    results = [run_vector(vector) for vector in load(str(vector_file))]
    ours = [result for result in results if result.vector.type in VECTOR_TYPES]
    assert {result.vector.type for result in ours} == set(VECTOR_TYPES)
    for result in ours:
        assert result.outcome is VectorOutcome.PASSED, result
        assert result.orders == executed.get(result.vector.id, 1)
    assert all(
        result.outcome is VectorOutcome.UNSUPPORTED
        for result in results
        if result.vector.type not in VECTOR_TYPES
    )


class RemoveWins(AWSet):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class KeepsTombstones(AWSet):
    """Right values, but a log that holds removals, too."""

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "remove":
            return Arrival(operation.args, (((operation.args[0], "removed"), None),))
        return super().arrival(operation)

    def stabilise(self, entry: Entry) -> None:
        if type(entry.slot) is not tuple:
            super().stabilise(entry)

    @property
    def value(self) -> frozenset[Any]:
        return frozenset(slot for slot in self if type(slot) is not tuple)


class KeepsStable(ResettableCounter):
    def clear_stable(self, slot: Any) -> None:
        pass


class ZeroesOnReset(ResettableCounter):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


@pytest.mark.parametrize(
    ("mutant", "kind", "caught_by"),
    [
        (RemoveWins, "set_aw", {"aws-05", "aws-15", "aws-18"}),
        (KeepsTombstones, "set_aw", {"aws-18"}),
        (KeepsStable, "counter_fat", {"cft-02"}),
        (ZeroesOnReset, "counter_fat", {"cft-04", "cft-07"}),
    ],
)
def test_vectors_catch(mutant: type[PureOpCRDT[Any]], kind: str, caught_by: set[str]) -> None:
    mapped = VECTOR_TYPES[kind]
    types = {kind: replace(mapped, crdt=mutant)}
    results = [run_vector(vector, types) for vector in load(str(OURS)) if vector.type == kind]
    failed = {
        result.vector.id: result for result in results if result.outcome is VectorOutcome.FAILED
    }
    assert set(failed) >= caught_by
    assert all("expected" in result.detail for result in failed.values())


def cases(*events: dict[str, Any], **fields: Any) -> dict[str, Any]:
    case = {"id": "v", "type": "set_aw", "events": list(events), "expect": [], **fields}
    return {"format": 1, "vectors": [case]}


def event(number: int, replica: str, op: str, *args: Any, **fields: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "replica": replica, "op": op, "args": list(args), **fields}


def test_a_refused_operation_is_not_sent_but_carries_causality() -> None:
    (vector,) = parse(
        cases(
            event(1, "A", "add", "x"),
            event(2, "A", "add", ["no", "element"], rejected=True),
            event(3, "B", "remove", "x", happens_after=["e2"]),
        )
    )
    assert run_vector(vector).outcome is VectorOutcome.PASSED


def test_a_wrong_refusal_fails_either_way() -> None:
    (accepted,) = parse(cases(event(1, "A", "add", "x", rejected=True), expect=[]))
    assert run_vector(accepted).detail == "e1 was not refused"
    (refused,) = parse(cases(event(1, "A", "add", 1.5), expect=[]))
    assert "e1 was refused: set_aw.add: 1.5 is a float" in run_vector(refused).detail


def test_an_unknown_operation_of_a_known_type_is_not_supported() -> None:
    (vector,) = parse(cases(event(1, "A", "shuffle")))
    assert run_vector(vector).outcome is VectorOutcome.UNSUPPORTED


def test_orders_beyond_the_bound_are_omitted_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crdtcast.testing.vectors.run.MAX_ORDERS", factorial(4))
    events = [event(number, f"r{number}", "add", number) for number in range(5)]
    (five,) = parse(cases(*events, expect=list(range(5))))
    result = run_vector(five)
    assert (result.outcome, result.orders, result.capped) == (
        VectorOutcome.PASSED,
        factorial(4),
        True,
    )
    (four,) = parse(cases(*events[:4], expect=list(range(4))))
    assert (run_vector(four).orders, run_vector(four).capped) == (factorial(4), False)
    assert factorial(7) == MAX_ORDERS


def test_linear_extensions() -> None:
    nothing: frozenset[int] = frozenset()
    assert list(linear_extensions([])) == [()]
    assert len(set(linear_extensions([nothing] * 5))) == factorial(5)
    assert list(linear_extensions([nothing, frozenset({0}), nothing])) == [
        (0, 1, 2),
        (0, 2, 1),
        (2, 0, 1),
    ]
    chain = [frozenset({number - 1} if number else ()) for number in range(3000)]
    assert list(linear_extensions(chain)) == [tuple(range(3000))]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "the file is not a mapping"),
        ({"vectors": []}, "format None"),
        ({"format": 2, "vectors": []}, "format 2"),
        ({"format": 1}, "the file has no vectors"),
        ({"format": 1, "vectors": [3]}, "vector number 1 is not a mapping"),
        (cases(expect=[], type=3), "vector v: type is not a str"),
        (cases(event(1, "A", "add", happens_after=["e2"])), "refers to 'e2'"),
        (cases(event(1, "A", "add"), event(1, "A", "add")), "two events with the id e1"),
        (cases(views=[{"seen": []}]), "a view without a value"),
        (cases(views=[{"seen": ["e9"], "value": []}]), "refers to 'e9'"),
        (cases({"id": "e1", "op": "add"}), "event number 1 has no replica"),
        (cases(pure_log_size=True), "pure_log_size is not a int"),
        ({"format": 1, "vectors": [{"id": "v", "type": "t", "events": []}]}, "has no expectation"),
        ({"format": 1, "vectors": cases()["vectors"] * 2}, "two vectors have the id v"),
    ],
)
def test_an_unusable_file_says_where_and_what(document: Any, reason: str) -> None:
    with pytest.raises(UnusableInputError, match=reason):
        parse(document)


def run(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output.splitlines()


def test_command_prints_a_line_per_vector_and_totals_as_json() -> None:
    code, lines = run(str(OURS), "--json", "--type", "counter_pn", "--type", "rga")
    assert code == 0
    assert lines[0].split() == ["pass", "cpn-01", "counter_pn", "1", "order"]
    assert all(line.split()[:3:2] == ["pass", "rga"] for line in lines[1:-1])
    assert json.loads(lines[-1]) == {"passed": len(lines) - 1, "failed": 0, "unsupported": 0}


def test_command_selects_by_id_and_level() -> None:
    assert run(str(OURS), "--only", "aws-05", "--only", "aws-18", "--level", "must") == (
        0,
        [
            "pass              aws-05   set_aw        2 orders",
            "pass              aws-18   set_aw        2 orders",
            "2 passed, 0 failed, 0 not supported yet",
        ],
    )
    code, lines = run(str(OURS), "--level", "choice")
    assert (code, lines[-1]) == (0, "0 passed, 0 failed, 0 not supported yet")


def test_command_exits_1_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(cases(event(1, "A", "add", "x"), expect=["y"])))
    code, lines = run(str(path), "--json")
    assert code == 1
    assert "fail" in lines[0] and "expected ['y'], got ['x'] (order e1)" in lines[0]
    assert json.loads(lines[-1]) == {"passed": 0, "failed": 1, "unsupported": 0}


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"- 1\n", b"[" * 5000, None])
def test_command_exits_2_with_one_message(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content)
    code, lines = run(str(path))
    assert (code, len(lines)) == (2, 1)
    assert str(path) in lines[0]


def test_command_refuses_an_unknown_id() -> None:
    code, lines = run(str(OURS), "--only", "aws-5")
    assert (code, len(lines)) == (2, 1)
    assert "has no vector aws-5" in lines[0]
