"""A server's data becomes that of a new group: what prevents that, and what is noted for later.

Its values are stable at once, since the founder is the only member. It sends no messages.
"""

from __future__ import annotations

from collections.abc import Collection

from crdtcast.adapters.redis.adoption.census import FIELDS, Census, described, take_census
from crdtcast.adapters.redis.adoption.left_out import LeftOut
from crdtcast.adapters.redis.deadlines.adopted import ADOPTING, begun
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.server.inspection import Inspection
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import MOST_DATABASES
from crdtcast.exceptions import ServerError


async def counted(
    connection: ServerConnection, inspection: Inspection, left_out: LeftOut
) -> Census:
    """Count the keys that cannot be replicated. Raises ServerError if the server fails."""

    async def ask(commands: list[list[bytes]]) -> list[object]:
        replies = await connection.call(commands)
        if failed := next((reply for reply in replies if isinstance(reply, Exception)), None):
            raise ServerError(f"the server cannot count its keys: {failed}")
        return replies

    return await take_census(
        ask, inspection.databases, left_out, expiring_fields=inspection.has_expiring_fields
    )


def refusal_of(census: Census, inspection: Inspection, leave_out: Collection[str]) -> str | None:
    """Why a group cannot take over this data, and what to do; None if it can.

    leave_out: types that the operator leaves out.
    """
    if inspection.beyond:
        numbers = ", ".join(map(str, inspection.beyond))
        return (
            f"the server holds keys in databases that a gateway cannot replicate ({numbers}): move them below "
            f"{MOST_DATABASES} at the server's own port. Nothing was changed"
        )
    unsaid = sorted(census.counts.keys() - set(leave_out))
    if not unsaid:
        return None
    counts = {kind: census.counts[kind] for kind in unsaid}
    ways = ["remove them at the server's own port"]
    if FIELDS in unsaid:
        ways[0] += " (HPERSIST for fields)"
    if options := " ".join(f"--leave-out {kind}" for kind in unsaid if kind != FIELDS):
        ways.append(f"start this gateway with {options}")
    ways.append("leave them out by name (--leave-out-keys PATTERN)")
    return (
        f"the server holds data that is not replicated: {described(counts, census.examples)}: "
        f"{', or '.join(ways)}. What is left out stays in this server only. Nothing was changed"
    )


def noting(inspection: Inspection, left_out: LeftOut) -> list[Words]:
    """The commands, on our own database, that note what the gateway has to do and to leave alone."""
    more: list[Words] = []
    if left_out:
        more.append(("SADD", metadata.LEFT_OUT, *left_out.patterns))
    if inspection.expiring:
        adopted = begun(inspection.found.run_id, inspection.found.keys, inspection.expiring)
        more.append(("HSET", ADOPTING, *adopted.fields))
    return more
