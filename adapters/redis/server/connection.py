"""The connection to the gateway's server: one socket on the gateway's poller, pipelines answered in order.

hiredis parses. This file knows no commands except those of the login. A lost connection fails every waiting pipeline
once, and says why.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import hiredis
import trio

from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.parsing import ReplySplitter
from crdtcast.adapters.redis.server.poller import READ, WRITE, Poller
from crdtcast.adapters.redis.server.resp import Raw
from crdtcast.adapters.redis.server.tls_sockets import secured
from crdtcast.causality.tags import make_tuple
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError, ServerError
from crdtcast.transport.log_throttle import cause_of

Replies = list[Any]
Words = Sequence[bytes | str | int]
_READ_SIZE = 1 << 18
_PATIENCE_SECONDS = 5.0
"""For connecting, and again for logging in."""
_PASSWORD_ERRORS = ("NOAUTH", "WRONGPASS")


class _NotYet:
    """Returned by a reader when a reply is not complete; None and False are replies."""


NOT_YET = _NotYet()


def pack(command: Words) -> bytes:
    """One command as bytes."""
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # a stub for one word
    return packed


class ReplyReader(Protocol):
    """Bytes in, replies out: hiredis, or the splitter that does not decode replies."""

    def feed(self, chunk: bytes, /) -> object: ...

    def gets(self) -> object: ...


class WholeReplies:
    """A `ReplyReader` that returns each reply as its bytes (`Raw`)."""

    def __init__(self) -> None:
        self._splitter = ReplySplitter()
        self.feed: Callable[[bytes], None] = self._splitter.feed

    def gets(self) -> object:
        reply = self._splitter.next()
        return NOT_YET if reply is None else reply


def parsed(reply: Raw) -> Any:
    """One whole reply, decoded by hiredis; an error is a value."""
    reader = hiredis.Reader()
    reader.feed(reply)
    return reader.gets()


class _Pipeline(NamedTuple):
    """Commands that wait for their replies."""

    replies: int
    callback: Callable[[Replies], None]
    reader: ReplyReader | None


def is_error(reply: object) -> bool:
    """Whether a reply, parsed or raw, is an error."""
    return isinstance(reply, Exception) or (isinstance(reply, Raw) and reply.is_error)


class ServerConnection:
    """Pipelines out, replies back, first in first out. Use it from the Trio thread only."""

    def __init__(
        self,
        poller: Poller,
        sock: socket.socket,
        address: ServerAddress,
        reader: ReplyReader | None = None,
    ) -> None:
        self._poller = poller
        self._socket = sock
        self.address = address
        # hiredis returns errors as values.
        self._usual: ReplyReader = reader or hiredis.Reader(notEnoughData=NOT_YET)
        self._reader = self._usual
        self._waiting: deque[_Pipeline] = deque()
        self._held: deque[tuple[bytes, _Pipeline]] = deque()
        self._replies: Replies = []
        self._outgoing: deque[memoryview] = deque()
        self.error: ServerError | None = None
        self.on_lost: Callable[[ServerError], None] | None = None
        self.lost: trio.Event = trio.Event()
        # An error in a callback counts as a loss: otherwise its users would wait forever.
        poller.register(sock, READ, self._on_event, self._on_error)

    @classmethod
    async def open(
        cls,
        poller: Poller,
        address: ServerAddress,
        *,
        protocol: int = 2,
        reader: ReplyReader | None = None,
    ) -> ServerConnection:
        """Connect and log in. Raises ServerError, with the reason, if that fails."""
        try:
            with trio.fail_after(_PATIENCE_SECONDS):
                sock = await _connected(address)
        except ConfigurationError as error:  # the TLS files cannot be read at the moment
            raise ServerError(f"cannot reach the server at {address}: {error}") from error
        except (OSError, trio.TooSlowError) as error:
            why = "no answer" if isinstance(error, trio.TooSlowError) else cause_of(error)
            raise ServerError(f"cannot reach the server at {address}: {why}") from error
        connection = cls(poller, sock, address, reader)
        hello: list[bytes | str] = ["HELLO", str(protocol)]
        if address.password is not None:
            hello += ["AUTH", address.username or "default", address.password]
        try:
            with trio.fail_after(_PATIENCE_SECONDS):
                (answer,) = await connection.call([hello])
        except trio.TooSlowError:
            connection.close()
            raise ServerError(f"the server at {address} does not answer") from None
        except ServerError as error:  # a server rejects a certificate only after the handshake
            if address.tls is None:
                raise
            shown = address.tls.certificate or "none"
            raise ServerError(
                f"{error}: the server may reject the gateway's certificate ({shown}): see the server's log"
            ) from error
        except BaseException:  # cancelled, above all
            connection.close()
            raise
        if is_error(answer):
            connection.close()
            text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
            if text.startswith(_PASSWORD_ERRORS):
                code = text.split(" ", 1)[0]
                text = (
                    f"{code}: set its user and password in --server, as in "
                    "redis://user:password@host:port"
                )
            raise ServerError(f"the server at {address} refuses the gateway: {text}")
        return connection

    async def call(self, commands: Sequence[Words]) -> Replies:
        """Send a pipeline and return its replies, errors as values. Raises ServerError if the connection is lost."""
        done = trio.Event()
        result: Replies = []

        def take(replies: Replies) -> None:
            result.extend(replies)
            done.set()

        self.send(
            b"".join(map(pack, commands)),
            len(commands),
            take,
        )
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await self.lost.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await done.wait()
            nursery.cancel_scope.cancel()
        if not done.is_set():
            raise self.error or ServerError(f"the connection to {self.address} was closed")
        return result

    def send(
        self,
        payload: bytes,
        replies: int,
        callback: Callable[[Replies], None],
        *,
        reader: ReplyReader | None = None,
    ) -> None:
        """Send a packed pipeline; `callback` gets its replies. It is not called if the connection is lost first.

        reader: parses these replies, instead of the connection's reader. A reader keeps what it has begun to read. So
            such a pipeline is sent when no other one is waiting, and pipelines after it wait until it ends.
        """
        if self.error is not None:
            return
        pipeline: _Pipeline = make_tuple(_Pipeline, (replies, callback, reader))
        if self._held or (self._waiting and self._must_wait(pipeline)):
            self._held.append((payload, pipeline))
        else:
            self._send(payload, pipeline)

    def _must_wait(self, pipeline: _Pipeline) -> bool:
        """Whether the pipelines under way have another reader."""
        return not (pipeline.reader is None and self._reader is self._usual)

    def _send(self, payload: bytes, pipeline: _Pipeline) -> None:
        if pipeline.reader is not None:
            self._reader = pipeline.reader
        self._waiting.append(pipeline)
        if self._outgoing:
            self._outgoing.append(memoryview(payload))
            return
        try:
            sent = self._socket.send(payload)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lose(f"cannot send: {error}")
            return
        if sent < len(payload):
            self._outgoing.append(memoryview(payload)[sent:])
            self._poller.modify(self._socket, READ | WRITE)

    def close(self) -> None:
        """Close without a report."""
        if self.error is None:
            self.on_lost = None
            self._lose("closed")

    def abort(self, reason: str) -> None:
        """Drop the connection as lost: its replies cannot be trusted."""
        self._lose(reason)

    def _on_error(self, error: Exception) -> None:
        self._lose(f"internal error: {type(error).__name__}: {error}")

    def _on_event(self, mask: int) -> None:
        if mask != READ:
            if mask & WRITE and self._outgoing:  # an error of the connection sets both bits
                self._drain()
            if not mask & READ:
                return
        self._receive()

    def _drain(self) -> None:
        try:
            sent = self._socket.send(self._outgoing[0])
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"cannot send: {error}")
            return
        first = self._outgoing.popleft()
        if sent < len(first):
            self._outgoing.appendleft(first[sent:])
        if not self._outgoing:
            self._poller.modify(self._socket, READ)

    def _receive(self) -> None:
        try:
            chunk = self._socket.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(str(error))
            return
        if not chunk:
            self._lose("the server closed it")
            return
        try:
            self._reader.feed(chunk)
            waiting = self._waiting
            while waiting and self.error is None:
                count, callback, _ = waiting[0]
                replies = self._replies
                replies += islice(iter(self._reader.gets, NOT_YET), count - len(replies))
                if len(replies) < count:
                    return
                self._replies = []
                del waiting[0]
                if not waiting and (self._held or self._reader is not self._usual):
                    self._at_boundary()
                callback(replies)
        except (hiredis.ProtocolError, RemoteProtocolError) as error:
            self._lose(f"invalid RESP from the server: {error}")

    def _at_boundary(self) -> None:
        """No reply is under way: change the reader if the next pipeline has another one."""
        self._reader = self._usual
        while self._held and self.error is None:
            payload, pipeline = self._held[0]
            if self._waiting and self._must_wait(pipeline):
                return
            self._held.popleft()
            self._send(payload, pipeline)

    def _lose(self, reason: str) -> None:
        if self.error is not None:
            return
        self.error = ServerError(
            f"the connection to the server at {self.address} is lost: {reason}"
        )
        with contextlib.suppress(KeyError, ValueError):
            self._poller.unregister(self._socket)
        self._socket.close()
        self._waiting.clear()
        self._held.clear()
        self.lost.set()
        if self.on_lost is not None:
            self.on_lost(self.error)


async def _connected(address: ServerAddress) -> socket.socket:
    """A non-blocking socket. Raises OSError."""
    if address.path is not None:
        stream = await trio.open_unix_socket(address.path)
    else:
        stream = await trio.open_tcp_stream(address.host, address.port)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The poller owns the descriptor from here on; Trio's stream object must not close it.
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    if address.tls is None:
        return sock
    return await secured(sock, address.tls.client_context(), address.host)
