"""Writes on whole strings (rules H2, H7): what the key held before goes, of every type, as far as it was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import wrong_arity
from crdtcast.adapters.redis.commands.write_command import WHOLE_KEY, WriteCommand
from crdtcast.adapters.redis.effects import WHOLE, Effect, KillKey, Opcode, Reg
from crdtcast.adapters.redis.large_request import size_of
from crdtcast.adapters.redis.record import MOST_BYTES, Look
from crdtcast.adapters.redis.resp import OK, ReplyError
from crdtcast.adapters.redis.types.strings import String

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.front import Request

Args: TypeAlias = Sequence[bytes]

_SYNTAX = ReplyError("ERR syntax error")
_DEADLINES = frozenset((b"EX", b"PX", b"EXAT", b"PXAT"))
_FLAGS = frozenset((b"NX", b"XX", b"GET", b"KEEPTTL"))


def set_(batch: LocalBatch, request: Request) -> bool:
    """SET key value. With options the server decides."""
    args = request.args
    if len(args) > 3:
        return False
    batch.assign(args[1], args[2])
    batch.plan.answer_with(request, OK)
    return True


def mset(batch: LocalBatch, request: Request) -> bool:
    """MSET key value [key value …]: at one instant in every region."""
    args = request.args
    if not len(args) % 2:
        batch.plan.answer_with(request, wrong_arity(request))
        return True
    with batch.undivided(len(args) - 1, size_of(args)):
        for key, value in zip(args[1::2], args[2::2], strict=True):
            batch.assign(key, value)
    batch.plan.answer_with(request, OK)
    return True


# What the server has decided


class _Options:
    """Of a SET. equal: what IFEQ compares with."""

    def __init__(self, words: Args) -> None:
        self.flags: set[bytes] = set()
        self.equal: bytes | None = None
        self.refusal: ReplyError | None = None
        rest = iter(words)
        for word in rest:
            name = word.upper()
            if name in _FLAGS:
                self.flags.add(name)
            elif name == b"IFEQ":
                self.equal = next(rest, None)
            elif name in _DEADLINES:
                self.refusal = ReplyError(
                    f"ERR crdtcast: SET with {name.decode()} is not replicated yet, deadlines come later; nothing was "
                    "written: use SET without it"
                )
                return
            else:
                self.refusal = _SYNTAX
                return

    def holds(self, reply: bytes | None) -> bool:
        """Whether the server has written, as its reply tells."""
        if b"GET" not in self.flags:
            return reply is not None
        if b"NX" in self.flags:
            return reply is None
        if b"XX" in self.flags:
            return reply is not None
        return self.equal is None or reply == self.equal


def _assigned(key: bytes, value: bytes) -> Sequence[Effect]:
    return KillKey(key), Reg(key, String.type, (WHOLE, value))


def _set(args: Args, reply: bytes | None, _before: None) -> Sequence[Effect]:
    return _assigned(args[1], args[2]) if _Options(args[3:]).holds(reply) else ()


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
        f"ERR crdtcast: SETRANGE would make a value of more than {MOST_BYTES} bytes, which is sent whole: use more keys"
    )


def _look(args: Args) -> Look:
    return Look(before=(b"GET", args[1]), weighs=(args[1],))


_SENDS = (WHOLE_KEY, (Opcode.REG, String.type))
_PARTLY = ((Opcode.REG, String.type),)
_PAIRS = (1, -1, 2)
COMMANDS = (
    WriteCommand(
        "SET",
        -3,
        _SENDS,
        set_,
        grows=True,
        records=lambda args: len(args) > 3,
        derive=_set,
        idle=_says_nothing_if_idle,
        refuses=lambda args: _Options(args[3:]).refusal,
    ),
    WriteCommand("MSET", -3, _SENDS, mset, keys=_PAIRS, grows=True, derive=_all_set, divides=2),
    WriteCommand("MSETNX", -3, _SENDS, keys=_PAIRS, grows=True, derive=_all_set, idle=True),
    WriteCommand("SETNX", 3, _SENDS, grows=True, derive=_all_set, idle=True),
    WriteCommand("GETSET", 3, _SENDS, grows=True, derive=_replaced),
    WriteCommand("GETDEL", 2, (WHOLE_KEY,), derive=_taken, idle=True),
    WriteCommand("APPEND", 3, _PARTLY, grows=True, derive=_appended, looks_at=_look),
    WriteCommand(
        "SETRANGE",
        4,
        _PARTLY,
        grows=True,
        derive=_patched,
        looks_at=_look,
        idle=True,
        refuses=_too_far,
    ),
)
