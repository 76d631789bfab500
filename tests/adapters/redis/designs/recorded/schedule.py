"""Random schedules: what happens, in an order that a seed fixes, then quiet and the verdict."""

from collections import Counter
from random import Random
from typing import Final

from tests.adapters.redis.designs.recorded.commands import Command
from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.gateway import Gateway, Request
from tests.adapters.redis.designs.recorded.verdict import judge, settle
from tests.adapters.redis.designs.recorded.world import NAMES, Setting, World

STEPS: Final = 70
KEYS: Final = ("k", "l")
MEMBERS: Final = ("x", "y", "z")
VALUES: Final = ("text", 1, 7)

WEIGHTS: Final = {
    "ask": 12,
    "gather": 14,
    "execute": 12,
    "answer": 12,
    "net": 30,
    "tick": 5,
    "sync": 3,
    "start": 3,
    "crash": 1.5,
    "lose": 1.5,
    "between": 2,
    "break": 1.5,
    "limbo": 1,
    "zombie": 6,
}


def run(seed: int, faults: frozenset[Fault] = frozenset(), steps: int = STEPS) -> Counter[str]:
    """One schedule. Raises Failure, else what has happened, and how often."""
    random = Random(seed)
    setting = Setting(random.random() < 0.5, random.random() < 0.4, random.random() < 0.5)
    world = World(setting, random, faults)
    verbs = list(WEIGHTS)
    chances = [WEIGHTS[verb] * random.choice((0.5, 1, 2)) for verb in verbs]
    membership = random.choice(("leave", "evict", "tear", ""))
    when = random.randrange(steps)
    for step, verb in enumerate(random.choices(verbs, chances, k=steps)):
        if step == when:
            _change(world, membership)
        _step(world, verb, step)
        for name in NAMES:
            if random.random() < 0.2:
                world.rejoin(name)
    settle(world)
    judge(world)
    world.counts["schedules"] += 1
    return world.counts


def _change(world: World, membership: str) -> None:
    one, other = world.random.sample(NAMES, 2)
    if membership == "leave":
        world.leave(one)
    elif membership == "evict":
        world.evict(one, other)
    elif membership == "tear":
        world.tear(one)


def _step(world: World, verb: str, step: int) -> None:
    random = world.random
    name = random.choice(NAMES)
    match verb:
        case "net":
            pairs = [pair for pair, packets in world.flights.items() if packets]
            if pairs:
                world.net(*random.choice(pairs))
        case "ask":
            for number in range(random.randint(1, 4)):
                world.ask(name, _request(random, 10 * step + number))
        case "sync":
            world.sync(name)
        case "start":
            if world.gateways[name] is None or random.random() < 0.3:
                world.start(name)
        case "crash":
            world.crash(name, loses=False)
        case "lose":
            world.crash(name, loses=True)
        case "between":
            world.dies_between(name)
        case "break":
            world.breaks(name)
        case "limbo":
            world.run_limbo()
        case "zombie":
            if world.zombies:
                _go_on(world, random.choice(world.zombies), random.choice(_OWN))
        case _:
            gateway = world.gateways[name]
            if gateway is not None:
                _go_on(world, gateway, verb)


_OWN: Final = ("gather", "execute", "answer")


def _go_on(world: World, gateway: Gateway, verb: str) -> None:
    match verb:
        case "gather":
            world.gather(gateway)
        case "execute":
            world.execute(gateway)
        case "answer":
            world.answer(gateway)
        case "tick":
            world.tick(gateway)


def _request(random: Random, number: int) -> Request:
    if random.random() < 0.15:
        commands = tuple(_command(random) for _ in range(random.randint(2, 3)))
        return Request(number, commands, is_script=True)
    return Request(number, (_command(random),))


def _command(random: Random) -> Command:
    key = random.choice(KEYS)
    name = random.choices(
        ("SADD", "SREM", "SPOP", "SET", "SETNX", "KEEPTTL", "DEL", "GETDEL", "INCR", "INCRLIM", "EXPIRE", "FLUSHALL"),
        (6, 2, 5, 1, 4, 1, 2, 3, 3, 3, 2, 0.3),
    )[0]
    match name:
        case "SADD" | "SREM":
            return Command(name, key, random.choice(MEMBERS))
        case "SET" | "SETNX" | "KEEPTTL":
            return Command(name, key, random.choice(VALUES))
        case "EXPIRE":
            return Command(name, key, random.randint(1, 100))
    return Command(name, key)
