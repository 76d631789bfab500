"""Leaves of members on a simulated network, under load and all at once."""

import trio

from crdtcast import Member
from crdtcast.engine import Standing
from crdtcast.testing import simulated
from tests.node.group_support import world


@simulated
async def test_leave_is_done_while_all_others_go_on_writing() -> None:
    """What the leaver has grows all the time: the others have all of it only if it takes nothing for a while."""
    async with world("a", "b", "c", "d", "e") as group, trio.open_nursery() as nursery:

        async def write(member: Member) -> None:
            while True:
                member.tcbroadcast(b"x")
                await trio.sleep(0.02)

        b = group.up["b"].member
        for name in "acde":
            nursery.start_soon(write, group.up[name].member)
        await trio.sleep(5)
        b.tcbroadcast(b"last words")
        with trio.fail_after(30):
            await b.leave()
        for name in "acde":
            await group.up[name].ledger.has(b"last words")
        nursery.cancel_scope.cancel()


@simulated
async def test_all_leave_at_once_with_messages_under_way() -> None:
    async with world("a", "b", "c", "d", "e") as group, trio.open_nursery() as nursery:
        for host in group.up.values():
            host.member.tcbroadcast(host.name.encode())
            nursery.start_soon(host.member.leave)
    assert all(host.member.standing is Standing.LEFT for host in group.up.values())
