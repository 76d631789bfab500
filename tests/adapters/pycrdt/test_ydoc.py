"""`YDoc` as a type: convergence, what is refused, deletion, snapshots."""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from pycrdt import Doc, Text

from crdtcast.adapters.pycrdt import MissingUpdatesError, YDoc
from crdtcast.causality.tags import Dot, Tag
from crdtcast.testing import check_crdt
from tests.adapters.pycrdt.editing import EditedDoc, plain
from tests.effort import examples


def typed(*steps: tuple[int, str], client: int = 1) -> list[bytes]:
    """The updates of one author who inserts texts at places."""
    doc: Doc[Any] = Doc(client_id=client)
    text = doc.get("t", type=Text)
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    for at, inserted in steps:
        text.insert(at, inserted)
    return updates


FOUR = typed((0, "a"), (1, "b"), (0, "c"), (2, "d"))


def tag(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), past)


def test_pycrdt_loses_an_update_out_of_order() -> None:
    """If this fails, pycrdt is mended: say so in docs/pycrdt.md."""
    doc: Doc[Any] = Doc()
    for at in (0, 2, 3, 1):
        doc.apply_update(FOUR[at])
    assert str(doc.get("t", type=Text)) != "cadb"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_out_of_order_updates_are_refused_not_lost(order: tuple[int, ...]) -> None:
    crdt = YDoc()
    applied = 0
    waiting = list(order)
    while waiting:
        at = waiting.pop(0)
        try:
            operation = crdt.prepare("apply", FOUR[at])
        except MissingUpdatesError as error:
            assert error.state_vector == crdt.state_vector()
            waiting.append(at)
        else:
            applied += 1
            crdt.effect(operation, tag("a", applied, a=applied - 1))
    assert crdt.value == {"t": "cadb"}


def test_random_edits_converge_at_five_replicas() -> None:
    check_crdt(
        EditedDoc,
        st.tuples(st.just("edit"), st.integers(0, 999)),
        lambda visible: plain([operation.args[0] for operation in visible]),
        members=5,
        examples=examples(15),
        actions=40,
    )
