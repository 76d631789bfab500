"""Commands of the clients: a file for each family, with a row for each write; and one table of all commands."""

from __future__ import annotations

from crdtcast.adapters.redis.commands import (
    counters,
    deadlines,
    decimals,
    geo,
    hashes,
    keys,
    sets,
    sorted_sets,
    strings,
)
from crdtcast.adapters.redis.commands.write_command import WriteCommand

WRITES: dict[str, WriteCommand] = {}
"""Writes that the gateway executes, by name."""


def register(*rows: WriteCommand) -> None:
    """Add these writes to all tables made from now on. Raises ValueError if one is registered already."""
    for row in rows:
        if row.name in WRITES:
            raise ValueError(f"{row.name} is already registered")
        WRITES[row.name] = row


register(
    *strings.COMMANDS,
    *counters.COMMANDS,
    *decimals.COMMANDS,
    *hashes.COMMANDS,
    *sets.COMMANDS,
    *sorted_sets.COMMANDS,
    *geo.COMMANDS,
    *keys.COMMANDS,
    *deadlines.COMMANDS,
)
