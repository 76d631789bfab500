"""Deliveries a second, latency and idle traffic of a group of real processes on this machine.

    python -m benchmarks.processes [--nodes 3,8,32] [--seconds S] [--payload BYTES] [--json]

Each node is a process of its own with TCP links to all others on 127.0.0.1; together they found a group. Three phases:
*full* (everybody sends, with a bounded number of own messages that are not stable yet), *calm* (a fixed rate far below
that; its latencies are the ones to compare), *idle*. Latency is from `tcbroadcast` to the event at the application of
another node, by the clock that all processes of a machine share. Every delivery is checked: none may be missing or
doubled.

For comparison: Erlang's RCB delivered 63,000 to 92,000, 44,000 to 76,000 and 24,000 to 41,000 messages a second with
3, 8 and 32 nodes on a machine of two cores, with a median latency of 0.17, 0.53 and 3.4 ms.
"""

import argparse
import json
import logging
import os
import statistics
import time
from typing import Any

import trio

from benchmarks.orders import Child, Orders, answer
from crdtcast import Delivered, Member, Stable, open_member
from crdtcast.lowlevel import rare_full_collections
from crdtcast.transport.options import format_address

NUMBERS = 16
"""Bytes at the start of a payload: when it was sent (ns), and its number."""


class Application:
    """Sends, takes all events, and notes what is delivered."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.last: dict[str, int] = {}
        self.delivered = 0
        self.unstable = 0
        self.latencies: list[int] = []
        self.room = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        me, clock = self.member.incarnation, time.monotonic_ns
        async for event in self.member:
            if isinstance(event, Delivered):
                origin, counter = event.tag.dot
                assert counter == self.last.get(origin, 0) + 1, "lost, doubled or out of order"
                self.last[origin] = counter
                self.delivered += 1
                self.latencies.append(clock() - int.from_bytes(event.payload[:8], "big"))
            elif isinstance(event, Stable) and event.tag.dot.origin == me:
                self.unstable -= 1
                self.room.unpark_all()

    def send(self, padding: bytes) -> None:
        self.member.tcbroadcast(time.monotonic_ns().to_bytes(8, "big") + padding)
        self.unstable += 1

    async def send_fully(self, seconds: float, window: int, padding: bytes) -> int:
        """As fast as the window allows; how many."""
        end, sent = trio.current_time() + seconds, 0
        while trio.current_time() < end:
            while self.unstable >= window:
                await self.room.park()
            for _ in range(8):
                self.send(padding)
            sent += 8
            await trio.lowlevel.checkpoint()
        return sent

    async def send_calmly(self, seconds: float, rate: float, padding: bytes, phase: float) -> int:
        """At `rate` a second; how many. phase: part of a period by which this node is late."""
        begin, count = trio.current_time() + phase / rate, int(seconds * rate)
        for number in range(count):
            await trio.sleep_until(begin + number / rate)
            self.send(padding)
        return count

    def bytes_sent(self) -> int:
        return sum(link.bytes_sent for link in self.member.links().values())


async def child(name: str) -> None:
    """One node."""
    orders = Orders()
    begun = await orders.next()
    assert begun is not None
    logging.getLogger("crdtcast").setLevel(logging.ERROR)  # others end before this one
    async with (
        open_member(name, founders=begun["founders"]) as member,
        trio.open_nursery() as nursery,
    ):
        answer(address=format_address(member.address))
        await member.ready()
        answer()
        application = Application(member)
        nursery.start_soon(application.run)
        while (what := await orders.next()) is not None:
            verb, cpu, wall = what.pop("do"), time.process_time(), time.monotonic()
            before, sent_before = application.delivered, application.bytes_sent()
            application.latencies.clear()
            if verb == "full":
                count = await application.send_fully(
                    what["seconds"], what["window"], bytes(what["padding"])
                )
            elif verb == "calm":
                count = await application.send_calmly(
                    what["seconds"], what["rate"], bytes(what["padding"]), what["phase"]
                )
            else:
                await trio.sleep(what["seconds"])
                count = 0
            answer(
                sent=count,
                delivered=application.delivered - before,
                wall=time.monotonic() - wall,
                cpu=time.process_time() - cpu,
                bytes=application.bytes_sent() - sent_before,
            )
            expected = await orders.next()
            assert expected is not None
            while application.delivered < expected["delivered"]:  # noqa: ASYNC110
                await trio.sleep(0.01)
            while application.unstable:  # noqa: ASYNC110
                await trio.sleep(0.01)
            cuts = statistics.quantiles(application.latencies or [0, 0], n=100)
            answer(p50=cuts[49] / 1e6, p99=cuts[98] / 1e6, repairs=member.engine.counters().repairs)
        nursery.cancel_scope.cancel()


class Group:
    """The children, and what is asked of all of them at once."""

    def __init__(self, size: int) -> None:
        self.sent = [0] * size
        self.children = [Child("benchmarks.processes", f"n{number}") for number in range(size)]

    def begin(self) -> None:
        addresses: dict[str, str] = {}
        names = [child.name for child in self.children]
        for child in self.children:
            founders = {name: addresses.get(name) for name in names}
            addresses[child.name] = child.ask(founders=founders)["address"]
        for child in self.children:
            child.hear()  # the group has begun

    def phase(self, what: str, **fields: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Runs it at all nodes; what each says at the end of its sends, and when all has arrived everywhere."""
        size = len(self.children)
        for number, child in enumerate(self.children):
            child.tell(do=what, **fields, **({"phase": number / size} if what == "calm" else {}))
        first = [child.hear() for child in self.children]
        for number in range(size):
            self.sent[number] += first[number]["sent"]
        for child, sent in zip(self.children, self.sent, strict=True):
            child.tell(delivered=sum(self.sent) - sent)
        return first, [child.hear() for child in self.children]

    def end(self) -> None:
        for child in self.children:
            child.end()

    def kill(self) -> None:
        for child in self.children:
            child.kill()


def measure(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures for a group of `size` nodes."""
    group = Group(size)
    try:
        group.begin()
        padding = {"padding": max(0, options.payload - 8)}
        window = max(options.in_flight // size, 8)
        group.phase("full", seconds=options.seconds / 5, window=window, **padding)  # warms up
        first, after = group.phase("full", seconds=options.seconds, window=window, **padding)
        delivered = sum(node["delivered"] for node in first)
        result = {
            "nodes": size,
            "deliveries_per_second": sum(node["delivered"] / node["wall"] for node in first),
            "cpu_us_per_delivery": sum(node["cpu"] for node in first) / delivered * 1e6,
            "bytes_per_delivery": sum(node["bytes"] for node in first) / delivered,
            "full_p50_ms": statistics.median(node["p50"] for node in after),
            "full_p99_ms": max(node["p99"] for node in after),
        }
        rate = options.calm / size
        _, after = group.phase("calm", seconds=options.seconds, rate=rate, **padding)
        result["calm_p50_ms"] = statistics.median(node["p50"] for node in after)
        result["calm_p99_ms"] = max(node["p99"] for node in after)
        result["repairs"] = sum(node["repairs"] for node in after)
        group.phase("idle", seconds=2)  # what follows the last message
        first, _ = group.phase("idle", seconds=options.seconds)
        result["idle_bytes_per_second"] = sum(node["bytes"] / node["wall"] for node in first)
        group.end()
    except BaseException:
        group.kill()
        raise
    return {**result, "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", default="3,8,32")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase")
    parser.add_argument("--payload", type=int, default=16, help="bytes")
    parser.add_argument(
        "--in-flight", type=int, default=1500, help="unstable messages, all nodes together"
    )
    parser.add_argument(
        "--calm", type=float, default=100.0, help="sends a second, all nodes together"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        with rare_full_collections():  # as `crdtcast node` does
            trio.run(child, options.child)
        return
    for size in map(int, options.nodes.split(",")):
        result = measure(size, options)
        if options.json:
            print(json.dumps(result), flush=True)
            continue
        print(
            f"{size:>3} nodes: {result['deliveries_per_second']:>9,.0f} deliveries/s,"
            f" {result['cpu_us_per_delivery']:.1f} us of CPU and {result['bytes_per_delivery']:.0f} bytes each,"
            f" p50 {result['full_p50_ms']:.1f} ms, p99 {result['full_p99_ms']:.1f} ms, {result['repairs']} repairs;"
            f" calm: p50 {result['calm_p50_ms']:.2f} ms, p99 {result['calm_p99_ms']:.2f} ms;"
            f" idle: {result['idle_bytes_per_second']:.0f} bytes/s; load {result['load']:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
