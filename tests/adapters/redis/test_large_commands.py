"""One large command, transaction, removal or message: other clients are answered meanwhile, and all of it is exact.

No clock decides: another client's PINGs are counted between the request and its answer, or the last piece of a request
is held back until they have been answered.
"""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.clients.client_state import MAX_CALLS
from crdtcast.adapters.redis.clients.large_request import MANY as MANY_ARGUMENTS
from crdtcast.adapters.redis.clients.large_request import LargeArgs
from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster, Region
from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.commit.divided_removal import MOST_KEYS, divided
from crdtcast.adapters.redis.server.connection import pack
from crdtcast.adapters.redis.server.raw_client import RawClient, packed
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import (
    LATEST,
    Decoding,
    KillKey,
    KillSlots,
    One,
    Opcode,
    RedisType,
    UnreadableError,
    decode,
    encode,
)
from crdtcast.adapters.redis.store.many_slots import PIECE, command_of
from tests.adapters.redis.gateways import PATIENCE, until
from tests.effort import size

pytestmark = pytest.mark.process

MANY = size(ci=40_000, release=300_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("large"), "ab", group="large") as running:
        yield running


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCluster]:
    with OpenCluster(tmp_path_factory.mktemp("open"), "ab", group="large") as running:
        yield running


def members(count: int = MANY) -> list[bytes]:
    return [b"member-%d" % number for number in range(count)]


class Pinging:
    """Another client of a region, which counts its PINGs that are answered while the `with` block runs."""

    def __init__(self, region: Region) -> None:
        self.answered = 0
        self._client = RawClient(region.gateway.port, PATIENCE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.is_set():
            assert self._client.call("PING") == b"PONG"
            self.answered += 1

    def __enter__(self) -> "Pinging":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        self._client.close()


def settled(cluster: LocalCluster) -> None:
    cluster.wait_equal(cluster.names, quiet=True, timeout=120)


def held(region: Region, key: str) -> set[bytes]:
    """Members of a set as the region's server holds it."""
    with RawClient(region.server.port, PATIENCE) as server:
        found = server.call("SMEMBERS", key)
        assert isinstance(found, list)
        return set(found)  # type: ignore[arg-type]


SIZES = (1, MANY_ARGUMENTS, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE)


@pytest.mark.parametrize("count", SIZES)
def test_many_slots_of_a_request_survive_encoding(count: int) -> None:
    words = members(count)
    args = LargeArgs()
    args += [b"sadd", b"a key", *words]
    args.words = packed(args).partition(b"\r\n")[2]
    steps = 1
    while not args.fold():
        steps += 1
    assert steps == max(1, -(-count // PIECE))
    for kind in (One, KillSlots):
        sent = kind(b"a key", RedisType.SET, args.slots)
        decoding = Decoding(encode(7, [KillKey(b"k"), sent]))
        steps = 1
        while not decoding.step():
            steps += 1
        assert steps == max(1, -(-count // PIECE))
        kill, told = decoding.event.effects
        assert kill == KillKey(b"k")
        assert type(told) is kind
        assert list(told.slots) == words
        native = pack((b"SADD", b"other", *words))
        assert command_of(b"SADD", b"other", args.slots) == native
        assert command_of(b"SADD", b"other", told.slots) == native


@pytest.mark.parametrize("count", SIZES)
def test_any_number_of_slots_survives_encoding(count: int) -> None:
    words = tuple(members(count))
    timestamp, (effect,) = decode(encode(7, [One(b"k", RedisType.SET, words)]))
    assert timestamp == 7
    assert isinstance(effect, One)
    assert tuple(effect.slots) == words


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        msgpack.packb([]),
        msgpack.packb([b"x", "x"]),
        msgpack.packb([b"x", 1]),
        msgpack.packb([[b"x"]]),
        msgpack.packb(b"x"),
        msgpack.packb([b"x"])[:-1],
        msgpack.packb([b"x"]) + b"\xc1",
        msgpack.packb([b"x"] * (PIECE + 1)),
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=lambda encoded: encoded[:6].hex() or "nothing",
)
def test_invalid_slots_in_a_large_payload_are_refused(encoded: bytes) -> None:
    payload = msgpack.packb([1, 7, [[1, b"k", RedisType.SET, encoded]]])
    with pytest.raises(UnreadableError, match="invalid payload"):
        decode(payload)


def test_too_many_slots_in_one_list_are_refused() -> None:
    payload = msgpack.packb([1, 7, [[1, b"k", RedisType.SET, [b"x"] * (PIECE + 1)]]])
    with pytest.raises(UnreadableError, match="invalid slots"):
        decode(payload)


@pytest.mark.parametrize(
    "row",
    [
        [Opcode.ONE, b"k", RedisType.SET, []],
        [Opcode.KILL_SLOTS, b"k", RedisType.SET, []],
        [Opcode.REG, b"k", RedisType.HASH, []],
        [Opcode.REG, b"k", RedisType.STRING, [b"x", b"v"]],
        [Opcode.REG, b"k", RedisType.STRING, [b"", b"v", b"", b"w"]],
        [Opcode.REG, b"k", RedisType.STRING, msgpack.packb([b"", b"v"])],
        [Opcode.INC, b"k", RedisType.STRING, b"x", "1"],
        [Opcode.INC_EXACT, b"k", RedisType.STRING, b"x", "0.5"],
        [Opcode.ASSIGN, b"k", RedisType.STRING, b"v", LATEST + 1],
        [Opcode.UNTIL, b"k", None, LATEST + 1, 0],
        [Opcode.REPLACE, b"k", None, -1],
    ],
    ids=str,
)
def test_payload_that_no_command_produces_is_refused(row: list[Any]) -> None:
    with pytest.raises(UnreadableError):
        decode(msgpack.packb([2, 7, [row]]))


def test_others_are_answered_while_a_large_request_comes_in(cluster: LocalCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    request = packed([b"SADD", b"one", *members()])
    with (
        socket.create_connection(("127.0.0.1", a.gateway.port), PATIENCE) as client,
        RawClient(a.gateway.port) as near,
    ):
        for first in range(0, len(request), 1 << 18):
            client.sendall(request[first : first + (1 << 18)])
            assert near.call("INCR", "beside") is not None
        assert client.recv(100) == b":%d\r\n" % MANY
    settled(cluster)
    assert held(a, "one") == held(b, "one") == set(members())


def test_a_large_message_of_a_peer_lets_clients_be_answered(cluster: LocalCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    with RawClient(a.gateway.port, PATIENCE) as client, RawClient(b.gateway.port) as far:
        with Pinging(b) as there:
            assert client.call("SADD", "two", *members()) == MANY
            before = there.answered
            until(lambda: far.call("SCARD", "two") == MANY)
            assert there.answered > before
        with Pinging(b) as there:
            assert client.call("SREM", "two", *members()[1:]) == MANY - 1
            until(lambda: far.call("SCARD", "two") == 1)
            assert there.answered
    settled(cluster)
    assert held(a, "two") == held(b, "two") == {b"member-0"}


def test_large_adds_and_removals_of_both_regions_meet_exactly(cluster: LocalCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    names = members(90_000)
    with RawClient(a.gateway.port, PATIENCE) as one, RawClient(b.gateway.port, PATIENCE) as other:
        one.call("SADD", "met", *names)
        settled(cluster)
        cluster.cut("a", "b")
        one.call("SREM", "met", *names)  # has seen none of what the other region adds now
        other.call("SADD", "met", *names[:40_000])
        one.call("SADD", "met", *names[80_000:])
        other.call("SREM", "met", *names[70_000:])
        cluster.heal("a", "b")
    settled(cluster)
    assert held(a, "met") == held(b, "met") == set(names[:40_000]) | set(names[80_000:])


def test_large_transaction_is_exact_and_later_commands_follow(cluster: LocalCluster) -> None:
    a, b = cluster["a"], cluster["b"]
    names = members(100_000)
    with RawClient(a.gateway.port, PATIENCE) as client:
        replies = client.pipeline(
            [
                ("MULTI",),
                ("SADD", "three", *names),
                ("SREM", "three", *names[:50_000]),
                ("SADD", "three", *names[:1]),
                ("SCARD", "three"),
                ("EXEC",),
                ("SADD", "three", *names),
                ("INCR", "behind"),
            ]
        )
    assert replies[5] == [100_000, 50_000, 1, 50_001]
    assert replies[6:] == [49_999, 1]
    settled(cluster)
    assert held(a, "three") == held(b, "three") == set(names)


def test_members_named_twice_in_a_large_add_count_once(cluster: LocalCluster) -> None:
    names = members(5000)
    with RawClient(cluster["a"].gateway.port) as client:
        assert client.call("SADD", "twice", *names, *names) == 5000
        assert client.call("SREM", "twice", *names[1:], *names[1:]) == 4999
        assert client.call("SADD", "twice", *names[:2]) == 1
    settled(cluster)
    assert held(cluster["b"], "twice") == set(names[:2])


def test_large_removals_where_members_come_and_go(open_cluster: OpenCluster) -> None:
    a, b = open_cluster["a"], open_cluster["b"]
    with RawClient(a.gateway.port, PATIENCE) as client, Pinging(a) as near:
        assert client.call("SADD", "set", *members()) == MANY
        assert client.call("SREM", "set", *members()[: MANY // 2]) == MANY // 2
        before = near.answered
        open_cluster.begin("c")  # a join meanwhile
        assert client.call("SADD", "other", *members(100_000)) == 100_000
        assert client.call("DEL", "set") == 1
        assert client.call("SADD", "set", "left") == 1
        open_cluster["c"].gateway.wait_ready()
        assert near.answered > before
    settled(open_cluster)
    for region in (a, b, open_cluster["c"]):
        assert held(region, "set") == {b"left"}
        assert held(region, "other") == set(members(100_000))


def test_removal_of_many_keys_lets_other_clients_get_replies(
    cluster: LocalCluster,
) -> None:
    names = [b"key-%d" % number for number in range(10 * MOST_KEYS + 1)]
    a, b = cluster["a"], cluster["b"]
    with RawClient(a.gateway.port, PATIENCE) as client, Pinging(a) as near, Pinging(b) as far:
        client.pipeline([(b"INCR", name) for name in names])
        settled(cluster)
        here, there = near.answered, far.answered
        # Its own reads come behind all of the pieces, and names without a key count for nothing.
        words = (b"UNLINK", *names, *(b"no-%d" % number for number in range(MOST_KEYS)))
        replies = client.pipeline([words, (b"EXISTS", names[0], names[-1]), (b"INCR", names[-1])])
        assert replies == [len(names), 0, 1]
        assert near.answered > here + 5
        settled(cluster)
        assert far.answered > there + 5
    for region in (a, b):
        with RawClient(region.server.port, PATIENCE) as server:
            assert server.call("EXISTS", *names) == 1


def test_a_removal_of_many_keys_is_not_divided_inside_multi(cluster: LocalCluster) -> None:
    names = [b"many-%d" % number for number in range(MAX_CALLS + 1)]
    with RawClient(cluster["a"].gateway.port, PATIENCE) as client:
        client.call("INCR", names[0])
        *_, refused, executed = client.pipeline([("MULTI",), (b"DEL", *names), ("EXEC",)])
        assert "16384 commands, and keys that it removes," in str(refused)
        assert "EXECABORT" in str(executed)
        assert client.call("GET", names[0]) == b"1"
        answers = client.pipeline([("MULTI",), (b"DEL", *names[1:]), (b"DEL", names[0]), ("EXEC",)])
        assert "the transaction is too large" in str(answers[2])
        *_, executed = client.pipeline([("MULTI",), (b"DEL", *names[:-1]), ("EXEC",)])
        assert executed == [1]


class Asker:
    """Stands for a client: it is told of the answer."""

    protocol = 2
    closed = touched = False

    def touch(self, client: object) -> None:
        del client


ERROR = ReplyError("ERR crdtcast: the server went away")
LOST = ReplyError("ERR crdtcast: this was applied, but its reply is lost")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([1, 2, 3], 6),
        ([ERROR, ERROR, ERROR], str(ERROR)),
        (
            [LOST, ERROR, ERROR],  # what is said of one of them does not hold for all
            "0 are known to be removed, then: this was applied, but its reply is lost; send it again",
        ),
        ([5, ERROR, ERROR], "5 are known to be removed, then: the server went away; send it again"),
        ([ERROR, 5, 2], "7 are known to be removed, then: the server went away; send it again"),
    ],
)
def test_replies_to_the_parts_of_a_removal_are_summed(
    answers: list[int | ReplyError], expected: int | str
) -> None:
    args = [b"DEL", *(b"%d" % number for number in range(2 * MOST_KEYS + 1))]
    request = Request(Asker(), args, Table().get("DEL"))  # type: ignore[arg-type]
    pieces = divided(request)
    assert [key for piece in pieces for key in piece.args[1:]] == args[1:]
    assert not request.answered
    for piece, answer in zip(pieces, answers, strict=True):
        piece.answer(answer)
    assert request.answered
    if isinstance(expected, int):
        assert request.value == expected
    else:
        assert str(request.value).endswith(expected)


def test_100_pipelined_increments_of_1000_clients_are_exact(cluster: LocalCluster) -> None:
    clients, each = 1000, 100
    port = cluster["a"].gateway.port
    request = packed([b"INCR", b"all"]) * each
    sockets = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(clients)]
    try:
        for sock in sockets:
            sock.sendall(request)
        seen: list[int] = []
        for sock in sockets:
            text = b""
            while text.count(b"\n") < each:
                piece = sock.recv(1 << 16)
                assert piece
                text += piece
            replies = [int(line[1:]) for line in text.splitlines()]
            assert replies == sorted(replies)  # a client's are in its order
            seen += replies
    finally:
        for sock in sockets:
            sock.close()
    assert sorted(seen) == list(range(1, clients * each + 1))
    settled(cluster)
    with RawClient(cluster["b"].server.port) as server:
        assert server.call("GET", "all") == b"%d" % (clients * each)
