"""Groups of fixed members on a network in memory: nodes as some gateways have them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine
from crdtcast.fixed.node import Node
from crdtcast.group.running import running
from crdtcast.testing import Network
from crdtcast.transport.options import Address, NodeOptions

BASE_US = 1_700_000_000_000_000
PORTS = {name: port for port, name in enumerate("abcdefgh", start=9001)}


def at(name: str) -> Address:
    """Where this member listens."""
    return "127.0.0.1", PORTS[name]


def incarnation(name: str, life: int = 0) -> str:
    return new_incarnation(name, BASE_US + life, 0)


class Member:
    """A node whose application notes what it takes, as long as `taking` is set."""

    def __init__(self, options: NodeOptions, names: set[str], life: int = 0, **more: Any) -> None:
        self.name = options.name
        self.names = names
        self.engine = Engine(incarnation(options.name, life), names)
        more.setdefault("on_work", self.work)
        self.node = Node(options, self.engine, **more)
        self.taking = True
        self.worked = trio.lowlevel.ParkingLot()
        self.delivered: list[tuple[Dot, bytes]] = []
        self.stable: list[Dot] = []

    def work(self) -> None:
        self.worked.unpark_all()
        if not self.taking:
            return
        engine = self.node.engine
        while (delivery := engine.poll()) is not None:
            self.delivered.append((delivery.tag.dot, delivery.payload))
        self.stable += [tag.dot for tag in engine.poll_stable()]

    def send(self, payload: bytes) -> Dot:
        tag = self.node.engine.send(payload)
        self.node.flush()
        return tag.dot

    def linked(self) -> set[str]:
        return set(self.node.links().up)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.delivered]


@asynccontextmanager
async def group(
    *present: str,
    more: dict[str, dict[str, Any]] | None = None,
    node: dict[str, dict[str, Any]] | None = None,
    buffer_bytes: int | None = None,
    names: set[str] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Network, dict[str, Member]]]:
    """Members of one group, all dialling all others, on one network (`buffer_bytes`: see there).

    more: options of single members. node: arguments of single members' nodes.
    """
    with Network(buffer_bytes=buffer_bytes) as network:
        members = {
            name: make(
                name,
                names or set(present),
                node=(node or {}).get(name, {}),
                **{**options, **(more or {}).get(name, {})},
            )
            for name in present
        }
        async with trio.open_nursery() as lives:
            for member in members.values():
                await lives.start(live, member)
            yield network, members
            lives.cancel_scope.cancel()


def make(
    name: str,
    names: set[str],
    *,
    life: int = 0,
    node: dict[str, Any] | None = None,
    **options: Any,
) -> Member:
    """A member, on the network of this block."""
    options = {
        "listen": at(name),
        "peers": {n: at(n) for n in names if n != name},
        "seed": PORTS[name],
        **options,
    }
    return Member(NodeOptions(name=name, **options), names, life, **(node or {}))


async def live(
    member: Member, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with running(member.node):
        task_status.started()
        await trio.sleep_forever()


@asynccontextmanager
async def answering(
    network: Network, handler: Callable[[trio.abc.Stream], Awaitable[None]]
) -> AsyncIterator[None]:
    """At the address of b somebody else answers, who hangs up when `handler` returns."""

    async def handle(stream: trio.abc.Stream) -> None:
        async with stream:
            await handler(stream)

    _, listeners = await network.listen("b", at("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, list(listeners))
        yield
        nursery.cancel_scope.cancel()


def black_hole(network: Network) -> None:
    """From now on no byte arrives on the present connections of a and b, and nobody is told."""
    network.silence("a", "b")
    network.silence("b", "a")
    network.heal()
