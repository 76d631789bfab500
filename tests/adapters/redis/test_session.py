"""What clients ask about their connection: the texts and shapes of a native server."""

import hiredis
import pytest
import redis

from crdtcast.adapters.redis.clients.session import ServerIdentity
from tests.adapters.redis.front_support import RunningFront, Wire, serve


def test_replies_of_the_session() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            for command, reply in (
                ("PING", b"PONG"),
                ("ping hello", b"hello"),
                ("PING a b", "ERR wrong number of arguments for 'ping' command"),
                ("ECHO x", b"x"),
                ("SELECT 0", b"OK"),
                ("SELECT x", "ERR value is not an integer or out of range"),
                ("CLIENT GETNAME", None),
                ("CLIENT SETNAME worker", b"OK"),
                ("CLIENT GETNAME", b"worker"),
                (
                    "CLIENT SETNAME a\nb",
                    "ERR Client names cannot contain spaces, newlines or special characters.",
                ),
                ("CLIENT SETINFO LIB-NAME redis-py", b"OK"),
                ("CLIENT SETINFO foo bar", "ERR Unrecognized option 'foo'"),
                ("CLIENT NO-EVICT on", b"OK"),
                ("CLIENT NO-TOUCH maybe", "ERR syntax error"),
                ("CLIENT REPLY ON", b"OK"),
                ("CLIENT foo", "ERR unknown subcommand 'foo'. Try CLIENT HELP."),
                ("COMMAND DOCS", []),
                ("COMMAND INFO nosuch", [None]),
                ("COMMAND INFO get", [[b"get", 2, [b"readonly"], 1, 1, 1, [], [], [], []]]),
                ("COMMAND LIST FILTERBY PATTERN sadd*", [b"sadd"]),
                ("CONFIG GET save appendonly", [b"save", b"", b"appendonly", b""]),
                ("CONFIG GET requirepass", []),
                ("CONFIG GET appendfs*", [b"appendfsync", b""]),
                ("CRDTCAST STATUS", b"admin status"),
                ("TYPE s", b"set"),
                ("HELLO 4", "NOPROTO unsupported protocol version"),
                ("HELLO x", "ERR Protocol version is not an integer or out of range"),
                ("HELLO 3 foo", "ERR Syntax error in HELLO option 'foo'"),
                (
                    "AUTH x",
                    "ERR AUTH <password> called without any password configured for the default "
                    "user. Are you sure your configuration is correct?",
                ),
                ("AUTH default x", b"OK"),
                ("AUTH a b c", "ERR syntax error"),
                ("RESET", b"RESET"),
                ("CLIENT GETNAME", None),
                ("QUIT", b"OK"),
            ):
                assert wire.call(*command.split(" ")) == reply, command
            assert wire.reply() is Wire.CLOSED

    serve(body)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("CONFIG SET save x", "ERR crdtcast: command 'CONFIG SET' is not replicated"),
        ("LPUSH a b", "ERR crdtcast: command 'LPUSH' is not replicated"),
        ("MONITOR", "ERR crdtcast: command 'MONITOR' is not replicated"),
        ("AUTH default wrong x", "ERR syntax error"),
        ("HELLO 9", "NOPROTO unsupported protocol version"),
        ("NOSUCH a", "ERR unknown command 'NOSUCH', with args beginning with: 'a'"),
    ],
)
def test_refused_command_leaves_the_connection_usable(command: str, text: str) -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            reply = wire.call(*command.split())
            assert isinstance(reply, str)
            assert reply.startswith(text)
            assert wire.call("SADD", "s", "a") == 1

    serve(body)


def test_hello_replies_in_the_requested_protocol() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            flat = wire.call("HELLO")
            assert isinstance(flat, list)
            assert flat[0::2] == [
                *(b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules")
            ]
            greeting = wire.call("HELLO", "3", "SETNAME", "me")
            assert isinstance(greeting, dict)
            assert greeting[b"proto"] == 3
            assert greeting[b"role"] == b"master"
            assert greeting[b"modules"] == []
            assert wire.call("CLIENT", "GETNAME") == b"me"
            assert wire.call("CLIENT", "ID") == greeting[b"id"]
            wire.send(hiredis.pack_command(("GET", "nothing")))
            assert wire.raw(3) == b"_\r\n"
            assert wire.call("RESET") == b"RESET"
            wire.send(hiredis.pack_command(("GET", "nothing")))
            assert wire.raw(5) == b"$-1\r\n"

    serve(body)


def test_unauthenticated_client_may_do_little() -> None:
    noauth = "NOAUTH Authentication required."
    wrong = "WRONGPASS invalid username-password pair or user is disabled."

    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            for command in ("PING", "SADD s a", "GET k", "INFO", "CRDTCAST STATUS", "SET a b"):
                assert wire.call(*command.split()) == noauth
            assert str(wire.call("HELLO", "3")).startswith("NOAUTH HELLO must be called with")
            assert wire.call("AUTH", "wrong") == wrong
            assert wire.call("AUTH", "other", "secret") == wrong
            assert wire.call("HELLO", "3", "AUTH", "default", "wrong") == wrong
            assert wire.call("AUTH", "secret") == b"OK"
            assert wire.call("SADD", "s", "a") == 1
            assert wire.call("RESET") == b"RESET"
            assert wire.call("SADD", "s", "a") == noauth
            assert wire.call("QUIT") == b"OK"
        with gate.connection() as wire:
            # A client may send its login and its first, larger commands together.
            members = [b"m%d" % number for number in range(5000)]
            wire.send(
                hiredis.pack_command(("HELLO", "3", "AUTH", "default", "secret"))
                + hiredis.pack_command(("SADD", "t", *members))
                + hiredis.pack_command(("PING",))
            )
            assert isinstance(wire.reply(), dict)
            assert wire.reply() == 5000
            assert wire.reply() == b"PONG"
        with gate.connection() as wire:
            assert wire.call("SADD", "t", *members) == (
                "ERR Protocol error: unauthenticated multibulk length"
            )
            assert wire.reply() is Wire.CLOSED
        with redis.Redis(port=gate.port, password="secret", protocol=3) as client:
            assert client.ping()

    serve(body, password="secret")


def test_info_has_the_fields_of_clients_and_our_section() -> None:
    def body(gate: RunningFront) -> None:
        gate.front.session.server = ServerIdentity("valkey", "9.1.2", "7.2.4")  # type: ignore[attr-defined]
        with redis.Redis(port=gate.port, protocol=3, client_name="me") as client:
            info = client.info()
            assert info["redis_version"] == "7.2.4"
            assert info["valkey_version"] == "9.1.2"
            assert info["role"] == "master"
            assert info["loading"] == 0
            assert client.info("crdtcast") == {"name": "a", "quiet": 1, "links_b_state": "up"}
            assert "role" not in client.info("server")
            assert [entry["name"] for entry in client.client_list()] == ["me"]
            assert client.client_info()["resp"] == "3"
            assert client.client_info()["lib-name"].startswith("redis-py")
            assert client.client_list(client_id=[10**6]) == []

    serve(body)


def test_command_lists_only_supported_commands() -> None:
    def body(gate: RunningFront) -> None:
        with redis.Redis(port=gate.port) as client:
            commands = client.command()
            assert len(commands) == client.command_count()
            assert {"sadd", "incr", "get", "hello", "crdtcast"} <= set(commands)
            assert {"multi", "exec", "discard", "watch", "unwatch"} <= set(commands)
            assert not {"setbit", "eval"} & set(commands)
            assert commands["sadd"]["first_key_pos"] == 1
            assert client.command_list() == [name.encode() for name in commands]

    serve(body)
