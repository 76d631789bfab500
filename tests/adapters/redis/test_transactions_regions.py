"""Transactions in several regions: seen whole or not at all, wherever the network or a process ends."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.gateways import Gateways, until

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("transactions")
    with LocalCluster(directory, NAMES, group="t", log_directory=directory / "logs") as running:
        yield running


def client_of(region: Region) -> redis.Redis:
    return redis.Redis(port=region.gateway.port, retry=Retry(NoBackoff(), 0), decode_responses=True)


def settle(cluster: LocalCluster) -> None:
    for region in cluster:
        region.close()
    cluster.wait_equal(cluster.names, quiet=True, timeout=60)


class Watcher:
    """Reads of one instant, at a gateway and past it at its server, until `stop`; a half that is seen is kept."""

    def __init__(self, region: Region, keys: tuple[str, ...]) -> None:
        self.halves: list[object] = []
        self.looks = 0
        self._region, self._keys = region, keys
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with (
            client_of(self._region) as gateway,
            redis.Redis(port=self._region.server.port) as server,
        ):
            while not self._stopping.is_set():
                with gateway.pipeline() as pipe:
                    for key in self._keys:
                        pipe.get(key)
                    seen = pipe.execute()
                for values in (seen, gateway.mget(self._keys), server.mget(self._keys)):
                    if len(set(values)) > 1:
                        self.halves.append(values)
                    self.looks += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.looks
        assert not self.halves, self.halves[:3]


def test_no_region_sees_half_a_transaction_through_partitions(cluster: LocalCluster) -> None:
    seed = 7
    print("seed", seed)
    rng = Random(seed)
    keys = ("left", "middle", "right")
    watchers = [Watcher(region, keys) for region in cluster]
    total = 0
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client_of(region)) for region in cluster]
        for _ in range(12):
            one, other = rng.sample(NAMES, 2)
            cluster.cut(one, other)
            for _ in range(20):
                amount = rng.randint(-5, 9)
                with rng.choice(clients).pipeline() as pipe:
                    for key in rng.sample(keys, 3):
                        pipe.incrby(key, amount)
                    pipe.sadd("noise", rng.randint(0, 50)).srem("noise", rng.randint(0, 50))
                    pipe.execute()
                total += amount
            cluster.heal(one, other)
        settle(cluster)
        for watcher in watchers:
            watcher.stop()
        for client in clients:
            assert client.mget(keys) == [str(total)] * 3


def test_5000_operations_are_seen_whole_after_a_partition(cluster: LocalCluster) -> None:
    settle(cluster)
    cluster.isolate("a")
    before = cluster["a"].status()["vector"].get(cluster["a"].gateway.incarnation, 0)
    with client_of(cluster["a"]) as client:
        with client.pipeline() as pipe:
            pipe.incr("first")
            for number in range(5000):
                pipe.sadd("many", f"member-{number}")
            pipe.incr("last")
            assert pipe.execute() == [1] * 5002
        status = cluster["a"].status()
        assert status["vector"][cluster["a"].gateway.incarnation] == before + 1
    watcher = Watcher(cluster["b"], ("first", "last"))
    cluster.rejoin("a")
    settle(cluster)
    watcher.stop()
    for region in cluster:
        with client_of(region) as client:
            assert (client.scard("many"), client.get("first")) == (5000, "1")


def test_a_transaction_sent_again_after_an_eviction_stays_whole(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.start("c", "a")
        town.call("a", "SADD", "s", "old")
        town.wait_equal("a", "b", "c")
        for other in ("a", "b"):
            town.call("c", "CRDTCAST", "CUT", other)
            town.call(other, "CRDTCAST", "CUT", "c")
        with RawClient(town.running["c"].port) as client:
            words = [["INCR", "one"], ["SREM", "s", "old"], ["SADD", "s", "new"], ["INCR", "two"]]
            replies = client.pipeline([["MULTI"], *words, ["EXEC"]])
            assert replies[-1] == [1, 1, 1, 1]
        town.call("a", "CRDTCAST", "EVICT", "c")
        until(lambda: town.members("a") == ["a", "b"])
        for other in ("a", "b"):
            town.call("c", "CRDTCAST", "HEAL", other)
            town.call(other, "CRDTCAST", "HEAL", "c")
        halves: list[object] = []

        def is_there() -> bool:
            seen = town.call("a", "MGET", "one", "two")
            if len(set(seen)) > 1:
                halves.append(seen)
            return bool(seen == [b"1", b"1"])

        until(is_there)
        assert not halves
        until(lambda: town.members("a") == ["a", "b", "c"])
        town.wait_equal("a", "b", "c")
        assert town.call("b", "SMEMBERS", "s") == [b"new"]


def test_a_transaction_at_a_gateway_that_leaves_is_refused_whole(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.wait_equal("a", "b")
        # What b has cannot reach a, so it goes on leaving.
        town.call("a", "CRDTCAST", "CUT", "b")
        town.call("b", "CRDTCAST", "CUT", "a")
        with RawClient(town.running["b"].port) as client:
            assert client.call("INCR", "n") == 1
            assert client.pipeline([["MULTI"], ["INCR", "n"]]) == [b"OK", b"QUEUED"]
            town.call("b", "CRDTCAST", "LEAVE")
            reply = client.call("EXEC")
            assert isinstance(reply, ErrorReply)
            assert reply.text.startswith(
                "EXECABORT Transaction discarded because of: crdtcast: this gateway is no longer a member"
            )
            replies = client.pipeline([["MULTI"], ["GET", "n"], ["STRLEN", "n"], ["EXEC"]])
            assert replies[-1] == [b"1", 1], "reads go on"
        town.call("a", "CRDTCAST", "HEAL", "b")
