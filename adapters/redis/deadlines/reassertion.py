"""A deadline that was extended in time keeps the contents, although some region has removed them meanwhile
(`reassert`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.deadlines.atoms import seen
from crdtcast.adapters.redis.store.contents import Contents, types_of
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Assign,
    EffectsEvent,
    Expire,
    Inc,
    One,
    RedisType,
    Reg,
    Until,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Atoms, Only, Register, Worth, increased
from crdtcast.adapters.redis.types import TYPES
from crdtcast.causality.messages import Delivery


def moved_ahead(
    keyspace: Keyspace, key: bytes, deliveries: Iterable[tuple[Delivery, EffectsEvent]]
) -> bool:
    """Whether one of these messages, just applied, has extended the deadline of a key that the server has dropped."""
    return keyspace.dates.at(key) > keyspace.dates.now and any(
        isinstance(effect, Until) and effect.key == key
        for _, event in deliveries
        for effect in event.effects
    )


def extended(keyspace: Keyspace, event: EffectsEvent) -> list[bytes]:
    """Keys that this message reports as expired, although this member has set a deadline that may still count."""
    me = keyspace.dates.me
    return [
        effect.key
        for effect in event.effects
        if isinstance(effect, Expire)
        and any(each.dot.origin == me for each in keyspace.log.deadlines.of(effect.key))
    ]


class HeldDeadline(NamedTuple):
    """The value that a slot shows. since, only: the timestamp and the condition of its register, 0 if that is
    forgotten.
    """

    worth: Worth
    since: int
    only: Only = Only.ALWAYS


HeldKey: TypeAlias = dict[RedisType, dict[bytes, HeldDeadline]]


def hold(keyspace: Keyspace, key: bytes, contents: Contents) -> HeldKey:
    """The values that a key shows now."""
    held: HeldKey = {}
    for type_ in types_of(contents):
        atoms, content = keyspace.log.of(key, type_).held, contents[type_]
        held[type_] = {
            slot: HeldDeadline(w, *_stamp(atoms.get(slot, ()))) for slot, w in content.items()
        }
    return held


def _stamp(atoms: Atoms) -> tuple[int, Only]:
    registers = [each for each in atoms if isinstance(each, Register)]
    if not registers:
        return 0, Only.ALWAYS
    conditions = {each.only for each in registers}
    only = Only.ALWAYS if len(conditions) > 1 else conditions.pop()
    return max(each.timestamp for each in registers), only


def reassert(
    batch: LocalBatch, key: bytes, before: HeldKey, delivery: Delivery, event: EffectsEvent
) -> None:
    """Send again what this message, just applied, has removed from a key. Only if this member has set a deadline that
    the message had not seen, and the key's deadline is not over. before: the key's values until then.

    These are all slots that show another value now, not only empty ones: an older value that the message had not seen
    may show again, and a number may have kept increments. A register keeps its timestamp, so it yields to a later one.
    The deadline is sent, too: a member that has seen it, but not the contents, may have created the key again.
    """
    dates = batch.keyspace.dates
    if dates.at(key) <= dates.now or not _has_extended(batch.keyspace, key, delivery):
        return
    sent = False
    for type_ in sorted(before):
        log = batch.unstable(key, type_)
        for slot, held in _wanted(before[type_], key, type_, event).items():
            if log.worth(slot) == held.worth:
                continue
            sent = True
            if TYPES[type_].valued:
                words = slot, held.worth
                batch.write(key, type_, words, held.since, begins=False, only=held.only)
            else:
                batch.add(key, type_, (slot,), begins=False)
    if sent:
        batch.until(key, dates.at(key))


def _has_extended(keyspace: Keyspace, key: bytes, delivery: Delivery) -> bool:
    me, atoms = keyspace.dates.me, keyspace.log.deadlines.of(key)
    return any(each.dot.origin == me and not seen(each, delivery.tag) for each in atoms)


def _wanted(
    before: Mapping[bytes, HeldDeadline], key: bytes, type_: RedisType, event: EffectsEvent
) -> dict[bytes, HeldDeadline]:
    """The slots that must show their values again, except those that the message wrote; its increments are added."""
    wanted = dict(before)
    for effect in event.effects:
        match effect:
            case One(other, of, slots) if (other, of) == (key, type_):
                for slot in slots:
                    wanted.pop(slot, None)
            case Reg(other, of, words) if (other, of) == (key, type_):
                for slot in words[::2]:
                    wanted.pop(slot, None)
            case Assign(other) if (other, RedisType.STRING) == (key, type_):
                wanted.pop(WHOLE, None)
            case Inc(other, of, slot, delta) if (other, of) == (key, type_) and slot in wanted:
                held = wanted[slot]
                wanted[slot] = held._replace(worth=increased(held.worth, delta))
    return wanted
