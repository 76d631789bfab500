"""Deadlines of keys (rule H6): absolute, by the server's clock at the instant of the write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from crdtcast.adapters.redis.commands.arguments import (
    MILLISECONDS,
    SECONDS,
    UNITS,
    Timed,
    deadline_of,
    option_of,
)
from crdtcast.adapters.redis.commands.errors import SYNTAX, WRONG_TYPE
from crdtcast.adapters.redis.commands.write_command import (
    DEADLINE,
    WHOLE_KEY,
    Plain,
    WriteCommand,
)
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable, Expect
from crdtcast.adapters.redis.deadlines.index import pinned, unpinned
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    Effect,
    KillKey,
    Until,
)
from crdtcast.adapters.redis.store.slot_value import Only
from crdtcast.adapters.redis.types.native import NOTHING, Holds
from crdtcast.adapters.redis.types.strings import String

Args: TypeAlias = Sequence[bytes]

_NX_AND_OTHERS = ReplyError("ERR NX and XX, GT or LT options at the same time are not compatible")
_OVER = b"1"
"""A deadline that is over at any time: it removes the key at once."""
_GT_AND_LT = ReplyError("ERR GT and LT options at the same time are not compatible")


def _is_unsure(batch: LocalBatch, key: bytes) -> bool:
    known = batch.keyspace.types[key]
    return isinstance(known, Holds) and not known.is_sure


# EXPIRE and the like


def _conditions(words: Args) -> set[bytes] | ReplyError:
    conditions = {word.upper() for word in words}
    for word in words:
        if word.upper() not in (b"NX", b"XX", b"GT", b"LT"):
            return ReplyError(b"ERR Unsupported option %b" % word[:128])
    if b"NX" in conditions and len(conditions) > 1:
        return _NX_AND_OTHERS
    return _GT_AND_LT if {b"GT", b"LT"} <= conditions else conditions


def _allow(conditions: set[bytes], before: int, at: int) -> bool:
    has_deadline = before != NEVER
    return not (
        (b"NX" in conditions and has_deadline)
        or (b"XX" in conditions and not has_deadline)
        or (b"GT" in conditions and at <= before)
        or (b"LT" in conditions and at >= before)
    )


def _only(conditions: set[bytes]) -> Only:
    if b"GT" in conditions:
        return Only.GREATER
    return Only.LESS if b"LT" in conditions else Only.ALWAYS


def _expiring(unit: int, *, is_relative: bool) -> Plain:
    def expire(batch: LocalBatch, request: Answerable) -> bool:
        key, plan, dates = request.args[1], batch.plan, batch.keyspace.dates
        batch.show((key,))
        now = dates.now
        at = deadline_of(request.args[2], unit, now if is_relative else 0, request.command.name)
        conditions = _conditions(request.args[3:])
        if isinstance(conditions, ReplyError) or isinstance(at, ReplyError):
            plan.answer_with(request, conditions if isinstance(conditions, ReplyError) else at)
        elif _is_unsure(batch, key):
            return False
        elif batch.keyspace.types[key] is NOTHING or not _allow(conditions, dates.at(key), at):
            plan.answer_with(request, 0)
        else:
            if at <= now:
                batch.kill_key(key)
            else:
                batch.until(key, at, _only(conditions))
            plan.answer_with(request, 1)
        return True

    return expire


def _timed_expiring(unit: int, *, is_relative: bool) -> Timed:
    def timed(args: Args, now: int) -> Sequence[bytes] | ReplyError:
        name = args[0].decode(errors="replace")
        conditions = _conditions(args[3:])
        if isinstance(conditions, ReplyError):
            return conditions
        at = deadline_of(args[2], unit, now if is_relative else 0, name)
        if isinstance(at, ReplyError):
            return at
        if at <= now and not conditions:
            return [b"DEL", args[1]]
        return [b"PEXPIREAT", args[1], b"%d" % at if at > now else _OVER, *args[3:]]

    return timed


def _expired(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    conditions = _conditions(args[3:])
    if not reply or isinstance(conditions, ReplyError):
        return ()
    if args[2] == _OVER:
        return (KillKey(args[1]),)
    return (Until(args[1], int(args[2]), _only(conditions)),)


# PERSIST and GETEX


def persist(batch: LocalBatch, request: Answerable) -> bool:
    """PERSIST key"""
    key, keyspace = request.args[1], batch.keyspace
    batch.show((key,))
    if _is_unsure(batch, key):
        return False
    found = keyspace.types[key] is not NOTHING and keyspace.dates.at(key) != NEVER
    if found:
        batch.until(key, NEVER)
    batch.plan.answer_with(request, int(found))
    return True


def _persisted(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    return (Until(args[1], NEVER),) if reply else ()


def _getex_deadline(args: Args, now: int) -> int | ReplyError | None:
    if len(args) == 2:
        return None
    option = args[2].upper()
    if option in UNITS and len(args) % 2 == 0 and all(a.upper() == option for a in args[2::2]):
        return option_of(args[-2:], now, "GETEX")  # the last one counts
    return NEVER if all(a.upper() == b"PERSIST" for a in args[2:]) else SYNTAX


def getex(batch: LocalBatch, request: Answerable) -> bool:
    """GETEX key [EX seconds | PX milliseconds | EXAT time | PXAT milliseconds-time | PERSIST]"""
    key, plan, keyspace = request.args[1], batch.plan, batch.keyspace
    batch.show((key,))
    now = keyspace.dates.now
    at = _getex_deadline(request.args, now)
    known = keyspace.types[key]
    if isinstance(at, ReplyError):
        plan.answer_with(request, at)
    elif _is_unsure(batch, key):
        return False
    elif known is NOTHING:
        plan.answer_with(request, None)
    elif isinstance(known, Holds) and known is not String.here:
        plan.answer_with(request, WRONG_TYPE)
    else:
        plan.from_reply.append((request, plan.on_key(key, Expect.ANY, b"GET")))
        if at is not None and at <= now:
            batch.kill_key(key)
        elif at is not None and not (at == NEVER and keyspace.dates.at(key) == NEVER):
            batch.until(key, at)
    return True


def _timed_getex(args: Args, now: int) -> Sequence[bytes] | ReplyError:
    at = _getex_deadline(args, now)
    if isinstance(at, ReplyError):
        return at
    if at is None or at == NEVER:
        return list(args[:3])
    return [args[0], args[1], b"PXAT", b"%d" % pinned(at, now) if at > now else _OVER]


def _got(args: Args, reply: bytes | None, _before: None) -> Sequence[Effect]:
    if reply is None or len(args) == 2:
        return ()
    if args[3:] == [_OVER]:
        return (KillKey(args[1]),)
    return (Until(args[1], NEVER if len(args) == 3 else unpinned(int(args[3]))),)


_EXPIRES = (DEADLINE, WHOLE_KEY)


def _expire_row(name: str, unit: int, *, is_relative: bool) -> WriteCommand:
    return WriteCommand(
        name,
        -3,
        _EXPIRES,
        _expiring(unit, is_relative=is_relative),
        derive=_expired,
        idle=True,
        begins=(),
        timed=_timed_expiring(unit, is_relative=is_relative),
    )


COMMANDS = (
    _expire_row("EXPIRE", SECONDS, is_relative=True),
    _expire_row("PEXPIRE", MILLISECONDS, is_relative=True),
    _expire_row("EXPIREAT", SECONDS, is_relative=False),
    _expire_row("PEXPIREAT", MILLISECONDS, is_relative=False),
    WriteCommand("PERSIST", 2, (DEADLINE,), persist, derive=_persisted, idle=True, begins=()),
    WriteCommand(
        "GETEX", -2, _EXPIRES, getex, derive=_got, idle=True, begins=(), timed=_timed_getex
    ),
)
