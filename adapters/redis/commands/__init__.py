"""Commands of the clients: a file a family, with a row a write; and one table of all commands, built out of them."""

from __future__ import annotations

from crdtcast.adapters.redis.commands import (
    counters,
    deadlines,
    decimals,
    hashes,
    keys,
    sets,
    strings,
)
from crdtcast.adapters.redis.commands.write_command import WriteCommand

WRITES: dict[str, WriteCommand] = {}
"""Those that the gateway carries out, by name."""


def register(*rows: WriteCommand) -> None:
    """Have each table that is made from here on know these writes. Raises ValueError if one is known already."""
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
    *keys.COMMANDS,
    *deadlines.COMMANDS,
)
