"""Links between nodes: they come up, settle, notice the dead, heal, and are silent when all is said."""

import logging
import random

import pytest
import trio

from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine, EngineState
from crdtcast.fixed.node import Node
from crdtcast.group.running import running
from crdtcast.testing import Network, eventually, simulated
from crdtcast.transport.options import NodeOptions
from crdtcast.wire.frames import FrameKind
from tests.effort import seeds
from tests.node.fixed import Member, at, black_hole, group, incarnation, make

SLOW = 16 * 1024 / 0.02
"""Bytes a second."""


def all_linked(members: dict[str, Member]) -> bool:
    return all(member.linked() == member.names - {name} for name, member in members.items())


@simulated
async def test_sent_messages_are_delivered_and_stable_everywhere() -> None:
    async with group("a", "b", "c") as (_, members):
        sent = {members[name].send(name.encode()) for name in members for _ in range(20)}
        await eventually(lambda: all(len(m.stable) == 60 for m in members.values()))
        for member in members.values():
            assert len(member.delivered) == 40
            assert set(member.stable) == sent


@simulated
async def test_once_everything_is_stable_only_keep_alives_flow() -> None:
    async with group("a", "b", "c", keepalive_interval=5.0, digest_interval=0.5) as (_, members):
        for member in members.values():
            member.send(b"something")
        await eventually(lambda: all(len(m.stable) == 3 for m in members.values()))
        await trio.sleep(30)
        traffics = [m.node.links().traffic(p) for m in members.values() for p in m.linked()]
        bytes_before = [dict(traffic.sent_bytes) for traffic in traffics]
        frames_before = [dict(traffic.sent_frames) for traffic in traffics]
        await trio.sleep(600)
        for traffic, sent, frames in zip(traffics, bytes_before, frames_before, strict=True):
            for kind in FrameKind:
                more = traffic.sent_bytes[kind] - sent.get(kind, 0)
                count = traffic.sent_frames[kind] - frames.get(kind, 0)
                if kind is FrameKind.KEEPALIVE:
                    assert 90 <= count <= 121, "not one keep-alive per interval"
                    assert more <= 32 * count
                else:
                    assert more == 0, f"{more} bytes of {kind.name} in a group at rest"
        assert all_linked(members)


@simulated
async def test_a_cut_group_goes_on_and_is_repaired_when_healed() -> None:
    async with group("a", "b", "c", keepalive_interval=1.0) as (_, members):
        await eventually(lambda: all_linked(members))
        a, b, c = members.values()
        for peer in ("a", "b"):
            c.node.cut(peer)
        assert c.linked() == set()
        for _ in range(50):
            a.send(b"from a")
            c.send(b"from c")
        await eventually(lambda: len(b.delivered) == 50)
        await trio.sleep(60)
        assert "c" not in a.linked() | b.linked(), "a cut link came back by itself"
        assert c.delivered == []
        assert a.stable == [], "stable, though c has not got it"
        assert c.node.status()["a"].state == "cut"
        c.node.heal("a")
        c.node.heal("b")
        await eventually(lambda: all(len(m.stable) == 100 for m in members.values()))
        assert sorted(b.payloads) == [b"from a"] * 50 + [b"from c"] * 50
        assert len({dot for dot, _ in b.delivered}) == 100
        assert c.node.status()["a"].reconnects == 1


@simulated
async def test_a_link_can_be_cut_from_the_start() -> None:
    async with group("a", "b", more={"a": {"cut": frozenset({"b"})}}) as (_, members):
        await trio.sleep(20)
        assert members["b"].linked() == set()
        members["a"].node.heal("b")
        await eventually(lambda: all_linked(members))


@simulated
@pytest.mark.parametrize("seed", seeds(8))
async def test_crossing_connections_settle_on_one(seed: int) -> None:
    rng = random.Random(seed)
    async with group("a", "b", "c", seed=seed, digest_interval=0.5) as (network, members):
        for _ in range(5):
            await eventually(lambda: all_linked(members))
            await trio.sleep(5)
            dialled = len(network.dialled)
            await trio.sleep(30)
            assert len(network.dialled) == dialled, f"seed {seed}: still dialling"
            for name, member in members.items():
                for peer, link in member.node.links().up.items():
                    twin = members[peer].node.links().up[name]
                    assert link.number == twin.number, f"seed {seed}: two connections are up"
            # Break all connections at both ends at once, so that both sides dial again.
            for name in rng.sample(list(members), 2):
                network.cut(name)
            network.heal()
        members["a"].send(b"still one group")
        await eventually(lambda: all(len(m.stable) == 1 for m in members.values()))


@simulated
async def test_silent_peer_is_redialled_after_three_intervals() -> None:
    async with group("a", "b", keepalive_interval=2.0) as (network, members):
        await eventually(lambda: all_linked(members))
        a, b = members.values()
        old = a.node.links().up["b"]
        black_hole(network)
        a.send(b"into the black hole")
        began = trio.current_time()
        await eventually(lambda: old.closed is not None)
        assert old.closed is not None and "no frame for" in old.closed
        assert 4.0 <= trio.current_time() - began <= 8.0
        await eventually(lambda: b.payloads == [b"into the black hole"])


@simulated
@pytest.mark.parametrize("deaf", ["a", "b"])
async def test_one_way_link_is_closed_by_both_after_three_intervals(
    deaf: str,
) -> None:
    async with group("a", "b", "c", keepalive_interval=2.0) as (network, members):
        await eventually(lambda: all_linked(members))
        await trio.sleep(5)
        speaker = "b" if deaf == "a" else "a"
        ends = [members[deaf].node.links().up[speaker], members[speaker].node.links().up[deaf]]
        bystander = members["c"].node.links().up[speaker]
        network.silence(speaker, deaf)
        network.heal()
        began = trio.current_time()
        members[speaker].send(b"unheard at first")
        await eventually(lambda: ends[0].closed is not None)
        assert ends[0].closed is not None and "no frame for" in ends[0].closed
        assert 4.0 <= trio.current_time() - began <= 8.0
        # The speaker hears that the deaf one closes, which still arrives.
        await eventually(lambda: ends[1].closed is not None, 1)
        await eventually(lambda: members[deaf].payloads == [b"unheard at first"])
        assert bystander.closed is None


@simulated
@pytest.mark.parametrize("lost_by", ["a", "b"])
async def test_a_half_open_link_gives_way_to_the_new_connection(lost_by: str) -> None:
    """One side has lost the link, the other has not noticed; keep-alives would take an hour."""
    async with group("a", "b", keepalive_interval=1200.0) as (network, members):
        await eventually(lambda: all_linked(members))
        await trio.sleep(5)
        black_hole(network)
        other = "b" if lost_by == "a" else "a"
        stale = members[other].node.links().up[lost_by]
        members[lost_by].node.links().up[other].close("lost")
        members[lost_by].send(b"news")
        await eventually(lambda: members[other].payloads == [b"news"], 30)
        assert stale.closed == "replaced by a newer connection"


@simulated
async def test_peer_with_no_address_is_linked_when_it_dials() -> None:
    async with group("a", "b", more={"b": {"peers": {"a": None}}}) as (network, members):
        # b dials nobody: a does.
        await eventually(lambda: all_linked(members))
        assert {source for source, _ in network.dialled} == {"a"}


@simulated
async def test_peer_that_starts_later_is_not_warned_of_at_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with Network():
        a = make("a", {"a", "b"})
    async with running(a.node):
        await trio.sleep(2)
        assert not caplog.records
        assert a.node.status()["b"].error
        await eventually(lambda: any("cannot reach b" in line for line in caplog.messages))


@simulated
async def test_addresses_without_names_are_enough_to_dial() -> None:
    peers = [at("a"), at("c")]
    async with group("a", "b", "c", more={"b": {"peers": peers}}) as (_, members):
        await eventually(lambda: all_linked(members))
        await eventually(lambda: set(members["b"].node.status()) == {"a", "c"})


@simulated
async def test_address_of_a_peer_may_be_set_later() -> None:
    nobody = {"peers": {"a": None, "b": None}}
    async with group("c", "a", "b", more={"c": nobody}) as (_, members):
        await eventually(lambda: all_linked(members))
    async with group("a", "b", peers={}) as (network, members):
        await trio.sleep(10)
        assert network.dialled == []
        members["b"].node.set_address("a", at("a"))
        await eventually(lambda: all_linked(members))


@simulated
async def test_a_failing_engine_costs_the_link_and_not_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group("a", "b", "c") as (_, members):
        await eventually(lambda: all_linked(members))
        a = members["a"]
        receive = a.node.engine.receive
        fails = True

        def failing(sender: str, message: object) -> None:
            if fails and sender.startswith("b."):
                raise ZeroDivisionError("a bug")
            receive(sender, message)  # type: ignore[arg-type]

        a.node.engine.receive = failing  # type: ignore[method-assign]
        members["b"].send(b"from b")
        members["c"].send(b"from c")
        await eventually(lambda: b"from c" in a.payloads)
        await trio.sleep(20)
        assert "ZeroDivisionError: a bug" in caplog.text
        fails = False
        await eventually(lambda: all(len(m.stable) == 2 for m in members.values()))
    caplog.clear()


@simulated
async def test_engine_error_on_connect_costs_only_that_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group("a", "b") as (_, members):
        await eventually(lambda: all_linked(members))
        a = members["a"]
        connected = a.node.engine.connected

        def failing(peer: str) -> None:
            raise ZeroDivisionError("a bug")

        a.node.engine.connected = failing  # type: ignore[method-assign]
        a.node.links().restart("the test says so")
        await eventually(lambda: "ZeroDivisionError: a bug" in caplog.text)
        await trio.sleep(20)
        assert not a.linked()
        a.node.engine.connected = connected  # type: ignore[method-assign]
        await eventually(lambda: all_linked(members))
    caplog.clear()


@simulated
async def test_application_error_ends_the_node_unchanged() -> None:
    def failing() -> None:
        raise KeyError("the application's")

    with Network(), pytest.raises(KeyError, match="application"):
        async with running(make("a", {"a", "b"}, node={"on_work": failing}).node):
            await trio.sleep(60)


@simulated
async def test_nothing_leaves_while_the_node_is_on_hold() -> None:
    async with group("a", "b") as (_, members):
        a, b = members.values()
        await eventually(lambda: all_linked(members))
        a.node.hold = True
        a.send(b"uncommitted")
        await trio.sleep(30)
        assert b.delivered == []
        a.node.hold = False
        a.node.flush()
        await eventually(lambda: len(b.delivered) == 1)


@simulated
async def test_batches_grow_with_the_load() -> None:
    async with group("a", "b") as (_, members):
        await eventually(lambda: all_linked(members))
        a, b = members.values()
        stream = a.node.links().up["b"]._stream
        assert isinstance(stream, trio.StapledStream)
        written: list[int] = []
        send_all = stream.send_stream.send_all

        async def counted(piece: bytes) -> None:
            written.append(len(piece))
            await send_all(piece)

        stream.send_stream.send_all = counted  # type: ignore[method-assign]
        for _ in range(10):
            a.send(bytes(100))
            a.node.flush()
            await trio.testing.wait_all_tasks_blocked()
        assert len(b.delivered) == 10, "a message that is alone waits for nothing"
        assert len(written) >= 10
        written.clear()
        for _ in range(1000):
            a.send(bytes(100))
        a.node.flush()
        await eventually(lambda: len(b.delivered) == 1010)
        assert sum(written) > 100_000 and len(written) < 20


@simulated
async def test_slow_peer_delays_no_other_and_is_repaired() -> None:
    """Back-pressure from end to end: slow reads, bounded queues, drops, repair."""
    limits = {"queue_bytes": 20_000, "backlog_bytes": 10_000}
    async with group("a", "b", "c", buffer_bytes=0, **limits) as (_, members):
        await eventually(lambda: all_linked(members))
        a, b, c = members.values()
        c.taking = False
        sent = 0
        while not a.node.status()["c"].dropped_frames:
            a.send(bytes(1000))
            sent += 1
            assert a.node.status()["c"].queued_bytes <= 22_000
            await trio.sleep(0.001)
            assert sent < 5000, "never full"
        await eventually(lambda: len(b.delivered) == sent)
        assert c.node.congested()
        await trio.sleep(300)
        assert c.linked() == {"a", "b"}, "a congested node took its peers for dead, or they it"
        c.taking = True
        await eventually(lambda: all(len(m.stable) == sent for m in members.values()))
        assert [dot.counter for dot, _ in c.delivered] == list(range(1, sent + 1))
        assert not c.node.congested()


@simulated
async def test_another_engine_takes_over_under_a_new_incarnation() -> None:
    async with group("a", "b") as (_, members):
        a, b = members.values()
        b.send(b"before")
        await eventually(lambda: all(len(m.stable) == 1 for m in members.values()))
        renewed = Engine(incarnation("b", 1), b.names, state=b.engine.state())
        b.node.replace_engine(renewed, fence_epoch=3)
        assert b.linked() == set()
        await eventually(lambda: all_linked(members))
        assert b.send(b"after") == Dot(renewed.me, 1)
        await eventually(lambda: a.payloads == [b"before", b"after"])
        assert a.node.links().up["b"].peer.fence == 3


@simulated
async def test_peer_that_knows_more_ends_the_incarnation() -> None:
    rolled_back: list[str] = []

    def note(error: Exception) -> None:
        rolled_back.append(str(error))

    # c never comes, so that nothing becomes stable and the loss can still be repaired.
    async with group("a", "b", names={"a", "b", "c"}, node={"b": {"on_rolled_back": note}}) as (
        _,
        members,
    ):
        a, b = members.values()
        b.send(b"one")
        await eventually(lambda: len(a.delivered) == 1)
        # The same incarnation from a journal that has lost everything.
        b.node.replace_engine(Engine(b.engine.me, b.names, state=EngineState()))
        await eventually(lambda: bool(rolled_back))
        await trio.sleep(60)
        assert len(rolled_back) == 1
        assert b.linked() == set()
        b.node.replace_engine(Engine(incarnation("b", 1), b.names))
        await eventually(lambda: b.payloads == [b"one"])


@simulated
async def test_member_that_lost_stable_messages_is_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with group("a", "b") as (network, members):
        a, b = members.values()
        a.send(b"stable, so kept by nobody")
        await eventually(lambda: len(a.stable) == 1)
        dialled = len(network.dialled)
        b.node.replace_engine(Engine(incarnation("b", 1), b.names))
        await trio.sleep(120)
        told = [r for r in caplog.records if "the peer refused" in r.message]
        assert 1 <= len(told) <= 3
        assert "has lost its state" in told[0].message
        assert len(network.dialled) - dialled <= 30, "a tight loop"


@simulated
async def test_a_closed_node_leaves_nothing_behind() -> None:
    async with group("a", "b", keepalive_interval=1.0) as (_, members):
        await eventually(lambda: all_linked(members))
        members["b"].node.stop()
        await eventually(lambda: "b" not in members["a"].linked())
        assert members["a"].node.status()["b"].state in {"down", "dialling"}


def test_status_before_the_start_is_empty() -> None:
    member = make_idle()
    assert member.status() == {}


def make_idle() -> Node:
    return Node(NodeOptions(name="a", listen=("127.0.0.1", 0)), Engine("a.1", {"a"}))


@simulated
async def test_a_large_message_on_a_slow_link_does_not_end_it() -> None:
    async with group("a", "b", buffer_bytes=0, keepalive_interval=0.5, digest_interval=0.1) as (
        network,
        members,
    ):
        await eventually(lambda: all_linked(members))
        a, b = members.values()
        network.line("a", "b").bytes_per_second = SLOW
        links = a.node.links().up["b"], b.node.links().up["a"]
        before = trio.current_time()
        payload = random.Random(5).randbytes(8 << 20)
        a.send(payload)
        b.send(b"from the other side")
        await eventually(lambda: b.payloads == [payload])
        took = trio.current_time() - before
        assert took > 10 * 3 * 0.5 / 2, f"it took {took} s only: this shows nothing"
        assert links == (a.node.links().up["b"], b.node.links().up["a"])
        await eventually(lambda: all(len(m.stable) == 2 for m in members.values()))
        # Digests that were told meanwhile have not had it sent again behind itself.
        assert a.node.links().traffic("b").sent_frames[FrameKind.MESSAGE] == 1


@simulated
async def test_a_large_message_that_a_link_has_lost_is_repaired() -> None:
    async with group("a", "b", buffer_bytes=0, keepalive_interval=0.5) as (network, members):
        await eventually(lambda: all_linked(members))
        a, b = members.values()
        network.line("a", "b").bytes_per_second = SLOW
        payload = random.Random(6).randbytes(4 << 20)
        a.send(payload)
        await trio.sleep(1)
        assert not b.payloads
        a.node.cut("b")
        a.node.heal("b")
        await eventually(lambda: b.payloads == [payload])
