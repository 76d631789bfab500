"""Nodes in one process, joined by streams in memory that a test can break, on a clock that jumps."""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine
from crdtcast.fixed.node import Node
from crdtcast.group.running import running
from crdtcast.transport.options import NodeOptions

BASE_US = 1_700_000_000_000_000


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on trio's mock clock: no waiting takes real time."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(functools.partial(test, **arguments), clock=clock)

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run


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


async def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait, on the mock clock, until `condition` holds."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 (no time passes on the mock clock)
            await trio.sleep(0.01)


class Network:
    """Hands streams between members. What `dead` names is swallowed, as by a firewall that drops."""

    def __init__(self, nursery: trio.Nursery, *, bounded: bool = False) -> None:
        # Streams in memory take any amount; bounded ones make a writer wait for its reader.
        self._pair = (
            trio.testing.lockstep_stream_pair if bounded else trio.testing.memory_stream_pair
        )
        self.members: dict[int, Member] = {}
        self.dialled: list[tuple[str, str]] = []
        self.streams: list[tuple[str, str, trio.StapledStream, trio.StapledStream]] = []
        self._nursery = nursery

    def connect_from(self, name: str) -> Callable[[str, int], Awaitable[trio.abc.Stream]]:
        async def connect(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            target = self.members.get(port)
            if target is None or not target.node.listening:
                raise OSError("connection refused")
            self.dialled.append((name, target.name))
            near, far = self._pair()
            self.streams.append((name, target.name, near, far))
            self._nursery.start_soon(target.node.links().accept, far)
            return near

        return connect

    def black_hole(self, *, deaf: str | None = None) -> None:
        """From now on no byte arrives on the present connections, and nobody is told. deaf: no byte
        for this member; what it sends still arrives.
        """
        for dialler, acceptor, near, far in self.streams:
            for stream, hears in ((near, acceptor), (far, dialler)):
                if deaf not in (None, hears):
                    continue
                sender = stream.send_stream
                assert isinstance(sender, trio.testing.MemorySendStream)
                sender.send_all_hook = None
                sender.close_hook = None


PORTS = {name: port for port, name in enumerate("abcdefgh", start=9001)}


@asynccontextmanager
async def group(
    *present: str,
    more: dict[str, dict[str, Any]] | None = None,
    node: dict[str, dict[str, Any]] | None = None,
    bounded: bool = False,
    names: set[str] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Network, dict[str, Member]]]:
    """Members of one group, all dialling all others, on one network.

    more: options of single members. node: arguments of single members' nodes.
    """
    async with trio.open_nursery() as nursery:
        network = Network(nursery, bounded=bounded)
        members = {}
        for name in present:
            members[name] = make(
                network,
                name,
                names or set(present),
                **{**options, **(more or {}).get(name, {})},
                node=(node or {}).get(name, {}),
            )
        async with trio.open_nursery() as lives:
            for member in members.values():
                await lives.start(live, member)
            yield network, members
            lives.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


def make(
    network: Network,
    name: str,
    names: set[str],
    *,
    life: int = 0,
    node: dict[str, Any] | None = None,
    **options: Any,
) -> Member:
    options.setdefault("peers", {n: ("mem", PORTS[n]) for n in names if n != name})
    options.setdefault("seed", PORTS[name])
    member = Member(
        NodeOptions(name=name, listen=("127.0.0.1", 0), **options),
        names,
        life,
        connect=network.connect_from(name),
        **(node or {}),
    )
    network.members[PORTS[name]] = member
    return member


async def live(
    member: Member, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with running(member.node):
        task_status.started()
        await trio.sleep_forever()
