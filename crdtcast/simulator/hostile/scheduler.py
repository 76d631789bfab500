"""Chooses the actions of a run with a hostile member: those of any run, and the lies of the hostile one."""

import random
from collections.abc import Iterator

from crdtcast.simulator.campaigns import Campaign
from crdtcast.simulator.group.scheduler import GroupScheduler
from crdtcast.simulator.hostile.world import HostileWorld
from crdtcast.simulator.schedule import Action

SEEDS = 10**6
"""Number of seeds for mutations."""


class HostileScheduler(GroupScheduler):
    """The choices of one run. Honest machines do what they do in any run."""

    world: HostileWorld

    def __init__(self, chance: random.Random, world: HostileWorld, campaign: Campaign) -> None:
        super().__init__(chance, world, campaign)
        self._eager = chance.choice((15, 50, 150))
        self._floods = chance.random() < 0.1
        self._accused = False

    def _options(self) -> dict[str, int]:
        options = super()._options()
        world = self.world
        if not world.liar.up:
            return options
        flies = any(pair[0] == world.hostile for pair in world.wires.busy)
        return options | {
            "liar": 80,
            "issue": self._eager // 3 + 1,
            "frame": self._eager,
            "twist": self._eager if flies else 0,
            "letter": 2,
            "redial": 60 if self._refused_by() else 0,
            "flood": 2 if self._floods and not world.counts["floods"] else 0,
            "accuse": 0 if self._accused else 1,
        }

    def _liar(self, verb: str) -> Iterator[Action]:
        """The hostile member takes part as a member."""
        own = self.chance.choices(("send", "poll", "stable", "tick", "sync"), (2, 6, 1, 3, 5))[0]
        yield (own, self.world.hostile)

    def _refused_by(self) -> list[str]:
        """Machines that have closed their link with the hostile member."""
        world = self.world
        others = (m for m in world.machines.values() if m.up and m is not world.liar)
        return [m.name for m in others if not world.wires.connected(world.hostile, m.name)]

    def _redial(self, verb: str) -> Iterator[Action]:
        """The hostile member dials again at once, as any member does."""
        if names := self._refused_by():
            yield ("link", self.world.hostile, self.chance.choice(names))

    def _issue(self, verb: str) -> Iterator[Action]:
        yield (verb, self.world.hostile, self._seed())

    _letter = _issue

    def _frame(self, verb: str) -> Iterator[Action]:
        yield (verb, self.world.hostile, self._receiver(), self._seed())

    _flood = _frame

    def _twist(self, verb: str) -> Iterator[Action]:
        world = self.world
        pairs = [pair for pair in world.wires.busy if pair[0] == world.hostile]
        if pairs:
            pair = self.chance.choice(pairs)
            place = self.chance.randrange(len(world.wires.flights[pair]))
            yield (verb, *pair, place, self._seed())

    def _accuse(self, verb: str) -> Iterator[Action]:
        """An operator evicts the hostile member in the middle of the run; it continues as if it did not know."""
        names = [m.name for m in self.world.living() if m.active]
        if names:
            self._accused = True
            yield ("evict", self.chance.choice(names), self.world.hostile)

    def _receiver(self) -> str:
        return self.chance.choice([m.name for m in self.world.machines.values() if not m.ghost])

    def _seed(self) -> int:
        return self.chance.randrange(SEEDS)
