"""INCR and the like (rule H3): a delta is sent, never a value; every delta that no DEL has seen counts exactly."""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import (
    DECREMENT_OVERFLOW,
    NOT_AN_INTEGER,
    OVERFLOW,
    WRONG_TYPE,
)
from crdtcast.adapters.redis.commands.write_command import Derive, WriteCommand
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.store.effects import WHOLE, Effect, Inc, Opcode
from crdtcast.adapters.redis.store.keyspace import INT64_MAX, INT64_MIN
from crdtcast.adapters.redis.store.slot_value import Figures
from crdtcast.adapters.redis.types.native import NOTHING, Holds
from crdtcast.adapters.redis.types.strings import String


def _increment(batch: LocalBatch, request: Answerable, delta: int) -> bool:
    key = request.args[1]
    known = batch.keyspace.known(key)
    if known is NOTHING:
        known = 0
    if not isinstance(known, int):
        if isinstance(known, Holds) and not known.is_sure:
            return False  # the server must be asked whether it is empty
        is_text = known is String.here or isinstance(known, Figures)
        batch.plan.answer_with(request, NOT_AN_INTEGER if is_text else WRONG_TYPE)
    elif not INT64_MIN <= known + delta <= INT64_MAX:
        # A number beyond 64 bits, which comes from merging or a text, is not a number for a server.
        beyond = not INT64_MIN <= known <= INT64_MAX
        batch.plan.answer_with(request, NOT_AN_INTEGER if beyond else OVERFLOW)
    else:
        batch.increment(key, delta)
        batch.plan.answer_with(request, known + delta)
    return True


def incr(batch: LocalBatch, request: Answerable) -> bool:
    """INCR key"""
    return _increment(batch, request, 1)


def decr(batch: LocalBatch, request: Answerable) -> bool:
    """DECR key"""
    return _increment(batch, request, -1)


def incrby(batch: LocalBatch, request: Answerable) -> bool:
    """INCRBY key delta"""
    amount = integer(request.args[2])
    if amount is None:
        batch.plan.answer_with(request, NOT_AN_INTEGER)
        return True
    return _increment(batch, request, amount)


def decrby(batch: LocalBatch, request: Answerable) -> bool:
    """DECRBY key delta"""
    amount = integer(request.args[2])
    if amount is None or amount == INT64_MIN:
        batch.plan.answer_with(request, NOT_AN_INTEGER if amount is None else DECREMENT_OVERFLOW)
        return True
    return _increment(batch, request, -amount)


def _counted(sign: int) -> Derive:
    def derive(args: Sequence[bytes], _reply: int, _before: None) -> Sequence[Effect]:
        amount = int(args[2]) if len(args) > 2 else 1
        return (Inc(args[1], String.type, WHOLE, sign * amount),)

    return derive


def _look(args: Sequence[bytes]) -> ServerLook:
    return ServerLook(exact=(b"GET", args[1]))


COMMANDS = tuple(
    WriteCommand(
        name,
        arity,
        ((Opcode.INC, String.type),),
        plain,
        grows=True,
        derive=_counted(sign),
        looks_at=_look,
    )
    for name, arity, plain, sign in (
        ("INCR", 2, incr, 1),
        ("DECR", 2, decr, -1),
        ("INCRBY", 3, incrby, 1),
        ("DECRBY", 3, decrby, -1),
    )
)
