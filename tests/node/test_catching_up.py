"""A member that has missed much comes back: what others do for it is done in small pieces, with turns for
everybody else in between. Counted, not timed; `benchmarks/catchup.py` has the figures.
"""

import trio
import trio.testing

from crdtcast.testing import eventually, simulated
from crdtcast.transport.endpoint import Endpoint
from crdtcast.transport.engine_driver import REPAIR_AT_ONCE, SENT_AT_ONCE
from crdtcast.transport.link import AT_ONCE
from crdtcast.wire.frames import FrameKind
from tests.journal.test_members import country
from tests.node.fixed import Member, group

MISSED = 10_000
AT_MOST = 2 * REPAIR_AT_ONCE
"""Messages in one step: a digest and a tick may come together."""


class Steps(trio.abc.Instrument):
    """The most that one step of a task queues for a peer, and hands on from its peers."""

    def __init__(self, node: Endpoint, peer: str) -> None:
        self.queued = self.waiting = self.turns = 0
        self._node = node
        self._peer = peer
        self._before = 0

    def _sent(self) -> int:
        return self._node.links().traffic(self._peer).sent_frames[FrameKind.MESSAGE]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = self._sent()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        queued = self._sent() - self._before
        self.turns += queued > 0
        self.queued = max(self.queued, queued)
        link = self._node.links().up.get(self._peer)
        if link is not None:
            self.waiting = max(self.waiting, link.queue.queued_bytes)


async def miss(members: dict[str, Member], count: int) -> None:
    """c is cut off while the others send so many."""
    a, b, c = members.values()
    for member in (a, b):
        member.node.cut("c")
    await eventually(lambda: not c.linked())
    for _ in range(count // 100):
        for member in (a, b):
            for _ in range(50):
                member.send(bytes(64))
        await eventually(lambda: a.engine.vector == b.engine.vector)


@simulated
async def test_repairs_are_sent_in_small_pieces() -> None:
    async with group("a", "b", "c", buffer_bytes=0) as (_, members):
        await eventually(lambda: all(len(m.linked()) == 2 for m in members.values()))
        a, b, c = members.values()
        await miss(members, MISSED)
        assert a.engine.counters().unstable == MISSED
        steps = Steps(a.node, "c")
        trio.lowlevel.add_instrument(steps)
        for member in (a, b):
            member.node.heal("c")
        own = 0
        while len(c.delivered) < MISSED:
            a.send(b"meanwhile")
            own += 1
            await trio.sleep(0.01)
        await eventually(lambda: not a.engine.counters().unstable)
        trio.lowlevel.remove_instrument(steps)
        assert len({dot for dot, _ in c.delivered}) == len(c.delivered) == MISSED + own
        assert c.payloads.count(b"meanwhile") == own
        assert steps.turns >= MISSED / 2 / AT_MOST
        assert steps.queued <= AT_MOST
        assert steps.waiting <= 2 * AT_MOST * (64 + 64)


class Arrivals(trio.abc.Instrument):
    """The most that one step of a task takes from peers, while the application takes nothing."""

    def __init__(self, member: Member) -> None:
        self.most = 0
        self._member = member
        self._before = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = self._member.engine.counters().pending

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self._member.engine.counters().pending - self._before)


@simulated
async def test_arrivals_are_taken_in_small_pieces() -> None:
    async with group("a", "b") as (_, members):
        await eventually(lambda: all(m.linked() for m in members.values()))
        a, b = members.values()
        b.taking = False
        arrivals = Arrivals(b)
        trio.lowlevel.add_instrument(arrivals)
        for _ in range(5000):
            a.engine.send(b"")
        a.node.flush()
        await eventually(lambda: b.engine.counters().pending == 5000)
        trio.lowlevel.remove_instrument(arrivals)
        assert arrivals.most == AT_ONCE


@simulated
async def test_sends_over_busy_links_do_not_pile_up() -> None:
    async with group("a", "b", buffer_bytes=0) as (_, members):
        await eventually(lambda: all(m.linked() for m in members.values()))
        a, b = members.values()
        sent = a.node.links().traffic("b").sent_frames
        for count in range(1, 1001):
            a.engine.send(b"")
            a.node.flush_soon()
            assert count - sent[FrameKind.MESSAGE] < SENT_AT_ONCE
        await eventually(lambda: len(b.delivered) == 1000)


@simulated
async def test_synced_messages_are_sent_in_small_pieces() -> None:
    async with country("a", "b") as world:
        a, b = world.up.values()
        await eventually(lambda: "b" in a.member.channel.here)
        steps = Steps(a.node, "b")
        trio.lowlevel.add_instrument(steps)
        for _ in range(1000):
            a.member.tcbroadcast(b"")
        await eventually(lambda: len(b.ledger.entries) == 1000)
        trio.lowlevel.remove_instrument(steps)
        assert SENT_AT_ONCE // 2 <= steps.queued <= SENT_AT_ONCE
