"""A group of any engine on a simulated clock: who sent, delivered and found stable what, and when; what went out.

A discrete-event run, fixed by its setup. Who sends when, and how long a message takes to whom, is drawn apart from all
else and no message waits for an engine's other traffic, so engines of all kinds live through the same history of sends
and deliveries (unless they repair: then what others hand on may be there first). Applications take what is deliverable
at once. Real time enters only if a clock is given, and changes nothing.
"""

import heapq
import math
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.baselines.interface import CausalEngine, Measures
from benchmarks.experiments.models import LatencyModel, SendModel
from crdtcast.causality.messages import Transmit
from crdtcast.exceptions import ConfigurationError

Build = Callable[[str, Sequence[str]], CausalEngine]
"""Makes the engine of one member, given its id and those of all members."""

NEVER = math.nan
"""The time of what has not happened."""

if TYPE_CHECKING:
    Times = array[float]
    Spans = array[int]
else:  # not to be subscripted before Python 3.12
    Times = Spans = array


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSetup:
    """What a run is made of; all times in milliseconds.

    messages: each member sends so many. tick_ms: between two ticks of one member; they begin at random phases.
    payload: what every message carries. watched: members whose `measures` are sampled, `samples` times while the
    group sends, evenly. patience_ms: how long after the last send the run may go on before it is cut off.
    """

    members: int
    messages: int
    interval: SendModel
    latency: LatencyModel
    tick_ms: float = 100
    payload: bytes = b"payload of 16 b."
    seed: int = 1
    watched: tuple[int, ...] = (0,)
    samples: int = 0
    patience_ms: float = 60_000

    def __post_init__(self) -> None:
        if self.members < 2 or self.messages < 1 or not self.tick_ms > 0:
            raise ConfigurationError(
                f"{self.members} members, {self.messages} messages each, a tick of {self.tick_ms}"
                " ms: a run needs two members, one message and a tick above 0"
            )


class Sent(NamedTuple):
    """One transmission: by whom, to how many, at what time, what. `relayed`: to one member, not to all."""

    sender: int
    receivers: int
    at: float
    message: Any
    relayed: bool


class Sample(NamedTuple):
    """What one member held and had done at one time."""

    member: int
    at: float
    measures: Measures


class Input(NamedTuple):
    """What a member was given: `verb` is send, receive or tick."""

    verb: str
    sender: str
    message: Any


@dataclass(slots=True)
class TimedRun:
    """What happened. Messages are numbered: the n-th (from 0) of member m is `m * messages + n`.

    sent_at: by message. delivered_at, stable_at: by member, then by message; NEVER for what did not happen, the sending
    counts as delivery at the sender. delivery_ns, stable_ns: by the clock, from when the engine was given what made a
    delivery or notice possible there until it came, in the order of events, by member; empty without a clock.
    engine_ns: all that was spent in engines. complete: everything was delivered everywhere, and became stable if that
    was wanted.
    """

    setup: TimedSetup
    ids: tuple[str, ...]
    sent_at: Times
    delivered_at: list[Times]
    stable_at: list[Times]
    delivery_ns: list[Spans]
    stable_ns: list[Spans]
    engine_ns: int = 0
    samples: list[Sample] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    final: dict[int, Measures] = field(default_factory=dict)
    ended_at: float = 0.0
    complete: bool = False

    @property
    def deliveries(self) -> int:
        """Of others' messages, at all members."""
        return sum(map(_happened, self.delivered_at)) - _happened(self.sent_at)

    def stability_lags(self, members: Sequence[int] | None = None) -> list[float]:
        """Time from a message's sending to its notice, at these members (all by default)."""
        chosen = range(len(self.ids)) if members is None else members
        return [
            stable - sent
            for member in chosen
            for sent, stable in zip(self.sent_at, self.stable_at[member], strict=True)
            if stable == stable  # NEVER is not equal to itself
        ]

    def excess_lags(self, members: Sequence[int] | None = None) -> list[float]:
        """The same, from the time when the last member delivered it: what no engine could avoid is left out."""
        last = [max(times) for times in zip(*self.delivered_at, strict=True)]
        chosen = range(len(self.ids)) if members is None else members
        return [
            stable - everywhere
            for member in chosen
            for everywhere, stable in zip(last, self.stable_at[member], strict=True)
            if stable == stable
        ]


def _happened(times: Times) -> int:
    return sum(1 for time in times if time == time)


class _Group:
    """The state of one run: engines, links, and the events to come."""

    def __init__(
        self,
        setup: TimedSetup,
        ids: Sequence[str],
        build: Build,
        clock: Callable[[], int] | None,
        recorded: int | None,
        transmitted: Callable[[Sent], None] | None,
    ) -> None:
        if len(ids) != setup.members:
            raise ConfigurationError(f"{len(ids)} ids for {setup.members} members")
        self.setup = setup
        self.ids = tuple(ids)
        self.number = {name: number for number, name in enumerate(ids)}
        self.engines = [build(name, self.ids) for name in ids]
        total = setup.members * setup.messages
        nothing = array("d", [NEVER]) * total
        self.run = TimedRun(
            setup,
            self.ids,
            nothing[:],
            [nothing[:] for _ in ids],
            [nothing[:] for _ in ids],
            [array("q") for _ in ids],
            [array("q") for _ in ids],
        )
        self.clock = clock
        self.recorded = recorded
        self.transmitted = transmitted
        self.now = 0.0
        self._serial = 0
        self._events: list[tuple[float, int, int, Input]] = []
        # By link: the last arrival of a message, and of anything. Nothing overtakes messages, as on a TCP connection.
        self._messages: dict[tuple[int, int], float] = {}
        self._anything: dict[tuple[int, int], float] = {}
        # Messages draw their latencies from the first, everything else from the second.
        self._latencies = [random.Random(f"{setup.seed} messages {m}") for m in range(len(ids))]
        self._others = [random.Random(f"{setup.seed} others {m}") for m in range(len(ids))]
        self.undelivered = total * (setup.members - 1)
        self.unstable = total * setup.members
        for engine in self.engines:
            for other in self.ids:
                if other != engine.me:
                    engine.connected(other)
        for engine in self.engines:
            engine.take_outbox()  # greetings: the run begins when all have met

    def schedule(self, stability: bool) -> float:
        """All sends, and the first tick of each member; the time of the last send."""
        last = 0.0
        for member in range(len(self.ids)):
            chance = random.Random(f"{self.setup.seed} sends {member}")
            at = 0.0
            for _ in range(self.setup.messages):
                at += self.setup.interval.draw(chance)
                self._push(at, member, Input("send", "", None))
            last = max(last, at)
            if stability:
                phase = chance.uniform(0, self.setup.tick_ms)
                self._push(phase, member, Input("tick", "", None))
        return last

    def _push(self, at: float, member: int, what: Input) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, member, what))

    def events(self, until: float) -> Iterator[tuple[int, Input]]:
        """What happens, in order; `now` follows."""
        while self._events and self._events[0][0] <= until:
            self.now, _, member, what = heapq.heappop(self._events)
            if what.verb == "tick":
                self._push(self.now + self.setup.tick_ms, member, what)
            yield member, what

    def step(self, member: int, what: Input) -> None:
        """Give a member's engine one input, and take what comes of it, as a runtime would."""
        engine, run, clock = self.engines[member], self.run, self.clock
        if member == self.recorded:
            run.inputs.append(what)
        delivered_at, delivery_ns = run.delivered_at[member], run.delivery_ns[member]
        begun = clock() if clock else 0
        if what.verb == "receive":
            engine.receive(what.sender, what.message)
            while (delivery := engine.poll()) is not None:
                if clock:
                    delivery_ns.append(clock() - begun)
                origin, counter = delivery.tag.dot
                delivered_at[self._message(origin, counter)] = self.now
                self.undelivered -= 1
        elif what.verb == "send":
            place = self._message(*engine.send(self.setup.payload).dot)
            run.sent_at[place] = delivered_at[place] = self.now
        else:
            engine.tick()
        if engine.has_stable():
            stable = engine.poll_stable(1_000_000)
            spent = clock() - begun if clock else 0
            stable_at, stable_ns = run.stable_at[member], run.stable_ns[member]
            for tag in stable:
                stable_at[self._message(*tag.dot)] = self.now
                if clock:
                    stable_ns.append(spent)
            self.unstable -= len(stable)
        outbox = engine.take_outbox()
        if clock:
            run.engine_ns += clock() - begun
        for effect in outbox:
            self._transmit(member, effect, what.verb == "send")

    def _message(self, origin: str, counter: int) -> int:
        return self.number[origin] * self.setup.messages + counter - 1

    def _transmit(self, sender: int, effect: Transmit, broadcast: bool) -> None:
        everyone = range(len(self.ids))
        receivers = [r for r in everyone if r != sender and effect.to in (None, self.ids[r])]
        is_message = broadcast and effect.to is None
        chance = (self._latencies if is_message else self._others)[sender]
        lane = self._messages if is_message else self._anything
        if self.transmitted is not None:
            relayed = effect.to is not None
            self.transmitted(Sent(sender, len(receivers), self.now, effect.message, relayed))
        packet = Input("receive", self.ids[sender], effect.message)
        draw, anything = self.setup.latency.draw, self._anything
        for receiver in receivers:
            link = (sender, receiver)
            at = max(self.now + draw(chance, sender, receiver), lane.get(link, 0.0))
            lane[link] = at
            anything[link] = max(at, anything.get(link, 0.0))
            self._push(at, receiver, packet)

    def sample(self, member: int) -> None:
        """Look at what a member holds."""
        measures = self.engines[member].measures()
        self.run.samples.append(Sample(member, self.now, measures))


def run_timed(
    setup: TimedSetup,
    ids: Sequence[str],
    build: Build,
    *,
    stability: bool = True,
    clock: Callable[[], int] | None = None,
    recorded: int | None = None,
    transmitted: Callable[[Sent], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> TimedRun:
    """Run a group until everything has been delivered (and is stable, with `stability`), or patience is over.

    ids: of the members, in the order of their numbers. build: makes an engine that has met all others.
    stability: whether members tick, and whether the run waits for notices. clock: in ns, to measure engines by; of real
    time or of CPU. recorded: the member whose inputs are kept in `inputs`. transmitted: gets everything that goes out.
    progress: is called now and then with the share done.

    Raises ConfigurationError for as many ids as members do not fit.
    """
    group = _Group(setup, ids, build, clock, recorded, transmitted)
    run = group.run
    last = group.schedule(stability)
    step_ms = last / (setup.samples + 1) if setup.samples else math.inf
    next_sample = step_ms
    for done, (member, what) in enumerate(group.events(last + setup.patience_ms), 1):
        while group.now >= next_sample:
            for watched in setup.watched:
                group.sample(watched)
            next_sample = next_sample + step_ms if next_sample + step_ms < last else math.inf
        group.step(member, what)
        if not group.undelivered and (not stability or not group.unstable):
            run.complete = True
            break
        if progress and not done % 50_000:
            progress(1 - group.undelivered / (len(ids) * (len(ids) - 1) * setup.messages))
    run.ended_at = group.now
    run.final = {member: group.engines[member].measures() for member in setup.watched}
    return run


def replay(engine: CausalEngine, inputs: Sequence[Input], payload: bytes) -> int:
    """Give an engine what another one was given, and nothing beside; how many messages were delivered.

    This loop is what to time for the cost of an engine: no network, no clock, no bookkeeping.
    """
    delivered = 0
    for verb, sender, message in inputs:
        if verb == "receive":
            engine.receive(sender, message)
            while engine.poll() is not None:
                delivered += 1
        elif verb == "send":
            engine.send(payload)
        else:
            engine.tick()
        if engine.has_stable():
            engine.poll_stable(1_000_000)
        engine.take_outbox()
    return delivered


def work_of(run: TimedRun) -> Mapping[str, float]:
    """Work for each delivery (own messages left out), over the watched members, by name."""
    delivered = sum(
        _happened(run.delivered_at[member]) - run.setup.messages for member in run.final
    )
    totals: dict[str, float] = {}
    for measures in run.final.values():
        for name, count in measures.work.items():
            totals[name] = totals.get(name, 0) + count
    return {name: total / delivered for name, total in totals.items()} if delivered else {}
