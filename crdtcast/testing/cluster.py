"""Members with disks on a network in memory, which stop, crash and start again.

@simulated
async def test_orders_survive():
    async with open_cluster(open_replica, "eu", "us", seed=3) as cluster:
        await take_order(cluster.up["eu"], "order:1")
        cluster.crash("eu")
        eu = await cluster.start("eu")
        assert "order:1" in orders_of(eu)
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar

import trio

from crdtcast.exceptions import JournalError
from crdtcast.testing.disk import Disk
from crdtcast.testing.journals import DiskJournal
from crdtcast.testing.network import Network

FIRST_PORT = 7001


M = TypeVar("M")
Open = Callable[..., AbstractAsyncContextManager[M]]
"""`open_member`, `open_replica`, or a function with the same options that opens one of them."""


class Cluster(Generic[M]):
    """The members of one group, each in a task of its own. Made by `open_cluster`."""

    def __init__(
        self, open: Open[M], network: Network, nursery: trio.Nursery, seed: int, options: Any
    ) -> None:
        self.network = network
        self.random: random.Random = random.Random(seed)
        """Draws what crashes leave."""
        self.up: dict[str, M] = {}
        """Who runs, by name."""
        self.disks: dict[str, Disk] = {}
        """What each one has, or has left."""
        self._open = open
        self._options = options
        self._nursery = nursery
        self._lives: dict[str, tuple[trio.CancelScope, trio.Event]] = {}
        self._is_founded = False

    async def start(self, name: str, *contacts: str, **options: Any) -> M:
        """Open this member: the first one founds the group, unless all do (`founders=`), others join it, and who was
        there before goes on from its disk.

        contacts: names of those it asks; by default all that are up.
        options: for this time; they take precedence.
        """
        if name in self.up:
            raise ValueError(f"{name!r} is running: stop, kill or crash it first")
        former = self._lives.get(name)
        if former is not None:
            await former[1].wait()
        disk = self.disks.setdefault(name, Disk())
        options = self._options | options
        given: dict[str, Any] = {"journal": DiskJournal(disk), "seed": self._port(name)}
        if "founders" not in options:
            given["listen"] = f"127.0.0.1:{self._port(name)}"
            if not self._is_founded:
                given["found"] = True
            elif self.up:
                given["join"] = [("127.0.0.1", self._port(each)) for each in contacts or self.up]
        given |= options
        life = self._lives[name] = trio.CancelScope(), trio.Event()
        self.up[name] = await self._nursery.start(self._live, name, given, *life)
        self._is_founded = True
        return self.up[name]

    def _port(self, name: str) -> int:
        return FIRST_PORT + list(self.disks).index(name)

    async def _live(
        self,
        name: str,
        options: dict[str, Any],
        scope: trio.CancelScope,
        ended: trio.Event,
        task_status: trio.TaskStatus[M],
    ) -> None:
        disk = self.disks[name]
        try:
            with scope:
                async with self._open(name, **options) as opened:
                    task_status.started(opened)
                    await trio.sleep_forever()
        except JournalError:
            if self.disks[name] is disk:  # it has not crashed
                raise
        finally:
            ended.set()

    async def stop(self, name: str) -> None:
        """End it in order; it does not leave the group."""
        scope, ended = self._lives[name]
        scope.cancel()
        await ended.wait()
        del self.up[name]

    def kill(self, name: str) -> None:
        """Its process is killed, now: nothing more leaves it, and its disk keeps all that it has written."""
        *_, left = self.disks[name].crashes()
        self.crash(name, left)

    def crash(self, name: str, left: Disk | None = None) -> None:
        """Its power fails, now: nothing more leaves it, and of what it has not synced its disk keeps any part.

        left: what the disk keeps, one of `disks[name].crashes()`; drawn by default.
        """
        disk = self.disks[name]
        self.disks[name] = left or self.random.choice(list(disk.crashes()))
        disk.broken = OSError("no power")
        self.network.disconnect(name)
        self._lives[name][0].cancel()
        self.up.pop(name, None)


@asynccontextmanager
async def open_cluster(
    open: Open[M], *names: str, seed: int = 0, **options: Any
) -> AsyncIterator[Cluster[M]]:
    """A network in memory, and these members of one group on it; the first one founds the group.

    open: opens a member; called with its name, and with options as of `open_member`.
    seed: of what a crash leaves (`Cluster.crash`). options: for all members.
    """
    with Network() as network:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(open, network, nursery, seed, options)
            for name in names:
                await cluster.start(name)
            yield cluster
            nursery.cancel_scope.cancel()
