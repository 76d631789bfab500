"""Seeds in batches: no run may fail, and every kind of trouble must really have happened."""

from collections import Counter

import pytest

from crdtcast.simulator import Faults, run_seed, shrink

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
BATCH = 25


@pytest.mark.parametrize("first", range(0, 100, BATCH))
@pytest.mark.parametrize("mix", MIXES)
def test_seeds(mix: str, first: int):
    faults = Faults.named(MIXES[mix])
    counts: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        members = (3, 4, 2, 5)[seed % 4]
        outcome = run_seed(seed, members, faults)
        if outcome.kind is not None:
            shrunk = shrink(outcome)
            pytest.fail(
                f"seed {seed}, {members} members: {outcome.failure}\n"
                f"save and replay with `python -m crdtcast.simulator --replay FILE`:\n"
                f"{shrunk.schedule.to_json(shrunk.failure)}"
            )
        counts.update(outcome.counts)
    assert counts["delivered"]
    for fault in MIXES[mix]:
        for counter in HAPPENS[fault]:
            assert counts[counter] >= BATCH // 10, (counter, counts)


@pytest.mark.slow
@pytest.mark.parametrize("members", range(2, 7))
def test_a_thousand_seeds_with_everything(members: int):
    faults = Faults.named(MIXES["all"])
    for seed in range(100_000, 101_000):
        outcome = run_seed(seed, members, faults)
        assert outcome.kind is None, (seed, outcome.failure)
