"""Lifecycles as tables: what a legal and an illegal event do, and the diagram."""

from enum import Enum

import pytest

from crdtcast.exceptions import TransitionError
from crdtcast.phases import Lifecycle, diagram


class Door(Enum):
    OPEN = "open"
    SHUT = "shut"
    WALLED_UP = "walled up"


class Act(Enum):
    PUSH = "push"
    PULL = "pull"
    BRICK = "lay bricks"


TABLE = {
    (Door.OPEN, Act.PUSH): Door.SHUT,
    (Door.SHUT, Act.PULL): Door.OPEN,
    (Door.SHUT, Act.PUSH): Door.SHUT,
    (Door.SHUT, Act.BRICK): Door.WALLED_UP,
}


def test_an_event_moves_the_phase_as_the_table_says() -> None:
    door = Lifecycle(TABLE, Door.OPEN)
    acts = (Act.PUSH, Act.PUSH, Act.PULL, Act.PUSH, Act.BRICK)
    assert [door.move(act) for act in acts] == [
        *(Door.SHUT, Door.SHUT, Door.OPEN, Door.SHUT, Door.WALLED_UP)
    ]
    assert door.phase is Door.WALLED_UP


def test_an_event_outside_the_table_is_an_error_and_changes_nothing() -> None:
    door = Lifecycle(TABLE, Door.OPEN)
    with pytest.raises(TransitionError, match=r"^no transition from OPEN by BRICK$"):
        door.move(Act.BRICK)
    assert door.phase is Door.OPEN


def test_the_diagram_has_every_arrow_the_start_and_the_end() -> None:
    assert diagram(TABLE, Door.OPEN) == (
        "stateDiagram-v2\n"
        "    [*] --> OPEN\n"
        "    OPEN --> SHUT: push\n"
        "    SHUT --> OPEN: pull\n"
        "    SHUT --> SHUT: push\n"
        "    SHUT --> WALLED_UP: lay bricks\n"
        "    WALLED_UP --> [*]\n"
    )
