"""Writes on whole strings (rules H2, H7): what the key held before goes, of every type, as far as it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commands.errors import wrong_arity
from crdtcast.adapters.redis.commands.write_command import WHOLE_KEY, WriteCommand
from crdtcast.adapters.redis.effects import Opcode
from crdtcast.adapters.redis.large_request import size_of
from crdtcast.adapters.redis.resp import OK, ReplyError
from crdtcast.adapters.redis.types.strings import String

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.front import Request

_WITH_OPTIONS = ReplyError(
    "ERR crdtcast: SET with options is not replicated yet; nothing was written: use SET key value"
)


def set_(batch: LocalBatch, request: Request) -> bool:
    """SET key value"""
    args = request.args
    if len(args) > 3:
        batch.plan.answer_with(request, _WITH_OPTIONS)
        return True
    batch.assign(args[1], args[2])
    batch.plan.answer_with(request, OK)
    return True


def mset(batch: LocalBatch, request: Request) -> bool:
    """MSET key value [key value …]: at one instant in every region."""
    args = request.args
    if not len(args) % 2:
        batch.plan.answer_with(request, wrong_arity(request))
        return True
    with batch.undivided(len(args) - 1, size_of(args)):
        for key, value in zip(args[1::2], args[2::2], strict=True):
            batch.assign(key, value)
    batch.plan.answer_with(request, OK)
    return True


_SENDS = (WHOLE_KEY, (Opcode.REG, String.type))
COMMANDS = (
    WriteCommand("SET", -3, _SENDS, set_, grows=True),
    WriteCommand("MSET", -3, _SENDS, mset, keys=(1, -1, 2), grows=True),
)
