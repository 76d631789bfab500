"""Writes on whole strings (rules H2, H7): they remove what the key held before, of every type, as far as it was
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from crdtcast.adapters.redis.clients.large_request import size_of
from crdtcast.adapters.redis.commands.arguments import (
    MILLISECONDS,
    SECONDS,
    UNITS,
    Timed,
    integer,
    option_of,
    positive_deadline_of,
)
from crdtcast.adapters.redis.commands.errors import SYNTAX, wrong_arity
from crdtcast.adapters.redis.commands.write_command import NEW_TEXT, WHOLE_KEY, Plain, WriteCommand
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.deadlines.index import pinned, unpinned
from crdtcast.adapters.redis.recorded.record import MOST_BYTES, ServerLook
from crdtcast.adapters.redis.server.resp import OK, ReplyError
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    KillData,
    KillKey,
    Opcode,
    Reg,
)
from crdtcast.adapters.redis.types.strings import String

Args: TypeAlias = Sequence[bytes]

_FLAGS = frozenset((b"NX", b"XX", b"GET", b"KEEPTTL"))
_FROM_NOW = {b"EX": SECONDS, b"PX": MILLISECONDS}
"""Deadlines that are in the future in any case. After one that may be over, the key is gone for the next command."""


def set_(batch: LocalBatch, request: Answerable) -> bool:
    """SET key value [EX seconds | PX milliseconds]. With other options the server decides."""
    args = request.args
    if len(args) == 3:
        batch.assign(args[1], args[2])
    else:
        unit = _FROM_NOW.get(args[3].upper()) if len(args) == 5 else None
        if unit is None:
            return False
        at = positive_deadline_of(args[4], unit, batch.keyspace.dates.now, "SET")
        if isinstance(at, ReplyError):
            batch.plan.answer_with(request, at)
            return True
        batch.assign(args[1], args[2], at)
    batch.plan.answer_with(request, OK)
    return True


def _setting(unit: int) -> Plain:
    def setex(batch: LocalBatch, request: Answerable) -> bool:
        _, key, raw, value = request.args
        at = positive_deadline_of(raw, unit, batch.keyspace.dates.now, request.command.name)
        if isinstance(at, int):
            batch.assign(key, value, at)
        batch.plan.answer_with(request, at if isinstance(at, ReplyError) else OK)
        return True

    return setex


def mset(batch: LocalBatch, request: Answerable) -> bool:
    """MSET key value [key value …]: applied at one instant in every region."""
    args = request.args
    if not len(args) % 2:
        batch.plan.answer_with(request, wrong_arity(request))
        return True
    with batch.undivided(len(args) - 1, size_of(args)):
        for key, value in zip(args[1::2], args[2::2], strict=True):
            batch.assign(key, value)
    batch.plan.answer_with(request, OK)
    return True


# Effects of what the server has decided


class _Options:
    """The options of a SET. equal: the value that IFEQ compares with."""

    def __init__(self, words: Args) -> None:
        self.flags: set[bytes] = set()
        self.equal: bytes | None = None
        self.until: list[bytes] = []
        """The option that sets a deadline, and its argument; of a repeated one the last."""
        self.others: list[bytes] = []
        """All other words."""
        self.refusal: ReplyError | None = None
        rest = iter(words)
        for word in rest:
            name = word.upper()
            if name in _FLAGS:
                self.flags.add(name)
                self.others.append(name)
            elif name == b"IFEQ":
                self.equal = next(rest, None)
                self.others += [name] if self.equal is None else [name, self.equal]
            elif (
                name in UNITS
                and self.until[:1] in ([], [name])
                and (raw := next(rest, None)) is not None
            ):
                self.until = [name, raw]
            else:
                self.refusal = SYNTAX
                return
        if self.until and b"KEEPTTL" in self.flags:
            self.refusal = SYNTAX

    def holds(self, reply: bytes | None) -> bool:
        """Whether the server has written, by its reply."""
        if b"GET" not in self.flags:
            return reply is not None
        if b"NX" in self.flags:
            return reply is None
        if b"XX" in self.flags:
            return reply is not None
        return self.equal is None or reply == self.equal


def _timed_set(args: Args, now: int) -> Sequence[bytes] | ReplyError:
    options = _Options(args[3:])
    if not options.until:
        return list(args)
    at = option_of(options.until, now, "SET")
    if isinstance(at, ReplyError):
        return at
    until = b"%d" % (pinned(at, now) if at > now else at)
    return [*args[:3], *options.others, b"PXAT", until]


def _timed_setting(unit: int) -> Timed:
    def timed(args: Args, now: int) -> Sequence[bytes] | ReplyError:
        at = positive_deadline_of(args[2], unit, now, args[0].decode(errors="replace"))
        if isinstance(at, ReplyError):
            return at
        return [b"SET", args[1], args[3], b"PXAT", b"%d" % (pinned(at, now) if at > now else at)]

    return timed


def _assigned(key: bytes, value: bytes, at: int = NEVER) -> Sequence[Effect]:
    return (Assign(key, value, at),)


def _set(args: Args, reply: bytes | None, _before: None) -> Sequence[Effect]:
    options = _Options(args[3:])
    if not options.holds(reply):
        return ()
    if b"KEEPTTL" in options.flags:
        return KillData(args[1]), Reg(args[1], String.type, (WHOLE, args[2]))
    at = unpinned(int(options.until[1])) if options.until else NEVER
    return _assigned(args[1], args[2], at)


def _says_nothing_if_idle(args: Args) -> bool:
    return b"GET" not in _Options(args[3:]).flags


def _all_set(args: Args, reply: bytes | int, _before: None) -> Sequence[Effect]:
    if not reply:
        return ()
    pairs = zip(args[1::2], args[2::2], strict=True)
    return [effect for key, value in pairs for effect in _assigned(key, value)]


def _replaced(args: Args, _reply: bytes | None, _before: None) -> Sequence[Effect]:
    return _assigned(args[1], args[2])


def _taken(args: Args, reply: bytes | None, _before: None) -> Sequence[Effect]:
    return () if reply is None else (KillKey(args[1]),)


def _its_reply(_args: Args, reply: bytes | None, _before: None) -> Contents:
    return {} if reply is None else {String.type: {WHOLE: reply}}


def _its_look(_args: Args, _reply: int, before: bytes | None) -> Contents:
    return {} if before is None else {String.type: {WHOLE: before}}


def _appended(args: Args, _reply: int, before: bytes | None) -> Sequence[Effect]:
    return (Reg(args[1], String.type, (WHOLE, (before or b"") + args[2])),)


def _patched(args: Args, _reply: int, before: bytes | None) -> Sequence[Effect]:
    _, key, raw, patch = args
    if not patch:
        return ()
    offset, text = int(raw), before or b""
    padded = text.ljust(offset, b"\0")
    return (Reg(key, String.type, (WHOLE, padded[:offset] + patch + text[offset + len(patch) :])),)


def _too_far(args: Args) -> ReplyError | None:
    offset = integer(args[2])
    if offset is None or offset + len(args[3]) <= MOST_BYTES:
        return None
    return ReplyError(
        f"ERR crdtcast: SETRANGE would make a value of more than {MOST_BYTES} bytes, which is "
        "sent as a whole: use several keys"
    )


def _look(args: Args) -> ServerLook:
    return ServerLook(before=(b"GET", args[1]), weighs=(args[1],))


_SENDS = (WHOLE_KEY, NEW_TEXT, (Opcode.KILL_DATA, None), (Opcode.REG, String.type))
_PARTLY = ((Opcode.REG, String.type),)
_PAIRS = (1, -1, 2)
COMMANDS = (
    WriteCommand(
        "SET",
        -3,
        _SENDS,
        set_,
        grows=True,
        records=lambda args: len(args) > 3 and (len(args) != 5 or args[3].upper() not in _FROM_NOW),
        timed=_timed_set,
        derive=_set,
        idle=_says_nothing_if_idle,
        refuses=lambda args: _Options(args[3:]).refusal,
    ),
    *(
        WriteCommand(
            *(name, 4, (NEW_TEXT,), _setting(unit)),
            grows=True,
            derive=_set,
            timed=_timed_setting(unit),
        )
        for name, unit in (("SETEX", SECONDS), ("PSETEX", MILLISECONDS))
    ),
    WriteCommand("MSET", -3, _SENDS, mset, keys=_PAIRS, grows=True, derive=_all_set, divides=2),
    WriteCommand("MSETNX", -3, _SENDS, keys=_PAIRS, grows=True, derive=_all_set, idle=True),
    WriteCommand("SETNX", 3, _SENDS, grows=True, derive=_all_set, idle=True),
    WriteCommand("GETSET", 3, _SENDS, grows=True, derive=_replaced, took=_its_reply),
    WriteCommand("GETDEL", 2, (WHOLE_KEY,), derive=_taken, idle=True, took=_its_reply),
    WriteCommand(
        "APPEND", 3, _PARTLY, grows=True, derive=_appended, looks_at=_look, took=_its_look
    ),
    WriteCommand(
        "SETRANGE",
        4,
        _PARTLY,
        grows=True,
        derive=_patched,
        looks_at=_look,
        idle=True,
        refuses=_too_far,
        took=_its_look,
    ),
)
