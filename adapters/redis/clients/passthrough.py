"""Reads that only the server answers: their replies pass byte for byte, in pieces, as the server sends them.

RESP2 and RESP3 replies to one command differ in shape, so there is a connection for each protocol, opened at first use.
Replies are not parsed: an ECHO of random bytes follows the reads of one client, and what comes before these bytes
belongs to that client. So a reply of any size costs the gateway no more than moving its bytes.

A client has one group of reads under way. The next group is sent when the first is answered and the client has read
nearly all of it. So a client that does not read waits at this place, outside of commits, and delays no other client.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import trio

from crdtcast.adapters.redis.clients.client import NO_REPLY, UNREAD_PAUSE, SilentRequest
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.connection import (
    NOT_YET,
    Replies,
    ServerConnection,
    WholeReplies,
    pack,
)
from crdtcast.adapters.redis.server.poller import Poller
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.databases import select
from crdtcast.adapters.redis.store.named_args import db_of_args, sent_of
from crdtcast.exceptions import ServerError

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Client, Request

MOST_TOGETHER = 64
"""Reads of one group."""
_SELECTED = b"+OK\r\n"
_LARGE_BYTES = 1 << 20
"""After a group with more bytes of replies than this, the client's next group is a single read."""


class _Group:
    """Consecutive reads of one client in one database that are under way together."""

    def __init__(self, requests: list[Request], stands: int) -> None:
        """stands: the current database of the connection."""
        self.requests = requests
        self.size = 0
        self.db = db_of_args(requests[0].args)
        token = secrets.token_hex(16).encode()
        words: list[Sequence[bytes]] = [sent_of(request.args) for request in requests]
        self._begun = b""
        if self.db != stands:
            words.insert(0, select(self.db))
            self._begun = _SELECTED
        self.packed = b"".join([*map(pack, words), _echo(token)])
        self.end = b"$%d\r\n%b\r\n" % (len(token), token)

    def take(self, piece: bytes) -> None:
        """Pass on a piece of the replies; drop the reply to a SELECT before them."""
        if self._begun and piece:
            gone = min(len(self._begun), len(piece))
            piece, self._begun = piece[gone:], self._begun[gone:]
        if piece:
            self.size += len(piece)
            self.requests[0].pass_on(piece)


def _echo(token: bytes) -> bytes:
    return pack((b"ECHO", token))


class _Passing:
    """A reader of a `ServerConnection`: returns the greeting's reply, then passes on at once what comes for each
    group.
    """

    def __init__(self) -> None:
        self._greeting = WholeReplies()
        self._rest = b""
        self._at = 0
        self.stands = 0
        """The database of the connection once all commands sent are executed."""
        self.groups: deque[_Group] = deque()

    def feed(self, chunk: bytes) -> None:
        if self.groups:
            self._rest = self._rest[self._at :] + chunk
            self._at = 0
        else:
            self._greeting.feed(chunk)

    def gets(self) -> object:
        """A group, once all of its replies have been passed on."""
        if not self.groups:
            return self._greeting.gets()
        group, rest, at = self.groups[0], self._rest, self._at
        end = rest.find(group.end, at)
        if end >= 0:
            group.take(rest[at:end])
            self._at = end + len(group.end)
            return self.groups.popleft()
        kept = max(at, len(rest) - len(group.end) + 1)  # the end may begin after this
        group.take(rest[at:kept])
        self._at = kept
        return NOT_YET


class _Waiting:
    """A client's unanswered reads, in order; the first `under_way` of them are sent."""

    __slots__ = ("requests", "under_way")

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        self.under_way = 0


class Passthrough:
    """Relays reads. answered: called after each reply, when the client's next command may run."""

    def __init__(self, poller: Poller, answered: Callable[[], None]) -> None:
        self._poller = poller
        self._address: ServerAddress | None = None
        self._answered = answered
        self._connections: dict[int, tuple[ServerConnection, _Passing]] = {}
        self._opening: set[int] = set()
        self._nursery: trio.Nursery | None = None
        self.stalled: dict[Client, None] = {}
        """Clients whose reads wait until they have read more: `go_on` looks at these."""
        self.waiting: dict[Client, _Waiting] = {}
        """Clients with relayed, unanswered reads."""

    async def run(self) -> None:
        """Run the opening of connections until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    def use(self, address: ServerAddress) -> None:
        """Use this server from now on: the former one may be a replica now."""
        if address != self._address:
            self._address = address
            for connection, _ in list(self._connections.values()):
                connection.abort("another server is the primary now")

    def send(self, request: Request) -> None:
        """Relay one read."""
        client = request.client
        waiting = self.waiting.get(client)
        if waiting is None:
            waiting = self.waiting[client] = _Waiting()
        waiting.requests.append(request)
        if not waiting.under_way:
            self.stalled[client] = None

    def go_on(self) -> None:
        """Send what may be sent. To be called when requests have come, and when clients have read."""
        for client in list(self.stalled):
            waiting = self.waiting.get(client)
            if waiting is None or client.closed:
                self.waiting.pop(client, None)
                del self.stalled[client]
            elif len(client.unread) <= UNREAD_PAUSE:
                self._send_group(client, waiting)

    def _send_group(self, client: Client, waiting: _Waiting) -> None:
        protocol = waiting.requests[0].protocol
        connection, reader = self._connections.get(protocol, (None, None))
        if connection is None or reader is None or connection.error is not None:
            if self._nursery is not None and protocol not in self._opening:
                self._opening.add(protocol)
                self._nursery.start_soon(self._open, protocol)
            return
        group = _Group(list(_together(client, waiting)), reader.stands)
        reader.stands = group.db
        waiting.under_way = len(group.requests)
        del self.stalled[client]
        reader.groups.append(group)

        def take(_: Replies) -> None:
            client.relayed_together = 1 if group.size > _LARGE_BYTES else MOST_TOGETHER
            for request in group.requests:
                request.answer(NO_REPLY)
            self._after(client, waiting)

        connection.send(group.packed, 1, take)

    def _after(self, client: Client, waiting: _Waiting) -> None:
        """The group under way has been answered."""
        for _ in range(waiting.under_way):
            waiting.requests.popleft()
        waiting.under_way = 0
        if waiting.requests:
            self.stalled[client] = None  # until the replies were sent to the client
        else:
            del self.waiting[client]
            self._answered()

    async def _open(self, protocol: int) -> None:
        assert self._address is not None
        reader = _Passing()
        try:
            connection = await ServerConnection.open(
                self._poller, self._address, protocol=protocol, reader=reader
            )
        except ServerError as error:
            self._opening.discard(protocol)
            self._fail(protocol, error)
            return
        self._opening.discard(protocol)
        self._connections[protocol] = connection, reader
        connection.on_lost = lambda error: self._fail(protocol, error)
        if connection.error is not None:  # lost right after the greeting, before we listened
            self._fail(protocol, connection.error)
        else:
            self.go_on()

    def _fail(self, protocol: int, error: ServerError) -> None:
        """The connection of this protocol is lost: waiting reads get an error. A client whose reply has begun
        is closed.
        """
        text = ReplyError(f"ERR crdtcast: {error}")
        for client, waiting in list(self.waiting.items()):
            first = waiting.requests[0]
            if first.protocol != protocol:
                continue
            del self.waiting[client]
            self.stalled.pop(client, None)
            if first.has_begun:
                client.close()
            for request in waiting.requests:
                request.answer(text)
        self._answered()

    def close(self) -> None:
        """Close the connections."""
        for connection, _ in self._connections.values():
            connection.close()


def _together(client: Client, waiting: _Waiting) -> Iterator[Request]:
    """The first waiting reads, as long as they are consecutive at the client."""
    requests = waiting.requests
    protocol, db = requests[0].protocol, db_of_args(requests[0].args)
    most = client.relayed_together
    for request, pending in zip(islice(requests, most), islice(client.pending, most), strict=False):
        alone = isinstance(request, SilentRequest)
        if request is not requests[0] and (
            alone
            or request is not pending
            or request.protocol != protocol
            or db_of_args(request.args) != db
        ):
            return
        yield request
        if alone or request is not pending:
            return
