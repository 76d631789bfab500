"""The engine of a hostile member: a real one, so that it knows enough to lie."""

import random
from collections.abc import Callable
from typing import ClassVar

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import GroupState
from crdtcast.engine.operations import Operation, encode
from crdtcast.engine.view_checks import contradicts_itself
from crdtcast.engine.views import Record
from crdtcast.simulator.hostile.mutation import Lore, Mutation


class LyingConsensus(Consensus):
    """One time in four it notes something false, and continues from that, so that it tells all members the same lie.
    Most of these lies are plausible, so that no member could refuse them.
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
    """Takes part like any engine, and also sends lies on request."""

    consensus_type: ClassVar[type[Consensus]] = LyingConsensus

    _consensus: LyingConsensus

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)
        self._consensus.lore = lambda: Lore.of(self)

    _claimed: tuple[Dot, ...] | None = None

    def _issue(self, operation: Operation) -> Tag:
        """Issue an operation. Sometimes it sends a false one, but applies the true one."""
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
        """Send any message as the next one, without effect at the liar itself.

        context: what the message claims to depend on; None: the truth.
        """
        self._claimed = context
        tag = self._send(payload, kind)
        self._claimed = None
        stored = self._store.get(*tag.dot)
        assert stored is not None
        return stored.message

    def _take_context(self) -> tuple[Dot, ...]:
        true = super()._take_context()
        return true if self._claimed is None else self._claimed
