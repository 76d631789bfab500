"""Replicas, the network between them, true time, and stability as early as its definition allows."""

from collections.abc import Callable, Sequence
from operator import le
from random import Random

from .effects import Dot, Message
from .gateway import Gateway
from .history import Past, past_of
from .prepare import Command
from .recovery import copy_lost, find_lost
from .server import Server


class World:
    """All replicas. What it calls in service: within the bound of the true time, and without lost keys."""

    def __init__(
        self, offsets: Sequence[int], gateway_type: type[Gateway] = Gateway, now: int = 100
    ) -> None:
        self.now = now
        self.gateways = [
            gateway_type(me, Server(len(offsets), offset)) for me, offset in enumerate(offsets)
        ]
        self.sent: list[list[Message]] = [[] for _ in offsets]
        self.about: dict[str, list[Message]] = {}
        self.side = [0] * len(offsets)
        """Replicas on the same side of a partition are linked."""
        self.slow: set[tuple[int, int]] = set()
        """Origins and replicas between which messages mostly wait."""
        self.sent_before: list[dict[Dot, int]] = [{} for _ in offsets]
        """By replica: how many own messages it had sent when it delivered another, or sent an own one."""
        self.copied = False
        """Whether a key was ever copied to a member that had lost it."""

    @property
    def members(self) -> range:
        return range(len(self.gateways))

    def time(self, at: int) -> int:
        """What the clock of a replica's server shows."""
        return self.now + self.gateways[at].server.offset

    def vector(self, at: int) -> list[int]:
        return self.gateways[at].server.own.vector

    def begin(self, at: int) -> Gateway:
        """A step of this replica's server begins."""
        gateway = self.gateways[at]
        gateway.server.begin(self.now)
        gateway.begin()
        return gateway

    def in_service(self, at: int) -> bool:
        gateway = self.gateways[at]
        return gateway.clock_is_right() and not gateway.server.own.lost

    def write(self, at: int, *commands: Command) -> list[int]:
        replies = self.begin(at).write(commands)
        self.collect(at)
        return replies

    def deliver(self, at: int, batch: Sequence[Message]) -> None:
        own = len(self.sent[at])
        before = list(self.vector(at))
        gateway = self.begin(at)
        gateway.deliver(batch)
        # Own messages of the step stand in front of the batch, or behind its last one.
        front = sum(
            1
            for m in gateway.outbox
            if all(m.past[o] == before[o] for o in self.members if o != at)
        )
        for message in batch:
            if message.dot.counter <= self.vector(at)[message.dot.origin]:
                self.sent_before[at][message.dot] = own + front
        self.collect(at)

    def expire(self, at: int) -> None:
        self.begin(at).expire()
        self.collect(at)

    def stabilise(self, at: int) -> None:
        stable = [m for m in self.gateways[at].server.own.unstable if self.is_stable(at, m.dot)]
        if stable:
            self.begin(at).stabilise(stable)

    def restart(self, at: int) -> None:
        self.gateways[at].restart()

    def collect(self, at: int) -> None:
        """Take over what a step has sent. It is stored at its origin, so it cannot be lost."""
        gateway = self.gateways[at]
        for message in gateway.outbox:
            self.sent[at].append(message)
            self.sent_before[at][message.dot] = message.dot.counter
            for key in message.keys:
                self.about.setdefault(key, []).append(message)
        gateway.outbox = []

    def linked(self, at: int) -> list[int]:
        return [
            other for other in self.members if other != at and self.side[other] == self.side[at]
        ]

    def waiting(self, at: int, rng: Random, limit: int) -> list[Message]:
        """Up to so many messages of linked replicas that causal order allows to deliver one after the other."""
        vector = list(self.vector(at))
        batch: list[Message] = []
        origins = [o for o in self.linked(at) if (o, at) not in self.slow or rng.random() < 0.1]
        while len(batch) < limit:
            ready = [
                self.sent[origin][vector[origin]]
                for origin in origins
                if len(self.sent[origin]) > vector[origin]
                and all(map(le, self.sent[origin][vector[origin]].past, vector))
            ]
            if not ready:
                break
            batch.append(rng.choice(ready))
            vector[batch[-1].dot.origin] += 1
        return batch

    def is_stable(self, at: int, dot: Dot) -> bool:
        """All have delivered it, and all that they had sent before is delivered here."""
        vector = self.vector(at)
        return all(
            (before := self.sent_before[member].get(dot)) is not None and vector[member] >= before
            for member in self.members
        )

    def history(self, at: int, key: str) -> Past:
        vector = self.vector(at)
        visible = [m for m in self.about.get(key, ()) if m.dot.counter <= vector[m.dot.origin]]
        return past_of(key, visible)

    def set_clock(self, at: int, offset: int) -> None:
        """The clock of a server is set. One that is right again finds what it has dropped meanwhile."""
        gateway = self.gateways[at]
        was_right = gateway.clock_is_right()
        gateway.server.offset = offset
        if not was_right and gateway.clock_is_right():
            find_lost(self.begin(at))

    def copy_lost(self, at: int) -> None:
        """What a leading clock has dropped, from all linked members that have it."""
        gateway = self.begin(at)
        for other in self.linked(at):
            if self.gateways[other].clock_is_right():
                self.copied |= copy_lost(gateway, self.begin(other))

    def settle(self, rng: Random, check: Callable[[int], None] = lambda at: None) -> None:
        """Deliver, expire and stabilise until nothing happens. `check` is called for each replica, each time."""
        for _ in range(50):
            before = self.progress()
            for at in self.members:
                while batch := self.waiting(at, rng, 3):
                    self.deliver(at, batch)
                self.copy_lost(at)
                self.expire(at)
                self.stabilise(at)
                check(at)
            if self.progress() == before:
                return
        raise AssertionError(f"never quiet: replicas go on answering each other at {self.now}")

    def progress(self) -> list[tuple[list[int], int, int]]:
        return [
            (list(g.server.own.vector), len(g.server.own.unstable), len(g.server.own.lost))
            for g in self.gateways
        ]
