"""MULTI … EXEC at one gateway: byte for byte what the plain server answers, one message, all or nothing."""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.server.embedded import EmbeddedServer, packaged_binary, start_server
from crdtcast.adapters.redis.server.parsing import ReplySplitter
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, packed
from crdtcast.adapters.redis.server.resp import Raw
from crdtcast.adapters.redis.store.effects import One, decode
from tests.adapters.redis.gateways import RunningGateway, gateway, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy

pytestmark = pytest.mark.process

SYSTEM_REDIS = Path("/usr/bin/redis-server")
BINARIES = [
    path for path in (packaged_binary(), SYSTEM_REDIS) if path is not None and path.exists()
]
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


@dataclass
class Both:
    """A gateway, and a plain server of the same make as the one beside it."""

    running: RunningGateway
    server: EmbeddedServer
    plain: EmbeddedServer


@contextlib.contextmanager
def both(directory: Path, binary: Path) -> Iterator[Both]:
    with (
        start_server(directory / "beside", appendfsync="no", binary=binary) as server,
        start_server(directory / "plain", appendfsync="no", binary=binary) as plain,
        gateway(directory, server.port) as running,
    ):
        yield Both(running, server, plain)


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("both"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("one")
    with (
        start_server(directory / "server", appendfsync="no") as server,
        gateway(directory, server.port) as made,
    ):
        yield made


@pytest.fixture
def client(running: RunningGateway) -> Iterator[RawClient]:
    with running.client() as made:
        for key in made.call("KEYS", "*") or []:  # type: ignore[union-attr]
            made.call("DEL", key)  # type: ignore[arg-type]
        yield made


def transaction(client: RawClient, *commands: str) -> object:
    """EXEC's reply; everything else has to be what it is for a transaction that is executed."""
    words = [("MULTI",), *(tuple(command.split()) for command in commands), ("EXEC",)]
    replies = client.pipeline(words)
    assert replies[:-1] == [b"OK", *[b"QUEUED"] * len(commands)], replies
    return replies[-1]


def own_counter(running: RunningGateway) -> int:
    engine = running.gateway.committer.engine
    assert engine is not None
    return engine.vector.get(engine.me, 0)


# Beside the plain server

KEYS = st.sampled_from(["k", "l"])
AMOUNTS = st.sampled_from(["1", "-3", "9223372036854775807", "1.5"])
VALUES = st.sampled_from(["1", "text", "9223372036854775807", "-0", "01", "3.5"])
MEMBERS = st.sampled_from(["x", "y", "7"])
COMMANDS = st.one_of(
    st.sampled_from(["MULTI", "EXEC", "DISCARD"]),
    st.sampled_from(["MULTI", "EXEC", "DISCARD", "UNWATCH", "RESET", "SELECT 0", "PING", "ECHO x"]),
    st.sampled_from(["NOSUCH a", "SADD k", "EXEC x", "MULTI x", "WATCH", "SELECT x", "HELLO 9"]),
    st.sampled_from(["WATCH k", "WATCH k l", "UNWATCH"]),
    st.sampled_from(["CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT foo", "PING a b", "DBSIZE"]),
    st.builds("SADD {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("SREM {} {}".format, KEYS, MEMBERS),
    st.builds("SREM {} x y 7".format, KEYS),
    st.builds("INCR {}".format, KEYS),
    st.builds("{} {} {}".format, st.sampled_from(["INCRBY", "DECRBY"]), KEYS, AMOUNTS),
    st.builds("DEL {} {}".format, KEYS, KEYS),
    st.builds("SET {} {}".format, KEYS, VALUES),
    st.builds("MSET {} {} {} {}".format, KEYS, VALUES, KEYS, VALUES),
    st.builds("HSET {} {} {} {} {}".format, KEYS, MEMBERS, VALUES, MEMBERS, VALUES),
    st.builds("HMSET {} {} {}".format, KEYS, MEMBERS, VALUES),
    st.builds("HDEL {} {}".format, KEYS, MEMBERS),
    st.builds("HDEL {} x y 7".format, KEYS),
    st.builds("HINCRBY {} {} {}".format, KEYS, MEMBERS, AMOUNTS),
    st.builds("{} {} {}".format, st.sampled_from(["HGET", "HEXISTS", "HSTRLEN"]), KEYS, MEMBERS),
    st.builds("HMGET {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.sampled_from(["HSET k x", "HSET k x 1 y", "MSET k", "MSET k 1 l", "HDEL k", "SET k"]),
    st.builds(
        "{} {}".format,
        st.sampled_from(
            [
                *(
                    "GET",
                    "SMEMBERS",
                    "SCARD",
                    "TYPE",
                    "EXISTS",
                    "STRLEN",
                    "TTL",
                    "SINTER",
                    "HGETALL",
                ),
                *(
                    "HKEYS",
                    "HVALS",
                    "HLEN",
                    "GETRANGE k 0 2",
                    "SUBSTR l 1 9",
                    "SDIFF k",
                    "SINTERCARD 1",
                ),
                *("OBJECT ENCODING", "LLEN", "SUNION k", "MGET k", "SMISMEMBER k"),
            ]
        ),
        KEYS,
    ),
    st.builds("ZRANGE {} 0 -1 WITHSCORES".format, KEYS),
    st.builds("LRANGE {} 0 -1".format, KEYS),
    st.builds("GEOPOS {} x".format, KEYS),  # null arrays
)
SILENT = st.sampled_from(["CLIENT REPLY OFF", "CLIENT REPLY ON", "CLIENT REPLY SKIP"])


def unordered(reply: Raw) -> bytes:
    """The same bytes, but for the order of members: the server tells a set in any order."""
    if reply[:1] not in b"*~" or reply[1:2] == b"-":
        return reply
    splitter = ReplySplitter()
    splitter.feed(reply[reply.index(b"\n") + 1 :])
    parts: list[bytes] = []
    while (element := splitter.next()) is not None:
        parts.append(unordered(element))
    if all(part.startswith(b"$") for part in parts):
        parts.sort()
    return reply[: reply.index(b"\n") + 1] + b"".join(parts)


def conversation(port: int, protocol: int, commands: list[str]) -> list[bytes]:
    """All that is answered to these commands, sent at once, and an ECHO behind them. A character is a byte."""
    end = packed(["ECHO", "the end"])
    words = ([word.encode("latin-1") for word in command.split()] for command in commands)
    sent = b"".join(map(packed, words))
    with socket.create_connection(("127.0.0.1", port), 20) as wire:
        wire.sendall(packed(["HELLO", str(protocol)]) + end)
        received = b""
        while not received.endswith(b"the end\r\n"):
            received += wire.recv(65536)
        wire.sendall(sent + packed(["RESET"]) + end)
        received = b""
        while not received.endswith(b"$7\r\nthe end\r\n"):
            piece = wire.recv(65536)
            assert piece, received
            received += piece
    splitter = ReplySplitter()
    splitter.feed(received)
    replies: list[bytes] = []
    while (reply := splitter.next()) is not None:
        replies.append(unordered(reply))
    return replies


@pytest.mark.parametrize("protocol", [2, 3])
def test_any_conversation_is_answered_as_by_the_plain_server(pair: Both, protocol: int) -> None:
    # Redis 7.0 carries CLIENT REPLY out inside MULTI, so that EXEC's reply breaks off.
    server_says = redis.Redis(port=pair.plain.port).info("server")
    kinds = COMMANDS | SILENT if "valkey_version" in server_says else COMMANDS

    @settings(max_examples=settings().max_examples * 2)
    @given(st.lists(kinds, min_size=4, max_size=25))
    def check(commands: list[str]) -> None:
        with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
            plain.call("FLUSHALL")
            ours.call("DEL", "k", "l")
        expected = conversation(pair.plain.port, protocol, commands)
        assert conversation(pair.running.port, protocol, commands) == expected

    check()
    assert pair.running.gateway.committer.changed_behind == 0


FILLED = {
    "set": ("SADD k x y", "SREM k x y", "SREM k x"),
    "hash": ("HSET k x 1 y 2", "HDEL k x y", "HDEL k x"),
    "string": ("SET k 5", "DEL k", "GET k"),
}


@pytest.mark.parametrize("before", [True, False], ids=["known before", "filled inside"])
@pytest.mark.parametrize("then", FILLED)
@pytest.mark.parametrize("first", FILLED)
def test_a_key_that_becomes_empty_inside_takes_another_type(
    pair: Both, first: str, then: str, *, before: bool
) -> None:
    fill, empty, thin = FILLED[first]
    other, empty_other, _ = FILLED[then]
    head = [fill, "MULTI"] if before else ["MULTI", fill]
    for removal in (empty, thin):
        commands = ["DEL k", *head, removal, other, "INCR k", "HINCRBY k x 1", "SADD k z"]
        commands += [empty_other, "HDEL k x", "SREM k z", "HINCRBY k y 1.5", "HSET k q 1"]
        commands += ["HDEL k q", "INCR k", "TYPE k", "EXEC", "TYPE k"]
        expected = conversation(pair.plain.port, 2, commands)
        assert conversation(pair.running.port, 2, commands) == expected, commands


DATED = st.one_of(
    st.builds(
        str.format,
        st.sampled_from(
            [
                *(
                    "EXPIRE {} 1000",
                    "EXPIRE {} -1",
                    "PEXPIREAT {} 1",
                    "PERSIST {}",
                    "EXPIRE {} 0 NX",
                ),
                *("GETEX {}", "GETEX {} EX 1000", "GETEX {} PERSIST", "GETEX {} PXAT 1"),
            ]
        ),
        KEYS,
    ),
    st.builds(
        "{} {} {}".format, st.sampled_from(["SADD", "SREM", "SREM", "HDEL", "HDEL"]), KEYS, MEMBERS
    ),
    st.builds("HSET {} {} 1".format, KEYS, MEMBERS),
    st.builds("{} {}".format, st.sampled_from(["INCR", "DEL"]), KEYS),
)


@given(begun=st.lists(DATED, max_size=4), inside=st.lists(DATED, min_size=2, max_size=9))
def test_expire_in_multi_sees_keys_emptied_before(
    pair: Both, begun: list[str], inside: list[str]
) -> None:
    with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
        plain.call("FLUSHALL")
        ours.call("DEL", "k", "l")
    commands = [*begun, "MULTI", *inside, "EXEC", "EXISTS k", "EXISTS l", "TYPE k", "TYPE l"]
    expected = conversation(pair.plain.port, 2, commands)
    assert conversation(pair.running.port, 2, commands) == expected


@pytest.mark.parametrize("protocol", [2, 3])
def test_reads_of_every_shape_inside_are_byte_equal(pair: Both, protocol: int) -> None:
    """Of types that the gateway does not write, too: they were put there past it."""
    for server in (pair.server, pair.plain):
        with RawClient(server.port) as direct:
            direct.call("DEL", "z", "h", "g", "x", "t", "n")
            direct.call("ZADD", "z", "1.5", "a", "-inf", "b")
            direct.call("HSET", "h", "f", "v")
            direct.call("GEOADD", "g", "13.361389", "38.115556", "p")
            direct.call("XADD", "x", "1-1", "f", "v")
            direct.call("SET", "t", "text")
    reads = (
        "GEOPOS none x|GEOPOS g p q|GEODIST g p p|ZRANGE z 0 -1 WITHSCORES|ZSCORE z a|ZSCORE z q|ZMSCORE z a q|"
        "HGETALL h|HMGET h f q|XRANGE x - +|LPOS none x|LRANGE none 0 -1|OBJECT ENCODING t|GETRANGE t 1 2|"
        "SINTER none|HRANDFIELD h 1 WITHVALUES|LCS t t IDX|TTL t|ZRANK z a|SMISMEMBER none a b"
    )
    commands = ["MULTI", "INCR n", *reads.split("|"), "GET n", "TYPE z", "EXEC", "GET n"]
    expected = conversation(pair.plain.port, protocol, commands)
    assert len(expected) == len(commands) + 2 and expected[-4].startswith(b"*")
    assert conversation(pair.running.port, protocol, commands) == expected
    with pair.running.client() as client:
        client.call("DEL", "n")


def test_a_conversation_in_small_pieces_is_the_same(pair: Both) -> None:
    commands = [
        "MULTI",
        "INCR n",
        "SADD s a",
        "SMEMBERS s",
        "SINTER s s",
        "EXEC",
        "STRLEN n",
        "MULTI",
        "GET n",
        "EXEC",
    ]
    with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
        for each in (plain, ours):
            each.call("DEL", "n", "s")
        assert [ours.call(*command.split()) for command in commands] == [
            plain.call(*command.split()) for command in commands
        ]


# What a transaction is


def test_effects_of_a_transaction_are_one_message(
    running: RunningGateway, client: RawClient
) -> None:
    before = own_counter(running)
    assert transaction(client, "INCR n", "SADD s a b", "SREM s a", "DEL t", "INCR m") == [
        1,
        2,
        1,
        0,
        1,
    ]
    assert own_counter(running) == before + 1


def test_5000_operations_are_one_message(running: RunningGateway, client: RawClient) -> None:
    with running.client() as other:
        other.socket.sendall(b"".join(packed(["INCR", f"other{n}"]) for n in range(500)))
        before = own_counter(running)
        commands = [f"SADD s {n}" for n in range(4999)]
        assert transaction(client, *commands, "SCARD s") == [1] * 4999 + [4999]
        assert [other.receive() for _ in range(500)] == [1] * 500
    engine = running.gateway.committer.engine
    assert engine is not None
    sizes = [
        sum(len(effect.slots) for effect in decode(message.payload)[1] if isinstance(effect, One))
        for message in engine.state().unstable
        if message.dot.counter > before
    ]
    assert sorted(size for size in sizes if size) == [4999]


def test_an_error_inside_is_an_element_and_the_rest_is_applied(client: RawClient) -> None:
    assert client.call("SADD", "s", "x") == 1
    assert client.call("INCRBY", "big", str(2**63 - 1)) == 2**63 - 1
    assert transaction(
        client, "INCR s", "INCR n", "INCRBY n 1.5", "INCR big", "GET s", "INCR n"
    ) == [
        ErrorReply(WRONG_TYPE),
        1,
        ErrorReply("ERR value is not an integer or out of range"),
        ErrorReply("ERR increment or decrement would overflow"),
        ErrorReply(WRONG_TYPE),
        2,
    ]


@pytest.mark.parametrize("members", ["x", "x y"])
def test_incr_after_srem_in_multi_sees_what_is_left(client: RawClient, members: str) -> None:
    client.call("SADD", "s", "x", "y")
    left = 2 - len(members.split())
    expected = ErrorReply(WRONG_TYPE) if left else 1
    assert transaction(client, f"SREM s {members}", "INCR s") == [2 - left, expected]
    assert client.call("TYPE", "s") == (b"set" if left else b"string")


def test_a_set_emptied_and_filled_again_inside_is_followed(client: RawClient) -> None:
    client.call("SADD", "s", "x")
    commands = (
        "SREM s x",
        "INCR s",
        "DEL s",
        "SADD s a b",
        "SREM s a",
        "DECR s",
        "SREM s b",
        "INCR s",
    )
    assert transaction(client, *commands) == [1, 1, 1, 2, 1, ErrorReply(WRONG_TYPE), 1, 1]


@pytest.mark.parametrize("members", ["x", "x y"])
def test_a_count_on_a_set_that_may_be_empty_is_looked_up_first(
    running: RunningGateway, client: RawClient, members: str
) -> None:
    client.call("SADD", "s", "x", "y")
    before = own_counter(running)
    # All in one chunk, so that the removal is prepared in the commit in which the transaction is met.
    commands = f"SREM s {members}|MULTI|INCR n|INCR s|INCR n|EXEC|GET n".split("|")
    replies = client.pipeline([command.split() for command in commands])
    left = 2 - len(members.split())
    assert replies[5] == [1, ErrorReply(WRONG_TYPE) if left else 1, 2]
    assert replies[6] == b"2", "applied once"
    assert own_counter(running) <= before + 2


@pytest.mark.parametrize("protocol", [2, 3])
def test_default_pipelines_of_redis_py_work(running: RunningGateway, protocol: int) -> None:
    with redis.Redis(port=running.port, protocol=protocol, decode_responses=True) as client:
        client.delete("n", "s")
        with client.pipeline() as pipe:
            pipe.incr("n").sadd("s", "a", "b").smembers("s").ttl("s").hgetall("none").sinter(
                "s", "s"
            )
            assert pipe.execute() == [1, 2, {"a", "b"}, -1, {}, {"a", "b"}]
        with client.pipeline() as pipe, pytest.raises(redis.ResponseError, match="'LPUSH'"):
            pipe.incr("n").lpush("k", "v").execute()
        assert client.get("n") == "1"


def test_default_pipelines_of_asyncio_work(running: RunningGateway, client: RawClient) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=running.port) as connected:
            async with connected.pipeline() as pipe:
                replies = await pipe.incr("n").sadd("s", "a").smembers("s").execute()
            assert replies == [1, 1, {b"a"}]

    asyncio.run(main())


def test_transaction_with_a_refused_command_applies_nothing(
    running: RunningGateway, client: RawClient
) -> None:
    with redis.Redis(port=running.port) as r:
        with pytest.raises(redis.ResponseError), r.pipeline() as pipe:
            pipe.incr("tx").sadd("txset", "a").lpush("k", "v").execute()
        assert r.get("tx") is None and not r.smembers("txset")
        with r.pipeline() as pipe:
            assert pipe.incr("tx").sadd("txset", "a").execute() == [1, 1]
    assert client.pipeline([["MULTI"], ["INCR", "gone"], ["DISCARD"]]) == [b"OK", b"QUEUED", b"OK"]
    assert client.call("GET", "gone") is None


def test_commands_in_the_metadata_database_are_refused(client: RawClient) -> None:
    words = ["SELECT 15", "INCR k", "SELECT 0", "GET k", "DEL k"]
    replies = client.pipeline([command.split() for command in words])
    assert [isinstance(reply, ErrorReply) for reply in replies[:2]] == [True, True]
    assert replies[2:] == [b"OK", None, 0]


def test_transactions_of_many_clients_are_done_once_each(running: RunningGateway) -> None:
    """Keys change their types all the time, so that many a transaction is put back for a look at its keys."""
    seed = 11
    print("seed", seed)
    rounds = 80
    failures: list[object] = []

    def work(number: int) -> None:
        rng = Random(seed + number)
        mine = f"mine{number}"
        with running.client() as client:
            for done in range(rounds):
                commands = [["INCR", mine]]
                for _ in range(rng.randrange(12)):
                    key = rng.choice(["k", "l", "m"])
                    word = rng.choice(["SADD", "SREM", "SREM", "INCR", "DEL", "GET", "STRLEN"])
                    member = [rng.choice("xy")] if word in ("SADD", "SREM") else []
                    commands.append([word, key, *member])
                alone = [["SREM", "k", "x", "y"], ["INCR", "l"]]
                commands.append(["INCR", mine])
                replies = client.pipeline([*alone, ["MULTI"], *commands, ["EXEC"], *alone])
                values = replies[len(commands) + 3]
                if (
                    not isinstance(values, list)
                    or len(values) != len(commands)
                    or (values[0], values[-1]) != (2 * done + 1, 2 * done + 2)
                ):
                    failures.append(values)
                failures.extend(
                    value
                    for value in values or []
                    if isinstance(value, ErrorReply) and value.text != WRONG_TYPE
                )

    with running.client() as client:
        client.call("DEL", "k", "l", "m", *(f"mine{number}" for number in range(4)))
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[:3]
    with running.client() as client:
        for number in range(4):
            assert client.call("GET", f"mine{number}") == b"%d" % (2 * rounds)
    assert running.gateway.committer.changed_behind == 0


# What is refused whole, and what breaks off


def test_a_transaction_without_room_is_refused_whole(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server", appendfsync="no") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as early,
        running.client() as late,
        running.client() as probe,
        redis.Redis(port=server.port) as direct,
    ):
        assert early.pipeline([["MULTI"], ["INCR", "n"], ["DEL", "m"]])[1:] == [
            b"QUEUED",
            b"QUEUED",
        ]
        probe.pipeline([["SADD", f"s{n}", "x" * 100_000] for n in range(20)])
        probe.call("INCR", "m")

        def is_full() -> bool:
            direct.config_set("maxmemory", int(direct.info("memory")["used_memory"] * 1.03))
            return running.gateway.committer.refusals.growth is not None

        until(is_full)
        value = probe.call("GET", "m")
        assert str(early.call("EXEC")).startswith(
            "ErrorReply(text='EXECABORT Transaction discarded because of: OOM crdtcast: the server uses"
        )
        replies = late.pipeline([["MULTI"], ["DEL", "m"], ["SADD", "s", "x"], ["EXEC"]])
        assert replies[:2] == [b"OK", b"QUEUED"]
        assert str(replies[2]).startswith("ErrorReply(text='OOM crdtcast: the server uses")
        assert replies[3] == ErrorReply(
            "EXECABORT Transaction discarded because of previous errors."
        )
        assert probe.pipeline([["GET", "m"], ["GET", "n"]]) == [value, None]
        assert transaction(late, "DEL m", "GET m") == [1, None]


def test_a_transaction_on_a_set_being_restored_is_refused_whole(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server", appendfsync="no") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
        RawClient(server.port) as direct,
    ):
        client.call("SADD", "s", "x")
        direct.call("DEL", "s")
        direct.call("SET", "s", "nonsense")
        client.call("SADD", "s", "y")
        until(lambda: running.gateway.committer.keyspace.damaged)
        reply = transaction(client, "INCR n", "SCARD s")
        assert isinstance(reply, ErrorReply)
        assert re.match(
            r"EXECABORT Transaction discarded because of: crdtcast: .*restored", reply.text
        )
        assert client.call("GET", "n") is None


def test_transaction_cut_off_before_exec_is_applied_once(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server") as server,
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        cuts: list[ProxiedConnection] = []

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            if b"EXEC" in data and b"INCRBY" in data and not cuts:
                cuts.append(pair)
                pair.cut()
                return b""
            return data

        proxy.sending = cut
        assert transaction(client, "INCR n", "SADD s a", "STRLEN n") == [2, 1, 1]
        assert cuts
        assert client.call("GET", "n") == b"2"


def test_transaction_is_not_repeated_if_its_reply_is_lost(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server") as server,
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        cuts: list[ProxiedConnection] = []

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            if b"QUEUED" in data and not cuts:
                cuts.append(pair)
                pair.cut()
                return b""
            return data

        proxy.receiving = cut
        reply = transaction(client, "INCR n", "SADD s a", "GET n", "PING")
        assert cuts and isinstance(reply, list)
        lost = "ERR crdtcast: this write was applied, but the connection to the server broke before its reply arrived"
        assert reply == [2, ErrorReply(lost), ErrorReply(lost), b"PONG"]
        assert client.pipeline([["GET", "n"], ["SCARD", "s"]]) == [b"2", 1]


def test_transaction_of_reads_is_repeated_if_its_reply_is_lost(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server") as server,
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        client.call("SADD", "s", "a")
        cuts: list[ProxiedConnection] = []

        def cut(pair: ProxiedConnection, data: bytes) -> bytes:
            if b"QUEUED" in data and not cuts:
                cuts.append(pair)
                pair.cut()
                return b""
            return data

        proxy.receiving = cut
        assert transaction(client, "SCARD s", "SINTER s", "SUNION s none") == [1, [b"a"], [b"a"]]
        assert cuts


def test_a_transaction_at_a_server_that_is_away_says_so(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "server") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
    ):
        assert client.pipeline([["MULTI"], ["INCR", "n"]]) == [b"OK", b"QUEUED"]
        server.kill()
        reply = client.call("EXEC")
        assert isinstance(reply, ErrorReply) and "nothing was written, try again" in reply.text
        server.restart()

        def again() -> bool:
            (reply,) = client.pipeline([["MULTI"], ["INCR", "n"], ["EXEC"]])[2:]
            return reply == [1]

        until(again)
