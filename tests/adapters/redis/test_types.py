"""Types in real gateways: they pass copy, VERIFY, repair, restart, hiding and the log.

One of them, a bag, is a type that the core does not know (`toy_bag`).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster, Region
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.eventlog.check import check_logs
from tests.adapters.redis.gateways import PATIENCE, call, until

pytestmark = pytest.mark.process

TOY = (str(Path(__file__).with_name("toy_bag.py")),)


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


def executed(region: Region, *commands: str) -> Any:
    """EXEC's reply."""
    with RawClient(region.gateway.port, PATIENCE) as client:
        words = [("MULTI",), *(tuple(command.split()) for command in commands), ("EXEC",)]
        return client.pipeline(words)[-1]


def _pairs(words: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=True))


def fields(region: Region, key: str) -> dict[bytes, bytes]:
    return _pairs(call(region, "HGETALL", key))


def bag(region: Region, key: str) -> dict[bytes, bytes]:
    return _pairs(call(region, "ZRANGE", key, 0, -1, "WITHSCORES"))


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


def test_concurrent_writes_converge_on_one_field_and_keep_others(cluster: ToyCluster) -> None:
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


def test_value_unseen_by_a_removal_reappears(cluster: ToyCluster) -> None:
    """The later of two concurrent values is removed by one who has seen that one only."""
    cluster.isolate("b")
    call(cluster["a"], "HSET", "two", "f", "earlier")
    call(cluster["b"], "HSET", "two", "f", "later")
    call(cluster["b"], "HDEL", "two", "f")
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        assert fields(region, "two") == {b"f": b"earlier"}


def test_increments_of_one_field_add_to_the_value_they_saw(cluster: ToyCluster) -> None:
    call(cluster["a"], "HSET", "n", "f", "10", "g", "text")
    settled(cluster)
    assert apart(
        cluster,
        ("a", ("HINCRBY", "n", "f", "3")),
        ("a", ("HSET", "n", "g", "5")),
        ("b", ("HINCRBY", "n", "f", "-4")),
        ("b", ("HINCRBY", "n", "new", "7")),
    ) == [13, 0, 6, 7]
    for region in cluster:
        assert fields(region, "n") == {b"f": b"9", b"g": b"5", b"new": b"7"}
    most = 2**63 - 1
    apart(
        cluster,
        ("a", ("HINCRBY", "n", "f", most - 9)),
        ("b", ("HINCRBY", "n", "f", most - 9)),
    )
    for region in cluster:
        assert fields(region, "n")[b"f"] == b"%d" % (2 * most - 9)
    assert "hash value is not an integer" in str(call(cluster["b"], "HINCRBY", "n", "f", "1"))
    assert call(cluster["b"], "HINCRBY", "n", "f", -most) == most - 9


def test_text_and_number_under_one_key(cluster: ToyCluster) -> None:
    call(cluster["a"], "SET", "word", "hello")
    settled(cluster)
    apart(cluster, ("a", ("SET", "word", "3")), ("b", ("DEL", "word")), ("b", ("INCR", "word")))
    for region in cluster:
        assert call(region, "GET", "word") == b"4"
    apart(cluster, ("a", ("MSET", "word", "of a", "w2", "x")), ("b", ("SET", "word", "of b")))
    for region in cluster:
        assert call(region, "MGET", "word", "w2") == [b"of b", b"x"]
    call(cluster["a"], "HSET", "w2", "f", "1")
    assert "WRONGTYPE" in str(call(cluster["a"], "HSET", "w2", "f", "1"))


def test_a_transaction_of_many_types_is_one_message(cluster: ToyCluster) -> None:
    assert executed(
        cluster["a"],
        "SET t1 x",
        "HSET t2 f 1 g 2",
        "HINCRBY t2 f 5",
        "HDEL t2 g",
        "BAGADD t3 e 2",
        "SADD t4 m",
        "DEL t1",
        "INCR t1",
    ) == [b"OK", 2, 6, 1, 2, 1, 1, 1]
    settled(cluster)
    for region in cluster:
        assert call(region, "GET", "t1") == b"1"
        assert fields(region, "t2") == {b"f": b"6"}
        assert bag(region, "t3") == {b"e": b"2"}


def test_bag_counts_add_up_and_a_removal_takes_what_it_saw(cluster: ToyCluster) -> None:
    assert apart(cluster, ("a", ("BAGADD", "b", "e", "3")), ("b", ("BAGADD", "b", "e", "4"))) == [
        3,
        4,
    ]
    assert apart(
        cluster,
        ("a", ("BAGADD", "b", "e", "10")),
        ("b", ("BAGREM", "b", "e", "x")),
        ("b", ("BAGADD", "b", "o", "1")),
    ) == [17, 1, 1]
    for region in cluster:
        assert bag(region, "b") == {b"o": b"1", b"e": b"10"}


def test_a_hidden_bag_goes_on_counting(cluster: ToyCluster) -> None:
    apart(cluster, ("a", ("HSET", "hb", "f", "1")), ("b", ("BAGADD", "hb", "e", "2")))
    cluster.isolate("b")
    call(cluster["b"], "DEL", "hb")
    call(cluster["b"], "BAGADD", "hb", "e", "5")
    call(cluster["b"], "SADD", "hs", "x")
    call(cluster["a"], "HSET", "hb", "g", "2")
    call(cluster["a"], "BAGADD", "hs", "e", "1")
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        assert fields(region, "hb") == {b"g": b"2"}
        assert bag(region, "hs") == {b"e": b"1"}
    assert call(cluster["a"], "HDEL", "hb", "g") == 1
    assert call(cluster["b"], "BAGREM", "hs", "e") == 1
    settled(cluster)
    for region in cluster:
        assert bag(region, "hb") == {b"e": b"5"}
        assert call(region, "SMEMBERS", "hs") == [b"x"]


def test_hidden_type_reappears_when_the_visible_one_goes(cluster: ToyCluster) -> None:
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


def test_hidden_value_reappears_despite_a_key_of_its_name(cluster: ToyCluster) -> None:
    call(cluster["a"], "SADD", "hidden:set:mine", "theirs")
    apart(cluster, ("a", ("HSET", "mine", "f", "1")), ("b", ("SADD", "mine", "x")))
    call(cluster["a"], "HDEL", "mine", "f")
    settled(cluster)
    for region in cluster:
        assert call(region, "SMEMBERS", "mine") == [b"x"]
        assert call(region, "SMEMBERS", "hidden:set:mine") == [b"theirs"]


def test_joiner_copies_hidden_values_of_all_types(cluster: ToyCluster) -> None:
    apart(cluster, ("a", ("HSET", "both", "f", "1")), ("b", ("SADD", "both", "x")))
    call(cluster["a"], "BAGADD", "bagged", "e", "7")
    call(cluster["a"], "SET", "long", "x" * 3_000_000)
    call(cluster["a"], "HSET", "copied", *(word for n in range(6000) for word in (f"f{n}", n)))
    cluster.add("c")
    assert cluster["c"].status()["left_out"] == {}
    settled(cluster)
    assert fields(cluster["c"], "both") == {b"f": b"1"}
    assert bag(cluster["c"], "bagged") == {b"e": b"7"}
    assert call(cluster["c"], "STRLEN", "long") == 3_000_000
    assert call(cluster["c"], "HLEN", "copied") == 6000
    assert call(cluster["c"], "HDEL", "both", "f") == 1
    settled(cluster)
    assert call(cluster["a"], "SMEMBERS", "both") == [b"x"]


def test_restarted_gateway_resumes_all_types_from_its_server(cluster: ToyCluster) -> None:
    cluster.isolate("b")  # so that nothing becomes stable
    call(cluster["a"], "HSET", "r", "f", "1", "g", "2")
    call(cluster["a"], "HINCRBY", "r", "g", "5")
    call(cluster["a"], "BAGADD", "rb", "e", "5")
    gateway = cluster["a"].gateway
    cluster["a"].close()
    gateway.kill()
    gateway.launch()
    gateway.wait_ready()
    assert call(cluster["a"], "HSET", "r", "f", "3") == 0
    assert call(cluster["a"], "BAGADD", "rb", "e", "1") == 6
    call(cluster["b"], "HDEL", "r", "f", "g")
    cluster.rejoin("b")
    settled(cluster)
    for region in cluster:
        assert fields(region, "r") == {b"f": b"3", b"g": b"7"}
        assert bag(region, "rb") == {b"e": b"6"}


def test_writes_of_an_evicted_region_are_resent(cluster: ToyCluster) -> None:
    call(cluster["a"], "BAGADD", "eb", "e", "5")
    call(cluster["a"], "BAGADD", "eb", "out", "2")
    call(cluster["a"], "BAGADD", "eb", "kept", "2")
    settled(cluster)
    others = [name for name in cluster.names if name != "b"]
    cluster.isolate("b")
    call(cluster["b"], "BAGADD", "eb", "e", "10")
    call(cluster["b"], "BAGADD", "eb", "new", "1")
    call(cluster["b"], "BAGREM", "eb", "out", "kept")
    cluster["a"].command("EVICT", "b")
    until(lambda: all("b" not in members(cluster[name]) for name in others))
    call(cluster["a"], "BAGADD", "eb", "kept", "1")
    call(cluster["a"], "BAGADD", "eb", "e", "100")
    cluster.rejoin("b")
    until(lambda: "b" in members(cluster["a"]))
    expected = {b"e": b"115", b"new": b"1", b"kept": b"3"}
    until(lambda: all(bag(region, "eb") == expected for region in cluster))
    settled(cluster)


def members(region: Region) -> list[str]:
    return [each["name"] for each in json.loads(region.command("MEMBERS"))]


def test_direct_changes_of_each_type_are_repaired(tmp_path: Path) -> None:
    # Event logs would rightly tell of regions that differ.
    with ToyCluster(tmp_path, "ab", group="toy", appendfsync="always") as cluster:
        put_right(cluster)


def put_right(cluster: ToyCluster) -> None:
    call(cluster["a"], "HSET", "past", "f", "1", "g", "2")
    call(cluster["a"], "BAGADD", "counts", "e", "1")
    settled(cluster)
    with RawClient(cluster["a"].server.port, PATIENCE) as server:
        server.call("HSET", "past", "f", "other")
        server.call("ZADD", "counts", "7", "e")
    call(cluster["a"], "CRDTCAST", "REPAIR", "past", "FROM", "b")
    call(cluster["a"], "CRDTCAST", "REPAIR", "counts", "FROM", "b")
    until(lambda: bag(cluster["a"], "counts") == {b"e": b"1"})
    until(lambda: fields(cluster["a"], "past") == {b"f": b"1", b"g": b"2"})
    with RawClient(cluster["a"].server.port, PATIENCE) as server:
        server.call("DEL", "past")
        server.call("LPUSH", "past", "x")
    call(cluster["a"], "HSET", "past", "h", "3")
    call(cluster["a"], "CRDTCAST", "REPAIR", "past", "FROM", "b")
    until(lambda: fields(cluster["a"], "past") == {b"f": b"1", b"g": b"2", b"h": b"3"})
    settled(cluster)
