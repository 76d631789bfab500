"""Gateways that die around what their server does by itself: at each point of it, and with the server's last second."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.eventlog.check import check_logs
from tests.adapters.redis import named_points
from tests.adapters.redis.fault_load import PATIENCE, Load, check_cluster
from tests.adapters.redis.test_crashes import (
    NAMES,
    append_only_file,
    dying_at,
    lose_the_end_of_the_file,
)
from tests.effort import EFFORT, first_seed

pytestmark = [pytest.mark.process, pytest.mark.crashes]

POINTS = (*named_points.RECORDED_POINTS, "exec-sent", "exec-answered", "client-answered")
"""Reserved, not sent; derived, not told; executed, not answered; recorded, not derived; the next commit answered."""
PASSES = {"client-answered": 2}
"""How often a point is passed before the gateway dies there, if not 9 times: this one is passed every other second."""
TELLING = ("record-derived", "exec-sent", "client-answered")
"""Where others may have been sent what is lost."""


def load(cluster: LocalCluster, label: str, *, refilled: str = "") -> Load:
    """refilled: a region whose server is filled again meanwhile."""
    gateways = {region.name: region.gateway for region in cluster}
    servers = [region.server for region in cluster if region.name != refilled]
    return Load(gateways, label, seed=first_seed(), past=servers, recorded=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("recorded")
    logs = directory / "logs"
    with LocalCluster(directory, NAMES, group="recorded", log_directory=logs) as running:
        yield running
    assert not check_logs([logs]).violations


def kill_at_each_point(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, points: Iterable[str] = POINTS
) -> None:
    gateway = cluster["b"].gateway
    with load(cluster, "points") as running:
        for point in points:
            print("point", point)
            gateway.stop()
            with dying_at(gateway, point, PASSES.get(point, 9), monkeypatch):
                gateway.wait_ready()
                incarnation = gateway.incarnation
            running.clients["b"].wait_for(5)
            assert gateway.incarnation == incarnation, "the server never died: the journal is whole"
    check_cluster(cluster, [running])


def test_gateway_killed_at_each_point_loses_and_repeats_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_each_point(cluster, monkeypatch)


@pytest.mark.parametrize("told", [True, False])
def test_server_that_loses_its_tail_loses_whole_messages_only(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """told: the other regions have been sent what the server loses."""
    region = cluster["b"]
    gateway, server = region.gateway, region.server
    cluster.wait_equal(NAMES, quiet=True, timeout=PATIENCE)
    if not told:
        cluster.isolate("b")
    with load(cluster, f"tails-{told}") as running:
        for point in TELLING if told else POINTS:
            print("point", point)
            gateway.stop()
            with RawClient(server.port) as admin:
                admin.call("CONFIG", "SET", "appendfsync", "no")  # so that nothing counts as synced
            synced = append_only_file(region).stat().st_size
            monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:{PASSES.get(point, 9)}")
            gateway.launch()
            monkeypatch.delenv("CRDTCAST_CRASH_AT")
            process = gateway.process
            assert process is not None and process.wait(60) == -9, gateway.obituary()
            gateway.forget_process()
            server.kill()
            lose_the_end_of_the_file(region, synced)
            server.restart()
            gateway.launch()
            gateway.wait_ready()
            running.clients["b"].wait_for(5)
    if not told:
        region.close()  # our connection is one to a gateway that was killed
        cluster.rejoin("b")
    check_cluster(cluster, [running], may_yield=True, may_lose="b")


# Where members come and go


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCluster]:
    directory = tmp_path_factory.mktemp("open")
    logs = directory / "logs"
    with OpenCluster(directory, NAMES, group="open", log_directory=logs) as running:
        yield running
    assert not check_logs([logs]).violations


def test_member_killed_at_each_point_loses_and_repeats_nothing(
    open_cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At three of the points; in a release at each."""
    kill_at_each_point(open_cluster, monkeypatch, POINTS if EFFORT.runs_slow else TELLING)


def test_member_whose_server_loses_a_promise_joins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event logs tell of what is lost, too: they are not looked at."""
    with OpenCluster(tmp_path, NAMES, group="open") as cluster:
        region = cluster["b"]
        gateway, server = region.gateway, region.server
        cluster.wait_equal(NAMES, quiet=True, timeout=PATIENCE)
        with load(cluster, "promised", refilled="b") as running:
            for point in POINTS if EFFORT.runs_slow else ("exec-sent", "exec-answered"):
                print("point", point)
                gateway.stop()
                kept = append_only_file(region).stat().st_size
                monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:40")
                gateway.launch()
                monkeypatch.delenv("CRDTCAST_CRASH_AT")
                process = gateway.process
                assert process is not None and process.wait(60) == -9, gateway.obituary()
                gateway.forget_process()
                server.kill()
                lose_the_end_of_the_file(region, kept)
                server.restart()
                gateway.launch()
                gateway.wait_ready()
                running.clients["b"].wait_for(5)
        check_cluster(cluster, [running], may_yield=True, may_lose="b")
