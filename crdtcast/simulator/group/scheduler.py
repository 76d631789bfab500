"""Chooses the actions of a run at random, from a seed, a fault model and limits.

Every run has its own temper, so that one run may be all sends and no acknowledgements, and the next one the other way
round. A seed gives the same run on any machine: lists are walked in a fixed order.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from crdtcast.simulator.campaigns import NAMES, Campaign, RunLimits
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.group.machine import Machine, MachinePhase
from crdtcast.simulator.group.upgrades import LATEST
from crdtcast.simulator.group.whispers import TOPICS
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.schedule import Action

RARELY = 0.08
"""The chance that a packet on a slow link arrives when it is its turn."""


class GroupTemper:
    """The weights of one run."""

    def __init__(self, chance: random.Random, faults: Faults, limits: RunLimits) -> None:
        self._chance = chance
        self.steps = chance.choice((60, 120, 200, 300))
        self.sends = chance.choice((3, 8, 20, 40))
        self.limits: RunLimits = replace(
            limits, joins=chance.randint(0, limits.joins) if limits.joins else 0
        )
        weights = {
            name: max(int(getattr(faults, name) * chance.choice((0.25, 1, 1, 3))), 1)
            for name in faults.names
        }
        self.faults: Faults = Faults(**weights)
        self._eager: dict[tuple[str, str], int] = {}
        self._slow: dict[tuple[str, str], bool] = {}

    def eager(self, verb: str, name: str) -> int:
        """The weight of this action at this machine."""
        key = verb, name
        if key not in self._eager:
            self._eager[key] = self._chance.choice(_EAGER[verb])
        return self._eager[key]

    def slow(self, pair: tuple[str, str]) -> bool:
        """Whether a packet on this link has to wait although it is its turn."""
        if not self.faults.slow:
            return False
        key = min(pair), max(pair)
        if key not in self._slow:
            self._slow[key] = self._chance.random() * 100 < self.faults.slow
        return self._slow[key] and self._chance.random() > RARELY


_EAGER: dict[str, tuple[int, ...]] = {
    "send": (0, 2, 10, 10),
    "poll": (4, 20, 60, 90),
    "stable": (4, 20),
    "tick": (1, 4, 10, 25),
    "sync": (2, 10, 30, 60),
    "reissue": (4, 20),
}


class GroupScheduler:
    """The choices of one run; `actions` yields them. Apply each one before you ask for the next."""

    def __init__(self, chance: random.Random, world: GroupWorld, campaign: Campaign) -> None:
        self.chance = chance
        self.world = world
        self.temper: GroupTemper = GroupTemper(chance, campaign.faults, campaign.limits)
        self.calm: int = campaign.calm
        self.exodus: bool = campaign.exodus
        names = list(world.founders)
        pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
        self.apart: list[tuple[str, str]] = [
            p for p in pairs if campaign.apart and chance.random() < campaign.apart
        ]
        """Pairs without a link until the group settles."""

    def actions(self) -> Iterator[Action]:
        """A run's actions. Some may be impossible."""
        for pair in self.apart:
            yield ("cut", *pair)
        for step in range(self.temper.steps):
            if self.calm and step == self.temper.steps // 2:
                yield ("calm", self.calm)
            options = self._options()
            verb = self.chance.choices(list(options), list(options.values()))[0]
            yield from getattr(self, f"_{verb}", self._by_machine)(verb)
        if self.exodus:
            for machine in self.world.living():
                yield ("leave", machine.name)

    def _options(self) -> dict[str, int]:
        world, temper, counts = self.world, self.temper, self.world.counts
        faults, limits = temper.faults, temper.limits
        busy = bool(world.wires.flights)
        options = {"net": 100, "drop": faults.loss, "dup": faults.duplicate} if busy else {}
        living = [m for m in world.living() if not m.ghost]
        for verb in ("send", "poll", "stable", "tick", "sync"):
            options[verb] = sum(temper.eager(verb, m.name) for m in living)
        if counts["sent"] >= temper.sends:
            options["send"] = 0
        if any(m.parked for m in living):
            options["reissue"] = 30
        outside = [
            m for m in world.machines.values() if m.phase is MachinePhase.OUTSIDE or m.stopped
        ]
        options["back"] = 15 * len(outside)
        options["clock"] = faults.clock
        options["cut"] = faults.partition
        options["mute"] = faults.asymmetric
        options["link"] = 6 * self._missing(living)
        options["crash"] = faults.restart
        options["torn"] = faults.torn if counts["torn"] < limits.torn and len(living) > 1 else 0
        options["setback"] = faults.setback if counts["set_back"] < limits.setbacks else 0
        options["die"] = faults.crash if counts["deaths"] < limits.deaths and len(living) > 1 else 0
        options["enter"] = faults.join if counts["joined"] < limits.joins else 0
        options["leave"] = faults.leave if len(living) > 2 else 0
        options["upgrade"] = options["roll"] = faults.upgrade
        asked = counts["evict_asked"] + counts["forced"]
        options["evict"] = faults.evict if asked < limits.evictions else 0
        options["force"] = faults.force if asked < limits.evictions else 0
        wanted = any(m.running.wants.victims for m in living)
        options["withdraw"] = faults.withdraw if wanted else 0
        if any(m.former for m in world.machines.values()):
            options["ghost"] = faults.ghost
        if faults.whisper:
            options["whisper"] = faults.whisper
            if world.lanes.flights:
                options |= {"hear": 2 * faults.whisper}
                options |= {"rehear": faults.duplicate, "mishear": faults.loss}
        if options["leave"] and counts["left"] >= limits.leaves:
            options["leave"] = 0
        return options

    def _missing(self, living: list[Machine]) -> int:
        names = [m.name for m in living]
        pairs = len(names) * (len(names) - 1) // 2
        return pairs - sum(
            self.world.wires.connected(a, b) for i, a in enumerate(names) for b in names[i + 1 :]
        )

    def _by_machine(self, verb: str) -> Iterator[Action]:
        living = self.world.living()
        weights = [self.temper.eager(verb, m.name) for m in living]
        if any(weights):
            yield (verb, self.chance.choices(living, weights)[0].name)

    def _net(self, verb: str) -> Iterator[Action]:
        pair = self.chance.choice(self.world.wires.busy)
        if self.temper.slow(pair):
            return
        length = len(self.world.wires.flights[pair])
        reorder = self.temper.faults.reorder
        late = reorder and self.chance.random() * 100 < reorder
        yield (verb, *pair, self.chance.randrange(length) if late else 0)

    _drop = _dup = _net

    def _whisper(self, verb: str) -> Iterator[Action]:
        living = self.world.living()
        if living:
            yield (verb, self.chance.choice(living).name, self.chance.randrange(TOPICS))

    def _hear(self, verb: str) -> Iterator[Action]:
        flights = self.world.lanes.flights
        pair = self.chance.choice(list(flights))
        yield (verb, *pair, self.chance.randrange(len(flights[pair])))

    _rehear = _mishear = _hear

    def _pair(self, verb: str) -> Iterator[Action]:
        names = [m.name for m in self.world.machines.values() if m.up]
        if len(names) > 1:
            yield (verb, *self.chance.sample(names, 2))

    _cut = _mute = _pair

    def _link(self, verb: str) -> Iterator[Action]:
        names = [m.name for m in self.world.machines.values() if m.up]
        missing = [
            (a, b)
            for i, a in enumerate(names)
            for b in names[i + 1 :]
            if not self.world.wires.connected(a, b)
            and (a, b) not in self.apart
            and (b, a) not in self.apart
        ]
        if missing:
            yield (verb, *self.chance.choice(missing))

    def _one(self, verb: str) -> Iterator[Action]:
        living = self.world.living()
        if living:
            yield (verb, self.chance.choice(living).name)

    _crash = _leave = _one

    def _withdraw(self, verb: str) -> Iterator[Action]:
        wanted = [m.name for m in self.world.living() if m.running.wants.victims]
        if wanted:
            yield (verb, self.chance.choice(wanted))

    def _upgrade(self, verb: str) -> Iterator[Action]:
        name = self.chance.choice(sorted(self.world.machines))
        yield (verb, name, self.chance.randint(1, LATEST))

    def _roll(self, verb: str) -> Iterator[Action]:
        """Upgrade nearly all machines, raise the level, and let some machine go back now and then."""
        highest = self.chance.randint(2, LATEST)
        for name in sorted(self.world.machines):
            if self.chance.random() < 0.9:
                yield ("upgrade", name, highest)
        if self.chance.random() < 0.7:
            yield ("calm", self.chance.randint(1, 3))
        if self.chance.random() < 0.4:
            yield from self._upgrade("upgrade")
        for machine in self.chance.sample(living := self.world.living(), min(2, len(living))):
            yield ("raise", machine.name)
        if self.chance.random() < 0.4:
            yield from self._upgrade("upgrade")

    def _die(self, verb: str) -> Iterator[Action]:
        living = [m for m in self.world.living() if m.active]
        if len(living) < 2:
            return
        victim = self.chance.choice(living).name
        yield (verb, victim)
        evicts = self.temper.faults.evict and self.chance.random() < 0.7
        if evicts and self.world.counts["evict_asked"] < self.temper.limits.evictions:
            yield (
                "evict",
                self.chance.choice([m.name for m in living if m.name != victim]),
                victim,
            )

    def _setback(self, verb: str) -> Iterator[Action]:
        """Mostly take a snapshot first; later a machine continues from that, or from one of its last syncs."""
        machine = self.chance.choice(self.world.living() or [None])
        if machine is None:
            return
        if machine.backup is None and self.chance.random() < 0.7:
            yield ("backup", machine.name)
        else:
            older = max(len(machine.commits) - 1, 0) + (machine.backup is not None)
            if older:
                yield (verb, machine.name, self.chance.randrange(older))

    def _torn(self, verb: str) -> Iterator[Action]:
        living = [m for m in self.world.living() if m.active]
        if len(living) > 1:
            lived = [m for m in living if m.former]
            again = lived and self.chance.random() < 0.5
            name = self.chance.choice(lived if again else living).name
            if self.chance.random() < 0.4:
                yield from self._unheard(name)
            former = self.world.machines[name].former
            if former and self.chance.random() < 0.6:
                yield ("restore", name, self.chance.randrange(len(former)))
            else:
                yield (verb, name, self.chance.randrange(3))

    def _unheard(self, name: str) -> Iterator[Action]:
        """The machine sends something that is acknowledged, but reaches no other member for now."""
        for other in self.world.living():
            if other.name != name:
                yield ("mute", name, other.name)
        yield ("send", name)
        yield ("sync", name)

    def _clock(self, verb: str) -> Iterator[Action]:
        living = self.world.living()
        if living:
            name = self.chance.choice(living).name
            for _ in range(self.chance.choice((3, 10, 30))):
                yield ("tick", name)

    def _evict(self, verb: str) -> Iterator[Action]:
        names = [m.name for m in self.world.living() if m.active]
        targets = [m.name for m in self.world.machines.values() if m.me and not m.ghost]
        if names and targets:
            target = self.chance.choice(targets)
            if target in names and self.chance.random() < 0.4:
                yield from self._unheard(target)
            yield (verb, self.chance.choice(names), target)

    _force = _evict

    def _enter(self, verb: str) -> Iterator[Action]:
        contacts = [m.name for m in self.world.living() if m.active]
        fresh = [name for name in NAMES if name not in self.world.machines]
        left = [m.name for m in self.world.machines.values() if m.phase is MachinePhase.LEFT]
        if not contacts or not fresh:
            return
        name = self.chance.choice(left) if left and self.chance.random() < 0.4 else fresh[0]
        if self.temper.faults.upgrade:
            yield ("upgrade", fresh[0], self.chance.randint(1, LATEST))
        dead = [m.name for m in self.world.machines.values() if m.phase is MachinePhase.DEAD]
        if dead and self.chance.random() < 0.5:
            yield ("replace", fresh[0], self.chance.choice(dead), self.chance.choice(contacts))
        elif self.chance.random() < 0.4:
            yield ("copy", fresh[0], self.chance.choice(contacts))
            if self.calm:
                yield ("send", self.chance.choice(contacts))
                yield ("calm", self.calm)
        else:
            yield ("join", name, self.chance.choice(contacts))

    def _back(self, verb: str) -> Iterator[Action]:
        """A machine outside asks a contact: mostly the same one again."""
        outside = [
            m for m in self.world.machines.values() if m.phase is MachinePhase.OUTSIDE or m.stopped
        ]
        contacts = [m.name for m in self.world.living() if m.active]
        if not outside or not contacts:
            return
        machine = self.chance.choice(outside)
        if machine.asked is not None and self.chance.random() < 0.7:
            yield ("join", machine.name, machine.asked)
        elif self.chance.random() < 0.2:
            yield ("copy", machine.name, self.chance.choice(contacts))
        else:
            yield ("join", machine.name, self.chance.choice(contacts))

    def _ghost(self, verb: str) -> Iterator[Action]:
        former = [m for m in self.world.machines.values() if m.former]
        machine = self.chance.choice(former)
        yield (verb, machine.name, self.chance.randrange(len(machine.former)))
