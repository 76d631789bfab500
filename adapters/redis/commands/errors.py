"""Error replies in the server's own words, so that clients recognise them; and whether a key has the right type."""

from __future__ import annotations

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.types.native import NOTHING, Holds, NativeType

WRONG_TYPE = ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
NOT_AN_INTEGER = ReplyError("ERR value is not an integer or out of range")
HASH_NOT_AN_INTEGER = ReplyError("ERR hash value is not an integer")
NOT_A_FLOAT = ReplyError("ERR value is not a valid float")
HASH_NOT_A_FLOAT = ReplyError("ERR hash value is not a float")
INFINITE = ReplyError("ERR value is NaN or Infinity")
WOULD_BE_INFINITE = ReplyError("ERR increment would produce NaN or Infinity")
OVERFLOW = ReplyError("ERR increment or decrement would overflow")
DECREMENT_OVERFLOW = ReplyError("ERR decrement would overflow")
SYNTAX = ReplyError("ERR syntax error")


def wrong_arity(request: Answerable) -> ReplyError:
    """The error for a number of arguments that only the command itself finds wrong."""
    return ReplyError(f"ERR wrong number of arguments for '{request.command.shown}' command")


def may_hold(batch: LocalBatch, key: bytes, native: type[NativeType]) -> bool:
    """Whether the key, which was looked up, holds this type or nothing."""
    known = batch.keyspace.types[key]
    return known is native.here or known is NOTHING or known is native.perhaps


def refused_for_its_type(batch: LocalBatch, request: Answerable) -> bool:
    """Refuse a write whose key holds another type. Returns False if the server must be asked first: the key may be
    empty.
    """
    known = batch.keyspace.types[request.args[1]]
    if isinstance(known, Holds) and not known.is_sure:
        return False
    batch.plan.answer_with(request, WRONG_TYPE)
    return True
