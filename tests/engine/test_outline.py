"""An outline differs in all that does not follow from the messages: else a change of the group is not stored."""

from dataclasses import fields, replace
from typing import Any

import pytest

from crdtcast.engine import EngineState, GroupEngine, GroupState
from crdtcast.engine.views import Wants

FOLLOWS_FROM_MESSAGES = {field.name for field in fields(EngineState)}
OTHERS = [
    field.name
    for field in fields(GroupState)
    if field.init and field.name not in FOLLOWS_FROM_MESSAGES
]


@pytest.mark.parametrize("name", OTHERS)
def test_change_of_any_field_of_an_outline_is_noticed(name: str) -> None:
    engine = GroupEngine.found("a.1", ["b.1"])
    outline = engine.outline()
    assert engine.still_has(outline)
    changed: dict[str, Any] = {name: object()}
    assert not engine.still_has(replace(outline, **changed))


def test_change_of_the_group_is_noticed_and_messages_are_not() -> None:
    engine = GroupEngine.found("a.1", ["b.1", "c.1"])
    outline = engine.outline()
    engine.send(b"")
    assert engine.still_has(outline)
    engine.admit("d.1")
    assert not engine.still_has(outline)
    outline = engine.outline()
    engine.evict("b.1")
    assert not engine.still_has(outline)


def test_wishes_that_nothing_has_fulfilled_stay_the_same_object() -> None:
    wants = Wants(victims={"b.1": False}, level=3)
    assert wants.without(["c.1"], 2) is wants
    assert wants.without(["b.1"], 2) == Wants(level=3)
    assert wants.without([], 3) == Wants(victims={"b.1": False})
