"""A server drops a key at its deadline between a gateway's look at it and the EXEC that was made from what it saw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.deadlines import dates, index
from crdtcast.adapters.redis.server.raw_client import RawClient, Reply
from crdtcast.exceptions import ServerError
from crdtcast.ports import free_ports
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, RunningGateway, options, until
from tests.adapters.redis.gateways import call as region_call
from tests.adapters.redis.proxy import ProxiedConnection, Proxy
from tests.adapters.redis.test_crashes import append_only_file, dying_at, lose_the_end_of_the_file

pytestmark = pytest.mark.process

TTL_MS = "700"


@dataclass
class Two:
    """Two regions; the bytes between the first one's gateway and server go through a proxy."""

    proxy: Proxy
    servers: dict[str, int]
    running: dict[str, RunningGateway]

    def call(self, name: str, *words: str) -> Any:
        with self.running[name].client() as client:
            return client.call(*words)

    def natively(self, *words: str) -> Reply:
        """At the first one's server."""
        with RawClient(self.servers["a"], PATIENCE) as client:
            return client.call(*words)

    def status(self, name: str) -> dict[str, Any]:
        told = json.loads(self.call(name, "CRDTCAST", "STATUS"))
        assert isinstance(told, dict)
        return told

    def settle(self) -> None:
        def is_settled() -> bool:
            told = [self.status(name) for name in self.running]
            return told[0]["vector"] == told[1]["vector"] and all(each["quiet"] for each in told)

        until(is_settled)


@contextmanager
def two(directory: Path) -> Iterator[Two]:
    with servers.borrowed() as one, servers.borrowed() as other, Proxy(one.port) as proxy:
        ports = dict(zip("ab", free_ports(2), strict=True))
        running: dict[str, RunningGateway] = {}
        for name, peer, server in (("a", "b", proxy.port), ("b", "a", other.port)):
            chosen = options(directory, server, name, {peer: ("127.0.0.1", ports[peer])})
            node = replace(chosen.node, listen=("127.0.0.1", ports[name]))
            running[name] = RunningGateway(replace(chosen, node=node))
        try:
            for each in running.values():
                each.wait_ready()
            yield Two(proxy, {"a": one.port, "b": other.port}, running)
        finally:
            for each in running.values():
                each.stop()


BEGINS = {
    "k": (("SADD", "k", "x"),),
    "n": (("SET", "n", "5"),),
    "h": (("HSET", "h", "f", "5"),),
}
"""How a key comes to hold something."""
GONE: object = "gone"
CASES = (
    ("SADD k y", {1: (GONE, ["y"])}),
    ("SREM k x", {0: (GONE,), 1: (GONE,)}),
    ("INCR n", {6: (GONE,), 1: ("1",)}),
    ("HINCRBY h f 2", {7: (GONE,), 2: (["f", "2"],)}),
    ("HSET h g 1", {1: (GONE, ["g", "1"])}),
    ("EXPIRE k 100", {0: (GONE,), 1: (["x"],)}),
    ("PERSIST k", {0: (GONE,), 1: (["x"],)}),
    ("SET n 7", {b"OK": ("7",)}),
    ("GETEX n EX 100", {None: (GONE,), b"5": ("5",)}),
    ("APPEND n 1", {1: ("1",), 2: (GONE,)}),
    ("DEL k", {0: (GONE,), 1: (GONE,)}),
)
"""A command, and what its key may hold for each answer: as if it had come before the deadline, or behind it."""


def shown(town: Two, name: str, key: str) -> object:
    """What a region shows of a key."""
    read = {"k": "SMEMBERS", "n": "GET", "h": "HGETALL"}[key]
    found = town.call(name, read, key)
    if not found:
        return GONE
    if isinstance(found, bytes):
        return found.decode()
    return [word.decode() for word in found]


@pytest.mark.parametrize("writer", ["a", "b"], ids=["own", "from the other region"])
@pytest.mark.parametrize("is_put_off", [True, False])
@pytest.mark.parametrize(("command", "outcomes"), CASES, ids=[command for command, _ in CASES])
def test_write_falls_before_or_after_the_deadline(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    outcomes: dict[object, tuple[object, ...]],
    is_put_off: bool,
    writer: str,
) -> None:
    """is_put_off: the look puts the deadline off; if not, it stands for one that is farther away."""
    if not is_put_off:
        for module in (index, dates):
            monkeypatch.setattr(module, "PIN_BELOW_MS", 50)
    words = command.split()
    key = words[1]
    with two(tmp_path) as town:
        town.call("a", *BEGINS[key][0])
        assert town.call("a", "PEXPIRE", key, TTL_MS) == 1
        town.settle()
        at = int(str(town.natively("PEXPIRETIME", key)))
        held: list[bytes] = []

        def is_over() -> bool:
            seconds, micros = town.natively("TIME")  # type: ignore[misc,union-attr]
            return int(seconds) * 1000 + int(micros) // 1000 > at  # type: ignore[arg-type]

        def hold(pair: ProxiedConnection, data: bytes) -> bytes:
            if not held and b"MULTI" in data and b"\r\n%b\r\n" % key.encode() in data:
                held.append(data)
                until(is_over)
            return data

        town.proxy.sending = hold
        answer = town.call(writer, *words)
        until(lambda: held)
        until(is_over)
        town.settle()
        until(lambda: town.natively("EXISTS", "due") == 0)
        for _ in range(2):
            town.settle()
        found = {name: shown(town, name, key) for name in town.running}
        print(answer, found)
        assert found["a"] == found["b"]
        if writer == "a":
            assert found["a"] in outcomes[answer], (answer, found)
        ttls = [town.call(name, "PTTL", key) for name in town.running]
        assert (ttls[0] > 0) is (ttls[1] > 0), ttls
        for name in town.running:
            assert not town.status(name)["changed_past_the_gateway"]


@pytest.mark.parametrize(
    "loses", [False, True], ids=["gateway dies", "server loses its last second"]
)
def test_key_expires_if_its_gateway_dies_after_postponing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loses: bool
) -> None:
    """Its deadline was put off, and nobody has set it again."""
    with LocalCluster(tmp_path, "ab", group="g") as cluster:
        region = cluster["b"]
        region_call(region, "SET", "n", "5", "PX", "2500")
        cluster.wait_equal("ab", quiet=True, timeout=PATIENCE)
        region.close()
        region.gateway.stop()
        with RawClient(region.server.port, PATIENCE) as server:
            if loses:
                server.call("CONFIG", "SET", "appendfsync", "no")
            at = server.call("PEXPIRETIME", "n")
            synced = append_only_file(region).stat().st_size
            with dying_at(region.gateway, "dot-reserved", 1, monkeypatch):
                region.gateway.wait_ready()
                with (
                    pytest.raises(ServerError),
                    RawClient(region.gateway.port, PATIENCE) as client,
                ):
                    client.call("APPEND", "n", "1")
                assert server.call("PEXPIRETIME", "n") != at
                if loses:
                    region.server.kill()
                    lose_the_end_of_the_file(region, synced)
                    region.server.restart()
        for each in cluster:
            until(lambda each=each: region_call(each, "EXISTS", "n") == 0)
        cluster.wait_equal("ab", quiet=True, timeout=PATIENCE)
        for each in cluster:
            with RawClient(each.server.port, PATIENCE) as server:
                assert server.call("EXISTS", "n") == 0
                server.call("SELECT", "15")
                until(lambda server=server: server.call("EXISTS", "due", "pinned", "orphans") == 0)
        told = {json.loads(each.command("VERIFY"))["digest"] for each in cluster}
        assert len(told) == 1
