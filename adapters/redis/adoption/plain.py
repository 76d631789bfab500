"""Hands a server back: removes all that is the gateway's own, so that a plain database is left."""

from __future__ import annotations

from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.deadlines.index import PINNED, unpinning
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.store import metadata
from crdtcast.exceptions import ServerError


async def make_plain(
    connection: ServerConnection, metadata_db: int, epoch: int | None, offset_ms: int = 0
) -> None:
    """Set postponed deadlines again, and empty the metadata database, in one transaction.

    epoch: of the fence, if this gateway has taken the server; None if nobody has since it left.
    offset_ms: how far an administrator has moved the clock.

    Raises ServerError if the server fails, or another gateway has taken it.
    """
    _, _, fence, rows = await _call(
        connection,
        [
            ("SELECT", metadata_db),
            ("WATCH", metadata.FENCE, PINNED),
            ("GET", metadata.FENCE),
            ("HGETALL", PINNED),
        ],
    )
    if epoch is not None and fence != b"%d" % epoch:
        raise ServerError("another gateway has taken over this server: its data stays as it is")
    assert isinstance(rows, list)
    pinned = dict(zip(rows[::2], rows[1::2], strict=True))
    crash_point("plain-begun")
    replies = await _call(
        connection,
        [
            ("MULTI",),
            *unpinning(pinned, metadata_db, offset_ms),
            ("SELECT", metadata_db),
            ("FLUSHDB",),
            ("SELECT", 0),
            ("EXEC",),
        ],
    )
    if replies[-1] is None:
        raise ServerError("another gateway is taking over this server")
    crash_point("plain-made")


async def _call(connection: ServerConnection, commands: list[Words]) -> list[object]:
    replies = await connection.call(commands)
    executed = replies[-1] if isinstance(replies[-1], list) and commands[-1] == ("EXEC",) else []
    if failed := next((r for r in (*replies, *executed) if isinstance(r, Exception)), None):
        raise ServerError(f"the server refuses to become a plain one: {failed}")
    return list(replies)
