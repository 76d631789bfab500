"""Long frames: compressed where both ends can, and none that a peer has no room for."""

import pytest
import trio

from crdtcast.testing import eventually, simulated
from crdtcast.wire import compression
from crdtcast.wire.frames import FrameKind
from tests.node.fixed import group

NAMES = ("a", "b", "c")


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
async def test_missing_zstd_package_offers_no_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "zstandard", None)
    async with group("a", "b") as (_, members):
        members["a"].send(b"once and again " * 10_000)
        await eventually(lambda: len(members["b"].stable) == 1)
        assert not members["a"].node.links().up["b"].peer.zstd


@simulated
async def test_long_frame_is_dropped_for_a_peer_with_a_low_limit(
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
