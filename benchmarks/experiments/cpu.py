"""CPU for each delivered message, stability included, of all engines at the same median stability lag.

A whole group runs once with each engine. Ours ticks at a given period; the period of each other engine is sought until
its median lag is that of ours. What one member was given is recorded, and given again to fresh engines, which alone
are timed: one round of all engines after the other, many rounds, so that a busy machine disturbs all alike.
"""

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from benchmarks.baselines.interface import CausalEngine
from benchmarks.experiments.models import PoissonInterval, WeibullLatency
from benchmarks.experiments.timed import Input, TimedRun, TimedSetup, replay, run_timed

from .codec import Codec
from .engines import ENGINES, OURS, member_ids
from .weights import Traffic

LONGEST_TICK_MS = 20_000.0


class Found(NamedTuple):
    """A run, its median stability lag in ms, and what went out."""

    run: TimedRun
    lag: float
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One engine in a group of one size, at the stability lag that ours has at one period of its tick."""

    members: int
    our_tick_ms: float
    engine: str
    messages: int
    tick_ms: float
    lag_ms: float
    cpu_us: float
    """Least of all rounds, for each delivery of another member's message."""
    cpu_us_median: float
    ratio: float
    """To ours: the median over rounds of the ratio within a round."""
    ratio_least: float
    ratio_most: float
    packed_us: float
    """As `cpu_us`, with each arrival read from the body of its frame, and what goes out packed once for all links."""
    packed_ratio: float
    bytes_per_delivery: float
    digest_bytes_per_delivery: float
    spelled_bytes_per_delivery: float
    """With ids spelled out."""
    digests_per_delivery: float
    load: float
    """Of the machine, one minute's average, at the end."""


def compare(
    members: int,
    names: Sequence[str],
    *,
    messages: int,
    rounds: int,
    tick_ms: float,
    interval_ms: float = 100,
    latency_ms: float = 10,
    tolerance: float = 0.05,
    seed: int = 1,
    tell: Callable[[str], None] = print,
) -> list[CpuRow]:
    """A row for each engine, ours first. Raises RuntimeError if a run does not come to its end."""
    ids = member_ids(members)
    order = [OURS, *(name for name in ENGINES if name in names and name != OURS)]

    def run(name: str, tick: float) -> Found:
        setup = TimedSetup(
            members=members,
            messages=messages,
            interval=PoissonInterval(interval_ms),
            latency=WeibullLatency.with_mean(latency_ms),
            tick_ms=tick,
            seed=seed,
        )
        traffic = Traffic(ids, name)
        build = ENGINES[name].build(stability=True)
        done = run_timed(setup, ids, build, recorded=0, transmitted=traffic.add)
        if not done.complete:
            raise RuntimeError(f"{name} with {members} members did not stabilise everything")
        lag = statistics.median(done.stability_lags())
        tell(f"{members} members, {name}: a tick of {tick:.1f} ms gives a lag of {lag:.1f} ms")
        return Found(done, lag, traffic)

    runs: dict[str, Found] = {}
    guess = tick_ms
    for name in order:
        if name == OURS:
            runs[name] = run(name, tick_ms)
            continue
        target = runs[OURS].lag
        low, high = 0.0, math.inf
        for _ in range(12):
            found = runs[name] = run(name, guess)
            lag = found.lag
            if abs(lag - target) <= tolerance * target or guess >= LONGEST_TICK_MS:
                break
            if lag < target:
                low = guess
                guess = min(guess * 1.6 if high == math.inf else (low + high) / 2, LONGEST_TICK_MS)
            else:
                high = guess
                guess = (low + high) / 2
    times = _timed({name: found.run for name, found in runs.items()}, rounds)
    return [_row(tick_ms, name, runs[name], times[name], times[OURS]) for name in order]


class Times(NamedTuple):
    """Microseconds of CPU for each delivery, by round: of the engine alone, and with packing."""

    alone: list[float]
    packed: list[float]


def _timed(runs: dict[str, TimedRun], rounds: int) -> dict[str, Times]:
    times = {name: Times([], []) for name in runs}
    codecs = {name: Codec(done.ids, name) for name, done in runs.items()}
    arrivals = {
        name: [
            what._replace(message=codecs[name].encode(what.message)) if what.message else what
            for what in done.inputs
        ]
        for name, done in runs.items()
    }
    gc.collect()
    gc.freeze()  # what was recorded is no engine's garbage
    try:
        for round_ in range(rounds + 1):
            for name, done in runs.items():
                payload = done.setup.payload
                alone = partial(replay, inputs=done.inputs, payload=payload)
                packed = partial(
                    _replay_packed, inputs=arrivals[name], payload=payload, codec=codecs[name]
                )
                for spent, again in zip(times[name], (alone, packed), strict=True):
                    took = _spent(name, done, again)
                    if round_:  # the first one warms up
                        spent.append(took)
    finally:
        gc.unfreeze()
    return times


def _spent(name: str, done: TimedRun, again: Callable[[CausalEngine], int]) -> float:
    engine = ENGINES[name].make(done.ids[0], done.ids, True)
    for other in done.ids[1:]:
        engine.connected(other)
    engine.take_outbox()
    begun = time.process_time_ns()
    delivered = again(engine)
    spent = time.process_time_ns() - begun
    if delivered != len(done.sent_at) - done.setup.messages:
        raise RuntimeError(f"the replay of {name} delivered {delivered} messages")
    return spent / delivered / 1000


def _replay_packed(
    engine: CausalEngine, inputs: Sequence[Input], payload: bytes, codec: Codec
) -> int:
    """As `replay`, with bodies of frames instead of messages."""
    delivered = 0
    decode, encode = codec.decode, codec.encode
    for verb, sender, body in inputs:
        if verb == "receive":
            engine.receive(sender, decode(body))
            while engine.poll() is not None:
                delivered += 1
        elif verb == "send":
            engine.send(payload)
        else:
            engine.tick()
        if engine.has_stable():
            engine.poll_stable(1_000_000)
        for effect in engine.take_outbox():
            encode(effect.message)
    return delivered


def _row(our_tick_ms: float, name: str, found: Found, times: Times, ours: Times) -> CpuRow:
    setup, traffic, deliveries = found.run.setup, found.traffic, found.run.deliveries
    ratios = [mine / base for mine, base in zip(times.alone, ours.alone, strict=True)]
    packed = [mine / base for mine, base in zip(times.packed, ours.packed, strict=True)]
    return CpuRow(
        members=setup.members,
        our_tick_ms=our_tick_ms,
        engine=name,
        messages=setup.messages,
        tick_ms=setup.tick_ms,
        lag_ms=found.lag,
        cpu_us=min(times.alone),
        cpu_us_median=statistics.median(times.alone),
        ratio=statistics.median(ratios),
        ratio_least=min(ratios),
        ratio_most=max(ratios),
        packed_us=min(times.packed),
        packed_ratio=statistics.median(packed),
        bytes_per_delivery=traffic.total / deliveries,
        digest_bytes_per_delivery=traffic.digests / deliveries,
        spelled_bytes_per_delivery=traffic.spelled / deliveries,
        digests_per_delivery=traffic.digest_count / deliveries,
        load=os.getloadavg()[0],
    )
