"""Session tokens: what a client has seen at one gateway it sees at the next, or is told why not."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.server.raw_client import ErrorReply, packed
from crdtcast.adapters.redis.waits import reach
from crdtcast.adapters.redis.waits.blocked import BlockedCommands
from crdtcast.causality.tags import Dot
from crdtcast.replica.session import Token
from tests import servers
from tests.adapters.redis.gateways import Gateways, gateway, until
from tests.adapters.redis.session_history import SessionChecker, Written, play
from tests.adapters.redis.test_members import parked
from tests.effort import first_seed, search, size

pytestmark = pytest.mark.process

NOT_FOR_LONG = "20"
BITING_SEED = 4003
"""With it, and some of the next ones, writes are lost that a token given at once would name."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with Gateways(tmp_path_factory.mktemp("three"), logs=False) as town:
        town.start("a")
        for name in "bc":
            town.start(name, "a")
        yield town
    assert [running.error for running in town.running.values() if running.error] == []


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Gateways]:
    with Gateways(tmp_path, logs=False) as town:
        town.start("a")
        town.start("b", "a")
        yield town


@pytest.fixture
def powered(tmp_path: Path) -> Iterator[Gateways]:
    """Regions whose servers sync each write at once, or nothing. Their gateways know of no more than each second."""
    with Gateways(tmp_path, own_servers="everysec", logs=False) as town:
        town.start("a")
        for name in "bc":
            town.start(name, "a")
        for name in "abc":
            town.sync_each_write(name)
        yield town
    assert [running.error for running in town.running.values() if running.error] == []


def links(town: Gateways, verb: str, one: str, *others: str) -> None:
    for other in others:
        assert town.call(one, "CRDTCAST", verb, other) == b"OK"


def failed(reply: object, code: str, *words: str) -> bool:
    return (
        isinstance(reply, ErrorReply)
        and reply.text.startswith(f"{code} crdtcast: ")
        and all(word in reply.text for word in words)
    )


def test_token_brings_own_writes_and_what_was_read(three: Gateways) -> None:
    with three.running["a"].client() as here, three.running["b"].client() as there:
        links(three, "CUT", "b", "a", "c")
        written, token = here.pipeline([("SADD", "own", "x"), ("CRDTCAST", "TOKEN")])
        assert (written, token.isascii()) == (1, True)
        assert failed(
            there.call("CRDTCAST", "ATLEAST", token, NOT_FOR_LONG), "NOTYET", "writes of a"
        )
        assert there.call("EXISTS", "own") == 0
        links(three, "HEAL", "b", "a", "c")
        assert there.pipeline([("CRDTCAST", "ATLEAST", token), ("SMEMBERS", "own")]) == [
            b"OK",
            [b"x"],
        ]


def test_token_of_a_reader_brings_what_it_has_read(three: Gateways) -> None:
    with three.running["a"].client() as author, three.running["b"].client() as reader:
        links(three, "CUT", "c", "a", "b")
        token = author.pipeline([("SADD", "read", "x"), ("CRDTCAST", "TOKEN")])[1]
        assert reader.call("CRDTCAST", "ATLEAST", token, "0") == b"OK"
        assert reader.call("SMEMBERS", "read") == [b"x"]
        seen = reader.call("CRDTCAST", "TOKEN")
        with three.running["c"].client() as third:
            assert failed(third.call("CRDTCAST", "ATLEAST", seen, NOT_FOR_LONG), "NOTYET")
            links(three, "HEAL", "c", "a", "b")
            assert third.call("CRDTCAST", "ATLEAST", seen) == b"OK"
            assert third.call("SMEMBERS", "read") == [b"x"]


def test_token_holds_what_the_server_decided(three: Gateways) -> None:
    with three.running["a"].client() as here, three.running["b"].client() as there:
        here.pipeline([("SADD", "pop", "x"), ("SADD", "pop", "y")])
        pops = [("GETDEL", "none"), ("SPOP", "pop"), ("CRDTCAST", "TOKEN")]
        _, popped, token = here.pipeline(pops)
        told, left = there.pipeline([("CRDTCAST", "ATLEAST", token), ("SMEMBERS", "pop")])
        assert told == b"OK" and {popped, *left} == {b"x", b"y"} and popped not in left


def test_token_of_a_quiet_group_is_short_and_known_everywhere(three: Gateways) -> None:
    three.call("a", "SADD", "quiet", "x")
    three.settle()
    token = three.call("a", "CRDTCAST", "TOKEN").decode()
    assert len(token) < 64 and Token.parse(token).dots == ()
    assert [three.call(name, "CRDTCAST", "ATLEAST", token, "1") for name in "abc"] == [b"OK"] * 3


def test_time_that_is_over_at_once_still_looks_once(three: Gateways) -> None:
    three.call("a", "SADD", "slow", "x")
    three.settle()
    token = three.call("a", "CRDTCAST", "TOKEN")
    with three.running["a"].client() as client:
        three.past("a", "CLIENT", "PAUSE", "100", "ALL")
        slow = [("SADD", "slow", "y"), ("CRDTCAST", "ATLEAST", token, "1"), ("WAIT", "0", "1")]
        assert client.pipeline(slow) == [1, b"OK", 0]
        three.settle()
        three.past("a", "CLIENT", "PAUSE", "100", "ALL")
        assert client.pipeline([("GETDEL", "none"), ("WAIT", "3", "1")]) == [None, 2]


def test_many_wait_for_their_tokens_and_others_go_on(three: Gateways) -> None:
    links(three, "CUT", "b", "a", "c")
    with three.running["a"].client() as here:
        tokens = [
            here.pipeline([("SADD", "many", str(n)), ("CRDTCAST", "TOKEN")])[1] for n in range(30)
        ]
    clients = [three.running["b"].client() for _ in tokens]
    try:
        for client, token in zip(reversed(clients), tokens, strict=True):
            client.socket.sendall(
                b"*3\r\n$8\r\nCRDTCAST\r\n$7\r\nATLEAST\r\n$%d\r\n%b\r\n*2\r\n$5\r\nSCARD\r\n$4\r\nmany\r\n"
                % (len(token), token)
            )
        waiting = three.running["b"].gateway.waits.waiting
        until(lambda: len(waiting) == len(tokens))
        assert three.call("b", "SADD", "others", "x") == 1
        links(three, "HEAL", "b", "a", "c")
        for number, client in enumerate(reversed(clients)):
            assert client.receive() == b"OK"
            counted = client.receive()
            assert isinstance(counted, int) and counted > number
        assert not waiting
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nonsense"], "BADTOKEN", "not a session token"),
        ([""], "BADTOKEN", "not a session token"),
        (["\u00e9" * 70_000], "BADTOKEN", "not a session token"),
        ([str(Token("another", ()))], "BADTOKEN", "of group 'another'"),
    ],
)
def test_what_is_no_token_of_this_group_is_refused(
    three: Gateways, words: list[str], code: str, text: str
) -> None:
    assert failed(three.call("a", "CRDTCAST", "ATLEAST", *words, "1"), code, text)


def test_token_with_one_wrong_character_is_refused(three: Gateways) -> None:
    token = three.call("a", "CRDTCAST", "TOKEN").decode()
    for place, character in enumerate(token):
        wrong = token[:place] + ("A" if character != "A" else "B") + token[place + 1 :]
        if base64.urlsafe_b64decode(wrong + "===") == base64.urlsafe_b64decode(token + "==="):
            continue  # bits that do not count
        assert failed(three.call("a", "CRDTCAST", "ATLEAST", wrong, "1"), "BADTOKEN"), place


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["x"], "timeout is not an integer"),
        (["-1"], "timeout is negative"),
        (["1", "2"], "wrong number or form of arguments for CRDTCAST ATLEAST"),
    ],
)
def test_wrong_arguments_of_atleast_are_refused(
    three: Gateways, words: list[str], text: str
) -> None:
    token = three.call("a", "CRDTCAST", "TOKEN").decode()
    reply = three.call("a", "CRDTCAST", "ATLEAST", token, *words)
    assert isinstance(reply, ErrorReply) and text in reply.text
    bare = three.call("a", "CRDTCAST", "ATLEAST")
    assert isinstance(bare, ErrorReply) and "wrong number or form of arguments" in bare.text


def test_tokens_inside_a_transaction_are_refused(three: Gateways) -> None:
    with three.running["a"].client() as client:
        for words in (("CRDTCAST", "TOKEN"), ("CRDTCAST", "ATLEAST", "x")):
            answers = client.pipeline([("MULTI",), words, ("EXEC",)])
            assert "not for transactions" in answers[1].text
            assert answers[2].text.startswith("EXECABORT")


def test_token_beyond_what_a_gateway_has_sent_is_refused(three: Gateways) -> None:
    """Its server was set back, and nobody noticed; or somebody made the token up."""
    incarnation = three.status("a")["incarnation"]
    told = Token.parse(three.call("a", "CRDTCAST", "TOKEN").decode())
    ahead = Token(told.group, (Dot(incarnation, 10**9),))
    assert failed(three.call("a", "CRDTCAST", "ATLEAST", str(ahead)), "TOKENLOST", "set back")
    assert failed(three.call("b", "CRDTCAST", "ATLEAST", str(ahead), NOT_FOR_LONG), "NOTYET")


def test_token_of_an_evicted_region_is_refused_until_it_returns(pair: Gateways) -> None:
    pair.start("c", "b")
    links(pair, "CUT", "c", "a", "b")
    with pair.running["c"].client() as client:
        token = client.pipeline([("SADD", "s", "lost"), ("CRDTCAST", "TOKEN")])[1].decode()
        with pair.running["a"].client() as waits:
            waits.socket.sendall(
                b"*3\r\n$8\r\nCRDTCAST\r\n$7\r\nATLEAST\r\n$%d\r\n%b\r\n"
                % (len(token), token.encode())
            )
            until(lambda: pair.running["a"].gateway.waits.waiting)
            assert pair.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
            assert failed(waits.receive(), "TOKENLOST", "c was evicted")
        links(pair, "HEAL", "c", "a", "b")
        until(lambda: pair.call("b", "CRDTCAST", "ATLEAST", token, NOT_FOR_LONG) == b"OK")
        assert pair.call("b", "SMEMBERS", "s") == [b"lost"], "sent again"
        until(lambda: pair.members("a") == ["a", "b", "c"])
        until(lambda: client.call("PING") == b"PONG")
        anew = client.call("CRDTCAST", "TOKEN")
        assert isinstance(anew, ErrorReply) and "read what you need" in anew.text
        assert isinstance(client.call("CRDTCAST", "TOKEN"), bytes)


def test_token_is_given_when_its_writes_are_synced(powered: Gateways) -> None:
    """Before that, a power failure would give their dots to other writes, and the token would count as seen."""
    town = powered
    tokens = town.running["b"].gateway.waits.tokens
    town.sync_each_write("b", whether=False)
    kept = town.written("b")
    with town.running["b"].client() as client:
        client.socket.sendall(packed(("SADD", "s", "lost")) + packed(("CRDTCAST", "TOKEN")))
        assert client.receive() == 1
        until(lambda: tokens)
        assert town.call("b", "SMEMBERS", "s") == [b"lost"], "other clients go on"
        town.lose_power("b", kept)
        assert isinstance(client.receive(), ErrorReply), "the gateway stops"
    town.start("b", ("a", "c"))
    tokens = town.running["b"].gateway.waits.tokens
    with town.running["b"].client() as client:
        client.socket.sendall(packed(("SADD", "s", "kept")) + packed(("CRDTCAST", "TOKEN")))
        assert client.receive() == 1
        until(lambda: tokens)
        town.sync_each_write("b")
        token = client.receive()
        assert isinstance(token, bytes)
    assert town.call("a", "CRDTCAST", "ATLEAST", token) == b"OK"
    assert town.call("a", "SMEMBERS", "s") == [b"kept"]


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "set back"])
def test_token_of_writes_lost_with_a_server_is_never_good(powered: Gateways, emptied: bool) -> None:
    """No other region has them. Their gateway comes back with nothing to send again, or with some."""
    town = powered
    assert town.call("b", "SADD", "s", "old") == 1
    town.settle()
    links(town, "CUT", "b", "a", "c")
    assert town.call("b", "SADD", "s", "sent again") == 1
    kept = town.written("b")
    with town.running["b"].client() as client:
        token = client.pipeline([("SADD", "s", "lost"), ("CRDTCAST", "TOKEN")])[1]
    town.lose_power("b", 0 if emptied else kept)
    assert failed(town.call("a", "CRDTCAST", "ATLEAST", token, NOT_FOR_LONG), "NOTYET")
    town.start("b", ("a", "c"))
    town.sync_each_write("b")
    for number in range(3):
        assert town.call("b", "SADD", "s", str(number)) == 1

    def is_lost(name: str) -> bool:
        asked = town.call(name, "CRDTCAST", "ATLEAST", token, NOT_FOR_LONG)
        assert asked != b"OK"
        return failed(asked, "TOKENLOST", "its server has lost data")

    until(lambda: all(map(is_lost, "abc")))  # when the group has decided on it
    until(lambda: not parked(town, "b"))
    town.settle()
    assert all(map(is_lost, "abc"))
    anew = town.call("b", "CRDTCAST", "TOKEN")
    assert town.call("a", "CRDTCAST", "ATLEAST", anew) == b"OK"
    again = set() if emptied else {b"sent again"}
    assert set(town.call("a", "SMEMBERS", "s")) == {b"old", b"0", b"1", b"2"} | again


def test_token_of_a_forgotten_region_is_good_after_a_copy(pair: Gateways) -> None:
    """A client waits while its gateway is evicted and joins again; meanwhile the author has left, and is forgotten."""
    for name in "cd":
        pair.start(name, "a")
    pair.settle()
    links(pair, "CUT", "b", "a", "c", "d")
    with pair.running["c"].client() as client:
        token = client.pipeline([("SADD", "s", "x"), ("CRDTCAST", "TOKEN")])[1]
    with pair.running["b"].client() as waits:
        waits.socket.sendall(packed(("CRDTCAST", "ATLEAST", token)) + packed(("SMEMBERS", "s")))
        until(lambda: pair.running["b"].gateway.waits.waiting)
        assert pair.call("a", "CRDTCAST", "EVICT", "b") == b"OK"
        until(lambda: pair.members("a") == ["a", "c", "d"])
        assert pair.call("c", "CRDTCAST", "LEAVE") == b"OK"
        pair.running.pop("c").wait_ended()
        engine = pair.running["a"].gateway.committer.engine
        assert engine is not None
        until(lambda: not any(origin.startswith("c.") for origin in engine.vector))
        links(pair, "HEAL", "b", "a", "d")
        assert [waits.receive(), waits.receive()] == [b"OK", [b"x"]]


def test_tokens_of_fixed_members(tmp_path: Path) -> None:
    with (
        servers.borrowed() as one,
        servers.borrowed() as two,
        gateway(tmp_path, one.port, "a", {"b": None}) as a,
        gateway(tmp_path, two.port, "b", {"a": a.gateway.endpoint.address}) as b,
        a.client() as here,
        b.client() as there,
    ):
        token = here.pipeline([("SADD", "s", "x"), ("CRDTCAST", "TOKEN")])[1]
        asked = there.pipeline([("CRDTCAST", "ATLEAST", token), ("SMEMBERS", "s")])
        assert asked == [b"OK", [b"x"]]
        stranger = str(Token("g", (Dot("z.1", 1),)))
        assert failed(there.call("CRDTCAST", "ATLEAST", stranger), "TOKENLOST", "not a member")
        former = str(Token("g", (Dot("a.1", 1),)))
        assert failed(there.call("CRDTCAST", "ATLEAST", former, NOT_FOR_LONG), "NOTYET")


# Histories


def test_clients_that_move_read_their_writes_and_never_go_back(three: Gateways) -> None:
    steps = size(ci=150, release=5000)
    checker = play(three, first_seed(), steps, crashes=True)
    assert checker.violations == []


def _without(ours: bool) -> Callable[..., Token]:
    real = reach.token_of

    def token_of(engine: Any, group: str) -> Token:
        told = real(engine, group)
        return Token(group, tuple(d for d in told.dots if (d.origin == engine.me) is not ours))

    return token_of


def test_clients_that_move_while_servers_lose_what_is_unsynced(powered: Gateways) -> None:
    for seed in search(6, first=BITING_SEED):
        assert play(powered, seed, 150, power=True).violations == []


FAULTS = {
    "ATLEAST answers at once": ("missing", lambda engine, dots: []),
    "the token lacks the own last write": ("token_of", _without(True)),
    "the token lacks what others wrote": ("token_of", _without(False)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    three: Gateways, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(reach, *FAULTS[fault])
    for seed in search(20, first=1000 * (1 + list(FAULTS).index(fault))):
        if play(three, seed, 150, crashes=False).violations:
            return
    raise AssertionError("the checker finds nothing")


def test_a_token_given_before_its_writes_are_synced_is_found(
    powered: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockedCommands, "_is_synced", lambda self, own: True)
    for seed in search(20, first=BITING_SEED):
        if play(powered, seed, 150, power=True).violations:
            return
    raise AssertionError("the checker finds nothing")


@pytest.mark.parametrize(
    ("reads", "finds"),
    [
        ([("me", {b"m"})], []),
        ([("me", set())], ["its own write"]),
        ([("you", {b"m"}), ("you", set())], ["what it had seen"]),
        ([("you", set()), ("you", {b"m"})], []),
        ([("you", {b"n"})], ["what the author of a write had seen"]),
    ],
)
def test_the_checker_itself(reads: list[tuple[str, set[bytes]]], finds: list[str]) -> None:
    checker = SessionChecker()
    checker.wrote("me", Written("k", b"m"))
    checker.read("other", "a", "k", {b"m"})
    checker.wrote("other", Written("k", b"n"))
    for client, members in reads:
        checker.read(client, "a", "k", members)
    assert len(checker.violations) == len(finds)
    assert all(what in line for what, line in zip(finds, checker.violations, strict=True))
