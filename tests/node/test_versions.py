"""Versions n-1 and n in one group: they understand each other, and nothing is lost while nodes are upgraded."""

from dataclasses import replace
from typing import Any

import pytest
import trio

from crdtcast.engine import Engine
from crdtcast.fixed.node import Node
from crdtcast.transport.host import SharedLinks
from crdtcast.wire import compression
from crdtcast.wire.frames import PROTOCOL_VERSION, FrameKind, Hello
from tests.node.group_support import world
from tests.node.network import (
    Member,
    Network,
    eventually,
    group,
    incarnation,
    live,
    make,
    simulated,
)

NAMES = ("a", "b", "c")


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Name -> the version that this node speaks, if it is not the present one."""
    speaks: dict[str, int] = {}

    def older(endpoint: type[Node] | type[SharedLinks]) -> None:
        hello = endpoint.hello

        def said(self: Any) -> Hello:
            return replace(hello(self), version=speaks.get(self.name, PROTOCOL_VERSION))

        monkeypatch.setattr(endpoint, "hello", said)

    older(Node)
    older(SharedLinks)
    return speaks


def numbered(member: Member) -> set[str]:
    """The peers to whom numbers have been told."""
    links = member.node.links()
    return {n for n in links.up if links.traffic(n).sent_frames[FrameKind.NAMED]}


@simulated
@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_node_is_sent_nothing_that_it_does_not_know(
    old: dict[str, int], version: int
) -> None:
    old["b"] = version
    async with group(*NAMES, digest_interval=0.1) as (_, members):
        await eventually(lambda: all(m.linked() == m.names - {m.name} for m in members.values()))
        for number in range(10):
            for member in members.values():
                member.send(b"%d" % number)
        await eventually(lambda: all(len(m.stable) == 30 for m in members.values()))
        assert numbered(members["a"]) == {"c"}
        assert numbered(members["b"]) == set()
        assert all(m.node.status()[n].reconnects == 0 for m in members.values() for n in m.linked())


async def upgraded(nursery: trio.Nursery, network: Network, member: Member, life: int) -> Member:
    """The node ends, and goes on from its state in another process."""
    member.node.stop()
    member.node.links().restart("its process ends")
    await eventually(lambda: member.node._nursery is None)
    fresh = make(network, member.name, member.names, life=life, digest_interval=0.1)
    state = member.node.engine.state()
    fresh.node.replace_engine(Engine(incarnation(member.name, life), member.names, state=state))
    fresh.delivered, fresh.stable = member.delivered, member.stable
    await nursery.start(live, fresh)
    return fresh


@simulated
async def test_a_rolling_upgrade_while_all_send(old: dict[str, int]) -> None:
    old.update(dict.fromkeys(NAMES, PROTOCOL_VERSION - 1))
    sent = []
    async with trio.open_nursery() as nursery:
        network = Network(nursery)
        members = {n: make(network, n, set(NAMES), digest_interval=0.1) for n in NAMES}
        for member in members.values():
            await nursery.start(live, member)

        async def keep_sending() -> None:
            while True:
                for member in members.values():
                    sent.append(member.send(b"%d" % len(sent)))
                await trio.sleep(0.05)

        nursery.start_soon(keep_sending)
        await trio.sleep(1)
        assert not any(numbered(m) for m in members.values())
        for life, name in enumerate(NAMES, start=1):
            del old[name]
            members[name] = await upgraded(nursery, network, members[name], life)
            here = members[name]
            await eventually(lambda m=here: m.linked() == m.names - {m.name})  # type: ignore[misc]
            await trio.sleep(1)
            assert numbered(members["a"]) == {n for n in NAMES[1:] if n not in old}
        await eventually(lambda: len(members["a"].stable) > len(sent) * 0.9)
        total = len(sent)
        await eventually(lambda: all(set(m.stable) >= set(sent[:total]) for m in members.values()))
        for member in members.values():
            dots = [dot for dot, _ in member.delivered]
            assert len(set(dots)) == len(dots), "delivered twice"
            others = {d for d in sent[:total] if not d.origin.startswith(f"{member.name}.")}
            assert set(dots) >= others, "lost"
        nursery.cancel_scope.cancel()


@simulated
@pytest.mark.parametrize("older", ["bd", "ac"])
async def test_a_group_whose_members_come_and_go_is_upgraded_one_after_the_other(
    old: dict[str, int], older: str
) -> None:
    """All join through a, so old ones through a new one, and new ones through an old one."""
    old.update(dict.fromkeys(older, PROTOCOL_VERSION - 1))
    async with world("a", "b", "c", "d") as present:
        payloads = []

        async def all_have_it() -> None:
            for host in present.hosts.values():
                payloads.append(b"%d from %s" % (len(payloads), host.name.encode()))
                host.up.tcbroadcast(payloads[-1])
            for host in present.hosts.values():
                await host.ledger.has(*payloads)
                await host.ledger.settled()

        await all_have_it()
        for name in older:
            del old[name]
            present.hosts[name].node.links().restart("upgraded")
            await all_have_it()
        for host in present.hosts.values():
            assert host.ledger.payloads == sorted(payloads)
            links = host.node.links()
            told = {n for n in links.up if links.traffic(n).sent_frames[FrameKind.NAMED]}
            assert told == set("abcd") - {host.name}


@simulated
@pytest.mark.parametrize("without", ["a", "b", None])
async def test_long_frames_are_compressed_if_both_can(without: str | None) -> None:
    more = {} if without is None else {without: {"compress": False}}
    async with group("a", "b", more=more) as (_, members):
        await eventually(lambda: members["a"].linked() == {"b"})
        for member in members.values():
            member.send(b"once and again " * 10_000)
        await eventually(lambda: all(len(m.stable) == 2 for m in members.values()))
        for name, peer in ("ab", "ba"):
            sent = members[name].node.links().traffic(peer).sent_bytes[FrameKind.MESSAGE]
            assert (sent < 10_000) is (without is None)


@simulated
async def test_without_the_package_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "zstandard", None)
    async with group("a", "b") as (_, members):
        members["a"].send(b"once and again " * 10_000)
        await eventually(lambda: len(members["b"].stable) == 1)
        assert not members["a"].node.links().up["b"].peer.zstd


@simulated
async def test_a_peer_that_takes_only_short_frames_is_not_sent_long_ones_in_little_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What counts is the length that the peer has to make room for."""
    async with group("a", "b", more={"b": {"max_frame": 100_000}}) as (_, members):
        await eventually(lambda: members["a"].linked() == {"b"})
        members["a"].send(bytes(200_000))
        await trio.sleep(30)
        assert members["b"].payloads == []
        assert members["a"].node.status()["b"].dropped_frames
        assert members["a"].node.status()["b"].reconnects == 0
