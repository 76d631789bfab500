"""The design of a key's copy as state on trial, while writes go on; see docs/redis-recorded.md."""

from collections import Counter

import pytest

from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.copied.schedule import run
from tests.adapters.redis.designs.recorded.world import Failure
from tests.effort import search, seeds


def test_copied_key_equals_the_delivered_state_under_writes() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(200):
        counts.update(run(seed))
    for what in (
        "installed",
        "beyond",
        "run while read",
        "written while read",
        "stable while it waits",
    ):
        assert counts[what], counts


FOUND_WITHIN = {
    CopyFault.FLUSH_NOT_MARKED: 100,
    CopyFault.DROPS_STABLE: 100,
    CopyFault.READ_UNDERIVED: 100,
    CopyFault.RUN_NOT_MARKED: 100,
}
"""Seeds, half of them in `ci`; forty for those that are not named."""
RARE = {CopyFault.FLUSH_NOT_MARKED: 90, CopyFault.DROPS_STABLE: 180}
"""The seed that the search for a fault begins at, where the half of `ci` of the seeds is to find it."""


@pytest.mark.parametrize("fault", CopyFault, ids=lambda fault: fault.name)
def test_a_planted_fault_of_a_copy_is_found(fault: CopyFault) -> None:
    within = FOUND_WITHIN.get(fault, 40)
    for seed in search(within, first=RARE.get(fault, 0)):
        try:
            run(seed, frozenset({fault}))
        except Failure:
            return
    pytest.fail(f"{fault} is not found within {within} seeds")
