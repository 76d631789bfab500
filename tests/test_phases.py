"""Lifecycles as tables: what a legal and an illegal event do, and the diagram."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.commit import phase as server
from crdtcast.exceptions import TransitionError
from crdtcast.group import phase as member
from crdtcast.phases import E, Lifecycle, P
from crdtcast.transport import peers

DOCS = Path(__file__).parents[1] / "docs"


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


def diagram(table: Mapping[tuple[P, E], P], start: P) -> str:
    """The table as a Mermaid state diagram, for a page of the documentation."""
    ends = sorted({phase.name for phase in table.values()} - {phase.name for phase, _ in table})
    arrows = [
        f"{here.name} --> {there.name}: {event.value}" for (here, event), there in table.items()
    ]
    lines = [f"[*] --> {start.name}", *arrows, *(f"{end} --> [*]" for end in ends)]
    return "\n    ".join(["stateDiagram-v2", *lines]) + "\n"


def test_an_event_moves_the_phase_as_the_table_says() -> None:
    door = Lifecycle(TABLE, Door.OPEN)
    acts = (Act.PUSH, Act.PUSH, Act.PULL, Act.PUSH, Act.BRICK)
    assert [door.move(act) for act in acts] == [
        *(Door.SHUT, Door.SHUT, Door.OPEN, Door.SHUT, Door.WALLED_UP)
    ]
    assert door.phase is Door.WALLED_UP


def test_an_event_outside_the_table_changes_nothing() -> None:
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


@pytest.mark.parametrize(
    ("page", "module", "start"),
    [
        ("node.md", peers, peers.LinkPhase.DOWN),
        ("node.md", member, member.MemberPhase.OUTSIDE),
        ("redis-internals.md", server, server.ServerPhase.WAITING),
    ],
    ids=["link", "member", "server"],
)
def test_page_shows_the_current_transition_table(page: str, module: Any, start: Enum) -> None:
    table: Mapping[tuple[Enum, Enum], Enum] = module.TRANSITIONS
    shown = f"<!-- {module.__name__} -->\n```mermaid\n{diagram(table, start)}```\n"
    assert shown in (DOCS / page).read_text()
