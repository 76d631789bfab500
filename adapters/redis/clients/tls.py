"""TLS at the clients' port: runs handshakes on the poller until a client can be served."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable

from crdtcast.adapters.redis.server.poller import READ, WRITE, Poller
from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.exceptions import ConfigurationError

_HANDSHAKE_SECONDS = 10.0
_Done = Callable[[socket.socket, tuple[object, ...]], None]


class TlsDoor:
    """Hands over each socket whose handshake has succeeded. Files that have changed are read again.

    done: gets the TLS socket and its address.
    warn: gets a kind and a line, for events that unauthenticated clients can cause.

    Raises ConfigurationError if the files cannot be used.
    """

    def __init__(
        self, poller: Poller, files: TlsFiles, done: _Done, warn: Callable[[str, str], None]
    ) -> None:
        self._poller = poller
        self._files = files
        self._done = done
        self._warn = warn
        self._context = files.server_context()
        self._version = files.version()
        self._began: dict[socket.socket, float] = {}

    def __len__(self) -> int:
        """Handshakes under way."""
        return len(self._began)

    def begin(self, sock: socket.socket, address: tuple[object, ...]) -> None:
        """Take over an accepted, non-blocking socket."""
        self._refresh()
        try:
            secured = self._context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
        except OSError:  # the client has hung up already
            sock.close()
            return
        self._began[secured] = time.monotonic()

        def go_on(_mask: int) -> None:
            self._go_on(secured, address)

        self._poller.register(secured, READ, go_on, lambda _error: self._drop(secured))

    def _go_on(self, sock: ssl.SSLSocket, address: tuple[object, ...]) -> None:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.modify(sock, READ)
        except ssl.SSLWantWriteError:
            self._poller.modify(sock, WRITE)
        except OSError as error:
            why = getattr(error, "reason", None) or error.strerror or str(error)
            self._warn("tls", f"refused a client at {address[0]}: TLS: {why}")
            self._drop(sock)
        else:
            self._poller.unregister(sock)
            del self._began[sock]
            self._done(sock, address)

    def _drop(self, sock: socket.socket) -> None:
        self._began.pop(sock, None)
        with contextlib.suppress(KeyError, ValueError):
            self._poller.unregister(sock)
        sock.close()

    def drop_slow(self) -> None:
        """Close connections whose handshake takes too long."""
        before = time.monotonic() - _HANDSHAKE_SECONDS
        for sock in [sock for sock, began in self._began.items() if began < before]:
            self._drop(sock)

    def close(self) -> None:
        """Close all."""
        for sock in list(self._began):
            self._drop(sock)

    def _refresh(self) -> None:
        try:
            if (version := self._files.version()) != self._version:
                self._context, self._version = self._files.server_context(), version
        except (OSError, ConfigurationError) as error:
            self._warn("tls files", f"{error}; the former files stay in use")
