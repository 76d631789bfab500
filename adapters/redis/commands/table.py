"""One table of all commands: what a command does to keys, and whether it is answered, replicated or refused.

The gateway defines the writes, each a row in its family's file, and the static commands of this file. Reads that pass
through, and writes that are refused by name, come from the server's own `COMMAND` reply, so they fit its version.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from crdtcast.adapters.redis.commands import WRITES, geo
from crdtcast.adapters.redis.commands.refusals import KNOWN, refusal
from crdtcast.adapters.redis.commands.write_command import (
    ALL_KEYS,
    NO_KEY,
    ONE_KEY,
    Keys,
    Plain,
    WriteCommand,
    key_places,
)
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded import exact_scores
from crdtcast.adapters.redis.server.resp import ReplyError, StatusReply
from crdtcast.adapters.redis.store.effects import RedisType

Rewrite: TypeAlias = Callable[[list[bytes]], "list[bytes] | ReplyError"]
MOST_KEYS = 4096
"""Keys that one command removes at once, except inside MULTI: as many as the operations of a message
(`divided_removal`).
"""


class CommandKind(enum.Enum):
    """Who answers a command."""

    READ = "read"  # the server, after the connection's own writes
    WRITE = "write"  # the committer, after its effect is in the server
    PUBSUB = (
        "pubsub"  # the server, in its turn among the writes; the gateway's clients are counted in
    )
    SESSION = "session"  # the gateway alone, at once
    ADMIN = "admin"  # the gateway's administration
    REFUSED = "refused"  # the gateway, with an error: it cannot be replicated


_TELL_DEADLINES = frozenset(("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"))
"""Reads of deadlines, which the server gets only at the end of a commit."""


class Command:
    """One command, or one subcommand (named with a blank, as `OBJECT ENCODING`).

    `arity` counts the name, and is negative for "at least", as in the server's own table. With a number of words in
    `taken`, the command may go to the core without passing the session. `calls` and `rejected` are counted for INFO.
    """

    __slots__ = (
        "arity",
        "asks_plainly",
        "calls",
        "counted_at",
        "counts",
        "counts_in",
        "crosses",
        "denied",
        "draws",
        "flags",
        "forwarded",
        "grows",
        "hides_keys",
        "high",
        "is_list",
        "is_read",
        "is_recorded",
        "keys",
        "kind",
        "level",
        "looks",
        "looks_if_dated",
        "low",
        "name",
        "numbered",
        "prepare",
        "publishes",
        "rejected",
        "removes_keys",
        "removes_slots",
        "rewrite",
        "subcommands",
        "taken",
        "tells_deadline",
        "type",
        "write",
        "writes_one_key",
    )

    def __init__(
        self,
        name: str,
        kind: CommandKind,
        arity: int,
        keys: Keys = NO_KEY,
        flags: Iterable[str] = (),
        write: WriteCommand | None = None,
        rewrite: Rewrite | None = None,
    ) -> None:
        """write: the row of a write. rewrite: for a command that is executed as another one."""
        self.name: str = name
        self.kind: CommandKind = kind
        self.arity: int = arity
        self.low: int = abs(arity)
        self.high: int = arity if arity > 0 else 1 << 62
        self.keys: tuple[int, int, int] = keys
        self.write: WriteCommand | None = write
        self.rewrite: Rewrite | None = rewrite
        self.numbered: int = 0 if write is None else write.numbered
        self.is_recorded: bool = write is not None and write.plain is None
        """Whether the server decides its effects, and the gateway derives them from the reply."""
        self.prepare: Plain = _unprepared if write is None else write.plain or _unprepared
        if kind is CommandKind.PUBSUB:
            self.prepare = _ask_and_count
        self.is_read: bool = kind is CommandKind.READ
        self.publishes: bool = kind is CommandKind.PUBSUB and name.endswith("PUBLISH")
        self.level: int = 0 if write is None else write.level
        """The format level that the group must have reached."""
        self.type: RedisType | None = None if write is None else write.type
        self.looks: bool = write is not None and write.looks
        self.looks_if_dated: Callable[[Sequence[bytes]], bool] = _always
        """Whether its keys must be known first, if keys may have deadlines: not those that it replaces."""
        if write is not None and write.replaces:
            self.looks_if_dated = write.records or _never
        self.asks_plainly: bool = write is not None and _is_plain(write)
        """Whether the server, if it decides the effects, gets the words as they are and looks at nothing else."""
        self.draws: Callable[[Sequence[bytes]], int] | None = None if write is None else write.draws
        """How many slots it takes at random: the commit draws them before."""
        self.removes_slots: bool = write is not None and write.removes_slots
        self.removes_keys: bool = write is not None and write.removes_keys
        self.grows: bool = write is not None and write.grows
        self.counts: bool = write is not None and write.counts
        self.counts_in: RedisType | None = None if write is None else write.counts_in
        self.counted_at: int = 2 if write is None else write.slots.start
        """Position of the slot that it counts."""
        self.is_list: bool = write is not None and write.is_list
        self.writes_one_key: bool = (
            write is not None
            and write.keys == ONE_KEY
            and not write.numbered
            and not self.removes_keys
            and self.counts_in is None
        )
        """Whether it writes one key and needs to know only the key's type."""
        self.flags: frozenset[str] = frozenset(flags)
        self.hides_keys: bool = kind is CommandKind.READ and "movablekeys" in self.flags
        self.crosses: bool = write is not None and write.crosses
        self.forwarded: bool = kind in (CommandKind.READ, CommandKind.WRITE, CommandKind.PUBSUB)
        self.tells_deadline: bool = name in _TELL_DEADLINES
        most = min(self.high, MOST_KEYS + 1) if self.removes_keys else self.high
        is_direct = self.forwarded and not self.crosses and rewrite is None
        self.taken: range = range(self.low, most + 1) if is_direct else range(0)
        self.denied: ReplyError | None = None
        """The server's error if the gateway's user has no permission for it."""
        self.calls: int = 0  # taken since the start
        self.rejected: int = 0  # refused since the start
        self.subcommands: dict[bytes, Command] | None = None

    @classmethod
    def of(cls, row: WriteCommand) -> Command:
        """The command of a write's row."""
        return cls(
            row.name, CommandKind.WRITE, row.arity, row.keys, _flags_of(CommandKind.WRITE), row
        )

    def records(self, args: Sequence[bytes]) -> bool:
        """Whether only the server can decide its effects with these arguments."""
        row = self.write
        return self.is_recorded or bool(row and row.records and row.records(args))

    def __repr__(self) -> str:
        return f"Command({self.name!r}, {self.kind.name}, {self.arity})"

    def keys_of(self, args: Sequence[bytes]) -> Sequence[bytes]:
        """The keys among a command's arguments (which include its name). If a read gives the number of its keys first,
        every argument may be one.
        """
        if self.numbered:
            return [args[place] for place in key_places(self.keys, self.numbered, args)]
        first, last, step = self.keys
        if not first:
            return args[1:] if self.hides_keys else ()
        return args[first : (last + 1 if last >= 0 else len(args) + last + 1) : step]

    def places(self, args: Sequence[bytes]) -> list[int]:
        """The positions of the keys among these arguments; see `keys_of`."""
        if self.hides_keys and not self.keys[0]:
            return list(range(1, len(args)))
        return key_places(self.keys, self.numbered, args)

    def arity_error(self) -> ReplyError:
        """The server's error for a wrong number of arguments."""
        code = "EXECABORT Transaction discarded because of:" if self.name == "EXEC" else "ERR"
        return ReplyError(f"{code} wrong number of arguments for '{self.shown}' command")

    def inside_error(self) -> ReplyError:
        """The server's error for a command that cannot be queued in a transaction."""
        return ReplyError(f"ERR Command '{self.shown}' not allowed inside a transaction")

    @property
    def shown(self) -> str:
        """The name as the server writes it in errors."""
        return self.name.lower().replace(" ", "|")


# name, kind, arity, keys
_STATIC: tuple[tuple[str, CommandKind, int, Keys], ...] = (
    ("SMEMBERS", CommandKind.READ, 2, ONE_KEY),
    ("SISMEMBER", CommandKind.READ, 3, ONE_KEY),
    ("SMISMEMBER", CommandKind.READ, -3, ONE_KEY),
    ("SCARD", CommandKind.READ, 2, ONE_KEY),
    ("GET", CommandKind.READ, 2, ONE_KEY),
    ("EXISTS", CommandKind.READ, -2, ALL_KEYS),
    ("TYPE", CommandKind.READ, 2, ONE_KEY),
    ("SCAN", CommandKind.READ, -2, NO_KEY),
    ("DBSIZE", CommandKind.READ, 1, NO_KEY),
    ("TIME", CommandKind.READ, 1, NO_KEY),
    ("PING", CommandKind.SESSION, -1, NO_KEY),
    ("ECHO", CommandKind.SESSION, 2, NO_KEY),
    ("HELLO", CommandKind.SESSION, -1, NO_KEY),
    ("AUTH", CommandKind.SESSION, -2, NO_KEY),
    ("SELECT", CommandKind.SESSION, 2, NO_KEY),
    ("MULTI", CommandKind.SESSION, 1, NO_KEY),
    ("EXEC", CommandKind.SESSION, 1, NO_KEY),
    ("DISCARD", CommandKind.SESSION, 1, NO_KEY),
    ("UNWATCH", CommandKind.SESSION, 1, NO_KEY),
    ("WAIT", CommandKind.SESSION, 3, NO_KEY),
    ("WATCH", CommandKind.SESSION, -2, ALL_KEYS),
    ("SUBSCRIBE", CommandKind.SESSION, -2, NO_KEY),
    ("UNSUBSCRIBE", CommandKind.SESSION, -1, NO_KEY),
    ("PSUBSCRIBE", CommandKind.SESSION, -2, NO_KEY),
    ("PUNSUBSCRIBE", CommandKind.SESSION, -1, NO_KEY),
    ("PUBLISH", CommandKind.PUBSUB, 3, NO_KEY),
    ("PUBSUB", CommandKind.SESSION, -2, NO_KEY),
    ("QUIT", CommandKind.SESSION, -1, NO_KEY),
    ("RESET", CommandKind.SESSION, 1, NO_KEY),
    ("INFO", CommandKind.SESSION, -1, NO_KEY),
    ("CLIENT", CommandKind.SESSION, -2, NO_KEY),
    ("COMMAND", CommandKind.SESSION, -1, NO_KEY),
    ("CONFIG", CommandKind.SESSION, -2, NO_KEY),
    ("CRDTCAST", CommandKind.ADMIN, -2, NO_KEY),
)

_FLAGS = {"WAIT": ("blocking",)}
"""Of commands whose kind does not tell them."""

_SUBCOMMANDS = {
    "CLIENT": {
        "ID": 2,
        "GETNAME": 2,
        "SETNAME": 3,
        "SETINFO": 4,
        "LIST": -2,
        "INFO": 2,
        "NO-EVICT": 3,
        "NO-TOUCH": 3,
        "REPLY": 3,
        "UNBLOCK": -3,
    },
    "COMMAND": {
        "COUNT": 2,
        "DOCS": -2,
        "INFO": -2,
        "LIST": -2,
        "GETKEYS": -3,
        "GETKEYSANDFLAGS": -3,
    },
    "CONFIG": {"GET": -3},
    "PUBSUB": {"CHANNELS": -2, "NUMPAT": 2, "NUMSUB": -2, "SHARDCHANNELS": -2, "SHARDNUMSUB": -2},
}

_KINDS = {
    **dict.fromkeys(("PUBSUB CHANNELS", "PUBSUB NUMPAT", "PUBSUB SHARDCHANNELS"), CommandKind.READ),
    **dict.fromkeys(("PUBSUB NUMSUB", "PUBSUB SHARDNUMSUB"), CommandKind.PUBSUB),
}
"""Kinds of subcommands that the session does not answer."""

_IF_THE_SERVER_HAS_IT = {
    **dict.fromkeys(("SSUBSCRIBE", "SUNSUBSCRIBE"), CommandKind.SESSION),
    "SPUBLISH": CommandKind.PUBSUB,
}

_REWRITTEN: dict[str, tuple[int, Rewrite]] = geo.REWRITTEN
"""Arity, and the words of another command that does the same, or the server's error."""

# Refused even before the server's own table is known.
_REFUSED_SUBCOMMANDS = {
    "CLIENT": ("KILL", "PAUSE", "UNPAUSE", "TRACKING"),
    "CONFIG": ("SET", "REWRITE", "RESETSTAT"),
}

# A read with one of these does more than read: it blocks, runs code, changes the connection or
# another server.
_NOT_A_PLAIN_READ = frozenset(
    ("write", "blocking", "pubsub", "admin", "noscript", "may_replicate", "asking")
)

# Commands that the server does not queue in a transaction: newer ones refuse MULTI and WATCH by it.
_NO_MULTI = frozenset(("no_multi",))

# Readonly by its flags, but it stores its count inside the value.
_WRITES_ASIDE = frozenset(("PFCOUNT",))


class Table:
    """Commands by name. `by_name` serves the hot path: names in upper and lower case, as bytes."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Command] = {}
        self._every: list[Command] = []
        for row in WRITES.values():
            self._add(Command.of(row))
        for name, kind, arity, keys in _STATIC:
            self._add(Command(name, kind, arity, keys, _FLAGS.get(name) or _flags_of(kind)))
        for name, (arity, rewrite) in _REWRITTEN.items():
            self._add(Command(name, CommandKind.WRITE, arity, ONE_KEY, ("write",), rewrite=rewrite))
        for container, subcommands in _SUBCOMMANDS.items():
            self.by_name[container.encode()].subcommands = {
                name.encode(): Command(full, _KINDS.get(full, CommandKind.SESSION), arity)
                for name, arity in subcommands.items()
                for full in (f"{container} {name}",)
            } | {
                name.encode(): Command(f"{container} {name}", CommandKind.REFUSED, -2)
                for name in _REFUSED_SUBCOMMANDS.get(container, ())
            }
        for name in KNOWN - _STATIC_NAMES - _REWRITTEN.keys() - WRITES.keys():
            self._add(Command(name, CommandKind.REFUSED, -1, flags=("write",)))

    def _add(self, command: Command) -> None:
        self.by_name[command.name.encode()] = command
        self.by_name[command.name.lower().encode()] = command

    def get(self, name: str) -> Command:
        """A command by its name. Raises KeyError if it does not exist."""
        return self.by_name[name.upper().encode()]

    def take_none_directly(self) -> None:
        """Let all requests pass the session, which looks at their keys."""
        for command in self.by_name.values():
            command.taken = range(0)

    def extend_from_server(self, reply: Iterable[Sequence[Any]]) -> None:
        """Learn the server's commands from its reply to `COMMAND`, as hiredis gives it. Later replies replace earlier.

        Commands that only read pass through. All others that the gateway does not know are refused by name.
        """
        for row in reply:
            name = _text(row[0]).upper()
            known = self.by_name.get(name.encode())
            if known is not None and known.kind not in (CommandKind.REFUSED, CommandKind.READ):
                known.flags |= _NO_MULTI & frozenset(map(_text, row[2]))
                self._refuse_other_subcommands(known, row)
                continue
            if known is not None and name in _STATIC_NAMES:
                known.flags = frozenset(map(_text, row[2]))
                continue
            command = _from_server(name, row)
            if known is not None:
                command.calls, command.rejected = known.calls, known.rejected
            if len(row) > 9 and row[9]:
                command.subcommands = {
                    _text(sub[0]).upper().encode().partition(b"|")[2]: _from_server(
                        _text(sub[0]).upper().replace("|", " "), sub
                    )
                    for sub in row[9]
                }
            self._add(command)
        self._every.clear()

    def _refuse_other_subcommands(self, container: Command, row: Sequence[Any]) -> None:
        if container.subcommands is None or len(row) <= 9:
            return
        for sub in row[9]:
            name = _text(sub[0]).upper()
            container.subcommands.setdefault(
                name.encode().partition(b"|")[2],
                Command(name.replace("|", " "), CommandKind.REFUSED, int(sub[1])),
            )

    def resolve(self, args: Sequence[bytes]) -> Command | ReplyError:
        """The command or subcommand that these arguments call, or the server's error."""
        command = self.by_name.get(args[0].upper())
        if command is None:
            return unknown_command(args)
        if command.subcommands is not None:
            if len(args) > 1:
                subcommand = command.subcommands.get(args[1].upper())
                if subcommand is None:
                    return ReplyError(
                        b"ERR unknown subcommand '%b'. Try %b HELP."
                        % (args[1][:128], command.name.encode())
                    )
                command = subcommand
            elif command.arity != -1:
                return command.arity_error()
        if not command.low <= len(args) <= command.high:
            return command.arity_error()
        return command

    def refusal_of(self, command: Command) -> ReplyError:
        """Why a refused command is refused, and what to use instead."""
        return ReplyError(refusal(command.name, writes="write" in command.flags))

    def commands(self) -> Sequence[Command]:
        """Every command and subcommand, each once. Their calls are added up each second."""
        if not self._every:
            for command in {id(command): command for command in self.by_name.values()}.values():
                self._every += [command, *(command.subcommands or {}).values()]
        return self._every

    def supported(self) -> list[Command]:
        """All commands that are not refused, by name."""
        return sorted(
            {c for c in self.by_name.values() if _is_supported(c)}, key=lambda command: command.name
        )


_STATIC_NAMES = frozenset(row[0] for row in _STATIC)


def describe(command: Command) -> list[object]:
    """One row of the reply to `COMMAND`, in the server's format."""
    subcommands = (command.subcommands or {}).values()
    return [
        command.name.lower().replace(" ", "|").encode(),
        command.arity,
        frozenset(StatusReply(flag.encode()) for flag in command.flags),
        *command.keys,
        frozenset[StatusReply](),  # ACL categories
        [],  # tips
        [],  # key specifications
        [describe(sub) for sub in subcommands if sub.kind is not CommandKind.REFUSED],
    ]


def unknown_command(args: Sequence[bytes]) -> ReplyError:
    """The server's text for a name that it does not know."""
    shown = b""
    for arg in args[1:]:
        if len(shown) >= 128:
            break
        shown += b"'%b' " % arg[: 128 - len(shown)]
    return ReplyError(
        b"ERR unknown command '%b', with args beginning with: %b" % (args[0][:128], shown)
    )


def _ask_and_count(batch: LocalBatch, request: Answerable) -> bool:
    batch.plan.count(request)
    return True


def _is_plain(row: WriteCommand) -> bool:
    has_more = (
        row.flushes or row.crosses or row.replaces or row.looks_at or row.timed or row.refuses
    )
    return not has_more and row.name not in exact_scores.COMMANDS


def _always(args: Sequence[bytes]) -> bool:
    return True


def _never(args: Sequence[bytes]) -> bool:
    return False


def _unprepared(batch: LocalBatch, request: Answerable) -> bool:
    """Only the server can decide its effects."""
    return False


def _from_server(name: str, row: Sequence[Any]) -> Command:
    flags = frozenset(map(_text, row[2]))
    if (kind := _IF_THE_SERVER_HAS_IT.get(name)) is not None:
        return Command(name, kind, int(row[1]), NO_KEY, flags)
    reads = "readonly" in flags and not flags & _NOT_A_PLAIN_READ and name not in _WRITES_ASIDE
    keys = (int(row[3]), int(row[4]), int(row[5]))
    return Command(
        name, CommandKind.READ if reads else CommandKind.REFUSED, int(row[1]), keys, flags
    )


def _flags_of(kind: CommandKind) -> tuple[str, ...]:
    return {CommandKind.WRITE: ("write", "fast"), CommandKind.READ: ("readonly",)}.get(
        kind, ("fast",)
    )


def _is_supported(command: Command) -> bool:
    if command.subcommands is None:
        return command.kind is not CommandKind.REFUSED
    return any(sub.kind is not CommandKind.REFUSED for sub in command.subcommands.values())


@cache  # a few hundred words, thousands of times at each start
def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
