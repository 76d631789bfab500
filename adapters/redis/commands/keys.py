"""Writes on whole keys: DEL and UNLINK, an observed delete of every type under the key (rules H1, H7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from crdtcast.adapters.redis.commands.errors import SYNTAX
from crdtcast.adapters.redis.commands.write_command import (
    ALL_KEYS,
    NEW_KEY,
    NEW_TEXT,
    NO_KEY,
    WHOLE_KEY,
    WriteCommand,
)
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.deadlines.index import unpinned
from crdtcast.adapters.redis.recorded.record import ServerLook
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.databases import db_of
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    KillAll,
    KillKey,
    One,
    Opcode,
    RedisType,
    Reg,
    Replace,
    pairs_of,
)
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.strings import String

Args: TypeAlias = Sequence[bytes]


def delete(batch: LocalBatch, request: Answerable) -> bool:
    """DEL key [key …]: removes what this replica has seen; a concurrent add or increment elsewhere survives."""
    positions = [
        batch.kill_key(key) for key in request.args[1:] if batch.keyspace.known(key) is not NOTHING
    ]
    batch.plan.answer_from(request, positions)
    return True


def _deleted(args: Args, reply: int, _before: None) -> Sequence[Effect]:
    return [KillKey(key) for key in args[1:]] if reply else ()


def _copied(key: bytes, before: tuple[bytes, Any, bytes, Args]) -> Sequence[Effect]:
    """The effects that give a key this value and deadline. Sent by value, because another region may have another value
    by then.
    """
    kind, value, until, *exact = before
    native, at = BY_NAME[kind], NEVER if int(until) < 0 else unpinned(int(until))
    content = dict(native.content(value) or {})
    for slot, worth in pairs_of(*exact).items() if exact else ():
        if content.get(slot) == native.shown(worth):
            content[slot] = worth
    if native is String:
        return (Assign(key, content[WHOLE], at),)
    begun = Replace(key, at)
    if not native.valued:
        return begun, One(key, native.type, tuple(content))
    return begun, Reg(key, native.type, tuple(chain.from_iterable(content.items())))


def _renamed(args: Args, reply: bytes | int, before: Any) -> Sequence[Effect]:
    source, target = args[1:3]
    if not reply or source == target or before is None:
        return ()
    return KillKey(source), *_copied(target, before)


def _duplicated(args: Args, reply: int, before: Any) -> Sequence[Effect]:
    return _copied(args[2], before) if reply and before is not None else ()


def _moved(args: Args, reply: int, before: Any) -> Sequence[Effect]:
    """args: with the target's name in place of the database."""
    if not reply or before is None:
        return ()
    return KillKey(args[1]), *_copied(args[2], before)


def _wrong_options(args: Args) -> ReplyError | None:
    """The error for wrong options; a DB is already part of a name (`names`)."""
    options = [word.upper() for word in args[3:]]
    while b"DB" in options:
        at = options.index(b"DB")
        del options[at : at + 2]
    return None if set(options) <= {b"REPLACE"} else SYNTAX


def _look(args: Args) -> ServerLook:
    return ServerLook(before=(b"VALUE", args[1]), weighs=(args[1],))


def _flushed(args: Args, _reply: bytes, _before: None) -> Sequence[Effect]:
    """args: with the name of an empty key in the database."""
    if args[0] == b"FLUSHALL":
        return (KillAll(None),)
    return (KillAll(db_of(args[1])),)


def _refused_flush(args: Args) -> ReplyError | None:
    is_known = len(args) == 1 or (len(args) == 2 and args[1].upper() in (b"ASYNC", b"SYNC"))
    return None if is_known else SYNTAX


_COPIES = (
    WHOLE_KEY,
    NEW_KEY,
    NEW_TEXT,
    (Opcode.ONE, RedisType.SET),
    (Opcode.REG, RedisType.HASH),
)
_FROM_TO = partial(WriteCommand, keys=(1, 2, 1), looks_at=_look, begins=(2,))
COMMANDS = (
    *(
        WriteCommand(
            name,
            -2,
            (WHOLE_KEY,),
            delete,
            keys=ALL_KEYS,
            derive=_deleted,
            divides=1,
            idle=True,
            begins=(),
        )
        for name in ("DEL", "UNLINK")
    ),
    *(
        WriteCommand(
            name,
            -1,
            ((Opcode.KILL_ALL, None),),
            keys=NO_KEY,
            derive=_flushed,
            begins=(),
            flushes=True,
            refuses=_refused_flush,
        )
        for name in ("FLUSHDB", "FLUSHALL")
    ),
    _FROM_TO("RENAME", 3, _COPIES, derive=_renamed),
    _FROM_TO("RENAMENX", 3, _COPIES, derive=_renamed, idle=True),
    _FROM_TO(
        "COPY",
        -3,
        _COPIES,
        grows=True,
        derive=_duplicated,
        idle=True,
        refuses=_wrong_options,
        crosses=True,
    ),
    WriteCommand(
        "MOVE",
        3,
        _COPIES,
        keys=(1, 2, 1),
        looks_at=_look,
        begins=(),
        derive=_moved,
        idle=True,
        crosses=True,
    ),
)
