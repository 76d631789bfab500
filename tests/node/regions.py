"""Replicas with disks on a network in memory, which crash and start again."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from crdtcast import JournalError, Replica, open_replica
from crdtcast.testing import Disk, DiskJournal, Network, eventually


class Regions:
    """One replica each, by name; the first one founds the group. options: of all of them."""

    def __init__(self, network: Network, nursery: trio.Nursery, seed: int, **options: Any) -> None:
        self.random = random.Random(seed)
        self.network = network
        self.up: dict[str, Replica] = {}
        self.disks: dict[str, Disk] = {}
        self._options = options
        self._nursery = nursery
        self._lives: dict[str, tuple[trio.CancelScope, trio.Event]] = {}
        self.parted: tuple[str, ...] = ()

    async def start(self, name: str, **more: Any) -> Replica:
        """Found the group, join it, or go on from the disk."""
        disk = self.disks.setdefault(name, Disk())
        options: dict[str, Any] = {"journal": DiskJournal(disk), **self._options}
        if self.up:
            options["join"] = [replica.address for replica in self.up.values()]
        else:
            options["found"] = True
        options |= more
        scope, ended = self._lives[name] = (trio.CancelScope(), trio.Event())
        self.up[name] = await self._nursery.start(self._live, name, options, scope, ended)
        return self.up[name]

    async def _live(
        self,
        name: str,
        options: dict[str, Any],
        scope: trio.CancelScope,
        ended: trio.Event,
        task_status: trio.TaskStatus[Replica],
    ) -> None:
        try:
            with scope:
                port = 7001 + sorted(["a", "b", "c", "d", name]).index(name)
                async with open_replica(name, listen=f"10.0.0.1:{port}", **options) as replica:
                    task_status.started(replica)
                    await trio.sleep_forever()
        except JournalError:
            if not self.disks[name].broken:
                raise
        finally:
            ended.set()

    async def stop(self, name: str) -> None:
        """In order, but without leaving."""
        scope, ended = self._lives.pop(name)
        scope.cancel()
        await ended.wait()
        del self.up[name]

    async def crash(self, name: str) -> None:
        """The power fails: of what was not synced the disk has any part, and nothing more leaves."""
        disk = self.disks[name]
        left = self.random.choice(list(disk.crashes()))
        disk.broken = OSError("no power")
        self.network.cut(name)
        await self.stop(name)
        self.network.cut(*self.parted)
        self.disks[name] = left

    def cut(self, *names: str) -> None:
        """Part these from all others, until another cut."""
        self.parted = names
        self.network.cut(*names)

    async def members_are(self, *names: str) -> None:
        """Return when all of these know that they are the members."""
        await eventually(
            lambda: all(
                sorted(map(str, self.up[name].member.members)) == sorted(names)
                and self.up[name].member.engine.established
                == self.up[name].member.engine.members.keys()
                for name in names
            )
        )

    async def evict(self, name: str) -> None:
        """By the others, which are a majority; return when it is cut off."""
        others = [each for each in self.up if each != name]
        self.up[others[0]].member.evict(name)
        await self.members_are(*others)

    async def voting(self) -> None:
        """Return when all have a vote."""
        for replica in self.up.values():
            await replica.member.wait_established()

    async def agree(self) -> Any:
        """All are quiet, and worth the same: what that is."""

        def are_equal() -> bool:
            everybody = self.up.values()
            return (
                all(replica._is_quiet() for replica in everybody)
                and all(replica.member.members.keys() == self.up.keys() for replica in everybody)
                and len({replica.snapshot().digest for replica in everybody}) == 1
            )

        await eventually(are_equal, 600)
        return next(iter(self.up.values())).snapshot().values


@asynccontextmanager
async def regions(*names: str, seed: int = 0, **options: Any) -> AsyncIterator[Regions]:
    """Such replicas, all members of one group, and with a vote."""
    with Network() as network:
        async with trio.open_nursery() as nursery:
            present = Regions(network, nursery, seed, **options)
            for name in names:
                await present.start(name)
            await present.members_are(*names)
            await present.voting()
            with trio.fail_after(3600):
                yield present
            nursery.cancel_scope.cancel()
