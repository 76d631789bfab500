"""What the server has promised to keep, and how we learn that it has kept it.

Digests cover only what is synced to disk, so that a server that lost its last second is refilled by repair. Under
`appendfsync always` an answered EXEC is synced. Otherwise a second connection writes one small key and asks WAITAOF:
the append-only file is sequential, so what was committed before that write is synced, too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from crdtcast.adapters.redis.group.recovery import Durability
from crdtcast.adapters.redis.server.connection import ServerConnection
from crdtcast.adapters.redis.store import metadata
from crdtcast.causality.tags import Vector
from crdtcast.exceptions import ServerError

_WAIT_MS = 5_000

PROMISES = {
    Durability.ALWAYS: "acknowledged writes survive a power loss of this machine",
    Durability.EVERYSEC: (
        "acknowledged writes survive SIGKILL of processes; after a power loss the last second "
        "may be missing, unless a peer has it"
    ),
    Durability.VOLATILE: (
        "data that this server loses comes back from the other regions, as far as they have it: "
        "the server has no append-only file (or, before version 7.2, one that is not synced)"
    ),
}


class Mark(NamedTuple):
    """An instant of the server's history: the number of the last commit, and the vector and the number of stored
    messages that it left.
    """

    number: int
    vector: Vector
    order: int = 0


class DurabilityProbe:
    """Calls `durable(mark)` when everything up to `mark` is synced. Fed with `committed` after each commit.

    note: awaited with the order of each mark that WAITAOF has told of, before.
    """

    def __init__(
        self,
        durable: Callable[[Mark], None],
        note: Callable[[int], Awaitable[None]],
        logger: logging.Logger,
    ) -> None:
        self._durable = durable
        self._note = note
        self._log = logger
        self._latest: Mark | None = None
        self._news = trio.Event()
        self.level: Durability = Durability.VOLATILE

    def begin(self, level: Durability) -> None:
        """Start anew: the engine is another one, so what waited for an answer means nothing to it."""
        self.level, self._latest, self._news = level, None, trio.Event()

    def committed(self, mark: Mark) -> None:
        """A commit was answered; the vector of `mark` is what it covers and will not change any more."""
        if self.level is Durability.EVERYSEC:
            self._latest = mark
            self._news.set()
        else:
            self._durable(mark)

    async def run(self, connection: ServerConnection, metadata_db: int) -> None:
        """Ask, again and again, until the connection is lost or this is cancelled. Needed for EVERYSEC only."""
        count = 0
        try:
            await connection.call([("SELECT", metadata_db)])
            while True:
                await self._news.wait()
                self._news = trio.Event()
                news = self._news
                mark, count = self._latest, count + 1
                synced = None
                try:
                    _, synced = await connection.call(
                        [("SET", metadata.DURABLE, count), ("WAITAOF", 1, 0, _WAIT_MS)]
                    )
                finally:
                    if not isinstance(synced, list) or synced[0] < 1:
                        news.set()  # it is still to be asked for, if only over the next connection
                if isinstance(synced, Exception):
                    self._log.error("the server cannot report what is synced: %s", synced)
                    return
                if synced[0] >= 1 and mark is not None:
                    await self._note(mark.order)
                    self._durable(mark)
        except ServerError as error:
            self._log.warning("%s", error)
