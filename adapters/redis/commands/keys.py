"""Writes on whole keys: DEL and UNLINK, an observed delete of every type under the key (rules H1, H7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commands.write_command import ALL_KEYS, WHOLE_KEY, WriteCommand
from crdtcast.adapters.redis.types.native import NOTHING

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.front import Request


def delete(batch: LocalBatch, request: Request) -> bool:
    """DEL key [key …]: removes what this replica has seen; a concurrent add or increment elsewhere survives."""
    positions = [
        batch.kill_key(key) for key in request.args[1:] if batch.keyspace.known(key) is not NOTHING
    ]
    batch.plan.answer_from(request, positions)
    return True


COMMANDS = tuple(
    WriteCommand(name, -2, (WHOLE_KEY,), delete, keys=ALL_KEYS) for name in ("DEL", "UNLINK")
)
