"""The rights that a gateway needs at its server, checked before it uses any of them.

A server checks rights when a command is queued in MULTI, and DISCARD forgets it, so each is tried without a trace.
"""

from __future__ import annotations

from crdtcast.adapters.redis.server import ServerConnection, Words
from crdtcast.exceptions import ConfigurationError

_KEY = "crdtcast:rights"
_TRIED: tuple[Words, ...] = (
    # What values and metadata are written and read with, and what is asked at every connection.
    *((name, _KEY, "0") for name in ("SADD", "SREM", "INCRBY", "SET", "HDEL", "EXPIRE")),
    *(
        (name, _KEY)
        for name in ("GET", "MGET", "DEL", "UNLINK", "TYPE", "PTTL", "SMEMBERS", "SCARD", "HGETALL")
    ),
    ("SMISMEMBER", _KEY, "0"),
    ("SMOVE", _KEY, _KEY, "0"),
    ("MOVE", _KEY, "0"),
    ("HSET", _KEY, "f", "v"),
    ("COPY", _KEY, _KEY),
    ("SCAN", "0"),
    ("SSCAN", _KEY, "0"),
    ("DBSIZE",),
    ("ECHO", "0"),
    ("FLUSHDB",),
    ("SELECT", "0"),
    ("INFO",),
    ("COMMAND",),
    ("CONFIG", "GET", "appendonly"),
)
_ALLOWED = "+multi +exec +discard +watch +hello +waitaof"
"""What cannot be tried like that: it is needed as well."""


async def check_rights(server: ServerConnection) -> None:
    """Raises ConfigurationError, in one line with the way out, if the user may not do what a gateway does."""
    begun, *replies, _ = await server.call([("MULTI",), *_TRIED, ("DISCARD",)])
    tried = zip(_TRIED, replies, strict=True)
    refused = [str(words[0]) for words, reply in tried if str(reply).startswith("NOPERM")]
    if str(begun).startswith("NOPERM"):
        refused = ["MULTI", *refused]
    if not refused:
        return
    user = server.address.username or "default"
    rights = " ".join(f"+{name.lower()}" for name in refused)
    raise ConfigurationError(
        f"user {user!r} at the server lacks rights that the gateway needs: {', '.join(refused)}. Say at the server: "
        f"ACL SETUSER {user} {rights} {_ALLOWED} ~* &*; docs/redis.md lists all of them"
    )
