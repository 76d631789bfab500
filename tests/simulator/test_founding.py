"""A simulated group that is founded first: what its machines may do before, during and right after that."""

from pathlib import Path

import pytest

from crdtcast.simulator.campaign import run_group_seed, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.founding import FoundingWorld
from crdtcast.simulator.group.machine import MachinePhase
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.schedule import GroupSchedule
from tests.effort import seeds

from .written import actions

ONE_HAS_BEGUN = "found a 0 / found b 0 / link a b / hear a b / hear b a / hear a b"
"""b has both confirmations, and a has not heard b's."""


def after(
    text: str, kind: type[FoundingWorld] = FoundingWorld, founders: str = "ab"
) -> FoundingWorld:
    world = kind(tuple(founders))
    for action in actions(text):
        assert world.apply(action), action
    return world


def hear_all(world: FoundingWorld) -> None:
    while said := world.said():
        assert world.apply(("hear", *said[0]))


def test_no_machine_writes_before_its_group_has_begun() -> None:
    world = after(ONE_HAS_BEGUN)
    assert not world.apply(("send", "a")) and not world.apply(("join", "a", "b"))
    assert world.apply(("send", "b"))
    hear_all(world)
    assert world.apply(("send", "a"))
    drain_and_judge(world)


def test_founder_that_crashes_before_its_first_sync_is_late() -> None:
    world = after(f"{ONE_HAS_BEGUN} / hear b a / crash b / found b 0 / link a b")
    hear_all(world)
    assert world.counts["late"] == 1 and world.machines["b"].phase is MachinePhase.OUTSIDE
    drain_and_judge(world)
    assert len(world.machines["a"].running.members) == 2


def test_a_founder_with_a_journal_goes_on_as_the_same_member() -> None:
    world = after(f"{ONE_HAS_BEGUN} / sync b / crash b")
    assert not world.apply(("found", "b", 0))
    drain_and_judge(world)
    assert not world.counts["late"] and world.machines["b"].number == 3


def test_a_founder_in_memory_comes_back_in_its_own_place() -> None:
    world = after(f"memory b / {ONE_HAS_BEGUN} / hear b a / sync b / send b / sync b / crash b")
    drain_and_judge(world)
    assert world.counts["late"] == world.counts["memory_lost"] == 1
    assert len(world.machines["a"].running.members) == 2


def test_muted_link_keeps_frames_and_a_cut_one_loses_them() -> None:
    world = after("found a 0 / found b 0 / link a b / mute a b")
    assert not world.apply(("hear", "a", "b"))
    assert world.apply(("link", "a", "b")) and world.apply(("hear", "a", "b"))
    assert world.apply(("cut", "a", "b")) and not world.said()
    assert world.apply(("link", "a", "b")) and len(world.said()) == 2


class LetsInEarly(FoundingWorld):
    """Without a journal it lets nobody in before it has heard of every founder."""

    def awaits_founders(self, contact: str, name: str) -> bool:
        return False


JOINS = "join d b / sync b / net b d 0 / sync d / send d / sync d"


def test_group_without_journals_admits_no_one_before_all_begin() -> None:
    begun = f"memory b / {ONE_HAS_BEGUN} / sync b"
    lost = "cut a d / crash b / cut b d / found b 0 / link a b"
    world = after(f"{begun} / {JOINS} / {lost}", LetsInEarly)
    with pytest.raises(Failure, match="begins another group"):
        hear_all(world)
    world = after(begun)
    assert not world.apply(("join", "d", "b")) and world.counts["awaited"]
    for action in actions("hear b a / sync b / sync a / net a b 0"):
        assert world.apply(action), action
    for action in actions(f"{JOINS} / {lost}"):
        assert world.apply(action), action
    hear_all(world)
    drain_and_judge(world)
    assert {name for name, m in world.machines.items() if m.up} == {"a", "b", "d"}


def test_founding_run_replays_from_its_file(tmp_path: Path) -> None:
    for seed in seeds(10):
        outcome = run_group_seed(seed, CAMPAIGNS["founding"], range(3, 7))
        (tmp_path / "run.json").write_text(outcome.schedule.to_json())
        again = run_schedule(GroupSchedule.load(tmp_path / "run.json"))
        assert again.schedule == outcome.schedule and again.failure == outcome.failure
