"""Chooses the actions of a run at random, from a seed and a fault model. Every run has its own temper.

Lists are walked in a fixed order and `random.Random` has an integer seed, so a seed gives the same run on any machine.
"""

import random
from collections.abc import Iterator

from benchmarks.baselines.simulator.published_world import BaselineWorld
from benchmarks.baselines.simulator.world import World
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.schedule import Action


class Temper:
    """The weights of one run: how often each member sends, takes, ticks and syncs."""

    def __init__(self, chance: random.Random, names: tuple[str, ...], faults: Faults) -> None:
        self.steps = chance.choice((60, 120, 200, 300))
        self.sends = chance.choice((3, 8, 20, 40))
        self.send: dict[str, int] = {name: chance.choice((0, 2, 10, 10)) for name in names}
        if not any(self.send.values()):
            self.send[names[0]] = 10
        self.poll: dict[str, int] = {name: chance.choice((4, 20, 60, 90)) for name in names}
        self.stable: dict[str, int] = {name: chance.choice((4, 20)) for name in names}
        self.tick: dict[str, int] = {name: chance.choice((3, 10, 25)) for name in names}
        self.sync: dict[str, int] = {name: chance.choice((2, 10, 30, 60)) for name in names}
        self.faults: Faults = _scaled(faults, chance)


def _scaled(faults: Faults, chance: random.Random) -> Faults:
    return Faults(
        **{
            name: max(int(getattr(faults, name) * chance.choice((0.25, 1, 1, 3))), 1)
            for name in faults.names
        }
    )


def actions(
    chance: random.Random,
    world: World | BaselineWorld,
    faults: Faults,
    temper: Temper | None = None,
) -> Iterator[Action]:
    """Actions for `world`. Apply each one before you ask for the next."""
    names = world.names
    temper = temper or Temper(chance, names, faults)
    faults = temper.faults
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    sent = 0
    for _ in range(temper.steps):
        busy = world.network.busy
        options: list[tuple[int, str]] = [(100, "net")] if busy else []
        if busy:
            options += [(faults.loss, "drop"), (faults.duplicate, "dup")]
        options += [
            (sum(temper.send.values()) if sent < temper.sends else 0, "send"),
            (sum(temper.poll.values()), "poll"),
            (sum(temper.stable.values()), "stable"),
            (sum(temper.tick.values()), "tick"),
            (sum(temper.sync.values()), "sync"),
            (faults.partition, "cut"),
            (10 if faults.partition or faults.restart else 0, "link"),
            (faults.restart, "crash"),
        ]
        verb = chance.choices([o[1] for o in options], [o[0] for o in options])[0]
        if verb in ("net", "drop", "dup"):
            pair = chance.choice(busy)
            length = len(world.network.flights[pair])
            late = faults.reorder and chance.random() * 100 < faults.reorder
            yield (verb, *pair, chance.randrange(length) if late else 0)
        elif verb in ("cut", "link"):
            yield (verb, *chance.choice(pairs))
        elif verb == "crash":
            yield (verb, chance.choice(names), chance.randrange(2), chance.randrange(2))
        else:
            weights: dict[str, int] = getattr(temper, verb)
            sent += verb == "send"
            yield (verb, chance.choices(names, [weights[name] for name in names])[0])
