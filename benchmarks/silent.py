"""One member of 128 falls silent while the others send 100,000 messages: `python benchmarks/silent.py`.

What a message costs then at a healthy member (flat or not), what the unstable ones occupy, and, when the silent member
is back, how long the longest single call of the engine takes while it is repaired and everything becomes stable.
"""

import argparse
import gc
import os
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine

IN_FLIGHT = 13
"""Messages that are on their way at any time: 126 senders, one message in 100 ms each, 10 ms of latency."""


class Rounds:
    """What the first member gets: in each round a message of every other lively member, then their digests.

    Each message knows all but the last 13 before it, so 13 dots of what it knows are maximal.
    """

    def __init__(self, members: int) -> None:
        self.ids = [new_incarnation(f"n{k:03}", 1, 0) for k in range(members)]
        self.lively = self.ids[1:-1]
        self.silent = self.ids[-1]
        self._recent: deque[Dot] = deque(maxlen=2 * IN_FLIGHT)
        self._number = 0

    def messages(self) -> list[Message]:
        """One of each."""
        self._number += 1
        round_ = []
        for origin in self.lively:
            known = [dot for dot in islice(self._recent, IN_FLIGHT) if dot.origin != origin]
            message = Message(Dot(origin, self._number), tuple(known), b"payload")
            self._recent.append(message.dot)
            round_.append(message)
        return round_


class Clock:
    """CPU of each call, in order. Garbage collections are counted apart: how long those take, and when they come, is
    up to the whole program.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[float, str]] = []
        self.collecting = self.longest_collection = 0.0
        self._since = 0.0
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: object) -> None:
        if phase == "start":
            self._since = time.process_time()
        else:
            spent = time.process_time() - self._since
            self.collecting += spent
            self.longest_collection = max(self.longest_collection, spent)

    def call(self, where: str, step: Callable[[], object]) -> object:
        begun, collecting = time.process_time(), self.collecting
        result = step()
        spent = time.process_time() - begun - (self.collecting - collecting)
        self.calls.append((spent, where))
        return result

    def close(self) -> None:
        """Stop counting collections."""
        gc.callbacks.remove(self._collected)


def engine_of(rounds: Rounds) -> Engine:
    me, *others = rounds.ids
    engine = Engine(me, [i.partition(".")[0] for i in rounds.ids])
    for other in others:
        engine.introduce(other)
        engine.connected(other)
    engine.take_outbox()
    return engine


def send_while_one_is_silent(engine: Engine, rounds: Rounds, messages: int) -> list[float]:
    """Microseconds of CPU for each message, in ten stretches."""
    stretches: list[float] = []
    per_stretch = max(messages // 10 // len(rounds.lively), 1)
    for _ in range(10):
        work = [rounds.messages() for _ in range(per_stretch)]
        begun = time.process_time()
        for round_ in work:
            for message in round_:
                engine.receive(message.dot.origin, message)
                engine.poll()
            heard = Digest(DigestKind.NEWS, dict(engine.vector))
            for origin in rounds.lively:
                engine.receive(origin, heard)
            engine.tick()
            engine.poll_stable()
            engine.take_outbox()
        stretches.append((time.process_time() - begun) / per_stretch / len(rounds.lively) * 1e6)
    return stretches


def bring_back(engine: Engine, rounds: Rounds) -> Clock:
    """The silent member asks until it has everything; then all becomes stable."""
    clock = Clock()
    other = Engine(rounds.silent, [i.partition(".")[0] for i in rounds.ids])
    for peer in rounds.ids[:-1]:
        other.introduce(peer)
    clock.call("connected", lambda: engine.connected(rounds.silent))
    other.connected(engine.me)
    while engine.counters().unstable:
        for effect in other.take_outbox():
            clock.call("receive", partial(engine.receive, other.me, effect.message))
        clock.call("tick", engine.tick)
        while clock.call("poll_stable", lambda: engine.poll_stable(1000)):
            pass
        for effect in clock.call("take_outbox", engine.take_outbox):  # type: ignore[attr-defined]
            if effect.to == other.me or effect.to is None:
                other.receive(engine.me, effect.message)
        while other.poll() is not None:
            pass
        other.tick()
        for origin in rounds.lively:  # the others, whom it has caught up with as well
            other.receive(origin, Digest(DigestKind.NEWS, dict(engine.vector)))
    clock.close()
    return clock


def main() -> int:
    """Print the figures; exit code 1 if a call took longer than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=128)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--longest-ms", type=float, default=10.0)
    parser.add_argument(
        "--repeats", type=int, default=3, help="the same calls again, for a noisy machine"
    )
    options = parser.parse_args()
    stretches, clocks = [], []
    for _ in range(options.repeats):
        rounds = Rounds(options.members)
        engine = engine_of(rounds)
        stretches.append(send_while_one_is_silent(engine, rounds, options.messages))
        unstable = engine.counters().unstable
        gc.collect()
        gc.freeze()
        clocks.append(bring_back(engine, rounds))
        gc.unfreeze()
    # Every repeat makes the same calls: what only one of them takes long for is the machine's doing.
    shown = ", ".join(f"{min(costs):.0f}" for costs in zip(*stretches, strict=True))
    print(
        f"{unstable:,} unstable messages, {options.members} members; us for each message: {shown},"
        f" as the least of {options.repeats} repeats"
    )
    print(f"{_bytes_each(options):,.0f} bytes for each of them, context and payload included")
    least = [min(call) for call in zip(*(clock.calls for clock in clocks), strict=True)]
    longest, where = max(least)
    once = max(max(clock.calls) for clock in clocks)[0]
    collection = max(clock.longest_collection for clock in clocks)
    print(
        f"back: {sum(spent for spent, _ in least) * 1000:,.0f} ms of CPU in {len(least)} calls, the longest"
        f" {longest * 1000:.1f} ms ({where}) as the least of the repeats, {once * 1000:.1f} ms in one of"
        f" them; the longest garbage collection {collection * 1000:.1f} ms; load {os.getloadavg()[0]:.1f}"
    )
    return 1 if longest * 1000 > options.longest_ms else 0


def _bytes_each(options: argparse.Namespace) -> float:
    """What an unstable message occupies, with a tenth of the messages."""
    tracemalloc.start()
    rounds = Rounds(options.members)
    engine = engine_of(rounds)
    before = tracemalloc.get_traced_memory()[0]
    send_while_one_is_silent(engine, rounds, options.messages // 10)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held / engine.counters().unstable


if __name__ == "__main__":
    sys.exit(main())
