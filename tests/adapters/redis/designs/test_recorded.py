"""The design of recorded execution on trial: no server, no gateway, only their rules; see docs/redis-recorded.md."""

from collections import Counter

import pytest

from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.schedule import Focus, run
from tests.adapters.redis.designs.recorded.world import Failure
from tests.effort import seeds

PHASES = (
    "reserved, not sent",
    "executed, not answered",
    "between two segments",
    "recorded, not derived",
    "derived, not told",
)

CHANGING = Focus(fixed=False)
FOUND_BY: dict[Fault, tuple[Focus, int]] = {}
"""The campaign that finds a fault, and within how many seeds."""


def test_every_replica_holds_what_was_recorded_whatever_crashes_when() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(400):
        counts.update(run(seed))
    for phase in PHASES:
        assert counts[f"crash: {phase}"], counts
        assert counts[f"loss: {phase}"], counts
    for phase in PHASES[:2] + PHASES[3:]:
        assert counts[f"takeover: {phase}"], counts
        assert counts[f"break: {phase}"], counts
    for what in ("leave waits", "evict waits", "rejoined", "torn with a record"):
        assert counts[what], counts


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    focus, within = FOUND_BY[fault]
    for seed in seeds(within):
        try:
            run(seed, frozenset({fault}), focus)
        except (Failure, Exception):
            return
    pytest.fail(f"{fault} is not found")
