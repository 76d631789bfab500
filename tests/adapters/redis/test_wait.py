"""WAIT: how many other regions hold what this gateway had written, and who waits for that."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, packed
from crdtcast.adapters.redis.waits.lines import Notion, WaitingLines
from tests import servers
from tests.adapters.redis.gateways import Gateways, RunningGateway, gateway, until

pytestmark = pytest.mark.process

FOREVER = "0"


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Gateways]:
    with Gateways(tmp_path, logs=False) as gateways:
        yield gateways
    assert [running.error for running in gateways.running.values() if running.error] == []


@pytest.fixture
def pair(town: Gateways) -> Gateways:
    town.start("a")
    town.start("b", "a")
    return town


@contextlib.contextmanager
def parked(town: Gateways, name: str, *words: str) -> Iterator[RawClient]:
    """A client of that gateway whose command waits."""
    before = blocked(town, name)
    with town.running[name].client() as client:
        client.socket.sendall(packed(words))
        until(lambda: blocked(town, name) == before + 1)
        yield client


def blocked(town: Gateways, name: str) -> int:
    text = town.call(name, "INFO", "clients").decode()
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    return int(fields["blocked_clients"])


def cut(town: Gateways, name: str, other: str) -> None:
    assert town.call(name, "CRDTCAST", "CUT", other) == b"OK"


def heal(town: Gateways, name: str, other: str) -> None:
    assert town.call(name, "CRDTCAST", "HEAL", other) == b"OK"


def test_wait_counts_the_other_regions_that_hold_the_write(pair: Gateways) -> None:
    pair.start("c", "b")
    with pair.running["a"].client() as client:
        assert client.pipeline([("SADD", "s", "x"), ("WAIT", "2", FOREVER)]) == [1, 2]
        for name in "bc":
            assert pair.call(name, "SMEMBERS", "s") == [b"x"], "delivered there by then"
        cut(pair, "a", "c")
        cut(pair, "b", "c")
        assert client.pipeline([("SADD", "s", "y"), ("WAIT", "1", FOREVER)]) == [1, 1]
        assert client.pipeline([("WAIT", "2", "20"), ("WAIT", "0", FOREVER)]) == [1, 1]
        heal(pair, "a", "c")
        assert client.call("WAIT", "2", FOREVER) == 2
        heal(pair, "b", "c")
        assert pair.call("c", "SISMEMBER", "s", "y") == 1


def test_wait_sees_what_only_the_server_can_decide(pair: Gateways) -> None:
    with pair.running["a"].client() as client:
        assert client.pipeline([("SADD", "s", "x"), ("WAIT", "1", FOREVER)]) == [1, 1]
        assert client.pipeline([("SMOVE", "s", "t", "x"), ("WAIT", "1", FOREVER)]) == [1, 1]
        assert pair.call("b", "EXISTS", "s", "t") == 1
        assert client.pipeline([("SPOP", "t"), ("WAIT", "1", FOREVER)]) == [b"x", 1]
        assert pair.call("b", "EXISTS", "t") == 0


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_wait_counts_fixed_members(tmp_path: Path, appendfsync: str) -> None:
    with (
        servers.borrowed(appendfsync) as one,
        servers.borrowed(appendfsync) as two,
        gateway(tmp_path, one.port, "a", {"b": None}) as a,
        a.client() as client,
    ):
        assert client.pipeline([("SADD", "s", "x"), ("WAIT", "1", "20")]) == [1, 0]
        with gateway(tmp_path, two.port, "b", {"a": a.gateway.endpoint.address}):
            assert client.call("WAIT", "1", FOREVER) == 1
            with RawClient(two.port) as server:
                assert server.call("SMEMBERS", "s") == [b"x"]
            assert client.pipeline([("SREM", "s", "x"), ("WAIT", "1", FOREVER)]) == [1, 1]


def test_waiting_client_delays_only_its_own_later_commands(pair: Gateways) -> None:
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "1", FOREVER) as client, pair.running["a"].client() as other:
        client.socket.sendall(packed(("SADD", "s", "mine")) + packed(("SCARD", "s")))
        for number in range(100):
            assert other.call("SADD", "s", str(number)) == 1
        assert other.call("SISMEMBER", "s", "mine") == 0, "its client waits"
        assert b"flags=b " in other.call("CLIENT", "LIST")
        heal(pair, "a", "b")
        assert [client.receive() for _ in range(3)] == [1, 1, 102]
        assert blocked(pair, "a") == 0


def test_waiting_client_that_hangs_up_is_closed(pair: Gateways) -> None:
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "1", FOREVER):
        pass
    until(lambda: blocked(pair, "a") == 0)
    assert len(pair.call("a", "CLIENT", "LIST").splitlines()) == 1
    assert not list(pair.running["a"].gateway.waits._lines), "nothing is kept of it"
    heal(pair, "a", "b")
    assert pair.call("a", "WAIT", "1", FOREVER) == 1


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR", ""])
def test_unblock_ends_the_wait(pair: Gateways, how: str) -> None:
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "1", FOREVER) as client:
        (line,) = (
            each for each in pair.call("a", "CLIENT", "LIST").splitlines() if b"flags=b" in each
        )
        number = line.split()[0].partition(b"=")[2].decode()
        assert pair.call("a", "CLIENT", "UNBLOCK", number, *filter(None, [how])) == 1
        if how == "ERROR":
            assert client.receive() == ErrorReply("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        else:
            assert client.receive() == 0
        assert client.call("PING") == b"PONG"
        assert pair.call("a", "CLIENT", "UNBLOCK", number) == 0, "it does not wait any more"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("WAIT", "x", "0"), "value is not an integer"),
        (("WAIT", "1", "x"), "timeout is not an integer"),
        (("WAIT", "1", "-1"), "timeout is negative"),
        (("WAIT", "1"), "wrong number of arguments"),
        (("WAITAOF", "0", "1", "0"), "use WAIT"),
        (("CLIENT", "UNBLOCK", "x"), "value is not an integer"),
        (("CLIENT", "UNBLOCK", "1", "NOW"), "TIMEOUT or ERROR"),
    ],
)
def test_a_wrong_wait_is_refused(
    one_gateway: RunningGateway, words: tuple[str, ...], error: str
) -> None:
    with one_gateway.client() as client:
        reply = client.call(*words)
        assert isinstance(reply, ErrorReply) and error in reply.text
        assert client.call("PING") == b"PONG"


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with (
        servers.borrowed() as server,
        gateway(tmp_path_factory.mktemp("one"), server.port) as running,
    ):
        yield running


def test_thousands_of_waits_in_one_pipeline(
    one_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps all later ones, and each is answered without the server."""
    session, handled = one_gateway.gateway.session, 0
    handle = session.handle

    def counting(request: Request) -> None:
        nonlocal handled
        handled += 1
        handle(request)

    monkeypatch.setattr(session, "handle", counting)
    with one_gateway.client() as client:
        commands = [("WAIT", "0", FOREVER), ("CRDTCAST", "TOKEN")] * 1500
        replies = client.pipeline(commands)
        assert replies[::2] == [0] * 1500 and all(type(each) is bytes for each in replies[1::2])
        assert client.call("SADD", "s", "x") == 1
    assert handled <= 2 * len(commands), "kept requests are not passed on again and again"


def test_wait_inside_multi_does_not_wait(pair: Gateways) -> None:
    with pair.running["a"].client() as client:
        assert client.pipeline([("SADD", "s", "x"), ("WAIT", "1", FOREVER)]) == [1, 1]
        inside = [("MULTI",), ("SADD", "s", "y"), ("WAIT", "1", FOREVER), ("EXEC",)]
        assert client.pipeline(inside)[-1] == [1, 1], "of the writes before"
        cut(pair, "a", "b")
        assert client.call("SADD", "s", "z") == 1
        assert client.pipeline(inside)[-1] == [0, 0]
        answers = client.pipeline([("SADD", "s", "u"), *inside])
        assert answers[-1] == [0, 0], "SADD was not answered when EXEC came"


def test_eviction_while_a_client_waits(pair: Gateways) -> None:
    """Who is evicted counts no more, and never will; the rest does."""
    pair.start("c", "b")
    for name in "ab":
        cut(pair, name, "c")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "2", "5000") as client:
        assert pair.call("b", "CRDTCAST", "EVICT", "c") == b"OK"
        until(lambda: pair.members("a") == ["a", "b"])
        pair.start("d", "b")
        assert client.receive() == 2, "the region that came instead has it"


def test_gateway_that_is_evicted_ends_the_wait(pair: Gateways) -> None:
    pair.start("c", "b")
    with pair.running["c"].client() as older:
        assert older.call("SADD", "s", "first") == 1
        pair.settle()
        for name in "ab":
            cut(pair, "c", name)
        assert older.call("SADD", "s", "x") == 1
        with parked(pair, "c", "WAIT", "1", FOREVER) as client:
            assert pair.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
            until(lambda: pair.members("a") == ["a", "b"])
            for name in "ab":
                heal(pair, "c", name)
            reply = client.receive()
            assert isinstance(reply, ErrorReply)
            assert "no longer a member" in reply.text or "a new member" in reply.text
        until(lambda: pair.members("a") == ["a", "b", "c"])
        until(lambda: pair.call("a", "SISMEMBER", "s", "x") == 1)  # sent again
        until(lambda: older.call("PING") == b"PONG")
        reply = older.call("WAIT", "1", FOREVER)
        assert isinstance(reply, ErrorReply) and "read what you need" in reply.text
        assert older.pipeline([("SADD", "s", "y"), ("WAIT", "2", FOREVER)]) == [1, 2], "said once"


def test_leaving_gateway_answers_who_waits(pair: Gateways) -> None:
    pair.start("c", "b")
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "3", FOREVER) as client:
        assert pair.call("a", "CRDTCAST", "LEAVE") == b"OK"
        heal(pair, "a", "b")
        reply = client.receive()
        assert isinstance(reply, ErrorReply)
        assert "this gateway stops" in reply.text or "no longer a member" in reply.text
    pair.running["a"].wait_ended()
    del pair.running["a"]


def test_gateway_that_stops_answers_who_waits(pair: Gateways) -> None:
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "1", FOREVER) as client:
        pair.running["a"].stop()
        reply = client.receive()
        assert isinstance(reply, ErrorReply) and "this gateway stops" in reply.text


def test_wait_goes_on_over_a_lost_connection_to_the_server(pair: Gateways) -> None:
    cut(pair, "a", "b")
    pair.call("a", "SADD", "s", "x")
    with parked(pair, "a", "WAIT", "1", FOREVER) as client:
        pair.past("a", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        until(lambda: pair.status("a")["server_up"])
        heal(pair, "a", "b")
        assert client.receive() == 1


def test_region_that_is_down_counts_for_what_it_has(pair: Gateways) -> None:
    with pair.running["a"].client() as client:
        assert client.pipeline([("SADD", "s", "x"), ("WAIT", "1", FOREVER)]) == [1, 1]
        pair.running["b"].stop()
        assert client.call("WAIT", "1", FOREVER) == 1
        assert client.pipeline([("SADD", "s", "y"), ("WAIT", "1", "50")]) == [1, 0]
        pair.start("b", "a")
        assert client.call("WAIT", "1", FOREVER) == 1


def test_many_clients_wait_and_all_are_answered(pair: Gateways) -> None:
    cut(pair, "a", "b")
    answered: list[Any] = []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pair.running["a"].client()) for _ in range(60)]
        for number, client in enumerate(clients):
            time_out = "20" if number % 3 == 0 else FOREVER
            client.socket.sendall(
                packed(("SADD", "s", str(number))) + packed(("WAIT", "1", time_out))
            )
        for number, client in enumerate(clients):
            assert client.receive() == 1
            if number % 3 == 0:
                answered.append(client.receive())
        assert answered == [0] * 20
        assert blocked(pair, "a") == 40
        heal(pair, "a", "b")
        for number, client in enumerate(clients):
            if number % 3:
                assert client.receive() == 1


def test_waits_for_more_regions_than_exist_share_a_line(pair: Gateways) -> None:
    counts = [2, 3, 4, 50, 2**63 - 1]
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(parked(pair, "a", "WAIT", str(count), FOREVER)) for count in counts
        ]
        until(lambda: len(pair.running["a"].gateway.waits._lines._lines) == 1)
        pair.start("c", "b")
        assert clients[0].receive() == 2
        pair.start("d", "a")
        assert clients[1].receive() == 3
        assert blocked(pair, "a") == 3


def test_lines_keep_order_and_forget_what_is_over() -> None:
    over: set[str] = set()
    lines: WaitingLines[str] = WaitingLines(over.__contains__)
    for counter, item in ((3, "c"), (1, "a"), (2, "b"), (2, "twin"), (9, "far")):
        lines.add(Notion("x", 1), counter, item)
    lines.add(Notion("x", 2), 1, "two")
    over.add("b")
    lines.note_over()
    assert lines.take(lambda notion: 2 if notion.others == 1 else 0) == ["a", "twin"]
    assert sorted(lines) == ["c", "far", "two"]
    for item in ("far", "two"):
        over.add(item)
        lines.note_over()
    assert sorted(lines) == ["c"]
    assert lines.take(lambda _: 9) == ["c"]
    assert not list(lines)
