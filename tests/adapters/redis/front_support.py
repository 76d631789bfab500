"""A front with a small core behind it, on real sockets: what the tests of front and session talk to."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import hiredis
import trio

from crdtcast.adapters.redis.clients.client import Client, ClientLimits, Request
from crdtcast.adapters.redis.clients.listener import Front
from crdtcast.adapters.redis.clients.session import Session
from crdtcast.adapters.redis.clients.subscriptions import Subscriptions
from crdtcast.adapters.redis.clients.transaction import ABORTED, Transaction
from crdtcast.adapters.redis.commands.table import CommandKind, Table
from crdtcast.adapters.redis.server.poller import Poller
from crdtcast.adapters.redis.server.resp import OK, ReplyError, StatusReply


class AloneWaits:
    """For a region that is alone."""

    def wait(self, request: Request) -> None:
        request.answer(0)

    def unblock(self, client: Client, *, with_error: bool) -> bool:
        return False


@dataclass
class MemoryCore:
    """Answers sets and counters from memory after each round of the poller, as the committer would.

    `hold` keeps requests unanswered; `reverse` answers those of a round in the wrong order.
    """

    hold: bool = False
    reverse: bool = False
    requests: list[Request] = field(default_factory=list)
    sets: dict[bytes, set[bytes]] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)
    most_waiting: int = 0

    def submit(self, request: Request) -> None:
        if request.args[-1] == b"explode":
            raise RuntimeError("planted fault")
        self.requests.append(request)

    def after_events(self) -> None:
        self.most_waiting = max(self.most_waiting, len(self.requests))
        while self.requests and not self.hold:
            self.answer_all()

    def answer_all(self) -> None:
        """What is there by now; that may bring more."""
        for request in self.requests:
            if isinstance(request, Transaction):
                if request.watch is not None and request.watch.marked:
                    request.answer(ABORTED)
                else:
                    request.go()
        parts = [
            part for request in self.requests if not request.answered for part in request.parts
        ]
        results = [(part, self.result(part)) for part in parts]
        self.requests.clear()
        for request, result in reversed(results) if self.reverse else results:
            request.answer(result)

    def result(self, request: Request) -> object:
        args = request.args
        match request.command.name:
            case "SADD":
                if args[1] in self.numbers:
                    return ReplyError("WRONGTYPE Operation against a key")
                members = self.sets.setdefault(args[1], set())
                before = len(members)
                members.update(args[2:])
                return len(members) - before
            case "SMEMBERS":
                return set(self.sets.get(args[1], ()))
            case "INCRBY":
                number = self.numbers.get(args[1], 0) + int(args[2])
                self.numbers[args[1]] = number
                return number
            case "GET":
                number = self.numbers.get(args[1])
                return None if number is None else b"%d" % number
            case "WATCH":
                return OK
            case "TYPE":
                return StatusReply(b"set")
            case "CONFIG GET":
                return dict.fromkeys(args[2:], b"")
        assert request.command.kind in (CommandKind.READ, CommandKind.WRITE)
        return 0


@dataclass
class RunningFront:
    """What a test body gets, in a thread of its own."""

    core: MemoryCore
    front: Front
    table: Table
    port: int
    token: trio.lowlevel.TrioToken

    def in_trio(self, function: Callable[[], None]) -> None:
        """Run something where the front lives, followed by a flush."""

        def and_flush() -> None:
            function()
            self.front.flush()

        trio.from_thread.run_sync(and_flush, trio_token=self.token)

    def release(self) -> None:
        """Answer everything that was held back, and hold nothing any longer."""

        def release() -> None:
            self.core.hold = False
            self.core.after_events()

        self.in_trio(release)

    @contextmanager
    def connection(self) -> Iterator["Wire"]:
        """A plain socket with a reader."""
        with connection(self.port) as wire:
            yield wire


class Wire:
    """Raw bytes out, replies in; `CLOSED` when the other side has hung up."""

    CLOSED = object()

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.send = sock.sendall
        self._nothing = object()
        self._reader = hiredis.Reader(notEnoughData=self._nothing)

    def call(self, *args: bytes | str | int) -> object:
        self.socket.sendall(hiredis.pack_command(args))
        return self.reply()

    def reply(self) -> object:
        while (reply := self._reader.gets()) is self._nothing:
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                return self.CLOSED
            if not chunk:
                return self.CLOSED
            self._reader.feed(chunk)
        return str(reply) if isinstance(reply, hiredis.ReplyError) else reply

    def raw(self, count: int) -> bytes:
        """Exactly this many bytes, or fewer if the other side hangs up."""
        received = b""
        while len(received) < count:
            chunk = self.socket.recv(count - len(received))
            if not chunk:
                break
            received += chunk
        return received


@contextmanager
def connection(port: int) -> Iterator[Wire]:
    """A plain socket to 127.0.0.1 with a reader."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        yield Wire(sock)


def serve(
    body: Callable[[RunningFront], None],
    *,
    limits: ClientLimits | None = None,
    password: str | None = None,
    host: str = "127.0.0.1",
) -> None:
    """Run `body`, in a thread, against a front on a free port; the front must survive it."""

    async def main() -> None:
        core, table, poller = MemoryCore(), Table(), Poller()
        session = Session(
            table,
            subscriptions=Subscriptions(poller, lambda: None, logging.getLogger(__name__)),
            status=lambda: {"name": "a", "quiet": True, "links": {"b": {"state": "up"}}},
            admin=lambda request: request.answer(b"admin " + request.args[1].lower()),
            waits=AloneWaits(),
            password=password,
        )
        front = Front(
            poller, table, session, core.submit, limits=limits, logger=logging.getLogger("front")
        )

        def after_events() -> None:
            core.after_events()
            front.flush()

        await front.bind(host, 0)
        _, port = front.listen()
        gate = RunningFront(core, front, table, port, trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run, after_events)
            nursery.start_soon(front.close_idle)
            with trio.fail_after(60):
                await trio.to_thread.run_sync(body, gate)
                await trio.to_thread.run_sync(_still_serves, gate)
            nursery.cancel_scope.cancel()
        front.close_all()
        poller.close()
        assert not front.clients
        assert front.received == 0, "bytes of requests are counted that nobody waits for"
        assert front.queued == 0, "bytes of transactions are counted that no client is in"

    trio.run(main)


def _still_serves(gate: RunningFront) -> None:
    with gate.connection() as wire:
        assert wire.call("QUIT") in (b"OK", "ERR max number of clients reached")
