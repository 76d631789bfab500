"""TLS on the poller's sockets: at the clients' port, and to the server. For links between gateways see `tls`.

Like a plain socket, a TLS socket raises BlockingIOError if it has nothing to read or no room to write.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from crdtcast.exceptions import ConfigurationError
from crdtcast.private_files import check_private

_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsSocket(ssl.SSLSocket):
    """A read of 16 KiB or more returns one whole record. So the rest is still in the kernel, which reports it ready."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except _WOULD_BLOCK:
            raise BlockingIOError from None

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except _WOULD_BLOCK:
            raise BlockingIOError from None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files in PEM.

    ca: the other end must show a certificate of this CA. None: a client trusts the system's CAs, and a server asks for
        no certificate.
    """

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None

    def server_context(self) -> ssl.SSLContext:
        """For a port that clients connect to. Raises ConfigurationError if a file is unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(context)
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        """For connecting to a server. Raises ConfigurationError if a file is unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(context)
        if self.ca is None:
            context.load_default_certs()
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.sslsocket_class = TlsSocket
        try:
            if self.certificate is not None:
                if self.key is not None:
                    check_private(self.key, "a key")
                elif b"PRIVATE KEY" in Path(self.certificate).read_bytes():
                    check_private(self.certificate, "a key")
                context.load_cert_chain(self.certificate, self.key, _no_password)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except (OSError, ValueError) as error:
            files = ", ".join(filter(None, (self.certificate, self.key, self.ca)))
            reason = (
                getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            )
            raise ConfigurationError(
                f"cannot use {files} for TLS: {reason}: use readable PEM files that belong "
                "together, the key without a password"
            ) from error

    def version(self) -> tuple[tuple[int, int], ...]:
        """A value that changes with the files. Raises OSError if one cannot be read."""
        files = filter(None, (self.certificate, self.key, self.ca))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, files))


def _no_password() -> str:
    raise ValueError("the key has a password")


async def secured(sock: socket.socket, context: ssl.SSLContext, host: str) -> TlsSocket:
    """Start TLS as a client on a connected, non-blocking socket; do not use `sock` afterwards. Raises OSError."""
    wrapped = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=host)
    assert isinstance(wrapped, TlsSocket)
    try:
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(wrapped)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(wrapped)
    except BaseException:
        wrapped.close()
        raise
