"""Random schedules of deadlines, and the planted faults that they find."""

import pytest

from tests.adapters.redis.designs.deadlines import faults
from tests.adapters.redis.designs.deadlines.gateway import Gateway
from tests.adapters.redis.designs.deadlines.schedule import run
from tests.effort import seeds
from tests.simulator.search import likely_first

FOUND_AT: dict[type[Gateway], int] = {
    faults.X: 0,
}
"""The first seed that finds it."""
BY_CASE = {faults.NoGrace, faults.ReassertsTheEmptyOnly}
"""Found by schedules of their own (`test_cases.py`): one costs messages, one takes increments."""


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
    assert planted == FOUND_AT.keys() | BY_CASE
