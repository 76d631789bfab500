"""Crashes, evictions and the way back, on a simulated network and a clock that jumps."""

import pytest
import trio

from crdtcast import Delivered, EndedError, Evicted, HandshakeError, Joined
from crdtcast.engine import Standing
from crdtcast.group.events import Event
from crdtcast.testing import eventually, simulated
from crdtcast.wire.group_frames import Known
from tests.node.group_support import members_are, world


@simulated
async def test_eviction_of_a_dead_member_restores_stability() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        group.crash(c.name)
        tag = a.member.tcbroadcast(b"x")
        await b.ledger.has(b"x")
        await trio.sleep(60)
        assert a.ledger.unstable == {tag.dot}, "stable, though c has not got it"
        b.member.evict("c")
        await members_are(a.member, "a", "b")
        await members_are(b.member, "a", "b")
        await a.member.wait_stable(tag)
        await b.ledger.settled()
        await eventually(lambda: "c" not in a.member.links())


@simulated
async def test_evicted_member_returns_and_resends_missing_messages() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        known = c.member.tcbroadcast(b"known")
        await c.member.wait_stable(known)
        old = c.member.incarnation
        group.network.cut("c")
        lost = c.member.tcbroadcast(b"only at c")
        c.member.tcbroadcast(b"and this")
        a.member.evict("c")
        await members_are(a.member, "a", "b")
        a.member.tcbroadcast(b"meanwhile")
        await b.ledger.has(b"meanwhile")
        await b.ledger.settled()
        group.network.heal()
        for host in (a, b, c):
            await members_are(host.member, "a", "b", "c")
            await host.ledger.has(b"only at c", b"and this", b"meanwhile", b"known")
            await host.ledger.settled()
            assert len(host.ledger.payloads) == 4
        assert c.member.incarnation != old
        assert c.ledger.copies == 2
        assert c.ledger.asked_again == [b"only at c", b"and this"]
        again = [dot for dot, p in a.ledger.entries.items() if dot.origin == c.member.incarnation]
        assert [a.ledger.entries[dot] for dot in again] == [b"only at c", b"and this"]
        with pytest.raises(EndedError, match="is sent again"):
            await c.member.wait_stable(lost)
        await c.member.wait_stable(known)
        await eventually(lambda: c.member.parked is None)
        for host in (a, b, c):
            await eventually(lambda host=host: not host.member.engine.tombs)
            await eventually(lambda host=host: host.member.engine.quiet)


@simulated
async def test_state_machine_decides_what_is_resent() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        c.ledger.yields = {b"overwrite"}
        group.network.cut("c")
        c.member.tcbroadcast(b"overwrite")
        c.member.tcbroadcast(b"add")
        a.member.evict("c")
        await members_are(a.member, "a", "b")
        group.network.heal()
        await a.ledger.has(b"add")
        await eventually(lambda: c.member.parked is None)
        assert c.ledger.asked_again == [b"overwrite", b"add"]
        for host in (a, b, c):
            await eventually(lambda host=host: host.ledger.payloads == [b"add"])


@simulated
async def test_evicted_member_refuses_writes_and_ready_waits() -> None:
    async with world("a", "b", "c") as group:
        a, _, c = group.up.values()
        group.network.cut("c")
        a.member.evict("c")
        await members_are(a.member, "a", "b")
        old = c.member.incarnation
        group.network.heal()
        await eventually(
            lambda: c.member.standing is Standing.EVICTED or c.member.incarnation != old
        )
        if c.member.standing is Standing.EVICTED:
            with pytest.raises(EndedError, match="can no longer send"):
                c.member.tcbroadcast(b"x")
        await c.member.ready()
        await eventually(lambda: c.member.incarnation != old)
        tag = c.member.tcbroadcast(b"back")
        await a.ledger.has(b"back")
        await c.member.wait_stable(tag)


@simulated
async def test_restarted_process_replaces_its_former_member() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        c.member.tcbroadcast(b"said before")
        await a.ledger.has(b"said before")
        group.crash(c.name)
        await eventually(lambda: "c" not in a.member.links() and "c" not in b.member.links())
        again = await group.start("c", "b")
        with pytest.raises(HandshakeError, match="already has a member called c"):
            await again.join()
        await again.join(replace=True)
        for host in (a, b, again):
            await members_are(host.member, "a", "b", "c")
            await host.ledger.has(b"said before")
            await host.ledger.settled()


@simulated
async def test_two_regions_and_a_witness_survive_the_loss_of_one() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        w = await group.start("c", "a")
        await w.join(witness=True)
        for host in (a, b, w):
            await members_are(host.member, "a", "b", "c")
        assert a.member.members["c"].witness
        # It counts once everybody knows it; from then on either side of a and b may be lost.
        await a.member.wait_established()
        group.crash(b.name)
        tag = a.member.tcbroadcast(b"x")
        a.member.evict("b")
        await members_are(a.member, "a", "c")
        await a.member.wait_stable(tag)
        late = await group.start("d", "c", cut=frozenset({"a"}))
        with pytest.raises(HandshakeError, match="is a witness and has no state"):
            await late.join()
        late.node.heal("a")  # whom it knows from the witness
        await late.join()
        assert late.ledger.payloads == [b"x"]


@simulated
async def test_joiner_asks_another_member_if_its_contact_dies() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        for n in range(40):
            a.member.tcbroadcast(bytes([n]) * 100_000)
        await eventually(lambda: all(len(h.ledger.entries) == 40 for h in (a, b, c)))
        late = await group.start("d", "a", max_frame=64 * 1024)

        def kill(received: int, size: int) -> bool:
            assert 0 < received < size
            group.crash(a.name)
            return True

        late.on_copied = kill
        await late.join()
        b.member.evict("a")
        for host in (b, c, late):
            await members_are(host.member, "b", "c", "d")
            assert len(host.ledger.entries) == 40
        tag = late.member.tcbroadcast(b"in after all")
        await b.ledger.has(b"in after all")
        await late.member.wait_stable(tag)


@simulated
async def test_messages_during_the_copy_reach_the_joiner() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        for n in range(40):
            b.member.tcbroadcast(bytes([n]) * 50_000)
        await eventually(lambda: len(a.ledger.entries) == 40)
        late = await group.start("c", "a", max_frame=64 * 1024)

        def go_on(received: int, size: int) -> bool:
            assert 0 < received < size
            for n in range(10):
                a.member.tcbroadcast(b"by a %d" % n)
                b.member.tcbroadcast(b"by b %d" % n)
            return True

        late.on_copied = go_on
        await late.join()
        for host in (a, b, late):
            await eventually(lambda host=host: len(host.ledger.entries) == 60)
            await host.ledger.settled()
        assert late.ledger.copies == 1


@simulated
async def test_join_retried_after_a_cut_contact_adds_one_member() -> None:
    """The join goes out, the answer does not come; the second contact replaces the first id."""
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        late = await group.start("d", "a", max_frame=64 * 1024)

        async def cut() -> None:
            while "d" not in a.member.members:
                await a.member.changed()
            late.node.cut("a")
            assert not hasattr(late, "member"), "the cut did not come in between"

        for n in range(40):
            a.member.tcbroadcast(bytes([n]) * 50_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            await late.join()
        late.node.heal("a")
        for host in (a, b, c, late):
            await members_are(host.member, "a", "b", "c", "d")
        tag = late.member.tcbroadcast(b"one of me")
        await late.member.wait_stable(tag)


@simulated
async def test_second_founder_does_not_affect_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """Each of the two groups would take the other's members for ended ones, and tell them so."""
    async with world("a", "b") as group:
        a, b = group.up.values()
        stranger = await group.start("c", "a")
        stranger.found()
        stranger.member.tcbroadcast(b"elsewhere")
        tag = a.member.tcbroadcast(b"x")
        await b.ledger.has(b"x")
        await a.member.wait_stable(tag)
        await trio.sleep(60)
        for host in (a, b, stranger):
            assert host.member.standing is Standing.MEMBER
            assert (b"elsewhere" in host.ledger.payloads) is (host is stranger)
        assert set(a.member.members) == set(b.member.members) == {"a", "b"}
        said = [r.getMessage() for r in caplog.records if "groups are called" in r.getMessage()]
        assert 1 <= len(said) <= 6


@simulated
async def test_member_recovers_after_its_link_queue_overflowed() -> None:
    """What is said of groups cannot be repaired, so a link that loses it begins anew."""
    async with world("a", "b", queue_bytes=20_000) as group:
        a, b = group.up.values()
        for n in range(200):
            a.member.tcbroadcast(bytes([n]) * 1000)
        a.node.tell(a.node.links().up["b"], Known({"x": "mem:1"}))
        for host in (a, b):
            await eventually(lambda host=host: len(host.ledger.entries) == 200)
            await host.ledger.settled()


@simulated
async def test_evicted_leaver_returns_to_send_its_last_messages() -> None:
    async with world("a", "b", "c") as group, trio.open_nursery() as nursery:
        a, b, c = group.up.values()
        group.network.cut("c")
        c.member.tcbroadcast(b"last words")
        nursery.start_soon(c.member.leave)
        a.member.evict("c")
        await members_are(a.member, "a", "b")
        group.network.heal()
        await a.ledger.has(b"last words")
        for host in (a, b):
            await members_are(host.member, "a", "b")
            await host.ledger.settled()
        await eventually(lambda: c.member.standing is Standing.LEFT)


@simulated
async def test_operator_resolves_a_mutual_forced_eviction() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        group.network.cut("b")
        a.member.evict("b", force=True)
        b.member.evict("a", force=True)
        a.member.tcbroadcast(b"by a")
        b.member.tcbroadcast(b"by b")
        await members_are(a.member, "a")
        await members_are(b.member, "b")
        group.network.heal()
        await eventually(lambda: a.member.standing is b.member.standing is Standing.DISPUTED)
        await trio.sleep(60)
        assert b.ledger.payloads == [b"by b"], "joined again without being told to"
        b.member.surrender()
        # What was stable on the side that gives up was forgotten there: nothing is sent again.
        for host in (a, b):
            await members_are(host.member, "a", "b")
            await host.ledger.has(b"by a")
            await host.ledger.settled()
            assert host.ledger.payloads == [b"by a"]
        assert b.member.standing is Standing.MEMBER
        tag = b.member.tcbroadcast(b"one group")
        await a.member.wait_delivered(tag, count=1)
        await b.member.wait_stable(tag)


@simulated
async def test_both_sides_are_disputed_if_only_one_used_force() -> None:
    async with world("a", "b", "c") as group:
        a, b, c = group.up.values()
        group.network.cut("c")
        a.member.evict("c")
        c.member.evict("a", "b", force=True)
        await members_are(a.member, "a", "b")
        await members_are(c.member, "c")
        group.network.heal()
        for host in (a, b, c):
            await eventually(lambda host=host: host.member.standing is Standing.DISPUTED)
        c.member.surrender()
        for host in (a, b, c):
            await members_are(host.member, "a", "b", "c")
            await eventually(lambda host=host: host.member.standing is Standing.MEMBER)


@simulated
async def test_evicted_member_without_a_machine_reports_its_eviction() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        c = await group.start("c", "a")
        member = c.member = await c.links.join("g")
        for host in (a, b, c):
            await members_are(host.member, "a", "b", "c")
        await a.member.wait_established()
        events: list[Event] = []

        async def take() -> None:
            async for event in member:
                events.append(event)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            old = member.incarnation
            group.network.cut("c")
            member.tcbroadcast(b"mine")
            a.member.evict("c")
            await members_are(a.member, "a", "b")
            a.member.tcbroadcast(b"not told")
            group.network.heal()
            await a.ledger.has(b"mine")
            tag = b.member.tcbroadcast(b"told")
            await b.member.wait_stable(tag)
            nursery.cancel_scope.cancel()
        told = [e for e in events if isinstance(e, Evicted | Joined)]
        assert told == [Evicted(old), Joined(member.incarnation)]
        payloads = [e.payload for e in events if isinstance(e, Delivered)]
        assert payloads == [b"told"]


@simulated
async def test_replacement_joins_through_a_member_that_just_returned() -> None:
    """Seen under `crdtcast chaos`: b, back from an eviction, let nobody in before its own join was stable, for which c
    was lacking; and c's replacement asked b, and only b.
    """
    async with world("a", "b", "c", "d", "e") as group:
        a = group.up["a"]
        group.network.cut("b")
        a.member.evict("b")
        await members_are(a.member, "a", "c", "d", "e")
        group.crash("c")
        group.network.heal()
        await members_are(a.member, "a", "b", "c", "d", "e")
        new = await group.start("c", "b")
        await new.join(replace=True)
        for host in group.up.values():
            await members_are(host.member, "a", "b", "c", "d", "e")
            await host.ledger.settled()
