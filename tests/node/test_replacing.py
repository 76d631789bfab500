"""A new machine in the place of one that is lost, by the operator's word at the joiner."""

import pytest
import trio

from crdtcast import HandshakeError
from crdtcast.causality.member_id import base_of
from crdtcast.testing import eventually, simulated
from tests.node.fixed import incarnation
from tests.node.group_support import members_are, world


@simulated
async def test_joiner_replaces_a_dead_member_of_another_name() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        b.member.tcbroadcast(b"said before")
        await a.ledger.has(b"said before")
        late = await group.start("d", "a")
        with pytest.raises(HandshakeError, match="a still hears b: stop it before another node"):
            await late.join(replaces=["b"])
        with pytest.raises(HandshakeError, match="cannot replace x: not a member"):
            await late.join(replaces=["x", incarnation("d")])
        with pytest.raises(HandshakeError, match="a still hears a"):
            await late.join(replaces=["a"])
        group.crash(b.name)
        await eventually(lambda: "b" not in a.member.links())
        # No majority is needed: whoever takes b's place stands for it.
        await late.join(replaces=["b"])
        for host in (a, late):
            await members_are(host.member, "a", "d")
            await host.ledger.has(b"said before")
            await host.ledger.settled()


@simulated
async def test_joiner_replaces_several_dead_members() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        group.crash(b.name)
        group.crash(c.name)
        await eventually(lambda: not a.member.links().keys() & {"b", "c"})
        late = await group.start("d", "a")
        await late.join(replaces=["b", c.member.incarnation], replace=True)
        for host in (a, late):
            await members_are(host.member, "a", "d")
        await a.member.wait_stable(a.member.tcbroadcast(b"x"))


@simulated
async def test_replacement_that_died_after_its_join_may_join_again() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        group.crash(b.name)
        await eventually(lambda: "b" not in a.member.links())
        first = await group.start("d", "a")
        await first.join(replaces=["b"])
        await eventually(lambda: a.member.engine.quiet)
        group.crash(first.name)
        await eventually(lambda: "d" not in a.member.links())
        again = await group.start("d", "a")
        with pytest.raises(HandshakeError, match="cannot replace b: not a member"):
            await again.join(replaces=["b"])
        await again.join(replaces=["b", base_of(first.member.incarnation)])
        await members_are(a.member, "a", "d")


@simulated
async def test_joiner_asks_every_member_while_some_cannot_admit_it() -> None:
    """a and c have joined while b was down, and wait for it: only z, the last by name, can admit b's replacement."""
    async with world("z", "b") as group:
        z = group.up["z"]
        group.crash("b")
        for name in ("a", "c"):
            await (await group.start(name, "z")).join()
        again = await group.start("b", "a", "c", "z")
        with trio.fail_after(60):
            await again.join(replace=True)
        await members_are(z.member, "a", "b", "c", "z")
