"""The value of a key at another instant than that of its row, and the decision which member is right about it.

`value_at` computes from a peer's row what the key is worth where more has been delivered. A receiver compares its own
server with that, or takes it over. The value is exact, whatever has become stable in between: what is stable at the
giver is in the past of all that the giver has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from crdtcast.adapters.redis.deadlines.atoms import winner
from crdtcast.adapters.redis.store.contents import Contents, Slots, deadline_of, types_of
from crdtcast.adapters.redis.store.databases import db_of
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    Expire,
    Inc,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.slot_value import PRESENT, Only, Worth, increased
from crdtcast.adapters.redis.store.unstable import KeyLog, UnstableLog
from crdtcast.adapters.redis.transfer.key_rows import Row
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.tags import Tag, Vector, covers

_SHOWN = 40


class Later(NamedTuple):
    """An effect on a key that this member has delivered or sent."""

    effect: Effect
    tag: Tag
    timestamp: int
    place: int


class Value:
    """The value of a key. Equal values compare and hash as equal."""

    __slots__ = ("_same", "contents")

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents: Contents = contents or {}
        self._same = frozenset(
            (type_, slot, worth)
            for type_, content in self.contents.items()
            for slot, worth in content.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def is_nothing(self) -> bool:
        return not types_of(self.contents)

    def __str__(self) -> str:
        words = [
            content[WHOLE].decode(errors="replace")[:_SHOWN]
            if type_ is String.type
            else f"a {TYPES[type_].name.decode()} of {len(content)}"
            for type_, content in sorted(self.contents.items())
            if type_ in TYPES
        ]
        if (at := deadline_of(self.contents)) != NEVER:
            words.append(f"a deadline ({at} ms)")
        return " and ".join(words) or "nothing"

    @property
    def at(self) -> int:
        """Its deadline."""
        return deadline_of(self.contents)


def value_at(
    row: Row, vector: Vector, later: Iterable[Later], slots: Slots | None = None
) -> Value | None:
    """What a key is worth after effects that the row's giver has not delivered; None if no gateway wrote its value.

    vector: that of the giver's instant.
    later: all effects on the key beyond that vector, and perhaps others, in the order of their delivery.
    slots: those of the row, if not all.
    """
    if row.contents is None:
        return None
    contents = {type_: dict(content) for type_, content in row.contents.items()}
    log = UnstableLog()
    log.take(row.key, row.log)
    log.deadlines.take(row.key, row.deadlines)
    for effect, tag, timestamp, place in later:
        if not covers(vector, tag.dot):
            _apply(row.key, log, contents, effect, tag, timestamp, place)
    return Value(some_of(contents, slots))


def some_of(contents: Contents, slots: Slots | None) -> Contents:
    """The part of the contents in these slots."""
    if slots is not None:
        wanted = {**slots, RedisType.DEADLINE: (WHOLE,)}
        contents = {
            type_: {slot: content[slot] for slot in wanted[type_] if slot in content}
            for type_, content in contents.items()
            if type_ in wanted
        }
    return {type_: content for type_, content in contents.items() if content}


def _apply(
    of: bytes,
    log: UnstableLog,
    contents: dict[RedisType, dict[bytes, Worth]],
    effect: Effect,
    tag: Tag,
    timestamp: int,
    place: int,
) -> None:
    """Like `Keyspace.apply`, on values. of: the key."""
    match effect:
        case One(key, type_, slots):
            log.one(key, type_, slots, tag, place)
            contents.setdefault(type_, {}).update(dict.fromkeys(slots, PRESENT))
        case Reg(key, type_, words, since):
            pairs = pairs_of(words)
            written = timestamp if since is None else since
            told = log.write(key, type_, pairs, tag, written, place, effect.only)
            contents.setdefault(type_, {}).update((s, told.worth(s) or b"") for s in pairs)
        case Inc(key, type_, slot, delta):
            log.increment(key, type_, slot, delta, tag, place)
            content = contents.setdefault(type_, {})
            content[slot] = increased(content.get(slot, b"0"), delta)
        case KillKey(key) | Expire(key, True):
            _hold_only(contents, log.kill_key(key, tag))
            _set_deadline(contents, log, key)
        case KillData(key) | Expire(key):
            at = contents.pop(RedisType.DEADLINE, None)
            _hold_only(contents, log.kill_data(key, tag))
            if at is not None:
                contents[RedisType.DEADLINE] = at
        case Replace(key, at):
            _hold_only(contents, log.kill_key(key, tag))
            log.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, place)
            _set_deadline(contents, log, key)
        case Assign(key, value, at):
            _hold_only(contents, log.kill_key(key, tag))
            log.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, place)
            told = log.write(key, String.type, {WHOLE: value}, tag, timestamp, place)
            contents[String.type] = {WHOLE: told.worth(WHOLE) or b""}
            _set_deadline(contents, log, key)
        case Until(key, at, only):
            log.deadlines.set(key, at, only, tag, timestamp, place)
            _set_deadline(contents, log, key)
        case KillSlots(key, type_, slots):
            content = contents.get(type_, {})
            for slot in log.kill_slots(key, type_, slots, tag):
                content.pop(slot, None)
            left_of = log.of(key, type_)
            content.update((s, w) for s in slots if (w := left_of.worth(s)) is not None)
        case KillAll(db):
            if db is None or db == db_of(of):
                log.kill_all(db, tag)
                _hold_only(contents, log.key(of))
                _set_deadline(contents, log, of)
        case _:
            assert_never(effect)


def _hold_only(contents: dict[RedisType, dict[bytes, Worth]], left: KeyLog) -> None:
    contents.clear()
    contents.update((type_, each.survivors()) for type_, each in left.items())


def _set_deadline(
    contents: dict[RedisType, dict[bytes, Worth]], log: UnstableLog, key: bytes
) -> None:
    last = winner(log.deadlines.of(key))
    contents.pop(RedisType.DEADLINE, None)
    if last is not None and last.at != NEVER:
        contents[RedisType.DEADLINE] = {WHOLE: b"%d" % last.at}


# Which member is right


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """A decision about a key.

    value: what the key is worth, None if that cannot be decided.
    why: in words, for a log line.
    """

    value: Value | None
    why: str


def decide(votes: Mapping[str, Value], members: int, *, complete: bool) -> KeyVerdict:
    """Decide which value of a key is right. If more than half of the members hold one value, that is right. Otherwise
    nothing is lost: slots that only some members hold are kept; a slot with two different values makes the key
    disputed.

    votes: the key's value at members that hold a value which a gateway may have written, all as of one history.
    members: members of the group.
    complete: whether all members answered.
    """
    counts: dict[Value, list[str]] = {}
    for name, value in sorted(votes.items()):
        counts.setdefault(value, []).append(name)
    for value, names in counts.items():
        if 2 * len(names) > members:
            return KeyVerdict(value, f"{' and '.join(names)} hold it")
    if not complete:
        return KeyVerdict(None, "a member that could decide it is unreachable")
    if not votes:
        return KeyVerdict(None, "no member holds a value that a gateway has written")
    merged: dict[RedisType, dict[bytes, Worth]] = {}
    for value in votes.values():
        for type_, content in value.contents.items():
            slots = merged.setdefault(type_, {})
            if any(slots.setdefault(slot, worth) != worth for slot, worth in content.items()):
                return KeyVerdict(None, "members hold different values, and no majority agrees")
    return KeyVerdict(Value(merged), "no value conflicts, so all are kept")
