"""The connection to the server: pipelines of parsed and of unparsed replies on one stream."""

import socket
import struct
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from crdtcast.adapters.redis.server.connection import (
    Replies,
    ServerAddress,
    ServerConnection,
    WholeReplies,
    pack,
    parsed,
)
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.parsing import ReplySplitter
from crdtcast.adapters.redis.server.poller import READ, Poller
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.adapters.redis.server.resp import Raw
from crdtcast.exceptions import ServerError

pytestmark = pytest.mark.process


@pytest.mark.parametrize("seed", range(10))
def test_pipelines_of_both_kinds_are_answered_in_order(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rng = Random(seed)
    answers: list[tuple[int, Replies]] = []
    count = 60

    async def main(port: int) -> None:
        poller = Poller()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, lambda: None)
            done = trio.Event()
            connection = await ServerConnection.open(poller, ServerAddress("127.0.0.1", port))

            def send(number: int) -> None:
                size = rng.choice([1, 10, 100_000, 1_000_000])
                text = b"%d:" % number + b"x" * size

                def take(replies: Replies) -> None:
                    answers.append((number, replies))
                    if number % 3 == 0:
                        send(1000 + number)  # as a commit that follows the one that is answered
                    if len(answers) == count + count // 3:
                        done.set()

                payload = pack((b"ECHO", text)) + pack((b"SMEMBERS", b"none"))
                reader = WholeReplies() if whole[number % 1000] else None
                connection.send(payload, 2, take, reader=reader)

            for number in range(count):
                send(number)
                if rng.random() < 0.3:
                    await trio.lowlevel.checkpoint()
            with trio.fail_after(30):
                await done.wait()
            (last,) = await connection.call([("PING",)])
            assert last == b"PONG"
            connection.close()
            nursery.cancel_scope.cancel()
        poller.close()

    whole = [rng.random() < 0.4 for _ in range(count)]
    with start_server(tmp_path, appendfsync="no") as server:
        trio.run(main, server.port)
    assert [number for number, _ in answers if number < 1000] == list(range(count))
    for number, (text, members) in answers:
        if whole[number % 1000]:
            assert isinstance(text, Raw) and members == b"*0\r\n"
            text = parsed(text)
        else:
            assert members == []
        assert text.startswith(b"%d:x" % number)


@pytest.mark.parametrize("password", [None, "wrong"])
def test_missing_or_wrong_password_names_the_option(tmp_path: Path, password: str | None) -> None:
    async def main(port: int) -> None:
        poller = Poller()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, lambda: None)
            address = ServerAddress("127.0.0.1", port, password=password)
            with pytest.raises(ServerError, match="set its user and password in --server, as"):
                await ServerConnection.open(poller, address)
            nursery.cancel_scope.cancel()
        poller.close()

    server = start_server(tmp_path)
    try:
        with RawClient(server.port) as client:
            client.call("CONFIG", "SET", "requirepass", "secret")
        trio.run(main, server.port)
    finally:
        server.kill()


@pytest.mark.parametrize("seed", range(20))
def test_replies_are_cut_alike_in_any_pieces(seed: int) -> None:
    rng = Random(seed)
    longest = rng.choice([3, 30, 79, 100])
    rare = [b"$0\r\n\r\n", b"$-1\r\n", b":5\r\n", b"*0\r\n", b"*1\r\n$1\r\na\r\n"]
    odd = rng.choice([0, 0.001, 0.1])

    def element() -> bytes:
        if rng.random() < odd:
            return rng.choice(rare)
        text = bytes(rng.choices(b"\r\n$1a", k=rng.randint(1, longest)))
        return b"$%d\r\n%b\r\n" % (len(text), text)

    whole = [
        b"*%d\r\n%b" % (count, b"".join(element() for _ in range(count)))
        for count in (*rng.choices([0, 1, 256, 257, 258, 512, 1500], k=5), 2000)
    ]
    data = b"".join(whole)
    splitter = ReplySplitter()
    found: list[Raw] = []
    while data:
        size = rng.choice([1, 100, 10_000, 100_000])
        splitter.feed(data[:size])
        data = data[size:]
        found += iter(splitter.next, None)
    assert found == whole


def test_splitter_returns_array_elements_unparsed() -> None:
    splitter = ReplySplitter()
    splitter.feed(b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n%1\r\n+k\r\n,1.5\r\n*0\r\n*-1\r\n+a\r\n*")
    assert splitter.enter() == 3
    assert [splitter.next() for _ in range(3)] == [
        b":1\r\n",
        b"*2\r\n$1\r\na\r\n_\r\n",
        b"%1\r\n+k\r\n,1.5\r\n",
    ]
    assert splitter.enter() == 0
    assert (splitter.enter(), splitter.next()) == (-1, b"*-1\r\n")
    assert (splitter.enter(), splitter.next()) == (-1, b"+a\r\n")
    assert splitter.enter() is None


def test_reset_of_an_idle_connection_reports_the_reason() -> None:
    """Its socket is readable and writable then, and there is nothing to write."""

    async def main() -> None:
        poller = Poller()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            ours.setblocking(False)
            theirs, _ = listener.accept()
        connection = ServerConnection(poller, ours, ServerAddress("127.0.0.1", 6379))
        lost: list[ServerError] = []
        connection.on_lost = lost.append
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run, lambda: None)
                await connection.lost.wait()
                nursery.cancel_scope.cancel()
        assert "reset" in str(lost[0])

    trio.run(main)


def test_sockets_that_stay_ready_leave_others_their_turn() -> None:
    """The clock moves only when a socket is served, so the other task has its turn after a bounded number of them."""
    served, clock = 0, MockClock()

    async def main() -> None:
        poller = Poller()
        ours, theirs = pair
        ours.setblocking(False)
        theirs.send(b"x")

        def serve(mask: int) -> None:
            nonlocal served
            served += 1
            clock.jump(0.0005)
            theirs.send(ours.recv(1))

        poller.register(ours, READ, serve)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, lambda: True)
            while served < 100:
                before = served
                await trio.lowlevel.checkpoint()
                assert served - before <= 10
            nursery.cancel_scope.cancel()
        poller.close()

    pair = socket.socketpair()
    with pair[0], pair[1]:
        trio.run(main, clock=clock)


def test_only_near_answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    near = iter((True, False))

    async def main() -> None:
        poller = Poller()
        poll = poller._backend.poll

        def noted(seconds: float) -> list[tuple[int, int]]:
            waits.append(seconds)
            return poll(0)

        monkeypatch.setattr(poller._backend, "poll", noted)
        ours, theirs = pair
        ours.setblocking(False)
        poller.register(ours, READ, lambda mask: print(ours.recv(1)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, lambda: next(near))
            for count in (2, 4):
                theirs.send(b"x")
                while len(waits) < count:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        poller.close()

    pair = socket.socketpair()
    with pair[0], pair[1]:
        trio.run(main)
    assert waits[0] == waits[2] == waits[3] == 0 < waits[1] < 0.01
