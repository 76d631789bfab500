"""Other members' messages: how many of them a commit takes, and what it must look up before it applies them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from crdtcast.adapters.redis.commit.incoming import Incoming
from crdtcast.adapters.redis.commit.reads import holds_many
from crdtcast.adapters.redis.deadlines.reassertion import extended
from crdtcast.adapters.redis.group.format_level import FormatLevel
from crdtcast.adapters.redis.store.effects import (
    NO_EVENT,
    Assign,
    Effect,
    EffectsEvent,
    EndsKey,
    Inc,
    KillAll,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    UnreadableError,
    Until,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.causality.hlc import HLC
from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Tag
from crdtcast.engine import Engine, GroupEngine
from crdtcast.exceptions import LocalProtocolError

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.batch import LocalBatch
    from crdtcast.adapters.redis.commit.lookup import Looks
    from crdtcast.adapters.redis.commit.round import Commit

MAX_DELIVERIES = 256
MAX_DELIVERED_BYTES = 8 << 20
"""Bytes of other members' messages in one commit; the first message may be larger."""
MAX_DELIVERED_EFFECTS = 4096
"""Effects in the messages before the last one."""
MAX_DATED_EFFECTS = 256
"""The same where keys may expire: each effect costs a look at its deadline and a move in the index."""

_OF = attrgetter("key")
_NAMES_KEY = frozenset((One, Reg, Inc, KillKey, KillSlots, Replace, Assign, Until))

Inside: TypeAlias = "tuple[bytes, Sequence[Looks], Callable[[LocalBatch], None]]"
"""An operation of the gateway itself: its key, the slots that it must know, the function that adds it to a batch."""


class MessageIntake:
    """Takes messages into commits.

    keyspace: the present one; set it when it changes.
    later, on_ready: see `Incoming`.
    """

    def __init__(
        self,
        clock: HLC,
        formats: FormatLevel,
        later: Callable[[Callable[[], None]], None],
        on_ready: Callable[[], None],
        keyspace: Keyspace,
    ) -> None:
        self._clock = clock
        self._formats = formats
        self._incoming = Incoming(later, on_ready)
        self.keyspace = keyspace

    def take(self, commit: Commit, engine: Engine | GroupEngine) -> int:
        """Take messages for this commit; return the bytes of their payloads."""
        delivered = steps = newest = 0
        sender = ""
        deliveries, is_dated = commit.deliveries, self.keyspace.dates.in_use
        most = MAX_DELIVERED_EFFECTS
        if is_dated:
            most = MAX_DATED_EFFECTS
            commit.before = _last_delivered(engine)
        incoming, takes = self._incoming, commit.received.append
        while len(deliveries) < MAX_DELIVERIES:
            message = engine.upcoming()
            if message is None:
                break
            delivered += len(message.payload)
            if deliveries and (delivered > MAX_DELIVERED_BYTES or steps >= most):
                break
            event = NO_EVENT
            if not message.kind:  # not an operation on the membership
                try:
                    decoding = incoming.read(message)
                except UnreadableError as error:
                    self._formats.refuse(engine, message.dot, error)
                    continue
                if decoding is None:
                    break
                event = decoding.event
                if decoding.databases and not self._has_databases(decoding.databases):
                    strange = UnreadableError("it names a database that clients cannot use")
                    self._formats.refuse(engine, message.dot, strange)
                    continue
                if is_dated and (keys := extended(self.keyspace, event)):
                    if deliveries:
                        break  # it waits for the next commit, which reads these keys first
                    commit.extended = keys
                steps += len(event.effects)
                if event.timestamp > newest:
                    newest, sender = event.timestamp, message.dot.origin
                if incoming.is_under_way:
                    incoming.delivered(message)
            deliveries.append((engine.poll_upcoming(), event))
            takes(message)
            if KillAll in map(type, event.effects):
                commit.is_flushed = True
                break
            if commit.extended:
                break
        if newest:
            self._clock.observe(newest, sender)
        # Until it is known whether an own message has to be concurrent with these.
        engine.silent = bool(deliveries) and is_dated
        commit.may_hold_many = holds_many(delivered)
        return delivered

    def _has_databases(self, named: Collection[int]) -> bool:
        """Whether clients may use all of these. A member has the same: the handshake refuses others."""
        return set(named).issubset(self.keyspace.databases.clients)

    def note_unknown(self, commit: Commit, inside: Sequence[Inside]) -> None:
        """Note the keys of own operations (`inside`) and of deliveries whose types must be looked up."""
        known, unknown = self.keyspace.types, commit.unknown
        for key, several, _ in inside:
            if key not in known:
                unknown[key] = None
            for looks in several:
                if looks.take is not None:
                    commit.looks.append((key, looks))
                    continue
                for slot in looks.slots:
                    commit.will_count(self.keyspace, key, looks.type, slot)
        looks_at_all, begun = self.keyspace.dates.in_use, set[bytes]()
        for _, event in commit.deliveries if not self._knows_all_of(commit.deliveries) else ():
            for effect in event.effects:
                if isinstance(effect, KillAll):
                    continue
                if not looks_at_all and isinstance(effect, EndsKey):
                    begun.add(effect.key)
                elif effect.key not in known and effect.key not in begun:
                    unknown[effect.key] = None
                if type(effect) is Inc and _counts_in_slots(effect):
                    commit.will_count(self.keyspace, effect.key, effect.type, effect.slot)

    def _knows_all_of(self, deliveries: Sequence[tuple[Delivery, EffectsEvent]]) -> bool:
        """Whether these certainly need no lookup. It checks all effects at once."""
        applied = list(chain.from_iterable([event.effects for _, event in deliveries]))
        kinds = set(map(type, applied))
        return (
            kinds <= _NAMES_KEY
            and all(map(self.keyspace.types.__contains__, map(_OF, applied)))
            and not (Inc in kinds and any(map(_counts_in_slots, applied)))
        )


def _last_delivered(engine: Engine | GroupEngine) -> list[Tag]:
    """The last delivered messages that are not stable: what comes after these comes after all deliveries."""
    tags: list[Tag] = []
    for dot in engine.context:
        with contextlib.suppress(LocalProtocolError):  # the message is stable
            tags.append(engine.tag(dot))
    return tags


def _counts_in_slots(effect: Effect) -> bool:
    return type(effect) is Inc and effect.type is not RedisType.STRING
