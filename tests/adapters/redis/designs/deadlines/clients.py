"""Clients with expectations: a session that is extended in time, and a rate limiter."""

from dataclasses import dataclass, field
from random import Random

from .checks import require
from .effects import Slot, Type
from .prepare import Command
from .world import World

SESSION = "session"
LIMITER = "limiter"
LOGIN = Slot(Type.HASH, "login")


@dataclass
class Session:
    """Logged in in one region, which extends the deadline before it is over; others add fields, and may extend it."""

    home: int
    value: int = 0
    promised: int = 0
    """Until when, by the clock of its region, the session must be there."""

    def visit(self, world: World, rng: Random, ttl: int) -> None:
        """The user's next request: the session is there, or over."""
        self.check_home(world)
        time = world.time(self.home)
        if self.is_live(world) and rng.random() < 0.7:
            (found,) = world.write(self.home, Command("EXPIRE", SESSION, ttl=ttl))
            require(found == 1, "logged out", (self, world.now))
        else:
            self.value += 1
            world.write(
                self.home,
                Command("HSET", SESSION, ("login",), self.value),
                Command("EXPIRE", SESSION, ttl=ttl),
            )
        self.promised = time + ttl

    def is_live(self, world: World) -> bool:
        return self.promised > max(world.time(self.home), world.gateways[self.home].server.latest)

    def check_home(self, world: World) -> None:
        if world.in_service(self.home) and self.is_live(world):
            self.check_at(world, self.home)

    def check_at(self, world: World, at: int) -> None:
        native = world.begin(at).server.get(SESSION)
        found = native is not None and native.slots.get(LOGIN) == self.value
        require(found, "logged out", (self, at, world.now, native))


def visit_elsewhere(world: World, at: int, rng: Random, ttl: int) -> None:
    """Another region adds a field of its own, or extends the deadline, never shortens it."""
    if rng.random() < 0.6:
        world.write(at, Command("HSET", SESSION, (f"at{at}",), world.now))
    else:
        world.write(at, Command("EXPIRE", SESSION, ttl=ttl, condition="GT"))


@dataclass
class Limiter:
    """INCR, and EXPIRE by the one that got 1: never may a number stay without a deadline."""

    pending: list[int] = field(default_factory=list)
    """Regions whose client has got a 1 and is about to set the deadline."""

    def count(self, world: World, at: int) -> None:
        (reply,) = world.write(at, Command("INCR", LIMITER))
        if reply == 1:
            self.pending.append(at)

    def expire(self, world: World, at: int, ttl: int) -> None:
        while at in self.pending:
            self.pending.remove(at)
            world.write(at, Command("EXPIRE", LIMITER, ttl=ttl))
