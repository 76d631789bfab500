"""Members that come and go, over real sockets: join, leave, evict, and the way back."""

from contextlib import AsyncExitStack

import trio

from crdtcast import open_group
from crdtcast.options import format_address
from tests.node.group_support import Ledger, members_are


def test_a_joiner_gets_the_state_and_everybody_goes_on() -> None:
    async def main() -> None:
        ledgers = {name: Ledger() for name in "abc"}
        with trio.fail_after(60):
            async with AsyncExitStack() as stack:
                a = await stack.enter_async_context(
                    open_group("a", found=True, process=ledgers["a"])
                )
                where = format_address(a.address)
                for n in range(20):
                    a.tcbroadcast(b"before %d" % n)
                b = await stack.enter_async_context(
                    open_group("b", join=where, process=ledgers["b"])
                )
                assert ledgers["b"].payloads == ledgers["a"].payloads
                b.tcbroadcast(b"b is in")
                await ledgers["a"].has(b"b is in")
                c = await stack.enter_async_context(
                    open_group("c", join=format_address(b.address), process=ledgers["c"])
                )
                tag = c.tcbroadcast(b"c is in")
                for member, ledger in zip((a, b, c), ledgers.values(), strict=True):
                    await members_are(member, "a", "b", "c")
                    await ledger.has(b"b is in", b"c is in")
                    await ledger.settled()
                await c.wait_stable(tag)
                assert len({tuple(ledger.payloads) for ledger in ledgers.values()}) == 1
                assert set(c.links()) == {"a", "b"}, "members are not linked with each other"

    trio.run(main)
