"""Writes on hashes (rules H1 to H3): each field separately, with the value written last or a number that grows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from crdtcast.adapters.redis.clients.large_request import slots_of
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import (
    HASH_NOT_AN_INTEGER,
    NOT_AN_INTEGER,
    OVERFLOW,
    may_hold,
    refused_for_its_type,
    wrong_arity,
)
from crdtcast.adapters.redis.commands.write_command import IN_PAIRS, WriteCommand, removes
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.server.resp import OK
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import Effect, Inc, KillSlots, Opcode, Reg
from crdtcast.adapters.redis.store.keyspace import INT64_MAX, INT64_MIN
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.native import NOTHING

Args: TypeAlias = Sequence[bytes]

_HASHES = (Hash.here, NOTHING, Hash.perhaps)


def hset(batch: LocalBatch, request: Answerable) -> bool:
    """HSET key field value [field value …]"""
    args = request.args
    if len(args) % 2:
        batch.plan.answer_with(request, wrong_arity(request))
        return True
    key = args[1]
    if batch.keyspace.types[key] not in _HASHES:
        return refused_for_its_type(batch, request)
    words = args[2:] if type(args) is list else slots_of(args)
    batch.plan.from_reply.append((request, batch.write(key, Hash.type, words)))
    return True


def hmset(batch: LocalBatch, request: Answerable) -> bool:
    """HMSET: like HSET, with another reply."""
    args = request.args
    if len(args) % 2:
        batch.plan.answer_with(request, wrong_arity(request))
        return True
    if not may_hold(batch, args[1], Hash):
        return refused_for_its_type(batch, request)
    batch.write(args[1], Hash.type, slots_of(args))
    batch.plan.answer_with(request, OK)
    return True


def hincrby(batch: LocalBatch, request: Answerable) -> bool:
    """HINCRBY key field delta"""
    _, key, field, raw = request.args
    delta = integer(raw)
    if delta is None:
        batch.plan.answer_with(request, NOT_AN_INTEGER)
        return True
    if not may_hold(batch, key, Hash):
        return refused_for_its_type(batch, request)
    before = batch.keyspace.number(key, Hash.type, field)
    if before is None:
        return False
    if not isinstance(before, int):
        batch.plan.answer_with(request, HASH_NOT_AN_INTEGER)
    elif INT64_MIN <= before + delta <= INT64_MAX:
        batch.increase(key, Hash.type, field, delta)
        batch.plan.answer_with(request, before + delta)
    else:
        beyond = not INT64_MIN <= before <= INT64_MAX
        batch.plan.answer_with(request, HASH_NOT_AN_INTEGER if beyond else OVERFLOW)
    return True


def _written(args: Args, _reply: object, _before: None) -> Sequence[Effect]:
    return (Reg(args[1], Hash.type, tuple(args[2:])),)


def _written_if_new(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    return _written(args, reply, None) if reply else ()


def _removed(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    return (KillSlots(args[1], Hash.type, tuple(args[2:])),) if reply else ()


def _counted(args: Args, _reply: int, _before: None) -> Sequence[Effect]:
    return (Inc(args[1], Hash.type, args[2], int(args[3])),)


def _look(args: Args) -> ServerLook:
    return ServerLook(exact=(b"HGET", args[1], args[2]))


def _nothing(_args: Args, _reply: int, _before: None) -> Contents:
    return {}  # if the field exists, nothing is written


_WRITES = ((Opcode.REG, Hash.type),)
_PAIRS = partial(WriteCommand, slots=IN_PAIRS, grows=True, derive=_written, divides=2)
COMMANDS = (
    _PAIRS("HSET", -4, _WRITES, hset),
    _PAIRS("HMSET", -4, _WRITES, hmset),
    WriteCommand(
        "HSETNX", 4, _WRITES, grows=True, derive=_written_if_new, idle=True, took=_nothing
    ),
    WriteCommand(
        "HDEL",
        -3,
        ((Opcode.KILL_SLOTS, Hash.type),),
        removes(Hash),
        derive=_removed,
        divides=1,
        idle=True,
        begins=(),
        empties=True,
    ),
    WriteCommand(
        "HINCRBY",
        4,
        ((Opcode.INC, Hash.type),),
        hincrby,
        slots=slice(2, 3),
        grows=True,
        derive=_counted,
        looks_at=_look,
    ),
)
