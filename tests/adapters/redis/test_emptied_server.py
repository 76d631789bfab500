"""A server that was emptied past its gateway is filled from the group; one that takes no writes still answers reads."""

import logging
from pathlib import Path

import pytest

from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.transport.options import Address, NodeOptions
from tests.adapters.redis.disk_support import fill, small_disk
from tests.adapters.redis.gateways import Gateways, RunningGateway, error_of, gateway, until

pytestmark = pytest.mark.process

EMPTYINGS: dict[str, list[list[str]]] = {
    "everything": [["FLUSHALL"]],
    "our metadata alone": [["SELECT", "15"], ["FLUSHDB"]],
    "the fence alone": [["SELECT", "15"], ["DEL", "fence"]],
    "the fence, set back": [["SELECT", "15"], ["SET", "fence", "1"]],
    "the state and the fence": [["SELECT", "15"], ["DEL", "state", "fence"]],
}


def at_server(town: Gateways, name: str, commands: list[list[str]]) -> None:
    with RawClient(town.server(name).port) as client:
        for reply in client.pipeline(commands):
            assert not isinstance(reply, ErrorReply)


def written(town: Gateways, name: str, *words: str) -> None:
    """Write until it is taken: whoever is told that nothing was written tries again."""
    until(lambda: not isinstance(town.call(name, *words), ErrorReply))


@pytest.mark.parametrize("emptying", EMPTYINGS.values(), ids=EMPTYINGS)
@pytest.mark.parametrize("emptied", ["a", "b"], ids=["founder", "joiner"])
def test_an_emptied_server_of_a_running_gateway_is_filled_again(
    tmp_path: Path,
    emptied: str,
    emptying: list[list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "SADD", "s", "1")
        town.call("b", "SADD", "s", "2")
        town.wait_equal("a", "b")
        at_server(town, emptied, emptying)
        written(town, emptied, "SADD", "s", "3")
        written(town, "a" if emptied == "b" else "b", "INCR", "n")
        town.wait_equal("a", "b")
        for name in "ab":
            assert sorted(town.call(name, "SMEMBERS", "s")) == [b"1", b"2", b"3"]
            assert town.call(name, "GET", "n") == b"1"
    if emptying == EMPTYINGS["everything"]:
        assert "the server is empty: waiting for another member to fill it" in caplog.text
    elif emptying == EMPTYINGS["our metadata alone"]:
        assert "has lost this member's metadata, and the group's data replaces" in caplog.text


def test_a_founder_whose_server_is_found_empty_starts_again(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        a = town.start("a")
        town.start("b", "a")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        a.stop()
        at_server(town, "a", [["FLUSHALL"]])
        town.start("a")  # as a founder, as always
        town.wait_equal("a", "b")
        assert town.call("a", "INCR", "n") == 2
        assert town.members("b") == ["a", "b"]


def test_group_that_has_lost_all_servers_is_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        address = {name: town.peer_address(name) for name in "ab"}
        for name in "ab":
            town.running[name].stop()
            at_server(town, name, [["FLUSHALL"]])
        started = [again(town, name, address) for name in "ab"]
        # The first one that gives up leaves the other one to wait.
        until(lambda: any(one.error is not None for one in started))
        told = str(error_of(next(one for one in started if one.error is not None)))
        assert "all servers of group 'g' have lost their data, those of a, b" in told, told
        assert "delete a.* and b.* in their state directories" in told and "--found" in told
        assert "the server is empty: waiting for another member to fill it" in caplog.text


def again(town: Gateways, name: str, address: dict[str, Address]) -> RunningGateway:
    """Start a member at its former address; it may not become ready."""
    other = "b" if name == "a" else "a"
    options = GatewayOptions(
        node=NodeOptions(
            name=name,
            group="g",
            listen=address[name],
            peers=[address[other]],
            handshake_timeout=0.5,
        ),
        listen_clients=("127.0.0.1", 0),
        server=ServerAddress("127.0.0.1", town.server(name).port),
        state_dir=town.directory / f"state-{name}",
        member=GroupOptions(founds=name == "a"),
    )
    town.running[name] = RunningGateway(options)
    return town.running[name]


def test_a_lone_member_goes_on_with_an_emptied_server(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.call("a", "SADD", "s", "1")
        at_server(town, "a", [["FLUSHALL"]])
        written(town, "a", "SADD", "t", "1")
        assert (town.call("a", "EXISTS", "s"), town.call("a", "EXISTS", "t")) == (0, 1)
        town.start("b", "a")
        town.wait_equal("a", "b")


def test_fixed_members_tell_the_true_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        start_server(tmp_path / "server") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
        RawClient(server.port) as direct,
        caplog.at_level(logging.ERROR),
    ):
        assert client.call("INCR", "n") == 1
        direct.call("FLUSHALL")
        until(lambda: "removed directly in the server" in str(client.call("INCR", "n")))
        assert running.error is None
        assert "another gateway" not in caplog.text
        assert "the server has lost its data" in caplog.text


@pytest.mark.parametrize("read", [("GET", "n"), ("SMEMBERS", "s"), ("STRLEN", "n")])
def test_reads_are_answered_while_the_disk_is_full(tmp_path: Path, read: tuple[str, ...]) -> None:
    with (
        small_disk(tmp_path / "small") as disk,
        start_server(disk, appendfsync="everysec") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        assert client.call("SADD", "s", "1") == 1
        expected = client.call(*read)
        ballast = disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            fill(file)
        until(lambda: isinstance(client.call("SADD", "t", "x" * 5000), ErrorReply))
        for _ in range(20):
            answers = client.pipeline([read, ("SADD", "t", "x" * 5000), read])
            assert isinstance(answers[1], ErrorReply)
            assert answers[0] == answers[2] == expected, answers
        ballast.unlink()
        until(lambda: client.call("INCR", "n") == 2)


@pytest.mark.parametrize("read", [("GET", "n"), ("SMEMBERS", "s")])
def test_reads_are_answered_while_a_needed_replica_is_away(
    tmp_path: Path, read: tuple[str, ...]
) -> None:
    with (
        start_server(tmp_path / "server") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
        RawClient(server.port) as direct,
    ):
        assert client.call("INCR", "n") == 1
        assert client.call("SADD", "s", "1") == 1
        expected = client.call(*read)
        assert direct.call("CONFIG", "SET", "min-replicas-to-write", "1") == b"OK"
        for _ in range(20):
            first, refused, last = client.pipeline([read, ("SADD", "t", "x"), read])
            assert isinstance(refused, ErrorReply) and "NOREPLICAS" in refused.text, refused
            assert first == last == expected
        assert direct.call("CONFIG", "SET", "min-replicas-to-write", "0") == b"OK"
        until(lambda: client.call("INCR", "n") == 2)
