"""Clients with expectations: a session that is extended in time, and a rate limiter."""

from dataclasses import dataclass, field
from random import Random

from .checks import require
from .digest import BOUND
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
    """The deadline: until all clocks may have come to it, the session must be there."""

    def visit(self, world: World, rng: Random, ttl: int) -> None:
        """The user's next request: the session is there, or over."""
        until = world.time(self.home) + ttl
        there = self.is_there(world, self.home)
        require(there or not self.is_live(world), "logged out", (self, world.now))
        if there and rng.random() < 0.7:
            (found,) = world.write(self.home, Command("EXPIRE", SESSION, ttl=ttl))
            require(found == 1, "logged out", (self, world.now))
            self.promised = until
            return
        self.value += 1
        login = Command("HSET", SESSION, ("login",), self.value)
        world.write(self.home, login, Command("EXPIRE", SESSION, ttl=ttl))
        self.promised = until

    def is_live(self, world: World) -> bool:
        """Whether the deadline is ahead by every clock in service."""
        return self.promised > max(world.now + BOUND, world.gateways[self.home].server.latest)

    def is_there(self, world: World, at: int) -> bool:
        native = world.begin(at).server.get(SESSION)
        return native is not None and native.slots.get(LOGIN) == self.value


def visit_elsewhere(world: World, at: int, rng: Random, ttl: int) -> None:
    """Another region adds a field of its own, or extends the deadline. It never shortens one, nor leaves none."""
    if rng.random() < 0.6:
        field = Command("HSET", SESSION, (f"at{at}",), world.now)
        world.write(at, field, Command("EXPIRE", SESSION, ttl=ttl, condition="NX"))
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
