"""What happens to a group of processes, and when: drawn from a seed, decided before anything starts. Pure.

A plan is a list of *episodes*. Each does something to one node, to a pair or to all, lasts for a while, and is undone
before the next one of the same node begins. Up to two run at once, so that faults coincide: members join, leave and are
evicted while something else is wrong.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KILL, PAUSE, CUT, ONE_WAY, DELAY, RESET = "kill", "pause", "cut", "one-way", "delay", "reset"
LOSS, HOLE = "loss", "black-hole"
STOP_ALL, ROLLING, TWO_DEAD = "stop-all", "rolling", "two-dead"
FULL, SYNC, RESTORED, COPIED, WIPE = "disk-full", "sync-error", "restored", "copied", "wipe"
EVICT, JOIN, JOIN_KILLED, LEAVE, SKEW = "evict", "join", "join-killed", "leave", "skew"
HOSTILE = "hostile"

PAIRS = frozenset({CUT, ONE_WAY, DELAY, RESET})
WHOLE = frozenset({STOP_ALL, ROLLING, TWO_DEAD})
"""Nothing else is done while one of these runs."""
NEWCOMERS = frozenset({JOIN, JOIN_KILLED, HOSTILE})
MEMBERSHIP = frozenset({WIPE, RESTORED, COPIED, EVICT, LEAVE}) | NEWCOMERS
"""One of these at a time, next to any other: a majority must be able to agree to each."""
KINDS = (
    *(KILL, PAUSE, CUT, ONE_WAY, DELAY, RESET, LOSS, HOLE, STOP_ALL, ROLLING, TWO_DEAD),
    *(FULL, SYNC, RESTORED, COPIED, WIPE, EVICT, JOIN, JOIN_KILLED, LEAVE, SKEW, HOSTILE),
)
"""All kinds. Each comes once before any comes twice."""
GROUP = "*"
"""Stands for the group's membership, among the names that an episode concerns."""

_AMOUNTS = {
    DELAY: (20, 100, 400),
    LOSS: (3, 10, 30),
    SKEW: (-600_000, -2_000, 2_000, 3_600_000),
    JOIN_KILLED: (50, 400, 800, 1_200),
}
_NEWCOMERS_MOST = 2
_REST = 1.0
"""Seconds between two episodes of one node."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One fault, or one change of members.

    at: seconds from the start.
    lasts: seconds until it is undone.
    node, other: names of the nodes that it concerns; "" for none.
    amount: milliseconds, for delays, skews and killed joins; percent, for losses.
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
        """Nodes to which nothing else may be done meanwhile. names: all nodes so far."""
        if self.kind in PAIRS:
            return set()
        if self.kind in WHOLE:
            return {*names, GROUP} - {""}
        return {self.node, GROUP} if self.kind in MEMBERSHIP else {self.node}


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """founders: names of the first nodes. episodes: in order of time."""

    founders: tuple[str, ...]
    episodes: tuple[Episode, ...]
    seconds: float


def has_small_disk(name: str) -> bool:
    """Whether that node's disk may become full: every second one's. The others sync to a disk that takes time."""
    return int(name[1:]) % 2 == 0


def draw(seed: int, nodes: int, seconds: float, kinds: Sequence[str] = KINDS) -> ChaosPlan:
    """A plan for `nodes` nodes. Every kind comes once before any comes twice, if there is time."""
    drawing = _Drawing(random.Random(seed), nodes)
    bag: list[str] = []
    while True:
        if not bag:
            bag = list(kinds)
            drawing.dice.shuffle(bag)
        episode = drawing.next(bag.pop())
        if episode is not None:
            if episode.at + episode.lasts > seconds:
                return ChaosPlan(drawing.founders, tuple(drawing.episodes), seconds)
            drawing.add(episode)


class _Drawing:
    """A plan that is being drawn. free: from when on nothing is done to a node, or to the group."""

    def __init__(self, dice: random.Random, nodes: int) -> None:
        self.dice = dice
        self.founders = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.episodes: list[Episode] = []
        self._nodes = nodes
        self._made = nodes
        self._present = list(self.founders)
        self._free = dict.fromkeys(self._present, 0.0)
        self._group_free = 0.0
        self._at = 1.0

    def next(self, kind: str) -> Episode | None:
        """One more episode of that kind; None if there may be none now."""
        able = [name for name in self._present if kind != FULL or has_small_disk(name)]
        grown = len(self._present) - self._nodes
        if not able or (kind in NEWCOMERS and grown >= _NEWCOMERS_MOST):
            return None
        if kind == LEAVE and len(self._present) <= max(3, self._nodes - 1):
            return None
        times = sorted(self._free[name] for name in self._present)
        # Two nodes at least have nothing done to them, and all but two.
        quiet = len(times) - 1 if kind in WHOLE else max(1, len(times) - 3)
        at = max(self._at, times[quiet], min(self._free[name] for name in able))
        if kind in WHOLE | MEMBERSHIP:
            at = max(at, self._group_free)
        node = self.dice.choice([name for name in able if self._free[name] <= at])
        other = ""
        if kind in PAIRS or kind == TWO_DEAD:
            other = self.dice.choice([name for name in self._present if name != node])
        if kind in NEWCOMERS:
            node = f"n{self._made + 1}"
        elif kind in (STOP_ALL, ROLLING):
            node = ""
        amount = self.dice.choice(_AMOUNTS[kind]) if kind in _AMOUNTS else 0
        return Episode(at, kind, node, other, self.dice.uniform(1.0, 5.0), amount)

    def add(self, episode: Episode) -> None:
        """It is a part of the plan."""
        self.episodes.append(episode)
        if episode.kind in NEWCOMERS:
            self._made += 1
            if episode.kind != HOSTILE:
                self._present.append(episode.node)
        until = episode.at + episode.lasts + _REST
        concerned = self._present if episode.kind in WHOLE else [episode.node, episode.other]
        for name in filter(None, concerned):
            self._free[name] = max(self._free.get(name, 0.0), until)
        if episode.kind in WHOLE | MEMBERSHIP:
            self._group_free = until
        if episode.kind == LEAVE:
            self._present.remove(episode.node)
        self._at = episode.at + self.dice.uniform(0.5, 2.0)
        if episode.kind in WHOLE:
            self._at = max(self._at, until)
