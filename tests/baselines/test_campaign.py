"""Seeds in batches: no run may fail, and every kind of trouble must really have happened."""

from collections import Counter

import pytest

from benchmarks.baselines.runs import run_schedule, run_seed
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.shrink import shrink
from tests.effort import seeds

MIXES = {
    "none": (),
    "loss": ("loss",),
    "network": ("loss", "duplicate", "reorder"),
    "partition": ("partition", "reorder"),
    "restart": ("restart",),
    "all": ("loss", "duplicate", "reorder", "partition", "restart"),
}
HAPPENS = {
    "loss": ("dropped", "repairs"),
    "duplicate": ("doubled", "duplicates"),
    "reorder": ("reordered", "held_digests"),
    "partition": ("cuts", "links", "repairs"),
    "restart": ("restarts", "new_incarnations", "events_lost", "superseded"),
}


@pytest.mark.parametrize("mix", MIXES)
def test_seeds(mix: str):
    faults = Faults.named(MIXES[mix])
    counts: Counter[str] = Counter()
    tried = seeds(100)
    for seed in tried:
        members = (3, 4, 2, 5, 6)[seed % 5]
        outcome = run_seed(seed, members, faults)
        if outcome.kind is not None:
            shrunk = shrink(outcome, run_schedule)
            pytest.fail(
                f"seed {seed}, {members} members: {outcome.failure}\n"
                f"save and replay with `run_schedule(FixedSchedule.load(path))`:\n"
                f"{shrunk.schedule.to_json(shrunk.failure)}"
            )
        counts.update(outcome.counts)
    assert counts["delivered"]
    for fault in MIXES[mix]:
        for counter in HAPPENS[fault]:
            assert counts[counter] >= len(tried) // 10, (counter, counts)
