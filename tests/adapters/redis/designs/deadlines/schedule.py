"""One random schedule: replicas, clocks, clients, faults of the surroundings; then quiet, and all deadlines over."""

from random import Random

from .checks import (
    check_expiry,
    check_key,
    check_memory,
    check_quiet,
    check_reassertions,
    require,
)
from .clients import LIMITER, SESSION, Limiter, Session, visit_elsewhere
from .digest import BOUND
from .gateway import Gateway, expired_keys
from .prepare import KEEP, Command
from .world import World

STEPS = 60
FREE = (("string", "s"), ("string", "t"), ("set", "u"), ("set", "v"), ("hash", "h"), ("hash", "i"))
"""Keys that anything is done to, each by the commands of one type."""
FOCUS = ((1, 0, 0, 0), (0, 3, 2, 0), (0, 0, 0, 1), (2, 3, 2, 8))
"""How often, in one schedule: the limiter, the session from its region and elsewhere, commands on free keys."""
PACES = ((26, 26, 14, 12, 10, 8, 2), (30, 20, 10, 5, 10, 24, 1), (30, 20, 20, 4, 20, 3, 1))
"""How often, in one schedule: a client, a delivery, time, expiry, stability, a fault, a comparison."""
FAR = 100


class Schedule:
    """The world of one seed, and what is counted in it."""

    def __init__(self, seed: int, gateway_type: type[Gateway] = Gateway) -> None:
        self.rng = rng = Random(seed)
        members = rng.choice((3, 3, 4, 5))
        offsets = [rng.randint(-BOUND, BOUND) for _ in range(members)]
        self.world = World(offsets, gateway_type)
        if rng.random() < 0.6:
            self.world.slow = {(rng.randrange(members), rng.randrange(members)) for _ in "ab"}
        self.keys = rng.sample(FREE, rng.choice((1, 2)))
        self.session = Session(rng.randrange(members))
        self.limiter = Limiter()
        self.leads = rng.randrange(members) if rng.random() < 0.15 else None
        """The member whose clock goes wrong beyond the bound, if one does."""
        self.weights = rng.choice(FOCUS)
        self.pace = rng.choice(PACES)
        self.churns = rng.random() < 0.3
        """Whether the free keys are for deadlines that outlive their data."""
        self.checked = [0] * members
        self.expiries = 0

    def run(self) -> None:
        for _ in range(STEPS):
            at = self.rng.randrange(len(self.world.members))
            self.act(at)
            if self.rng.random() < 0.05:
                self.world.restart(at)
            self.check(at)
        self.quieten()

    # One step

    def act(self, at: int) -> None:
        rng, world = self.rng, self.world
        working = world.gateways[at].clock_is_right()
        match rng.choices(
            ("client", "deliver", "time", "expire", "stabilise", "fault", "compare"),
            weights=self.pace,
        )[0]:
            case "client" if world.in_service(at):
                self.client(at)
            case "deliver" if working:
                batch = world.waiting(at, rng, rng.choice((1, 1, 2, 4)))
                if batch:
                    world.deliver(at, batch)
            case "time":
                world.now += rng.choice((1, 1, 2, 4, 7))
            case "expire" if working:
                world.copy_lost(at)
                world.expire(at)
            case "stabilise" if working:
                world.stabilise(at)
            case "compare" if working:
                self.compare(at)
            case "fault":
                self.fault(at)
        if working and rng.random() < 0.5:
            world.stabilise(at)

    def client(self, at: int) -> None:
        rng, world = self.rng, self.world
        what = rng.random()
        if self.limiter.pending and world.in_service(self.limiter.pending[0]) and what < 0.3:
            self.limiter.expire(world, self.limiter.pending[0], self.ttl())
            return
        match rng.choices(("limiter", "session", "elsewhere", "free"), weights=self.weights)[0]:
            case "limiter":
                self.limiter.count(world, at)
            case "session" if world.in_service(self.session.home):
                self.session.visit(world, rng, self.ttl())
            case "elsewhere":
                visit_elsewhere(world, at, rng, self.ttl())
            case "free":
                world.write(at, *(self.command() for _ in range(rng.choice((1, 1, 1, 2, 3)))))

    def ttl(self) -> int:
        return self.rng.choice((3, 6, 10, 15, 25))

    def command(self) -> Command:
        """Any command on a key that it fits."""
        rng = self.rng
        type_, key = rng.choice(self.keys)
        if self.churns:
            return self.churn(type_, key)
        names = tuple(rng.sample("xyz", rng.choice((1, 1, 2))))
        ttl = self.ttl()
        if rng.random() < 0.5:
            at = rng.choices(
                (
                    Command("EXPIRE", key, ttl=ttl),
                    Command("EXPIRE", key, ttl=ttl, condition=rng.choice(("NX", "XX", "GT", "LT"))),
                    Command("EXPIRE", key, ttl=0),
                    Command("PERSIST", key),
                    Command("DEL", key),
                ),
                weights=(8, 5, 1, 2, 2),
            )[0]
            return self.rename(type_, key) if rng.random() < 0.05 else at
        match type_:
            case "string":
                return rng.choices(
                    (
                        Command("SET", key, value=rng.choice((1, 5, "hello")), ttl=ttl),
                        Command("SET", key, value=7),
                        Command("SET", key, value=3, ttl=KEEP),
                        Command("INCR", key),
                        Command("APPEND", key, value="a"),
                    ),
                    weights=(4, 1, 1, 4, 1),
                )[0]
            case "set":
                return Command("SADD" if rng.random() < 0.7 else "SREM", key, names)
            case _:
                return rng.choices(
                    (
                        Command("HSET", key, names, rng.randrange(9)),
                        Command("HINCRBY", key, names[:1]),
                        Command("HDEL", key, names),
                    ),
                    weights=(4, 3, 2),
                )[0]

    def churn(self, type_: str, key: str) -> Command:
        """Deadlines that outlive their data: many deletions, no deadline that is over soon."""
        name = {"string": "INCR", "set": "SADD", "hash": "HSET"}[type_]
        return self.rng.choices(
            (
                Command(name, key, tuple(self.rng.sample("xyz", 1))),
                Command("EXPIRE", key, ttl=FAR // 2),
                Command("PERSIST", key),
                Command("DEL", key),
            ),
            weights=(8, 6, 1, 5),
        )[0]

    def rename(self, type_: str, key: str) -> Command:
        others = [other for t, other in FREE if t == type_ and other != key]
        return Command("RENAME", key, (others[0],))

    def fault(self, at: int) -> None:
        rng, world = self.rng, self.world
        gateway = world.gateways[at]
        clock = ("clock",) * (0 if self.leads is None else 6)
        match rng.choice(("restart", "drop", "part", "heal", "slew", *clock)):
            case "restart":
                world.restart(at)
            case "drop":
                world.begin(at).server.drop_passed()
            case "part":
                world.side = [rng.randrange(2) for _ in world.members]
            case "heal":
                world.side = [0 for _ in world.members]
            case "slew" if gateway.clock_is_right():
                gateway.server.offset = rng.randint(-BOUND, BOUND)
            case "clock" if self.leads is not None:
                self.set_clock(self.leads)

    def set_clock(self, at: int) -> None:
        """It goes wrong, and its server has dropped what it takes for over; or it is right again."""
        if self.world.gateways[at].clock_is_right():
            self.world.set_clock(at, self.rng.choice((-40, 15, 40, 1000)))
            self.world.begin(at).server.drop_passed()
        else:
            self.world.set_clock(at, 0)

    def compare(self, at: int) -> None:
        """A digest is told, and compared a little later by those who have delivered the same."""
        world = self.world
        linked = [other for other in world.linked(at) if world.gateways[other].clock_is_right()]
        for other in (at, *linked):
            while batch := world.waiting(other, self.rng, 4):
                world.deliver(other, batch)
        if world.gateways[at].server.own.lost:
            return
        digest = world.begin(at).tell_digest()
        world.now += self.rng.choice((0, 1, 2))
        for other in linked:
            differs = world.begin(other).differs(digest)
            require(not differs, "false alarm", (at, other, world.now, digest))

    # What must hold

    def check(self, at: int) -> None:
        world = self.world
        for member in world.members:
            for message in world.sent[member][self.checked[member] :]:
                check_expiry(world, message)
                self.expiries += len(expired_keys(message))
            self.checked[member] = len(world.sent[member])
        check_reassertions(world, at)
        if world.gateways[at].clock_is_right():
            check_key(world, at, self.rng.choice(self.all_keys))

    @property
    def all_keys(self) -> list[str]:
        return [key for _, key in self.keys] + [SESSION, LIMITER]

    def quieten(self) -> None:
        """Links and clocks are right again. First at this time, then with all deadlines over."""
        world = self.world
        world.side = [0 for _ in world.members]
        world.slow = set()
        for at in world.members:
            world.set_clock(at, max(-BOUND, min(BOUND, world.gateways[at].server.offset)))
        world.settle(self.rng, self.check)
        for at in list(self.limiter.pending):
            self.limiter.expire(world, at, self.ttl())
        world.settle(self.rng, self.check)
        self.check_all()
        for at in world.members:
            if self.session.is_live(world):
                require(
                    self.session.is_there(world, at), "logged out", (self.session, at, world.now)
                )
        world.now += FAR
        world.settle(self.rng, self.check)
        self.check_all()
        for at in world.members:
            own = world.gateways[at].server.own
            require(not own.index.buckets and not own.lost, "metadata", (at, own))
            for key in (SESSION, LIMITER):
                native = world.begin(at).server.get(key)
                require(native is None, "never expires", (at, key, native))

    def check_all(self) -> None:
        for at in self.world.members:
            check_memory(self.world.gateways[at])
            check_quiet(self.world, at)


def run(seed: int, gateway_type: type[Gateway] = Gateway) -> Schedule:
    schedule = Schedule(seed, gateway_type)
    schedule.run()
    return schedule
