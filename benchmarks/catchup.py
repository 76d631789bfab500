"""A member that has missed a million messages comes back: what that costs a healthy one.

    python -m benchmarks.catchup [--missed N] [--payload BYTES] [--seconds S] [--nice N] [--json]

Three processes on this machine, members of a group: a, b and c. The links with c are cut, a and b send N messages,
which all stay unstable, and then the links are healed. c is niced. Meanwhile a writes as fast as its window of
messages that b has not taken allows, for `--seconds` at a time with as long a pause after it, as it did before.

*Slice*: CPU (thread time) of one step of one Trio task at a, whatever it does. *Writes*: by the clock, and for each
second of CPU that a had, which other load on the machine does not change. Garbage collections are counted apart from
both.
"""

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any

import trio

from benchmarks.orders import Child, Orders, answer
from crdtcast import Delivered, Tag, open_member
from crdtcast.group.member import Member
from crdtcast.lowlevel import rare_full_collections

FOUNDER = "a"
SILENT = "c"
WINDOW = 20_000
"""Own messages that another member has not taken yet, at most."""
STEP = 250
LONG = 0.010
"""Seconds of CPU: the goal for the longest slice."""


class Slices(trio.abc.Instrument):
    """CPU of each step of each task of this thread."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.steps = self.long_steps = 0
        self.longest_collection = 0.0
        self._collecting = self._collecting_before = self._collection_begun = self._begun = 0.0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: object) -> None:
        if phase == "start":
            self._collection_begun = time.thread_time()
            return
        took = time.thread_time() - self._collection_begun
        self._collecting += took
        self.longest_collection = max(self.longest_collection, took)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._collecting_before = self._collecting
        self._begun = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._begun - (self._collecting - self._collecting_before)
        name = task.name
        self.steps += 1
        self.long_steps += took > LONG
        if took > self.longest.get(name, 0):
            self.longest[name] = took

    def cpu(self) -> float:
        """Seconds of this thread, collections apart."""
        return time.thread_time() - self._collecting

    def taken(self) -> dict[str, Any]:
        """The figures since the last call, in milliseconds."""
        figures = {
            "longest_ms": {name: took * 1e3 for name, took in self.longest.items()},
            "longest_collection_ms": self.longest_collection * 1e3,
            "steps": self.steps,
            "long_steps": self.long_steps,
        }
        self.longest.clear()
        self.steps = self.long_steps = 0
        self.longest_collection = 0.0
        return figures


class Application:
    """Sends, and takes all events."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.delivered = 0
        self.sent = 0
        self._recent: deque[Tag] = deque()

    async def run(self) -> None:
        last: dict[str, int] = {}
        async for event in self.member:
            if isinstance(event, Delivered):
                origin, counter = event.tag.dot
                assert counter > last.get(origin, 0), "doubled or out of order"
                last[origin] = counter
                self.delivered += 1

    async def _send(self, payload: bytes) -> None:
        tag = self.member.tcbroadcast(payload)
        self.sent += 1
        if self.sent % STEP == 0:
            self._recent.append(tag)
            if len(self._recent) > WINDOW // STEP:
                await self.member.wait_delivered(self._recent.popleft(), count=2)
        elif self.sent % 8 == 0:
            await trio.lowlevel.checkpoint()

    async def send(self, count: int, payload: bytes) -> None:
        """So many."""
        for _ in range(count):
            await self._send(payload)

    async def write(self, seconds: float, payload: bytes) -> int:
        """As many as can be in that time."""
        before, end = self.sent, trio.current_time() + seconds
        while trio.current_time() < end:
            await self._send(payload)
        return self.sent - before


@asynccontextmanager
async def opened(name: str, founder: Any) -> AsyncIterator[Member]:
    """A member: the first one, or one that joins it."""
    if founder is None:
        async with open_member(name, found=True) as member:
            yield member
    else:
        async with open_member(name, join=f"{founder[0]}:{founder[1]}") as member:
            yield member


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def child(name: str) -> None:
    """One member; see `main` for the orders."""
    orders = Orders()
    begun = await orders.next()
    assert begun is not None
    os.nice(begun["nice"])
    logging.getLogger("crdtcast").setLevel(logging.ERROR)  # that c is away is meant
    slices = Slices()
    async with opened(name, begun["founder"]) as member, trio.open_nursery() as nursery:
        answer(address=member.address)
        trio.lowlevel.add_instrument(slices)
        application = Application(member)
        nursery.start_soon(application.run)
        while (order := await orders.next()) is not None:
            verb, wall, cpu = order["do"], time.monotonic(), slices.cpu()
            figures: dict[str, Any] = {}
            if verb == "meet":
                while len(member.members) < 3 or len(member.channel.here) < 2:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                await member.wait_established()
            elif verb == "cut":
                member.cut(SILENT)
            elif verb == "heal":
                member.heal(SILENT)
            elif verb == "send":
                await application.send(order["count"], bytes(order["payload"]))
            elif verb == "write":
                figures["count"] = await application.write(
                    order["seconds"], bytes(order["payload"])
                )
            elif verb == "all":
                while application.delivered < order["delivered"]:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            elif verb == "stable":
                while member.engine.counters().unstable:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            links = member.links()
            answer(
                **figures,
                wall=time.monotonic() - wall,
                cpu=slices.cpu() - cpu,
                slices=slices.taken(),
                sent=application.sent,
                delivered=application.delivered,
                unstable=member.engine.counters().unstable,
                repairs=member.engine.counters().repairs,
                resident=resident(),
                to_silent=links[SILENT].bytes_sent if SILENT in links else 0,
            )
        nursery.cancel_scope.cancel()


def measure(missed: int, payload: int, seconds: float, nice: int) -> dict[str, Any]:
    """Runs it all."""
    a, b, c = members = [Child("benchmarks.catchup", name) for name in (FOUNDER, "b", SILENT)]
    try:
        founder = a.ask(founder=None, nice=0)["address"]
        b.ask(founder=founder, nice=0)
        c.ask(founder=founder, nice=nice)
        for member in members:
            member.tell(do="meet")
        for member in members:
            member.hear()
        a.ask(do="cut")
        b.ask(do="cut")
        empty = a.ask(do="look")["resident"]
        each = missed // 2
        for member in (a, b):
            member.tell(do="send", count=each, payload=payload)
        for member in (a, b):
            member.hear()
        a.ask(do="all", delivered=each)
        b.ask(do="all", delivered=each)
        say(f"{a.ask(do='look')['unstable']:,} messages are not stable")
        before = [a.ask(do="write", seconds=seconds, payload=payload) for _ in range(3)]
        full = a.ask(do="look")

        begun = time.monotonic()
        b.ask(do="heal")
        a.ask(do="heal")
        during: list[dict[str, Any]] = []
        idle: list[dict[str, Any]] = []
        while True:
            during.append(a.ask(do="write", seconds=seconds, payload=payload))
            idle.append(a.ask(do="sleep"))
            time.sleep(seconds)
            idle.append(a.ask(do="look"))
            has = c.ask(do="look")["delivered"]
            say(f"{time.monotonic() - begun:6.1f} s: c has {has:,}")
            if has >= 2 * each:
                break
        caught_up = time.monotonic() - begun
        sent = a.ask(do="look")["sent"]
        c.ask(do="all", delivered=sent + each)
        idle.append(a.ask(do="stable"))
        everything = time.monotonic() - begun
        last = a.ask(do="look")
        after = [a.ask(do="write", seconds=seconds, payload=payload) for _ in range(3)]
        for member in members:
            member.end()
    except BaseException:
        for member in members:
            member.kill()
        raise
    slices = [answered["slices"] for answered in (*during, *idle)]
    longest: dict[str, float] = {}
    for figures in slices:
        for task, took in figures["longest_ms"].items():
            longest[task] = max(longest.get(task, 0), took)
    rates = {
        f"{unit}_{when}": sum(w["count"] for w in writes) / sum(w[clock] for w in writes)
        for unit, clock in (("writes_per_second", "wall"), ("writes_per_cpu_second", "cpu"))
        for when, writes in (("before", before), ("during", during), ("after", after))
    }
    return {
        "missed": 2 * each,
        "longest_slice_ms": max(longest.values()),
        "longest_slice_before_ms": max(
            took for figures in before for took in figures["slices"]["longest_ms"].values()
        ),
        "slices": sum(figures["steps"] for figures in slices),
        "slices_over_10_ms": sum(figures["long_steps"] for figures in slices),
        "longest_slices_ms": dict(sorted(longest.items(), key=itemgetter(1))[:-6:-1]),
        "longest_collection_ms": max(figures["longest_collection_ms"] for figures in slices),
        **rates,
        "kept_by_clock": rates["writes_per_second_during"] / rates["writes_per_second_before"],
        "kept_by_cpu": rates["writes_per_cpu_second_during"]
        / rates["writes_per_cpu_second_before"],
        "of_those_after_by_clock": rates["writes_per_second_during"]
        / rates["writes_per_second_after"],
        "seconds_to_have_it": caught_up,
        "seconds_to_all_stable": everything,
        "bytes_to_it": last["to_silent"] - full["to_silent"],
        "repairs": last["repairs"] - full["repairs"],
        "resident_empty": empty,
        "resident_full": full["resident"],
        "load": os.getloadavg()[0],
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--missed", type=int, default=1_000_000)
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument("--seconds", type=float, default=2.0, help="of writing, and of each pause")
    parser.add_argument("--nice", type=int, default=19, help="of the member that comes back")
    parser.add_argument("--json", action="store_true", help="a last line for programs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        with rare_full_collections():
            trio.run(child, options.child)
        return
    result = measure(options.missed, options.payload, options.seconds, options.nice)
    for name, figure in result.items():
        if isinstance(figure, dict):
            figure = ", ".join(f"{what} {ms:.1f}" for what, ms in figure.items())
        elif isinstance(figure, float):
            figure = f"{figure:,.2f}"
        else:
            figure = f"{figure:,}"
        print(f"{name:<30} {figure}")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
