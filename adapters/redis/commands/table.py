"""One table of all commands: what a command does to keys, and whether it is answered, replicated or
refused.

Static are the commands that the gateway itself gives meaning to. The reads that pass through, and
the writes that are refused by name, come from the server's own `COMMAND` reply, so they fit its
version.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from crdtcast.adapters.redis.commands.refusals import KNOWN, refusal
from crdtcast.adapters.redis.resp import ReplyError, Status

MOST_KEYS = 4096
"""That are removed at once, but inside MULTI: as many as the operations of a message (`divided`)."""


class Kind(enum.Enum):
    """Who answers a command."""

    READ = "read"  # the server, after the connection's own writes
    WRITE = "write"  # the committer, after its effect is in the server
    SESSION = "session"  # the gateway alone, at once
    ADMIN = "admin"  # the gateway's administration
    REFUSED = "refused"  # nobody: it cannot be replicated


class Command:
    """One command, or one subcommand (named with a blank, as `OBJECT ENCODING`).

    `arity` counts the name, and is negative for "at least", as in the server's own table. `keys`
    are the first key's position, the last one's (negative: from the end) and the step; all 0
    without keys. `type` is the data type that a write implies: "any" of one that removes whole keys. `taken`
    holds the numbers of words with which it may go to the core without the session's look. `calls` and `rejected` are
    counted for INFO.
    """

    __slots__ = (
        "arity",
        "calls",
        "flags",
        "forwarded",
        "high",
        "keys",
        "kind",
        "level",
        "looks",
        "low",
        "name",
        "prepare",
        "rejected",
        "removes_keys",
        "subcommands",
        "taken",
        "type",
        "writes_one_key",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        arity: int,
        keys: tuple[int, int, int] = (0, 0, 0),
        type: str | None = None,
        flags: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.arity = arity
        self.low = abs(arity)
        self.high = arity if arity > 0 else 1 << 62
        self.keys = keys
        self.type = type
        self.looks = type not in (None, "any", "string")  # it has to know what its key holds
        self.removes_keys = kind is Kind.WRITE and type == "any"
        self.writes_one_key = False  # and every format level has all that it may send
        self.flags = frozenset(flags)
        self.forwarded = kind in (Kind.READ, Kind.WRITE)
        most = min(self.high, MOST_KEYS + 1) if self.removes_keys else self.high
        self.taken = range(self.low, most + 1) if self.forwarded else range(0)
        self.prepare: Any = None
        self.level = 0  # the format level that the group must have reached
        self.calls = 0  # taken since the start
        self.rejected = 0  # refused since the start
        self.subcommands: dict[bytes, Command] | None = None

    def __repr__(self) -> str:
        return f"Command({self.name!r}, {self.kind.name}, {self.arity})"

    def keys_of(self, args: Sequence[bytes]) -> Sequence[bytes]:
        """The keys among a command's arguments (its name included)."""
        first, last, step = self.keys
        if not first:
            return ()
        return args[first : (last + 1 if last >= 0 else len(args) + last + 1) : step]

    def arity_error(self) -> ReplyError:
        """What the server says to a wrong number of arguments."""
        code = "EXECABORT Transaction discarded because of:" if self.name == "EXEC" else "ERR"
        return ReplyError(f"{code} wrong number of arguments for '{self.shown}' command")

    def inside_error(self) -> ReplyError:
        """What the server says to a command that cannot be queued in a transaction."""
        return ReplyError(f"ERR Command '{self.shown}' not allowed inside a transaction")

    @property
    def shown(self) -> str:
        """The name as the server writes it in errors."""
        return self.name.lower().replace(" ", "|")


_ONE, _ALL = (1, 1, 1), (1, -1, 1)

# name, kind, arity, keys, type
_STATIC: tuple[tuple[str, Kind, int, tuple[int, int, int], str | None], ...] = (
    ("SADD", Kind.WRITE, -3, _ONE, "set"),
    ("SREM", Kind.WRITE, -3, _ONE, "set"),
    ("INCR", Kind.WRITE, 2, _ONE, "counter"),
    ("DECR", Kind.WRITE, 2, _ONE, "counter"),
    ("INCRBY", Kind.WRITE, 3, _ONE, "counter"),
    ("DECRBY", Kind.WRITE, 3, _ONE, "counter"),
    ("DEL", Kind.WRITE, -2, _ALL, "any"),
    ("UNLINK", Kind.WRITE, -2, _ALL, "any"),
    ("SMEMBERS", Kind.READ, 2, _ONE, "set"),
    ("SISMEMBER", Kind.READ, 3, _ONE, "set"),
    ("SMISMEMBER", Kind.READ, -3, _ONE, "set"),
    ("SCARD", Kind.READ, 2, _ONE, "set"),
    ("GET", Kind.READ, 2, _ONE, None),
    ("EXISTS", Kind.READ, -2, _ALL, None),
    ("TYPE", Kind.READ, 2, _ONE, None),
    ("SCAN", Kind.READ, -2, (0, 0, 0), None),
    ("DBSIZE", Kind.READ, 1, (0, 0, 0), None),
    ("TIME", Kind.READ, 1, (0, 0, 0), None),
    ("PING", Kind.SESSION, -1, (0, 0, 0), None),
    ("ECHO", Kind.SESSION, 2, (0, 0, 0), None),
    ("HELLO", Kind.SESSION, -1, (0, 0, 0), None),
    ("AUTH", Kind.SESSION, -2, (0, 0, 0), None),
    ("SELECT", Kind.SESSION, 2, (0, 0, 0), None),
    ("MULTI", Kind.SESSION, 1, (0, 0, 0), None),
    ("EXEC", Kind.SESSION, 1, (0, 0, 0), None),
    ("DISCARD", Kind.SESSION, 1, (0, 0, 0), None),
    ("UNWATCH", Kind.SESSION, 1, (0, 0, 0), None),
    ("WATCH", Kind.REFUSED, -2, _ALL, None),
    ("QUIT", Kind.SESSION, -1, (0, 0, 0), None),
    ("RESET", Kind.SESSION, 1, (0, 0, 0), None),
    ("INFO", Kind.SESSION, -1, (0, 0, 0), None),
    ("CLIENT", Kind.SESSION, -2, (0, 0, 0), None),
    ("COMMAND", Kind.SESSION, -1, (0, 0, 0), None),
    ("CONFIG", Kind.SESSION, -2, (0, 0, 0), None),
    ("CRDTCAST", Kind.ADMIN, -2, (0, 0, 0), None),
)

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
}

# Refused even before a server has told us that it knows them.
_REFUSED_SUBCOMMANDS = {
    "CLIENT": ("KILL", "PAUSE", "UNPAUSE", "TRACKING", "UNBLOCK"),
    "CONFIG": ("SET", "REWRITE", "RESETSTAT"),
}

# A read with one of these does more than read: it blocks, runs code, changes the connection or
# another server.
_NOT_A_PLAIN_READ = frozenset(
    ("write", "blocking", "pubsub", "admin", "noscript", "may_replicate", "asking")
)

# Commands that the server does not queue in a transaction: newer ones refuse MULTI and WATCH by it.
_NO_MULTI = frozenset(("no_multi",))

GROWING = frozenset(("SADD", "INCR", "INCRBY", "DECR", "DECRBY"))
"""Writes that need memory."""

# Readonly by its flags, but it stores what it has counted inside the value.
_WRITES_ASIDE = frozenset(("PFCOUNT",))


class Table:
    """Names to commands. `by_name` serves the hot path: names in capitals and in small letters, as
    bytes.
    """

    def __init__(self) -> None:
        self.by_name: dict[bytes, Command] = {}
        for name, kind, arity, keys, type_ in _STATIC:
            self._add(Command(name, kind, arity, keys, type_, _flags_of(kind)))
        for container, subcommands in _SUBCOMMANDS.items():
            self.by_name[container.encode()].subcommands = {
                name.encode(): Command(f"{container} {name}", Kind.SESSION, arity)
                for name, arity in subcommands.items()
            } | {
                name.encode(): Command(f"{container} {name}", Kind.REFUSED, -2)
                for name in _REFUSED_SUBCOMMANDS.get(container, ())
            }
        for name in KNOWN - _STATIC_NAMES:
            self._add(Command(name, Kind.REFUSED, -1, flags=("write",)))

    def _add(self, command: Command) -> None:
        self.by_name[command.name.encode()] = command
        self.by_name[command.name.lower().encode()] = command

    def get(self, name: str) -> Command:
        """A command by its name; a KeyError if there is none."""
        return self.by_name[name.upper().encode()]

    def register(
        self, name: str, prepare: Callable[..., Any], level: int, *, in_all_levels: bool = False
    ) -> None:
        """Attach what turns this write into effects. level: the format level that has brought in all of them.

        A KeyError unless it is a write.
        """
        command = self.get(name)
        if command.kind is not Kind.WRITE:
            raise KeyError(f"{name} is no write")
        command.prepare = prepare
        command.level = level
        command.writes_one_key = command.looks and in_all_levels

    def extend_from_server(self, reply: Iterable[Sequence[Any]]) -> None:
        """Learn the server's commands from its reply to `COMMAND`, as hiredis gives it. Later
        replies replace earlier.

        What only reads passes through. Everything else that the gateway does not know is refused by
        name.
        """
        for row in reply:
            name = _text(row[0]).upper()
            known = self.by_name.get(name.encode())
            if known is not None and known.kind not in (Kind.REFUSED, Kind.READ):
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

    def _refuse_other_subcommands(self, container: Command, row: Sequence[Any]) -> None:
        if container.subcommands is None or len(row) <= 9:
            return
        for sub in row[9]:
            name = _text(sub[0]).upper()
            container.subcommands.setdefault(
                name.encode().partition(b"|")[2],
                Command(name.replace("|", " "), Kind.REFUSED, int(sub[1])),
            )

    def resolve(self, args: Sequence[bytes]) -> Command | ReplyError:
        """The command or subcommand that these arguments call, or the error that the server would
        give.
        """
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

    def commands(self) -> Iterator[Command]:
        """Every command and subcommand, each once."""
        for command in {id(command): command for command in self.by_name.values()}.values():
            yield command
            yield from (command.subcommands or {}).values()

    def supported(self) -> list[Command]:
        """Everything that is not refused, by name."""
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
        frozenset(Status(flag.encode()) for flag in command.flags),
        *command.keys,
        frozenset[Status](),  # ACL categories
        [],  # tips
        [],  # key specifications
        [describe(sub) for sub in subcommands if sub.kind is not Kind.REFUSED],
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


def _from_server(name: str, row: Sequence[Any]) -> Command:
    flags = frozenset(map(_text, row[2]))
    reads = "readonly" in flags and not flags & _NOT_A_PLAIN_READ and name not in _WRITES_ASIDE
    keys = (int(row[3]), int(row[4]), int(row[5]))
    return Command(name, Kind.READ if reads else Kind.REFUSED, int(row[1]), keys, None, flags)


def _flags_of(kind: Kind) -> tuple[str, ...]:
    return {Kind.WRITE: ("write", "fast"), Kind.READ: ("readonly",)}.get(kind, ("fast",))


def _is_supported(command: Command) -> bool:
    if command.subcommands is None:
        return command.kind is not Kind.REFUSED
    return any(sub.kind is not Kind.REFUSED for sub in command.subcommands.values())


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
