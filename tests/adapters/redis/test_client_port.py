"""The clients' port is as safe as a server's own: other protocols, strangers, idle and dead clients."""

import logging
import socket
import subprocess
import sys
from pathlib import Path

import hiredis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.clients.cross_protocol import is_cross_protocol
from crdtcast.adapters.redis.clients.inline import split_line
from crdtcast.adapters.redis.clients.listener import _PROBES
from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.parsing import FastReader, RequestLimits, RequestParser
from crdtcast.chaos import spaces
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.transport.tcp import is_loopback
from tests.adapters.redis.front_support import RunningFront, Wire, connection, serve

FOREIGN = {
    "the body of a browser's POST": b"POST / HTTP/1.1\r\nContent-Length: 17\r\n\r\n%b",
    "a header whose method the server knows": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n%b",
    "a method that no server knows": b"PUT /x HTTP/1.1\r\n\r\n%b",
    "a header alone": b"Origin: https://example.org\r\n\r\n%b",
    "a header with a space before its colon": b"Accept : x\r\n%b",
    "a header with a tab before its colon": b"X-Foo\t: x\r\n%b",
    "a header with a space before its colon alone": b"X-Foo :x\r\n%b",
    "a header without a value": b"Cookie :\r\n%b",
    "a form's boundary": b"------WebKitFormBoundary7MA4YWxkTrZu0gW\r\n%b",
    "a boundary of words": b"--a b\r\n%b",
    "HTTP/2 without TLS": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n%b",
    "a mail client": b"EHLO me\r\n%b",
    "a mail client in small letters": b"helo me\r\n%b",
    "a telephone": b"OPTIONS sip:a@b SIP/2.0\r\n%b",
    "an array of words": b"*2\r\n$4\r\npost\r\n$1\r\n/\r\n%b",
    "a TLS client": b"\x16\x03\x01\x02\x00\x01\n%b",
}


@pytest.mark.parametrize("request_", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_another_protocols_request_is_not_carried_out(
    request_: bytes, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = request_ % b"INCRBY from-web 1\r\n"

    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            for start in range(0, len(whole), cut):
                try:
                    wire.send(whole[start : start + cut])
                except (BrokenPipeError, ConnectionResetError):
                    break  # closed before the rest was sent
            while wire.reply() is not Wire.CLOSED:
                pass
        assert not gate.core.numbers
        with gate.connection() as wire:
            assert wire.call("INCRBY", "n", 1) == 1

    with caplog.at_level(logging.WARNING, "front"):
        serve(body)
    assert [record for record in caplog.records if record.name == "front"]


def test_commands_after_a_foreign_request_are_not_executed() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            assert wire.call("INCRBY", "n", 5) == 5
            wire.send(b"INCRBY n 1\r\nHost: x\r\nINCRBY n 100\r\n")
            while wire.reply() is not Wire.CLOSED:
                pass
        gate.in_trio(lambda: None)  # the round of that client is over
        assert gate.core.numbers[b"n"] == 6

    serve(body)


def test_no_command_looks_like_another_protocols_request() -> None:
    for name in Table().by_name:
        assert not is_cross_protocol([name, b":key", b"--x"], is_known=True), name
        assert not is_cross_protocol([name, b":", b":"], is_known=True), name


def test_a_colon_inside_of_a_command_is_only_a_colon() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            assert wire.call("SADD", "Host:", "HTTP/1.1") == 1
            assert str(wire.call("nonsense", "a:")).startswith("ERR unknown command")
            assert str(wire.call(":")).startswith("ERR unknown command")
            assert str(wire.call("no.such", ":1:key")).startswith("ERR unknown command")
            assert str(wire.call("no-such", "--x", ":")).startswith("ERR unknown command")
            assert wire.call("SADD", "s", ":") == 1
            assert wire.call("INCRBY", ":", 1) == 1
            assert str(wire.call("INCRBY", ":")).startswith("ERR wrong number")

    serve(body)


_WORDS = st.lists(st.sampled_from([*map(bytes, zip(b"""ab"'\\xn4Z1tr \t\v"""))]), max_size=14).map(
    b"".join
)


@pytest.mark.process
def test_inline_words_are_those_of_a_native_server(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:

        @example(rb'"a b" ' + rb"'c d' " + rb'"\x41\n"')
        @example(rb'a"b c" d')
        @example(rb"'it\'s' " + rb"'\\' x")
        @example(rb'"a"b')
        @example(b'"')
        @given(_WORDS)
        def same(line: bytes) -> None:
            with connection(server.port) as wire:
                wire.send(b"DEL k\r\nRPUSH k %b\r\n" % line)
                assert wire.reply() in (0, 1)
                native = wire.reply()
                try:
                    words = split_line(b"RPUSH k " + line)[2:]
                except RemoteProtocolError as error:
                    assert native == f"ERR Protocol error: {error}"
                    return
                if words:
                    assert wire.call("LRANGE", "k", 0, -1) == words
                else:
                    assert str(native).startswith("ERR wrong number")

        same()


def test_an_array_of_more_than_a_million_words_is_taken() -> None:
    count = 1_048_577
    parser = RequestParser(FastReader(), RequestLimits())
    commands = parser.feed(b"*%d\r\n" % count + b"$1\r\nx\r\n" * count)
    assert parser.error is None
    assert [len(args) for args in commands] == [count]


def test_words_without_bytes_count_against_the_limit() -> None:
    parser = RequestParser(FastReader(), RequestLimits(request=8000))
    assert parser.feed(b"*1000\r\n" + b"$0\r\n\r\n" * 1000) == [[b""] * 1000]
    assert parser.feed(b"*1001\r\n" + b"$0\r\n\r\n" * 1001) == []
    assert parser.error == (
        "ERR Protocol error: invalid multibulk length: 1001 arguments, the limit is 1000"
    )
    parser = RequestParser(FastReader(), RequestLimits(request=8000))
    parser.feed(b"*1000\r\n" + b"$1\r\nx\r\n" * 1000)
    assert parser.error == "ERR Protocol error: request too large: more than 8000 bytes"


def test_idle_clients_are_closed_and_busy_ones_are_not() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as idle, gate.connection() as waiting:
            assert idle.call("PING") == b"PONG"
            gate.core.hold = True
            waiting.send(hiredis.pack_command(("INCRBY", "n", 1)))
            assert idle.reply() is Wire.CLOSED
            gate.release()
            assert waiting.reply() == 1

    serve(body, limits=ClientLimits(timeout=1))


def test_clients_stay_without_a_timeout_however_idle() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            assert wire.call("PING") == b"PONG"

            def long_ago() -> None:
                for client in gate.front.clients.values():
                    client.heard_at -= 1e6

            gate.in_trio(long_ago)
            with gate.connection() as other:
                other.socket.settimeout(3)
                with pytest.raises(TimeoutError):  # two sweeps
                    other.reply()
            assert wire.call("PING") == b"PONG"

    serve(body)


def test_dead_clients_are_probed_by_the_kernel() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            assert wire.call("PING") == b"PONG"
            (client,) = gate.front.clients.values()
            option = client._socket.getsockopt
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if sys.platform == "linux":
                assert option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 300
                assert option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == _PROBES

    serve(body)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("db.example.org", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_only(host: str, local: bool) -> None:
    assert is_loopback(host) is local


_STRANGER = """
import sys
from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.chaos import spaces
from tests.adapters.redis.front_support import Wire, serve
import socket

spaces.enter()

def body(gate):
    def call(host):
        with socket.create_connection((host, gate.port), 20) as sock:
            return Wire(sock).call("PING")
    print(call(spaces.PROXIES))
    print(call("127.0.0.1"))

serve(body, limits=ClientLimits(local_only=sys.argv[1] == "protected"), host="0.0.0.0")
"""


@pytest.mark.process
@pytest.mark.parametrize("mode", ["protected", "open"])
def test_protected_mode_serves_this_machine_only(mode: str, pytestconfig: pytest.Config) -> None:
    if reason := spaces.why_not():
        pytest.skip(f"no network namespaces: {reason}")
    done = subprocess.run(
        [sys.executable, "-c", _STRANGER, mode],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    stranger, local = done.stdout.splitlines()
    assert local == "b'PONG'"
    if mode == "open":
        assert stranger == "b'PONG'"
    else:
        assert stranger.startswith("DENIED crdtcast is in protected mode: it has no password")
        assert "--no-protected-mode" in stranger
