"""CPU a delivery of a group's members, and of nodes with fixed peers as gateways have them; three in one process.

    python -m benchmarks.kinds [--runs N] [--messages N] [--payload BYTES]

Both kinds send and take in the same way, over TCP on this machine, in turn in one run. Their ratio is to be told, not
their microseconds: those are the machine's.
"""

import argparse
import logging
import secrets
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol, Self, TypeAlias

import trio

from crdtcast import Delivered, Stable, open_member
from crdtcast.causality.member_id import fresh_incarnation
from crdtcast.causality.tags import Tag
from crdtcast.engine import Engine
from crdtcast.engine.delivery_waits import Waits
from crdtcast.exceptions import LocalProtocolError
from crdtcast.fixed.node import Node
from crdtcast.group.running import running
from crdtcast.ports import free_ports
from crdtcast.transport.options import NodeOptions

NAMES = ("a", "b", "c")
_TURN = 32
_SLICE = 128


class Member(Protocol):
    """What both kinds have."""

    def tcbroadcast(self, payload: bytes, /) -> Tag: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> object: ...


class FixedMember:
    """A node with fixed peers, and its application's events and waits, as members of a group have them."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        self.engine = Engine(fresh_incarnation(name), NAMES)
        self.node = Node(
            NodeOptions(
                name=name,
                listen=("127.0.0.1", ports[name]),
                peers={
                    other: ("127.0.0.1", port) for other, port in ports.items() if other != name
                },
            ),
            self.engine,
            on_work=self._wake,
        )
        self._waits = Waits(lambda: self.engine)
        self._work = trio.lowlevel.ParkingLot()
        self._stable: deque[Tag] = deque()
        self._events = self._since = 0
        self._untold = False

    def tcbroadcast(self, payload: bytes) -> Tag:
        """Like `crdtcast.Member.tcbroadcast`."""
        if not isinstance(payload, bytes) or len(payload) > self.node.options.max_payload:
            raise LocalProtocolError("a payload that cannot be sent")
        tag = self.engine.send(payload)
        self.node.flush_soon()
        return tag

    def _wake(self) -> None:
        self._work.unpark_all()
        self._waits.check()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        self._events += 1
        if self._events % _TURN == 0:
            self._tell()
            await trio.lowlevel.checkpoint()
        while (event := self._next()) is None:
            await self._work.park()
        return event

    def _next(self) -> object | None:
        event = self._take()
        if event is None and self._untold:
            self._tell()
        return event

    def _tell(self) -> None:
        self._untold = False
        self.node.flush()
        self._waits.check()

    def _take(self) -> object | None:
        if self._since >= _SLICE and not self._stable:
            self._since = 0
            self._stable.extend(self.engine.poll_stable(_SLICE))
        if self._stable:
            return Stable(self._stable.popleft())
        if (delivery := self.engine.poll()) is not None:
            self._since += 1
            self._untold = True
            return Delivered(delivery.payload, delivery.tag)
        if self.engine.has_stable():
            self._stable.extend(self.engine.poll_stable(_SLICE))
        return Stable(self._stable.popleft()) if self._stable else None


@asynccontextmanager
async def fixed() -> AsyncIterator[list[Member]]:
    """Three gateways' nodes, all linked."""
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    members = [FixedMember(name, ports) for name in NAMES]
    async with AsyncExitStack() as stack:
        for member in members:
            await stack.enter_async_context(running(member.node))
        while any(len(member.node.linked) < len(NAMES) - 1 for member in members):  # noqa: ASYNC110
            await trio.sleep(0.01)
        yield list(members)


@asynccontextmanager
async def group() -> AsyncIterator[list[Member]]:
    """A group of three, founded together."""
    async with AsyncExitStack() as stack:
        started: dict[str, Member] = {}
        where: dict[str, str | tuple[str, int] | None] = dict.fromkeys(NAMES)
        members = []
        for name in NAMES:
            member = await stack.enter_async_context(open_member(name, founders=dict(where)))
            where[name], started[name] = member.address, member
            members.append(member)
        for member in members:
            await member.ready()
        yield list(started.values())


async def take(member: Member, expected: int) -> None:
    """Until so many are delivered."""
    async for event in member:
        if isinstance(event, Delivered):
            expected -= 1
            if not expected:
                return


async def write(member: Member, messages: int, payload: bytes) -> None:
    """Eight at a go."""
    for number in range(messages):
        member.tcbroadcast(payload)
        if number % 8 == 7:
            await trio.lowlevel.checkpoint()


Kind: TypeAlias = Callable[[], AbstractAsyncContextManager[list[Member]]]


async def measure(kind: Kind, messages: int, payload: bytes) -> float:
    """Microseconds of CPU a delivery: send, TCP and stability included."""
    async with kind() as members:
        cpu = time.process_time()
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(take, member, messages * (len(NAMES) - 1))
                nursery.start_soon(write, member, messages, payload)
        cpu = time.process_time() - cpu
    return cpu / (messages * len(NAMES) * (len(NAMES) - 1)) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="of each kind")
    parser.add_argument("--messages", type=int, default=8_000, help="by each node")
    parser.add_argument("--payload", type=int, default=56, help="bytes")
    options = parser.parse_args()
    logging.getLogger("crdtcast").setLevel(logging.ERROR)  # members end one after the other
    payload = secrets.token_bytes(options.payload)
    took: dict[Kind, list[float]] = {fixed: [], group: []}
    for number in range(options.runs):
        for kind in (fixed, group) if number % 2 else (group, fixed):
            took[kind].append(trio.run(measure, kind, options.messages, payload))
    for kind, each in took.items():
        print(
            f"{kind.__name__:>6}: median {statistics.median(each):.1f} us of CPU a delivery, "
            f"{min(each):.1f} to {max(each):.1f}"
        )
    ratios = [ours / theirs for ours, theirs in zip(took[group], took[fixed], strict=True)]
    medians = statistics.median(took[group]) / statistics.median(took[fixed])
    print(
        f"ratio of the medians {medians:.3f}, median of the ratios {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
