"""A member that sends what no member may send: its link ends, the others say who it was, and go on."""

import logging
from dataclasses import replace

import pytest
import trio

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine.operations import Cut, How, Sweep, encode
from crdtcast.engine.views import Ballot, Views
from crdtcast.group.status import as_json, status
from crdtcast.testing import Cluster, eventually, simulated
from crdtcast.wire.frames import FrameKind, framed
from crdtcast.wire.group_frames import MAX_KNOWN, Here, Known
from tests.node.group_support import LedgerHost, world


async def talking(group: Cluster[LedgerHost]) -> None:
    for host in group.up.values():
        await host.member.wait_established()
        host.member.tcbroadcast(host.name.encode())
    for host in group.up.values():
        await host.ledger.has(b"a", b"b", b"c")
        await host.ledger.settled()


async def assert_only_its_link_ends(group: Cluster[LedgerHost]) -> None:
    a, b = group.up["a"], group.up["b"]
    await eventually(lambda: bool(status(a.member.channel).blamed))
    (blame,) = as_json(status(a.member.channel))["blamed"]
    assert blame["name"] == "c" and blame["times"] >= 1
    assert blame["incarnation"] in blame["text"]
    a.member.tcbroadcast(b"still here")
    await b.ledger.has(b"still here")
    assert "b" in a.node.links().up
    assert not status(b.member.channel).blamed


@simulated
async def test_impossible_frame_ends_only_the_link_of_its_sender(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = group.up["a"].member, group.up["c"].member
        before = a.channel.shared.links().up["c"]
        c.channel.send_to(["a"], Digest(DigestKind.NEWS, {a.incarnation: 99}))
        await eventually(lambda: before.closed is not None)
        assert before.objection and "reports a." in str(before.closed)
        await assert_only_its_link_ends(group)
        # Both ends say why, once each, however often it happens.
        for _ in range(5):
            await eventually(lambda: "c" in a.channel.here)
            c.channel.send_to(["a"], Digest(DigestKind.NEWS, {a.incarnation: 99}))
            await trio.sleep(40)
        lines = [r.message for r in caplog.records if "reports a." in r.message]
        assert 1 <= len(lines) <= 3, lines
        assert status(a.channel).blamed[0].times > 2


@simulated
@pytest.mark.parametrize("body", [b"\xc1", b"\x91\x07", b"\x90", b"\xdd\xff\xff\xff\xff"])
async def test_undecodable_bytes_name_their_sender_in_the_status(body: bytes) -> None:
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = group.up["a"], group.up["c"]
        before = a.node.links().up["c"]
        c.node.links().up["a"].offer(FrameKind.MESSAGE, framed(body))
        await eventually(lambda: before.closed is not None)
        await assert_only_its_link_ends(group)
        assert not status(c.member.channel).blamed


@simulated
async def test_lie_detected_later_ends_the_link_then(caplog: pytest.LogCaptureFixture) -> None:
    """A sweep with a cut that cannot be, and that waits for a message of b."""
    async with world("a", "b", "c") as group:
        await talking(group)
        a, b, c = (group.up[name].member for name in "abc")
        kind, payload = encode(Sweep(((b.incarnation, Cut(10**9, How.EVICTED)),)))
        me = c.incarnation
        dot = Dot(me, a.engine.vector[me] + 1)
        waits = Dot(b.incarnation, a.engine.vector[b.incarnation] + 1)
        c.channel.send_to(["a"], Message(dot, (waits,), payload, int(kind)))
        await eventually(lambda: me in a.engine.waiting)
        assert [who.name for who in status(a.channel).waiting] == ["c"]
        link = a.channel.shared.links().up["c"]
        b.tcbroadcast(b"what it waits for")
        await eventually(lambda: link.closed is not None)
        assert "1,000,000,000" in str(link.closed)
        assert a.engine.blamed.keys() == {me}


@simulated
async def test_impossible_ballot_ends_the_link_of_its_forwarder() -> None:
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = (group.up[name].member for name in "ac")
        record = a.engine.state().record
        assert record is not None
        view = a.engine.view
        huge = replace(
            record, member=c.incarnation, serial=10**6, promised=Ballot(10**9, c.incarnation)
        )
        link = a.channel.shared.links().up["c"]
        c.channel.send_to(["a"], Views(view.epoch, view.name, {}, (huge,), (), ()))
        await eventually(lambda: link.closed is not None)
        await assert_only_its_link_ends(group)
        assert a.engine.blamed.keys() == {c.incarnation}


@simulated
async def test_frame_explained_by_another_liar_is_only_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An end that b is said to have met, and that a has not all reports on: its link stays."""
    caplog.set_level(logging.WARNING)
    async with world("a", "b", "c", "d") as group:
        await talking(group)
        a, c, d = (group.up[name].member for name in "acd")
        engine, me, victim = a.engine, c.incarnation, d.incarnation
        link = a.channel.shared.links().up["c"]
        cut = Cut(engine.vector[victim], How.EVICTED)
        kind, payload = encode(Sweep(((victim, cut),)))
        sweep = Message(Dot(me, engine.vector[me] + 1), engine.context, payload, int(kind))
        engine.evict(victim)
        c.channel.send_to(["a"], sweep)
        await eventually(lambda: any("has no effect" in r.message for r in caplog.records))
        line = next(r for r in caplog.records if "has no effect" in r.message)
        assert line.levelno == logging.WARNING and f"{me} cuts {victim}" in line.message
        assert link.closed is None and not status(a.channel).blamed


@simulated
async def test_made_up_names_do_not_displace_real_peers() -> None:
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = group.up["a"].node, group.up["c"].node
        for some in range(3):
            names = {f"x{some}-{n}": "nowhere:1" for n in range(MAX_KNOWN)}
            c.tell(c.links().up["a"], Known(names))
        await eventually(lambda: len(a.known) == MAX_KNOWN)
        await trio.sleep(1)
        assert {"b", "c"} <= a.known.keys()
        assert len(a.known) == MAX_KNOWN
        # What it tells others is still a frame.
        a.links().up["b"].close("so that it begins anew")
        await eventually(lambda: "b" in a.links().up)
        group.up["b"].member.tcbroadcast(b"again")
        await group.up["a"].ledger.has(b"again")


@simulated
async def test_number_of_groups_of_a_peer_is_bounded() -> None:
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = group.up["a"].node, group.up["c"].node
        link, incarnation = a.links().up["c"], group.up["c"].member.incarnation
        for number in range(10, 20_000):
            c.tell(c.links().up["a"], Here(number, f"g{number}", incarnation))
            if number % 500 == 0:
                await trio.sleep(0.01)
            if link.closed is not None:
                break
        assert "more than 10,000 groups" in str(link.closed)


@simulated
async def test_ended_groups_do_not_count_against_the_bound() -> None:
    async with world("a", "b", "c") as group:
        await talking(group)
        a, c = group.up["a"].node, group.up["c"].node
        link = a.links().up["c"]
        for number in range(10, 12_000):
            c.tell(c.links().up["a"], Here(number, f"g{number}", None))
            if number % 500 == 0:
                await trio.sleep(0.01)
        group.up["c"].member.tcbroadcast(b"still here")
        await group.up["a"].ledger.has(b"still here")
        assert link.closed is None
