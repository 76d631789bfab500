"""Stands for a later version of the gateway: one effect more, of the next format level, and the command that
writes it.

    python later_program.py gateway …
    python later_program.py broken gateway …    sends the new effect in level 1, which nobody may

`SADDLATER key member …` adds set members by the new effect. All else is what today's program does.
"""

import sys
from types import MappingProxyType
from typing import Any

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.commands import register
from crdtcast.adapters.redis.commands.write_command import WriteCommand
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.effects import Effect, One, RedisType
from crdtcast.adapters.redis.store.many_slots import Unfolding
from crdtcast.engine import Span

LATER = 99
LEVEL = effects.READS.highest + 1


class Later(One):
    """Presence of set members, as `One`; older programs cannot read it."""

    __slots__ = ()


def encode(effect: Effect) -> list[Any]:
    return [LATER, *effects.ROWS[One](effect)[1:]]


def decode(row: list[Any], unfolding: list[Unfolding]) -> Effect:
    match row:
        case [99, bytes(key), RedisType.SET, list(slots)]:
            return Later(key, RedisType.SET, tuple(slots))
    raise ValueError(f"unknown effect {row!r:.80}")


def sadd_later(batch: LocalBatch, request: Request) -> bool:
    key, members = request.args[1], request.args[2:]
    batch._count(len(members), sum(map(len, members)))
    batch._seal(key)
    place = len(batch._effects)
    batch._effects.append(Later(key, RedisType.SET, tuple(members)))
    position = batch.keyspace.add(key, RedisType.SET, members, batch.tag, place, batch.plan)
    batch.plan.answer_from(request, [position])
    return True


def become_later(level_of_it: int = LEVEL) -> None:
    """Let this process be the later program; level_of_it: the format level that has brought its effect in."""
    global LEVEL
    LEVEL = level_of_it
    effects.READERS = MappingProxyType({**effects.READERS, LATER: decode})
    effects.ROWS = MappingProxyType({**effects.ROWS, Later: encode})
    effects.LEVELS = MappingProxyType({**effects.LEVELS, (LATER, RedisType.SET): LEVEL})  # type: ignore[dict-item]
    effects.READS = Span(1, max(effects.READS.highest, LEVEL))
    sends = ((LATER, RedisType.SET),)
    register(WriteCommand("SADDLATER", -3, sends, sadd_later))  # type: ignore[arg-type]


if __name__ == "__main__":
    become_later(1 if sys.argv[1] == "broken" else LEVEL)
    if sys.argv[1] == "broken":
        del sys.argv[1]
    from crdtcast.cli import main

    sys.argv[0] = "crdtcast"
    sys.exit(main())
