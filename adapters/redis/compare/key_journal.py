"""All effects on some keys from now on, and earlier ones that some other member may not have delivered.

A peer's answer about a key is as of its own instant. A message that it had not delivered then was not stable at this
member when the peer was asked. So that message was unstable at the beginning, or was delivered since. Removals are
among these messages, although no log of values keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from crdtcast.adapters.redis.compare.key_states import Later
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.effects import EffectsEvent, KillAll
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Engine, GroupEngine

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.round import Commit

_AT_ONCE = 4096
"""Effects to decode in one turn of the loop; the last message of a turn may have more."""


class KeyJournal:
    """The journal of some keys, from its creation on. engine: the gateway's."""

    def __init__(self, keys: Iterable[bytes], engine: Engine | GroupEngine) -> None:
        self._earlier: dict[bytes, list[Later]] = {key: [] for key in keys}
        self._later: dict[bytes, list[Later]] = {key: [] for key in self._earlier}
        self._unread: deque[tuple[Tag, Message]] = deque(
            (engine.tag(message.dot), message)
            for message in engine.state().unstable
            if not message.kind
        )
        self._seen: set[Dot] = {message.dot for _, message in self._unread}

    async def read(self) -> None:
        """Read the messages that were unstable at the beginning, which `of` needs. While a member is away, they may be
        very many.
        """
        decoded = 0
        while self._unread:
            tag, message = self._unread.popleft()
            found = effects.decode_own(message)
            _keep(self._earlier, tag, found)
            decoded += len(found.effects)
            if decoded >= _AT_ONCE:
                decoded = 0
                await trio.lowlevel.checkpoint()

    def committed(self, commit: Commit) -> None:
        """Note the effects of a commit that was answered."""
        for tag, _, event in () if commit.derived is None else commit.derived.sent:
            self._note(tag, event)
        for delivery, event in commit.deliveries:
            self._note(delivery.tag, event)
        for tag, _, event in commit.sent:
            self._note(tag, event)

    def _note(self, tag: Tag, event: EffectsEvent) -> None:
        if tag.dot in self._seen:
            return  # its commit was under way when this began
        self._seen.add(tag.dot)
        _keep(self._later, tag, event)

    def of(self, key: bytes) -> Sequence[Later]:
        """The effects on one of the keys, in the order of their delivery."""
        return [*self._earlier[key], *self._later[key]]


def _keep(kept: dict[bytes, list[Later]], tag: Tag, event: EffectsEvent) -> None:
    for place, effect in enumerate(event.effects):
        later = Later(effect, tag, event.timestamp, place)
        if isinstance(effect, KillAll):
            for of_key in kept.values():
                of_key.append(later)
        elif (found := kept.get(effect.key)) is not None:
            found.append(later)
