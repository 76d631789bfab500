"""Random schedules of deadlines, and the faults that they find."""

import pytest

from tests.adapters.redis.designs.deadlines import faults
from tests.adapters.redis.designs.deadlines.schedule import run
from tests.effort import seeds

FOUND_AT: dict[str, int] = {}


def test_random_schedules() -> None:
    for seed in seeds(700):
        run(seed)
