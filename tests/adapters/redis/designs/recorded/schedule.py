"""Random schedules: what happens, in an order that a seed fixes, then quiet and the verdict."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from crdtcast.exceptions import CrdtcastError
from tests.adapters.redis.designs.recorded.commands import Command
from tests.adapters.redis.designs.recorded.commit import Request
from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.gateway import Gateway
from tests.adapters.redis.designs.recorded.verdict import judge, look, settle
from tests.adapters.redis.designs.recorded.world import NAMES, Failure, Setting, World

STEPS: Final = 120
PATIENCE: Final = 40
KEYS: Final = ("k", "l")
MEMBERS: Final = ("x", "y", "z")
VALUES: Final = ("text", 1, 7)

COMMANDS: Final = {
    "SADD": 6,
    "SREM": 2,
    "SPOP": 5,
    "SET": 1,
    "SETNX": 4,
    "KEEPTTL": 1,
    "DEL": 2,
    "GETDEL": 3,
    "INCR": 3,
    "INCRLIM": 3,
    "EXPIRE": 4,
    "FLUSHALL": 0.3,
}

WEIGHTS: Final = {
    "ask": 14,
    "work": 60,
    "net": 20,
    "tick": 5,
    "sync": 3,
    "start": 3,
    "crash": 1.5,
    "lose": 1.5,
    "between": 2,
    "break": 1.5,
    "outlive": 1.5,
    "limbo": 1,
    "zombie": 6,
}


class Focus(NamedTuple):
    """What a campaign is about, so that it finds something rare soon; None: whatever comes."""

    fixed: bool | None = None
    always: bool | None = None
    early: bool | None = None
    change: str | None = None
    values: bool = False
    """Few crashes, and one key whose deadline, type and members change all the time."""
    rough: bool = False
    """Long, many takeovers, and packets that arrive soon."""

    @property
    def is_long(self) -> bool:
        """Whether much has to happen."""
        return self.values or self.rough

    def setting(self, random: Random) -> Setting:
        """One that fits."""
        drawn = random.random() < 0.5, random.random() < 0.4, random.random() < 0.5
        chosen = self.fixed, self.always, self.early
        return Setting(*(d if c is None else c for d, c in zip(drawn, chosen, strict=True)))


ANY: Final = Focus()


def run(seed: int, faults: frozenset[Fault] = frozenset(), focus: Focus = ANY) -> Counter[str]:
    """One schedule. Raises Failure, else what has happened, and how often."""
    try:
        return _run(Random(seed), faults, focus)
    except (CrdtcastError, LookupError) as error:  # planted faults lead engines astray, too
        raise Failure(f"{type(error).__name__}: {error}") from error


def _run(random: Random, faults: frozenset[Fault], focus: Focus) -> Counter[str]:
    setting, steps = focus.setting(random), 2 * STEPS if focus.is_long else STEPS
    world = World(setting, random, faults)
    slow = random.choice((*NAMES, None))
    verbs = list(WEIGHTS)
    roughness = 0.2 if focus.values else 1.5 if focus.rough else random.choice((0.3, 1, 2))
    chances = [WEIGHTS[verb] * random.choice((0.5, 1, 2)) for verb in verbs]
    if focus.is_long:
        chances = [3 * c if v == "net" else c for v, c in zip(verbs, chances, strict=True)]
    chances = [c * roughness if v in _ENDS else c for v, c in zip(verbs, chances, strict=True)]
    named = focus.change or random.choice(list(_CHANGES))
    if named in _DECIDED and not setting.fixed:
        chances = [c * _DECISIVE.get(v, 1) for v, c in zip(verbs, chances, strict=True)]
        steps *= 3
    change = _CHANGES[named]
    when = random.randrange(steps // 2)
    changing = slow or random.choice(NAMES)
    pending = not setting.fixed
    for step, verb in enumerate(random.choices(verbs, chances, k=steps)):
        world.now = step
        if pending and step >= when:
            pending = not change(world, changing, step < when + PATIENCE)
        _step(world, verb, slow, _of_values if focus.values else _command)
        for name in NAMES:
            if random.random() < 0.2:
                world.rejoin(name)
        if random.random() < (0.1 if focus.values else 0.02) and (living := world.living()):
            look(world, random.choice(living))
    settle(world)
    judge(world)
    world.counts["schedules"] += 1
    return world.counts


def _has_recorded(world: World, name: str) -> bool:
    gateway = world.gateways[name]
    return gateway is not None and (
        gateway.record is not None or gateway.engine.reserved is not None
    )


def _leave(world: World, name: str, waits: bool) -> bool:
    """waits: for an instant that makes it hard."""
    return not (waits and not _has_recorded(world, name)) and world.leave(name)


def _evict(world: World, victim: str, waits: bool) -> bool:
    others = [g.server.name for g in world.living() if g.server.name != victim]
    recorded = [name for name in others if _has_recorded(world, name)]
    if not others or (waits and not recorded):
        return False
    return world.evict(world.random.choice(recorded or others), victim)


def _tear(world: World, name: str, waits: bool) -> bool:
    recorded = [image for image in world.servers[name].archive if image.record is not None]
    waits = waits and (not recorded or world.random.random() < 0.9)  # until others have it
    return not waits and world.tear(name)


def _outlive(world: World, name: str, waits: bool) -> bool:
    return not (waits and not _has_recorded(world, name)) and world.server_dies(name)


_DECIDED: Final = ("leave", "evict")
_DECISIVE: Final = {"net": 4, "sync": 6, "tick": 3, "crash": 0.2, "lose": 0.2, "break": 0.2}
"""What a group decides takes packets and ticks: so much more of these, for it to come about in a schedule."""
_CHANGES: Final = {"leave": _leave, "evict": _evict, "tear": _tear, "outlive": _outlive}


def _step(world: World, verb: str, slow: str | None, command: Callable[[Random], Command]) -> None:
    random = world.random
    name = random.choice(NAMES)
    if name == slow and verb == "work" and random.random() < 0.6:
        return
    if verb in _ENDS and random.random() < 0.6:
        name = random.choice([g.server.name for g in world.living() if not g.is_idle] or NAMES)
    match verb:
        case "net":
            pairs = [pair for pair, packets in world.flights.items() if packets]
            if pairs:
                pair = random.choice(pairs)
                for _ in range(random.randint(1, 4)):
                    world.net(*pair)
        case "ask":
            for number in range(random.randint(1, 4)):
                world.ask(name, _request(random, 10 * world.now + number, command))
        case "sync":
            world.sync(name)
        case "start":
            down = [name for name in NAMES if world.gateways[name] is None]
            world.start(random.choice(down or [name]))
        case "crash":
            world.crash(name, loses=False)
        case "lose":
            world.crash(name, loses=True)
        case "between":
            world.dies_between(name)
        case "break":
            world.breaks(name)
        case "outlive":
            if world.fixed:
                world.server_dies(name)
        case "limbo":
            world.run_limbo()
        case "zombie":
            if world.zombies:
                _work(world, random.choice(world.zombies))
        case "work":
            if (gateway := world.gateways[name]) is not None:
                _work(world, gateway)
        case "tick":
            if (gateway := world.gateways[name]) is not None:
                for _ in range(random.choice((1, 1, 4))):
                    world.tick(gateway)


_ENDS: Final = ("start", "crash", "lose", "between", "break", "outlive")


def _work(world: World, gateway: Gateway) -> None:
    """The next thing of a gateway's commit."""
    if not (world.answer(gateway) or world.execute(gateway)):
        world.gather(gateway)


def _request(random: Random, number: int, command: Callable[[Random], Command]) -> Request:
    if random.random() < 0.2:
        commands = tuple(command(random) for _ in range(random.randint(2, 3)))
        return Request(number, commands, is_script=random.random() < 0.6)
    return Request(number, (command(random),))


def _of_values(random: Random) -> Command:
    names = ("SADD", "SPOP", "EXPIRE", "INCRLIM", "GETDEL", "SETNX", "DEL")
    name = random.choices(names, (8, 5, 4, 2, 2, 1, 0.2))[0]
    match name:
        case "SADD":
            return Command(name, "k", random.choice("xxxy"))
        case "SETNX":
            return Command(name, "k", random.choice(VALUES))
        case "EXPIRE":
            return Command(name, "k", random.randint(1, 100))
    return Command(name, "k")


def _command(random: Random) -> Command:
    key = random.choice(KEYS)
    name = random.choices(list(COMMANDS), list(COMMANDS.values()))[0]
    match name:
        case "SADD" | "SREM":
            return Command(name, key, random.choice(MEMBERS))
        case "SET" | "SETNX" | "KEEPTTL":
            return Command(name, key, random.choice(VALUES))
        case "EXPIRE":
            return Command(name, key, random.randint(1, 100))
    return Command(name, key)
