"""The design of recorded execution on trial: its rules alone, without a server (docs/redis-recorded.md)."""

from collections import Counter

import pytest

from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.schedule import Focus, run
from tests.adapters.redis.designs.recorded.world import Failure
from tests.effort import search, seeds

PHASES = (
    "reserved, not sent",
    "executed, not answered",
    "between two segments",
    "recorded, not derived",
    "derived, not told",
)

ANY = Focus()
VALUES = Focus(values=True)
EVICTED = Focus(fixed=False, change="evict", values=True)
TORN = Focus(fixed=False, early=False, change="tear")
ROUGH = Focus(rough=True)
OUTLIVED = Focus(fixed=True, always=False, early=False, rough=True)
LOSES = Focus(fixed=True, always=False, early=True, rough=True)
FOUND_BY = {
    Fault.RECORD_IN_A_STEP_OF_ITS_OWN: (ANY, 20),
    Fault.RECORD_AT_THE_END: (ANY, 60),
    Fault.RECORD_OF_THE_LAST_SEGMENT: (ANY, 20),
    Fault.DOT_AT_DERIVATION: (LOSES, 100),
    Fault.CONTEXT_AT_DERIVATION: (EVICTED._replace(always=True, early=True), 120),
    Fault.OWN_OPERATIONS_BETWEEN: (EVICTED, 100),
    Fault.STILL_UNTIL_THE_ANSWER: (EVICTED._replace(early=False), 120),
    Fault.DERIVED_AFTER_DELIVERIES: (ANY, 40),
    Fault.OWN_TIME: (ANY, 40),
    Fault.DERIVED_FROM_MEMORY: (VALUES, 100),
    Fault.DROPPED_WHEN_ENDED: (TORN, 60),
    Fault.LEAVES_AT_ONCE: (Focus(fixed=False, change="leave"), 20),
    Fault.PARKED_WITHOUT_DOT: (LOSES, 100),
    Fault.NOT_GIVEN_BACK: (ANY, 20),
    Fault.FAILED_NX_SENDS: (ANY, 80),
    Fault.REPLIES_FROM_DERIVATION: (ANY, 40),
    Fault.RUNS_AGAIN: (ROUGH, 40),
    Fault.SAYS_NOTHING_WRITTEN: (ROUGH, 40),
    Fault.KEEPS_THE_FENCE: (ROUGH, 40),
    Fault.LINKS_BEFORE_DERIVING: (Focus(early=True, rough=True), 60),
    Fault.ORPHAN_LOST: (VALUES, 100),
    Fault.HIDDEN_STAYS: (VALUES, 100),
    Fault.REISSUED_AS_IT_WAS: (EVICTED._replace(early=False), 200),
    Fault.MEMORY_WITHOUT_RECORD: (OUTLIVED, 100),
    Fault.DERIVED_IS_UNSURE: (OUTLIVED, 60),
    Fault.COUNT_WITHOUT_RECORD: (Focus(fixed=False, always=False, change="outlive"), 100),
}
"""The campaign that finds a fault, and within how many seeds, half of them in `ci`."""


RARE = {
    Fault.STILL_UNTIL_THE_ANSWER,
    Fault.LINKS_BEFORE_DERIVING,
    Fault.ORPHAN_LOST,
    Fault.HIDDEN_STAYS,
    Fault.COUNT_WITHOUT_RECORD,
}
"""Found by one to three seeds of a hundred: the search begins where the half of `ci` of them finds it."""
CAMPAIGNS = (ANY, TORN, VALUES, ROUGH)


def test_replicas_hold_recorded_commands_after_any_crash() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(320):
        counts.update(run(seed, focus=CAMPAIGNS[seed % len(CAMPAIGNS)]))
    for phase in PHASES:
        assert counts[f"crash: {phase}"], counts
        assert counts[f"loss: {phase}"], counts
    for phase in (*PHASES[:2], *PHASES[3:]):
        assert counts[f"takeover: {phase}"], counts
        assert counts[f"break: {phase}"], counts
    counts["outlived"] = sum(n for what, n in counts.items() if what.startswith("outlived"))
    for what in (
        "leave waits",
        "evicts while reserved",
        "promises while reserved",
        "rejoined",
        "torn with a record",
        "looks",
        "outlived",
    ):
        assert counts[what], counts


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault) -> None:
    focus, within = FOUND_BY[fault]
    for seed in search(within, first=90 if fault in RARE else 0):
        try:
            run(seed, frozenset({fault}), focus)
        except Failure:
            return
    pytest.fail(f"{fault} is not found within {within} seeds")
