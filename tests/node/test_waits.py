"""Delivered by k, quorum-stable over k, stable: three notices, each with its own meaning."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import Delivered, LocalProtocolError, Member, Tag, open_member
from tests.node.group_support import founded

Wait = Callable[[], Awaitable[None]]


async def drain(node: Member) -> None:
    async for _ in node:
        pass


async def take(node: Member, payload: bytes) -> Tag:
    async for event in node:
        if isinstance(event, Delivered) and event.payload == payload:
            return event.tag
    raise AssertionError("the events ended")


class Notices:
    """Which of several waits have returned."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.come: set[str] = set()
        self._nursery = nursery

    def expect(self, name: str, wait: Wait) -> trio.Event:
        done = trio.Event()

        async def run() -> None:
            await wait()
            self.come.add(name)
            done.set()

        self._nursery.start_soon(run)
        return done


def test_absent_member_delays_only_waits_that_need_it() -> None:
    async def main() -> None:
        async with (
            founded(*"abc", digest_interval=0.01) as (a, b, c),
            trio.open_nursery() as nursery,
        ):
            for other in "ab":
                c.cut(other)
            nursery.start_soon(drain, b)
            tag = a.tcbroadcast(b"x")
            notices = Notices(nursery)
            all_took = notices.expect("3 delivered", lambda: a.wait_delivered(tag, count=3))
            over_all = notices.expect("3 stable", lambda: a.wait_quorum_stable(tag, count=3))
            stable = notices.expect("stable", lambda: a.wait_stable(tag))
            await a.wait_delivered(tag, count=1)
            await a.wait_delivered(tag, count=2)
            await a.wait_quorum_stable(tag, count=2)
            assert notices.come == set()
            for other in "ab":
                c.heal(other)
            nursery.start_soon(drain, c)
            for event in (all_took, over_all, stable):
                await event.wait()
            await a.wait_stable(tag)  # what holds already is said at once
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_quorum_stability_waits_for_concurrent_messages() -> None:
    async def main() -> None:
        async with (
            founded(*"abc", digest_interval=0.01) as (a, b, _),
            trio.open_nursery() as nursery,
        ):
            b.tcbroadcast(b"y")
            tag = a.tcbroadcast(b"x")
            notices = Notices(nursery)
            over_two = notices.expect("stable over 2", lambda: a.wait_quorum_stable(tag, count=2))
            assert tag == await take(b, b"x")
            # a has not taken y yet, which b had sent before it took x.
            await a.wait_delivered(tag, count=2)
            assert notices.come == set()
            assert (await take(a, b"y")).concurrent(tag)
            await over_two.wait()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_count_above_the_group_size_is_refused() -> None:
    async def main() -> None:
        async with open_member("a", found=True) as a:
            tag = a.tcbroadcast(b"x")
            for count in (0, 2, 1.5, "1"):
                with pytest.raises(LocalProtocolError, match="choose a count from 1 to 1"):
                    await a.wait_delivered(tag, count=count)
                with pytest.raises(LocalProtocolError, match="choose a count from 1 to 1"):
                    await a.wait_quorum_stable(tag, count=count)
            await a.wait_delivered(tag, count=1)
            await a.wait_stable(tag)

    trio.run(main)


def test_what_is_no_tag_is_refused_before_any_effect() -> None:
    async def main() -> None:
        async with open_member("a", found=True) as a:
            wrong: Any = "a:1"
            with pytest.raises(LocalProtocolError, match="'a:1' is not a tag"):
                await a.wait_delivered(wrong, count=1)
            with pytest.raises(LocalProtocolError, match="'a:1' is not a tag"):
                await a.wait_stable(wrong)
            with pytest.raises(LocalProtocolError, match="'a:1' is not a tag"):
                a.tcbroadcast(b"x", after=[wrong])
            with pytest.raises(LocalProtocolError, match="a format level is a number, not '2'"):
                a.raise_level("2")  # type: ignore[arg-type]
            with pytest.raises(LocalProtocolError, match="level to of 16610 bits: not all"):
                a.raise_level(10**5000)
            await a.wait_delivered(a.tcbroadcast(b"x"), count=1)
            assert a.engine.vector == {a.incarnation: 1}

    trio.run(main)


def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    async def main() -> None:
        async with founded("a", "b") as (a, _):
            tags = [a.tcbroadcast(b"x") for _ in range(3)]
            async with trio.open_nursery() as nursery:
                for tag in tags:
                    nursery.start_soon(a.wait_stable, tag)
                await trio.testing.wait_all_tasks_blocked()
                assert a.waiting == 3
                nursery.cancel_scope.cancel()
            assert a.waiting == 0

    trio.run(main)
