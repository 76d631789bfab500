"""Runs of groups of fixed members: replay, shrinking, and that a seed or a schedule means the same run everywhere."""

from collections import Counter

import pytest

from benchmarks.baselines import (
    CbcastEngine,
    DynamicGraphEngine,
    GraphEngine,
    TwoLevelEngine,
    VectorEngine,
)
from benchmarks.baselines.runs import FixedSchedule, run_schedule, run_seed
from benchmarks.baselines.simulator.published_world import FITTING
from benchmarks.baselines.simulator.world import World
from crdtcast.engine import Durability
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.shrink import shrink
from tests.effort import seeds
from tests.simulator.hash_seeds import printed
from tests.simulator.traces import Trace, load, replay

PUBLISHED = (CbcastEngine, DynamicGraphEngine, GraphEngine, TwoLevelEngine, VectorEngine)
ALL = Faults.named(("loss", "duplicate", "reorder", "partition", "restart"))
REORDER = Faults.named(("reorder",))


@pytest.mark.parametrize("seed", seeds(6))
def test_recorded_actions_replay_the_same_run(seed):
    outcome = run_seed(seed, 3, ALL)
    again = run_schedule(outcome.schedule)
    assert again.counts == outcome.counts
    assert again.schedule == outcome.schedule


def test_failure_is_shrunk_and_replays_from_its_file(tmp_path):
    engine = "tests.baselines.mutants:FixedNoContext"
    outcome = next(o for s in range(100) if (o := run_seed(s, 3, REORDER, engine=engine)).kind)
    shrunk = shrink(outcome, run_schedule)
    assert shrunk.kind == outcome.kind
    assert len(shrunk.schedule.actions) < 12 < len(outcome.schedule.actions)
    path = tmp_path / "run.json"
    path.write_text(shrunk.schedule.to_json(shrunk.failure), encoding="utf-8")
    again = run_schedule(FixedSchedule.load(path))
    assert (again.kind, again.failure) == (shrunk.kind, shrunk.failure)
    for n in range(len(shrunk.schedule.actions)):
        actions = shrunk.schedule.actions
        fewer = run_schedule(shrunk.schedule.with_actions(actions[:n] + actions[n + 1 :]))
        assert fewer.kind != shrunk.kind, "every action left is needed"


def test_impossible_action_changes_nothing():
    world = World(("a", "b"), Durability.IMMEDIATE)
    assert not world.apply(("net", "a", "b", 99))
    assert not world.apply(("link", "a", "b"))
    assert world.apply(("cut", "a", "b"))
    assert not world.apply(("cut", "a", "b"))
    assert not world.apply(("poll", "a"))
    assert not world.apply(("stable", "a"))
    world.drain()


@pytest.mark.parametrize("durability", Durability, ids=lambda d: d.value)
@pytest.mark.parametrize("trace", load("schedule"), ids=str)
def test_schedules_that_break_published_algorithms_pass(trace: Trace, durability: Durability):
    """Joins, leaves and evictions in them are passed over: the set of names is fixed so far."""
    world = replay(trace, durability)
    assert not world.checker.findings


@pytest.mark.parametrize("engine", PUBLISHED)
def test_a_published_engine(engine, tmp_path):
    counts = Counter()
    for seed in range(20):
        name = f"{engine.__module__}:{engine.__name__}"
        outcome = run_seed(seed, 2 + seed % 3, Faults.named(FITTING), engine=name)
        assert outcome.kind is None, (seed, outcome.failure)
        counts += outcome.counts
    assert counts["doubled"] and counts["reordered"]
    assert counts["stable"] == counts["sent"] + counts["delivered"]
    path = tmp_path / "run.json"
    path.write_text(outcome.schedule.to_json(), encoding="utf-8")
    assert run_schedule(FixedSchedule.load(path)) == outcome


def fingerprint(hash_seed: str) -> str:
    program = (
        "import hashlib, json\n"
        "from benchmarks.baselines.runs import run_seed\n"
        "from crdtcast.simulator.faults import DEFAULT, Faults\n"
        "for seed in range(4):\n"
        "    o = run_seed(seed, 4, Faults.named(DEFAULT))\n"
        "    text = o.schedule.to_json() + json.dumps(sorted(o.counts.items()))\n"
        "    print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    return printed(program, hash_seed)


@pytest.mark.process
def test_runs_do_not_depend_on_the_hash_seed():
    assert fingerprint("1") == fingerprint("4242")
