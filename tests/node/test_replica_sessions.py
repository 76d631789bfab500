"""Session tokens: a client that goes from one replica to another does not go back in time."""

from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import LocalProtocolError, Token, UnusableInputError, open_replica
from crdtcast.causality.tags import Dot
from crdtcast.datatypes import AWSet

from .replica_support import isolate, rejoin, replicas, settle


def test_a_client_reads_its_writes_at_another_replica() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            for number in range(50):
                await eu.object("cart", AWSet).add(number)
            cookie = str(await eu.token())
            await us.at_least(Token.parse(cookie))
            assert us.object("cart", AWSet).value == set(range(50))

    trio.run(main)


def test_token_waits_only_for_missing_messages() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, asia = group
            await asia.object("read", AWSet).add("by the client at eu")
            await settle(group)
            before = await eu.token()
            isolate(us, group)
            await eu.object("cart", AWSet).add("milk")
            after = await eu.token()
            await us.at_least(before)
            reached: list[str] = []

            async def wait() -> None:
                await us.at_least(after)
                reached.append("us")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await asia.at_least(after)
                assert reached == []
                assert us.object("cart", AWSet).value == frozenset()
                rejoin(us, group)
            assert us.object("cart", AWSet).value == {"milk"}

    trio.run(main)


def test_token_holds_only_the_causal_frontier() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, *others = group
            for replica in others:  # else who adds may have the others' additions already
                eu.member.cut(replica.name)
                others[0].member.cut(replica.name)
            for replica in group:
                await replica.object("x", AWSet).add(replica.name)
            for replica in others:
                eu.member.heal(replica.name)
                others[0].member.heal(replica.name)
            await settle(group)
            assert len((await eu.token()).dots) == 3
            await eu.object("x", AWSet).add("seen all three")
            assert [dot.origin for dot in (await eu.token()).dots] == [eu.member.incarnation]

    trio.run(main)


def test_tokens_of_two_replicas_merge() -> None:
    one = Token("shop", (Dot("eu.1", 3), Dot("us.1", 1)))
    two = Token("shop", (Dot("eu.1", 2), Dot("us.1", 4)))
    both = one.merged(two)
    assert both == Token("shop", (Dot("eu.1", 3), Dot("us.1", 4)))
    assert Token.parse(str(both)) == both
    with pytest.raises(UnusableInputError, match="group 'bank'"):
        one.merged(Token("bank", ()))


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"kg",
        "\ud800",
        "",
        "!",
        "kg",
        "lAGkc2hvcJA",
        "€",
        str(Token("g", ()))[:-1] + "=",
        "kwIB",
        "kwGhZ5GSAQE",
    ],
)
def test_invalid_token_is_refused(text: Any) -> None:
    with pytest.raises(UnusableInputError, match="is not a session token"):
        Token.parse(text)


def test_token_of_another_group_is_refused() -> None:
    async def main() -> None:
        async with open_replica("a", found=True, group="bank") as bank:
            with pytest.raises(UnusableInputError, match="belongs to group"):
                await bank.at_least(Token("shop", ()))
            text: Any = str(await bank.token())
            with pytest.raises(LocalProtocolError, match="is not a token"):
                await bank.at_least(text)

    trio.run(main)
