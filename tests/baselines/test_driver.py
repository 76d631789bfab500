"""The driver itself: it repeats itself, cuts runs down, and its checker does see what goes wrong."""

from benchmarks.baselines.vectors import VectorEngine
from crdtcast.simulator.oracle import FailureKind

from .contract import kinds
from .defects_vectors import OneStep
from .driver import group, random_run, replay, shrink


def test_the_same_seed_makes_the_same_run() -> None:
    first, again, other = (random_run(VectorEngine, 3, seed) for seed in (7, 7, 8))
    assert first.actions == again.actions != other.actions
    assert (first.deliveries, first.notices) == (again.deliveries, again.notices)


def test_a_run_replays_from_its_actions_and_can_be_cut_down() -> None:
    def fails(run: object) -> bool:
        return FailureKind.STABLE_ORDER in kinds(run)  # type: ignore[arg-type]

    run = random_run(OneStep, 3, 0)
    assert fails(replay(OneStep, 3, run.actions))
    short = shrink(OneStep, 3, run.actions[:60], fails)
    assert len(short) <= 4 and fails(replay(OneStep, 3, short))


def test_a_lost_packet_is_found_as_a_loss() -> None:
    made = group(VectorEngine, 3)
    made.apply(("send", "A"))
    made.flights["A", "B"].clear()
    assert {finding.kind for finding in made.drain()} == {FailureKind.LOSS, FailureKind.STALL}


def test_runs_reorder_and_duplicate() -> None:
    scans = sum(
        engine.measures().work["queue_scans"]
        for seed in range(20)
        for engine in random_run(VectorEngine, 3, seed).engines.values()
    )
    assert scans > 100
    assert any(action[0] == "duplicate" for action in random_run(VectorEngine, 3, 1).actions)
