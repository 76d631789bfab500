"""How nodes reach each other: over TCP, or over a network in memory that replaces it (`crdtcast.testing.Network`); and
the messages for an address that cannot be bound.
"""

import errno
import ipaddress
import socket
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

import trio

from crdtcast.exceptions import ConfigurationError
from crdtcast.transport.options import Address, format_address


class Transport(Protocol):
    """A network. name: of the node that listens or dials."""

    async def listen(
        self, name: str, address: Address
    ) -> tuple[Address, Sequence[trio.abc.Listener[trio.abc.Stream]]]:
        """The bound address, and the listeners. Raises ConfigurationError if it cannot be bound."""
        ...

    async def connect(self, name: str, host: str, port: int) -> trio.abc.Stream:
        """A connection. Raises OSError if it fails."""
        ...


class Tcp:
    """The network of this machine."""

    async def listen(
        self, name: str, address: Address
    ) -> tuple[Address, Sequence[trio.abc.Listener[trio.abc.Stream]]]:
        """See `Transport`."""
        listeners = await listen(address)
        return listeners[0].socket.getsockname()[:2], listeners

    async def connect(self, name: str, host: str, port: int) -> trio.abc.Stream:
        """See `Transport`."""
        return await trio.open_tcp_stream(host, port)


_TCP: Transport = Tcp()
TRANSPORT: ContextVar[Transport] = ContextVar("crdtcast.transport", default=_TCP)
"""The network of nodes that are created in this context."""


_REMEDIES = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose another port (0 takes a free one)",
    errno.EADDRNOTAVAIL: (
        "this machine does not have that address: choose one that it has, or 0.0.0.0 for all of "
        "them"
    ),
    errno.EACCES: "permission denied: choose a port above 1023",
}


def is_loopback(host: str) -> bool:
    """Whether this host, an address or a name, can be reached from its own machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


async def listen(address: Address) -> list[trio.SocketListener]:
    """Listeners on every address of the host; on one of them for port 0, which takes a free port.

    Raises ConfigurationError, which names the address and says what to do.
    """
    host, port = address
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except (OSError, UnicodeError) as error:
        # A host name that cannot be encoded is a UnicodeError.
        raise cannot_listen(address, error) from error
    if port == 0:
        # A name with several addresses would get as many ports.
        for listener in listeners[1:]:
            listener.socket.close()
        del listeners[1:]
    return listeners


def cannot_listen(address: Address, error: OSError | UnicodeError) -> ConfigurationError:
    """Why `address` could not be bound, and the way out, in one line."""
    where = f"cannot listen on {format_address(address)}"
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return ConfigurationError(f"{where}: cannot resolve {address[0]!r}: correct the host name")
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return ConfigurationError(f"{where}: {remedy}")
