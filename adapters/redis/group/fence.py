"""The fence of a server: the epoch of the gateway that may write there."""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.exceptions import ServerError, ServerReadOnlyError


async def claim(
    connection: ServerConnection,
    metadata_db: int,
    fence: int,
    epoch: int,
    state: StoredState | None,
    more: Sequence[Words] = (),
) -> None:
    """Take the fence for this epoch, in one transaction on our own database.

    fence: the value it had.
    state: the identity to write with it; None: none.
    more: further commands of the transaction.

    Raises ServerError if another gateway takes the server.
    """
    watched = await connection.call(
        [
            ("SELECT", metadata_db),
            ("WATCH", metadata.FENCE),
            ("GET", metadata.FENCE),
        ]
    )
    if isinstance(watched[2], Exception):
        raise ServerError(f"the server refuses to report its fence: {watched[2]}")
    if int(watched[2] or 0) != fence:
        raise ServerError("another gateway is taking over this server")
    identity: list[Words] = [] if state is None else [("SET", metadata.STATE, state.encode())]
    identity += more
    replies = await connection.call(
        [
            ("MULTI",),
            ("SET", metadata.FENCE, epoch),
            *identity,
            ("EXEC",),
            ("WATCH", metadata.FENCE),
            ("SELECT", 0),
        ]
    )
    executed = replies[2 + len(identity)]
    if executed is None:
        raise ServerError("another gateway is taking over this server")
    # The command that could not be queued says why; the error of EXEC only says that one failed.
    failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
    if failed is not None:
        raise ServerReadOnlyError(f"the server refuses to store metadata: {failed}")
