"""The rights that a gateway needs at its server, checked before it uses any of them.

A server checks rights when it queues a command in MULTI, and DISCARD drops the queue: so a try leaves no trace.
Commands that cannot be queued are tried before that: they have no effect by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.commands import WRITES
from crdtcast.adapters.redis.commands.table import CommandKind, Table
from crdtcast.adapters.redis.commands.write_command import NO_KEY
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.exceptions import ConfigurationError

_KEY = "crdtcast:rights"
_QUEUED: tuple[Words, ...] = (
    # Commands that write and read values and metadata, and those of every new connection.
    *((name, _KEY, "0") for name in ("SADD", "SREM", "INCRBY", "SET", "HDEL", "EXPIRE")),
    *(
        (name, _KEY)
        for name in ("GET", "MGET", "DEL", "UNLINK", "TYPE", "PTTL", "SMEMBERS", "SCARD", "HGETALL")
    ),
    ("SISMEMBER", _KEY, "0"),
    ("SMISMEMBER", _KEY, "0"),
    ("SRANDMEMBER", _KEY, "0"),
    ("GETRANGE", _KEY, "0", "0"),
    ("SETRANGE", _KEY, "0", ""),
    ("HGET", _KEY, "f"),
    ("HMGET", _KEY, "f"),
    ("HINCRBY", _KEY, "f", "0"),
    ("HKEYS", _KEY),
    ("EXISTS", _KEY),
    ("PERSIST", _KEY),
    *((name, _KEY, "0") for name in ("PEXPIREAT", "ZREM")),
    ("PEXPIRETIME", _KEY),
    ("TIME",),
    ("ZADD", _KEY, "0", "0"),
    ("ZCARD", _KEY),
    *((name, _KEY, "0") for name in ("ZSCORE", "ZMSCORE", "ZSCAN")),
    *((name, _KEY, "0", "0") for name in ("ZRANGE", "ZRANGEBYSCORE")),
    ("ZRANGEBYLEX", _KEY, "-", "+"),
    *((name, "1", _KEY) for name in ("ZUNION", "ZINTER", "ZDIFF")),
    ("ZMPOP", "1", _KEY, "MIN"),
    ("GEOSEARCH", _KEY, *("FROMMEMBER", "m", "BYRADIUS", "1", "m")),
    ("HLEN", _KEY),
    ("HSCAN", _KEY, "0"),
    ("MEMORY", "USAGE", _KEY),
    ("MOVE", _KEY, "0"),
    ("HSET", _KEY, "f", "v"),
    ("COPY", _KEY, _KEY),
    ("RENAME", _KEY, _KEY),
    ("STRLEN", _KEY),
    ("EVAL", "return 0", "0"),
    ("EVALSHA", "0", "0"),
    ("LRANGE", _KEY, "0", "0"),
    ("RPUSH", _KEY, "0"),
    # Commands that the server executes as clients have sent them.
    *((row.name, *[_KEY] * (abs(row.arity) - 1)) for row in WRITES.values() if row.keys != NO_KEY),
    ("SCAN", "0"),
    ("SSCAN", _KEY, "0"),
    ("DBSIZE",),
    ("PUBLISH", _KEY, "0"),
    *((name, _KEY) for name in ("SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE")),
    ("PUBSUB", "NUMPAT"),
    ("ECHO", "0"),
    ("FLUSHDB",),
    ("SELECT", "0"),
    ("INFO",),
    ("COMMAND",),
    ("CONFIG", "GET", "appendonly"),
)
_OUTSIDE: tuple[Words, ...] = (
    ("EXEC",),
    ("WATCH", _KEY),
    ("HELLO",),
    ("WAITAOF", "0", "0", "0"),
    ("MULTI",),
    ("DISCARD",),
)
"""Only errors in `_REFUSALS` count: EXEC fails without MULTI, and an old server does not know WAITAOF."""
_REFUSALS = ("NOPERM", "EXECABORT Transaction discarded because of: NOPERM")


async def check_rights(server: ServerConnection) -> None:
    """Raises ConfigurationError, with the command that helps, if the user lacks a right that a gateway needs."""
    refused = await _refused(server, _OUTSIDE)
    if "MULTI" not in refused and "DISCARD" not in refused:  # else the server would execute them
        tried = [("MULTI",), *_QUEUED, ("DISCARD",)]
        refused += await _refused(server, tried)
    if not refused:
        return
    user = server.address.username or "default"
    rights = " ".join(f"+{name.lower()}" for name in refused)
    raise ConfigurationError(
        f"user {user!r} at the server lacks rights that the gateway needs: {', '.join(refused)}: "
        f"run at the server: ACL SETUSER {user} {rights} ~* &*; docs/redis.md lists all of them"
    )


async def note_denied(server: ServerConnection, table: Table) -> None:
    """Note the commands for the server that the gateway's user may not use: one would make a whole commit fail."""
    passed = [
        command
        for command in table.commands()
        if command.kind in (CommandKind.READ, CommandKind.PUBSUB) and command.subcommands is None
    ]
    tried = [_words_of(command.name, command.low) for command in passed]
    _, *replies, _ = await server.call([("MULTI",), *tried, ("DISCARD",)])
    for command, reply in zip(passed, replies, strict=True):
        is_denied = str(reply).startswith(_REFUSALS)
        command.denied = ReplyError(str(reply)) if is_denied else None


def _words_of(name: str, count: int) -> list[str]:
    words = name.split()
    return words + [_KEY] * (count - len(words))


async def _refused(server: ServerConnection, commands: Sequence[Words]) -> list[str]:
    """Names of the commands that the server's user may not use."""
    replies = await server.call(commands)
    tried = zip(commands, replies, strict=True)
    refused = [str(words[0]) for words, reply in tried if str(reply).startswith(_REFUSALS)]
    return list(dict.fromkeys(refused))
