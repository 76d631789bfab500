"""The design of a key's copy as state on trial, while writes go on; see docs/redis-recorded.md."""

from collections import Counter

import pytest

from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.copied.schedule import run
from tests.adapters.redis.designs.recorded.world import Failure
from tests.effort import seeds


def test_a_copied_key_is_what_was_delivered_however_much_is_written_meanwhile() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(400):
        counts.update(run(seed))
    for what in ("installed", "read again", "beyond", "run while read", "stable while it waits"):
        assert counts[what], counts


@pytest.mark.parametrize("fault", CopyFault, ids=lambda fault: fault.name)
def test_a_planted_fault_of_a_copy_is_found(fault: CopyFault) -> None:
    for seed in seeds(FOUND_WITHIN.get(fault, 40)):
        try:
            run(seed, frozenset({fault}))
        except Failure:
            return
    pytest.fail(f"{fault} is not found")


FOUND_WITHIN: dict[CopyFault, int] = {}
