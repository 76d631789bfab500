"""Error replies in the server's own words, so that clients recognise them."""

from __future__ import annotations

from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.server.resp import ReplyError

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
