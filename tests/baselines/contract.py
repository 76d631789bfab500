"""What every engine here must show over random schedules, and what a defect must: the tests of all of them use it."""

from collections.abc import Iterable

import pytest

from crdtcast.simulator.oracle import FailureKind

from .driver import Build, Group, random_run, replay_words
from .traces import TracedRun


def assert_correct(build: Build, seeds: Iterable[int]) -> None:
    """Groups of 2 to 5 members: no finding, everything delivered and stable, then silence."""
    for seed in seeds:
        members = 2 + seed % 4
        run = random_run(build, members, seed, fifo=seed % 5 == 0)
        assert not run.findings, f"seed {seed}, {members} members: {run.findings[0]}"
        assert run.at_rest, f"seed {seed}, {members} members: not silent when all is stable"


def assert_correct_without_stability(build: Build, seeds: Iterable[int]) -> None:
    """The same but for stability, of which nothing is said and for which nothing is sent."""
    for seed in seeds:
        members = 2 + seed % 4
        run = random_run(build, members, seed)
        others = [finding for finding in run.findings if finding.kind is not FailureKind.STALL]
        assert not others, f"seed {seed}, {members} members: {others[0]}"
        assert run.notices == 0
        assert run.at_rest, f"seed {seed}, {members} members: not silent when all is delivered"


def kinds(run: Group) -> set[FailureKind]:
    """What is wrong in a run."""
    return {finding.kind for finding in run.findings}


def assert_fails_only_with(defect: Build, repaired: Build, run: TracedRun) -> None:
    """What was done in `run` ends as the file says with the defect, and well without."""
    if run.kind == "exception":
        with pytest.raises(KeyError):
            replay_words(defect, run.members, run.actions)
    else:
        assert FailureKind(run.kind) in kinds(replay_words(defect, run.members, run.actions))
    assert not replay_words(repaired, run.members, run.actions).findings
