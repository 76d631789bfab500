"""All effects on some keys from now on, and those from before that some other member may not have delivered.

What a peer gives of a key is as of its own instant. Whatever it had not delivered then was not stable here when it was
asked, so it is among the messages that were unstable at the beginning, or was delivered since. Removals are in them,
which no log of values keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from crdtcast.adapters.redis import effects
from crdtcast.adapters.redis.effects import Effect
from crdtcast.adapters.redis.key_states import Later
from crdtcast.engine import Engine, GroupEngine
from crdtcast.tags import Dot, Tag

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit import Commit


class KeyJournal:
    """Of some keys, from the moment at which it is made. engine: that of the gateway."""

    def __init__(self, keys: Iterable[bytes], engine: Engine | GroupEngine) -> None:
        self._later: dict[bytes, list[Later]] = {key: [] for key in keys}
        self._seen: set[Dot] = set()
        for message in engine.state().unstable:
            if not message.kind:
                self._note(engine.tag(message.dot), effects.decode_own(message))

    def committed(self, commit: Commit) -> None:
        """A commit was answered."""
        for delivery, decoded in commit.deliveries:
            self._note(delivery.tag, decoded)
        for tag, _, decoded in commit.sent:
            self._note(tag, decoded)

    def _note(self, tag: Tag, decoded: Sequence[Effect]) -> None:
        if tag.dot in self._seen:
            return  # its commit was under way when this began
        self._seen.add(tag.dot)
        for place, effect in enumerate(decoded):
            later = self._later.get(effect.key)
            if later is not None:
                later.append(Later(effect, tag, place))

    def of(self, key: bytes) -> Sequence[Later]:
        """The effects on one of the keys, in the order of their delivery."""
        return self._later[key]
