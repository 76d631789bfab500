"""The tags of messages that are delivered to an application again, after its last saved state."""

from collections.abc import Iterator, Mapping

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Tag
from crdtcast.engine import GroupState
from crdtcast.engine.causal_past import Pasts
from crdtcast.engine.store import Store
from crdtcast.journal.saved import Happened
from crdtcast.wire.state import Happened as Told


class Tagging:
    """Replays from `state`, the saved state. A tag counts messages that were stable then as before its message, as
    after every restart; it is exact about all others.
    """

    def __init__(self, state: GroupState) -> None:
        self._stable = dict(state.stable)
        self._store = Store()
        self._pasts = Pasts(self._store, self._stable)
        for message in state.unstable:
            self._delivered(message)

    def replay(self, happened: list[Happened | Mapping[str, int]]) -> Iterator[Told]:
        """The notifications for the application, in order, without membership operations."""
        for item in happened:
            if isinstance(item, Message):
                tag = self._delivered(item)
                if not item.kind:
                    yield Told(tag, item.payload)
            elif isinstance(item, tuple):
                for dot in item:
                    stored = self._store.get(*dot)
                    self._stable[dot.origin] = dot.counter
                    if stored is None:
                        continue
                    self._pasts.mark_stable(stored.sequence)
                    self._store.remove([stored])
                    if not stored.message.kind:
                        yield Told(stored.tag, None)
            elif isinstance(item, Mapping):
                self._forget(item)

    def _delivered(self, message: Message) -> Tag:
        pasts = self._pasts
        past, known = pasts.before(message, self._stable)
        tag = Tag(message.dot, message.context, past)
        pasts.record(self._store.add(message, tag, 0), known)
        if pasts.overfull:
            pasts.move(self._stable)
        return tag

    def _forget(self, left: Mapping[str, int]) -> None:
        for origin in self._stable.keys() - left.keys():
            del self._stable[origin]
            self._store.forget(origin)
            self._pasts.forget(origin)
