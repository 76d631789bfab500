"""A type that the core does not know passes copy, VERIFY, repair, restart, hiding and the log, in real gateways."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster, Region
from crdtcast.adapters.redis.rawclient import RawClient
from crdtcast.logcheck import check_logs
from tests.adapters.redis.regression_support import PATIENCE, until

pytestmark = pytest.mark.process

TOY = (str(Path(__file__).with_name("toy_hash.py")),)


class ToyCluster(OpenCluster):
    """A group of gateways that know the toy type."""

    def begin(self, name: str, *, program: tuple[str, ...] = TOY, **options: Any) -> Region:
        return super().begin(name, program=program, **options)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCluster]:
    directory = tmp_path_factory.mktemp("toy")
    logs = directory / "logs"
    with ToyCluster(
        directory, "ab", group="toy", appendfsync="always", log_directory=logs
    ) as running:
        yield running
    checked = check_logs([logs])
    assert not checked.violations
    assert checked.counts["values"] > 0


def call(region: Region, *words: object) -> Any:
    with RawClient(region.gateway.port, PATIENCE) as client:
        return client.call(*map(str, words))


def fields(region: Region, key: str) -> dict[bytes, bytes]:
    words = call(region, "HGETALL", key)
    return dict(zip(words[::2], words[1::2], strict=True))


def settled(cluster: ToyCluster) -> None:
    cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)
    digests = {json.loads(call(region, "CRDTCAST", "VERIFY"))["digest"] for region in cluster}
    assert len(digests) == 1


def apart(cluster: ToyCluster, *pairs: tuple[str, tuple[object, ...]]) -> list[Any]:
    """Commands at two regions of which neither has seen the other's."""
    cluster.isolate("b")
    replies = [call(cluster[name], *words) for name, words in pairs]
    cluster.rejoin("b")
    settled(cluster)
    return replies


def test_concurrent_writes_of_one_field_end_alike_and_of_two_are_kept(cluster: ToyCluster) -> None:
    assert apart(
        cluster,
        ("a", ("HSET", "h", "f", "of a", "x", "1")),
        ("b", ("HSET", "h", "f", "of b", "y", "2")),
    ) == [2, 2]
    for region in cluster:
        assert fields(region, "h") == {b"f": b"of b", b"x": b"1", b"y": b"2"}
    # A removal takes what it has seen.
    assert apart(cluster, ("a", ("HDEL", "h", "f", "x")), ("b", ("HSET", "h", "x", "again"))) == [
        2,
        0,
    ]
    for region in cluster:
        assert fields(region, "h") == {b"x": b"again", b"y": b"2"}


def test_value_that_a_removal_had_not_seen_comes_out_again(cluster: ToyCluster) -> None:
    """The later of two concurrent values is removed by one who has seen that one only."""
    cluster.isolate("b")
    call(cluster["a"], "HSET", "two", "f", "earlier")
    call(cluster["b"], "HSET", "two", "f", "later")
    call(cluster["b"], "HDEL", "two", "f")
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        assert fields(region, "two") == {b"f": b"earlier"}


def test_a_type_is_hidden_by_the_one_before_it_and_comes_out_again(cluster: ToyCluster) -> None:
    apart(cluster, ("a", ("HSET", "k", "f", "1")), ("b", ("SADD", "k", "x")))
    for region in cluster:
        assert fields(region, "k") == {b"f": b"1"}
        assert region.status()["hidden_keys"] == 1
    assert call(cluster["b"], "HDEL", "k", "f") == 1
    settled(cluster)
    for region in cluster:
        assert call(region, "SMEMBERS", "k") == [b"x"]
        assert region.status()["hidden_keys"] == 0
    assert call(cluster["a"], "SADD", "k", "y") == 1
    apart(cluster, ("a", ("INCR", "k2")), ("b", ("HSET", "k2", "f", "1")))
    assert call(cluster["a"], "GET", "k2") == b"1"
    assert call(cluster["b"], "SET", "k2", "text") == b"OK"
    settled(cluster)
    for region in cluster:
        assert call(region, "GET", "k2") == b"text"
        assert region.status()["hidden_keys"] == 0


def test_what_was_hidden_comes_out_beside_a_client_s_key_of_that_name(cluster: ToyCluster) -> None:
    call(cluster["a"], "SADD", "hidden:set:mine", "theirs")
    apart(cluster, ("a", ("HSET", "mine", "f", "1")), ("b", ("SADD", "mine", "x")))
    call(cluster["a"], "HDEL", "mine", "f")
    settled(cluster)
    for region in cluster:
        assert call(region, "SMEMBERS", "mine") == [b"x"]
        assert call(region, "SMEMBERS", "hidden:set:mine") == [b"theirs"]


def test_it_is_copied_to_a_joiner_with_what_it_hides(cluster: ToyCluster) -> None:
    apart(cluster, ("a", ("HSET", "both", "f", "1")), ("b", ("SADD", "both", "x")))
    call(cluster["a"], "HSET", "copied", *(word for n in range(6000) for word in (f"f{n}", n)))
    cluster.add("c")
    assert cluster["c"].status()["left_out"] == {}
    settled(cluster)
    assert fields(cluster["c"], "both") == {b"f": b"1"}
    assert call(cluster["c"], "HLEN", "copied") == 6000
    assert call(cluster["c"], "HDEL", "both", "f") == 1
    settled(cluster)
    assert call(cluster["a"], "SMEMBERS", "both") == [b"x"]


def test_it_goes_on_from_its_server_behind_a_restart(cluster: ToyCluster) -> None:
    cluster.isolate("b")  # so that nothing becomes stable
    call(cluster["a"], "HSET", "r", "f", "1", "g", "2")
    gateway = cluster["a"].gateway
    cluster["a"].close()
    gateway.kill()
    gateway.launch()
    gateway.wait_ready()
    assert call(cluster["a"], "HSET", "r", "f", "3") == 0
    call(cluster["b"], "HDEL", "r", "f", "g")
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        assert fields(region, "r") == {b"f": b"3", b"g": b"2"}


def test_what_was_changed_past_a_gateway_is_put_right(tmp_path: Path) -> None:
    # Event logs would rightly tell of regions that differ.
    with ToyCluster(tmp_path, "ab", group="toy", appendfsync="always") as cluster:
        put_right(cluster)


def put_right(cluster: ToyCluster) -> None:
    call(cluster["a"], "HSET", "past", "f", "1", "g", "2")
    settled(cluster)
    with RawClient(cluster["a"].server.port, PATIENCE) as server:
        server.call("HSET", "past", "f", "other")
    call(cluster["a"], "CRDTCAST", "REPAIR", "past", "FROM", "b")
    until(lambda: fields(cluster["a"], "past") == {b"f": b"1", b"g": b"2"})
    with RawClient(cluster["a"].server.port, PATIENCE) as server:
        server.call("DEL", "past")
        server.call("LPUSH", "past", "x")
    call(cluster["a"], "HSET", "past", "h", "3")
    call(cluster["a"], "CRDTCAST", "REPAIR", "past", "FROM", "b")
    until(lambda: fields(cluster["a"], "past") == {b"f": b"1", b"g": b"2", b"h": b"3"})
    settled(cluster)
