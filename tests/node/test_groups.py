"""Several groups over one set of links: one connection a pair, no causality between groups."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    Delivered,
    Host,
    LocalProtocolError,
    Member,
    Tag,
    open_host,
)


@asynccontextmanager
async def processes(*names: str) -> AsyncIterator[list[Host]]:
    async with AsyncExitStack() as stack:
        started: dict[str, Host] = {}
        for name in names:
            peers = {n: started[n].address for n in started}
            started[name] = await stack.enter_async_context(open_host(name, peers=peers))
        with trio.fail_after(60):
            yield list(started.values())


async def founded(group: str, those: Sequence[Host]) -> list[Member]:
    """Members of a group that these processes have founded."""
    names = [links.name for links in those]
    members = [links.found(group, founders=names) for links in those]
    for member in members:
        await member.ready()
    return members


async def take(member: Member, count: int) -> list[tuple[bytes, Tag]]:
    got = []
    async for event in member:
        if isinstance(event, Delivered):
            got.append((event.payload, event.tag))
            if len(got) == count:
                break
    return got


def test_two_groups_share_one_connection_and_no_causality() -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b):
            orders, chat = await founded("orders", (a, b)), await founded("chat", (a, b))
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


def test_group_may_span_only_some_of_the_hosts() -> None:
    async def main() -> None:
        async with processes("a", "b", "c") as (a, b, c):
            every, pair = await founded("all", (a, b, c)), await founded("pair", (a, b))
            tag = pair[0].tcbroadcast(b"between us")
            await take(pair[1], 1)
            await pair[0].wait_stable(tag)
            news = every[2].tcbroadcast(b"to all")
            await take(every[0], 1)
            await take(every[1], 1)
            await every[2].wait_stable(news)
            assert c.shared.links().traffic("a").dropped_frames == 0

    trio.run(main)


def test_group_unknown_to_the_peer_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with processes("a", "b") as (a, b):
            lonely = a.found("later")
            tag = lonely.tcbroadcast(b"before b comes")
            both = await founded("both", (a, b))
            for _ in range(20):
                await both[0].wait_delivered(both[0].tcbroadcast(b"x"), count=1)
            await take(both[1], 20)
            said = [r for r in caplog.records if "is in group 'later'" in r.getMessage()]
            assert len(said) == 1
            late = await b.join("later")
            await lonely.wait_stable(tag)
            lonely.tcbroadcast(b"to b")
            assert [payload for payload, _ in await take(late, 1)] == [b"to b"]

    trio.run(main)


def test_two_groups_of_one_name_exclude_each_other_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b):
            a.found("twice")
            b.found("twice")
            both = await founded("both", (a, b))
            tag = both[0].tcbroadcast(b"unharmed")
            await take(both[1], 1)
            await both[0].wait_stable(tag)
            lines = [r.getMessage() for r in caplog.records]
            assert any("'twice': b is excluded: two different groups" in line for line in lines)
            assert any(
                "'twice': b excludes this node: two different groups" in line for line in lines
            )

    trio.run(main)


def test_leaving_a_group_leaves_the_others_alone() -> None:
    async def main() -> None:
        async with processes("a", "b") as (a, b), trio.open_nursery() as nursery:
            one, two = await founded("one", (a, b)), await founded("two", (a, b))
            one[0].tcbroadcast(b"x")
            await take(one[1], 1)
            nursery.start_soon(take, one[0], 1)  # takes what the group decides about the leave
            nursery.start_soon(take, one[1], 1)
            await one[1].leave()
            tag = two[0].tcbroadcast(b"y")
            await take(two[1], 1)
            await two[0].wait_stable(tag)
            assert one[0].links() == {}
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_invalid_use_is_refused_with_one_clear_line() -> None:
    async def main() -> None:
        async with processes("a") as [a]:
            a.found("orders")
            with pytest.raises(LocalProtocolError, match="has already opened group 'orders'"):
                a.found("orders")
            with pytest.raises(ConfigurationError, match="invalid group name"):
                a.found("or ders")

    trio.run(main)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_wildcard_listen_without_advertise_is_warned(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_host("a", listen=f"{host}:0"):
            pass
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 2
        assert "set advertise='HOST:PORT'" in said[0] + said[1]
        assert "use certificates or a shared secret" in said[0] + said[1]
        caplog.clear()
        async with open_host("a", listen=f"{host}:0", advertise="10.0.0.1:7000"):
            pass
        assert "advertise" not in caplog.text
        assert "use certificates or a shared secret" in caplog.text
        caplog.clear()
        async with open_host("a", listen=f"{host}:0", advertise="h:1", secrets=(b"x" * 16,)):
            pass
        assert not caplog.records

    caplog.set_level(logging.WARNING)
    trio.run(main)
