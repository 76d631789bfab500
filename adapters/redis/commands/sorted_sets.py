"""Writes on sorted sets (rules H1 to H3): each member separately, with the score written last or a number that grows.

`ZADD` without options needs no read. In all other cases the server decides, and the scores that it found show what it
has written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import may_hold, refused_for_its_type
from crdtcast.adapters.redis.commands.write_command import (
    NEW_KEY,
    NO_KEY,
    WHOLE_KEY,
    Derive,
    Looks,
    WriteCommand,
    removes,
)
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.recorded.record import MOST_WORDS, NO_LOOK, ServerLook
from crdtcast.adapters.redis.server.resp import NULL_ARRAY, DoubleText, ReplyError, ScorePairs
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.databases import key_of
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    Effect,
    Inc,
    KillSlots,
    Opcode,
    Reg,
    Replace,
)
from crdtcast.adapters.redis.store.slot_value import Only, number_of
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.sorted_sets import SortedSet, decimal_of

Args: TypeAlias = Sequence[bytes]

_TYPE = SortedSet.type
_SORTED_SETS = (NOTHING, SortedSet.here, SortedSet.perhaps)
_PLAIN = re.compile(rb"-?[0-9]{1,40}(?:\.[0-9]{1,40})?\Z|-?inf\Z")
"""Scores that every server reads in the same way. Those in another notation are left to the server."""
_IS_SMALL = SortedSet.counts.__contains__
_OPTIONS = frozenset((b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"))


def _plain_score(raw: bytes) -> bytes | None:
    """The decimal of a score; None if only the server can read it."""
    if raw.isdigit() and len(raw) < 16 and (raw[0] != 48 or len(raw) == 1):
        return raw
    return decimal_of(float(raw)) if _PLAIN.fullmatch(raw) else None


def _plain_words(args: Args) -> list[bytes] | None:
    """Members and their decimals in turn, of a ZADD without options; None if only the server can decide it."""
    if len(args) == 4:
        score = _plain_score(args[2])
        return None if score is None else [args[3], score]
    words = list(args[2:])
    if len(words) % 2:
        return None
    scores = [_plain_score(raw) for raw in words[::2]]
    if None in scores:
        return None
    words[::2], words[1::2] = words[1::2], scores  # type: ignore[assignment]  # none is None
    return words


def zadd(batch: LocalBatch, request: Answerable) -> bool:
    """ZADD key score member [score member …]. With options the server decides."""
    args = request.args
    words = _plain_words(args)
    if words is None:
        return False
    key = args[1]
    if batch.keyspace.types[key] not in _SORTED_SETS:
        return refused_for_its_type(batch, request)
    batch.plan.from_reply.append((request, batch.write(key, _TYPE, words)))
    return True


def zincrby(batch: LocalBatch, request: Answerable) -> bool:
    """ZINCRBY key delta member, as long as all numbers are small integers. Otherwise the server decides."""
    _, key, raw, member = request.args
    delta = integer(raw)
    if delta is None:
        return False
    if not may_hold(batch, key, SortedSet):
        return refused_for_its_type(batch, request)
    before = batch.keyspace.number(key, _TYPE, member)
    if type(before) is not int or not all(map(_IS_SMALL, (before, delta, before + delta))):
        return False
    batch.increase(key, _TYPE, member, delta)
    batch.plan.answer_with(request, DoubleText(b"%d" % (before + delta)))
    return True


# Effects of what the server has decided


def _double(raw: bytes) -> float:
    """A score as the server has read it."""
    text = raw.decode()
    return float.fromhex(text) if "x" in text.lower() else float(text)


class _Added:
    """The arguments of a ZADD."""

    def __init__(self, args: Args) -> None:
        at = 2
        while at < len(args) and args[at].upper() in _OPTIONS:
            at += 1
        self.flags: frozenset[bytes] = frozenset(word.upper() for word in args[2:at])
        self.scores: Args = args[at::2]
        self.members: Args = args[at + 1 :: 2]

    @property
    def is_conditional(self) -> bool:
        return not self.flags.isdisjoint((b"NX", b"XX", b"GT", b"LT"))

    @property
    def only(self) -> Only:
        if b"GT" in self.flags:
            return Only.GREATER
        return Only.LESS if b"LT" in self.flags else Only.ALWAYS

    def writes(self, score: float, old: float | None) -> bool:
        """Whether the server writes this score over that one."""
        if old is None:
            return b"XX" not in self.flags
        if b"NX" in self.flags:
            return False
        if self.only is Only.ALWAYS:
            return True
        return score > old if self.only is Only.GREATER else score < old

    def written(self, before: Sequence[bytes | None] | None) -> dict[bytes, bytes]:
        """The members that have a new score. before: their scores until then; they need not be known if there is no
        condition.
        """
        now: dict[bytes, float | None] = {}
        for member, old in zip(self.members, before or (), strict=False):
            now.setdefault(member, _double(old) if old else None)
        found: dict[bytes, bytes] = {}
        for raw, member in zip(self.scores, self.members, strict=True):
            score = _double(raw)
            if not self.is_conditional or self.writes(score, now.get(member)):
                now[member] = score
                found[member] = decimal_of(score)
        return found


def _added(args: Args, reply: bytes | int | None, before: Any) -> Sequence[Effect]:
    added = _Added(args)
    if b"INCR" in added.flags:
        return _summed(args[1], added.scores[0], added.members[0], reply)
    if words := tuple(chain.from_iterable(added.written(before).items())):
        return (Reg(args[1], _TYPE, words, only=added.only),)
    return ()


def _added_over(args: Args, reply: object, before: Any) -> Contents | None:
    added = _Added(args)
    if not added.is_conditional or b"INCR" in added.flags:
        return None
    return _content(added.members, before, among=added.written(before))


def _content(
    members: Args, scores: Sequence[bytes | None], among: Mapping[bytes, bytes] | None = None
) -> Contents:
    """The members that have a score."""
    found = {
        member: SortedSet.shown(score)
        for member, score in zip(members, scores, strict=True)
        if score and (among is None or member in among)
    }
    return {_TYPE: found} if found else {}


def _summed(key: bytes, raw: bytes, member: bytes, reply: object) -> Sequence[Effect]:
    if not isinstance(reply, bytes):
        return ()
    # An infinite increment is an assignment: then no two of them make a sum that is not a number.
    delta = decimal_of(_double(raw))
    number = number_of(delta)
    if number is None:
        return (Reg(key, _TYPE, (member, delta)),)
    return (Inc(key, _TYPE, member, number),)


def _counted(args: Args, reply: bytes, _before: object) -> Sequence[Effect]:
    return _summed(args[1], args[2], args[3], reply)


def _removed(args: Args, reply: int, _before: object) -> Sequence[Effect]:
    return (KillSlots(args[1], _TYPE, tuple(args[2:])),) if reply else ()


def _removed_with(args: Args, _reply: int, before: Any) -> Contents | None:
    return None if before is None else _content(args[2:], before)


def _popped(args: Args, reply: list[bytes], _before: object) -> Sequence[Effect]:
    return (KillSlots(args[1], _TYPE, tuple(reply[::2])),) if reply else ()


def _popped_with(_args: Args, reply: list[bytes], _before: object) -> Contents:
    return _content(reply[::2], reply[1::2])


def _popped_of_some(args: Args, reply: Any, _before: object) -> Sequence[Effect]:
    if not reply:
        return ()
    popped, pairs = reply
    name = next(name for name in args[2 : 2 + int(args[1])] if key_of(name) == popped)
    return (KillSlots(name, _TYPE, tuple(member for member, _ in pairs)),)


def _popped_of_some_with(_args: Args, reply: Any, _before: object) -> Contents:
    pairs = reply[1] if reply else []
    return _content([member for member, _ in pairs], [score for _, score in pairs])


def _range_removed(each: int) -> Derive:
    """each: words of the look for each member."""

    def derive(args: Args, reply: int, before: list[bytes]) -> Sequence[Effect]:
        return (KillSlots(args[1], _TYPE, tuple(before[::each])),) if reply else ()

    return derive


def _range_removed_with(_args: Args, _reply: int, before: list[bytes] | None) -> Contents:
    return _content((before or [])[::2], (before or [])[1::2])


def _stored(args: Args, _reply: int, before: tuple[object, list[bytes]]) -> Sequence[Effect]:
    """Sends the result by value, because another region may have other sources by then."""
    kill, content = Replace(args[1], NEVER), SortedSet.content(before[1])
    if not content:
        return (kill,)
    return kill, Reg(args[1], _TYPE, tuple(chain.from_iterable(content.items())))


# Looks


def _scores(key: bytes, members: Args) -> ServerLook:
    if not members or len(members) + 2 > MOST_WORDS:
        return NO_LOOK
    return ServerLook(before=(b"ZMSCORE", key, *members))


def _look_added(args: Args) -> ServerLook:
    added = _Added(args)
    if not added.is_conditional or b"INCR" in added.flags:
        return NO_LOOK
    return _scores(args[1], added.members)


def _look_range(verb: bytes, *behind: bytes) -> Looks:
    return lambda args: ServerLook(before=(verb, *args[1:], *behind))


def look_stored(args: Args, before: Args, sources: Args = ()) -> ServerLook:
    """The whole result of a command that stores one in its first key. before: a read that is not smaller."""
    after = (SortedSet.read, args[1], *SortedSet.read_behind)
    return ServerLook(before=before, weighs=sources, after=after)


def _look_combined(args: Args) -> ServerLook:
    """ZUNIONSTORE and its kind."""
    sources = args[3 : 3 + int(args[2])] if args[2].isdigit() and len(args[2]) < 9 else ()
    return look_stored(args, (args[0][: -len(b"STORE")], *args[2:]), sources)


def _look_copied_range(args: Args) -> ServerLook:
    return look_stored(args, (b"ZRANGE", *args[2:]))


def _too_many(args: Args) -> ReplyError | None:
    if len(args) <= MOST_WORDS or not _Added(args).flags:
        return None
    return ReplyError(
        f"ERR crdtcast: ZADD with options may have at most {MOST_WORDS} words: split it"
    )


# Replies


def _as_double(_args: Args, reply: Any) -> Any:
    return DoubleText(reply) if isinstance(reply, bytes) else reply


def _as_pairs(args: Args, reply: list[bytes]) -> Any:
    """ZPOPMIN: pairs if it has a count."""
    pairs = ScorePairs(zip(reply[::2], map(DoubleText, reply[1::2]), strict=True))
    return pairs if len(args) > 2 else list(chain.from_iterable(pairs))


def _as_key_and_pairs(_args: Args, reply: Any) -> Any:
    if reply is None:
        return NULL_ARRAY
    return [reply[0], [[member, DoubleText(score)] for member, score in reply[1]]]


_WRITES = ((Opcode.REG, _TYPE),)
_COUNTS = ((Opcode.INC, _TYPE), (Opcode.INC_EXACT, _TYPE))
_REMOVES = ((Opcode.KILL_SLOTS, _TYPE),)
_POPS = partial(WriteCommand, sends=_REMOVES, idle=True, begins=(), empties=True)
STORES = partial(
    WriteCommand, sends=(WHOLE_KEY, NEW_KEY, *_WRITES), grows=True, derive=_stored, begins=(1,)
)
"""Commands that store a sorted set in their first key."""
COMMANDS = (
    WriteCommand(
        "ZADD",
        -4,
        _WRITES,
        zadd,
        sends_recorded=(*_COUNTS, (Opcode.REG_ONLY, _TYPE)),
        slots=slice(3, None, 2),
        grows=True,
        derive=_added,
        looks_at=_look_added,
        records=lambda args: _plain_words(args) is None,
        idle=lambda args: not _Added(args).flags.isdisjoint((b"NX", b"INCR")),
        divides=2,
        refuses=_too_many,
        took=_added_over,
        shape=_as_double,
    ),
    WriteCommand(
        "ZINCRBY",
        4,
        _COUNTS,
        zincrby,
        sends_recorded=_WRITES,
        slots=slice(3, 4),
        grows=True,
        derive=_counted,
        records=lambda _: True,
        shape=_as_double,
    ),
    WriteCommand(
        "ZREM",
        -3,
        _REMOVES,
        removes(SortedSet),
        derive=_removed,
        looks_at=lambda args: _scores(args[1], args[2:]),
        divides=1,
        idle=True,
        begins=(),
        empties=True,
        took=_removed_with,
    ),
    *(
        _POPS(name, -2, derive=_popped, took=_popped_with, shape=_as_pairs)
        for name in ("ZPOPMIN", "ZPOPMAX")
    ),
    _POPS(
        "ZMPOP",
        -4,
        keys=NO_KEY,
        numbered=1,
        derive=_popped_of_some,
        took=_popped_of_some_with,
        shape=_as_key_and_pairs,
    ),
    *(
        _POPS(
            name,
            4,
            derive=_range_removed(2),
            looks_at=_look_range(verb, b"WITHSCORES"),
            took=_range_removed_with,
        )
        for name, verb in (
            ("ZREMRANGEBYRANK", b"ZRANGE"),
            ("ZREMRANGEBYSCORE", b"ZRANGEBYSCORE"),
        )
    ),
    _POPS("ZREMRANGEBYLEX", 4, derive=_range_removed(1), looks_at=_look_range(b"ZRANGEBYLEX")),
    *(
        STORES(name, -4, numbered=2, looks_at=_look_combined)
        for name in ("ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE")
    ),
    STORES("ZRANGESTORE", -5, keys=(1, 2, 1), looks_at=_look_copied_range),
)
