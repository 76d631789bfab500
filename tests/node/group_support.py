"""A state machine that can be copied, and checks while it runs that nothing comes twice or too early."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgpack
import trio

from crdtcast import Host, Member, StateMachine, Tag, open_member
from crdtcast.causality.tags import Dot
from crdtcast.group.running import running
from crdtcast.lowlevel import NodeOptions
from crdtcast.transport.host import SharedLinks
from tests.node.network import PORTS, Network


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


class SimulatedHost:
    """A process of a simulated network: its links, and the member on them."""

    def __init__(self, network: Network, name: str, contact: str | None, **options: Any) -> None:
        self.name = name
        self._network = network
        self.ledger = Ledger()
        self.copied = (0, 0)
        self.on_copied: Callable[[int, int], bool] | None = None
        """Called while this one joins, as long as it returns False."""
        peers = () if contact is None else [("mem", PORTS[contact])]
        self.node = SharedLinks(
            NodeOptions(
                name=name,
                listen=("127.0.0.1", 0),
                group="links",
                peers=peers,
                seed=PORTS[name],
                **options,
            ),
            advertise=("mem", PORTS[name]),
            connect=network.connect_from(name),
        )
        self.links = Host(self.node)
        self.member: Member | None = None
        network.members[PORTS[name]] = self  # type: ignore[assignment]
        self._scope = trio.CancelScope()

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until `die`."""
        with self._scope:
            async with running(self.node):
                task_status.started()
                await trio.sleep_forever()

    def die(self) -> None:
        """As a process that is killed: nobody is told but by the end of the connections."""
        self._network.members.pop(PORTS[self.name], None)
        for link in list(self.node.links().up.values()):
            link.close("killed")
        self._scope.cancel()

    async def found(self) -> Member:
        self.member = self.links.found("g", machine=self.ledger)
        return self.member

    async def join(self, **more: Any) -> Member:
        process = None if more.get("witness") else self.ledger
        self.member = await self.links.join("g", machine=process, progress=self._copied, **more)
        return self.member

    def _copied(self, received: int, size: int) -> None:
        self.copied = (received, size)
        if self.on_copied is not None and self.on_copied(received, size):
            self.on_copied = None

    @property
    def up(self) -> Member:
        assert self.member is not None
        return self.member


class World:
    """Processes on one simulated network. options: of all of them."""

    def __init__(self, network: Network, nursery: trio.Nursery, **options: Any) -> None:
        self.network = network
        self.options = options
        self.hosts: dict[str, SimulatedHost] = {}
        self._nursery = nursery

    async def start(self, name: str, contact: str | None = None, **options: Any) -> SimulatedHost:
        host = self.hosts[name] = SimulatedHost(
            self.network, name, contact, **{**self.options, **options}
        )
        await self._nursery.start(host.live)
        return host

    def cut(self, *names: str) -> None:
        """Part these from all others."""
        for name, host in self.hosts.items():
            for other in self.hosts:
                if (name in names) != (other in names):
                    host.node.cut(other)

    def heal(self) -> None:
        for host in self.hosts.values():
            for other in self.hosts:
                if other != host.name:
                    host.node.heal(other)


@asynccontextmanager
async def world(*names: str, **options: Any) -> AsyncIterator[World]:
    """A group of these members, founded by the first. All of them have a vote."""
    async with trio.open_nursery() as nursery:
        present = World(Network(nursery), nursery, **options)
        for number, name in enumerate(names):
            host = await present.start(name, names[0] if number else None)
            await (host.join() if number else host.found())
        for host in present.hosts.values():
            await members_are(host.up, *names)
            await host.up.wait_established()
        with trio.fail_after(3600):
            yield present
        nursery.cancel_scope.cancel()
