"""Engines in one process and a network that a seed or a list of actions drives, while the checker watches.

Packets arrive in any order and more than once; none is lost (the published algorithms need reliable links).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.baselines.interface import CausalEngine
from crdtcast.causality.tags import Dot
from crdtcast.simulator.oracle import Checker, OracleFinding

Build: TypeAlias = Callable[[str, Sequence[str]], CausalEngine]
"""Makes the engine of one member, given its id and those of all members."""

Action: TypeAlias = tuple[str | int, ...]
"""send M, poll M, stable M, tick M, arrive S D place, duplicate S D place. What is impossible does nothing."""

NAMES = ("A", "B", "C", "D", "E", "F", "G", "H")
PATIENCE = 8
"""Rounds of `drain` without a delivery or a notice after which a group counts as at rest, whatever it says."""


class Group:
    """Members by id; packets in flight by ordered pair, oldest first. `actions` is what has been done so far."""

    def __init__(self, engines: Mapping[str, CausalEngine]) -> None:
        self.engines = dict(engines)
        self.checker = Checker(self.engines)
        self.flights: dict[tuple[str, str], list[Any]] = {}
        self.actions: list[Action] = []
        self.deliveries = 0
        self.notices = 0
        self._payloads: dict[Dot, bytes] = {}
        for member, engine in self.engines.items():
            for other in self.engines:
                if other != member:
                    engine.connected(other)

    @property
    def findings(self) -> list[OracleFinding]:
        return self.checker.findings

    def apply(self, action: Action) -> bool:
        """Do it; whether it was possible."""
        verb, member = action[0], str(action[1])
        if verb in ("arrive", "duplicate"):
            done = self._arrive(member, str(action[2]), int(action[3]), verb == "duplicate")
        elif verb == "send":
            done = self._send(member)
        elif verb == "poll":
            done = self._poll(member)
        elif verb == "stable":
            done = self._stable(member)
        else:
            assert verb == "tick", f"no such action: {action}"
            self.engines[member].tick()
            self._collect(member)
            done = True
        self.actions.append(action)
        return done

    def _send(self, member: str) -> bool:
        payload = f"{member} {len(self._payloads)}".encode()
        tag = self.engines[member].send(payload)
        self._payloads[tag.dot] = payload
        self.checker.sent(member, tag.dot, tag)
        self._collect(member)
        return True

    def _poll(self, member: str) -> bool:
        delivery = self.engines[member].poll()
        if delivery is None:
            return False
        dot = delivery.tag.dot
        self.deliveries += 1
        self.checker.delivered(member, dot, delivery.tag)
        assert delivery.payload == self._payloads[dot]
        assert self.engines[member].delivered[dot.origin] >= dot.counter
        self._collect(member)
        return True

    def _stable(self, member: str) -> bool:
        tags = self.engines[member].poll_stable()
        for tag in tags:
            self.notices += 1
            self.checker.stable(member, tag.dot)
        self._collect(member)
        return bool(tags)

    def _arrive(self, sender: str, to: str, place: int, stays: bool) -> bool:
        flight = self.flights.get((sender, to), [])
        if place >= len(flight):
            return False
        message = flight[place] if stays else flight.pop(place)
        self.engines[to].receive(sender, message)
        self._collect(to)
        return True

    def _collect(self, member: str) -> None:
        for transmit in self.engines[member].take_outbox():
            for other in self.engines if transmit.to is None else [transmit.to]:
                if other != member and other in self.engines:
                    self.flights.setdefault((member, other), []).append(transmit.message)

    def drain(self) -> list[OracleFinding]:
        """Let everything that can happen happen, in order, until nothing more does; then judge the whole run."""
        idle = 0
        while idle < PATIENCE:
            before = self.deliveries + self.notices
            for member in self.engines:
                self.apply(("tick", member))
            for sender, to in sorted(self.flights):
                while self.apply(("arrive", sender, to, 0)):
                    self._take_all(to)
            for member in self.engines:
                self._take_all(member)
            idle = 0 if self.deliveries + self.notices > before else idle + 1
        return self.checker.finish()

    def _take_all(self, member: str) -> None:
        while self.apply(("poll", member)) or self.apply(("stable", member)):
            pass

    @property
    def at_rest(self) -> bool:
        """Whether every engine says that it is quiet, and a round of ticks sends nothing."""
        return all(engine.quiet for engine in self.engines.values()) and self._silent()

    def _silent(self) -> bool:
        for engine in self.engines.values():
            engine.tick()
        return not any(engine.take_outbox() for engine in self.engines.values())


def group(build: Build, members: int) -> Group:
    """A fresh group of the first few `NAMES`."""
    names = NAMES[:members]
    return Group({name: build(name, names) for name in names})


def random_run(
    build: Build,
    members: int,
    seed: int,
    *,
    steps: int = 120,
    fifo: bool = False,
    duplicates: bool = True,
) -> Group:
    """A run that `seed` fixes, drained and judged: see its `findings`.

    With `fifo` packets of a link stay in order. A run with the same arguments is the same run; a failing one can be
    replayed from its `actions`, and cut down by `shrink`.
    """
    rng = random.Random(seed)
    made = group(build, members)
    names = list(made.engines)
    # How often what is done differs between runs, so that some have deep queues and some are nearly in order.
    verbs = ["send", "arrive", "poll", "stable", "tick", "duplicate"]
    weights = [rng.uniform(1, 3), rng.uniform(1, 9), rng.uniform(1, 9), 1, rng.uniform(0, 1), 0.0]
    if duplicates:
        weights[5] = rng.uniform(0, 1)
    for verb in rng.choices(verbs, weights, k=steps):
        if verb in ("arrive", "duplicate"):
            links = [link for link, flight in sorted(made.flights.items()) if flight]
            if links:
                link = rng.choice(links)
                place = 0 if fifo else rng.randrange(len(made.flights[link]))
                made.apply((verb, *link, place))
        else:
            made.apply((verb, rng.choice(names)))
    made.drain()
    return made


def replay(build: Build, members: int, actions: Sequence[Action]) -> Group:
    """The run that `actions` make, drained and judged."""
    made = group(build, members)
    for action in actions:
        made.apply(action)
    made.drain()
    return made


def shrink(
    build: Build, members: int, actions: Sequence[Action], fails: Callable[[Group], bool]
) -> list[Action]:
    """Leave out actions one by one as long as `fails` holds for the run of the rest."""
    rest = list(actions)
    shorter = True
    while shorter:
        shorter = False
        for place in reversed(range(len(rest))):
            fewer = rest[:place] + rest[place + 1 :]
            if fails(replay(build, members, fewer)):
                rest, shorter = fewer, True
    return rest


def replay_words(build: Build, members: Sequence[str], words: Sequence[str]) -> Group:
    """The run of a trace file's `actions` (words: send, mw, cl, net, dup, ph), drained and judged.

    A message leaves when it is sent, so `mw` does nothing. `cl` is one delivery, or else the notices that wait. A
    packet of kind `msg` is found by its dot, of the other kinds the oldest on that link is taken.
    """
    made = Group({member: build(member, tuple(members)) for member in members})
    for word in words:
        verb, *rest = word.split()
        if verb == "send":
            made.apply(("send", rest[0]))
        elif verb == "ph":
            made.apply(("tick", rest[0]))
        elif verb == "cl":
            if not made.apply(("poll", rest[0])):
                made.apply(("stable", rest[0]))
        elif verb in ("net", "dup"):
            sender, to = rest[0].split(">")
            place = _place(made.flights.get((sender, to), []), rest[1:])
            if place is not None:
                made.apply(("arrive" if verb == "net" else "duplicate", sender, to, place))
        else:
            assert verb == "mw", f"no such word: {word}"
    made.drain()
    return made


def _place(flight: Sequence[Any], words: Sequence[str]) -> int | None:
    kind, *dots = words
    for place, message in enumerate(flight):
        payload = getattr(message, "payload", None)
        if kind == "msg":
            if payload is not None and "".join(map(str, message.dot)) == dots[0]:
                return place
        elif payload is None:
            return place
    return None
