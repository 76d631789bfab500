"""Writes on sets (rules H1, H4): add-wins, observed remove. No read is needed: replies come from EXEC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commands.holding import refused_for_its_type
from crdtcast.adapters.redis.commands.write_command import WriteCommand
from crdtcast.adapters.redis.effects import Opcode
from crdtcast.adapters.redis.large_request import slots_of
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.sets import Set

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.front import Request

_SETS = (NOTHING, Set.here, Set.perhaps)


def sadd(batch: LocalBatch, request: Request) -> bool:
    """SADD: each member becomes present, also one that is already (a concurrent SREM has not seen this add)."""
    args = request.args
    key = args[1]
    if batch.keyspace.types[key] not in _SETS:
        return refused_for_its_type(batch, request)
    members = args[2:] if type(args) is list else slots_of(args)
    batch.plan.from_reply.append((request, batch.add(key, Set.type, members)))
    return True


def srem(batch: LocalBatch, request: Request) -> bool:
    """SREM: removes the members as far as this replica has seen them."""
    key, members = request.args[1], slots_of(request.args)
    known = batch.keyspace.known(key)
    if known not in _SETS:
        return refused_for_its_type(batch, request)
    if known is NOTHING:
        batch.plan.answer_with(request, 0)
    else:
        batch.plan.answer_from(request, batch.remove(key, Set.type, members))
    return True


COMMANDS = (
    WriteCommand("SADD", -3, ((Opcode.ONE, Set.type),), sadd, grows=True),
    WriteCommand("SREM", -3, ((Opcode.KILL_SLOTS, Set.type),), srem),
)
