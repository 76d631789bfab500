"""Servers of a group whose members come and go that fail under load: killed, stopped, emptied, full, replaced by
another one that Sentinel promotes; and members that are killed at each named point while they are filled by the group.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.adapters.redis import named_points
from tests.adapters.redis.disk_support import fill, small_disk
from tests.adapters.redis.fault_load import Load, check_cluster
from tests.adapters.redis.gateways import until
from tests.adapters.redis.sentinel_support import primary_and_replica, sentinel
from tests.adapters.redis.test_crashes import dying_at
from tests.effort import EFFORT, first_seed, size

pytestmark = [pytest.mark.process, pytest.mark.crashes]

NAMES = ("a", "b", "c")
OFTEN = ("copy-slice-written", "join-finished")
"""Points at which a joiner is killed in every run; a member that is filled again passes all of them."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCluster]:
    directory = tmp_path_factory.mktemp("faults")
    arguments = ("--server-patience", "2")
    with OpenCluster(
        directory, NAMES, group="faults", appendfsync="always", arguments=arguments
    ) as running:
        with RawClient(running["a"].gateway.port) as client:
            client.call("SET", "long", "x" * 3_000_000)  # it is copied in pages
        yield running


def load(cluster: OpenCluster, label: str, *, refilled: Iterable[str] = ()) -> Load:
    """Clients of all regions. refilled: regions whose servers show a part of the data for a while."""
    gateways = {region.name: region.gateway for region in cluster}
    past = [region.server for region in cluster if region.name not in tuple(refilled)]
    return Load(gateways, label, seed=first_seed(), past=past)


def empty(server: EmbeddedServer) -> None:
    with RawClient(server.port) as client:
        assert client.call("FLUSHALL") == b"OK"


def test_server_killed_under_load_loses_nothing(cluster: OpenCluster) -> None:
    server = cluster["b"].server
    with load(cluster, "killed") as running:
        running.clients["b"].wait_for(20)
        server.kill()
        server.restart()
        running.clients["b"].wait_for(20)
    check_cluster(cluster, [running])


def test_server_stopped_under_load_loses_nothing(cluster: OpenCluster) -> None:
    server = cluster["b"].server
    with load(cluster, "stopped") as running:
        client = running.clients["b"]
        client.wait_for(20)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            running.clients["a"].wait_for(20)
            until(lambda: client.errors)  # its gateway has given up waiting
        finally:
            os.kill(server.pid, signal.SIGCONT)
        client.wait_for(20)
    check_cluster(cluster, [running])


@pytest.mark.parametrize("emptied", ["a", "b"], ids=["founder", "joiner"])
def test_server_emptied_under_load_is_filled_again(cluster: OpenCluster, emptied: str) -> None:
    with load(cluster, f"emptied-{emptied}", refilled=emptied) as running:
        for _ in range(size(ci=1, release=2)):
            running.clients[emptied].wait_for(20)
            empty(cluster[emptied].server)
        running.clients[emptied].wait_for(20)
    check_cluster(cluster, [running], may_yield=True, emptied=True)


def test_member_killed_while_it_is_filled_loses_nothing(
    cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = cluster["b"]
    region.close()
    with load(cluster, "filled", refilled="b") as running:
        for point in named_points.JOIN_POINTS:
            print("point", point)
            region.gateway.stop()
            with dying_at(region.gateway, point, 1, monkeypatch):
                region.gateway.wait_ready()
                running.clients["b"].wait_for(10)
                empty(region.server)
            running.clients["b"].wait_for(10)
    check_cluster(cluster, [running], may_yield=True, emptied=True)


def test_joiner_killed_at_a_named_point_is_let_in_later(
    cluster: OpenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = cluster["c"]
    with load(cluster, "joins", refilled="c") as running:
        for point in named_points.JOIN_POINTS if EFFORT.runs_slow else OFTEN:
            print("point", point)
            assert region.command("LEAVE") == "OK"
            region.close()
            process = region.gateway.process
            assert process is not None
            assert process.wait(60) == 0, region.gateway.obituary()
            region.gateway.forget_process()
            running.clients["a"].wait_for(10)
            with dying_at(region.gateway, point, 1, monkeypatch):
                pass
            running.clients["c"].wait_for(5)
    check_cluster(cluster, [running], may_yield=True, emptied=True)


class WithServers(OpenCluster):
    """A cluster of which some regions have servers, or addresses of servers, of their own."""

    def __init__(self, directory: Path, own: dict[str, tuple[EmbeddedServer, str]]) -> None:
        self._own = own
        super().__init__(directory, NAMES, group="faults", appendfsync="always")

    def server_of(self, name: str) -> EmbeddedServer:
        return self._own[name][0] if name in self._own else super().server_of(name)

    def own_arguments(
        self, name: str, server: EmbeddedServer, port: int, peer_port: int
    ) -> list[str]:
        words = super().own_arguments(name, server, port, peer_port)
        if name in self._own:
            words[words.index("--server") + 1] = self._own[name][1]
        return words


def test_disk_that_fills_up_under_load_loses_nothing(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "small", "64m") as disk,
        start_server(disk, appendfsync="everysec") as server,
        WithServers(tmp_path, {"b": (server, server.url)}) as cluster,
        load(cluster, "full") as running,
    ):
        client = running.clients["b"]
        client.wait_for(20)
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            fill(file)
        until(lambda: any("MISCONF" in text for text in client.errors))
        running.clients["a"].wait_for(20)
        ballast.unlink()
        client.wait_for(20)
        running.stop()
        check_cluster(cluster, [running], may_yield=True)


def test_replica_promoted_under_load_takes_over_all_writes(tmp_path: Path) -> None:
    with (
        primary_and_replica(tmp_path, "always") as (one, two),
        sentinel(tmp_path / "sentinel", one.port) as port,
        WithServers(tmp_path, {"b": (one, f"sentinel://127.0.0.1:{port}/shop")}) as cluster,
    ):
        with load(cluster, "promoted", refilled="b") as running:
            running.clients["b"].wait_for(20)
            one.kill()
            running.clients["b"].wait_for(20)
        cluster["b"].server = two
        check_cluster(cluster, [running], may_yield=True)
