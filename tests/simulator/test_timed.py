"""Timed runs: fixed by their setup, right about who got what when, the same history for every engine."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.baselines.cbcast import CbcastEngine
from benchmarks.baselines.graph import GraphEngine
from benchmarks.baselines.interface import CausalEngine
from benchmarks.baselines.ours import MeasuredEngine
from benchmarks.baselines.vectors import VectorEngine
from benchmarks.experiments.models import (
    FixedInterval,
    FixedLatency,
    LognormalLatency,
    PoissonInterval,
    SlowLink,
    WeibullLatency,
)
from benchmarks.experiments.timed import Sent, TimedSetup, replay, run_timed, work_of
from crdtcast.causality.member_id import name_of, new_incarnation
from crdtcast.causality.messages import Digest, Message
from crdtcast.exceptions import ConfigurationError
from tests.effort import seeds

IDS = [new_incarnation(f"n{i}", 1_000_000, i) for i in range(5)]
SETUP = TimedSetup(
    members=5,
    messages=12,
    interval=PoissonInterval(40),
    latency=LognormalLatency(30, sigma=1.0),
    tick_ms=50,
    seed=7,
)


def ours(me: str, ids: Sequence[str]) -> CausalEngine:
    engine = MeasuredEngine(me, map(name_of, ids))
    for other in ids:
        if other != me:
            engine.introduce(other)
    return engine


ENGINES = (ours, VectorEngine, GraphEngine, CbcastEngine)


@pytest.mark.parametrize("build", ENGINES)
def test_everything_is_delivered_and_becomes_stable_everywhere(build: type) -> None:
    run = run_timed(SETUP, IDS, build)
    assert run.complete
    assert run.deliveries == 5 * 12 * 4
    for delivered, stable in zip(run.delivered_at, run.stable_at, strict=True):
        last = [max(times) for times in zip(*run.delivered_at, strict=True)]
        for sent, there, everywhere, safe in zip(run.sent_at, delivered, last, stable, strict=True):
            assert sent <= there <= everywhere <= safe
    assert min(run.excess_lags()) >= 0
    assert len(run.stability_lags([0, 3])) == 2 * 60


def test_all_engines_live_through_the_same_history() -> None:
    runs = [run_timed(SETUP, IDS, build) for build in ENGINES]
    for run in runs[1:]:
        assert run.sent_at == runs[0].sent_at
        assert run.delivered_at == runs[0].delivered_at


def test_a_run_is_fixed_by_its_setup() -> None:
    def everything(setup: TimedSetup) -> tuple[object, ...]:
        out: list[Sent] = []
        run = run_timed(setup, IDS, ours, transmitted=out.append)
        return run.sent_at, run.delivered_at, run.stable_at, [(s.sender, s.at) for s in out]

    assert everything(SETUP) == everything(SETUP)
    assert everything(SETUP) != everything(replace(SETUP, seed=8))


def test_times_are_those_of_the_models() -> None:
    setup = TimedSetup(
        members=3, messages=2, interval=FixedInterval(100), latency=FixedLatency(10), tick_ms=30
    )
    run = run_timed(setup, IDS[:3], ours)
    assert list(run.sent_at) == [100, 200] * 3
    # Message 3 is the second one of member 1.
    assert [times[3] for times in run.delivered_at] == [210, 200, 210]
    # A digest leaves two ticks after delivery at most (one, if its sender sends no message in the meantime), takes as
    # long as a message, and stability is found out with it or at the next tick.
    assert all(220 < times[3] <= 210 + 2 * 30 + 10 for times in run.stable_at)


def test_messages_of_one_link_do_not_overtake() -> None:
    run = run_timed(replace(SETUP, interval=FixedInterval(1)), IDS, VectorEngine)
    for times in run.delivered_at:
        for member in range(5):
            own = times[member * 12 : member * 12 + 12]
            assert list(own) == sorted(own)


def test_messages_that_depend_on_a_slow_link_wait_for_it() -> None:
    setup = replace(SETUP, latency=SlowLink(WeibullLatency(10), slow_ms=500))
    run = run_timed(setup, IDS, VectorEngine)

    def waited(member: int) -> list[float]:
        mine = slice(12 * member, 12 * member + 12)
        pairs = zip(run.sent_at[mine], run.delivered_at[1][mine], strict=True)
        return [there - sent for sent, there in pairs]

    assert waited(0) == pytest.approx([500] * 12)  # the slow link is from member 0 to member 1
    assert 100 < max(waited(2)) <= 500  # member 2's messages depend on those


def test_members_forward_messages_that_a_slow_link_delays() -> None:
    setup = replace(SETUP, latency=SlowLink(WeibullLatency(10), slow_ms=2000))
    out: list[Sent] = []
    run = run_timed(setup, IDS, ours, transmitted=out.append)
    slowest = max(
        there - sent for sent, there in zip(run.sent_at[:12], run.delivered_at[1][:12], strict=True)
    )
    assert slowest < 1000
    assert any(sent.relayed and type(sent.message) is Message for sent in out)


def test_run_without_stability_ends_with_the_last_delivery() -> None:
    out: list[Sent] = []
    run = run_timed(
        SETUP,
        IDS,
        lambda me, ids: GraphEngine(me, ids, stability=False),
        stability=False,
        transmitted=out.append,
    )
    assert run.complete
    assert run.stability_lags() == []
    assert len(out) == 60
    assert run.ended_at == max(map(max, run.delivered_at))


def test_a_run_that_cannot_end_is_cut_off() -> None:
    class Mute(VectorEngine):
        def tick(self) -> None:
            """Tells nobody what it has delivered."""

    run = run_timed(replace(SETUP, patience_ms=500), IDS, Mute)
    assert not run.complete
    assert any(math.isnan(at) for times in run.stable_at for at in times)
    assert run.deliveries == 240


def test_every_transmission_is_reported() -> None:
    out: list[Sent] = []
    run_timed(SETUP, IDS, ours, transmitted=out.append)
    messages = [sent for sent in out if type(sent.message) is Message]
    digests = [sent for sent in out if type(sent.message) is Digest]
    assert len([sent for sent in messages if not sent.relayed]) == 60
    assert {sent.receivers for sent in messages if not sent.relayed} == {4}
    assert digests and {sent.receivers for sent in out if sent.relayed} <= {1}
    assert len(messages) + len(digests) == len(out)


def test_clock_measures_deliveries_without_changing_the_run() -> None:
    ticks = iter(range(10**9))
    timed = run_timed(SETUP, IDS, ours, clock=lambda: next(ticks))
    plain = run_timed(SETUP, IDS, ours)
    assert timed.delivered_at == plain.delivered_at and timed.stable_at == plain.stable_at
    assert [len(spans) for spans in timed.delivery_ns] == [48] * 5
    assert [len(spans) for spans in timed.stable_ns] == [60] * 5
    assert min(map(min, timed.delivery_ns)) == 1
    assert timed.engine_ns > 0 and plain.engine_ns == 0
    assert not plain.delivery_ns[0]


def test_samples_are_taken_of_the_watched_while_the_group_sends() -> None:
    run = run_timed(replace(SETUP, watched=(1, 4), samples=6), IDS, ours)
    assert [sample.member for sample in run.samples] == [1, 4] * 6
    assert run.samples[-1].at < max(run.sent_at)
    assert all(s.measures.metadata_words > 0 for s in run.samples)
    assert all(s.measures.metadata_bytes > s.measures.metadata_words for s in run.samples)
    assert set(run.final) == {1, 4}


def test_our_metadata_shrinks_back_and_work_is_counted() -> None:
    run = run_timed(replace(SETUP, samples=6), IDS, ours)
    assert run.final[0].metadata_words < max(s.measures.metadata_words for s in run.samples)
    assert work_of(run)["vector_entries"] > 0


def test_recorded_inputs_replay_on_a_fresh_engine() -> None:
    run = run_timed(SETUP, IDS, VectorEngine, recorded=2)
    engine = VectorEngine(IDS[2], IDS)
    assert replay(engine, run.inputs, SETUP.payload) == 48
    assert engine.quiet
    assert dict(engine.delivered) == dict.fromkeys(IDS, 12)


@pytest.mark.parametrize(
    "wrong", [{"members": 1}, {"messages": 0}, {"tick_ms": 0.0}, {"tick_ms": math.nan}]
)
def test_a_setup_that_makes_no_run_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="needs two members"):
        replace(SETUP, **wrong)  # type: ignore[arg-type]


def test_too_few_ids_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="4 ids for 5 members"):
        run_timed(SETUP, IDS[:4], ours)


def test_random_setups_come_to_their_end() -> None:
    for seed in seeds(10):
        chance = random.Random(seed)
        setup = replace(
            SETUP,
            interval=PoissonInterval(chance.choice([1, 20, 300])),
            tick_ms=chance.choice([5, 50, 500]),
            seed=seed,
        )
        assert all(run_timed(setup, IDS, build).complete for build in ENGINES), setup
