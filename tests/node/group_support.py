"""A state machine that can be copied, and checks while it runs that nothing comes twice or too early."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgpack
import trio

from crdtcast import Host, Member, StateMachine, Tag, open_host, open_member
from crdtcast.causality.tags import Dot
from crdtcast.journal import Journal
from crdtcast.testing import Cluster, open_cluster
from crdtcast.transport.host import SharedLinks
from crdtcast.transport.options import Address


class Ledger(StateMachine):
    """All payloads in the order of their delivery, with their dots; what is not stable yet."""

    def __init__(self) -> None:
        self.entries: dict[Dot, bytes] = {}
        self.unstable: set[Dot] = set()
        self.copies = 0
        self.yields: set[bytes] = set()
        self.asked_again: list[bytes] = []
        self.news = trio.lowlevel.ParkingLot()

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        assert tag.dot not in self.entries, f"{tag.dot} was delivered twice"
        self.entries[tag.dot] = payload
        self.unstable.add(tag.dot)
        self.news.unpark_all()

    def tcstable(self, tag: Tag) -> None:
        assert tag.dot in self.unstable, (
            f"{tag.dot} is said to be stable twice, or was not delivered"
        )
        self.unstable.discard(tag.dot)
        self.news.unpark_all()

    def get_state(self) -> bytes:
        rows = [[*dot, payload, dot in self.unstable] for dot, payload in self.entries.items()]
        packed: bytes = msgpack.packb(rows)
        return packed

    def set_state(self, state: bytes) -> None:
        rows = msgpack.unpackb(state)
        self.copies += 1
        self.entries = {Dot(origin, counter): payload for origin, counter, payload, _ in rows}
        self.unstable = {Dot(origin, counter) for origin, counter, _, waits in rows if waits}
        self.news.unpark_all()

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        self.asked_again.append(payload)
        return None if payload in self.yields else payload

    @property
    def payloads(self) -> list[bytes]:
        return sorted(self.entries.values())

    async def has(self, *payloads: bytes) -> None:
        """Return when all of these have been delivered."""
        while not set(payloads) <= set(self.entries.values()):
            await self.news.park()

    async def settled(self) -> None:
        """Return when all that was delivered is stable."""
        while self.unstable:
            await self.news.park()


@asynccontextmanager
async def founded(
    *names: str, processes: Mapping[str, StateMachine] | None = None, **options: Any
) -> AsyncIterator[list[Member]]:
    """Members that have founded a group together, over real sockets. options: of all of them."""
    async with AsyncExitStack() as stack:
        opened: dict[str, Member] = {}
        for name in names:
            founders = {n: opened[n].address if n in opened else None for n in names}
            process = (processes or {}).get(name)
            opened[name] = await stack.enter_async_context(
                open_member(name, founders=founders, machine=process, **options)
            )
        with trio.fail_after(60):
            for member in opened.values():
                await member.ready()
            yield list(opened.values())


async def members_are(member: Member, *names: str) -> None:
    """Return when these are the members."""
    while set(member.members) != set(names) or len(member.engine.members) != len(names):
        await member.changed()


class LedgerHost:
    """A process of a cluster: its links, and the member on them, whose state machine is a ledger.

    kept: how the member keeps its state.
    """

    member: Member

    def __init__(self, links: Host, **kept: Any) -> None:
        self.links = links
        self.ledger = Ledger()
        self.copied = (0, 0)
        self.on_copied: Callable[[int, int], bool] | None = None
        """Called while this one joins, as long as it returns False."""
        self._kept = kept

    @property
    def name(self) -> str:
        return self.links.name

    @property
    def address(self) -> Address:
        return self.links.address

    @property
    def node(self) -> SharedLinks:
        return self.links.shared

    def found(self, **more: Any) -> Member:
        options = {"machine": self.ledger, **self._kept, **more}
        self.member = self.links.found("g", **options)
        return self.member

    async def join(self, **more: Any) -> Member:
        process = None if more.get("witness") else self.ledger
        options = {"machine": process, "progress": self._copied, **self._kept, **more}
        self.member = await self.links.join("g", **options)
        return self.member

    def _copied(self, received: int, size: int) -> None:
        self.copied = (received, size)
        if self.on_copied is not None and self.on_copied(received, size):
            self.on_copied = None


@asynccontextmanager
async def open_ledger_host(
    name: str,
    *,
    journal: Journal,
    join: Sequence[Address] = (),
    found: bool = False,
    durable: bool = False,
    **options: Any,
) -> AsyncIterator[LedgerHost]:
    """For clusters. The test says when its member founds or joins the group; durable: whether it has a journal."""
    kept = {"journal": journal, "compact_bytes": 2000} if durable else {}
    async with open_host(name, peers=join, network="links", **options) as links:
        yield LedgerHost(links, **kept)


async def start_member(cluster: Cluster[LedgerHost], name: str, **more: Any) -> LedgerHost:
    """Start a host and its member: the first one of all founds the group."""
    host = await cluster.start(name)
    if name == next(iter(cluster.disks)):
        await host.found(**more).ready()
    else:
        await host.join(**more)
    return host


@asynccontextmanager
async def world(*names: str, seed: int = 0, **options: Any) -> AsyncIterator[Cluster[LedgerHost]]:
    """A group of these members, founded by the first. All of them have a vote. options: see `open_ledger_host`."""
    async with open_cluster(open_ledger_host, seed=seed, **options) as cluster:
        for name in names:
            await start_member(cluster, name)
        for host in cluster.up.values():
            await members_are(host.member, *names)
            await host.member.wait_established()
        with trio.fail_after(3600):
            yield cluster
