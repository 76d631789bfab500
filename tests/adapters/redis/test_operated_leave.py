"""`crdtcast leave` at a gateway: refused, it changes nothing; under way, no other question cuts it short."""

import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster
from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.adapters.redis.gateways import until
from tests.adapters.redis.test_operating import operator

pytestmark = pytest.mark.process


def test_leave_refused_by_fixed_members_stops_no_gateway(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ["a", "b"], group="shop") as cluster:
        for words in (("leave",), ("evict", "b"), ("raise",), ("surrender", "--yes")):
            assert "are fixed" in operator(cluster.socket_of("a"), *words, code=2)
        assert "member, ready" in operator(cluster.socket_of("a"), "status")
        with RawClient(cluster["a"].gateway.port) as client:
            assert client.call("INCR", "n") == 1
        assert cluster["a"].gateway.running


def test_admin_requests_do_not_interrupt_a_leave(tmp_path: Path) -> None:
    with OpenCluster(tmp_path, ["a", "b"], group="shop") as cluster:
        cluster.cut("a", "b")
        with RawClient(cluster["a"].gateway.port) as client:
            assert client.call("INCR", "n") == 1
        place = cluster.socket_of("a")
        words = [sys.executable, "-m", "crdtcast", "leave", "--admin", str(place)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as leave:
            until(lambda: "leaving" in operator(place, "status"))
            assert "leaving" in operator(place, "status")
            assert cluster["a"].gateway.running
            cluster.heal("a", "b")
            said, _ = leave.communicate(timeout=60)
            assert leave.returncode == 0, said
            assert b"left: a." in said
        process = cluster["a"].gateway.process
        assert process is not None and process.wait(60) == 0
        assert "\na " not in operator(cluster.socket_of("b"), "members")
        with RawClient(cluster["b"].gateway.port) as client:
            assert client.call("GET", "n") == b"1"


def test_status_says_that_the_server_is_down(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ["a", "b"], group="shop") as cluster:
        until(lambda: "member, ready\n" in operator(cluster.socket_of("a"), "status"))
        cluster["a"].server.stop()
        until(lambda: "does not answer" in operator(cluster.socket_of("a"), "status"))
        told = operator(cluster.socket_of("a"), "status")
        assert f"not ready: the server 127.0.0.1:{cluster['a'].server.port} does not answer" in told
        until(lambda: "does not answer" not in operator(cluster.socket_of("a"), "status"))
        # Clients get errors from now on.
        told = operator(cluster.socket_of("a"), "status").splitlines()[0]
        assert "not ready: " in told and str(cluster["a"].server.port) in told
        assert "ERR" not in told and "try again" not in told, "that is for clients"
