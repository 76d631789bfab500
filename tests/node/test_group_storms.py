"""Random lives of whole groups on a simulated network: whatever comes and goes, all end the same."""

import random

import pytest
import trio

from crdtcast import CrdtcastError
from crdtcast.causality.member_id import name_of
from crdtcast.engine import Standing
from crdtcast.testing import Cluster, eventually, simulated
from tests.effort import seeds
from tests.node.group_support import LedgerHost, world

STEPS = 60
SPARE = "defgh"


class Storm:
    """One run: what happens is drawn from the seed."""

    def __init__(self, group: Cluster[LedgerHost], seed: int, nursery: trio.Nursery) -> None:
        self.group = group
        self.rng = random.Random(seed)
        self.nursery = nursery
        self.away: set[str] = set()
        self.dead: set[str] = set()
        self.leaving: set[str] = set()
        self.joining: set[str] = set()
        self.sent: set[bytes] = set()
        self.lost: set[bytes] = set()
        self.number = 0

    def active(self) -> list[LedgerHost]:
        return [
            host
            for host in self.group.up.values()
            if host.name not in self.dead | self.leaving | self.joining
            and host.member.standing is Standing.MEMBER
        ]

    async def step(self) -> None:
        rare = [self.cut, self.heal, self.evict, self.join, self.leave, self.kill, self.pause]
        await self.rng.choice([*[self.send] * 4, *rare])()
        await trio.sleep(self.rng.random() * 0.05)

    async def pause(self) -> None:
        await trio.sleep(self.rng.random() * 5)

    async def send(self) -> None:
        if active := self.active():
            host = self.rng.choice(active)
            for _ in range(self.rng.randint(1, 5)):
                self.number += 1
                payload = b"%s %d" % (host.name.encode(), self.number)
                host.member.tcbroadcast(payload)
                self.sent.add(payload)

    async def cut(self) -> None:
        if not self.away and (active := self.active()):
            self.away = {self.rng.choice(active).name}
            self.group.network.cut(*self.away)

    async def heal(self) -> None:
        self.away.clear()
        self.group.network.heal()

    async def evict(self) -> None:
        """Only what is out of reach, and by others than itself, who are enough and known to all: no
        operator would begin what cannot be concluded.
        """
        gone = self.away | self.dead
        for host in self.active():
            remaining = [m for m in host.member.engine.established if name_of(m) not in gone]
            victims = [m for m in host.member.engine.members if name_of(m) in gone]
            for name in sorted(gone):
                asked_for = {name_of(victim) for victim in host.member.engine.victims}
                if (
                    host.name not in gone
                    and name in host.member.members.keys() - asked_for
                    and len(remaining) > len(victims)
                ):
                    host.member.evict(name)

    async def join(self) -> None:
        spare = [n for n in SPARE if n not in self.group.disks]
        contacts = [host for host in self.active() if host.name not in self.away]
        if spare and contacts and not self.joining:
            name = spare[0]
            self.joining.add(name)
            self.nursery.start_soon(self._join, name, self.rng.choice(contacts).name)

    async def _join(self, name: str, contact: str) -> None:
        host = await self.group.start(name, contact)
        while True:
            try:
                await host.join()
                break
            except CrdtcastError:  # its contact is dead or leaves; an operator names another one
                await trio.sleep(1)
                others = [other for other in self.active() if other is not host]
                host.node.dial(self.rng.choice(others).address)
        self.joining.discard(name)

    async def leave(self) -> None:
        active = [host for host in self.active() if host.name not in self.away]
        if len(active) > 3 and not self.dead:
            host = self.rng.choice(active)
            self.leaving.add(host.name)
            self.nursery.start_soon(self._leave, host)

    async def _leave(self, host: LedgerHost) -> None:
        await host.member.leave()
        self.group.crash(host.name)

    async def kill(self) -> None:
        active = [host for host in self.active() if host.name not in self.away]
        settled = all(
            len(host.member.engine.established) == len(host.member.members) == len(active)
            for host in active
        )
        if len(active) > 3 and settled and not self.dead | self.away | self.joining:
            host = self.rng.choice(active)
            self.dead.add(host.name)
            prefix = host.name.encode() + b" "
            self.lost |= {payload for payload in self.sent if payload.startswith(prefix)}
            self.group.crash(host.name)

    def alive(self) -> list[LedgerHost]:
        gone = self.dead | self.leaving
        return [host for name, host in self.group.up.items() if name not in gone]

    def calm(self) -> bool:
        """All are members, and have and know the same."""
        hosts = self.alive()
        names = {host.name for host in hosts}
        return (
            not self.joining
            and all(host.member.standing is Standing.MEMBER for host in hosts)
            and all(set(host.member.members) == names for host in hosts)
            and all(host.member.engine.quiet and host.member.parked is None for host in hosts)
            and len({tuple(host.ledger.payloads) for host in hosts}) == 1
        )


@simulated
@pytest.mark.parametrize("seed", seeds(3))
async def test_all_end_the_same_and_nothing_is_lost(seed: int) -> None:
    async with world("a", "b", "c", keepalive_interval=1.0) as group, trio.open_nursery() as lives:
        storm = Storm(group, seed, lives)
        for _ in range(STEPS):
            await storm.step()
        await storm.heal()
        for _ in range(50):
            await storm.evict()
            await trio.sleep(1)
        await eventually(storm.calm, 600)
        have = set(storm.alive()[0].ledger.payloads)
        assert have <= storm.sent
        assert storm.sent - storm.lost <= have, f"seed {seed}"
        assert all(not host.ledger.unstable for host in storm.alive())
        lives.cancel_scope.cancel()
