"""A founder takes over the database that its server holds: what is adopted at once, and what is refused whole."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.deadlines.adopted import AT_ONCE
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.adopted import (
    check_index,
    dump,
    entries,
    evals,
    fill,
    held_index,
    wait_adopted,
)
from tests.adapters.redis.gateways import (
    Gateways,
    RunningGateway,
    error_of,
    options,
    until,
)
from tests.effort import size

pytestmark = pytest.mark.process

YEAR_2200 = "7258118400000"
CONTENTS: dict[int, list[tuple[Any, ...]]] = {
    0: [
        ("SET", "text", "abc"),
        ("SET", "number", "41"),
        ("SET", "most", str(2**63 - 1)),
        ("SET", "long", "1" * 60),
        ("SET", "float", "3.0e3"),
        ("SET", b"\xff\x00strange", "1"),
        ("SETBIT", "bits", "70", "1"),
        ("PFADD", "visitors", "a", "b"),
        ("SADD", "set", "a", "b"),
        ("HSET", "hash", "f", "1", "g", "x"),
        ("ZADD", "zset", "inf", "a", "-inf", "b", "0.1", "c", "-0", "d", "1e300", "e"),
        ("GEOADD", "geo", "13.4", "52.5", "berlin"),
        ("SETEX", "session", "1000", "v"),
        ("SADD", "dated", "a"),
        ("PEXPIREAT", "dated", YEAR_2200),
    ],
    3: [("SET", "text", "of 3"), ("SADD", "dated", "b"), ("EXPIRE", "dated", "900")],
    14: [("HSET", b"\xff", "f", "v"), ("EXPIRE", b"\xff", "800")],
}
FOREIGN: dict[int, list[tuple[Any, ...]]] = {
    0: [("RPUSH", "q:1", "a"), ("RPUSH", "q:2", "a"), ("SET", "text", "1")],
    5: [("XADD", "x", "*", "a", "1"), ("SETEX", "t", "1000", "5")],
}


def test_a_database_with_data_becomes_a_region(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, CONTENTS)
        before = dump(town.server("a").port)
        town.start("a")
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert dump(town.server("a").port) == dump(town.server("b").port) == before
        assert town.call("b", "INCR", "number") == 42
        assert isinstance(town.call("b", "INCR", "most"), ErrorReply)
        assert town.call("b", "ZINCRBY", "zset", "0.2", "c") == b"0.3"
        town.wait_equal("a", "b")
        check_index(town.server("a").port)
        check_index(town.server("b").port)


def test_no_message_is_sent_for_what_was_there(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, CONTENTS)
        town.start("a")
        wait_adopted(town, "a")
        status = town.status("a")
        assert status["unstable"] == 0
        assert not any(status["vector"].values())


def test_deadlines_in_the_far_future_count_as_the_latest(tmp_path: Path) -> None:
    """The gateway postpones near deadlines by a thousand years, and has to tell the two apart."""
    latest = (1 << 45) - 1
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: [("SET", "k", "1", "PXAT", "253402300799000")]})
        town.start("a")
        town.start("b", "a")
        town.wait_equal("a", "b")
        expected = {b"k": (b"1", latest)}
        assert dump(town.server("a").port) == dump(town.server("b").port) == expected


def test_first_join_waits_until_the_index_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gateway.b")
    keys = [("SETEX", f"k{i}", "1000", "v") for i in range(50)]
    with held_index(monkeypatch) as held, Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: keys})
        a = town.start("a")
        held.step(a)
        assert town.status("a")["adopting"]["keys"] == 50
        b = town.begin("b", "a")
        until(lambda: "a makes the index of the deadlines" in caplog.text)
        assert town.call("a", "SADD", "s", "1") == 1, "writes go on"
        held.step(a)
        assert town.members("a") == ["a"]
        assert len(entries(town.server("a").port)) < 50
        held.release(a)
        b.wait_ready()
        town.wait_equal("a", "b")
        assert len(entries(town.server("b").port)) == 50
        assert town.status("a")["adopting"] is None


def test_index_waits_while_the_server_is_almost_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries would fill the server, which then refuses every commit: clients could not even read."""
    keys = [("SETEX", f"k{i}", "1000", "v" * 200_000) for i in range(50)]
    with held_index(monkeypatch) as held, Gateways(tmp_path, own_servers="always") as town:
        fill(town.server("a").port, {0: keys})
        a = town.start("a")
        held.step(a)
        memory = town.past("a", "INFO", "memory").split(b"\r\n")
        (used,) = (int(line[12:]) for line in memory if line.startswith(b"used_memory:"))
        town.past("a", "CONFIG", "SET", "maxmemory", str(used * 100 // 97))
        until(lambda: a.gateway.committer.refusals.growth is not None)
        held.step(a)  # it was about to be done
        until(lambda: "the index of deadlines waits for room" in caplog.text)
        steps = held.steps
        held.release(a)
        assert town.call("a", "GET", "k1") == b"v" * 200_000
        refused = town.call("a", "SET", "k", "1")
        assert isinstance(refused, ErrorReply) and refused.text.startswith("OOM crdtcast")
        assert held.steps == steps and town.status("a")["adopting"] is not None
        town.past("a", "CONFIG", "SET", "maxmemory", "0")
        wait_adopted(town, "a")
        check_index(town.server("a").port)


def test_a_database_without_deadlines_needs_no_index(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: [("SET", "k", "1")], 7: [("SADD", "s", "1")]})
        town.start("a")
        assert town.status("a")["adopting"] is None
        assert town.past("a", "EXISTS", "adopting") == 0


def test_a_large_database_is_taken_over_in_few_steps(tmp_path: Path) -> None:
    number = size(ci=6_000, release=20_000)
    with Gateways(tmp_path) as town:
        keys = [("SET", f"k{i}", "v", "EX", str(1000 + i % 7000)) for i in range(number)]
        fill(town.server("a").port, {0: keys})
        town.past("a", "CONFIG", "RESETSTAT")
        town.start("a")
        assert evals(town.server("a")) <= number / 2_000 * 2 + 40, "the count before the start"
        wait_adopted(town, "a")
        assert evals(town.server("a")) <= number / AT_ONCE * 1.2 + number / 2_000 * 2 + 80
        assert len(entries(town.server("a").port)) == number
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert dump(town.server("a").port) == dump(town.server("b").port)


def test_types_that_are_not_replicated_are_listed_and_refused(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, FOREIGN)
        before = dump_of_metadata(town)
        error = str(town.refused("a"))
        for part in (
            "2 keys of type list (q:",
            "1 key of type stream (x of database 5)",
            "--leave-out list --leave-out stream",
            "Nothing was changed",
        ):
            assert part in error
        assert dump_of_metadata(town) == before == []
        assert not list((tmp_path / "state-a").glob("*.json"))
        error = str(town.refused("a", leave_out=("list",)))
        assert "list" not in error.split(":")[1]
        assert "--leave-out stream" in error


def dump_of_metadata(town: Gateways) -> list[bytes]:
    with RawClient(town.server("a").port) as direct:
        direct.call("SELECT", "15")
        keys = direct.call("KEYS", "*")
        assert isinstance(keys, list)
        return keys


def test_fields_that_expire_are_refused_by_name(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        port = town.server("a").port
        with RawClient(port) as direct:
            direct.call("HSET", "h", "f", "v", "g", "w")
            direct.call("HSET", "other", "f", "v")
            if isinstance(direct.call("HEXPIRE", "h", "1000", "FIELDS", "1", "f"), ErrorReply):
                pytest.skip("this server has no deadlines of fields")
        error = str(town.refused("a"))
        assert "1 hash with fields that expire (h)" in error
        assert "HPERSIST" in error
        with RawClient(port) as direct:
            direct.call("HPERSIST", "h", "FIELDS", "1", "f")
        town.start("a")


def test_types_left_out_stay_in_their_server(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, FOREIGN)
        both = ("list", "stream")
        town.start("a", leave_out=both)
        assert "2 keys of type list" in str(town.refused("b", "a"))
        town.start("b", "a", leave_out=both)
        town.settle()
        assert town.past("a", "LLEN", "q:1") == 1
        assert town.past("b", "EXISTS", "q:1", "q:2") == 0
        assert town.status("b")["left_out"] == {"list": 2, "stream": 1}


def test_keys_left_out_by_name_do_not_count_and_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, FOREIGN)
        fill(town.server("a").port, {0: [("SETEX", "q:text", "1000", "of a")]})
        patterns = ("q:*", "[xy]")
        a = town.start("a", leave_out_keys=patterns)
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert town.past("b", "EXISTS", "q:1", "q:2", "q:text") == 0
        assert town.status("b")["left_out"] == {}
        assert town.status("b")["left_out_keys"] == sorted(patterns)
        told = json.loads(town.call("a", "CRDTCAST", "VERIFY"))
        assert told["not_replicated"] == {}
        assert told["keys"] + told["with_deadlines"]["keys"] == 2
        for name in ("a", "b"):
            check_refused(town.running[name])
        a.stop()
        town.running["b"].stop()
        caplog.clear()
        town.start("a", leave_out_keys=("other",))  # both know the patterns from their servers
        assert "this group leaves out: [xy], q:*" in caplog.text
        town.start("b", "a")
        for name in ("a", "b"):
            check_refused(town.running[name])
        assert town.past("a", "GET", "q:text") == b"of a"
        assert list(entries(town.server("a").port)) == [b"\xff\x05t"]


def check_refused(running: RunningGateway) -> None:
    with running.client() as client:
        for words in (
            ("SET", "q:text", "1"),
            ("GET", "q:1"),
            ("DEL", "text", "q:1"),
            ("RENAME", "text", "q:9"),
            ("SUNIONSTORE", "s", "t", "x"),
            ("WATCH", "q:1"),
        ):
            reply = client.call(*words)
            assert isinstance(reply, ErrorReply) and "is left out of this group" in reply.text
        client.call("UNWATCH")
        assert client.call("MULTI") == b"OK"
        assert isinstance(client.call("INCR", "q:n"), ErrorReply)
        assert "EXECABORT" in str(client.call("EXEC"))
        assert client.call("GET", "text") == b"1"
        client.call("SELECT", "5")
        assert "x' of database 5 is left out" in str(client.call("SADD", "x", "1"))


def test_fixed_members_say_how_to_bring_the_data(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: [("SET", "k", "1")]})
        running = RunningGateway(options(tmp_path, town.server("a").port))
        assert "--found instead of --peer" in str(error_of(running))
        assert town.past("a", "GET", "k") == b"1"


def test_joining_with_data_is_refused_unless_it_is_discarded(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.call("a", "SET", "k", "of a")
        fill(town.server("b").port, {0: [("SET", "k", "of b")], 2: [("SETEX", "j", "900", "of b")]})
        before = dump(town.server("b").port)
        error = str(town.refused("b", "a"))
        assert "the server holds 2 keys" in error and "--discard-data" in error
        assert dump(town.server("b").port) == before
        assert town.members("a") == ["a"]
        town.start("b", "a", discards_data=True)
        town.wait_equal("a", "b")
        assert list(dump(town.server("b").port)) == [b"k"]


def test_data_is_kept_while_no_member_gives_a_copy(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        fill(town.server("a").port, {0: [("RPUSH", "l", "1")]})
        fill(town.server("b").port, {0: [("SET", "k", "of b")]})
        error = str(town.refused("b", "a", discards_data=True))
        assert "Nothing was changed" in error
        assert town.past("b", "GET", "k") == b"of b"
