"""Gateways and servers that die: at each named point of a write's path, at random moments, and what is then true.

Every operation has a key of its own, so "lost" is an acknowledged key that is absent and "doubled" a value of 2.
"""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.faults import POINTS
from tests.adapters.redis.regression_support import until
from tests.effort import examples, first_seed

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")
TOGETHER_SECONDS = 60.0


def client_of(region: Region) -> redis.Redis:
    """A client that sends nothing again by itself: it would double an INCR whose answer was lost."""
    return redis.Redis(
        host="127.0.0.1", port=region.gateway.port, retry=Retry(NoBackoff(), 0), protocol=2
    )


@dataclass
class Writer:
    """One client of one region: writes until told to stop, or until its region is gone."""

    region: Region
    label: str
    acknowledged: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    refused: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    progress: threading.Condition = field(default_factory=threading.Condition)

    def run(self, most: int = 4000) -> None:
        client = client_of(self.region)
        try:
            for number in range(most):
                if self.stop.is_set():
                    return
                key = f"{self.label}:{number}"
                try:
                    if number % 2:
                        client.incr(key)
                    else:
                        client.sadd("members", key)
                except redis.ResponseError:
                    # Nothing was written, or it cannot be said: the error tells; count as unsure.
                    self.unsure.append(key)
                    self.refused += 1
                except redis.ConnectionError:
                    self.unsure.append(key)
                    return
                else:
                    with self.progress:
                        self.acknowledged.append(key)
                        self.progress.notify_all()
        finally:
            client.close()

    def wait_for(self, count: int) -> None:
        """Return when so many writes have been acknowledged."""
        with self.progress:
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= count, timeout=60)


@dataclass
class Load:
    """Writers at every region, in threads."""

    cluster: LocalCluster
    label: str

    def __enter__(self) -> "Load":
        self.writers = {
            region.name: Writer(region, f"{self.label}-{region.name}") for region in self.cluster
        }
        self.threads = [threading.Thread(target=w.run) for w in self.writers.values()]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for writer in self.writers.values():
            writer.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def check(cluster: LocalCluster, loads: list[Load]) -> None:
    """All regions equal; nothing acknowledged is lost, nothing is doubled, no metadata is left."""
    for region in cluster:
        region.close()  # our connection may be one to a gateway that was killed
    cluster.wait_equal(NAMES, quiet=True, timeout=TOGETHER_SECONDS)
    acknowledged = [key for load in loads for w in load.writers.values() for key in w.acknowledged]
    unsure = [key for load in loads for w in load.writers.values() for key in w.unsure]
    increments = [key for key in acknowledged if int(key.rpartition(":")[2]) % 2]
    added = {*acknowledged} - {*increments}
    for region in cluster:
        with redis.Redis(port=region.server.port, decode_responses=True) as server:
            assert added <= server.smembers("members")
            counted = dict(zip(increments, server.mget(["", *increments])[1:], strict=True))
            assert {key: value for key, value in counted.items() if value != "1"} == {}
            assert {*server.mget(["", *unsure])} <= {None, "1"}
    digests = {region.command("VERIFY").partition('"vector"')[0] for region in cluster}
    assert len(digests) == 1, digests


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("crashes")
    with LocalCluster(
        directory, NAMES, group="crashes", log_directory=directory / "logs"
    ) as running:
        yield running


@pytest.mark.parametrize("point", POINTS)
def test_a_gateway_killed_at_a_named_point_loses_and_doubles_nothing(
    cluster: LocalCluster, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = cluster["b"].gateway
    gateway.stop()
    monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:25")
    gateway.launch()
    gateway.wait_ready()
    process = gateway.process
    assert process is not None
    monkeypatch.delenv("CRDTCAST_CRASH_AT")
    incarnation = gateway.incarnation
    with Load(cluster, f"point-{point}") as load:
        assert process.wait(60) == -9, "the gateway passed the point and lived"
        load.writers["a"].wait_for(len(load.writers["a"].acknowledged) + 20)
    gateway.forget_process()
    gateway.launch()
    gateway.wait_ready()
    assert gateway.incarnation == incarnation, "the server never died: the journal is intact"
    check(cluster, [load])


def test_a_gateway_killed_at_random_moments_loses_and_doubles_nothing(
    cluster: LocalCluster,
) -> None:
    rng = Random(first_seed())
    loads = []
    for round_ in range(examples(10)):
        name = rng.choice(NAMES)
        gateway = cluster[name].gateway
        with Load(cluster, f"random-{round_}") as load:
            load.writers[name].wait_for(rng.randint(1, 150))
            gateway.kill()
        loads.append(load)
        gateway.launch()
        gateway.wait_ready()
    check(cluster, loads)


def test_all_gateways_killed_at_once(cluster: LocalCluster) -> None:
    with Load(cluster, "all") as load:
        for writer in load.writers.values():
            writer.wait_for(30)
        for region in cluster:
            region.gateway.kill()
    for region in cluster:
        region.gateway.launch()
    for region in cluster:
        region.gateway.wait_ready()
    check(cluster, [load])


def test_a_second_gateway_takes_the_server_over_and_the_first_one_stops(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    from crdtcast.adapters.redis.cluster import GatewayProcess

    first = cluster["c"].gateway
    second = GatewayProcess("c", first.port, first.peer_port, tmp_path, list(first.arguments))
    for option in ("--listen", "--peer-listen"):
        second.arguments[second.arguments.index(option) + 1] = "127.0.0.1:0"
    second.arguments[second.arguments.index("--admin") + 1] = str(tmp_path / "second.sock")
    second.launch()
    second.wait_ready()
    assert first.process is not None
    with (
        client_of(cluster["c"]) as client,
        pytest.raises(redis.ConnectionError),
    ):
        for number in range(1000):
            client.incr(f"fenced:{number}")
    assert first.process.wait(30) == 2
    # It is stopped by the fence or by a peer, whichever it meets first.
    assert re.search("taken this server|has taken its place", first.log.read_text())
    second.stop()
    first.forget_process()
    first.launch()
    first.wait_ready()
    check(cluster, [])


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_server_killed_and_restarted(tmp_path: Path, appendfsync: str) -> None:
    with LocalCluster(
        tmp_path, NAMES, group="servers", appendfsync=appendfsync, log_directory=tmp_path / "logs"
    ) as cluster:
        region = cluster["b"]
        before = region.status()["incarnation"]
        with Load(cluster, "server") as load:
            load.writers["b"].wait_for(40)
            region.server.kill()
            region.server.restart()
            load.writers["b"].wait_for(len(load.writers["b"].acknowledged) + 40)
        check(cluster, [load])
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


def test_a_server_that_lost_its_last_writes_gets_them_back_from_its_gateway(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path, NAMES, group="tail", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        cluster.wait_equal(NAMES, quiet=True, timeout=TOGETHER_SECONDS)
        cluster.isolate("b")  # so that nothing is stable, and the gateway has it all in memory
        before = region.gateway.incarnation
        synced = append_only_file(region).stat().st_size
        with Load(cluster, "tail") as load:
            load.writers["b"].wait_for(100)
            region.server.kill()
            lose_the_end_of_the_file(region, synced)
            region.server.restart()
            load.writers["b"].wait_for(len(load.writers["b"].acknowledged) + 20)
        cluster.rejoin("b")
        check(cluster, [load])
        assert region.status()["incarnation"] > before


def test_server_and_gateway_killed_together_under_everysec(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, NAMES, group="both", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        before = region.gateway.incarnation
        with Load(cluster, "both") as load:
            load.writers["b"].wait_for(40)
            region.gateway.kill()
            region.server.kill()
        region.server.restart()
        region.gateway.launch()
        region.gateway.wait_ready()
        assert region.gateway.incarnation > before
        check(cluster, [load])


def test_what_gateway_and_server_lost_together_comes_back_from_a_peer(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, NAMES, group="lost", log_directory=tmp_path / "logs") as cluster:
        region = cluster["b"]
        cluster.wait_equal(NAMES, quiet=True, timeout=TOGETHER_SECONDS)
        with redis.Redis(port=region.server.port) as server:
            server.config_set("appendfsync", "no")  # nothing is synced from here on, or told to be
        synced = append_only_file(region).stat().st_size
        with Load(cluster, "lost") as load:
            load.writers["b"].wait_for(200)
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
        check(cluster, [load])
        assert region.status()["incarnation"] > status["incarnation"]
