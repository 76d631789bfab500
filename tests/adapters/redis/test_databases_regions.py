"""Several databases in several regions: equal in all of them, through joins, crashes, evictions, repair and expiry."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.gateways import Gateways, RunningGateway, options, until
from tests.adapters.redis.test_changed_past import regions
from tests.adapters.redis.test_databases import contents
from tests.adapters.redis.test_members import cut_off, evicted_with, heal, parked
from tests.effort import seeds

pytestmark = pytest.mark.process

DATABASES = ("0", "3", "7")
KEYS = (b"k", b"l", b"\xffk", b"\xff\x03k")


@contextlib.contextmanager
def client(town: Gateways, name: str, db: str = "0") -> Iterator[RawClient]:
    with town.running[name].client() as made:
        assert made.call("SELECT", db) == b"OK"
        yield made


def at(town: Gateways, name: str, db: str, *words: bytes | str) -> Any:
    """One command in a database of a region's gateway."""
    with client(town, name, db) as made:
        return made.call(*words)


def written(random: Random) -> list[bytes | str]:
    """One random write."""
    key = random.choice(KEYS)
    member = random.choice(["x", "y", "7"])
    return random.choice(
        [
            ["SADD", key, member, "z"],
            ["SREM", key, member],
            ["SPOP", key],
            ["INCR", key],
            ["SET", key, member],
            ["SETNX", key, member],
            ["HSET", key, member, "1"],
            ["HINCRBY", key, member, "2"],
            ["HDEL", key, member],
            ["DEL", key],
            ["EXPIRE", key, "9999"],
            ["RENAME", key, random.choice(KEYS)],
            ["MOVE", key, random.choice(DATABASES)],
            ["COPY", key, random.choice(KEYS), "DB", random.choice(DATABASES)],
            ["COPY", key, random.choice(KEYS), "DB", random.choice(DATABASES), "REPLACE"],
            ["SELECT", random.choice(DATABASES)],
            ["SELECT", random.choice(DATABASES)],
            ["SELECT", random.choice(DATABASES)],
        ]
        + [["FLUSHDB"], ["FLUSHALL"]] * (random.random() < 0.05)
    )


def batch(random: Random) -> list[list[bytes | str]]:
    commands = [written(random) for _ in range(random.randrange(1, 12))]
    return [["MULTI"], *commands, ["EXEC"]] if random.random() < 0.3 else commands


@pytest.mark.parametrize("seed", seeds(6))
def test_concurrent_writes_converge_in_every_database(tmp_path: Path, seed: int) -> None:
    """Concurrent in all kinds: links are cut now and then. A third region copies it all in the middle."""
    print("seed", seed)
    random = Random(seed)
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        with client(town, "a") as one, client(town, "b") as other:
            for number in range(40):
                if random.random() < 0.2:
                    cut_off(town, "a", "b")
                for each in (one, other):
                    replies = each.pipeline(batch(random))
                    assert not any("crdtcast" in r.text for r in replies if type(r) is ErrorReply)
                if number == 25:
                    heal(town, "a", "b")
                    town.start("c", "a")
                heal(town, "a", "b")
        town.wait_equal("a", "b", "c")
        found = [contents(town.servers[name].port) for name in "abc"]
        assert found[0] == found[1] == found[2]


def test_flushdb_spares_other_databases_and_concurrent_writes(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        for db in DATABASES:
            at(town, "a", db, "SADD", "s", "old")
            at(town, "a", db, "SET", "dated", "1", "EX", "9999")
        town.wait_equal("a", "b")
        cut_off(town, "a", "b")
        at(town, "a", "3", "FLUSHDB")
        at(town, "b", "3", "SADD", "s", "new")
        heal(town, "a", "b")
        town.wait_equal("a", "b")
        for name in "ab":
            assert at(town, name, "3", "SMEMBERS", "s") == [b"new"]
            assert at(town, name, "3", "DBSIZE") == 1
            assert at(town, name, "0", "TTL", "dated") > 9000
            assert at(town, name, "7", "SMEMBERS", "s") == [b"old"]
        cut_off(town, "a", "b")
        at(town, "a", "3", "FLUSHALL")
        at(town, "b", "7", "INCR", "n")
        heal(town, "a", "b")
        town.wait_equal("a", "b")
        for name in "ab":
            assert [at(town, name, db, "DBSIZE") for db in DATABASES] == [0, 0, 1]
            with RawClient(town.servers[name].port) as server:
                server.call("SELECT", "15")
                assert server.call("KEYS", "due*") == []


def test_a_copy_has_all_databases(tmp_path: Path) -> None:
    long = "text" * (1 << 19)
    with Gateways(tmp_path) as town:
        town.start("a")
        for db in DATABASES:
            at(town, "a", db, "SET", "long", long + db)
            at(town, "a", db, "SET", "dated", db, "EX", "9999")
            at(town, "a", db, "SADD", "s", *map(str, range(2000)), db)
            at(town, "a", db, "HSET", b"\xffh", "field", db)
        town.start("b", "a")
        town.wait_equal("a", "b")
        for db in DATABASES:
            assert at(town, "b", db, "GET", "long") == (long + db).encode()
            assert at(town, "b", db, "HGET", b"\xffh", "field") == db.encode()
            assert at(town, "b", db, "TTL", "dated") > 9000
        assert contents(town.servers["a"].port) == contents(town.servers["b"].port)


def test_hidden_value_reappears_in_its_database(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        cut_off(town, "a", "b")
        at(town, "a", "3", "SADD", "k", "x")
        at(town, "b", "3", "SET", "k", "text")
        heal(town, "a", "b")
        town.wait_equal("a", "b")
        assert at(town, "a", "3", "TYPE", "k") == b"string"
        assert at(town, "b", "0", "EXISTS", "k") == 0
        cut_off(town, "a", "b")
        at(town, "a", "3", "SADD", "k2", "x")
        at(town, "b", "3", "HSET", "k2", "f", "1")
        heal(town, "a", "b")
        town.wait_equal("a", "b")
        at(town, "a", "3", "HDEL", "k2", "f")
        town.wait_equal("a", "b")
        for name in "ab":
            assert at(town, name, "3", "SMEMBERS", "k2") == [b"x"]
            assert at(town, name, "0", "DBSIZE") == 0


def test_keys_expire_in_their_database(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        for db in DATABASES:
            at(town, "a", db, "SET", "k", "1")
        at(town, "a", "3", "PEXPIRE", "k", "50")
        at(town, "b", "7", "SET", "short", "1", "PX", "50")
        until(lambda: at(town, "b", "3", "EXISTS", "k") == 0)
        until(lambda: at(town, "a", "7", "EXISTS", "short") == 0)
        town.wait_equal("a", "b")
        assert [at(town, "b", db, "EXISTS", "k") for db in DATABASES] == [1, 0, 1]
        with RawClient(town.servers["a"].port) as server:
            server.call("SELECT", "15")
            until(lambda: server.call("EXISTS", "due") == 0)


def test_watch_is_of_a_key_in_its_database(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        with client(town, "a", "3") as watching:
            for db, expected in (("0", [1]), ("3", None)):
                watching.pipeline([["DEL", "n"], ["WATCH", "k"]])
                at(town, "b", db, "INCR", "k")
                town.wait_equal("a", "b")
                assert watching.pipeline([["MULTI"], ["INCR", "n"], ["EXEC"]])[-1] == expected
            watching.call("WATCH", "k")
            at(town, "b", "7", "FLUSHDB")
            town.wait_equal("a", "b")
            assert watching.pipeline([["MULTI"], ["INCR", "n"], ["EXEC"]])[-1] == [1]
            watching.call("WATCH", "k")
            at(town, "b", "0", "FLUSHALL")
            town.wait_equal("a", "b")
            assert watching.pipeline([["MULTI"], ["INCR", "n"], ["EXEC"]])[-1] is None


def test_an_aborted_transaction_selects_nothing(tmp_path: Path) -> None:
    """What is sent behind its EXEC at once is for the database that the answer leaves."""
    with Gateways(tmp_path) as town:
        town.start("a")
        with client(town, "a") as made:
            for is_written in (False, True):
                made.call("WATCH", "k")
                if is_written:
                    at(town, "a", "0", "INCR", "k")
                words = ["MULTI", "SELECT 3", "INCR n", "EXEC", "INCR m", "PING", "MULTI", "GET m"]
                replies = made.pipeline([word.split() for word in [*words, "EXEC"]])
                assert replies[3] == (None if is_written else [b"OK", 1])
                assert replies[4:6] == [1, b"PONG"]
                assert at(town, "a", "0" if is_written else "3", "GET", "m") == b"1"
                made.call("SELECT", "0")


def test_writes_of_an_evicted_region_return_to_their_databases(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        for db in DATABASES:
            at(town, "a", db, "SADD", "s", "seen", "left")
            at(town, "a", db, "SET", "text", "old")
        town.wait_equal("a", "b", "c")
        cut_off(town, "c", "a", "b")
        at(town, "c", "3", "INCR", "fresh")
        at(town, "c", "3", "SREM", "s", "seen")
        at(town, "c", "3", "SET", "text", "new")
        at(town, "c", "7", "DEL", "text")
        at(town, "c", "3", "MOVE", "text", "9")
        evicted_with(town, "c", "a", "b")
        heal(town, "c", "a", "b")
        until(lambda: at(town, "a", "3", "GET", "fresh") == b"1")
        until(lambda: not parked(town, "c"))
        town.wait_equal("a", "b", "c")
        assert at(town, "a", "3", "SMEMBERS", "s") == [b"left"]
        assert at(town, "a", "9", "GET", "text") == b"new"
        assert sorted(at(town, "a", "0", "SMEMBERS", "s")) == [b"left", b"seen"]
        assert at(town, "b", "0", "GET", "text") == b"old"
        assert at(town, "b", "7", "GET", "text") is None


def test_restarted_gateway_continues_in_all_databases(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        cut_off(town, "a", "b")
        for db in DATABASES:
            at(town, "a", db, "SADD", "s", "x")
            at(town, "a", db, "SPOP", "s")
            at(town, "a", db, "SET", "dated", "1", "EX", "9999")
        town.running["a"].stop()
        town.start("a")
        town.call("b", "CRDTCAST", "HEAL", "a")
        town.wait_equal("a", "b")
        for db in DATABASES:
            assert at(town, "b", db, "TTL", "dated") > 9000
        assert contents(town.servers["a"].port) == contents(town.servers["b"].port)


def test_key_changed_in_the_server_is_named_with_its_database(
    tmp_path: Path,
) -> None:
    with regions(tmp_path, "eu", "us") as town:
        for db in DATABASES:
            at(town, "eu", db, "SADD", "s", "x", "y")
            at(town, "eu", db, "SET", "text", "one")
        town.settle()
        with RawClient(town.servers["us"].port) as server:
            server.pipeline([["SELECT", "3"], ["SREM", "s", "x"], ["DEL", "text"]])
        until(lambda: sorted(at(town, "us", "3", "SMEMBERS", "s") or []) == [b"x", b"y"])
        until(lambda: at(town, "us", "3", "GET", "text") == b"one")
        with RawClient(town.servers["us"].port) as server:
            server.pipeline([["SELECT", "3"], ["SET", "text", "two"]])
        until(lambda: "text of database 3" in town.status("eu")["differing"]["first"])
        until(lambda: isinstance(at(town, "eu", "3", "GET", "text"), ErrorReply))
        refused = at(town, "eu", "3", "GET", "text")
        assert "key b'text' of database 3" in refused.text
        assert "`crdtcast repair text --db 3 --from NAME`" in refused.text
        assert at(town, "eu", "0", "GET", "text") == b"one"
        with client(town, "eu", "3") as made:
            done = json.loads(made.call("CRDTCAST", "REPAIR", "text", "FROM", "us"))  # type: ignore[arg-type]
        assert not done["left"]
        until(lambda: at(town, "eu", "3", "GET", "text") == b"two")
        until(lambda: len(town.digests()) == 1)


# Who may be a member


def odd_server(directory: Path, databases: str) -> Any:
    return start_server(directory, appendfsync="always", options=("--databases", databases))


def test_a_member_with_other_databases_is_not_let_in(tmp_path: Path, caplog: Any) -> None:
    with Gateways(tmp_path) as town, odd_server(tmp_path / "odd", "32") as odd:
        town.start("a")
        begun = town.begin("b", "a", port=odd.port)
        until(lambda: "databases" in caplog.text)
        assert "has 32 databases with the metadata in" in caplog.text
        assert town.members("a") == ["a"]
        begun.stop()
        with RawClient(odd.port) as server:
            assert server.pipeline([["SELECT", "15"], ["EXISTS", "state"]]) == [b"OK", 0]


def test_fixed_members_with_other_metadata_databases_do_not_link(
    tmp_path: Path, caplog: Any
) -> None:
    with (
        start_server(tmp_path / "server-a") as first,
        start_server(tmp_path / "server-b") as second,
    ):
        a = RunningGateway(options(tmp_path, first.port, "a", {"b": None})).wait_ready()
        assert a.gateway.node is not None
        others = options(tmp_path, second.port, "b", {"a": a.gateway.endpoint.address})
        b = RunningGateway(replace(others, metadata_db=14)).wait_ready()
        try:
            until(lambda: "the metadata in 14" in caplog.text)
            assert "--metadata-db" in caplog.text
            with a.client() as made:
                made.call("CRDTCAST", "STATUS")
                assert made.call("SELECT", "14") == b"OK"
        finally:
            b.stop()
            a.stop()


def test_group_below_the_level_of_names_has_only_database_0(tmp_path: Path) -> None:
    with start_server(tmp_path / "server") as server:
        low = options(tmp_path, server.port)
        running = RunningGateway(replace(low, node=replace(low.node, level=1))).wait_ready()
        try:
            with running.client() as made:
                assert made.call("SADD", "k", b"\xffx") == 1
                for words in (["SADD", b"\xffk", "x"], ["SELECT", "3"], ["SADD", "k", "y"]):
                    refused = made.call(*words)
                    assert isinstance(refused, ErrorReply), words
                assert made.pipeline([["SELECT", "0"], ["SADD", "k", "y"]]) == [b"OK", 1]
                refused = made.call("SELECT", "3")
                assert isinstance(refused, ErrorReply) and "format level 2" in refused.text
        finally:
            running.stop()
