"""A founder that is killed while it takes over its server's data continues where it was."""

from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import GatewayProcess, OpenCluster
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis import named_points
from tests.adapters.redis.adopted import check_index, dump, entries, fill

pytestmark = pytest.mark.process

NUMBER = 3_000
PASSES = {
    "founding-noted": 1,
    "founding-claimed": 1,
    "adopted-step-asked": 3,
    "adopted-step-done": 2,
    "adopted-index-made": 1,
}
"""The points of one life after the other, and how often each is passed."""


def write(gateway: GatewayProcess, number: int) -> None:
    """Change some keys, whether or not the index has them."""
    with RawClient(gateway.port) as client:
        for reply in client.pipeline(
            [
                ("RENAME", f"k{number}", f"r{number}"),
                ("SADD", f"k{number + 1}", "more"),
                ("PEXPIRE", f"k{number + 2}", "9000000"),
                ("PERSIST", f"k{number + 3}"),
                ("DEL", f"k{number + 4}"),
                ("SETEX", f"new{number}", "5000", "v"),
            ]
        ):
            assert not isinstance(reply, ErrorReply)


def test_founder_killed_at_each_point_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(PASSES) == set(named_points.ADOPTION_POINTS)
    keys = [("SADD", f"k{i}", "v") for i in range(NUMBER)]
    keys += [("EXPIRE", f"k{i}", str(2_000 + i)) for i in range(NUMBER)]
    with (
        start_server(tmp_path / "server-a", appendfsync="always") as server,
        start_server(tmp_path / "server-b", appendfsync="always") as other,
    ):
        fill(server.port, {0: keys})
        cluster = OpenCluster(
            tmp_path, ("a", "b"), group="taken", servers={"a": server, "b": other}
        )
        cluster.names = ()  # both are begun below
        try:
            for place, (point, passes) in enumerate(PASSES.items()):
                print("point", point)
                monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:{passes}")
                if place == 0:
                    gateway = cluster.begin("a").gateway
                else:
                    gateway.launch()
                monkeypatch.delenv("CRDTCAST_CRASH_AT")
                assert gateway.process is not None
                assert gateway.process.wait(60) == -9, gateway.obituary()
                gateway.forget_process()
                if point == "adopted-step-asked":
                    server.stop()  # its cursors mean nothing to the next run
                    server.restart()
                if point == "adopted-step-done":
                    assert 0 < len(entries(server.port)) < NUMBER
            gateway.launch()
            gateway.wait_ready()
            write(gateway, 100)
            cluster.add("b")
            write(gateway, 200)
            cluster.wait_equal(("a", "b"), quiet=True, timeout=30)
            for port in (server.port, other.port):
                check_index(port)
            assert dump(server.port) == dump(other.port)
            assert len(dump(other.port)) == NUMBER
        finally:
            cluster.stop()
