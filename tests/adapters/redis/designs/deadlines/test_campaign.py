"""Random schedules of deadlines, and the planted faults that they find."""

import pytest

from tests.adapters.redis.designs.deadlines import faults
from tests.adapters.redis.designs.deadlines.gateway import Gateway
from tests.adapters.redis.designs.deadlines.schedule import run
from tests.effort import seeds
from tests.simulator.search import likely_first

FOUND_AT: dict[type[Gateway], int] = {
    faults.DropsWithoutX: 0,
    faults.NoKillInFront: 2,
    faults.KillsOwnWrite: 1,
    faults.PlainKillInFront: 34,
    faults.LeavesEntries: 1,
    faults.MovesEntriesLater: 2,
    faults.DropsOrphansEarly: 619,
    faults.ForgetsNone: 17,
    faults.NotStoppedByX: 7,
    faults.NeverReasserts: 20,
    faults.ReassertsTheDead: 34,
    faults.ReassertsDataOnly: 634,
    faults.ReassertsAsNew: 61,
    faults.RemembersDeadlines: 0,
    faults.JudgesByNativeTime: 693,
    faults.TellsWithinTheBound: 3,
    faults.ExpiresBehind: 0,
    faults.NoXWhereMoved: 0,
    faults.AnswersEveryMove: 7,
    faults.ExpiresTheDeadline: 21,
    faults.WritesToTheDropped: 2,
    faults.SetsDeadlinesMidway: 7,
    faults.TrustsItsClock: 8,
    faults.RevivesTheDeleted: 15,
    faults.ReassertsTheEmptyOnly: 1106,
    faults.ReassertsTheReplaced: 2404,
}
"""The first seed that finds it."""
COSTS_MESSAGES = {faults.NoGrace}
"""No value depends on these: see `test_only_one_member_announces_an_expired_key`."""


def test_random_schedules_keep_every_rule() -> None:
    for seed in seeds(600):
        run(seed)


@pytest.mark.parametrize("fault", FOUND_AT, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: type[Gateway]) -> None:
    for seed in likely_first(FOUND_AT[fault]):
        try:
            run(seed, fault)
        except AssertionError:
            return
    pytest.fail(f"no seed to {seed} has found {fault.__name__}")


def test_every_fault_is_looked_for() -> None:
    planted = {
        value
        for value in vars(faults).values()
        if isinstance(value, type) and issubclass(value, Gateway) and value is not Gateway
    }
    assert planted == FOUND_AT.keys() | COSTS_MESSAGES
