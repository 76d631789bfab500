"""Several databases at one gateway: byte for byte what the plain server answers, and the same contents in each."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.databases import (
    ELSEWHERE,
    Databases,
    check_name,
    db_of,
    described,
    home_of,
    in_words,
    key_of,
    name_of,
    object_of,
)
from tests.adapters.redis.test_transactions import BINARIES, Both, both, conversation

pytestmark = pytest.mark.process

METADATA_DB = 15


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("databases"), request.param) as made:
        yield made


# Names


@given(st.integers(0, 255), st.binary(max_size=4), st.integers(0, 255), st.binary(max_size=4))
@example(0, b"\xff\x03k", 3, b"k")
@example(0, b"\xff", 255, b"")
def test_names_tell_keys_of_all_databases_apart(
    db: int, key: bytes, other: int, too: bytes
) -> None:
    name = name_of(db, key)
    assert (db_of(name), key_of(name)) == (db, key) == home_of(name)[:0:-1]
    check_name(name)
    assert (name == name_of(other, too)) is ((db, key) == (other, too))
    assert (name == key) is (db == 0 and not key.startswith(ELSEWHERE))


@pytest.mark.parametrize("name", [b"\xff", b"\xff\x00k", b"\xff\x00"])
def test_invalid_key_name_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="is not the name of a key"):
        check_name(name)


def test_names_are_shown_with_their_database() -> None:
    assert described(b"x") == "b'x'"
    assert described(name_of(3, b"x")) == "b'x' of database 3"
    assert described(name_of(0, b"\xffx")) == r"b'\xffx'"
    assert in_words(name_of(3, b"x")) == "x of database 3"
    assert object_of(name_of(3, b"x")) == b"\xffdatabase 3: x"


def test_the_metadata_is_in_none_of_the_clients_databases() -> None:
    assert Databases(4, 2).clients == (0, 1, 3)


# Beside the plain server

KEYS = st.sampled_from(["k", "k", "\xffk", "\xff\x03k"])
MEMBERS = st.sampled_from(["x", "\xffy", "7"])
DATABASES = st.sampled_from(["0", "3", "7"])
WRITES = st.one_of(
    st.builds("SADD {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("{} {}".format, st.sampled_from(["INCR", "DEL"]), KEYS),
    st.builds("SET {} {}".format, KEYS, MEMBERS),
    st.builds("HSET {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("SELECT {}".format, DATABASES),
)
COMMANDS = st.one_of(
    st.builds("SELECT {}".format, st.sampled_from(["0", "3", "7", "99", "-1", "x", "00", "1x"])),
    st.sampled_from(["MULTI", "EXEC", "DISCARD", "RESET", "PING", "DBSIZE", "FLUSHDB"]),
    st.sampled_from(["MULTI", "EXEC", "WATCH k l", "UNWATCH", "FLUSHALL", "FLUSHDB ASYNC"]),
    st.builds("SADD {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("SREM {} {}".format, KEYS, MEMBERS),
    st.builds("SPOP {} 100".format, KEYS),
    st.builds("SMOVE {} {} {}".format, KEYS, KEYS, MEMBERS),
    st.builds("{} {} {} {}".format, st.just("SUNIONSTORE"), KEYS, KEYS, KEYS),
    st.builds("{} {}".format, st.sampled_from(["INCR", "DECR", "GETDEL", "PERSIST"]), KEYS),
    st.builds("SET {} {} {}".format, KEYS, MEMBERS, st.sampled_from(["", "NX", "GET", "EX 9999"])),
    st.builds("MSET {} {} {} {}".format, KEYS, MEMBERS, KEYS, MEMBERS),
    st.builds("HSET {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("HINCRBY {} {} 5".format, KEYS, MEMBERS),
    st.builds("HDEL {} {}".format, KEYS, MEMBERS),
    st.builds("APPEND {} {}".format, KEYS, MEMBERS),
    st.builds("EXPIRE {} {}".format, KEYS, st.sampled_from(["9999", "9999 NX", "0"])),
    st.builds("{} {} {}".format, st.sampled_from(["RENAME", "RENAMENX", "COPY"]), KEYS, KEYS),
    st.builds("COPY {} {} DB {}".format, KEYS, KEYS, DATABASES),
    st.builds("COPY {} {} DB {} REPLACE".format, KEYS, KEYS, DATABASES),
    st.builds("COPY {} {} {}".format, KEYS, KEYS, st.sampled_from(["DB", "DB x", "DB 99", "X"])),
    st.builds("MOVE {} {}".format, KEYS, DATABASES),
    st.builds("MOVE {} {}".format, KEYS, st.sampled_from(["99", "x", "-1"])),
    st.builds("DEL {} {}".format, KEYS, KEYS),
    st.builds(
        "{} {}".format,
        st.sampled_from(["GET", "SMEMBERS", "SCARD", "TYPE", "HGETALL", "STRLEN", "OBJECT FREQ"]),
        KEYS,
    ),
    st.builds("{} {} {}".format, st.sampled_from(["MGET", "EXISTS", "SUNION"]), KEYS, KEYS),
    st.builds("SINTERCARD 2 {} {}".format, KEYS, KEYS),
    st.sampled_from(["PEXPIRETIME nothing", "DBSIZE", "SCAN 0 MATCH nothing", "KEYS nothing"]),
)


def emptied(port: int) -> None:
    with RawClient(port) as client:
        client.call("FLUSHALL")


@pytest.mark.parametrize("protocol", [2, 3])
def test_any_conversation_is_answered_as_by_the_plain_server(pair: Both, protocol: int) -> None:
    @settings(max_examples=settings().max_examples * 4)
    @given(DATABASES, st.lists(WRITES | COMMANDS, min_size=4, max_size=40))
    def check(begin: str, commands: list[str]) -> None:
        for port in (pair.plain.port, pair.running.port):
            emptied(port)
        commands = [f"SELECT {begin}", *commands]
        expected = conversation(pair.plain.port, protocol, commands)
        assert conversation(pair.running.port, protocol, commands) == expected
        assert contents(pair.server.port) == contents(pair.plain.port)

    check()
    assert pair.running.gateway.committer.changed_behind == 0


def contents(port: int) -> dict[tuple[int, bytes], object]:
    """Of all databases but that of the metadata."""
    found: dict[tuple[int, bytes], object] = {}
    with RawClient(port) as client:
        for db in range(16):
            client.call("SELECT", str(db))
            names = client.call("KEYS", "*") if db != METADATA_DB else []
            assert isinstance(names, list)
            for name in names:
                kind = client.call("TYPE", name)
                read = {b"string": "GET", b"set": "SMEMBERS", b"hash": "HGETALL"}[kind]  # type: ignore[index]
                value = client.call(read, name)
                has_deadline = client.call("TTL", name) != -1
                members = sorted(value) if isinstance(value, list) else value  # type: ignore[type-var]
                found[db, name] = kind, members, has_deadline
    return found


@pytest.mark.parametrize("before", [[], ["GETDEL nothing"]], ids=["plain", "recorded"])
@pytest.mark.parametrize("key", ["s", "\xffs"])
def test_commands_of_very_many_words_are_as_the_plain_servers(
    pair: Both, key: str, before: list[str]
) -> None:
    """before: what has the server carry out what comes behind it."""
    for port in (pair.plain.port, pair.running.port):
        emptied(port)
    words = " ".join(f"w{number}" for number in range(6000))
    pairs = " ".join(f"{key}{number} v" for number in range(3000))
    keys = " ".join(f"{key}{number}" for number in range(9000))
    commands = ["SELECT 3"]
    for each in (
        *(f"SADD {key} {words}", f"SREM {key} {words} no", f"SADD {key} {words}", f"SCARD {key}"),
        *(f"HSET {key}h {words}", f"HLEN {key}h", f"MSET {pairs}", f"EXISTS {keys}"),
        *(f"MGET {pairs}", f"DEL {keys}", "DBSIZE", f"UNLINK {key} {keys}", "DBSIZE"),
    ):
        commands += [*before, each]
    expected = conversation(pair.plain.port, 2, commands)
    assert conversation(pair.running.port, 2, commands) == expected
    assert contents(pair.server.port) == contents(pair.plain.port)
    assert pair.running.gateway.committer.changed_behind == 0


def test_metadata_database_is_refused_until_another_select(pair: Both) -> None:
    emptied(pair.running.port)
    with pair.running.client() as client:
        words = ["SELECT 15", "SET k v", "GET k", "SELECT 3", "DBSIZE"]
        refused, after, again, selected, size = client.pipeline([w.split() for w in words])
        assert isinstance(refused, ErrorReply)
        assert "holds the gateway's own metadata" in refused.text
        assert all(isinstance(each, ErrorReply) for each in (after, again))
        assert selected == b"OK"
        assert size == 0
        for command in ("COPY k l DB 15", "MOVE k 15", "SWAPDB 0 3"):
            assert isinstance(client.call(*command.split()), ErrorReply), command
