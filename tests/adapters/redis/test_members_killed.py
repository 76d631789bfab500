"""Joins with real processes that are killed in the middle, joiner and contact, while another region is written to."""

import json
import random
import threading
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.eventlog.check import check_logs
from tests.adapters.redis.client_load import Load
from tests.effort import first_seed

pytestmark = [pytest.mark.process, pytest.mark.slow]

KEYS = 5_000


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_acknowledged_writes_count_once_if_a_join_is_killed(
    tmp_path: Path, appendfsync: str
) -> None:
    seed = first_seed()
    choice = random.Random(seed)
    pause = threading.Event()
    logs = tmp_path / "logs"
    with OpenCluster(
        tmp_path, ["a", "b"], group="g", appendfsync=appendfsync, log_directory=logs
    ) as cluster:
        with RawClient(cluster["a"].gateway.port) as client:
            client.pipeline([("SADD", f"s{key}", "base") for key in range(KEYS)])
        load = Load(cluster["a"].gateway, seed, KEYS)
        joining = cluster.begin("c", through="b").gateway
        for _ in range(4):
            pause.wait(choice.uniform(1, 3))  # somewhere in its start, its copy, or its life
            joining.kill()
            joining.launch()
        joining.wait_ready()
        joining = cluster.begin("d", through="b").gateway
        contact = cluster["b"].gateway
        for _ in range(3):
            pause.wait(choice.uniform(1, 2))
            contact.kill()
            contact.launch()
        contact.wait_ready()
        joining.wait_ready()
        total = load.stop()
        assert not load.refused
        cluster.wait_equal("abcd", quiet=True, timeout=60)
        told = [json.loads(cluster[name].command("VERIFY")) for name in "abcd"]
        assert len({each["digest"] for each in told}) == 1
        with RawClient(cluster["d"].gateway.port) as client:
            assert client.call("MGET", "total", "twin") == [b"%d" % total] * 2
        assert len(cluster["a"].status()["members"]) == 4
        assert not any(cluster[name].status()["changed_past_the_gateway"] for name in "abcd")
    assert not check_logs([logs]).violations


def test_killed_evicted_region_resends_everything_exactly_once(
    tmp_path: Path,
) -> None:
    seed = first_seed()
    choice = random.Random(seed)
    pause = threading.Event()
    logs = tmp_path / "logs"
    with OpenCluster(
        tmp_path, ["a", "b", "c"], group="g", appendfsync="always", log_directory=logs
    ) as cluster:
        cluster.isolate("c")
        with RawClient(cluster["c"].gateway.port) as client:
            for number in range(300):  # a message each
                assert client.call("INCR", "n") == number + 1
                client.call("SADD", f"s{number % 7}", f"m{number}")
        cluster["a"].command("EVICT", "c")
        cluster.wait_equal("ab", quiet=True, timeout=30)
        with RawClient(cluster["b"].gateway.port) as client:
            client.call("INCRBY", "n", "10000")
        for name in "ab":
            cluster[name].command("HEAL", "c")
        returning = cluster["c"].gateway
        cluster["c"].close()
        for _ in range(6):
            returning.kill()
            returning.launch()
            pause.wait(choice.uniform(1.2, 2.5))
        returning.wait_ready()
        cluster.wait_equal("abc", quiet=True, timeout=60)
        for name in "abc":
            with RawClient(cluster[name].gateway.port) as client:
                assert client.call("GET", "n") == b"10300"
                assert sum(int(str(client.call("SCARD", f"s{key}"))) for key in range(7)) == 300
        assert len(cluster["a"].status()["members"]) == 3
    assert not check_logs([logs]).violations


def test_event_log_of_a_killed_gateway_misses_no_stable_message(
    tmp_path: Path,
) -> None:
    """What is stable is gone from the server within moments; a line waits until the server's disk has its commit."""
    logs = tmp_path / "logs"
    with OpenCluster(
        tmp_path, ["a", "b"], group="g", appendfsync="everysec", log_directory=logs
    ) as cluster:
        seed = first_seed()
        choice = random.Random(seed)
        pause = threading.Event()
        load = Load(cluster["a"].gateway, seed, 100)
        region = cluster["b"]
        for _ in range(5):
            pause.wait(choice.uniform(0.5, 1.5))
            region.close()
            region.gateway.kill()
            region.gateway.launch()
            region.gateway.wait_ready()
        load.stop()
        cluster.wait_equal("ab", quiet=True, timeout=30)
    assert not check_logs([logs]).violations
