"""What happens to a group of processes, and when: drawn from a seed, decided before anything starts. Pure.

A plan is a list of *episodes*. Each does something to one node, to a pair, or to all, lasts for a while, and is undone
before the next one of the same node begins. Up to two are under way at once, so that faults meet.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KILL, PAUSE, CUT, ONE_WAY, DELAY, RESET = "kill", "pause", "cut", "one-way", "delay", "reset"
LOSS, HOLE = "loss", "black-hole"
STOP_ALL, ROLLING, WIPE, FULL = "stop-all", "rolling", "wipe", "disk-full"
EVICT, JOIN, LEAVE, SKEW = "evict", "join", "leave", "skew"

PAIRS = frozenset({CUT, ONE_WAY, DELAY, RESET})
WHOLE = frozenset({STOP_ALL, ROLLING})
MEMBERSHIP = frozenset({WIPE, EVICT, JOIN, LEAVE})
ALONE = WHOLE | MEMBERSHIP
"""While one of these is under way nothing else is done."""
KINDS = (
    *(KILL, PAUSE, CUT, ONE_WAY, DELAY, RESET, LOSS, HOLE),
    *(STOP_ALL, ROLLING, WIPE, FULL, EVICT, JOIN, LEAVE, SKEW),
)
"""All of them, in the order in which a plan goes through them."""


@dataclass(frozen=True, slots=True)
class Episode:
    """at: seconds from the start. lasts: seconds until it is undone. node, other: whom it concerns; names of nodes,
    "" if nobody in particular. amount: milliseconds, for delays and skews; percent, for losses.
    """

    at: float
    kind: str
    node: str
    other: str
    lasts: float
    amount: int = 0

    def __str__(self) -> str:
        who = " ".join(filter(None, (self.node, self.other)))
        unit = "%" if self.kind == LOSS else "ms"
        amount = f" {self.amount} {unit}" if self.amount else ""
        return f"{self.kind} {who}{amount} for {self.lasts:.1f} s".replace("  ", " ")

    def concerns(self, names: Iterable[str]) -> set[str]:
        """Those to whom nothing else may be done meanwhile; `names` are all that there have been."""
        if self.kind in PAIRS:
            return set()
        return {*names, self.node} - {""} if self.kind in ALONE else {self.node}


@dataclass(frozen=True, slots=True)
class Plan:
    """founders: names of the first nodes. episodes: in order of time."""

    founders: tuple[str, ...]
    episodes: tuple[Episode, ...]
    seconds: float


def has_small_disk(name: str) -> bool:
    """Whether that node's disk may be full some time: every second one's. The others sync to a disk that takes time."""
    return int(name[1:]) % 2 == 0


def draw(seed: int, nodes: int, seconds: float, kinds: Sequence[str] = KINDS) -> Plan:
    """A plan for `nodes` nodes. Every kind comes once before any comes twice, if there is time."""
    dice = random.Random(seed)
    present = [f"n{number}" for number in range(1, nodes + 1)]
    founders = tuple(present)
    free = dict.fromkeys(present, 0.0)  # from when on nothing is done to it
    episodes: list[Episode] = []
    at, joined, bag = 1.0, nodes, list[str]()
    alone = 0.0  # until then an episode runs that wants all for itself
    while True:
        if not bag:
            bag = list(kinds)
            dice.shuffle(bag)
        kind = bag.pop()
        able = [name for name in present if kind != FULL or has_small_disk(name)]
        if not able:
            continue
        lasts = dice.uniform(1.0, 5.0)
        busy_until = max(free.values())
        alone_needed = kind in ALONE
        first = min(free[name] for name in able)
        at = max(at, alone, first, busy_until if alone_needed else sorted(free.values())[1])
        if at + lasts > seconds:
            break
        idle = [name for name in able if free[name] <= at]
        node = dice.choice(idle)
        other, amount = "", 0
        if kind in PAIRS:
            other = dice.choice([name for name in present if name != node])
        if kind == DELAY:
            amount = dice.choice((20, 100, 400))
        elif kind == LOSS:
            amount = dice.choice((3, 10, 30))
        elif kind == SKEW:
            amount = dice.choice((-600_000, -2_000, 2_000))
        elif kind == JOIN:
            if len(present) >= nodes + 2:
                continue
            joined += 1
            node = f"n{joined}"
            present.append(node)
        elif kind == LEAVE:
            if len(present) <= max(3, nodes - 1):
                continue
            present.remove(node)
            free.pop(node)
        elif kind in (STOP_ALL, ROLLING):
            node = ""
        episodes.append(Episode(at, kind, node, other, lasts, amount))
        for concerned in present if alone_needed else [node, other]:
            if concerned:
                free[concerned] = max(free.get(concerned, 0.0), at + lasts + 1.0)
        if alone_needed:
            alone = at + lasts + 1.0
        at += dice.uniform(0.5, 2.0)
    return Plan(founders, tuple(episodes), seconds)
