"""Derives the effects of a record's message from the record alone: any gateway derives the same at any time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from crdtcast.adapters.redis.commands import WRITES
from crdtcast.adapters.redis.commands.write_command import Derive, WriteCommand
from crdtcast.adapters.redis.recorded.record import RecordEntry, ServerRecord
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    Assign,
    Effect,
    EffectsEvent,
    EndsKey,
    KillAll,
    KillKey,
    KillSlots,
    Replace,
    Until,
)
from crdtcast.exceptions import ConfigurationError


def derived(record: ServerRecord) -> EffectsEvent:
    """The message of a record. It has no effects if no recorded command has written anything.

    Raises ConfigurationError if this program does not know a command.
    """
    return event_of(record, derived_by_entry(record))


def derived_by_entry(record: ServerRecord) -> list[list[Effect]]:
    """The effects of each entry, in order."""
    found = [list(effects_of(entry)) for entry in record.entries]
    for effect in chain.from_iterable(found) if record.offset_ms else ():
        if isinstance(effect, Replace | Assign | Until) and effect.at != NEVER:
            effect.at += record.offset_ms
    return found


def event_of(record: ServerRecord, found: Iterable[Iterable[Effect]]) -> EffectsEvent:
    """The message with these effects, given by entry."""
    return EffectsEvent(record.timestamp, list(chain.from_iterable(found)))


def effects_of(entry: RecordEntry) -> Iterator[Effect]:
    """The effects of one command; none if the server refused it, or if it found nothing. If it begins a key again, that
    key is killed first: nothing of its former life counts then, above all no deadline.
    """
    if type(entry.reply) is ReplyError:
        return
    _, derive = row_of(entry)
    if not entry.fresh:
        yield from derive(entry.words, entry.reply, entry.before)
        return
    fresh = list(entry.fresh)
    for effect in derive(entry.words, entry.reply, entry.before):
        if not isinstance(effect, KillSlots | KillAll) and effect.key in fresh:
            fresh.remove(effect.key)
            if not isinstance(effect, EndsKey):
                yield KillKey(effect.key)
        yield effect


_KNOWN: dict[bytes, tuple[WriteCommand, Derive]] = {}
"""What `row_of` has found, by names in upper and in lower case."""


def row_of(entry: RecordEntry) -> tuple[WriteCommand, Derive]:
    """The table row of a recorded command, and the function that derives its effects.

    Raises ConfigurationError if this program does not know the command.
    """
    if (found := _KNOWN.get(entry.words[0])) is not None:
        return found
    name = entry.words[0].decode(errors="replace").upper()
    row = WRITES.get(name)
    if row is None or row.derive is None:
        raise ConfigurationError(
            f"the server has recorded {name}, which this gateway's program does not know: start "
            "the program that recorded it; this one changed nothing"
        )
    if entry.words[0] in (name.encode(), name.lower().encode()):
        _KNOWN[entry.words[0]] = row, row.derive
    return row, row.derive
