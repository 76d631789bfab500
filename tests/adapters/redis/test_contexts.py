"""Commands that change what later ones mean, over real sockets: MULTI, WATCH, SELECT, CLIENT REPLY, RESET."""

from collections.abc import Sequence
from unittest.mock import ANY

import hiredis
import pytest

from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.clients.client_state import MAX_CALLS
from crdtcast.adapters.redis.clients.watches import MAX_WATCHED
from crdtcast.adapters.redis.server.resp import ReplyError
from tests.adapters.redis.front_support import RunningFront, Wire, serve

QUEUED_THREE = b"+OK\r\n" + b"+QUEUED\r\n" * 3
ABORTED = "EXECABORT Transaction discarded because of previous errors."
OURS = "ERR crdtcast: database 15 holds the gateway's own metadata"
AFTER_SELECT = "ERR crdtcast: not executed: SELECT was refused"


def talk(
    gate: RunningFront, exchange: Sequence[tuple[str, object]], *, at_once: bool = False
) -> None:
    """Send commands, each alone or all in one chunk; a reply that is a text may be the beginning of it."""
    with gate.connection() as wire:
        if at_once:
            wire.send(b"".join(command.encode() + b"\r\n" for command, _ in exchange))
        for command, expected in exchange:
            reply = wire.reply() if at_once else wire.call(*command.split())
            if isinstance(expected, str):
                assert isinstance(reply, str) and reply.startswith(expected), (command, reply)
            else:
                assert reply == expected, command


CONVERSATIONS: dict[str, list[tuple[str, object]]] = {
    "exec_discard_without_multi": [
        ("EXEC", "ERR EXEC without MULTI"),
        ("DISCARD", "ERR DISCARD without MULTI"),
        ("UNWATCH", b"OK"),
        ("EXEC x", "EXECABORT Transaction discarded because of: wrong number of arguments"),
        ("INCRBY n 1", 1),
    ],
    "everything_in_order": [
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("PING", b"QUEUED"),
        ("CLIENT SETNAME me", b"QUEUED"),
        ("CLIENT GETNAME", b"QUEUED"),
        ("SELECT 0", b"QUEUED"),
        ("UNWATCH", b"QUEUED"),
        ("CRDTCAST STATUS", b"QUEUED"),
        ("SMEMBERS none", b"QUEUED"),
        ("EXEC", [1, b"PONG", b"OK", b"me", b"OK", b"OK", b"admin status", []]),
        ("CLIENT GETNAME", b"me"),
    ],
    "discarded": [
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("CLIENT SETNAME me", b"QUEUED"),
        ("DISCARD", b"OK"),
        ("CLIENT GETNAME", None),
        ("GET n", None),
    ],
    "refused_inside": [
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("LPUSH k v", "ERR crdtcast: command 'LPUSH' is not replicated"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", ABORTED),
        ("GET n", None),
        ("EXEC", "ERR EXEC without MULTI"),
    ],
    "our_database_inside": [
        ("MULTI", b"OK"),
        ("SELECT 15", OURS),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", ABORTED),
        ("GET n", None),
    ],
    "another_database": [
        ("SELECT 3", b"OK"),
        ("INCRBY n 1", 1),
        ("SELECT 16", "ERR DB index is out of range"),
        ("SELECT 3x", "ERR value is not an integer or out of range"),
        ("INCRBY n 1", 2),
        ("RESET", b"RESET"),
        ("GET n", None),
        ("SELECT 3", b"OK"),
        ("GET n", b"2"),
    ],
    "another_database_inside": [
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("SELECT 3", b"QUEUED"),
        ("INCRBY n 5", b"QUEUED"),
        ("SELECT 16", b"QUEUED"),
        ("GET n", b"QUEUED"),
        ("EXEC", [1, b"OK", 5, ANY, b"5"]),
        ("INCRBY n 1", 6),
        ("MULTI", b"OK"),
        ("SELECT 0", b"QUEUED"),
        ("GET n", b"QUEUED"),
        ("DISCARD", b"OK"),
        ("GET n", b"6"),
        ("QUIT", b"OK"),
        ("", Wire.CLOSED),
    ],
    "monitor_inside": [
        ("MULTI", b"OK"),
        ("MONITOR", "ERR crdtcast: command 'MONITOR' is not replicated"),
        ("EXEC", ABORTED),
        ("INCRBY n 1", 1),
    ],
    "reply_off_inside": [
        ("MULTI", b"OK"),
        ("CLIENT REPLY OFF", "ERR Command 'client|reply' not allowed inside a transaction"),
        ("EXEC", ABORTED),
        ("INCRBY n 1", 1),
    ],
    "reset_inside": [
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("RESET", b"RESET"),
        ("GET n", None),
        ("EXEC", "ERR EXEC without MULTI"),
    ],
    "watched": [
        ("WATCH k k l", b"OK"),
        ("WATCH k", b"OK"),
        ("INCRBY n 1", 1),
        ("MULTI", b"OK"),
        ("UNWATCH", b"QUEUED"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", [b"OK", 2]),
        ("WATCH k", b"OK"),
        ("MULTI", b"OK"),
        ("PING", b"QUEUED"),
        ("EXEC", [b"PONG"]),
        ("WATCH k", b"OK"),
        ("MULTI", b"OK"),
        ("EXEC", []),
        ("WATCH k", b"OK"),
        ("UNWATCH", b"OK"),
        ("EXEC", "ERR EXEC without MULTI"),
    ],
    "watch_inside": [
        ("MULTI", b"OK"),
        ("WATCH k", "ERR WATCH inside MULTI is not allowed"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", [1]),
    ],
    "watch_without_keys": [
        ("WATCH", "ERR wrong number of arguments for 'watch' command"),
        ("INCRBY n 1", 1),
    ],
    "after_select": [
        ("SELECT 15", OURS),
        ("INCRBY n 1", AFTER_SELECT),
        ("MULTI", AFTER_SELECT),
        ("SELECT 0", AFTER_SELECT),
        ("INCRBY n 1", AFTER_SELECT),
        ("EXEC", ABORTED),
        ("INCRBY n 1", AFTER_SELECT),
        ("UNWATCH", AFTER_SELECT),
        ("DISCARD", AFTER_SELECT),
        ("SELECT 15", OURS),
        ("SELECT 0", b"OK"),
        ("INCRBY n 1", 1),
    ],
    "after_select_reset": [
        ("SELECT 15", OURS),
        ("INCRBY n 1", AFTER_SELECT),
        ("RESET", b"RESET"),
        ("INCRBY n 1", 1),
    ],
    "select_of_what_is_no_number": [
        ("SELECT 00", "ERR value is not an integer or out of range"),
        ("INCRBY n 1", 1),
    ],
    "watch_refused_behind_select": [
        ("SELECT 15", OURS),
        ("WATCH k", AFTER_SELECT),
        ("SELECT 0", b"OK"),
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", None),
        ("INCRBY n 1", 1),
    ],
    "select_refused_behind_watch": [
        ("WATCH k", b"OK"),
        ("SELECT 15", OURS),
        ("UNWATCH", AFTER_SELECT),
        ("SELECT 0", b"OK"),
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", [1]),
    ],
    "quit_after_a_refusal": [("SELECT 15", OURS), ("QUIT", b"OK"), ("", Wire.CLOSED)],
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversation(name: str, at_once: bool) -> None:
    exchange = CONVERSATIONS[name]
    if exchange[-1][1] is Wire.CLOSED and at_once:
        exchange = exchange[:-1]
    serve(lambda gate: talk(gate, exchange, at_once=at_once))


def test_number_of_watched_keys_is_bounded() -> None:
    exchange: list[tuple[str, object]] = [
        ("WATCH " + " ".join(map(str, range(MAX_WATCHED))), b"OK"),
        ("WATCH 0 1 2", b"OK"),
        ("WATCH k", "ERR crdtcast: a client may watch at most 16384 keys"),
        ("MULTI", b"OK"),
        ("CLIENT SETNAME me", b"QUEUED"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", None),
        ("CLIENT GETNAME", None),
        ("GET n", None),
        ("WATCH k", b"OK"),
        ("MULTI", b"OK"),
        ("INCRBY n 1", b"QUEUED"),
        ("EXEC", [1]),
    ]

    def body(gate: RunningFront) -> None:
        talk(gate, exchange)
        gate.in_trio(lambda: None)
        assert gate.front.queued == 0

    serve(body)


def test_errors_of_the_session_are_elements_of_exec() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            wire.send(b"MULTI\r\nHELLO 9\r\nPING a b\r\nINCRBY n 1\r\nEXEC\r\n")
            assert wire.raw(32) == QUEUED_THREE
            expected = (
                b"*3\r\n-NOPROTO unsupported protocol version\r\n"
                b"-ERR wrong number of arguments for 'ping' command\r\n:1\r\n"
            )
            assert wire.raw(len(expected)) == expected

    serve(body)


def test_hello_inside_multi_changes_the_replies_after_it() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            wire.send(b"MULTI\r\nSMEMBERS s\r\nHELLO 3\r\nSMEMBERS s\r\nEXEC\r\nSMEMBERS s\r\n")
            assert wire.raw(32) == QUEUED_THREE
            assert wire.raw(12) == b"*3\r\n*0\r\n%7\r\n"
            rest = b""
            while not rest.endswith(b"~0\r\n~0\r\n"):
                rest += wire.raw(1)

    serve(body)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("CLIENT REPLY OFF|INCRBY n 1|NOSUCH|CLIENT REPLY ON|GET n", b"+OK\r\n$1\r\n1\r\n"),
        ("CLIENT REPLY SKIP|INCRBY n 1|GET n", b"$1\r\n1\r\n"),
        ("CLIENT REPLY SKIP|CLIENT REPLY SKIP|PING a|PING b", b"$1\r\nb\r\n"),
        ("CLIENT REPLY SKIP|CLIENT REPLY ON|PING a", b"+OK\r\n$1\r\na\r\n"),
        ("CLIENT REPLY OFF|CLIENT REPLY SKIP|PING|PING|CLIENT REPLY ON", b"+OK\r\n"),
        ("CLIENT REPLY OFF|CLIENT REPLY no|CLIENT REPLY|RESET|PING", b"+RESET\r\n+PONG\r\n"),
        ("CLIENT REPLY SKIP|RESET|PING", b"+PONG\r\n"),
        ("CLIENT REPLY OFF|RESET x|CLIENT REPLY ON x|CLIENT REPLY ON", b"+OK\r\n"),
        ("CLIENT REPLY OFF|MULTI|INCRBY n 1|EXEC|CLIENT REPLY ON|GET n", b"+OK\r\n$1\r\n1\r\n"),
        ("CLIENT REPLY OFF|MULTI|CLIENT REPLY ON|EXEC|CLIENT REPLY ON", b"+OK\r\n"),
        ("CLIENT REPLY SKIP|MULTI|INCRBY n 1|EXEC", b"+QUEUED\r\n*1\r\n:1\r\n"),
        ("SELECT 15|CLIENT REPLY OFF|INCRBY n 1|SELECT 0|CLIENT REPLY ON", None),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_replies_that_are_not_wanted_are_not_sent(
    sent: str, received: bytes | None, at_once: bool
) -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            commands = [command.encode() + b"\r\n" for command in sent.split("|")]
            if at_once:
                wire.send(b"".join(commands))
            else:
                for command in commands:
                    wire.send(command)
            if received is None:
                assert str(wire.reply()).startswith(OURS)
                assert wire.reply() == b"OK"
            else:
                assert wire.raw(len(received)) == received
            assert wire.call("ECHO", "end") == b"end"

    serve(body)


def test_client_reply_on_waits_for_earlier_writes() -> None:
    """CLIENT REPLY ON is how a client waits for writes whose replies it did not want."""

    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(b"CLIENT REPLY OFF\r\nINCRBY n 1\r\nCLIENT REPLY ON\r\n")
            while not gate.core.requests:
                assert other.call("PING") == b"PONG"
            wire.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                wire.reply()
            wire.socket.settimeout(20)
            gate.release()
            assert wire.reply() == b"OK"

    serve(body)


def test_protocol_error_is_not_sent_under_client_reply_off() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            wire.send(b"CLIENT REPLY OFF\r\n*1\r\n$x\r\n")
            assert wire.raw(1) == b""

    serve(body)


def test_refused_exec_restores_the_connection_settings() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(b"MULTI\r\nHELLO 3 SETNAME me\r\nINCRBY n 1\r\nEXEC\r\n")
            while not gate.core.requests:
                assert other.call("PING") == b"PONG"

            def refuse() -> None:
                gate.core.requests.pop().answer(ReplyError("EXECABORT planted"))

            gate.in_trio(refuse)
            replies = [wire.reply() for _ in range(4)]
            assert replies == [b"OK", b"QUEUED", b"QUEUED", "EXECABORT planted"]
            gate.release()
            assert wire.call("CLIENT", "GETNAME") is None
            wire.send(b"GET none\r\n")
            assert wire.raw(5) == b"$-1\r\n"

    serve(body)


def test_client_disconnect_inside_multi_applies_nothing() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            for command in ("MULTI", "INCRBY n 1"):
                wire.call(*command.split())
        with gate.connection() as wire:
            while len(gate.front.clients) > 1:
                assert wire.call("PING") == b"PONG"
            assert wire.call("GET", "n") is None

    serve(body)


def test_a_transaction_of_100000_commands_is_refused_whole() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            count = 100_000
            increment = hiredis.pack_command(("INCRBY", "n", "1"))
            ends = [hiredis.pack_command(words) for words in (("MULTI",), ("EXEC",), ("GET", "n"))]
            wire.send(b"".join((ends[0], increment * count, *ends[1:])))
            replies = [wire.reply() for _ in range(count + 3)]
            assert replies[: MAX_CALLS + 1] == [b"OK", *[b"QUEUED"] * MAX_CALLS]
            assert str(replies[MAX_CALLS + 1]).startswith(
                f"ERR crdtcast: the transaction is too large: it may have {MAX_CALLS} commands, and keys "
            )
            assert replies[-2:] == [ABORTED, None]
            assert wire.call("INCRBY", "n", "1") == 1

    serve(body)


def test_a_transaction_of_too_many_bytes_is_refused_whole() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            assert wire.call("MULTI") == b"OK"
            for _ in range(8):
                assert wire.call("SADD", "s", b"x" * ((1 << 20) - 100)) == b"QUEUED"
            reply = wire.call("SADD", "s", b"y" * (65 << 10))
            assert str(reply).startswith("ERR crdtcast: the transaction is too large")
            assert "8454144 bytes" in str(reply)
            assert gate.front.queued == 0, "what is lost is not kept"
            assert wire.call("EXEC") == ABORTED
            assert wire.call("SMEMBERS", "s") == []

    serve(body)


def test_all_transactions_together_are_bounded() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as one, gate.connection() as other:
            for wire in (one, other):
                assert wire.call("MULTI") == b"OK"
            assert one.call("SADD", "s", b"x" * 900) == b"QUEUED"
            assert str(other.call("SADD", "s", b"x" * 900)).startswith(
                "ERR crdtcast: too much waits in the unexecuted transactions"
            )
            assert other.call("EXEC") == ABORTED
            assert one.call("EXEC") == [1]
            assert other.call("MULTI") == b"OK"
            assert other.call("SADD", "s", b"x" * 900) == b"QUEUED"
            assert other.call("DISCARD") == b"OK"

    serve(body, limits=ClientLimits(queued_bytes=1000))


def test_client_list_shows_clients_in_a_transaction() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as one, gate.connection() as other:
            for words in (("MULTI",), ("PING",), ("PING",)):
                one.call(*words)
            lines = str(other.call("CLIENT", "LIST")).split("\\n")
            assert "flags=x" in lines[0] and "multi=2" in lines[0]
            assert "flags=N" in lines[1] and "multi=-1" in lines[1]

    serve(body)
