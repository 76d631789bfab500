"""A join leaves nothing out in silence: it is refused before anything changes, or goes on as the operator has said."""

import json
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.gateways import Gateways, until

pytestmark = pytest.mark.process

PAST_THE_GATEWAY = [
    ["RPUSH", "l", "1", "2"],
    ["RPUSH", "l2", "1"],
    ["XADD", "x", "*", "a", "1"],
    ["SETEX", "t", "1000", "5"],
]
ALL = ("list", "stream")


def founded(town: Gateways, commands: list[list[str]]) -> None:
    town.start("a")
    town.call("a", "SADD", "s", "1")
    with RawClient(town.server("a").port) as direct:
        for reply in direct.pipeline(commands):
            assert not isinstance(reply, ErrorReply)


def verified(town: Gateways, name: str) -> dict[str, Any]:
    told = json.loads(town.call(name, "CRDTCAST", "VERIFY"))
    assert isinstance(told, dict)
    return told


def test_a_join_that_would_leave_keys_out_is_refused_whole(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        founded(town, PAST_THE_GATEWAY)
        error = str(town.refused("b", "a"))
        for part in (
            "2 keys of type list",
            "1 key of type stream",
            "Nothing was changed",
            "--leave-out list --leave-out stream",
        ):
            assert part in error
        assert town.members("a") == ["a"]
        with RawClient(town.server("b").port) as direct:
            direct.call("SELECT", "15")
            assert direct.call("EXISTS", "joining") == 0
            assert direct.call("EXISTS", "state") == 0
        error = str(town.refused("b", "a", leave_out=("list",)))
        assert "start this gateway with --leave-out stream" in error


def test_status_shows_the_keys_that_the_operator_left_out(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        founded(town, PAST_THE_GATEWAY)
        b = town.start("b", "a", leave_out=ALL)
        missing = {"list": 2, "stream": 1}
        assert town.status("b")["left_out"] == missing
        b.stop()
        town.start("b", "a")
        assert town.status("b")["left_out"] == missing
        until(lambda: town.status("a")["quiet"] and town.status("b")["quiet"])
        a, b_ = verified(town, "a"), verified(town, "b")
        assert a["digest"] != b_["digest"]
        assert a["not_replicated"] == missing
        assert b_["not_replicated"] == {}
        assert a["with_deadlines"]["keys"] == b_["with_deadlines"]["keys"] == 1


def test_join_that_leaves_nothing_out_needs_no_option(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        founded(town, [["SET", "text", "abc"], ["SETEX", "gone", "100", "1"], ["DEL", "gone"]])
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert town.status("b")["left_out"] == {}
        assert town.call("b", "GET", "text") == b"abc"


def test_a_member_that_comes_back_is_not_kept_out(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        b = town.start("b", "a")
        town.call("b", "SADD", "s", "1")
        town.wait_equal("a", "b")
        b.stop()
        with RawClient(town.server("b").port) as direct:
            direct.call("FLUSHALL")
        with RawClient(town.server("a").port) as direct:
            direct.call("RPUSH", "l", "1")
        town.start("b", "a")
        assert town.status("b")["left_out"] == {"list": 1}
        assert town.call("b", "SMEMBERS", "s") == [b"1"]


def test_refused_join_does_not_try_another_member(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        founded(town, [])
        town.start("c", "a")
        with RawClient(town.server("a").port) as direct:
            direct.call("RPUSH", "l", "1")
        assert "a holds data that is not replicated" in str(town.refused("b", "a"))
        assert sorted(town.members("a")) == ["a", "c"]


def test_next_start_first_asks_the_contact_that_refused(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        founded(town, [])
        town.start("c", "a")
        with RawClient(town.server("c").port) as direct:
            direct.call("RPUSH", "l", "1")
            direct.call("XADD", "x", "*", "a", "1")
        assert "c holds data" in str(town.refused("b", "c"))
        both = ("a", "c")
        assert "c holds data" in str(town.refused("b", both, leave_out=("list",)))
        assert sorted(town.members("a")) == ["a", "c"]
        town.start("b", both, leave_out=("list", "stream"))
        assert town.status("b")["left_out"] == {"list": 1, "stream": 1}
        assert not list((tmp_path / "state-b").glob("*.refused"))


def test_vanished_contact_that_refused_does_not_block_a_join(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdtcast.group.join_client._WAIT_FOR_SOURCE", 0.0)
    with Gateways(tmp_path) as town:
        founded(town, [])
        c = town.start("c", "a")
        with RawClient(town.server("c").port) as direct:
            direct.call("RPUSH", "l", "1")
        assert "c holds data" in str(town.refused("b", "c"))
        c.stop()
        town.start("b", "a")
        assert town.status("b")["left_out"] == {}
        assert "without c, which had refused an earlier start" in caplog.text
