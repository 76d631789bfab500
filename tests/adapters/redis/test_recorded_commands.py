"""Commands that the server decides: its own replies, and one message of what it has done."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.recorded.answer import RecordedWork, store
from crdtcast.adapters.redis.recorded.derivation import derived
from crdtcast.adapters.redis.recorded.record import (
    LEVEL,
    SCRIPT,
    AskedCommand,
    RecordEntry,
    ServerRecord,
)
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, packed
from crdtcast.adapters.redis.store.effects import KillKey, KillSlots, One, RedisType, decode
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.causality.tags import Dot
from crdtcast.engine import Cut, GroupEngine, How
from crdtcast.exceptions import ConfigurationError, OutdatedError
from tests.adapters.redis.gateways import RunningGateway, gateway, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy
from tests.adapters.redis.test_transactions import BINARIES, Both, both, conversation
from tests.engine.group import Group

pytestmark = pytest.mark.process

DB = 15
HEADER = ServerRecord(Dot("a.1", 1), (), 7)


@pytest.fixture(scope="module", params=BINARIES, ids=lambda path: path.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("recorded"), request.param) as made:
        yield made


@pytest.fixture
def client(pair: Both) -> Iterator[RawClient]:
    with pair.running.client() as made:
        for key in made.call("KEYS", "*") or []:  # type: ignore[union-attr]
            made.call("DEL", key)  # type: ignore[arg-type]
        yield made


# Beside the plain server

KEYS = st.sampled_from(["k", "l", "m"])
MEMBERS = st.sampled_from(["x", "y", "7"])
OPTIONS = st.sampled_from(
    [
        *("NX", "XX", "GET", "KEEPTTL", "nx get", "XX GET", "GET KEEPTTL", "NX XX", "KEEPTTL XX"),
        *("FOO", "GET GET", "IFEQ x", "IFEQ 7 GET", "IFEQ", "NX KEEPTTL GET"),
        *("EX 100 EX 200", "ex 100 GET EX 200", "EX 100 PX 5", "EX EX 100", "EX 100 KEEPTTL"),
        *("IFEQ EX EX 100", "NX PX 100000 GET", "EXAT 9 XX", "EX 0", "EX 100 EX x", "EX"),
    ]
)
ALL_OF_IT = st.sampled_from(["SPOP {} 100", "SPOP {} 0", "SPOP {} -1", "SPOP {} x"])
COMMANDS = st.one_of(
    st.sampled_from(["MULTI", "EXEC", "DISCARD", "PING", "NOSUCH a", "SPOP", "WATCH k", "UNWATCH"]),
    st.builds(str.format, ALL_OF_IT, KEYS),
    st.builds("SADD {} {} {}".format, KEYS, MEMBERS, MEMBERS),
    st.builds("SREM {} {}".format, KEYS, MEMBERS),
    st.builds("{} {}".format, st.sampled_from(["INCR", "DECR", "GETDEL"]), KEYS),
    st.builds("SET {} {} {}".format, KEYS, MEMBERS, OPTIONS),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["SET", "SETNX", "GETSET", "APPEND", "HDEL", "RENAME", "RENAMENX"]),
        KEYS,
        MEMBERS | KEYS,
    ),
    st.builds("COPY {} {} {}".format, KEYS, KEYS, st.sampled_from(["REPLACE", "", "FOO"])),
    st.builds(
        "{} {} {} {}".format, st.sampled_from(["MSET", "MSETNX"]), KEYS, MEMBERS, st.just("l 9")
    ),
    st.builds(
        "SETRANGE {} {} {}".format, KEYS, st.sampled_from(["0", "3", "-1", "x"]), st.just("ab")
    ),
    st.builds(
        "{} {} {} {}".format,
        st.sampled_from(["HSET", "HSETNX", "HMSET", "HINCRBY"]),
        KEYS,
        MEMBERS,
        st.sampled_from(["5", "9007199254740993", "9223372036854775807", "text"]),
    ),
    st.builds("SMOVE {} {} {}".format, KEYS, KEYS, MEMBERS),
    st.builds(
        "{} {} {} {}".format,
        st.sampled_from(["SDIFFSTORE", "SINTERSTORE", "SUNIONSTORE"]),
        KEYS,
        KEYS,
        KEYS,
    ),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["INCRBY", "DECRBY"]),
        KEYS,
        st.sampled_from(
            ["1", "-3", "9007199254740993", "9223372036854775807", "-9223372036854775808", "1e3"]
        ),
    ),
    st.builds("DEL {} {}".format, KEYS, KEYS),
    st.builds(
        "GETEX {} {}".format, KEYS, OPTIONS | st.sampled_from(["PERSIST persist", "PERSIST EX 5"])
    ),
    st.builds("{} {}".format, st.sampled_from(["GET", "SMEMBERS", "SCARD", "TYPE", "TTL"]), KEYS),
    st.builds("HGETALL {}".format, KEYS),
    st.sampled_from(
        [
            "FLUSHALL",
            "FLUSHDB",
            "flushdb async",
            "FLUSHALL SYNC",
            "FLUSHALL x",
            "FLUSHDB SYNC ASYNC",
        ]
    ),
)


@pytest.mark.parametrize("protocol", [2, 3])
def test_any_conversation_is_answered_as_by_the_plain_server(pair: Both, protocol: int) -> None:
    @settings(max_examples=settings().max_examples * 2)
    @given(st.lists(COMMANDS, min_size=4, max_size=25))
    def check(commands: list[str]) -> None:
        with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
            plain.call("FLUSHALL")
            ours.call("DEL", "k", "l", "m", "x", "y", "7")
        expected = conversation(pair.plain.port, protocol, commands)
        assert conversation(pair.running.port, protocol, commands) == expected

    check()
    assert pair.running.gateway.committer.changed_behind == 0


@pytest.mark.parametrize("behind", [False, True])
def test_many_words_are_answered_as_by_the_plain_server(pair: Both, behind: bool) -> None:
    """behind: in a commit that the server carries out."""
    words = [f"w{number}" for number in range(20_000)]
    sets = [f"set{number}" for number in range(1000)]
    commands = [
        *((("GETDEL", "nothing"),) if behind else ()),
        ("SADD", "s", *words),
        ("HSET", "h", *words),
        ("HSET", "h", *words[:19_999]),
        ("MSET", *words),
        ("MSET", *words[:19_999]),
        ("SUNIONSTORE", "t", "s", *sets),
        ("SCARD", "t"),
        ("SREM", "s", *words, "none"),
        ("HDEL", "h", *words),
        ("DEL", *words[:4000], "t"),
        ("DEL", *words),
    ]
    with RawClient(pair.plain.port) as plain, pair.running.client() as ours:
        plain.call("FLUSHALL")
        ours.call("DEL", "s", "h", "t")
        assert ours.pipeline(commands) == plain.pipeline(commands)
        (refused,) = ours.pipeline([("SUNIONSTORE", "t", *words)])
        assert isinstance(refused, ErrorReply) and "20002 words" in refused.text


def test_100000_members_after_a_decision_are_one_command(client: RawClient) -> None:
    members = [f"m{number}" for number in range(100_000)]
    replies = client.pipeline(
        [
            ("GETDEL", "nothing"),
            ("SADD", "s", *members),
            ("SREM", "s", *members[1:]),
            ("SCARD", "s"),
        ]
    )
    assert replies == [None, 100_000, 99_999, 1]


def test_numbers_are_exact_after_a_decision(client: RawClient) -> None:
    assert client.pipeline(
        [("GETDEL", "nothing"), ("INCRBY", "n", str(2**63 - 2)), ("INCR", "n"), ("INCR", "n")]
    ) == [
        None,
        2**63 - 2,
        2**63 - 1,
        ErrorReply("ERR increment or decrement would overflow"),
    ]
    assert client.call("DECRBY", "n", str(2**62)) == 2**62 - 1


# One message


def effects_since(running: RunningGateway, before: int) -> list[object]:
    engine = running.gateway.committer.engine
    assert engine is not None
    until(lambda: running.gateway.committer.recorded.pending is None)
    own = [m for m in engine.state().unstable if m.dot.origin == engine.me]
    return [e for m in own if m.dot.counter > before for e in decode(m.payload).effects]


def sent(running: RunningGateway) -> int:
    engine = running.gateway.committer.engine
    assert engine is not None
    return engine.vector[engine.me]


def test_spop_removes_only_the_popped_member(pair: Both, client: RawClient) -> None:
    client.call("SADD", "s", "a", "b", "c")
    before = sent(pair.running)
    _, popped = client.pipeline([("GETDEL", "none"), ("SPOP", "s")])
    assert isinstance(popped, bytes)
    assert effects_since(pair.running, before) == [KillSlots(b"s", RedisType.SET, (popped,))]


def test_command_without_effect_sends_nothing_and_uses_no_dot(
    pair: Both, client: RawClient
) -> None:
    before = sent(pair.running)
    client.pipeline([("GETDEL", "nothing"), ("SREM", "nothing", "x"), ("DEL", "nothing")])
    assert sent(pair.running) == before
    with RawClient(pair.server.port) as server:
        server.call("SELECT", str(DB))
        assert server.call("EXISTS", "record") == 0


def test_recreated_key_is_killed_first(pair: Both, client: RawClient) -> None:
    before = sent(pair.running)
    client.pipeline([("GETDEL", "nothing"), ("SADD", "s", "a"), ("SADD", "s", "b")])
    assert effects_since(pair.running, before) == [
        KillKey(b"s"),
        One(b"s", RedisType.SET, (b"a",)),
        One(b"s", RedisType.SET, (b"b",)),
    ]


def test_a_transaction_with_a_pop_is_one_message(pair: Both, client: RawClient) -> None:
    before = sent(pair.running)
    commands = [("SADD", "s", "a"), ("SPOP", "s"), ("SMEMBERS", "s"), ("INCR", "s"), ("SPOP", "s")]
    assert client.pipeline([("MULTI",), *commands, ("EXEC",)])[-1] == [
        1,
        b"a",
        [],
        1,
        ErrorReply("WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]
    until(lambda: sent(pair.running) == before + 1)


def test_a_pop_aborts_the_exec_of_a_client_that_watches(pair: Both, client: RawClient) -> None:
    client.call("SADD", "s", "a", "b")
    with pair.running.client() as other:
        client.call("WATCH", "s")
        other.call("SPOP", "s")
        assert client.pipeline([("MULTI",), ("SPOP", "s"), ("EXEC",)])[-1] is None
        client.call("WATCH", "s")
        other.pipeline([("GETDEL", "nothing"), ("SADD", "s", "b", "a"), ("SADD", "t", "b")])
        client.call("UNWATCH")
        client.call("WATCH", "s")
        other.pipeline([("GETDEL", "nothing"), ("SADD", "t", "c")])
        assert client.pipeline([("MULTI",), ("SCARD", "s"), ("SPOP", "t"), ("EXEC",)])[-1][0] == 2  # type: ignore[index]


# What the script writes down


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with start_server(tmp_path_factory.mktemp("script"), appendfsync="no") as made:
        yield made


WORDS = st.one_of(
    st.lists(st.sampled_from(["k", "l", "", "x", "1", "9" * 30]), min_size=1, max_size=4),
    st.tuples(
        st.sampled_from(
            ["SADD", "SPOP", "INCRBY", "GET", "SELECT", "EVAL", "DEL", "spop", "LPUSH"]
        ),
        st.sampled_from(["k", "l"]),
    ),
    st.tuples(st.sampled_from(["SADD", "INCRBY", "LPUSH", "SETRANGE"]), st.just("k"), st.just("5")),
)


@pytest.mark.parametrize(
    "behind",
    [
        *("APPEND k a", "INCR k", "SADD k x", "HSET k f 1", "PERSIST k", "EXPIRE k 100"),
        *("RENAME k q", "COPY k q", "GET k", "SETNX k 1", "GETDEL k", "SET k w KEEPTTL"),
    ],
)
def test_text_with_a_past_deadline_is_gone_for_the_next_command(pair: Both, behind: str) -> None:
    told = []
    for port in (pair.plain.port, pair.running.port):
        with RawClient(port) as client:
            client.call("DEL", "k", "q")
            words = [["SET", "k", "5", "PXAT", "1"], behind.split()]
            ends = [["EXISTS", "k", "q"], ["PTTL", "k"]]
            inside = [["MULTI"], *words, ["EXEC"]]
            told.append([client.pipeline([*some, *ends, ["DEL", "k"]]) for some in (words, inside)])
    assert str(told[0]) == str(told[1])


@settings(max_examples=settings().max_examples * 2)
@given(st.lists(WORDS, min_size=1, max_size=8), st.booleans())
def test_record_holds_each_reply_with_its_effects(
    server: EmbeddedServer, commands: list[list[str]], whole: bool
) -> None:
    with RawClient(server.port) as direct:
        direct.call("FLUSHALL")
        asked = [
            AskedCommand(
                number, [word.encode() for word in words], (1,) if len(words) > 1 else ()
            ).encode()
            for number, words in enumerate(commands)
        ]
        rules = [str(DB).encode(), HEADER.header(), b"1" if whole else b"0", b"1000"]
        reply = direct.call("EVAL", SCRIPT, "0", *rules, *asked)
        assert isinstance(reply, list) and len(reply) == 1 + len(commands), reply
        direct.call("SELECT", str(DB))
        record = ServerRecord.decode(direct.call("LRANGE", "record", "0", "-1"))  # type: ignore[arg-type]
        errors = all(not isinstance(e, int) and "ERR" in str(e) for e in reply[1:])
        assert (record is None) is (reply[0] == 0)
        assert record is not None or errors or not whole
        if record is not None:
            assert [list(e.words) for e in record.entries] == [
                [word.encode() for word in words] for words in commands
            ]


def test_a_damaged_or_later_record_is_refused_in_one_line() -> None:
    assert ServerRecord.decode([]) is None
    with pytest.raises(ConfigurationError, match="'record' of the metadata database is damaged"):
        ServerRecord.decode([b"\xff"])
    later = HEADER.header().replace(bytes([LEVEL]), bytes([LEVEL + 1]), 1)
    with pytest.raises(OutdatedError, match="start the program that wrote it"):
        ServerRecord.decode([later])
    unknown = ServerRecord.decode(
        [
            HEADER.header(),
            b"1.2",
            AskedCommand(0, [b"NOSUCH", b"k"]).encode(),
            b"\x94\xa0\xc2\x00\x01",
        ]
    )
    assert unknown is not None
    with pytest.raises(ConfigurationError, match="NOSUCH, which this gateway's program does not"):
        derived(unknown)


def test_key_ended_by_a_command_is_unhidden_before_its_removal() -> None:
    """A look in between would take what is there still for what other regions count on."""
    engine, keyspace, work = Group("ab")["a"], Keyspace(DB), RecordedWork()
    keyspace.hidden[b"k"] = {RedisType.HASH}
    entry = RecordEntry(0, [b"GETDEL", b"k"], [], None, b"text")
    work.answered(engine, keyspace, ServerRecord(engine.reserve(), (), 7, (entry,)))
    assert not keyspace.hidden and keyspace.known(b"k") is NOTHING
    pending, plan = work.take(), Plan(DB)
    assert pending is not None
    store(pending, keyspace, plan)
    assert any(b"hidden:hash:k" in piece for piece in plan.pieces)


def test_record_of_an_evicted_member_is_parked_after_a_restart() -> None:
    """It sends nothing any more, though others may not know yet that it is out."""
    me, *others = (f"{name}.00000000000010000" for name in "abc")
    founder = GroupEngine.found(me, others)
    record = ServerRecord(
        founder.reserve(), (), 7, (RecordEntry(0, [b"GETDEL", b"k"], [], None, b"text"),)
    )
    cuts = {me: Cut(0, How.EVICTED)}
    engine, work = GroupEngine(me, replace(founder.state(), cuts=cuts)), RecordedWork()
    work.resume(engine, Keyspace(DB), record)
    assert work.pending is None and engine.reserved is None
    assert work.parked is not None and work.parked.operation.dot == record.dot


# A connection that breaks


@pytest.mark.parametrize("first", ["recorded", "drawn"])
@pytest.mark.parametrize("behind", ["the request", "the answer"])
def test_a_pop_whose_answer_is_lost_is_done_once(tmp_path: Path, behind: str, first: str) -> None:
    """first: whether the server decides what is popped, or the look before the commit."""
    pops = [*((("GETDEL", "none"),) if first == "recorded" else ()), ("SPOP", "s"), ("INCR", "n")]
    mark = b"EVAL" if first == "recorded" else b"SREM"
    with (
        start_server(tmp_path / "server", appendfsync="no") as server,
        Proxy(server.port) as proxy,
        gateway(tmp_path, proxy.port) as running,
        running.client() as client,
    ):
        client.call("SADD", "s", *map(str, range(100)))
        cut: list[ProxiedConnection] = []

        def drop(pair: ProxiedConnection, data: bytes) -> bytes:
            if mark in data and not cut:
                cut.append(pair)
                if behind == "the request":
                    pair.cut()
                    return b""
            return data

        def lose(pair: ProxiedConnection, data: bytes) -> bytes:
            if cut == [pair]:
                pair.cut()
                return b""
            return data

        proxy.sending, proxy.receiving = drop, lose
        *_, popped, number = client.pipeline(pops)
        assert cut and isinstance(popped, bytes) and number == 1
        assert client.call("SCARD", "s") == 99
        assert client.call("SISMEMBER", "s", popped) == 0
        until(lambda: running.gateway.committer.recorded.pending is None)
        assert sent(running) == 2


# Another gateway takes the server


@pytest.mark.parametrize(
    ("held", "command"),
    [
        *(("the request", "SMOVE"), ("the answer", "SMOVE"), ("the next request", "SMOVE")),
        *(("the request", "SPOP"), ("the answer", "SPOP")),
    ],
)
def test_replaced_gateway_writes_nothing_after_the_takeover(
    tmp_path: Path, held: str, command: str
) -> None:
    """held: reserved, not sent; executed, not answered; derived, not stored. Or a commit with a drawn member."""
    words, mark = ["SMOVE", "s", "t", "7"], b"EVAL"
    if command == "SPOP":
        words, mark = ["SPOP", "s"], b"SREM"
    with (
        start_server(tmp_path / "server", appendfsync="no") as server,
        Proxy(server.port) as proxy,
        gateway(tmp_path / "first", proxy.port) as first,
        first.client() as client,
        RawClient(server.port) as direct,
    ):
        client.call("SADD", "s", *map(str, range(100)))
        until(lambda: not first.gateway.committer.working)
        go_on, is_held = threading.Event(), threading.Event()
        seen: list[ProxiedConnection] = []

        def hold() -> None:
            is_held.set()
            assert go_on.wait(30)

        def sending(pair: ProxiedConnection, data: bytes) -> bytes:
            if mark in data:
                seen.append(pair)
                if held == "the request":
                    hold()
            elif seen == [pair] and held == "the next request" and not is_held.is_set():
                hold()
            return data

        def receiving(pair: ProxiedConnection, data: bytes) -> bytes:
            if seen == [pair] and held == "the answer" and not is_held.is_set():
                hold()
            return data

        proxy.sending, proxy.receiving = sending, receiving
        client.socket.sendall(packed(words))
        assert is_held.wait(30)
        with gateway(tmp_path / "second", server.port) as second, second.client() as other:
            assert other.call("INCR", "n") == 1
            left = 100 if held == "the request" else 99
            assert other.call("SCARD", "s") == left
            go_on.set()
            if (held, command) == ("the answer", "SPOP"):  # there is nothing left to store
                client.socket.sendall(packed(["INCR", "n"]))
            first.wait_ended()
            until(lambda: not second.gateway.committer.working)
            assert other.call("SCARD", "s") == left
            direct.call("SELECT", str(DB))
            assert direct.call("EXISTS", "record") == 0
            engine = second.gateway.committer.engine
            assert engine is not None
            effects = [
                effect
                for message in engine.state().unstable
                for effect in decode(message.payload).effects
                if isinstance(effect, KillSlots)
            ]
            assert len(effects) == (held != "the request")
