"""The engine of a hostile member: a real one, so that it knows what there is to lie about."""

import random

from crdtcast.engine.group import GroupEngine
from crdtcast.engine.operations import Operation, encode
from crdtcast.messages import Message
from crdtcast.simulator.mutation import Lore, Mutation
from crdtcast.tags import Dot, Tag


class LyingEngine(GroupEngine):
    """Takes part as any other, and sends what it is told to."""

    _claimed: tuple[Dot, ...] | None = None

    def _issue(self, operation: Operation) -> Tag:
        """What the protocol has it say: half of the time it says something else, and does as if it had not."""
        chance = random.Random(f"{operation} {self.vector[self.me]}")
        told = Mutation(chance, Lore.of(self)).instead_of(operation)
        if told == operation:
            return super()._issue(operation)
        self._refuse_if_ending()
        kind, payload = encode(told)
        tag = self._send(payload, kind)
        self._issued.append(tag)
        self._apply(operation, tag.dot)
        return tag

    def lie(self, kind: int, payload: bytes, context: tuple[Dot, ...] | None) -> Message:
        """The next message, whatever it says: without effect here. context: what it claims to depend on."""
        self._claimed = context
        tag = self._send(payload, kind)
        self._claimed = None
        stored = self._store.get(*tag.dot)
        assert stored is not None
        return stored.message

    def _take_context(self) -> tuple[Dot, ...]:
        true = super()._take_context()
        return true if self._claimed is None else self._claimed
