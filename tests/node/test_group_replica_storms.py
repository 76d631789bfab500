"""Replicas under crashes, partitions and evictions, at random: nothing that was durable is lost, nothing counts twice,
no batch is torn, and all are worth the same in the end.
"""

from pathlib import Path

import trio

from crdtcast import EndedError, Replica
from crdtcast.datatypes import AWSet, LWWRegister, PNCounter
from crdtcast.eventlog.check.check import check_logs
from crdtcast.testing import Cluster, eventually, simulated
from tests.effort import seeds

from .regions import agree, regions

NAMES = ("a", "b", "c")


class Storm:
    """What happens, drawn from the seed of `present`. durable: the marks that must be there in the end."""

    def __init__(self, present: Cluster[Replica]) -> None:
        self.present = present
        self.random = present.random
        self.durable: set[str] = set()
        self.crashes = self.evictions = self.restarts = self.refused = 0
        self.parted: tuple[str, ...] = ()
        self._marks = 0

    def cut(self, *names: str) -> None:
        """Part these from all others, until another cut."""
        self.parted = names
        self.present.network.cut(*names)

    async def write(self, replica: Replica) -> None:
        """A mark, and one more on the counter: in one message."""
        self._marks += 1
        mark = f"{replica.name}{self._marks}"
        try:
            with replica.batch() as batch:
                batch.object("marks", AWSet).add(mark)
                batch.object("count", PNCounter).increment()
            await replica.object("last", LWWRegister).assign(mark)
            if self.random.random() < 0.3:
                await replica.object("tags", AWSet).add(mark)
                await replica.object("tags", AWSet).remove(mark)
            if self.random.random() < 0.5:
                await replica.wait_durable()
                self.durable.add(mark)
        except EndedError:
            self.refused += 1

    async def step(self) -> None:
        present, up = self.present, list(self.present.up)
        match self.random.choice(
            ["write"] * 8 + ["pause", "cut", "heal", "crash", "start", "evict", "evict"]
        ):
            case "write" if up:
                await self.write(present.up[self.random.choice(up)])
            case "pause":
                await trio.sleep(self.random.choice([0.01, 0.3, 5]))
            case "cut":
                self.cut(self.random.choice(NAMES))
            case "heal":
                self.cut()
            case "crash" if len(up) > 1:
                present.crash(self.random.choice(up))
                self.crashes += 1
            case "start" if len(up) < len(NAMES):
                self.cut()  # one that was evicted comes up when somebody lets it in
                await present.start(next(name for name in NAMES if name not in up))
                self.restarts += 1
            case "evict":
                for name in NAMES:
                    await self.evict(name)

    async def evict(self, victim: str) -> None:
        """If it is out of reach, and the others, two of three with a vote, know each other."""
        present = self.present
        is_gone = victim not in present.up
        if self.parted != (victim,) and not (is_gone and not self.parted):
            return
        others = [
            present.up[name].member for name in NAMES if name != victim and name in present.up
        ]
        if len(others) == 2 and all(
            member.standing.can_send
            and member.members.keys() == set(NAMES)
            and member.engine.view.voters == member.engine.members.keys()
            and len(member.engine.members) == 3
            and not member.engine.victims
            for member in others
        ):
            others[0].evict(victim)
            self.evictions += 1
            await eventually(lambda: all(victim not in member.members for member in others))

    async def end(self) -> None:
        """All come back, and agree."""
        self.cut()
        for name in NAMES:
            if name not in self.present.up:
                await self.present.start(name)
        values = await agree(self.present)
        assert self.durable <= values.get("marks", set()), "something durable is lost"
        assert values.get("count", 0) == len(values.get("marks", ())), "torn, or twice"
        if not self.evictions:  # a removal may yield to what the group did meanwhile
            assert not self.durable & values.get("tags", set()), "what was removed is back"
        for replica in self.present.up.values():
            assert replica.unreadable == 0
            assert (await replica.verify()).equal
        assert len({replica.held.packed().__repr__() for replica in self.present.up.values()}) == 1


def storm(seed: int, steps: int, logs: Path) -> Storm:
    found: list[Storm] = []

    @simulated
    async def run() -> None:
        async with regions(*NAMES, seed=seed, compact_bytes=2000, event_logs=logs) as present:
            found.append(Storm(present))
            for _ in range(steps):
                await found[0].step()
            await found[0].end()

    run()
    violations = check_logs([logs]).violations
    assert not violations, violations[0]
    return found[0]


def test_replicas_converge_after_random_storms(tmp_path: Path) -> None:
    storms = [storm(seed, 80, tmp_path / str(seed)) for seed in seeds(12)]
    dozens = len(storms) / 12
    assert sum(each.crashes for each in storms) > 20 * dozens
    assert sum(each.evictions for each in storms) > 10 * dozens
    assert sum(len(each.durable) for each in storms) > 100 * dozens
