"""Gateways and servers that die: at each named point of a write's path, at random moments, and what is then true."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import redis

from crdtcast.adapters.redis import crash_points
from crdtcast.adapters.redis.cluster import GatewayProcess, LocalCluster, Region
from crdtcast.eventlog.check import check_logs
from tests.adapters.redis import named_points
from tests.adapters.redis.fault_load import PATIENCE, Load, check_cluster
from tests.adapters.redis.gateways import until
from tests.effort import examples, first_seed

pytestmark = [pytest.mark.process, pytest.mark.crashes]

NAMES = ("a", "b", "c")


def load(cluster: LocalCluster, label: str) -> Load:
    """Clients of all regions, whose servers are read past the gateways, too."""
    gateways = {region.name: region.gateway for region in cluster}
    servers = [region.server for region in cluster]
    return Load(gateways, label, seed=first_seed(), past=servers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("crashes")
    logs = directory / "logs"
    with LocalCluster(directory, NAMES, group="crashes", log_directory=logs) as running:
        yield running
    assert not check_logs([logs]).violations


PASSES = {
    "piece-encoded": 2,
    "piece-decoded": 2,
    "batch-prepared": 12,
    "exec-sent": 12,
    "exec-answered": 12,
    "client-answered": 8,
    "remote-applied": 8,
}
"""How often each point on the way of a write is passed before the gateway dies there."""


def test_every_crash_point_in_the_code_is_tested() -> None:
    folder = Path(crash_points.__file__).parent
    code = "".join(file.read_text() for file in folder.rglob("*.py"))
    points = re.findall(r"\bcrash_point\(\s*\"([^\"]+)\"", code)
    named = [
        *named_points.POINTS,
        *named_points.RECORDED_POINTS,
        *named_points.HIDING_POINTS,
        *named_points.NEXT_POINTS,
    ]
    named += [*named_points.JOIN_POINTS, *named_points.GIVING_POINTS, *named_points.REPAIR_POINTS]
    named += [*named_points.ADOPTION_POINTS, *named_points.PLAIN_POINTS]
    assert sorted(points) == sorted(named)
    assert set(PASSES) == set(named_points.POINTS)


@contextmanager
def dying_at(
    gateway: GatewayProcess, point: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The gateway, which is not running, is started in the block, and dies there; afterwards it serves again."""
    monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:{passes}")
    gateway.launch()
    monkeypatch.delenv("CRDTCAST_CRASH_AT")
    process = gateway.process
    assert process is not None
    yield
    assert process.wait(60) == -9, gateway.obituary()
    gateway.forget_process()
    gateway.launch()
    gateway.wait_ready()


def test_gateway_killed_at_each_point_neither_loses_nor_repeats(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = cluster["b"].gateway
    with load(cluster, "points") as running:
        for point in named_points.POINTS:
            print("point", point)
            gateway.stop()
            with dying_at(gateway, point, PASSES[point], monkeypatch):
                gateway.wait_ready()
                incarnation = gateway.incarnation
            running.clients["b"].wait_for(5)
            assert gateway.incarnation == incarnation, "the server never died: the journal is whole"
    check_cluster(cluster, [running])


def test_gateway_killed_at_random_neither_loses_nor_repeats(
    cluster: LocalCluster,
) -> None:
    rng = Random(first_seed())
    with load(cluster, "random") as running:
        for _ in range(examples(3)):
            name = rng.choice(NAMES)
            gateway = cluster[name].gateway
            running.clients[name].wait_for(rng.randint(1, 90))
            gateway.kill()
            gateway.launch()
            gateway.wait_ready()
    check_cluster(cluster, [running])


def test_all_gateways_killed_at_once(cluster: LocalCluster) -> None:
    with load(cluster, "all") as running:
        for client in running.clients.values():
            client.wait_for(30)
        for region in cluster:
            region.gateway.kill()
        for region in cluster:
            region.gateway.launch()
        for region in cluster:
            region.gateway.wait_ready()
    check_cluster(cluster, [running])


@pytest.mark.parametrize("hangs", [False, True])
def test_second_gateway_takes_over_and_the_first_one_stops(
    cluster: LocalCluster, tmp_path: Path, hangs: bool
) -> None:
    """The first one still serves, or hangs in the middle of its writes; both write to one directory of logs."""
    first = cluster["c"].gateway
    second = GatewayProcess("c", first.port, first.peer_port, tmp_path, list(first.arguments))
    for option in ("--listen-clients", "--listen"):
        second.arguments[second.arguments.index(option) + 1] = "127.0.0.1:0"
    second.arguments[second.arguments.index("--admin") + 1] = str(tmp_path / "second.sock")
    assert first.process is not None
    with load(cluster, f"fenced-{hangs}") as running:
        running.clients["c"].wait_for(20)
        if hangs:
            first.process.send_signal(signal.SIGSTOP)
        second.launch()
        second.wait_ready()
        if hangs:
            first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(30) == 2
        # It is stopped by the fence or by a peer, whichever it meets first.
        assert re.search("taken over this server|has taken its place", first.log.read_text())
        second.stop()
        first.forget_process()
        first.launch()
        first.wait_ready()
        running.clients["c"].wait_for(5)
    check_cluster(cluster, [running])


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_server_killed_and_restarted(tmp_path: Path, appendfsync: str) -> None:
    with LocalCluster(
        tmp_path, NAMES, group="servers", appendfsync=appendfsync, log_directory=tmp_path / "logs"
    ) as cluster:
        region = cluster["b"]
        before = region.status()["incarnation"]
        with load(cluster, "server") as running:
            running.clients["b"].wait_for(40)
            region.server.kill()
            region.server.restart()
            running.clients["b"].wait_for(40)
        check_cluster(cluster, [running])
        after = region.status()["incarnation"]
        assert (after == before) is (appendfsync == "always")


def append_only_file(region: Region) -> Path:
    (file,) = (region.server.directory / "appendonlydir").glob("*.incr.aof")
    return file


def lose_the_end_of_the_file(region: Region, synced: int) -> None:
    """Cut the append-only file in the middle of what came after its first `synced` bytes, as a power failure may."""
    file = append_only_file(region)
    with file.open("r+b") as stream:
        stream.truncate((synced + file.stat().st_size) // 2)


def test_server_without_its_last_writes_gets_them_from_gateway(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path, NAMES, group="tail", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        cluster.wait_equal(NAMES, quiet=True, timeout=PATIENCE)
        cluster.isolate("b")  # so that nothing is stable, and the gateway has it all in memory
        before = region.gateway.incarnation
        synced = append_only_file(region).stat().st_size
        with load(cluster, "tail") as running:
            running.clients["b"].wait_for(100)
            region.server.kill()
            lose_the_end_of_the_file(region, synced)
            region.server.restart()
            running.clients["b"].wait_for(20)
        cluster.rejoin("b")
        check_cluster(cluster, [running])
        assert region.status()["incarnation"] > before


def test_server_and_gateway_killed_together_under_everysec(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, NAMES, group="both", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        before = region.gateway.incarnation
        with load(cluster, "both") as running:
            running.clients["b"].wait_for(40)
            region.gateway.kill()
            region.server.kill()
            region.server.restart()
            region.gateway.launch()
            region.gateway.wait_ready()
            running.clients["b"].wait_for(5)
        assert region.gateway.incarnation > before
        check_cluster(cluster, [running])


def test_writes_lost_by_gateway_and_server_return_from_a_peer(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, NAMES, group="lost", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        cluster.wait_equal(NAMES, quiet=True, timeout=PATIENCE)
        with redis.Redis(port=region.server.port) as server:
            server.config_set("appendfsync", "no")  # nothing is synced from here on, or told to be
        synced = append_only_file(region).stat().st_size
        with load(cluster, "lost") as running:
            running.clients["b"].wait_for(100)
        status = region.status()
        told = status["vector"][status["incarnation"]]
        for peer in ("a", "c"):  # a peer has all that b has acknowledged
            until(lambda p=peer: cluster[p].status()["vector"].get(status["incarnation"]) == told)
        region.gateway.kill()
        region.server.kill()
        lose_the_end_of_the_file(region, synced)
        region.server.restart()
        region.gateway.launch()
        region.gateway.wait_ready()
        check_cluster(cluster, [running])
        assert region.status()["incarnation"] > status["incarnation"]
