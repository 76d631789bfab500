"""Stands for a gateway with another type: bags, on native sorted sets, in their place. Nothing of the core knows of it.

    python toy_bag.py gateway …

An element is a slot, worth how often it is in the bag. BAGADD key element n changes that, BAGREM takes elements out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from types import MappingProxyType

from crdtcast.adapters.redis import commands
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import NOT_AN_INTEGER, may_hold, refused_for_its_type
from crdtcast.adapters.redis.commands.write_command import WriteCommand, removes
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable, Expect
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.effects import Opcode, RedisType, pairs_of
from crdtcast.adapters.redis.types import register
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class Bag(NativeType):
    """(See `NativeType`.) No native command counts in it in the form that the core has: its numbers are written."""

    type = RedisType.ZSET
    name = b"zset"
    valued = True
    here = Holds("a bag", RedisType.ZSET)
    perhaps = Holds("a bag or nothing", RedisType.ZSET, is_sure=False)
    write, written = b"ZADD", Expect.INTEGER
    remove, get = b"ZREM", b"ZSCORE"
    read, read_behind = b"ZRANGE", (b"0", b"-1", b"WITHSCORES")
    size, scan = b"ZCARD", b"ZSCAN"

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return [word for element, count in content.items() for word in (count, element)]

    @staticmethod
    def content(reply: object) -> Content | None:
        return pairs_of(tuple(reply)) if isinstance(reply, list) else None


def bagadd(batch: LocalBatch, request: Answerable) -> bool:
    """BAGADD key element n"""
    _, key, element, raw = request.args
    delta = integer(raw)
    if delta is None:
        batch.plan.answer_with(request, NOT_AN_INTEGER)
        return True
    if not may_hold(batch, key, Bag):
        return refused_for_its_type(batch, request)
    before = batch.keyspace.number(key, Bag.type, element)
    if before is None:
        return False
    assert isinstance(before, int)
    batch.increase(key, Bag.type, element, delta)
    batch.plan.answer_with(request, before + delta)
    return True


_COUNTS, _REMOVES = (Opcode.INC, Bag.type), (Opcode.KILL_SLOTS, Bag.type)
LEVELS = {_COUNTS: effects.READS.highest, _REMOVES: effects.READS.highest}
COMMANDS = (
    WriteCommand("BAGADD", 4, (_COUNTS,), bagadd, slots=slice(2, 3), grows=True),
    WriteCommand("BAGREM", -3, (_REMOVES,), removes(Bag)),
)


def become_toy() -> None:
    """Let this process be the program that knows the type."""
    register(Bag)
    effects.LEVELS = MappingProxyType({**effects.LEVELS, **LEVELS})
    commands.register(*COMMANDS)


if __name__ == "__main__":
    become_toy()
    from crdtcast.cli import main

    sys.argv[0] = "crdtcast"
    sys.exit(main())
