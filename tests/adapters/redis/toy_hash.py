"""Stands for a gateway with one type more: hashes. Nothing of the core knows of it.

    python toy_hash.py gateway …

HSET and HDEL write it, and SET a whole string.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import chain
from types import MappingProxyType

from crdtcast.adapters.redis import commands, effects
from crdtcast.adapters.redis.batch import LocalBatch
from crdtcast.adapters.redis.commands.errors import WRONG_TYPE
from crdtcast.adapters.redis.commands.write_command import WHOLE_KEY, WriteCommand
from crdtcast.adapters.redis.effects import Opcode, RedisType, pairs_of
from crdtcast.adapters.redis.front import Request
from crdtcast.adapters.redis.large_request import slots_of
from crdtcast.adapters.redis.plan import Expect
from crdtcast.adapters.redis.resp import OK
from crdtcast.adapters.redis.types import register
from crdtcast.adapters.redis.types.native import NOTHING, Content, Holds, NativeType


class Hash(NativeType):
    """A slot is a field, worth what was written there last."""

    type = RedisType.HASH
    name = b"hash"
    valued = True
    here = Holds("a hash", RedisType.HASH)
    perhaps = Holds("a hash or nothing", RedisType.HASH, is_sure=False)
    write, written = b"HSET", Expect.INTEGER
    remove, read = b"HDEL", b"HGETALL"
    size, scan = b"HLEN", b"HSCAN"

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return list(chain.from_iterable(content.items()))

    @staticmethod
    def content(reply: object) -> Content | None:
        if isinstance(reply, dict):
            return reply
        return pairs_of(tuple(reply)) if isinstance(reply, list) else None


_HASHES = (NOTHING, Hash.here, Hash.perhaps)


def hset(batch: LocalBatch, request: Request) -> bool:
    """HSET key field value [field value …]"""
    key, words = request.args[1], slots_of(request.args)
    known = batch.keyspace.types[key]
    if known in _HASHES:
        batch.plan.answer_from(request, [batch.write(key, Hash.type, words)])
    elif isinstance(known, int) or known.is_sure:
        batch.plan.answer_with(request, WRONG_TYPE)
    else:
        return False
    return True


def hdel(batch: LocalBatch, request: Request) -> bool:
    """HDEL key field [field …]"""
    key, fields = request.args[1], slots_of(request.args)
    known = batch.keyspace.types[key]
    if known is NOTHING:
        batch.plan.answer_with(request, 0)
    elif known in _HASHES:
        batch.plan.answer_from(request, batch.remove(key, Hash.type, fields))
    elif isinstance(known, int) or known.is_sure:
        batch.plan.answer_with(request, WRONG_TYPE)
    else:
        return False
    return True


def set_(batch: LocalBatch, request: Request) -> bool:
    """SET key value"""
    _, key, value = request.args
    batch.assign(key, value)
    batch.plan.answer_with(request, OK)
    return True


LEVELS = {(Opcode.REG, RedisType.HASH): 1, (Opcode.KILL_SLOTS, RedisType.HASH): 1}


COMMANDS = (
    WriteCommand("HSET", -4, ((Opcode.REG, RedisType.HASH),), hset),
    WriteCommand("HDEL", -3, ((Opcode.KILL_SLOTS, RedisType.HASH),), hdel),
    WriteCommand("SET", 3, (WHOLE_KEY, (Opcode.REG, RedisType.STRING)), set_),
)


def become_toy() -> None:
    """Let this process be the program that knows the type."""
    register(Hash)
    effects.LEVELS = MappingProxyType({**effects.LEVELS, **LEVELS})
    commands.register(*COMMANDS)


if __name__ == "__main__":
    become_toy()
    from crdtcast.cli import main

    sys.argv[0] = "crdtcast"
    sys.exit(main())
