"""A gateway's operators: their socket, its requests, what clients may not say; and its options from a file."""

import json
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.settings import GatewaySettings
from crdtcast.cli import SUBCOMMANDS
from crdtcast.service.configuration import load
from tests.adapters.redis.gateways import until
from tests.preloaded import crdtcast

HERE = {"name": "eu", "state_dir": "/nowhere"}
JOINS = {"join": ("10.0.0.1:7380",), "advertise": "10.0.0.2:7380"}


def operator(place: Path, *words: str, code: int = 0) -> str:
    """What `crdtcast …` prints, asked of the node at that socket."""
    ran = crdtcast(*words, "--admin", str(place))
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.process
def test_admin_socket_allows_what_clients_may_not_do(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('group = "shop"\nadmin_commands = false\nleave_seconds = 20\n')
    more = ("--no-admin-commands", "--config", str(file))
    with OpenCluster(
        tmp_path, ["a", "b", "c"], group="shop", appendfsync="always", arguments=more
    ) as cluster:
        socket = cluster.socket_of("a")
        assert socket.stat().st_mode & 0o777 == 0o600
        with RawClient(cluster["a"].gateway.port) as client:
            for words in (("EVICT", "b"), ("LEAVE",), ("SURRENDER",), ("RAISE",), ("REPAIR",)):
                refused = client.call("CRDTCAST", *words)
                assert isinstance(refused, ErrorReply)
                assert f"run `crdtcast {words[0].lower()}` on" in refused.text
                assert words[0].lower() in SUBCOMMANDS
            for words in (("CUT", "b"), ("HEAL", "b"), ("ADVANCE", "5")):
                refused = client.call("CRDTCAST", *words)
                assert isinstance(refused, ErrorReply)
                assert "is for tests: start the gateway with --admin-commands" in refused.text
                assert words[0].lower() not in SUBCOMMANDS
            assert client.call("INCR", "n") == 1
        told = json.loads(operator(socket, "members", "--json"))
        assert [member["name"] for member in told["members"]] == ["a", "b", "c"]
        until(lambda: json.loads(operator(socket, "members", "--json"))["view"]["learners"] == [])
        assert json.loads(operator(socket, "status", "--json"))["standing"] == "member"
        cluster["b"].gateway.kill()
        assert json.loads(operator(socket, "evict", "b", "--json"))["members"] == ["a", "c"]
        assert "voters a, c" in operator(socket, "members")
        assert "has no dispute" in operator(socket, "surrender", "--yes", code=2)
        assert "use the gateway's own port" in operator(socket, "object", "list", code=2)
        _verify_and_repair(cluster)
        assert "durability always" in operator(socket, "status")
        operator(cluster.socket_of("c"), "leave")
        process = cluster["c"].gateway.process
        assert process is not None and process.wait(60) == 0
        assert not cluster.socket_of("c").exists()
        told = json.loads(operator(socket, "members", "--json"))
        assert [member["name"] for member in told["members"]] == ["a"]


@pytest.mark.process
def test_waiting_eviction_names_its_blocker_and_is_withdrawn(tmp_path: Path) -> None:
    with OpenCluster(tmp_path, ["a", "b", "c"], group="shop", appendfsync="always") as cluster:
        socket = cluster.socket_of("a")
        until(lambda: json.loads(operator(socket, "members", "--json"))["view"]["learners"] == [])
        for name in ("b", "c"):
            cluster[name].gateway.kill()
        said = operator(socket, "evict", "c", "--timeout", "1", code=2)
        assert "waits for b" in said
        assert "c is not evicted yet; the request stays: waiting for an answer of b" in said
        assert "REQUESTED by this node: evict c, since" in operator(socket, "members")
        with RawClient(cluster["a"].gateway.port) as client:
            assert client.call("INCR", "n") == 1
        assert "withdrawn: c" in operator(socket, "evict", "--withdraw", "c")
        assert "WANTED" not in operator(socket, "members")
        told = json.loads(operator(socket, "evict", "b", "c", "--force", "--yes", "--json"))
        assert told["members"] == ["a"]


def _verify_and_repair(cluster: OpenCluster) -> None:
    """Of the members a and c."""
    socket = cluster.socket_of("a")
    assert "compared 1 of 1 objects at a, c" in operator(socket, "verify")
    with RawClient(cluster["a"].server.port) as server:
        server.call("SET", "n", "7")
    found = operator(socket, "verify", code=1)
    assert "DIFFERENT n: a 7, c 1" in found and "1 object DIFFERS" in found
    with RawClient(cluster["a"].gateway.port) as client:
        refused = client.call("CRDTCAST", "REPAIR", "n", "FROM", "c")
        assert isinstance(refused, ErrorReply) and "`crdtcast repair`" in refused.text
    assert "NOT repaired: n" in operator(socket, "repair", code=1)
    assert "no linked member is called 'x'" in operator(socket, "repair", "--from", "x", code=2)
    assert "use --from NAME" in operator(socket, "repair", "n", code=2)
    assert "1 key put right here" in operator(socket, "repair", "n", "--from", "c")
    found = json.loads(operator(socket, "verify", "--json"))
    assert found["equal"] and found["silent"] == [] and found["members"] == ["a", "c"]
    with (
        RawClient(cluster["a"].gateway.port) as client,
        RawClient(cluster["a"].server.port) as past,
    ):
        client.pipeline([("SELECT", "3"), ("SET", "n", "9")])
        past.pipeline([("SELECT", "3"), ("SET", "n", "8")])
    assert "DIFFERENT n of database 3: a 8, c 9" in operator(socket, "verify", code=1)
    assert "cannot repair key b'n' of database 3" in operator(
        socket, "repair", "n", "--db", "3", code=2
    )
    assert "invalid db 15: the server has 16" in operator(
        socket, "repair", "n", "--db", "15", code=2
    )
    assert "--db needs a KEY" in operator(socket, "repair", "--db", "3", code=2)
    repaired = operator(socket, "repair", "n", "--db", "3", "--from", "c")
    assert "1 key put right here" in repaired
    with RawClient(cluster["a"].server.port) as server:
        server.call("RPUSH", "list", "hello")
    told = "NOT REPLICATED, present at a only: list 1\n"
    lines = operator(socket, "verify")
    assert told in lines and lines.endswith("\nequal (replicated keys only)\n")
    assert told in operator(socket, "repair")
    found = json.loads(operator(cluster.socket_of("c"), "verify", "--json"))
    assert found["equal"] and found["not_replicated"]["a"] == {"list": 1}
    assert not found["not_replicated"]["c"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"found": True, "peer": ("us=127.0.0.1:1",)}, "peer names the members of a fixed group"),
        ({"evict_after": 3600.0}, "evict_after needs a group whose members come and go"),
        ({"peer": ("us",)}, "'us' is not a peer: write NAME=HOST:PORT"),
        ({"peer": ("us=127.0.0.1:1", "us=127.0.0.1:2")}, "two peers have the same name"),
        ({"found": True, "replaces": ("us",)}, "replaces needs join"),
        ({"server_patience": 1.5}, "use 2 s or more"),
        ({"join": ("127.0.0.1:7380",)}, "join names only this node itself"),
        ({"server": "http://x"}, "server address 'http://x'"),
        ({"server": "127.0.0.1:6579"}, "server address '127.0.0.1:6579'"),
        ({"server": "user:secret@host:1"}, "server address 'user:host:1'"),
        ({"metadata_db": 0}, "choose another database"),
        ({"format_level": 7}, "format_level is 7, and this gateway's program reads level 1 to 3"),
        ({**JOINS, "leave_out": ("lst",)}, "leave_out names 'lst', did you mean list?"),
        ({**JOINS, "leave_out": ("strea",)}, "'strea', did you mean stream?"),
        ({**JOINS, "leave_out_keys": ("q:*",)}, "learns the patterns when it joins"),
        ({"found": True, "leave_out_keys": ("q:*", "")}, "leave_out_keys has an empty pattern"),
        ({"found": True, "discard_data": True}, "a founder keeps the data of its server"),
        ({"discard_data": True}, "discard_data needs a group whose members come and go"),
        (
            {**JOINS, "leave_out": ("strnig",)},
            "'strnig', which is not a type that a copy can leave out",
        ),
        (
            {**JOINS, "leave_out": ("string",)},
            "strings, hashes, sorted sets and sets are always copied",
        ),
    ],
)
def test_invalid_gateway_option_is_one_clear_line(given: dict[str, object], expected: str) -> None:
    begins = {} if given.keys() & {"found", "join"} else {"peer": ("us=127.0.0.1:7381",)}
    lines = load(GatewaySettings, given={**HERE, **begins, **given}, environment={}).wrong
    assert len(lines) == 1 and expected in lines[0], lines


@pytest.mark.process
def test_gateway_that_is_told_of_no_group_is_refused(tmp_path: Path) -> None:
    """It would be a group of fixed members of one, which replicates nothing."""
    state = tmp_path / "state"
    done = crdtcast("redis", "-n", "asia", "-s", "redis://127.0.0.1:1", "--state-dir", str(state))
    assert done.returncode == 2 and not state.exists() and not done.stdout
    assert "say how the group begins: --found for its first region, --join HOST:PORT" in done.stderr


def test_types_of_modules_can_be_left_out() -> None:
    given = {**HERE, **JOINS, "leave_out": ("list", "ReJSON-RL", "vectorset")}
    assert not load(GatewaySettings, given=given, environment={}).wrong


@pytest.mark.process
def test_options_come_from_the_file_and_passwords_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "eu.toml"
    file.write_text(
        'name = "eu"\nstate_dir = "/nowhere"\njoin = ["10.0.0.1:7380"]\npassword = "very"\n'
        'server = "redis://:secret@127.0.0.1:6379"\nleave_on_stop = true\nleave_seconds = 5\n'
        'listen = "10.0.1.1:7380"\n'
    )
    file.chmod(0o600)
    options = load(GatewaySettings, file, environment={}).get().gateway_options()
    assert options.member is not None and options.member.leave_within == 5
    assert (options.password, options.server.password) == ("very", "secret")
    done = crdtcast("config", "check", str(file), "--redis")
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert "very" not in shown and "secret@" not in shown and 'join = ["10.0.0.1:7380"]' in shown
