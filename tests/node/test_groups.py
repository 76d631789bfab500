"""Several groups over one set of links: one connection a pair, no causality between groups."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    Delivered,
    GroupLinks,
    GroupNode,
    LocalProtocolError,
    Tag,
    open_group,
    open_links,
)


@asynccontextmanager
async def processes(*names: str) -> AsyncIterator[list[GroupLinks]]:
    async with AsyncExitStack() as stack:
        started: dict[str, GroupLinks] = {}
        for name in names:
            peers = {n: started[n].address for n in started}
            started[name] = await stack.enter_async_context(open_links(name, peers=peers))
        with trio.fail_after(60):
            yield list(started.values())


async def take(node: GroupNode, count: int) -> list[tuple[bytes, Tag]]:
    got = []
    async for event in node:
        if isinstance(event, Delivered):
            got.append((event.payload, event.tag))
            if len(got) == count:
                break
    return got


def test_two_groups_share_one_connection_and_no_causality() -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b):
            orders = [links.group("orders", members=["a", "b"]) for links in (a, b)]
            chat = [links.group("chat", members=["a", "b"]) for links in (a, b)]
            first = orders[0].tcbroadcast(b"order")
            [(payload, tag)] = await take(orders[1], 1)
            assert (payload, tag) == (b"order", first)
            second = chat[1].tcbroadcast(b"hello")
            assert second.context == (), "a message of one group depends on one of another"
            [(payload, tag)] = await take(chat[0], 1)
            assert (payload, tag) == (b"hello", second)
            await orders[0].wait_stable(first)
            await chat[1].wait_stable(second)
            assert len(a.shared.links().up) == len(b.shared.links().up) == 1
            assert a.links()["b"].reconnects == b.links()["a"].reconnects == 0
            assert set(orders[0].links()) == {"b"}

    trio.run(main)


def test_a_group_may_have_fewer_members_than_there_are_processes() -> None:
    async def main() -> None:
        async with processes("a", "b", "c") as (a, b, c):
            every = [links.group("all", members="abc") for links in (a, b, c)]
            pair = [links.group("pair", members="ab") for links in (a, b)]
            tag = pair[0].tcbroadcast(b"between us")
            await take(pair[1], 1)
            await pair[0].wait_stable(tag)
            news = every[2].tcbroadcast(b"to all")
            await take(every[0], 1)
            await take(every[1], 1)
            await every[2].wait_stable(news)
            assert c.shared.links().traffic("a").dropped_frames == 0

    trio.run(main)


def test_a_group_that_the_other_side_lacks_is_no_error_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with processes("a", "b") as (a, b):
            lonely = a.group("later", members="ab")
            tag = lonely.tcbroadcast(b"kept for b")
            both = [links.group("both", members="ab") for links in (a, b)]
            for _ in range(20):
                await both[0].wait_delivered(both[0].tcbroadcast(b"x"), count=1)
            await take(both[1], 20)
            said = [r for r in caplog.records if "has group 'later'" in r.getMessage()]
            assert len(said) == 1
            late = b.group("later", members="ab")
            assert [payload for payload, _ in await take(late, 1)] == [b"kept for b"]
            await lonely.wait_stable(tag)

    trio.run(main)


def test_a_process_that_is_no_member_is_kept_out_of_the_group_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b):
            a.group("closed", members=["a", "x"])
            b.group("closed", members=["a", "b"])
            both = [links.group("both", members="ab") for links in (a, b)]
            tag = both[0].tcbroadcast(b"unharmed")
            await take(both[1], 1)
            await both[0].wait_stable(tag)
            lines = [r.getMessage() for r in caplog.records]
            assert any("'closed': b is kept out" in line for line in lines)
            assert any("a keeps us out" in line and "same list of names" in line for line in lines)

    trio.run(main)


def test_closing_a_group_leaves_the_others_alone() -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b):
            one = [links.group("one", members="ab") for links in (a, b)]
            two = [links.group("two", members="ab") for links in (a, b)]
            one[0].tcbroadcast(b"x")
            await take(one[1], 1)
            one[1].close()
            async for _ in one[1]:  # what was still to be said, and then it ends
                pass
            tag = two[0].tcbroadcast(b"y")
            await take(two[1], 1)
            await two[0].wait_stable(tag)
            assert one[0].links() == {}

    trio.run(main)


def test_what_cannot_be_is_one_clear_line(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with processes("a") as [a]:
            a.group("orders", members="a")
            with pytest.raises(LocalProtocolError, match="has opened group 'orders' already"):
                a.group("orders", members="a")
            with pytest.raises(ConfigurationError, match="is no name for a group"):
                a.group("or ders", members="a")
            async with open_group("b", founders={"b": None, "a": a.address}) as b:
                with trio.fail_after(30):
                    while b.links()["a"].state != "refused":  # noqa: ASYNC110
                        await trio.sleep(0.01)
                assert "carry several groups, those of 'b' just one" in str(b.links()["a"].error)

    trio.run(main)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_who_listens_on_a_wildcard_and_says_no_address_is_warned(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_links("a", listen=f"{host}:0"):
            pass
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2
        assert "say with advertise='HOST:PORT' which one" in said[0] + said[1]
        assert "give certificates or a shared secret" in said[0] + said[1]
        caplog.clear()
        async with open_links("a", listen=f"{host}:0", advertise="10.0.0.1:7000"):
            pass
        assert "advertise" not in caplog.text
        assert "give certificates or a shared secret" in caplog.text
        caplog.clear()
        async with open_links("a", listen=f"{host}:0", advertise="h:1", secrets=(b"x" * 16,)):
            pass
        assert not caplog.records

    caplog.set_level(logging.WARNING)
    trio.run(main)
