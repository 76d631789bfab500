"""One client of the gateway: turns its bytes into requests and its answers into bytes, strictly in the order of the
requests.

Unanswered requests are bounded by pausing the reading. A client that breaks the protocol is closed alone, after one
clear error. This file knows no command's meaning.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from crdtcast.adapters.redis.clients.client_state import Queue, Subscribed, Watch
from crdtcast.adapters.redis.clients.connection_phases import ConnectionPhase, Replies
from crdtcast.adapters.redis.commands.table import Command, CommandKind
from crdtcast.adapters.redis.server.parsing import (
    UNAUTHENTICATED,
    Args,
    FastReader,
    RequestLimits,
    RequestParser,
)
from crdtcast.adapters.redis.server.poller import READ, WRITE, Poller
from crdtcast.adapters.redis.server.resp import (
    OK,
    OK_REPLY,
    SMALL_INTEGERS,
    Raw,
    ReplyError,
    encode,
)
from crdtcast.exceptions import LocalProtocolError

_READ_SIZE = 64 * 1024
_READ_LARGE = 1024 * 1024
UNREAD_PAUSE = 1024 * 1024
"""Bytes of a client's unread replies above which no more of its requests are read or executed."""
_LINGER_BYTES = 64 * 1024 * 1024

NO_REPLY = Raw(b"")
_SMALL_INTEGER = SMALL_INTEGERS.get
_UNRESOLVED = Command("", CommandKind.SESSION, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Bounds that stop one client from using the memory of all. Sizes in bytes.

    Reading pauses above `unanswered` requests or `unanswered_bytes` of one client, or `total_bytes` of all clients
    together, until answers have gone out; no client is refused for it. A client that leaves more than `output` bytes of
    replies unread is closed. So is one that leaves more than `output_soft` bytes unread for `output_soft_seconds`
    without a break; 0 bytes: no such limit. All clients together may queue `queued_bytes` in transactions that are not
    executed yet.

    timeout: seconds after which a client without a request is closed; 0 never closes one.
    keepalive: seconds after which the kernel probes a silent client and ends it if it is dead; 0: the system's default.
    local_only: refuse clients of other machines (protected mode).
    """

    clients: int = 10_000
    timeout: float = 0
    keepalive: int = 300
    local_only: bool = False
    request: RequestLimits = field(default_factory=RequestLimits)
    unanswered: int = 4096
    unanswered_bytes: int = 64 * 1024 * 1024
    total_bytes: int = 512 * 1024 * 1024
    output: int = 256 * 1024 * 1024
    output_soft: int = 0
    output_soft_seconds: float = 60
    queued_bytes: int = 256 * 1024 * 1024

    @property
    def unnoticed(self) -> int:
        """Bytes of one client that never reach a limit."""
        return min(self.unanswered, self.unanswered_bytes, self.total_bytes // self.clients)


class Request:
    """One command of one client, to be answered once.

    `args` is what the client sent, the name first and as written; `command` its entry in the table; `protocol` the
    client's protocol when it sent this (a later HELLO may change it).
    """

    __slots__ = ("answered", "args", "begun", "client", "command", "has_begun", "protocol", "value")

    value: object
    begun: bytes

    def __init__(self, client: Client, args: Args, command: Command) -> None:
        self.client: Client = client
        self.args: list[bytes] = args
        self.command: Command = command
        self.protocol: int = client.protocol
        self.answered: bool = False
        self.has_begun: bool = False

    def encoded(self) -> bytes:
        """The encoded reply, or the rest of it."""
        reply = encode(self.value, self.protocol)
        return self.take_begun() + reply if self.has_begun else reply

    def take_begun(self) -> bytes:
        """The part of the reply that was passed on since the last call."""
        begun = b""
        if self.has_begun:
            begun, self.begun = self.begun, begun
        return begun

    def pass_on(self, piece: bytes) -> None:
        """Send an encoded piece of the reply; `answer` gives the rest. Pieces that have not gone out yet go before
        it.
        """
        client = self.client
        if client.closed:
            return
        self.begun = self.begun + piece if self.has_begun else piece
        self.has_begun = True
        if not client.touched:
            client.touched = True
            client.touch(client)

    def answer(self, value: object) -> None:
        """Set the reply: any value that `resp.encode` takes. It goes out with the next `flush`, in its turn.

        Raises LocalProtocolError if the request is answered already. Ignored if the client is gone.
        """
        if self.answered:
            raise LocalProtocolError(f"a request ({self.command.name}) was answered twice")
        self.value = value
        self.answered = True
        client = self.client
        if not client.touched:
            client.touched = True
            client.touch(client)

    def forget(self) -> None:
        """Free the memory of the reply."""
        self.value = NO_REPLY

    @property
    def writes(self) -> bool:
        """Whether it may change data."""
        return self.command.kind is CommandKind.WRITE

    @property
    def publishes(self) -> bool:
        """Whether it may send a message, which cannot be taken back."""
        return self.command.publishes

    @property
    def parts(self) -> Iterable[Request]:
        """The requests that the core must answer for it."""
        return (self,)


class SilentRequest(Request):
    """A request for which the client wants no reply. It keeps its place among the others."""

    __slots__ = ()

    def pass_on(self, piece: bytes) -> None:
        """Drop the piece."""

    def answer(self, value: object) -> None:
        """Mark the request as done."""
        super().answer(NO_REPLY)


class Pushed(Request):
    """A message that a client gets without a request. It keeps its place among the answers."""

    __slots__ = ()


class RequestHandler(Protocol):
    """The session, as a client sees it."""

    def handle(self, request: Request) -> None:
        """Answer a request, refuse it, or submit it to the core."""


class ClientHost(Protocol):
    """The front, as a client sees it: where its requests go, and what all clients share."""

    bytes_in: int
    """Bytes received from all clients since the start."""
    bytes_out: int
    answered: int
    """The part of `bytes_in` whose requests need no answer any more."""
    queued: int
    """Bytes in unexecuted transactions of all clients."""

    @property
    def received(self) -> int:
        """Bytes of possibly unanswered requests of all clients."""

    @property
    def now(self) -> float:
        """Monotonic seconds, updated once a second."""

    @property
    def limits(self) -> ClientLimits: ...
    @property
    def unnoticed(self) -> int:
        """`ClientLimits.unnoticed`."""

    @property
    def log(self) -> logging.Logger: ...
    @property
    def poller(self) -> Poller: ...
    @property
    def fast_reader(self) -> FastReader: ...
    @property
    def find(self) -> Callable[[bytes, Command], Command]:
        """The command of a name, or the default given."""

    @property
    def submit(self) -> Callable[[Request], None]:
        """Takes requests that the session does not answer itself."""

    @property
    def session(self) -> RequestHandler: ...
    @property
    def touch(self) -> Callable[[Client], None]:
        """Note that the client has got an answer."""

    def linger(self, client: Client) -> None:
        """Keep a refused client until it hangs up."""

    def forget(self, client: Client, received: int) -> None:
        """A client closes; `received` bytes of its requests no longer count."""


class Client:
    """One connection. `pending` holds its requests in order, answered or not, until their replies
    have gone out.
    """

    __slots__ = (
        "_closed",
        "_ending",
        "_events",
        "_front",
        "_lingered",
        "_parser",
        "_paused",
        "_pushed",
        "_received",
        "_recv",
        "_send",
        "_socket",
        "address",
        "authenticated",
        "blocked",
        "connected_at",
        "db",
        "direct",
        "heard_at",
        "held",
        "id",
        "info",
        "is_high",
        "last_command",
        "local_address",
        "name",
        "next_db",
        "over_since",
        "pending",
        "phase",
        "protocol",
        "queue",
        "relayed_together",
        "replies",
        "subscribed",
        "touch",
        "touched",
        "unread",
        "watch",
    )

    def __init__(self, front: ClientHost, sock: socket.socket, address: str, number: int) -> None:
        self.id: int = number
        self.name: bytes = b""
        self.info: dict[str, bytes] = {}  # from CLIENT SETINFO
        self.protocol: int = 2
        self.address: str = address
        self.local_address: str = shown_address(sock.getsockname())
        self.connected_at: float = time.monotonic()
        self.heard_at: float = front.now
        self.last_command: Command = _UNRESOLVED
        self.pending: deque[Request] = deque()
        self.relayed_together: int = 16  # reads that may be relayed at once; see `passthrough`
        self.touched: bool = False
        self.touch: Callable[[Client], None] = front.touch
        self._front = front
        self._socket = sock
        self._recv = sock.recv
        self._send = sock.send
        self.over_since: float | None = None  # when its unread replies exceeded the soft limit
        self._parser = RequestParser(front.fast_reader, UNAUTHENTICATED, self._note_high)
        self.unread: bytearray = bytearray()  # encoded replies that the kernel has not taken
        self._events = READ
        self._paused = False
        self._ending = False  # close once everything pending is answered and sent
        self._lingered = -1  # bytes thrown away since the last reply; -1 unless lingering
        self._closed = False
        self._pushed = 0  # bytes pushed after requests that are not answered
        self._received = 0  # bytes since nothing was pending
        self.authenticated: bool = False
        self.db: int = 0  # the selected one
        self.next_db: int = 0  # the one of its next command: differs while a SELECT is queued
        self.held: deque[Request] | None = None  # while the database of the next command is unknown
        self.is_high: bool = (
            False  # whether a key that it used may need another name: see `databases`
        )
        self.phase: ConnectionPhase = ConnectionPhase.OPEN
        self.replies: Replies = Replies.ON
        self.queue: Queue | None = None  # while in MULTI, unless the transaction is lost
        self.subscribed: Subscribed | None = None  # what it has subscribed to, if it ever has
        self.watch: Watch | None = None  # what its next EXEC depends on
        self.blocked: Callable[[], None] | None = None  # called if it closes while a command waits
        self.direct: bool = (
            False  # whether reads and writes go to the core without passing the session
        )

    def trust(self, authenticated: bool) -> None:
        """Set whether the client may use commands, and send requests of the full size."""
        self.authenticated = authenticated
        self.stand(self.phase, self.replies)
        self._parser.limits = self._front.limits.request if authenticated else UNAUTHENTICATED

    def stand(self, phase: ConnectionPhase, replies: Replies) -> None:
        """Set what the client's next command means, and whether it is answered."""
        self.phase, self.replies = phase, replies
        self.direct = (
            self.authenticated
            and phase is ConnectionPhase.OPEN
            and replies is Replies.ON
            and not self.only_listens
            and not (self.db or self.is_high or self.held is not None)
        )

    def select(self, db: int) -> None:
        """Use this database from now on."""
        self.db = self.next_db = db
        self.stand(self.phase, self.replies)

    def hold(self) -> None:
        """Keep all further requests: a transaction under way may select a database, or be refused."""
        self.held = deque()
        self.stand(self.phase, self.replies)

    def block(self, on_close: Callable[[], None]) -> None:
        """A command waits for something outside of this gateway: keep all further requests, and close at the client's
        end of file. on_close: called if the client closes meanwhile.
        """
        self.blocked = on_close
        self.hold()

    def unblock(self) -> Iterator[Request]:
        """The command is answered: see `release`."""
        self.blocked = None
        return self.release()

    def release(self) -> Iterator[Request]:
        """The kept requests to be executed, in order. One of them may hold the later ones again."""
        held, self.held = self.held or deque(), None
        self.stand(self.phase, self.replies)
        was_ending = self._ending  # it may still want the replies
        while held and not self._closed:
            if self._ending and not was_ending:
                for left in held:
                    if left in self.pending:
                        self.pending.remove(left)
                return
            request = held.popleft()
            request.protocol = self.protocol
            yield request
            if self.held is not None:
                # The rest stays where it is: it may be long, and be held many times.
                held.extendleft(reversed(self.held))
                self.held = held
                return

    def _note_high(self) -> None:
        if not self.is_high:
            self.is_high = True
            self.stand(self.phase, self.replies)

    @property
    def subscriptions(self) -> int:
        """The number of names that it has subscribed to."""
        return 0 if self.subscribed is None else sum(map(len, self.subscribed.names.values()))

    @property
    def only_listens(self) -> bool:
        """Whether it has subscribed in RESP2, where a message looks like a reply."""
        return self.subscribed is not None and self.protocol == 2 and self.subscriptions > 0

    def note_queued(self, size: int) -> bool:
        """Count bytes added to the client's transaction or watches; below 0: removed.

        Returns whether the bytes of all clients fit the limit.
        """
        self._front.queued += size
        return self._front.queued <= self._front.limits.queued_bytes

    def take_queue(self) -> Queue | None:
        """Remove and return the queue: the client has left MULTI, or has lost its transaction."""
        self.next_db = self.db
        queue, self.queue = self.queue, None
        if queue is not None:
            self._front.queued -= queue.size
        return queue

    def take_watch(self) -> Watch | None:
        """Remove and return the watch: it ends, or belongs to an EXEC from now on."""
        watch, self.watch = self.watch, None
        return watch

    def replace(self, request: Request, other: Request) -> None:
        """Replace a pending request by another."""
        pending = self.pending
        pending[-1 if pending[-1] is request else pending.index(request)] = other

    def charge(self, size: int) -> None:
        """Count bytes of answered requests that must be kept after all."""
        self._received += size
        self._front.answered -= size

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._closed

    def end(self) -> None:
        """Take no more requests; close once what is pending has been answered and sent."""
        self._ending = True
        self._update()

    @property
    def idle_since(self) -> float:
        """When it last sent something or read a reply, as `Front.now`; infinite while a request is under way."""
        return math.inf if self.pending or self.subscriptions else self.heard_at

    def on_events(self, mask: int) -> None:
        """The poller's callback."""
        if mask != READ or self._lingered >= 0:
            if mask & WRITE and self.unread:
                self._drain()
            if self._closed or not mask & READ:
                return
            if self._lingered >= 0:
                self._discard()
                return
        parser, front = self._parser, self._front
        missing = parser.missing
        try:
            chunk = self._recv(_READ_SIZE if missing <= _READ_SIZE else min(missing, _READ_LARGE))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if not chunk:
            if self.blocked is None and (self.pending or self.unread) and self._events & READ:
                self.end()  # `printf … | nc`: the replies are still wanted
            else:
                self.close()
            return
        if self._ending:
            return
        size = len(chunk)
        self.heard_at = front.now
        self._received += size
        front.bytes_in += size
        if self.authenticated:
            self._take(parser.feed(chunk))
        else:
            self._take_singly(chunk)
        pending = self.pending
        if parser.error is not None and not self._ending:
            self._refuse(parser.error)
        if pending:
            if self._received > front.unnoticed:
                self._pause_if_too_much()
            if pending[0].answered:
                self.flush()

    def on_error(self, _error: Exception) -> None:
        """Close the client: handling it failed (the poller has logged the error)."""
        self.close()

    def _pause_if_too_much(self) -> None:
        limits = self._front.limits
        if (
            len(self.pending) > limits.unanswered
            or self._received > limits.unanswered_bytes
            or self._front.received > limits.total_bytes
        ):
            self._paused = True
            self._update()

    def _take(self, commands: list[Args]) -> None:
        front = self._front
        find, append = front.find, self.pending.append
        for args in commands:
            command = find(args[0], _UNRESOLVED)
            request = Request(self, args, command)
            append(request)
            if len(args) in command.taken and self.direct:
                command.calls += 1
                front.submit(request)
            else:
                front.session.handle(request)
                if self._ending:
                    return
        if commands:
            self.last_command = command

    def _take_singly(self, chunk: bytes) -> None:
        """Take requests one at a time, before authentication: the limits of a request depend on whether the one before
        was an AUTH.
        """
        commands = self._parser.feed(chunk)
        while commands and not self._ending:
            self._take(commands)
            commands = self._parser.resume()

    def _refuse(self, text: str) -> None:
        """Answer with one error, after what is pending, and end."""
        self._front.log.warning("client %s (%s): %s", self.id, self.address, text)
        request = Request(self, [], _UNRESOLVED)
        self.pending.append(request)
        request.answer(ReplyError(text) if self.replies is Replies.ON else NO_REPLY)
        self._lingered = 0
        self.end()

    def push(self, message: Raw) -> None:
        """Send a message that answers no request, after the requests so far."""
        if self._ending:
            return
        if self.pending:
            self._pushed += len(message)
            if self._pushed > self._front.limits.output > 0 and self._exceeds_output():
                return
        pushed = Pushed(self, [], _UNRESOLVED)
        self.pending.append(pushed)
        pushed.answer(message)

    def _exceeds_output(self) -> bool:
        """Close the client if too much pushed data waits for it. Returns whether it did."""
        self._pushed = sum(len(r.encoded()) for r in self.pending if type(r) is Pushed)
        limit = self._front.limits.output
        if len(self.unread) + self._pushed <= limit:
            return False
        self.close_as_slow(f"the limit is {limit}")
        return True

    def flush(self) -> None:
        """Send the replies of the answered requests up to the first that is still open."""
        pending, front = self.pending, self._front
        reply: bytes | None
        if len(pending) == 1 and (only := pending[0]).answered:  # as mostly without a pipeline
            value = only.value
            reply = _SMALL_INTEGER(value) if type(value) is int else None
            data = only.encoded() if reply is None else reply
            pending.clear()
        else:
            parts: list[bytes] = []
            for request in pending:
                if not request.answered:
                    break
                value = request.value
                reply = None
                if type(value) is int:
                    reply = _SMALL_INTEGER(value)
                elif value is OK:
                    reply = OK_REPLY
                parts.append(request.encoded() if reply is None else reply)
            if not parts and not (pending and pending[0].has_begun):
                return
            if len(parts) == len(pending):
                pending.clear()
            else:
                for _ in parts:
                    pending.popleft()
                parts.append(pending[0].take_begun())
            data = b"".join(parts)
        if not pending:
            self._pushed = 0
            front.answered += self._received
            self._received = 0
        size = len(data)
        front.bytes_out += size
        if self.unread:
            self.unread += data
            self._look_at_backlog(size)
        else:
            try:
                sent = self._send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
            if sent < size:
                self.unread += memoryview(data)[sent:]
                self._update()
                self._look_at_backlog(size)
        if (self._paused or self._ending) and not self._closed:
            self._settle()

    def _look_at_backlog(self, added: int) -> None:
        """The backlog has grown by `added` bytes of replies: if it is too large, close the client, or note the time."""
        limits = self._front.limits
        size = len(self.unread)
        if added > limits.output > 0:
            self._front.log.warning(
                "client %s (%s) is closed: replies of %d bytes came for it at once, and the "
                "limit is %d: raise client_output_limit",
                self.id,
                self.address,
                added,
                limits.output,
            )
            self.close()
        elif size > limits.output > 0:
            self.close_as_slow(f"the limit is {limits.output}")
        elif size > limits.output_soft > 0 and self.over_since is None:
            self.over_since = time.monotonic()

    def _drain(self) -> None:
        backlog = self.unread
        try:
            sent = self._send(backlog)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        del backlog[:sent]
        self.heard_at = self._front.now
        if len(backlog) <= self._front.limits.output_soft:
            self.over_since = None
        self._settle()

    def close_as_slow(self, limit: str) -> None:
        """Close the client because it leaves too much unread."""
        self._front.log.warning(
            "client %s (%s) is closed: it reads too slowly, %d bytes of replies are waiting (%s)",
            self.id,
            self.address,
            len(self.unread),
            limit,
        )
        self.close()

    def _settle(self) -> None:
        """After bytes went out: resume reading, or finish."""
        if self._ending and not self.pending and not self.unread:
            self._finish()
            return
        if self._paused:
            limits = self._front.limits
            if not self.pending or (
                len(self.pending) <= limits.unanswered // 2
                and self._received <= limits.unanswered_bytes
                and self._front.received <= limits.total_bytes
            ):
                self._paused = False
        self._update()

    def _finish(self) -> None:
        if self._lingered < 0:
            self.close()
            return
        # Closing a socket with unread bytes discards the error before a client that is still sending has read it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._front.linger(self)
        self._update()

    def _discard(self) -> None:
        if self.pending or self.unread:
            return
        try:
            chunk = self._recv(_READ_LARGE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        self._lingered += len(chunk)
        if not chunk or self._lingered > _LINGER_BYTES:
            self.close()

    def _update(self) -> None:
        """Tell the poller which events are of interest now."""
        if self._closed:
            return
        if self._ending:
            lingering = self._lingered >= 0 and not self.pending and not self.unread
            events = READ if lingering else 0
        else:
            reading = not self._paused and len(self.unread) <= UNREAD_PAUSE
            events = READ if reading else 0
        if self.unread:
            events |= WRITE
        if events != self._events:
            self._events = events
            self._front.poller.modify(self._socket, events)

    def close(self) -> None:
        """Close now. Requests that the core still has stay there; their answers are dropped."""
        if self._closed:
            return
        self._closed = True
        self._ending = True
        self._front.forget(self, self._received)
        with contextlib.suppress(KeyError, ValueError):
            self._front.poller.unregister(self._socket)
        self._socket.close()
        self.unread = bytearray()
        self.held = None
        if (on_close := self.blocked) is not None:
            self.blocked = None
            on_close()
        self.take_queue()
        if (watch := self.take_watch()) is not None:
            watch.end()
        if self.subscribed is not None:
            self.subscribed.end()
        self.pending.clear()


def shown_address(address: object) -> str:
    """A socket address for people."""
    match address:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
