"""A leave that is cut short has not succeeded: what the leaver had sent is in its journal, and is sent from there."""

import pytest
import trio

from crdtcast import EndedError, Member
from crdtcast.causality.messages import Digest, Ended, Message
from crdtcast.engine import Standing
from crdtcast.engine.views import Views
from crdtcast.journal.restart_decision import may_have_left
from crdtcast.testing import Cluster, eventually, simulated
from tests.journal.test_members import calm, country
from tests.node.group_support import LedgerHost, members_are, start_member


async def leave_in_vain(group: Cluster[LedgerHost], payload: bytes, name: str = "b") -> None:
    """This member sends this and leaves, and nobody hears of it before its time is up."""
    leaver = group.up[name].member
    group.network.cut(name)
    leaver.tcbroadcast(payload)
    with trio.move_on_after(300) as scope:
        await leaver.leave()
    assert scope.cancelled_caught
    assert leaver.standing is Standing.LEAVING
    group.crash(name)
    assert group.up["a"].ledger.payloads == []


@simulated
@pytest.mark.parametrize("is_evicted", [False, True])
async def test_restarted_leaver_hands_over_its_messages(is_evicted: bool) -> None:
    """Nobody has heard of its leave: it goes on as it was, unless the others have evicted it."""
    async with country("a", "b", "c") as group:
        old = group.up["b"].member.incarnation
        await leave_in_vain(group, b"x")
        if is_evicted:
            group.up["a"].member.evict("b")
            await members_are(group.up["a"].member, "a", "c")
        group.network.heal()
        await start_member(group, "b")
        await calm(group, b"x")
        assert (group.up["b"].member.incarnation == old) is not is_evicted
        assert not group.up["b"].member.engine.wants.leaves


@simulated
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_members_whose_leaves_were_all_cut_short_go_on(names: str) -> None:
    async with country(*names) as group:
        old = [group.up[name].member.incarnation for name in names]
        for name in names:
            group.network.cut(name)
        for name in names:
            group.up[name].member.tcbroadcast(name.encode())
            with trio.move_on_after(60):
                await group.up[name].member.leave()
            assert not group.up[name].member.has_left
            group.crash(name)
        group.network.heal()
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(start_member, group, name)
        await calm(group, *(name.encode() for name in names))
        assert [group.up[name].member.incarnation for name in names] == old


@simulated
async def test_restarted_leavers_let_another_one_leave() -> None:
    async with country("a", "b", "c") as group:
        for name in "bc":
            await leave_in_vain(group, name.encode(), name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.up["a"].member.leave)
            await eventually(lambda: group.up["a"].member.standing is Standing.LEAVING)
            group.network.heal()
            for name in "bc":
                nursery.start_soon(start_member, group, name)
        del group.up["a"]
        await calm(group, b"b", b"c")


@simulated
async def test_leaver_that_has_put_it_to_the_vote_joins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its ballot may have been decided without its knowledge, so its incarnation sends nothing more."""
    async with country("a", "b", "c") as group:
        b = group.up["b"].member
        old = b.incarnation
        await eventually(lambda: len(b.engine.view.voters) == 3)
        for name in "ac":
            deafen(group.up[name].member)

        def has_promises() -> bool:
            """So its ballot is durable."""
            record = b.engine.state().record
            return bool(record and record.proposal and record.proposal.change)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.leave)
            await eventually(has_promises)
            nursery.cancel_scope.cancel()
        assert not b.has_left
        group.crash("b")
        for name in "ac":
            hears_again(group.up[name].member)
        await start_member(group, "b")
        assert "does not know the answer" in caplog.text
        await calm(group)
        assert group.up["b"].member.incarnation != old


@simulated
async def test_members_that_may_all_have_left_say_that_nobody_is_left() -> None:
    async with country("a", "b") as group:
        members = [group.up[name].member for name in "ab"]
        await eventually(lambda: all(len(m.engine.view.voters) == 2 for m in members))
        for member in members:
            deafen(member)
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.leave)
            await eventually(lambda: all(may_have_left(m.engine.state()) for m in members), 3600)
            await trio.sleep(1)  # so that this is durable
            nursery.cancel_scope.cancel()
        assert not any(member.has_left for member in members)
        for name in "ab":
            group.crash(name)
        async with trio.open_nursery() as nursery:
            for name in "ab":
                nursery.start_soon(start_member, group, name)
            await eventually(lambda: hasattr(group.up.get("a"), "member"))
            a = group.up["a"].member
            why = "no process linked with 'a' (b) is a member of group 'g' now: start a member"
            await eventually(lambda: (a.kept_out or "").startswith(why))
            nursery.cancel_scope.cancel()


@simulated
async def test_pending_resends_go_out_before_the_leave() -> None:
    async with country("a", "b", "c") as group:
        b = group.up["b"].member
        group.network.cut("b")
        old = b.incarnation
        payloads = [b"%03d" % number for number in range(100)]
        for payload in payloads:
            b.tcbroadcast(payload)
        await b.wait_durable()
        group.up["a"].member.evict("b")
        await members_are(group.up["a"].member, "a", "c")
        group.network.heal()
        while b.incarnation == old:
            await b.changed()
        assert b.parked is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.leave)
            for _ in range(2):  # so that it has begun
                await trio.lowlevel.checkpoint()
            assert b.parked is not None
            with pytest.raises(EndedError, match="is leaving group"):
                b.tcbroadcast(b"too late")
        assert b.standing is Standing.LEFT
        assert group.up["a"].ledger.payloads == payloads


def deafen(member: Member) -> None:
    """It does not hear of what it is asked to accept, nor of what is decided, until `hears_again`."""
    engine, receive = member.engine, member.engine.receive

    def hears(sender: str, frame: Message | Digest | Ended | Views) -> None:
        records = frame.records if isinstance(frame, Views) else ()
        asks = any(r.accepted or (r.proposal and r.proposal.change) for r in records)
        if not (isinstance(frame, Views) and (frame.decided or asks)):
            receive(sender, frame)

    engine.receive = hears  # type: ignore[method-assign]


def hears_again(member: Member) -> None:
    del member.engine.receive


async def leave_unconfirmed(group: Cluster[LedgerHost]) -> str:
    """It is decided that b has left, c does not know, and b's time is up. Who b was."""
    a, b, c = (group.up[name].member for name in "abc")
    await eventually(lambda: len(a.engine.view.voters) == 3)
    b.tcbroadcast(b"x")
    await group.up["c"].ledger.has(b"x")
    deafen(c)
    with trio.move_on_after(5) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.leave)
            await eventually(lambda: b.has_left)
            group.network.cut("c")
    assert scope.cancelled_caught and b.has_left
    assert a.engine.view.epoch > c.engine.view.epoch
    group.crash("b")
    return b.incarnation


@simulated
async def test_unconfirmed_leaver_asks_first_then_joins_again() -> None:
    async with country("a", "b", "c") as group, trio.open_nursery() as nursery:
        old = await leave_unconfirmed(group)
        a, c = group.up["a"].member, group.up["c"].member
        for _ in range(2):  # it is stopped meanwhile, and still asks
            with trio.move_on_after(5) as scope:
                await start_member(group, "b")
            assert scope.cancelled_caught
            assert a.channel.here["b"] == old and a.engine.view.epoch > c.engine.view.epoch
            group.crash("b")
        nursery.start_soon(start_member, group, "b")
        await trio.sleep(1)
        hears_again(c)
        group.network.heal()
        await eventually(lambda: a.channel.here.get("b", old) != old)
        await eventually(lambda: len(a.engine.view.voters) == 3)
        assert (
            group.up["b"].member.standing is Standing.MEMBER
            and group.up["b"].member.incarnation != old
        )
        await calm(group, b"x")
