"""Deliveries a second and latency of three nodes in one process, over TCP on this machine.

    python benchmarks/node.py [--messages N] [--payload BYTES] [--rate PER_SECOND]

One process and one core for all three, so a figure per node is about a third of what a node can do.
Every delivery is checked: none may be missing or doubled.
"""

import argparse
import secrets
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from crdtcast import Delivered, Member, open_member

NAMES = ("a", "b", "c")
WINDOW = 2000


class Sink:
    """Takes a node's events; the first eight bytes of a payload are its time of sending."""

    def __init__(self, node: Member, expected: int) -> None:
        self.node = node
        self.expected = expected
        self.seen: set[object] = set()
        self.latencies: list[int] = []
        self.stable = 0
        self.own_unstable = 0
        self.progress = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        stable_expected = self.expected // (len(NAMES) - 1) * len(NAMES)
        async for event in self.node:
            if isinstance(event, Delivered):
                self.latencies.append(
                    time.perf_counter_ns() - int.from_bytes(event.payload[:8], "big")
                )
                self.seen.add(event.tag.dot)
            else:
                self.stable += 1
                if event.tag.dot.origin == self.node.engine.me:
                    self.own_unstable -= 1
                    self.progress.unpark_all()
            if len(self.latencies) == self.expected and self.stable == stable_expected:
                return


@asynccontextmanager
async def nodes() -> AsyncIterator[list[Member]]:
    async with AsyncExitStack() as stack:
        started: dict[str, Member] = {}
        for name in NAMES:
            founders = {n: started[n].address if n in started else None for n in NAMES}
            started[name] = await stack.enter_async_context(open_member(name, founders=founders))
        for member in started.values():
            await member.ready()
        yield list(started.values())


async def write(sink: Sink, messages: int, payload: bytes, rate: float | None) -> None:
    """At a rate, or as fast as a window of unstable messages allows."""
    begin = trio.current_time()
    for number in range(messages):
        sink.node.tcbroadcast(time.perf_counter_ns().to_bytes(8, "big") + payload)
        sink.own_unstable += 1
        if rate is not None:
            await trio.sleep_until(begin + number / rate)
        elif number % 32 == 0:
            await trio.lowlevel.checkpoint()
            while sink.own_unstable > WINDOW:
                await sink.progress.park()


async def measure(messages: int, payload: bytes, rate: float | None) -> None:
    async with nodes() as group:
        sinks = [Sink(node, messages * 2) for node in group]
        wall, cpu = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for sink in sinks:
                nursery.start_soon(sink.run)
            for sink in sinks:
                nursery.start_soon(write, sink, messages, payload, rate)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        delivered = 0
        for sink in sinks:
            assert len(sink.seen) == len(sink.latencies) == sink.expected, "lost or doubled"
            delivered += len(sink.latencies)
        repairs = sum(sink.node.engine.counters().repairs for sink in sinks)
        latencies = [ns / 1e6 for sink in sinks for ns in sink.latencies]
        cuts = statistics.quantiles(latencies, n=100)
        print(
            f"{'as fast as it goes' if rate is None else f'{rate * 3:,.0f} sends a second':>24}: "
            f"{delivered / wall:>8,.0f} deliveries/s, {cpu / delivered * 1e6:5.1f} us of CPU each "
            f"(send, TCP, stability included), p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, "
            f"{repairs / delivered:.2f} repairs per delivery"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000, help="by each node")
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument("--rate", type=float, default=300.0, help="sends a second by each node")
    options = parser.parse_args()
    payload = secrets.token_bytes(max(0, options.payload - 8))
    trio.run(measure, options.messages, payload, None)
    trio.run(measure, min(options.messages, int(options.rate * 5)), payload, options.rate)


if __name__ == "__main__":
    main()
