"""Rows of subjects, read from a gateway's own server: for joiners, and for comparisons with other members.

All rows of one reading are of one instant. A comparison needs them `exact`: with their unstable parts, and with values
marked that no gateway wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from crdtcast.adapters.redis.adoption.census import is_replicated
from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.adapters.redis.store.contents import Contents, KeyRead, Slots
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Figures, figures
from crdtcast.adapters.redis.store.unstable import KeyLog, SlotLog, UnstableLog
from crdtcast.adapters.redis.transfer.key_rows import Row, RowsPart
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import Holds
from crdtcast.adapters.redis.types.strings import String


class Subject(NamedTuple):
    """What to read: all of a key, or some of its slots, with its deadline."""

    key: bytes
    slots: Slots | None = None


def reading(
    subjects: Sequence[Subject], keyspace: Keyspace, *, exact: bool = False
) -> Steps[list[Row]]:
    """The rows of the subjects, in one step. If slots of a missing key are asked for, its row covers the whole key.

    The types that keys hide must not change meanwhile: otherwise the rows are worthless.
    """
    hidden = [frozenset(keyspace.hidden.get(each.key, ())) for each in subjects]
    reads = [
        KeyRead(
            each.key,
            hides,
            keyspace.exact,
            keyspace.metadata_db,
            each.slots,
            with_type=exact,
        )
        for each, hides in zip(subjects, hidden, strict=True)
    ]
    replies = yield [words for read in reads for words in read.commands]
    rows: list[Row] = []
    start = 0
    for (key, slots), hides, read in zip(subjects, hidden, reads, strict=True):
        end = start + len(read.commands)
        own, start = replies[start:end], end
        contents = read.contents(own)
        part: RowsPart | None = None
        if slots is None or not read.is_there(own):
            contents = keyspace.with_orphan(key, contents)
        else:
            part = _part(slots, contents, hides)
        if exact:
            foreign = _foreign(key, read.kind(own), contents, keyspace)
            worth = None if foreign else contents
            log, deadlines = _log_of(key, slots, keyspace.log), keyspace.log.deadlines.of(key)
            rows.append(Row(key, worth, part, foreign, log, deadlines))
        else:
            rows.append(Row(key, contents, part))
    return rows


def _part(slots: Slots, contents: Contents, hidden: Collection[RedisType]) -> RowsPart:
    gone: dict[RedisType, list[bytes]] = {}
    for type_, some in slots.items():
        there = contents.get(type_, {})
        if missing := [slot for slot in some if slot not in there]:
            gone[type_] = missing
    return RowsPart(gone, frozenset(slots.keys() & hidden))


def _foreign(key: bytes, kind: object, contents: Contents, keyspace: Keyspace) -> str:
    """A description of a value that no gateway wrote; empty if a gateway did."""
    if key in keyspace.damaged:
        return "a key that was overwritten directly in the server"
    name = kind.decode(errors="replace") if isinstance(kind, bytes) else "an unreadable type"
    if not is_replicated(kind):
        return f"a key of type {name}"
    known = keyspace.known(key)
    if (
        known is None
        or not isinstance(kind, bytes)
        or kind == b"none"
        or _may_be(kind, contents, known)
    ):
        return ""
    return f"a {name} where its gateway has written another type"


def _may_be(kind: bytes, contents: Contents, known: int | Figures | Holds) -> bool:
    """Whether the visible value has the known type."""
    visible = BY_NAME[kind].type
    if not isinstance(known, Holds):
        text = contents.get(visible, {}).get(WHOLE)
        return visible is String.type and (text is None or figures(text) is not None)
    return known.type is None or known.type is visible


def _log_of(key: bytes, slots: Slots | None, log: UnstableLog) -> KeyLog:
    if slots is None:
        return log.key(key)
    return log_of_slots({type_: log.of(key, type_) for type_ in slots}, slots)


def log_of_slots(log: KeyLog, slots: Slots) -> KeyLog:
    """The part of a log about these slots."""
    found: KeyLog = {}
    for type_, some in slots.items():
        if (of_type := log.get(type_)) is not None and of_type:
            held, increments = of_type.held, of_type.increments
            left = SlotLog(
                {slot: dict(increments[slot]) for slot in some if slot in increments},
                {slot: held[slot] for slot in some if slot in held},
            )
            if left:
                found[type_] = left
    return found
