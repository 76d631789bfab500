"""INCRBYFLOAT and HINCRBYFLOAT (rule H3): they count exactly, in the same number as INCR. The delta is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crdtcast.adapters.redis.commands.errors import (
    HASH_NOT_A_FLOAT,
    INFINITE,
    NOT_A_FLOAT,
    WOULD_BE_INFINITE,
    WRONG_TYPE,
    may_hold,
    refused_for_its_type,
)
from crdtcast.adapters.redis.commands.write_command import WriteCommand
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import WHOLE, Effect, Inc, Opcode
from crdtcast.adapters.redis.store.slot_numbers import Known
from crdtcast.adapters.redis.store.slot_value import Figures, Number, exact, plain_decimal, text_of
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.native import NOTHING, Holds
from crdtcast.adapters.redis.types.strings import String

_INFINITY = re.compile(rb"[+-]?inf(?:inity)?\Z", re.IGNORECASE)


def _delta(raw: bytes, infinite: ReplyError) -> Number | ReplyError:
    delta = plain_decimal(raw)
    if delta is None:
        return infinite if _INFINITY.fullmatch(raw) else NOT_A_FLOAT
    return delta


def _number(known: Known) -> Number | None:
    """The number before the increment, if it is one."""
    if isinstance(known, Holds):
        return 0 if known is NOTHING else None
    return known if isinstance(known, int) else known.number


def incrbyfloat(batch: LocalBatch, request: Answerable) -> bool:
    """INCRBYFLOAT key delta"""
    _, key, raw = request.args
    known = batch.keyspace.types[key]
    if isinstance(known, Holds) and not known.is_sure:
        return False
    before = _number(known)
    if before is None:
        is_text = known is String.here or isinstance(known, Figures)
        batch.plan.answer_with(request, NOT_A_FLOAT if is_text else WRONG_TYPE)
    elif isinstance(delta := _delta(raw, WOULD_BE_INFINITE), ReplyError):
        batch.plan.answer_with(request, delta)
    else:
        batch.increase(key, String.type, WHOLE, delta)
        batch.plan.answer_with(request, text_of(exact(before + delta)))
    return True


def hincrbyfloat(batch: LocalBatch, request: Answerable) -> bool:
    """HINCRBYFLOAT key field delta"""
    _, key, field, raw = request.args
    delta = _delta(raw, INFINITE)
    if isinstance(delta, ReplyError):
        batch.plan.answer_with(request, delta)
        return True
    if not may_hold(batch, key, Hash):
        return refused_for_its_type(batch, request)
    known = batch.keyspace.number(key, Hash.type, field)
    if known is None:
        return False
    before = _number(known)
    if before is None:
        batch.plan.answer_with(request, HASH_NOT_A_FLOAT)
    else:
        batch.increase(key, Hash.type, field, delta)
        batch.plan.answer_with(request, text_of(exact(before + delta)))
    return True


def _counted(args: Sequence[bytes], _reply: bytes, _before: None) -> Sequence[Effect]:
    delta = plain_decimal(args[2])
    assert delta is not None  # otherwise the server would have refused it
    return (Inc(args[1], String.type, WHOLE, delta),)


def _counted_in_field(args: Sequence[bytes], _reply: bytes, _before: None) -> Sequence[Effect]:
    delta = plain_decimal(args[3])
    assert delta is not None
    return (Inc(args[1], Hash.type, args[2], delta),)


def _refused(args: Sequence[bytes]) -> ReplyError | None:
    delta = _delta(args[3], INFINITE)
    return delta if isinstance(delta, ReplyError) else None


COMMANDS = (
    WriteCommand(
        "INCRBYFLOAT",
        3,
        ((Opcode.INC, String.type), (Opcode.INC_EXACT, String.type)),
        incrbyfloat,
        grows=True,
        derive=_counted,
    ),
    WriteCommand(
        "HINCRBYFLOAT",
        4,
        ((Opcode.INC, Hash.type), (Opcode.INC_EXACT, Hash.type)),
        hincrbyfloat,
        slots=slice(2, 3),
        grows=True,
        derive=_counted_in_field,
        refuses=_refused,
    ),
)
