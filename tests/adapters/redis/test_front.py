"""The front on real sockets: order, batches, limits, and clients that behave badly."""

import contextlib
import logging
import random
import re
import socket
import threading

import hiredis
import pytest
import redis

from crdtcast.adapters.redis.clients.client import ClientLimits
from crdtcast.adapters.redis.server import poller
from crdtcast.adapters.redis.server.parsing import RequestLimits
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.exceptions import LocalProtocolError
from tests.adapters.redis.front_support import RunningFront, Wire, serve
from tests.effort import examples, first_seed


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_pipelines_ten_thousand_commands(protocol: int) -> None:
    def body(gate: RunningFront) -> None:
        with redis.Redis(port=gate.port, protocol=protocol) as client:
            assert client.ping()
            pipeline = client.pipeline(transaction=False)
            for number in range(10_000):
                pipeline.sadd("s", f"m{number}")
            assert pipeline.execute() == [1] * 10_000
            assert client.smembers("s") == {b"m%d" % number for number in range(10_000)}
            assert [client.incrby("n", 2) for _ in range(3)] == [2, 4, 6]
            with pytest.raises(redis.ResponseError, match="WRONGTYPE Operation"):
                client.sadd("n", "x")

    serve(body)


def test_systems_without_epoll_are_served_through_selectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller, "_Epoll", poller._Portable)

    def body(gate: RunningFront) -> None:
        gate.core.sets[b"s"] = {b"%0100d" % number for number in range(20_000)}
        gate.core.hold = True
        with gate.connection() as wire:
            wire.send(hiredis.pack_command(("SMEMBERS", "s")) * 20)
            with gate.connection() as other:
                assert other.call("PING") == b"PONG"
            gate.release()
            assert [len(wire.reply()) for _ in range(20)] == [20_000] * 20  # type: ignore[arg-type]

    serve(body, limits=ClientLimits(unanswered=10, output=10**9))


def test_replies_keep_the_order_of_their_requests() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.reverse = True
        with gate.connection() as wire:
            wire.send(b"".join(hiredis.pack_command(("INCRBY", f"n{n}", n)) for n in range(50)))
            wire.send(b"PING\r\n")
            wire.send(hiredis.pack_command(("SADD", "s", "a")))
            assert [wire.reply() for _ in range(52)] == [*range(50), b"PONG", 1]

    serve(body)


def test_reply_waits_for_the_earlier_one_and_counts_once() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(hiredis.pack_command(("SADD", "s", "a")))
            wire.send(b"PING\r\n")
            assert other.call("PING") == b"PONG"  # so both requests have been read
            gate.in_trio(lambda: None)
            wire.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                wire.reply()
            wire.socket.settimeout(20)
            (request,) = gate.core.requests
            gate.release()
            assert [wire.reply(), wire.reply()] == [1, b"PONG"]
            with pytest.raises(LocalProtocolError, match="answered twice"):
                request.answer(2)

    serve(body)


def test_single_bytes_and_odd_cuts() -> None:
    commands = [("SADD", "s", b"a\r\nb"), ("INCRBY", "n", 5), ("PING", "x" * 3000), ("GET", "n")]
    whole = b"".join(hiredis.pack_command(command) for command in commands)

    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for position in range(len(whole)):
                wire.send(whole[position : position + 1])
            assert [wire.reply() for _ in commands] == [1, 5, b"x" * 3000, b"5"]

    serve(body)


def test_hello_in_a_pipeline_changes_only_later_replies() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            gate.core.hold = True
            for command in (("SMEMBERS", "s"), ("HELLO", "3"), ("SMEMBERS", "s")):
                wire.send(hiredis.pack_command(command))
            with gate.connection() as other:
                other.call("PING")
            gate.release()
            assert wire.raw(4) == b"*0\r\n"
            greeting = wire.reply()
            assert isinstance(greeting, dict)
            assert greeting[b"proto"] == 3
        with gate.connection() as wire:
            wire.send(hiredis.pack_command(("HELLO", "3")))
            wire.reply()
            wire.send(hiredis.pack_command(("SMEMBERS", "s")))
            assert wire.raw(4) == b"~0\r\n"

    serve(body)


@pytest.mark.parametrize(
    ("received", "error"),
    [
        (b"*3\r\n$4\r\nSADD\r\n$1073741824\r\n", "invalid bulk length: 1073741824 bytes"),
        (b"*1073741824\r\n", "invalid multibulk length: 1073741824 arguments"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"\x16\x03\x01\x05\xa8\x01\n", "expected '\\*' or an inline command"),
    ],
)
def test_bad_request_gets_one_error_after_replies_then_a_close(
    received: bytes, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(hiredis.pack_command(("INCRBY", "n", 1)) + received)
            other.call("PING")
            # It goes on sending, as a client with a gigabyte would; nothing of it is kept.
            wire.send(b"x" * 1_000_000)
            gate.release()
            assert wire.reply() == 1
            text = wire.reply()
            assert isinstance(text, str)
            assert text.startswith("ERR Protocol error: ")
            assert error.replace("\\", "") in text
            assert wire.reply() is Wire.CLOSED

    with caplog.at_level(logging.WARNING):
        serve(body)
    assert len([r for r in caplog.records if "Protocol error" in r.getMessage()]) == 1


def test_reading_pauses_while_too_much_is_unanswered_and_goes_on() -> None:
    requests = 50_000
    payload = hiredis.pack_command(("INCRBY", "n", 1)) * requests

    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            sender = threading.Thread(target=wire.send, args=(payload,))
            sender.start()
            for _ in range(200):  # rounds in which more could be read
                assert other.call("PING") == b"PONG"
            # One chunk may come on top, since a chunk is always taken whole.
            assert len(gate.core.requests) <= 1000 + 65536 // 29
            gate.release()
            for number in range(1, requests + 1):
                assert wire.reply() == number
            sender.join()
            assert gate.core.most_waiting <= 1000 + 65536 // 29

    serve(body, limits=ClientLimits(unanswered=1000))


def test_a_byte_limit_pauses_too_but_never_a_request_in_progress() -> None:
    value = b"v" * 300_000

    def body(gate: RunningFront) -> None:
        with gate.connection() as wire:
            sender = threading.Thread(
                target=wire.send, args=(hiredis.pack_command(("SADD", "s", value)) * 20,)
            )
            sender.start()
            assert [wire.reply() for _ in range(20)] == [1] + [0] * 19
            sender.join()
            assert gate.core.most_waiting <= 2

    serve(body, limits=ClientLimits(unanswered_bytes=100_000, total_bytes=200_000))


def test_client_that_stays_above_the_soft_limit_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    def body(gate: RunningFront) -> None:
        gate.core.sets[b"s"] = {b"%0100d" % number for number in range(20_000)}
        request, size = hiredis.pack_command(("SMEMBERS", "s")), 20_000 * 108 + 8
        with gate.connection() as slow, gate.connection() as quick:
            for wire in (slow, quick):
                wire.send(request * 10 + hiredis.pack_command(("GET", "none")))
            first = slow.raw(1)
            assert len(quick.raw(10 * size + 5)) == 10 * size + 5  # it was above, and is no more

            def an_hour_later() -> None:
                for client in gate.front.clients.values():
                    if client.over_since is not None:
                        client.over_since -= 3601
                gate.front.close_slow()

            gate.in_trio(an_hour_later)
            assert quick.call("PING") == b"PONG"
            assert len(first + slow.raw(10 * size + 4)) < 10 * size

    with caplog.at_level(logging.WARNING):
        limits = ClientLimits(output=0, output_soft=100_000, output_soft_seconds=3600)
        serve(body, limits=limits)
    assert caplog.text.count("reads too slowly") == 1


def test_a_client_that_does_not_read_is_closed_with_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def body(gate: RunningFront) -> None:
        gate.core.sets[b"s"] = {b"%0100d" % number for number in range(20_000)}
        with gate.connection() as wire:
            wire.send(hiredis.pack_command(("SMEMBERS", "s")) * 20)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while chunk := wire.socket.recv(1 << 20) if received else b"x":
                    received += len(chunk)
                    with gate.connection() as other:
                        assert other.call("PING") == b"PONG"
            assert received < 20 * 2_000_000

    with caplog.at_level(logging.WARNING):
        serve(body, limits=ClientLimits(output=1_000_000))
    assert re.search(
        r"replies of \d+ bytes came for it at once, and the limit is 1000000", caplog.text
    )
    assert "too slowly" not in caplog.text, "it is not the client's fault"


def test_large_replies_reach_a_client_that_reads_late() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.sets[b"s"] = {b"%0100d" % number for number in range(50_000)}
        with gate.connection() as wire:
            wire.send(hiredis.pack_command(("SMEMBERS", "s")) * 4)
            with gate.connection() as other:
                assert other.call("PING") == b"PONG"
            for _ in range(4):
                members = wire.reply()
                assert isinstance(members, list)
                assert len(members) == 50_000

    serve(body)


def test_client_beyond_the_limit_gets_an_error() -> None:
    def body(gate: RunningFront) -> None:
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(gate.connection()) for _ in range(3)]
            assert all(wire.call("PING") == b"PONG" for wire in wires)
            extra = stack.enter_context(gate.connection())
            assert extra.reply() == "ERR max number of clients reached"
            assert extra.reply() is Wire.CLOSED

    serve(body, limits=ClientLimits(clients=3))


def test_half_closed_clients_get_their_replies() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(hiredis.pack_command(("INCRBY", "n", 1)) * 3)
            wire.socket.shutdown(socket.SHUT_WR)
            other.call("PING")
            other.call("PING")
            gate.release()
            assert [wire.reply() for _ in range(4)] == [1, 2, 3, Wire.CLOSED]

    serve(body)


def test_a_fault_in_one_request_ends_one_client() -> None:
    def body(gate: RunningFront) -> None:
        with gate.connection() as wire, gate.connection() as other:
            assert wire.call("SADD", "s", "a") == 1
            assert other.call("SADD", "s", "explode") is Wire.CLOSED
            assert wire.call("SADD", "s", "b") == 1

    serve(body)


def test_an_answer_that_cannot_be_encoded_ends_one_client() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire, gate.connection() as other:
            wire.send(hiredis.pack_command(("GET", "k")))
            assert other.call("PING") == b"PONG"
            gate.in_trio(lambda: gate.core.requests.pop().answer(object()))
            assert wire.reply() is Wire.CLOSED
            assert other.call("PING") == b"PONG"

    serve(body)


def test_answers_to_clients_that_left_are_dropped() -> None:
    def body(gate: RunningFront) -> None:
        gate.core.hold = True
        with gate.connection() as wire:
            wire.send(hiredis.pack_command(("INCRBY", "n", 1)) * 10)
            with gate.connection() as other:
                other.call("PING")
        gate.in_trio(lambda: [r.answer(ReplyError("ERR late")) for r in gate.core.requests])
        gate.core.requests.clear()

    serve(body)


def test_random_input_never_ends_the_loop() -> None:
    rng = random.Random(first_seed())
    words = [b"PING", b"SADD", b"HELLO", b"CLIENT", b"COMMAND", b"CONFIG", b"AUTH", b"CRDTCAST"]
    words += [b"SELECT", b"INFO", b"3", b"GET", b"LIST", b"ID", b"-1", b"\xff\x00", b"*", b""]

    def body(gate: RunningFront) -> None:
        for _ in range(examples(150)):
            with gate.connection() as wire, contextlib.suppress(OSError):
                for _ in range(rng.randrange(1, 6)):
                    if rng.random() < 0.6:
                        args = tuple(rng.choices(words, k=rng.randrange(1, 6)))
                        received = bytearray(hiredis.pack_command(args))
                        if rng.random() < 0.3:
                            received[rng.randrange(len(received))] = rng.randrange(256)
                    else:
                        received = bytearray(rng.randbytes(rng.randrange(1, 200)))
                    wire.send(received)
        with gate.connection() as wire:
            assert wire.call("SADD", "after", "fuzz") == 1

    serve(body, limits=ClientLimits(request=RequestLimits(bulk=10_000)))
