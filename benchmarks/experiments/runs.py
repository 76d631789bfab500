"""Experiments 1 to 3, their slow links, and the sweep of the tick: what is run, and what is written down of it."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.experiments.models import LatencyModel, PoissonInterval, SlowLink, WeibullLatency
from benchmarks.experiments.timed import TimedRun, TimedSetup, run_timed, work_of

from .engines import ENGINES, OURS, member_ids
from .weights import Traffic

WORD_BYTES = 8
"""As the thesis counts."""
INTERVALS_3 = {4: 31, 8: 63, 16: 125, 32: 250, 64: 500, 128: 1000}
"""Experiment 3: about 128 messages a second, whatever the size of the group."""
SWEEP_TICKS = (10, 20, 50, 100, 200, 500, 1000)
SLOWER = 10


@dataclass(frozen=True, slots=True)
class Experiment:
    """Engines, latency, and whether the link between members 0 and 1 is slow (then only these two count)."""

    name: str
    engines: tuple[str, ...]
    latency_ms: float
    slow_link: bool = False

    def intervals(self, members: int) -> tuple[float, ...]:
        """Mean intervals between sends, in ms."""
        if self.name.startswith("3"):
            return (INTERVALS_3.get(members, round(1000 * members / 128)),)
        return (10, 100, 1000)


_ALL = tuple(ENGINES)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("1", (OURS, "graph", "twolevel"), 10),
        Experiment("2", (OURS, "graph", "vectors", "cbcast"), 10),
        Experiment("3", _ALL, 31),
        Experiment("2-slow", _ALL, 10, slow_link=True),
        Experiment("3-slow", _ALL, 31, slow_link=True),
        Experiment("sweep", _ALL, 10),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run to do. `ticks` says at which period; without stability there are none."""

    experiment: str
    engine: str
    stability: bool
    members: int
    interval_ms: float
    latency_ms: float
    tick_ms: float
    messages: int
    slow_link: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one run showed. Medians, unless said otherwise; of members 0 and 1 where the link between them is slow.

    Bytes are those of all links, by delivery of another member's message; `bytes_spelled` with ids spelled
    out. `lag_ms` is from sending to the notice, `excess_lag_ms` from the last delivery anywhere to the notice.
    `delivery_us` and `stable_us` are CPU in the engine since it was given what made it possible. `engine_us` is the CPU
    of all engines by delivery, with the whole group in one process: caches are colder and clocks are read, so it is
    more than what `cpu` measures. A reading of the clock, about half a microsecond, is in each.
    """

    experiment: str
    engine: str
    stability: bool
    members: int
    interval_ms: float
    latency_ms: float
    tick_ms: float
    messages: int
    seed: int
    complete: bool
    deliveries: int
    dependencies: float
    dependencies_most: int
    bytes_total: float
    bytes_messages: float
    bytes_digests: float
    bytes_repairs: float
    bytes_spelled: float
    digests: float
    memory_words_bytes: float
    memory_real_bytes: float
    memory_real_most: float
    lag_ms: float
    excess_lag_ms: float
    delivery_us: float
    stable_us: float
    engine_us: float
    edge_visits: float
    queue_scans: float
    vector_entries: float
    seconds: float
    load: float


def plans(
    names: Sequence[str],
    sizes: Sequence[int],
    *,
    messages: int,
    engines: Sequence[str] = tuple(ENGINES),
    tick_ms: float | None = None,
    seed: int = 1,
) -> list[Plan]:
    """All runs of these experiments, each once, cheap ones first. By default a tick is the interval, 100 ms or more.

    Raises KeyError for an experiment or engine that there is not.
    """
    todo: dict[Plan, None] = {}
    for members in sorted(sizes):
        for name in names:
            experiment = EXPERIMENTS[name]
            sweep = name == "sweep"
            for interval in (100.0,) if sweep else experiment.intervals(members):
                ticks = SWEEP_TICKS if sweep else (tick_ms or max(100.0, interval),)
                for engine in experiment.engines:
                    if engine not in engines:
                        continue
                    for stability in (True, False):
                        if not stability and (sweep or not ENGINES[engine].optional):
                            continue
                        for tick in ticks:
                            plan = Plan(
                                # Experiments 1 and 2 differ in their engines only.
                                experiment="2" if name == "1" else name,
                                engine=engine,
                                stability=stability,
                                members=members,
                                interval_ms=interval,
                                latency_ms=experiment.latency_ms,
                                tick_ms=tick,
                                messages=messages,
                                slow_link=experiment.slow_link,
                                seed=seed,
                            )
                            todo[plan] = None
    return list(todo)


def carry_out(todo: Sequence[Plan], tell: Callable[[str], None]) -> Iterator[Row]:
    """A row for each plan, as it is done."""
    begun = time.monotonic()
    for number, plan in enumerate(todo, 1):
        what = (
            f"[{number}/{len(todo)}] experiment {plan.experiment}, {plan.members} members,"
            f" {plan.interval_ms:g} ms, {plan.engine},"
            f" {'with' if plan.stability else 'without'} stability, tick {plan.tick_ms:g} ms"
        )
        tell(what)

        def share(done: float, what: str = what) -> None:
            tell(f"{what}: {done:.0%}")

        yield _row(plan, share)
        tell(f"{what}: done, {time.monotonic() - begun:.0f} s in all")


def _row(plan: Plan, share: Callable[[float], None]) -> Row:
    begun = time.process_time()
    latency: LatencyModel = WeibullLatency.with_mean(plan.latency_ms)
    if plan.slow_link:
        latency = SlowLink(latency, SLOWER * plan.latency_ms)
    watched = (0, 1) if plan.slow_link else tuple(sorted({0, 1, plan.members // 2}))
    setup = TimedSetup(
        members=plan.members,
        messages=plan.messages,
        interval=PoissonInterval(plan.interval_ms),
        latency=latency,
        tick_ms=plan.tick_ms,
        seed=plan.seed,
        watched=watched,
        samples=20,
    )
    ids = member_ids(plan.members)
    traffic = Traffic(ids, plan.engine)
    run = run_timed(
        setup,
        ids,
        ENGINES[plan.engine].build(plan.stability),
        stability=plan.stability,
        clock=time.thread_time_ns,
        transmitted=traffic.add,
        progress=share,
    )
    return _measured(plan, run, traffic, watched if plan.slow_link else None, begun)


def _measured(
    plan: Plan, run: TimedRun, traffic: Traffic, members: Sequence[int] | None, begun: float
) -> Row:
    deliveries = run.deliveries
    work = work_of(run)
    chosen = range(plan.members) if members is None else members
    held = [sample.measures for sample in run.samples]
    return Row(
        experiment=plan.experiment,
        engine=plan.engine,
        stability=plan.stability,
        members=plan.members,
        interval_ms=plan.interval_ms,
        latency_ms=plan.latency_ms,
        tick_ms=plan.tick_ms,
        messages=plan.messages,
        seed=plan.seed,
        complete=run.complete,
        deliveries=deliveries,
        dependencies=_median(traffic.dependencies),
        dependencies_most=max(traffic.dependencies),
        bytes_total=traffic.total / deliveries,
        bytes_messages=traffic.messages / deliveries,
        bytes_digests=traffic.digests / deliveries,
        bytes_repairs=traffic.repairs / deliveries,
        bytes_spelled=traffic.spelled / deliveries,
        digests=traffic.digest_count / deliveries,
        memory_words_bytes=WORD_BYTES * _median([m.metadata_words for m in held]),
        memory_real_bytes=_median([m.metadata_bytes for m in held]),
        memory_real_most=max(m.metadata_bytes for m in held),
        lag_ms=_median(run.stability_lags(members)),
        excess_lag_ms=_median(run.excess_lags(members)),
        delivery_us=_median([ns for m in chosen for ns in run.delivery_ns[m]]) / 1000,
        stable_us=_median([ns for m in chosen for ns in run.stable_ns[m]]) / 1000,
        engine_us=run.engine_ns / deliveries / 1000,
        edge_visits=work.get("edge_visits", 0),
        queue_scans=work.get("queue_scans", 0),
        vector_entries=work.get("vector_entries", 0),
        seconds=time.process_time() - begun,
        load=os.getloadavg()[0],
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
