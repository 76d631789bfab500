"""A gateway that leaves for good hands its server back as a plain database."""

from contextlib import suppress
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.exceptions import ServerError
from tests.adapters.redis import named_points
from tests.adapters.redis.adopted import dump, fill
from tests.adapters.redis.gateways import Gateways, until
from tests.adapters.redis.test_operating import operator

pytestmark = pytest.mark.process


def metadata(port: int) -> int:
    """How many keys are in the database of the metadata."""
    with RawClient(port) as direct:
        direct.call("SELECT", "15")
        size = direct.call("DBSIZE")
        assert isinstance(size, int)
        return size


def test_leaving_leaves_a_plain_database(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        b = town.start("b", "a")
        town.call("a", "SET", "n", "1")
        town.call("a", "ZADD", "z", "1", "m")
        town.call("b", "ZINCRBY", "z", "1e-17", "m")
        town.call("b", "SETEX", "near", "15", "v")
        town.call("b", "SETEX", "far", "1000", "v")
        town.wait_equal("a", "b")
        before = dump(town.server("b").port)
        assert town.call("b", "CRDTCAST", "LEAVE", "PLAIN") == b"OK"
        b.wait_ended()
        assert b.error is None
        assert metadata(town.server("b").port) == 0
        assert dump(town.server("b").port) == before
        until(lambda: town.members("a") == ["a"])
        assert town.past("b", "RPUSH", "l", "a plain server takes it") == 1


def test_server_handed_back_is_a_stranger(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        b = town.start("b", "a")
        town.call("a", "SET", "n", "1")
        town.wait_equal("a", "b")
        town.call("b", "CRDTCAST", "LEAVE", "PLAIN")
        b.wait_ended()
        until(lambda: town.members("a") == ["a"])
        assert "the server holds 1 keys" in str(town.refused("b", "a"))
        assert "has left its group" in str(town.refused("b"))
        assert town.past("b", "GET", "n") == b"1"
        town.start("b", "a", discards_data=True)
        town.wait_equal("a", "b")


def test_lone_founder_gives_the_database_back(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: [("SET", "k", "1")], 4: [("SETEX", "j", "900", "1")]})
        before = dump(town.server("a").port)
        a = town.start("a")
        assert isinstance(town.call("a", "CRDTCAST", "LEAVE", "NOW"), ErrorReply)
        town.call("a", "CRDTCAST", "LEAVE", "PLAIN")
        a.wait_ended()
        assert a.error is None
        assert metadata(town.server("a").port) == 0
        assert dump(town.server("a").port) == before


def test_hidden_values_go_with_the_metadata(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        b = town.start("b", "a")
        town.call("a", "CRDTCAST", "CUT", "b")
        town.call("a", "SET", "k", "text")
        town.call("b", "SADD", "k", "member")
        town.call("a", "CRDTCAST", "HEAL", "b")
        town.wait_equal("a", "b")
        assert town.status("b")["hidden_keys"] == 1
        town.call("b", "CRDTCAST", "LEAVE", "PLAIN")
        b.wait_ended()
        assert metadata(town.server("b").port) == 0
        assert town.past("b", "GET", "k") == b"text"
        assert "1 values that another type had hidden are gone (k)" in caplog.text


def test_leave_that_was_interrupted_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenCluster(tmp_path, ("a", "b"), group="shop") as cluster:
        region = cluster["b"]
        with RawClient(region.gateway.port) as client:
            assert client.call("SETEX", "k", "15", "1") == b"OK"
        cluster.wait_equal(("a", "b"), quiet=True, timeout=30)
        region.close()
        region.gateway.stop()
        for place, point in enumerate(named_points.PLAIN_POINTS):
            print("point", point)
            if place == 0:
                monkeypatch.setenv("CRDTCAST_CRASH_AT", point)
                region.gateway.launch()
                region.gateway.wait_ready()
                with suppress(ServerError):  # it may end before the answer is out
                    region.command("LEAVE", "PLAIN")
            else:  # it goes on with that before it does anything else
                monkeypatch.setenv("CRDTCAST_CRASH_AT", point)
                region.gateway.launch()
            process = region.gateway.process
            assert process is not None and process.wait(60) == -9, region.gateway.obituary()
            region.gateway.forget_process()
        region.close()
        monkeypatch.delenv("CRDTCAST_CRASH_AT")
        assert metadata(region.server.port) == 0
        with RawClient(region.server.port) as direct:
            assert direct.call("GET", "k") == b"1"
            assert 0 < int(str(direct.call("TTL", "k"))) <= 15
        until(lambda: "\nb " not in operator(cluster.socket_of("a"), "members"))
        said = operator(cluster.socket_of("a"), "leave", "--plain")
        assert "left: a." in said
        assert metadata(cluster["a"].server.port) == 0
