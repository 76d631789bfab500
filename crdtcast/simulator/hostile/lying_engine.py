"""The engine of a hostile member: a real one, so that it knows what there is to lie about."""

import random
from collections.abc import Callable
from typing import ClassVar

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import GroupState
from crdtcast.engine.operations import Operation, encode
from crdtcast.engine.view_checks import contradicts_itself
from crdtcast.engine.views import Record
from crdtcast.simulator.hostile.mutation import Lore, Mutation


class LyingConsensus(Consensus):
    """Every fourth time it notes something else, and goes on from that; so all are told the same. Most of it is nothing
    that could be refused.
    """

    lore: Callable[[], Lore]

    def _note(self, **changes: object) -> None:
        super()._note(**changes)
        chance = random.Random(f"{self.own.member} {self.own.serial}")
        if chance.random() < 0.25:
            mutation = Mutation(chance, self.lore())
            lies = [mutation.record(self.own) for _ in range(4)]
            plausible = (lie for lie in lies if not contradicts_itself(lie))
            self.own: Record = next(plausible, lies[0])
            self.records[self.own.member] = self.own


class LyingEngine(GroupEngine):
    """Takes part as any other, and sends what it is told to."""

    consensus_type: ClassVar[type[Consensus]] = LyingConsensus

    _consensus: LyingConsensus

    def _begin_views(self, state: GroupState) -> None:
        super()._begin_views(state)
        self._consensus.lore = lambda: Lore.of(self)

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
