"""Error replies in the server's own words, so that clients take them for what they know."""

from crdtcast.adapters.redis.resp import ReplyError

WRONG_TYPE = ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
NOT_AN_INTEGER = ReplyError("ERR value is not an integer or out of range")
OVERFLOW = ReplyError("ERR increment or decrement would overflow")
DECREMENT_OVERFLOW = ReplyError("ERR decrement would overflow")
