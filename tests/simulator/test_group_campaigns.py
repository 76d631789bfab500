"""Groups that change, seeds in batches: no run may fail, and every kind of event must really have happened."""

from collections import Counter
from pathlib import Path

import pytest

from crdtcast.exceptions import ConfigurationError
from crdtcast.simulator.campaign import run_group_seed, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS, campaign
from crdtcast.simulator.schedule import GroupSchedule
from crdtcast.simulator.shrink import shrink
from tests.effort import seeds

SEEDS = 34
OTHERWISE = {
    "set-back": 100,
    "copies": 20,
    "exodus": 20,
    "contested": 30,
    "return": 30,
    "regions": 30,
    "all-leave": 30,
    "hostile": 30,
}
MEMBERS = range(3, 7)
_OFTEN = ("dropped", "doubled", "reordered", "cuts", "mutes", "repairs", "held_digests")
_EVICTIONS = ("evictions", "views", "reissued")

HAPPENS: dict[str, tuple[str, ...]] = {
    "static": _OFTEN,
    "join+leave": (*_OFTEN, "joined", "bulk_joins", "left", "sweeps", "ghosts"),
    "restart": (*_OFTEN, "restarts", "events_lost", "torn", "reissued", "sweeps"),
    "one-eviction": (*_OFTEN, *_EVICTIONS, "restarts", "deaths", "ghosts"),
    "two-evictions": (*_OFTEN, *_EVICTIONS, "restarts", "deaths", "joined"),
    "everything": (
        *_OFTEN,
        *_EVICTIONS,
        "restarts",
        "torn",
        "deaths",
        "joined",
        "left",
        "sweeps",
        "ghosts",
    ),
    "return": ("restarts_returning", "torn", "evictions", "reissued"),
    "set-back": ("set_back", "rolled_back", "evictions", "joined", "left", "restarts"),
    "copies": ("bulk_joins", "joined", "restarts"),
    "exodus": ("left", "joined", "deaths", "evictions"),
    "regions": ("cuts", "joined", "views"),
    "withdrawn": ("evictions", "withdrawn", "joined", "restarts"),
    "contested": ("evictions", "left", "joined", "restarts", "views"),
    "all-leave": ("left", "joined", "restarts"),
    "founders-die": ("deaths", "joined", "evictions"),
    "apart": ("evictions", "joined", "restarts"),
    "levels": (
        "upgrades",
        "downgrades",
        "raised",
        "outdated",
        "not_raised",
        "joined",
        "evictions",
    ),
    "force": ("forced", "forced_cuts"),
    "founding": (
        "late",
        "begun_by_hearsay",
        "raised_ids",
        "restarts_in_round",
        "memory_lost",
        "cuts",
        "mutes",
        "restarts",
        "deaths",
        "joined",
        "evictions",
    ),
    "hostile": (
        "lies",
        "twisted",
        "letters",
        "letters_refused",
        "refused_frames",
        "undecodable",
        "evictions",
        "joined",
        "restarts",
    ),
}
"""Counters that each rise at least once in ten runs of a campaign, so that none becomes weak unnoticed."""
SCHEDULES = sorted((Path(__file__).parents[1] / "data" / "schedules").glob("*.json"))


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_seeds(name: str):
    chosen = CAMPAIGNS[name]
    counts: Counter[str] = Counter()
    tried = seeds(OTHERWISE.get(name, SEEDS))
    for seed in tried:
        outcome = run_group_seed(seed, chosen, MEMBERS)
        if outcome.kind is not None:
            shrunk = shrink(outcome, run_schedule, runs=300)
            pytest.fail(
                f"seed {seed}: {outcome.failure}\n"
                f"save and replay with `crdtcast simulate --replay FILE`:\n"
                f"{shrunk.schedule.to_json(shrunk.failure)}"
            )
        counts.update(outcome.counts)
    for counter in HAPPENS[name]:
        assert counts[counter] >= len(tried) // 10, (counter, counts)
    assert counts["void"] <= len(tried) // 10  # runs that are not judged


@pytest.mark.parametrize("name", ["one-eviction", "two-evictions", "everything"])
def test_eviction_campaign_requires_its_events(name: str):
    wanted = [
        "restarts",
        "cuts",
        "repairs",
        "held_digests",
        "evictions",
        "views",
        "reissued",
    ]
    assert set(wanted) <= set(HAPPENS[name])


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_schedule_that_failed_once_passes(path: Path):
    outcome = run_schedule(GroupSchedule.load(path))
    assert outcome.failure is None
    assert outcome.counts["views"] and not outcome.counts["second_forced"]


def test_unknown_campaign_is_refused():
    with pytest.raises(ConfigurationError, match="choose from static"):
        campaign("nonsense")
