"""Nodes with planted defects: each is found, by the figure that it is about. About ten seconds each."""

from pathlib import Path

import pytest
import trio

from crdtcast.chaos import plan as plans
from crdtcast.chaos.course import ChaosOutcome, Course
from crdtcast.chaos.plan import ChaosPlan, Episode

pytestmark = pytest.mark.process

BROKEN = Path(__file__).with_name("broken.py")


def run(scratch: Path, which: str, *episodes: Episode) -> ChaosOutcome:
    plan = ChaosPlan(("n1", "n2", "n3"), episodes, 6.0)
    course = Course(plan, scratch, rate=40.0, tell=print, program=(str(BROKEN), which))
    return trio.run(course.run)


@pytest.mark.slow
def test_delivery_that_is_not_applied_is_detected(tmp_path: Path) -> None:
    outcome = run(tmp_path, "drop")
    assert outcome.found.lost and outcome.found.diverged and not outcome.ok


@pytest.mark.slow
@pytest.mark.parametrize(("which", "figure"), [("twice", "doubled"), ("forget", "lost")])
def test_resending_twice_is_detected(tmp_path: Path, which: str, figure: str) -> None:
    outcome = run(tmp_path, which, Episode(1.0, plans.EVICT, "n2", "", 2.0))
    assert getattr(outcome.found, figure) and not outcome.found.diverged and not outcome.ok


@pytest.mark.slow
def test_a_new_incarnation_after_a_full_disk_is_found(tmp_path: Path) -> None:
    outcome = run(tmp_path, "renew", Episode(1.0, plans.FULL, "n2", "", 1.0))
    assert any("after a full disk n2." in line for line in outcome.wrong) and not outcome.ok
