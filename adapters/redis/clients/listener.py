"""The gateway's listener: accepts clients, and sends the answers of the session and the core.

The session answers requests about the connection, `submit` takes the rest. The bounds in `ClientLimits` stop one client
from using the memory of all.
"""

import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from crdtcast.adapters.redis.clients.client import Client, ClientLimits, Request, shown_address
from crdtcast.adapters.redis.clients.tls import TlsDoor
from crdtcast.adapters.redis.commands.table import Command, Table
from crdtcast.adapters.redis.server.parsing import FastReader
from crdtcast.adapters.redis.server.poller import READ, Poller
from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.transport.log_throttle import Throttle
from crdtcast.transport.tcp import is_loopback

_LINGER_CLIENTS = 64
_ACCEPTS = 128  # per round, so that a storm of connections does not starve the existing ones
_KEEPALIVE_OF_MACOS = 0x10
_SECOND = 1.0
_PROBES = 3  # unanswered probes until a client is dead, as in a native server
_AT_LIMIT = "refused a client: the limit is %d connections"
_FROM_ELSEWHERE = (
    "refused a client at %s: protected mode serves this machine only: set a password to admit "
    "other machines"
)
_TOO_MANY = b"-ERR max number of clients reached\r\n"
_PROTECTED = (
    b"-DENIED crdtcast is in protected mode: it has no password, so it serves only clients on "
    b"this machine. Either 1) set a password (--password, CRDTCAST_PASSWORD), 2) connect through "
    b"127.0.0.1, or 3) start the gateway with --no-protected-mode, if a firewall protects this "
    b"port\r\n"
)


class SessionLayer(Protocol):
    """The session, as the front sees it."""

    def attach(self, front: "Front", submit: Callable[[Request], None]) -> None:
        """Connect the session with the front. To be called once, before the first client."""

    def handle(self, request: Request) -> None:
        """Answer a request, refuse it, or submit it to the core."""

    def welcome(self, client: Client) -> None:
        """Set the initial state of a new client."""


class Front:
    """The listening socket and its clients. Use it from the Trio thread only.

    `submit` gets every request that the session does not answer itself, in the order of each client. Call `flush` after
    each round of the poller, and after answering requests outside of a round: it sends what is ready.
    """

    def __init__(
        self,
        poller: Poller,
        table: Table,
        session: SessionLayer,
        submit: Callable[[Request], None],
        *,
        limits: ClientLimits | None = None,
        tls: TlsFiles | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.poller = poller
        self.session = session
        self.submit = submit
        self.limits: ClientLimits = limits or ClientLimits()
        self.log: logging.Logger = logger or logging.getLogger(__name__)
        self._throttle = Throttle(self.log)
        self.find: Callable[[bytes, Command], Command] = table.by_name.get
        self.fast_reader: FastReader = FastReader()
        self.unnoticed: int = self.limits.unnoticed
        self.answered: int = 0  # the part of `bytes_in` whose requests need no answer any more
        self.queued = 0  # bytes in unexecuted transactions of all clients
        self.refused: int = 0  # connections beyond the limit
        self.accepted: int = 0
        self.bytes_in = self.bytes_out = 0  # bytes of all clients since the start
        self.port: int = 0
        self.now: float = time.monotonic()  # updated once a second, by `close_idle`
        self.clients: dict[int, Client] = {}
        self.touched: list[Client] = []
        """The clients that have got an answer since the last `flush`."""
        self.touch: Callable[[Client], None] = self.touched.append
        self._bound: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._lingering: deque[Client] = deque()
        self._spare = -1
        self._door = None if tls is None else TlsDoor(poller, tls, self._admit, self.warn)
        session.attach(self, submit)

    async def bind(self, host: str, port: int) -> None:
        """Bind this address (port 0: any free one); clients are refused until `listen`. Raises OSError if that
        fails.
        """
        family, kind, _, _, address = (
            await trio.socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        )[0]
        self._bound = socket.socket(family, kind)
        self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._bound.bind(address)

    def listen(self) -> tuple[str, int]:
        """Accept clients at the bound address, and return it. Raises OSError if that fails."""
        assert self._bound is not None
        listener = self._bound
        listener.listen(1024)
        listener.setblocking(False)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._bound, self._listener = None, listener
        self.poller.register(listener, READ, self._accept, self._accept_failed)
        bound = listener.getsockname()
        self.port = bound[1]
        return bound[0], bound[1]

    @property
    def received(self) -> int:
        """Bytes of possibly unanswered requests of all clients."""
        return self.bytes_in - self.answered

    def flush(self) -> None:
        """Send the leading answered requests of each client that got an answer since the last call, with one `send`
        each.
        """
        touched = self.touched[:]
        self.touched.clear()
        for client in touched:
            client.touched = False
            try:
                client.flush()
            except Exception:
                self.log.exception(
                    "client %s (%s) is closed: cannot send its reply", client.id, client.address
                )
                client.close()

    def warn(self, kind: str, text: str) -> None:
        """Log an event that unauthenticated clients can cause at will: one line of a kind in ten seconds."""
        self._throttle.log(time.monotonic(), kind, logging.WARNING, text)

    async def close_idle(self) -> None:
        """Close clients that have been idle for longer than the limit, until cancelled."""
        while True:
            await trio.sleep(_SECOND)
            self.now = time.monotonic()
            if self._door is not None:
                self._door.drop_slow()
            if self.limits.output_soft:
                self.close_slow()
            if self.limits.timeout:
                before = self.now - self.limits.timeout
                for client in [c for c in self.clients.values() if c.idle_since < before]:
                    client.close()

    def close_slow(self) -> None:
        """Close clients that have been above the soft limit of unread replies for too long."""
        limits = self.limits
        before = time.monotonic() - limits.output_soft_seconds
        for client in list(self.clients.values()):
            if client.over_since is not None and client.over_since <= before:
                client.close_as_slow(
                    f"the limit is {limits.output_soft} for {limits.output_soft_seconds:g} s"
                )

    def close_all(self) -> None:
        """Stop listening, send the answers that the kernel takes, and close every client."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._listener is not None:
            self.poller.unregister(self._listener)
            self._listener.close()
            self._listener = None
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        self.flush()
        if self._door is not None:
            self._door.close()
        for client in list(self.clients.values()):
            client.close()

    def linger(self, client: Client) -> None:
        """Keep a refused client until it hangs up; if there are too many, close the oldest one."""
        self._lingering.append(client)
        if len(self._lingering) > _LINGER_CLIENTS:
            self._lingering.popleft().close()

    def forget(self, client: Client, received: int) -> None:
        """A client closes; `received` bytes of its requests no longer count."""
        self.answered += received
        self.clients.pop(client.id, None)
        with contextlib.suppress(ValueError):
            self._lingering.remove(client)

    def _accept(self, _mask: int) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if not self._out_of_descriptors():
                    self.log.warning("cannot accept a client: %s", error)
                    return
                continue
            sock.setblocking(False)
            if self.limits.local_only and not is_loopback(address[0]):
                self.refused += 1
                self.warn("protected", _FROM_ELSEWHERE % address[0])
                _turn_away(sock, _PROTECTED)
                continue
            waiting = 0 if self._door is None else len(self._door)
            if len(self.clients) + waiting >= self.limits.clients:
                self.refused += 1
                self.warn("many", _AT_LIMIT % self.limits.clients)
                _turn_away(sock, _TOO_MANY)
                continue
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _keep_alive(sock, self.limits.keepalive)
            if self._door is None:
                self._admit(sock, address)
            else:
                self._door.begin(sock, address)

    def _admit(self, sock: socket.socket, address: tuple[object, ...]) -> None:
        self.accepted += 1
        client = Client(self, sock, shown_address(address), self.accepted)
        self.session.welcome(client)
        self.clients[client.id] = client
        self.poller.register(sock, READ, client.on_events, client.on_error)

    def _out_of_descriptors(self) -> bool:
        """Accept and drop one client by means of a spare descriptor: in the queue it would wake up the poller again and
        again.
        """
        if self._spare < 0 or self._listener is None:
            return False
        os.close(self._spare)
        self._spare = -1
        try:
            sock, _ = self._listener.accept()
            self.refused += 1
            _turn_away(sock, _TOO_MANY)
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return True

    def _accept_failed(self, error: Exception) -> None:
        self.log.error("no longer accepting clients: %s", error)


def _turn_away(sock: socket.socket, error: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.send(error)
    sock.close()


def _keep_alive(sock: socket.socket, seconds: int) -> None:
    """Probe a peer that has been silent for `seconds`, three times; 0 leaves the times to the system."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if seconds:
        idle: int = getattr(socket, "TCP_KEEPIDLE", _KEEPALIVE_OF_MACOS)
        sock.setsockopt(socket.IPPROTO_TCP, idle, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // _PROBES))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
