"""Runs go as they were recorded: each step, each thing that is sent, in the same order, and what was counted.

A refactoring that changes no behaviour keeps all of it. After one that changes the protocol, or a campaign, record the
runs of today: `CRDTCAST_RECORD=1 python3 dev.py test -n 0 tests/simulator/test_recorded_runs.py`.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crdtcast.causality.messages import Transmit
from crdtcast.engine import GroupEngine
from crdtcast.engine.views import Views
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.wire.view_frames import views_fields
from tests.effort import size

FILE = Path(__file__).parents[1] / "data" / "runs.json"
ANEW = "the behaviour has changed; if that was meant: " + __doc__[__doc__.index("CRDTCAST") : -3]
RECORDED = 6
"""Seeds of each campaign."""

Run = dict[str, Any]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_text(effect: Transmit) -> str:
    """The same in each process: sets are sorted."""
    content = effect.message
    return f"{effect.to} {views_fields(content) if isinstance(content, Views) else content}"


@contextmanager
def effects() -> Iterator[list[str]]:
    """What the engines of all members send meanwhile, in order."""
    found: list[str] = []
    take_outbox = GroupEngine.take_outbox

    def noted(engine: GroupEngine) -> list[Transmit]:
        outbox = take_outbox(engine)
        found.extend(f"{engine.me} to {as_text(effect)}" for effect in outbox)
        return outbox

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupEngine, "take_outbox", noted)
        yield found


def run(name: str, seed: int) -> Run:
    with effects() as sent:
        outcome = run_group_seed(seed, CAMPAIGNS[name], range(3, 7))
    return {
        "steps": digest(f"{outcome.schedule.members} {outcome.schedule.actions} {outcome.failure}"),
        "sent": digest("\n".join(sent)),
        "counts": {what: n for what, n in sorted(outcome.counts.items()) if n},
    }


def record(file: Path, seeds: int) -> None:
    """One run a line."""
    blocks = []
    for name in CAMPAIGNS:
        lines = ",\n".join(f"  {json.dumps(run(name, seed))}" for seed in range(seeds))
        blocks.append(f' "{name}": [\n{lines}\n ]')
    file.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


@cache
def recorded() -> dict[str, list[Run]]:
    if os.environ.get("CRDTCAST_RECORD"):
        record(FILE, RECORDED)
    found: dict[str, list[Run]] = json.loads(FILE.read_text())
    return found


def test_all_campaigns_are_recorded() -> None:
    assert {name: len(runs) for name, runs in recorded().items()} == dict.fromkeys(
        CAMPAIGNS, RECORDED
    ), ANEW


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_runs_go_as_recorded(name: str) -> None:
    runs = recorded()[name][: size(ci=1, release=RECORDED)]
    assert [run(name, seed) for seed in range(len(runs))] == runs, ANEW


def test_another_order_of_what_is_sent_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    take_outbox = GroupEngine.take_outbox
    monkeypatch.setattr(GroupEngine, "take_outbox", lambda engine: take_outbox(engine)[::-1])
    assert run("static", 0) != recorded()["static"][0]
