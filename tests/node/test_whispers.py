"""Whispers between replicas: over links in memory that a test drives, and over real sockets."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from crdtcast import EndedError, LocalProtocolError, Replica, Whisper, open_replica
from crdtcast.datatypes import AWSet, PNCounter
from crdtcast.engine.whispers import MAX_WHISPER, WhisperFrame
from crdtcast.testing import Network, eventually, simulated
from crdtcast.transport.peers import LinkPhase
from crdtcast.wire.fields import FrameKind
from crdtcast.wire.frames import encode
from crdtcast.wire.group_frames import Grouped


@asynccontextmanager
async def replicas(*names: str, **options: Any) -> AsyncIterator[list[Replica]]:
    """Of one group, all linked."""
    async with AsyncExitStack() as stack:
        opened: list[Replica] = []
        for name in names:
            how = {"join": opened[0].address} if opened else {"found": True}
            opened.append(await stack.enter_async_context(open_replica(name, **how, **options)))
        for each in opened:
            await eventually(lambda each=each: _is_linked(each, len(names) - 1))
        yield opened


def _is_linked(replica: Replica, peers: int) -> bool:
    up = [link.state is LinkPhase.UP for link in replica.links().values()]
    return len(up) == peers and all(up)


def whispers_sent(sender: Replica, receiver: str) -> int:
    """How many frames with whispers its link was given."""
    traffic = sender.member.channel.shared.links().traffic(receiver)
    return traffic.sent_frames[FrameKind.WHISPER]


async def hears(replica: Replica, *wanted: Whisper, topics: tuple[str, ...] = ()) -> list[Whisper]:
    """All that a new listener is told until it has been told these."""
    missing, told = set(wanted), []
    with trio.fail_after(60):
        async for whisper in replica.whispers(*topics):
            told.append(whisper)
            missing.discard(whisper)
            if not missing:
                break
    return told


def test_whispers_over_real_sockets_reach_all_linked_replicas() -> None:
    async def main() -> None:
        async with replicas("a", "b", "c") as (a, b, c):
            a.whisper("cursors", b"1")
            b.whisper("cursors", bytes(MAX_WHISPER))
            await hears(
                c, Whisper("a", "cursors", b"1"), Whisper("b", "cursors", bytes(MAX_WHISPER))
            )
            await hears(b, Whisper("a", "cursors", b"1"))
            assert not a.listener("other").has_news
            a.whisper("cursors", b"")
            told: list[Whisper] = []
            stop = c.on_whisper(told.append, "cursors")
            await eventually(lambda: any(each.sender == "b" for each in told))
            b.whisper("cursors", b"2")
            await eventually(lambda: Whisper("b", "cursors", b"2") in told)
            stop()
            tag = await a.object("cart", AWSet).add("milk")
            await a.member.wait_stable(tag)
            assert whispers_sent(a, "b") == 2

    trio.run(main)


@simulated
async def test_replica_that_is_linked_later_hears_what_is_in_force() -> None:
    with Network() as network:
        async with replicas("a", "b") as (a, b):
            a.whisper("x", b"1", seconds=3600)
            a.whisper("y", b"2", seconds=5)
            async with open_replica("c", join=b.address) as c:
                assert {w.topic for w in await hears(c, Whisper("a", "x", b"1"))} <= {"x", "y"}
            ear = b.whispers("x")
            assert await anext(ear) == Whisper("a", "x", b"1")
            network.cut("b")
            assert await anext(ear) == Whisper("a", "x", b"")
            await trio.sleep(10)
            network.heal()
            told = await hears(b, Whisper("a", "x", b"1"))
            assert {whisper.topic for whisper in told} == {"x"}


@simulated
async def test_whisper_expires_and_is_told_as_over() -> None:
    with Network():
        async with replicas("a", "b") as (a, b):
            ear = b.whispers("x")
            a.whisper("x", b"1", seconds=2)
            began = trio.current_time()
            assert await anext(ear) == Whisper("a", "x", b"1")
            assert await anext(ear) == Whisper("a", "x", b"")
            assert 2 <= trio.current_time() - began < 4
            for _ in range(10):  # said again in time, it lives on
                a.whisper("x", b"1", seconds=2)
                await trio.sleep(1)
            assert [w.payload async for w in _until_quiet(ear)] == [b"1"]


async def _until_quiet(ear: AsyncIterator[Whisper]) -> AsyncIterator[Whisper]:
    with trio.move_on_after(0.1):
        async for whisper in ear:
            yield whisper


@simulated
async def test_slow_link_carries_the_latest_whisper_of_each_topic() -> None:
    with Network(buffer_bytes=100_000) as network:
        async with replicas("a", "b", "c") as (a, b, c):
            network.line("a", "b").bytes_per_second = 1e-3
            for number in range(3000):
                a.whisper(f"topic-{number % 4}", b"%04d" % number + bytes(50_000), seconds=3600)
                if number % 100 == 0:
                    await trio.sleep(0.01)
            for number in range(2996, 3000):
                topic, payload = f"topic-{number % 4}", b"%04d" % number + bytes(50_000)
                await hears(c, Whisper("a", topic, payload))
            # The link holds frames for no more than its buffer and what it was about to write.
            assert a.links()["b"].queued_bytes < 400_000
            assert a.links()["b"].dropped_frames == a.links()["b"].dropped_whispers == 0
            tag = await c.object("n", PNCounter).increment()
            await c.member.wait_delivered(tag, count=3)
            network.line("a", "b").bytes_per_second = None
            assert b.held.get(("n", PNCounter.TYPE)) is not None


@simulated
async def test_whispers_are_told_late_or_never_and_nothing_waits() -> None:
    with Network() as network:
        async with replicas("a", "b", seed=3) as (a, b):
            line = network.line("a", "b")
            line.hold()
            a.whisper("x", b"1")
            a.whisper("y", b"2")
            await eventually(lambda: whispers_sent(a, "b") == 2)
            a.whisper("x", b"3")
            await eventually(lambda: whispers_sent(a, "b") == 3)
            while line.waiting:
                line.deliver(line.waiting - 1)
            told = await hears(b, Whisper("a", "x", b"3"))
            assert Whisper("a", "x", b"1") not in told
            line.flow()
            network.silence("a", "b")
            a.whisper("x", b"4")
            tag = await b.object("n", PNCounter).increment()
            network.heal()
            await b.member.wait_stable(tag)


@simulated
async def test_bad_whisper_costs_its_sender_the_link(caplog: pytest.LogCaptureFixture) -> None:
    with Network():
        async with replicas("a", "b", "c") as (a, b, c):
            link = a.member.channel.shared.links().up["b"]
            number = a.member.channel.number
            bad = Grouped(number, WhisperFrame(1, "x", 0, b"1"))
            link.offer(FrameKind.WHISPER, encode(bad))
            with caplog.at_level(logging.ERROR):
                await eventually(lambda: link.closed is not None)
            assert "that lasts 0 ms" in caplog.text
            c.whisper("x", b"2")
            await hears(b, Whisper("c", "x", b"2"))
            tag = await c.object("n", PNCounter).increment()
            await c.member.wait_delivered(tag, count=3)


@simulated
async def test_listeners_end_with_their_replica() -> None:
    with Network():
        ended = 0
        async with replicas("a", "b") as (a, b), trio.open_nursery() as nursery:

            async def listen() -> None:
                nonlocal ended
                with suppress(EndedError):
                    while True:
                        await anext(b.whispers())
                ended += 1

            nursery.start_soon(listen)
            await trio.sleep(1)
            await b.member.leave()
        assert ended == 1
        for call in (lambda: b.whisper("x", b""), b.listener):
            with pytest.raises(EndedError):
                call()
        assert a.name == "a"


@simulated
async def test_a_whisper_beyond_the_limits_is_refused_at_once() -> None:
    with Network():
        async with replicas("a") as (a,):
            with pytest.raises(LocalProtocolError, match="at most 65,536 bytes"):
                a.whisper("x", bytes(MAX_WHISPER + 1))
            a.whisper("x", b"alone")  # to nobody


@simulated
async def test_callback_that_fails_hears_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with Network():
        async with replicas("a", "b") as (a, b):
            heard = []

            def callback(whisper: Whisper) -> None:
                heard.append(whisper)
                raise ValueError("broken")

            b.on_whisper(callback)
            a.whisper("x", b"1")
            await hears(b, Whisper("a", "x", b"1"))
            await eventually(lambda: "told no more" in caplog.text)
            a.whisper("x", b"2")
            await hears(b, Whisper("a", "x", b"2"))
            assert len(heard) == 1
