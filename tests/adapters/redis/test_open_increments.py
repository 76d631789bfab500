"""Many increments of a key in one commit: one INCRBY at the server, and every client's reply as a plain server's."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.clients.transaction import Transaction
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient, packed
from tests.adapters.redis.gateways import PATIENCE, RunningGateway, gateway, until
from tests.effort import seeds

pytestmark = pytest.mark.process

KEYS = ("k", "l")
CLIENTS = 4


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("increments")
    with (
        start_server(directory / "server", appendfsync="no") as server,
        gateway(directory, server.port, log_dir=directory / "logs") as made,
    ):
        yield made


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with start_server(tmp_path_factory.mktemp("plain"), appendfsync="no") as server:
        yield server


@contextmanager
def held(running: RunningGateway) -> Iterator[None]:
    """The gateway does nothing meanwhile, so that what comes goes into one commit."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(PATIENCE)

    running.call(stand)
    assert stands.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()


def server_of(running: RunningGateway) -> RawClient:
    connection = running.gateway._connection
    assert connection is not None
    return RawClient(connection.address.port)


def incrby_calls(direct: RawClient) -> int:
    """How many INCRBY the server beside the gateway has carried out."""
    stats = direct.call("INFO", "commandstats")
    assert isinstance(stats, bytes)
    lines = [line for line in stats.splitlines() if line.startswith(b"cmdstat_incrby:")]
    return int(lines[0].split(b"calls=")[1].split(b",")[0]) if lines else 0


def test_many_increments_of_a_key_are_one_incrby(running: RunningGateway) -> None:
    with running.client() as first, running.client() as second, server_of(running) as direct:
        first.pipeline([["DEL", "n", "m"], ["INCR", "n"], ["INCR", "m"]])
        before = incrby_calls(direct)
        with held(running):
            first.socket.sendall(packed(["INCR", "n"]) * 16 + packed(["DECRBY", "m", "5"]) * 3)
            second.socket.sendall(packed(["INCRBY", "n", "10"]) * 16)
        told = [first.receive() for _ in range(16)]
        assert [first.receive() for _ in range(3)] == [-4, -9, -14]
        added = [second.receive() for _ in range(16)]
        assert incrby_calls(direct) == before + 2
        assert direct.pipeline([["GET", "n"], ["GET", "m"]]) == [b"177", b"-14"]
        # Whoever came first, each reply counts all that came before it.
        assert told == list(range(2, 18)) or told == list(range(162, 178))
        assert added == [told[-1] + 10 * i if told[0] == 2 else 1 + 10 * i for i in range(1, 17)]


def test_read_between_increments_sees_only_earlier_ones(running: RunningGateway) -> None:
    with running.client() as client:
        client.call("DEL", "n")
        words = [["INCR", "n"], ["INCR", "n"], ["GET", "n"], ["INCR", "n"], ["EXISTS", "n"]]
        words += [["DEL", "n"], ["GET", "n"], ["DECR", "n"], ["SADD", "n", "x"], ["GET", "n"]]
        replies = client.pipeline(words)
        assert replies[:8] == [1, 2, b"2", 3, 1, 1, None, -1]
        assert str(replies[8]).startswith("ErrorReply(text='WRONGTYPE")
        assert replies[9] == b"-1"


def test_only_the_increment_that_overflows_is_an_error(running: RunningGateway) -> None:
    most = 2**63 - 1
    with running.client() as client:
        client.call("DEL", "n")
        words = [["INCRBY", "n", str(most - 1)], ["INCR", "n"], ["INCR", "n"], ["DECR", "n"]]
        words += [["INCRBY", "n", str(-most)], ["INCRBY", "n", str(-most)], ["GET", "n"]]
        replies = client.pipeline(words)
        assert replies[:2] == [most - 1, most]
        assert "increment or decrement would overflow" in str(replies[2])
        assert replies[3:] == [most - 1, -1, -most - 1, b"%d" % (-most - 1)]


def test_number_changed_in_the_server_is_repaired_once(running: RunningGateway) -> None:
    with running.client() as client, server_of(running) as direct:
        client.pipeline([["DEL", "n"], ["INCR", "n"]])
        before = running.gateway.committer.changed_behind
        direct.call("SET", "n", "700")
        assert client.pipeline([["INCR", "n"]] * 5) == [2, 3, 4, 5, 6]
        until(lambda: direct.call("GET", "n") == b"6")
        assert running.gateway.committer.changed_behind == before + 1
        assert client.call("INCR", "n") == 7


READS = (["GET", "n"], ["EXISTS", "m", "n"], ["MGET", "n", "m"], ["STRLEN", "n"])
WORTH = (b"11", 1, [b"11", None], 2)
"""What these give where `n` is worth 11 and `m` nothing."""


@pytest.mark.parametrize("past", [["DEL", "n"], ["SET", "n", "98"], ["SET", "n", "x"]], ids=str)
@pytest.mark.parametrize("in_transaction", [False, True], ids=["pipeline", "transaction"])
def test_reads_never_return_a_detected_direct_change(
    running: RunningGateway, past: list[str], in_transaction: bool
) -> None:
    with running.client() as client, server_of(running) as direct:
        client.pipeline([["DEL", "n", "m"], ["INCRBY", "n", "10"]])
        direct.call(*past)
        words = [["INCR", "n"], *READS]
        with held(running):
            whole = [["MULTI"], *words, ["EXEC"]] if in_transaction else words
            client.socket.sendall(b"".join(map(packed, whole)))
        replies = [client.receive() for _ in whole]
        first, *told = replies[-1] if in_transaction else replies
        assert first == 11
        for reply, worth in zip(told, WORTH, strict=True):
            assert reply == worth or "changed directly in the server" in str(reply)
        assert client.pipeline([*READS]) == [*WORTH]


def test_read_refuses_a_number_that_replaced_a_set(running: RunningGateway) -> None:
    with running.client() as client, server_of(running) as direct:
        client.pipeline([["DEL", "t"], ["SADD", "t", "x"]])
        direct.call("SET", "t", "7")
        with held(running):
            client.socket.sendall(b"".join(map(packed, (["SADD", "t", "y"], ["GET", "t"]))))
        kept, read = str(client.receive()), str(client.receive())
        assert "overwritten directly in the server" in kept
        assert "changed directly in the server" in read


def commands(rng: Random) -> list[list[str]]:
    """What one client sends at once; a transaction is whole."""

    def one() -> list[str]:
        key = rng.choice(KEYS)
        kind = rng.choice(("INCR", "INCR", "DECR", "INCRBY", "DECRBY", "read", "read", "other"))
        match kind:
            case "INCRBY" | "DECRBY":
                return [kind, key, rng.choice(("3", "-7", str(2**62), str(-(2**63)), "x", "01"))]
            case "read":
                return [rng.choice(("GET", "EXISTS", "TYPE", "SCARD")), key]
            case "other":
                return [*rng.choice((["DEL"], ["DEL", "k"], ["SADD", key], ["SREM", key])), key]
        return [kind, key]

    found: list[list[str]] = []
    for _ in range(rng.randrange(1, 12)):
        if rng.random() < 0.15:
            found += [["MULTI"], *(one() for _ in range(rng.randrange(1, 4))), ["EXEC"]]
        else:
            found.append(one())
    return found


def noting(running: RunningGateway, order: list[Request]) -> Callable[[Request], None]:
    """The core's entrance, which notes the order in which requests come."""
    submit = running.gateway.committer.submit

    def note(request: Request) -> None:
        order.append(request)
        submit(request)

    return note


@pytest.mark.parametrize("seed", seeds(25))
def test_pipelining_clients_get_a_plain_servers_replies(
    running: RunningGateway, plain: EmbeddedServer, seed: int
) -> None:
    rng = Random(seed)
    before = running.gateway.committer.changed_behind
    print(f"seed {seed}")
    front, session = running.gateway.front, running.gateway.session._conversation
    clients = [running.client() for _ in range(CLIENTS)]
    numbers = {int(str(client.call("CLIENT", "ID"))): at for at, client in enumerate(clients)}
    with RawClient(plain.port) as beside:
        beside.call("FLUSHALL")
        clients[0].call("DEL", *KEYS)
        order: list[Request] = []
        usual = front.submit, session.submit
        front.submit = session.submit = noting(running, order)
        try:
            for _ in range(3):
                order.clear()
                sent = [commands(rng) for _ in clients]
                with held(running):
                    for client, words in zip(clients, sent, strict=True):
                        client.socket.sendall(b"".join(map(packed, words)))
                told = [
                    [reply for reply in (client.receive() for _ in words) if reply != b"QUEUED"]
                    for client, words in zip(clients, sent, strict=True)
                ]
                expected: list[list[object]] = [[] for _ in clients]
                for request in order:
                    to = expected[numbers[request.client.id]]
                    if isinstance(request, Transaction):
                        words = [["MULTI"], *(call.args for call in request.calls), ["EXEC"]]
                        to += [reply for reply in beside.pipeline(words) if reply != b"QUEUED"]
                    else:
                        to.append(beside.call(*request.args))
                assert told == expected, order
        finally:
            front.submit, session.submit = usual
            for client in clients:
                client.close()
    assert running.gateway.committer.changed_behind == before
