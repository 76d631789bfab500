"""Handshakes that must fail: one clear line, no tight loop, and everybody else unaffected."""

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast.engine import Engine
from crdtcast.exceptions import ConfigurationError, SupersededError
from crdtcast.group.running import running
from crdtcast.testing import eventually, simulated
from crdtcast.transport.options import NodeOptions
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.frames import Hello, Refusal, encode
from tests.node.fixed import PORTS, at, group, incarnation, live, make


def lines(caplog: pytest.LogCaptureFixture, words: str, level: int = logging.WARNING) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= level and words in r.message]


async def meets(
    caplog: pytest.LogCaptureFixture, words: str, seconds: float = 120, **stranger: Any
) -> tuple[int, int]:
    """A stranger dials two healthy members: how often the words were logged, how often it dialled.

    The healthy ones must not notice.
    """
    async with group("a", "b") as (network, members):
        await eventually(lambda: members["a"].linked() == {"b"})
        elsewhere = "127.0.0.1", 9999
        options: dict[str, Any] = {
            "name": "c",
            "names": {"a", "b", "c"},
            "life": 5,
            "listen": elsewhere,
        }
        options |= stranger
        before = len(network.dialled)
        async with running(make(**options).node):
            await trio.sleep(seconds)
        members["a"].send(b"unaffected")
        await eventually(lambda: len(members["b"].stable) == 1)
        assert members["a"].linked() == {"b"}
        dialled = [d for d in network.dialled[before:] if d[0] == options["name"]]
        return len(lines(caplog, words)), len(dialled)


HEALTHY = Hello(
    group="default", name="b", incarnation=incarnation("b"), process=b"stranger", fence=7
)
STRANGERS = {
    "another group's node": (replace(HEALTHY, group="other"), "group", "is in group 'other'"),
    "an old version": (replace(HEALTHY, version=0, oldest=0), "version", "upgrade the older one"),
    "no member": (
        replace(HEALTHY, name="x", incarnation=incarnation("x")),
        "unknown-name",
        "is not a member of this group",
    ),
    "a gateway whose server has other databases": (
        replace(HEALTHY, databases=(16, 15)),
        "databases",
        "has 16 databases with the metadata in 15, that of node 'a' no databases",
    ),
    "a superseded fence epoch": (
        replace(HEALTHY, fence=6),
        "superseded",
        "fence epoch 7 is above its 6",
    ),
}


@simulated
@pytest.mark.parametrize(("said", "reason", "words"), STRANGERS.values(), ids=STRANGERS)
async def test_stranger_is_refused_counted_and_logged_once(
    said: Hello, reason: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with group("a", "b", node={"b": {"fence_epoch": 7}}) as (_, members):
        a, b = members.values()
        await eventually(lambda: a.linked() == {"b"})
        for _ in range(5):
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.node.links().accept, far)
                await near.send_all(encode(said))
                decoder = FrameDecoder()
                decoder.push(await near.receive_some())
                refusal = decoder.next_frame()
                assert isinstance(refusal, Refusal)
                assert refusal.reason == reason and words in refusal.text
                await near.aclose()
        assert a.node.refusals() == {reason: 5}
        assert len(lines(caplog, words)) == 1
        a.send(b"unaffected")
        await eventually(lambda: b.payloads == [b"unaffected"])
        assert a.node.status()["b"].reconnects == 0


@simulated
async def test_peer_of_another_group_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    said, dialled = await meets(caplog, "is in group 'other'", group="other")
    assert 1 <= said <= 4
    assert dialled <= 2 * 10


@simulated
async def test_name_that_is_not_a_member_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    said, dialled = await meets(caplog, "is not a member of this group")
    assert 1 <= said <= 4
    assert dialled <= 2 * 10


@simulated
async def test_two_nodes_of_one_name_refuse_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peers = {"b": at("a")}
    said, dialled = await meets(
        caplog, "two nodes are called 'a'", name="a", names={"a", "b"}, peers=peers
    )
    assert 1 <= said <= 2
    assert dialled <= 10


@simulated
async def test_a_name_that_another_live_process_has(caplog: pytest.LogCaptureFixture) -> None:
    peers = {"a": at("a")}
    said, dialled = await meets(
        caplog, "the name 'b' is in use", name="b", names={"a", "b"}, peers=peers
    )
    assert 1 <= said <= 2
    assert dialled <= 10


@simulated
async def test_own_address_among_the_peers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    own = {"listen": ("0.0.0.0", PORTS["a"]), "peers": {"b": at("a")}}
    async with group("a", "b", more={"a": own}) as (network, _):
        await trio.sleep(120)
        assert len(lines(caplog, "its own address from its peers")) == 1
        assert len([d for d in network.dialled if d == ("a", "a")]) <= 10


@simulated
async def test_another_node_at_a_peer_s_address(caplog: pytest.LogCaptureFixture) -> None:
    wrong = {"peers": {"b": at("c"), "c": None}}
    silent = {"peers": {"a": None, "c": None}}
    async with group("a", "b", "c", more={"a": wrong, "b": silent}) as (_, members):
        await trio.sleep(120)
        assert 1 <= len(lines(caplog, "expects 'b' at this address, but 'c' answers")) <= 2
        # c dials a itself; the wrong address does not harm it.
        assert members["a"].linked() == {"c"}


@simulated
async def test_superseded_incarnation_ends_its_node_with_one_error() -> None:
    async with group("a", "b", more={"a": {"peers": {"b": None}}}) as (_, members):
        members["b"].node.replace_engine(Engine(incarnation("b", 9), {"a", "b"}))
        await eventually(lambda: members["a"].linked() == {"b"})
        members["b"].node.stop()
        await eventually(lambda: members["a"].linked() == set())
        zombie = make("b", {"a", "b"}, life=3)
        with pytest.raises(SupersededError, match="newer incarnation of that name is known"):
            async with running(zombie.node):
                await trio.sleep(60)


@simulated
async def test_higher_fence_epoch_takes_over_from_the_lower_one() -> None:
    async with group("a", names={"a", "b"}, peers={"b": None}) as (_, members):
        a = members["a"]
        old = make("b", {"a", "b"}, node={"fence_epoch": 1})
        new = make("b", {"a", "b"}, node={"fence_epoch": 2}, listen=("127.0.0.1", 9999))
        async with trio.open_nursery() as nursery:
            with pytest.raises(SupersededError, match="fence epoch 2 is above its 1"):
                async with running(old.node):
                    await eventually(lambda: a.linked() == {"b"})
                    await nursery.start(live, new)
                    await trio.sleep(60)
            assert a.node.links().up["b"].peer.fence == 2
            nursery.cancel_scope.cancel()


@simulated
async def test_peer_with_a_clock_too_far_ahead_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    clocks = {"a": {"clock_ms": lambda: 1000}, "b": {"clock_ms": lambda: 500_000}}
    async with group("a", "b", node=clocks, max_drift_ms=60_000) as (_, members):
        await trio.sleep(120)
        assert members["a"].linked() == set()
        assert 1 <= len(lines(caplog, "the clock of node 'b' is 499,000 ms ahead")) <= 2


def test_options_that_cannot_work_are_refused_at_once() -> None:
    here = ("127.0.0.1", 7001)
    with pytest.raises(ConfigurationError, match="own address"):
        NodeOptions(name="a", listen=here, peers={"b": here})
    with pytest.raises(ConfigurationError, match="is among its own peers"):
        NodeOptions(name="a", listen=here, peers={"a": ("127.0.0.1", 7002)})
    with pytest.raises(ConfigurationError, match="invalid node name"):
        NodeOptions(name="a.b", listen=here)
