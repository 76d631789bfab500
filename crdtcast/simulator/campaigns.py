"""Campaigns by name: their faults, the limits of these, and the kind of group."""

import random
from dataclasses import dataclass, replace

from crdtcast.exceptions import ConfigurationError
from crdtcast.simulator.faults import NETWORK, Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """How often a run may change the group permanently."""

    joins: int = 3
    leaves: int = 2
    evictions: int = 4
    deaths: int = 2
    torn: int = 2
    setbacks: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A fault model with limits.

    witnesses: the number of witnesses in some of the groups.
    pairs: the share of groups with only two founders, so that an eviction leaves no majority.
    calm: rounds without faults. They come in the middle of a run, so that the second half meets members that have just
        come back; and while a joiner fetches a copy, so that messages sent meanwhile are stable before it is complete.
    apart: the share of pairs of founders that have no link until the group settles.
    exodus: whether all members leave at the same time in the end.
    hostile: whether one founder is hostile.
    founding: whether a run starts before the group has begun.
    """

    faults: Faults
    limits: RunLimits = RunLimits()
    witnesses: int = 0
    pairs: float = 0
    calm: int = 0
    apart: float = 0
    exodus: bool = False
    hostile: bool = False
    founding: bool = False

    def found(
        self, chance: random.Random, members: range
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of a run's founders, and of the witnesses among them."""
        size = chance.choice(members)
        names = NAMES[: 2 if chance.random() < self.pairs else size]
        witnesses = self.witnesses if len(names) > 2 and chance.random() < 0.3 else 0
        return names, names[len(names) - witnesses :] if witnesses else ()


NAMES = tuple("abcdefghijklmnopqrstuvwxyz")
"""Names of machines; those after the founders join later."""

CAMPAIGNS: dict[str, Campaign] = {
    "static": Campaign(faults=Faults.named(NETWORK)),
    "join+leave": Campaign(
        faults=Faults.named((*NETWORK, "join", "leave", "ghost")),
    ),
    "restart": Campaign(
        faults=Faults.named((*NETWORK, "restart", "torn")),
        limits=RunLimits(torn=4),
    ),
    "one-eviction": Campaign(
        faults=Faults.named((*NETWORK, "restart", "crash", "evict", "ghost")),
        limits=RunLimits(evictions=1, deaths=1),
        witnesses=1,
        pairs=0.4,
    ),
    "two-evictions": Campaign(
        faults=Faults.named((*NETWORK, "restart", "crash", "evict", "join")),
        limits=RunLimits(evictions=2, deaths=2, joins=2),
        witnesses=1,
        pairs=0.15,
    ),
    "everything": Campaign(
        faults=Faults.named(
            (*NETWORK, "restart", "torn", "crash", "join", "leave", "evict", "ghost")
        ),
        witnesses=1,
    ),
    "return": Campaign(
        faults=replace(Faults.named(("partition", "restart", "torn", "evict")), restart=20),
        limits=RunLimits(evictions=2, torn=3),
        calm=12,
    ),
    "set-back": Campaign(
        faults=replace(
            Faults.named((*NETWORK, "restart", "join", "leave", "evict", "setback")),
            setback=15,
            evict=15,
        ),
        limits=RunLimits(joins=2, leaves=1, evictions=3),
    ),
    "copies": Campaign(
        faults=replace(Faults.named(("loss", "partition", "restart", "join", "leave")), join=15),
        limits=RunLimits(joins=5, leaves=1),
        calm=8,
    ),
    "exodus": Campaign(
        faults=replace(
            Faults.named((*NETWORK, "join", "leave", "evict", "crash")),
            partition=12,
            asymmetric=10,
            join=20,
            leave=25,
            evict=8,
        ),
        limits=RunLimits(joins=4, leaves=4, evictions=2),
    ),
    "regions": Campaign(
        faults=replace(
            Faults.named(("partition", "clock", "join", "evict")),
            partition=15,
            clock=6,
            join=20,
            evict=15,
        ),
        limits=RunLimits(joins=4, evictions=2),
        pairs=1,
    ),
    "withdrawn": Campaign(
        faults=replace(
            Faults.named((*NETWORK, "restart", "crash", "join", "evict", "withdraw")),
            evict=12,
            withdraw=10,
        ),
        limits=RunLimits(joins=2, evictions=6, deaths=1),
    ),
    "contested": Campaign(
        faults=replace(
            Faults.named(("loss", "partition", "restart", "join", "leave", "evict")),
            evict=30,
            leave=12,
            join=15,
        ),
        limits=RunLimits(joins=3, leaves=3, evictions=8),
    ),
    "all-leave": Campaign(
        faults=Faults.named((*NETWORK, "restart", "join", "crash", "evict")),
        limits=RunLimits(joins=2, deaths=1, evictions=1),
        exodus=True,
    ),
    "founders-die": Campaign(
        faults=replace(Faults.named((*NETWORK, "crash", "join", "evict")), crash=10, join=20),
        limits=RunLimits(joins=5, deaths=3, evictions=4),
    ),
    "apart": Campaign(
        faults=Faults.named(("loss", "restart", "join", "evict", "crash", "clock")),
        limits=RunLimits(joins=2, deaths=1, evictions=2),
        apart=0.4,
    ),
    "levels": Campaign(
        faults=replace(
            Faults.named(
                ("loss", "partition", "asymmetric", "restart", "join", "leave", "evict", "upgrade")
            ),
            join=12,
        ),
        limits=RunLimits(joins=4, evictions=1),
    ),
    "force": Campaign(
        faults=Faults.named((*NETWORK, "restart", "evict", "force")),
        limits=RunLimits(evictions=2),
        pairs=0.3,
    ),
    "founding": Campaign(
        faults=Faults.named((*NETWORK, "restart", "crash", "join", "evict")),
        limits=RunLimits(joins=2, deaths=1, evictions=2),
        witnesses=1,
        pairs=0.2,
        founding=True,
    ),
    "hostile": Campaign(
        faults=Faults.named((*NETWORK, "restart", "join", "evict")),
        limits=RunLimits(evictions=1, joins=2),
        hostile=True,
    ),
}


def campaign(name: str) -> Campaign:
    """The campaign of that name. Raises ConfigurationError if it is unknown."""
    if name not in CAMPAIGNS:
        raise ConfigurationError(f"unknown campaign {name!r}: choose from {', '.join(CAMPAIGNS)}")
    return CAMPAIGNS[name]
