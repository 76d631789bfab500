"""How nodes reach each other: TCP, unless a network in memory was put in its place (`crdtcast.testing.Network`)."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

import trio

from crdtcast.listening import listen
from crdtcast.options import Address


class Transport(Protocol):
    """name: of the node that listens or dials."""

    async def listen(
        self, name: str, address: Address
    ) -> tuple[Address, Sequence[trio.abc.Listener[trio.abc.Stream]]]:
        """Where it listens, and the listeners. Raises ConfigurationError."""
        ...

    async def connect(self, name: str, host: str, port: int) -> trio.abc.Stream:
        """A connection. Raises OSError."""
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
"""Of the nodes that are made in this context."""
