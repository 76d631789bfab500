"""Reads that are the server's business alone: relayed byte for byte over connections in the client's own protocol.

RESP2 and RESP3 replies to one command differ in shape, so there is a connection for each, opened at first use. A
client's later commands, but for further relayed reads, wait until its relayed reads are answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from crdtcast.adapters.redis.poller import Poller
from crdtcast.adapters.redis.resp import ReplyError
from crdtcast.adapters.redis.server import Replies, ServerConnection, WholeReplies, pack
from crdtcast.adapters.redis.server_address import ServerAddress
from crdtcast.exceptions import ServerError

if TYPE_CHECKING:
    from crdtcast.adapters.redis.front import Client, Request


class Passthrough:
    """Relays reads; `answered` is called after each reply, when the client's next command may go on."""

    def __init__(self, poller: Poller, answered: Callable[[], None]) -> None:
        self._poller = poller
        self._address: ServerAddress | None = None
        self._answered = answered
        self._connections: dict[int, ServerConnection] = {}
        self._opening: dict[int, list[Request]] = {}
        self._nursery: trio.Nursery | None = None
        self.waiting: dict[Client, deque[Request]] = {}
        """Relayed reads that are not answered yet, by client."""

    async def run(self) -> None:
        """Keep the connections' openings going until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def use(self, address: ServerAddress) -> None:
        """Ask this server from now on: the former one may be a replica by now."""
        if address != self._address:
            self._address = address
            for connection in list(self._connections.values()):
                connection.abort("another server is the primary now")

    def send(self, request: Request) -> None:
        """Relay one read."""
        self.waiting.setdefault(request.client, deque()).append(request)
        protocol = request.protocol
        connection = self._connections.get(protocol)
        if connection is not None and connection.error is None:
            self._relay(connection, request)
        elif protocol in self._opening:
            self._opening[protocol].append(request)
        elif self._nursery is not None:
            self._opening[protocol] = [request]
            self._nursery.start_soon(self._open, protocol)

    async def _open(self, protocol: int) -> None:
        assert self._address is not None
        try:
            connection = await ServerConnection.open(
                self._poller, self._address, protocol=protocol, reader=WholeReplies()
            )
        except ServerError as error:
            for request in self._opening.pop(protocol):
                self._answer(request, ReplyError(f"ERR crdtcast: {error}"))
            return
        connection.on_lost = self._lost
        self._connections[protocol] = connection
        requests = self._opening.pop(protocol)
        if connection.error is not None:  # lost right behind the greeting, before we listened
            self._lost(connection.error)
        else:
            for request in requests:
                self._relay(connection, request)

    def _relay(self, connection: ServerConnection, request: Request) -> None:
        def take(replies: Replies) -> None:
            self._answer(request, replies[0])

        connection.send(pack(request.args), 1, take)

    def _lost(self, error: ServerError) -> None:
        for requests in list(self.waiting.values()):
            for request in list(requests):
                connection = self._connections.get(request.protocol)
                if connection is not None and connection.error is not None:
                    self._answer(request, ReplyError(f"ERR crdtcast: {error}"))

    def _answer(self, request: Request, value: object) -> None:
        requests = self.waiting.get(request.client)
        if requests is None or request not in requests:
            return
        requests.remove(request)
        if not requests:
            del self.waiting[request.client]
        request.answer(value)
        self._answered()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
