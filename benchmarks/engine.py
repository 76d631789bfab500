"""CPU time per delivered message in one engine, stability included: `python benchmarks/engine.py [--members 4,32,128]`.

A whole group runs once on a simulated clock: every member sends each `--interval` ms, packets take `--latency` ms,
digests go out every `--digest` ms, phases are random. What one member was given is recorded, and given again to a fresh
engine in one loop, which alone is timed (best of three): codec, sockets and the simulated network are not part of it.
"""

import argparse
import heapq
import random
import statistics
import sys
import time

from crdtcast.engine import Engine
from crdtcast.incarnation import new_incarnation
from crdtcast.messages import Digest, Message
from crdtcast.tags import Dot

Input = tuple[str, str, Message | Digest | None]


def group(ids: list[str]) -> dict[str, Engine]:
    """Engines that have all met."""
    engines = {i: fresh(i, ids) for i in ids}
    for engine in engines.values():
        engine.take_outbox()
    return engines


def fresh(me: str, ids: list[str]) -> Engine:
    """An engine that has met everybody."""
    engine = Engine(me, [i.rpartition(".")[0] for i in ids])
    for other in ids:
        if other != me:
            engine.introduce(other)
            engine.connected(other)
    return engine


def step(engine: Engine, what: Input) -> int:
    """Give one input as a runtime would; how many messages were delivered."""
    kind, sender, content = what
    delivered = 0
    if kind == "receive":
        assert content is not None
        engine.receive(sender, content)
        while engine.poll() is not None:
            delivered += 1
    elif kind == "send":
        engine.send(b"payload")
    else:
        engine.tick()
    return delivered


def simulate(
    ids: list[str], messages: int, options: argparse.Namespace
) -> tuple[dict[str, Engine], list[Input], list[float]]:
    """Run the group; its engines, the first member's inputs, and its stability lags in ms."""
    chance = random.Random(options.seed)
    engines = group(ids)
    events: list[tuple[float, int, str, Input]] = []
    for i in ids:
        for kind, period, count in (
            ("send", options.interval, messages),
            ("tick", options.digest, int(messages * options.interval / options.digest) + 10),
        ):
            phase = chance.uniform(0, period)
            for k in range(count):
                events.append((phase + k * period, len(events), i, (kind, "", None)))
    heapq.heapify(events)
    serial = len(events)
    inputs: list[Input] = []
    sent_at: dict[Dot, float] = {}
    lags: list[float] = []
    while events:
        now, _, who, what = heapq.heappop(events)
        engine = engines[who]
        step(engine, what)
        if what[0] == "send":
            sent_at[Dot(who, engine.vector[who])] = now
        if who == ids[0]:
            inputs.append(what)
        for tag in engine.poll_stable(1_000_000):
            if who == ids[0]:
                lags.append(now - sent_at[tag.dot])
        for effect in engine.take_outbox():
            for to in ids if effect.to is None else [effect.to]:
                if to != who:
                    serial += 1
                    packet = ("receive", who, effect.message)
                    heapq.heappush(events, (now + options.latency, serial, to, packet))
    return engines, inputs, lags


def replay(engine: Engine, inputs: list[Input]) -> tuple[float, int]:
    """CPU seconds and deliveries."""
    delivered = 0
    begun = time.process_time()
    for what in inputs:
        delivered += step(engine, what)
        if engine.has_stable():
            engine.poll_stable(1_000_000)
        engine.take_outbox()
    return time.process_time() - begun, delivered


def main() -> int:
    """Print a line per group size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="4,32,128")
    parser.add_argument("--messages", type=int, default=0, help="per member (default: by size)")
    parser.add_argument("--interval", type=float, default=100, help="ms between sends")
    parser.add_argument("--digest", type=float, default=100, help="ms between digests")
    parser.add_argument("--latency", type=float, default=10, help="ms")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for members in map(int, options.members.split(",")):
        messages = options.messages or max(20, 4000 // members)
        ids = [new_incarnation(f"n{i}", 1, 0) for i in range(members)]
        engines, inputs, lags = simulate(ids, messages, options)
        total = members * messages
        assert all(engine.quiet for engine in engines.values()), "not everything became stable"
        assert len(lags) == total
        cost = []
        for _ in range(3):
            engine = fresh(ids[0], ids)
            seconds, delivered = replay(engine, inputs)
            assert engine.quiet and delivered == total - messages
            cost.append(seconds / delivered * 1e6)
        counters = engines[ids[0]].counters()
        print(
            f"{members:4} members: {min(cost):6.2f} us CPU per delivery;"
            f" stability lag {statistics.median(lags):4.0f} ms,"
            f" {counters.digests_in / counters.delivered:.2f} digests in per delivery,"
            f" {sum(e.counters().repairs for e in engines.values())} repairs,"
            f" {sum(e.counters().asks for e in engines.values())} asks"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
