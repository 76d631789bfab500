"""Whispers in simulated groups: they are heard as they should be, and the group does not notice them."""

import pytest

from crdtcast.simulator.campaign import run_group_seed, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS, Campaign
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.group.whispers import VERBS, WhisperLanes
from crdtcast.simulator.schedule import GroupSchedule
from tests.effort import seeds
from tests.simulator.test_recorded_runs import effects

EVERYTHING = Faults.named([*CAMPAIGNS["everything"].faults.names, "whisper"])


def test_whispers_change_nothing_that_the_group_sends() -> None:
    heard = 0
    for seed in seeds(8):
        schedule = run_group_seed(seed, Campaign(faults=EVERYTHING), range(3, 6)).schedule
        with effects() as sent:
            outcome = run_schedule(schedule)
        assert outcome.failure is None
        quiet = [each for each in schedule.actions if each[0] not in VERBS]
        with effects() as sent_without:
            without = run_schedule(schedule.with_actions(quiet))
        assert sent_without == sent
        whispered = {"whispered", "heard", "reheard", "unheard"}
        assert {n: c for n, c in outcome.counts.items() if n not in whispered} == without.counts
        heard += outcome.counts["heard"] + outcome.counts["reheard"]
    assert heard > 100


def test_a_lost_and_a_late_whisper_are_made_up_for_by_the_next() -> None:
    schedule = GroupSchedule(
        members=("a", "b"),
        actions=(
            ("whisper", "a", 0),
            ("whisper", "a", 0),
            ("hear", "a", "b", 1),
            ("rehear", "a", "b", 0),
            ("mishear", "a", "b", 0),
            ("whisper", "b", 2),
            *[("tick", "b")] * 25,
        ),
    )
    outcome = run_schedule(schedule)
    assert outcome.failure is None
    # Six more of each machine, and what a is told of b's, when the group has settled.
    assert outcome.counts["heard"] == 1 + 1 + 6
    assert outcome.counts["unheard"] == 1


def test_lanes_notice_a_whisper_that_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdtcast.engine.whispers.Whispers._is_late", lambda *_: False)
    lanes = WhisperLanes()
    lanes.linked(("a", 1), ("b", 1))
    for _ in range(2):
        lanes.whisper("a", 1, 0)
    lanes.carry("hear", "a", "b", 1)
    with pytest.raises(Exception, match="1 after 2"):
        lanes.carry("hear", "a", "b", 0)
