"""Servers that come back without their last second, when their gateways have died in the middle of something rare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster, Region
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.exceptions import ServerError
from tests.adapters.redis.gateways import PATIENCE, until
from tests.adapters.redis.test_crashes import append_only_file, dying_at, lose_the_end_of_the_file
from tests.adapters.redis.test_format_level import (
    NEXT,
    NOW,
    LaterCluster,
    call,
    format_of,
    in_force,
    wants,
)
from tests.adapters.redis.test_format_level import fill as fill_few
from tests.adapters.redis.test_large_copies import HotWriter
from tests.adapters.redis.test_large_repairs import MANY, fill

pytestmark = pytest.mark.process

FEW = MANY // 4
"""More than the members that are added, or removed, meanwhile."""


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        (1, LocalCluster),
        (3, OpenCluster),
        pytest.param(1, OpenCluster, marks=pytest.mark.slow),
        pytest.param(3, LocalCluster, marks=pytest.mark.slow),
    ],
)
def test_large_key_is_repaired_although_its_pages_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int, kind: type[LocalCluster]
) -> None:
    arguments = ("--admin-commands", "--compare-seconds", "0")
    with kind(tmp_path, "ab", group="g", arguments=arguments) as cluster:
        a, b = cluster["a"], cluster["b"]
        fill(a.gateway.port, MANY)
        cluster.wait_equal("ab", quiet=True, timeout=PATIENCE)
        writer = HotWriter(a.gateway)
        b.close()
        b.gateway.stop()
        with RawClient(b.server.port, PATIENCE) as server:
            server.call("DEL", "set")
            if kind is LocalCluster:  # what leaves it there may not be synced yet
                server.call("CONFIG", "SET", "appendfsync", "no")
        with dying_at(b.gateway, "repair-page-written", pages, monkeypatch):
            b.gateway.wait_ready()
            synced = append_only_file(b).stat().st_size
            with (
                pytest.raises((ServerError, OSError)),
                RawClient(b.gateway.port, PATIENCE) as client,
            ):
                while True:  # as long as it is not linked yet
                    assert isinstance(client.call("CRDTCAST", "REPAIR", "set"), ErrorReply)
            assert b.gateway.process is not None
            b.gateway.process.wait(PATIENCE)
            b.server.kill()
            lose_the_end_of_the_file(b, synced)
            b.server.restart()
        with RawClient(b.gateway.port, PATIENCE) as client:

            def is_whole() -> bool:
                card = client.call("SCARD", "set")
                if isinstance(card, ErrorReply):
                    return False  # it goes on by itself
                assert int(str(card)) < FEW or int(str(card)) > MANY - FEW, "a half is shown"
                if int(str(card)) < FEW:  # nothing of the repair is left, so an operator asks again
                    client.call("CRDTCAST", "REPAIR", "set")
                return int(str(card)) > MANY - FEW

            until(is_whole)
        writer.stop()
        cluster.wait_equal("ab", quiet=True, timeout=PATIENCE)
        told = {json.loads(cluster[name].command("VERIFY"))["digest"] for name in "ab"}
        assert len(told) == 1
        writer.check(b.gateway.port)


@pytest.mark.parametrize("in_force_already", [False, True], ids=["pending", "in force"])
@pytest.mark.parametrize("name", ["a", "b"], ids=["raiser", "another"])
def test_raised_level_holds_although_a_server_lost_it(
    tmp_path: Path, name: str, in_force_already: bool
) -> None:
    """It had said that it was synced, so it joins again; its own file may know of the level."""
    with LaterCluster(tmp_path, "abc", group="g") as cluster:
        fill_few(cluster, 50)
        until(lambda: format_of(cluster["a"])["raisable"] == NEXT)
        if not in_force_already:
            cluster.isolate("c")  # so that not all agree
        synced = append_only_file(cluster[name]).stat().st_size
        cluster["a"].command("RAISE", f"{NEXT}")
        until(lambda: in_force_already or "c" in wants(cluster, "a")["waits_for"])
        if in_force_already:
            until(lambda: all(format_of(region)["level"] == NEXT for region in cluster))
            assert call(cluster[name], "SADDLATER", "s", "x") == 1
            until(lambda: call(cluster["c"], "SCARD", "s") == 1)
        assert call(cluster["b"], "INCR", "n") == 1
        until(lambda: call(cluster["a"], "GET", "n") == b"1")
        die_without_the_last_second(cluster[name], synced)
        cluster[name].gateway.launch()
        cluster[name].gateway.wait_ready()
        if not in_force_already:
            for other in "ab":
                cluster[other].command("HEAL", "c")
                cluster["c"].command("HEAL", other)
        if name == "a" and not in_force_already:
            # The want went with the incarnation whose server has lost it, as its operator can see.
            cluster["a"].command("RAISE", f"{NEXT}")
        in_force(cluster, "abc")
        assert call(cluster["c"], "GET", "n") == b"1"


def test_level_rises_after_an_absent_member_lost_its_last_second(
    tmp_path: Path,
) -> None:
    with LaterCluster(tmp_path, "abc", group="g") as cluster:
        fill_few(cluster, 50)
        until(lambda: format_of(cluster["a"])["raisable"] == NEXT)
        region = cluster["b"]
        synced = append_only_file(region).stat().st_size
        assert call(region, "INCR", "n") == 1
        until(lambda: call(cluster["a"], "GET", "n") == b"1")
        die_without_the_last_second(region, synced)
        cluster["a"].command("RAISE", f"{NEXT}")
        until(lambda: wants(cluster, "a")["waits_for"] == ["b"])
        assert format_of(cluster["c"])["level"] == NOW
        region.gateway.launch()
        region.gateway.wait_ready()
        in_force(cluster, "abc")
        assert call(cluster["c"], "GET", "n") == b"1"


def die_without_the_last_second(region: Region, synced: int) -> None:
    """Gateway and server; the server comes back without half of what came after so many bytes of its file."""
    region.close()
    region.gateway.kill()
    region.server.kill()
    lose_the_end_of_the_file(region, synced)
    region.server.restart()
