"""What the server promises to keep, and how the gateway learns that it is on disk.

Digests cover only what is synced to disk, so repair can refill a server that has lost its last second. Under
`appendfsync always` an answered EXEC is synced. Otherwise a second connection writes one small key and sends WAITAOF:
the append-only file is sequential, so all commits before that write are synced, too.
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
_COMPLAINS_AFTER = 2
"""Waits in a row without anything synced."""

_PROMISES = {
    Durability.ALWAYS: "acknowledged writes survive a power loss of this machine",
    Durability.EVERYSEC: (
        "acknowledged writes survive SIGKILL of processes; after a power loss the last second "
        "may be missing, unless a peer has it"
    ),
}
_NOT_SYNCED = "the server has no append-only file (or, before version 7.2, one that is not synced)"


def promise(level: Durability, *, refills: bool) -> str:
    """What acknowledged writes survive. refills: whether the group fills a server that has lost its data."""
    if level is not Durability.VOLATILE:
        return _PROMISES[level]
    if refills:
        return f"data that this server loses comes back from the other regions, as far as they have it: {_NOT_SYNCED}"
    return f"a server that loses its data must be restored, since fixed members cannot refill it: {_NOT_SYNCED}"


class Mark(NamedTuple):
    """An instant in the server's history: the number of the last commit, its vector, and the number of stored messages
    after it.
    """

    number: int
    vector: Vector
    order: int = 0


class DurabilityProbe:
    """Calls `durable(mark)` when everything up to `mark` is synced. Call `committed` after each commit.

    note: awaited before that, with the order of each mark that WAITAOF has confirmed.
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
        self._refusal = ""
        """Why the server does not report it, as it was logged last."""
        self.level: Durability = Durability.VOLATILE

    def begin(self, level: Durability) -> None:
        """Start again with another engine: marks that wait for an answer belong to the old one."""
        self.level, self._latest, self._news = level, None, trio.Event()

    def committed(self, mark: Mark) -> None:
        """A commit was answered. The vector of `mark` is final: exactly what the commit covers."""
        if self.level is Durability.EVERYSEC:
            self._latest = mark
            self._news.set()
        else:
            self._durable(mark)

    async def run(self, connection: ServerConnection, metadata_db: int) -> None:
        """Probe until the connection is lost or this is cancelled. Needed for EVERYSEC only."""
        count = in_vain = 0
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
                        news.set()  # ask again for this mark, if only over the next connection
                if isinstance(synced, Exception):
                    if str(synced) != self._refusal:
                        self._refusal = str(synced)
                        self._log.error("the server cannot report what is synced: %s", synced)
                    return
                self._refusal = ""
                in_vain = 0 if synced[0] >= 1 else in_vain + 1
                if in_vain == _COMPLAINS_AFTER:
                    self._log.error(
                        "the server has synced nothing for %d s: nothing becomes stable, and where members come and go "
                        "nothing leaves this region, until it does: set appendfsync everysec or always, or look at its "
                        "disk",
                        _COMPLAINS_AFTER * _WAIT_MS // 1000,
                    )
                if synced[0] >= 1 and mark is not None:
                    await self._note(mark.order)
                    self._durable(mark)
        except ServerError as error:
            self._log.warning("%s", error)
