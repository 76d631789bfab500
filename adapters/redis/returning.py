"""What an evicted gateway had acknowledged and the group does not have: sent again when it is back, in its order.

Increments and added members mean the same whenever they come, so they go out as they were, under new dots that are
noted in the transaction which holds them. A removal means what its region had seen then, which nobody can tell any
more when the server has been filled from the group: a gateway that would have to send one again does not come back by
itself.
See `crdtcast.engine.reissue`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from crdtcast.adapters.redis import effects, metadata
from crdtcast.adapters.redis.effects import AskKey, Inc, One, ToldKey, UnknownPayloadError
from crdtcast.adapters.redis.plan import Expect
from crdtcast.engine import GroupEngine, Parked, ParkedOperation, Standing
from crdtcast.incarnation import name_of
from crdtcast.journal.saved import Saved, pack_saved, unpack_saved

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.committer import Commit, Committer

_AT_ONCE = 64
"""Operations sent again in one commit."""


class Returning:
    """The parked operations of one gateway, as they are in its server."""

    def __init__(self, committer: Committer, group: str, name: str) -> None:
        self._committer = committer
        self._group = group
        self._name = name
        self.parked: Parked | None = None

    def resume(self, raw: bytes | None) -> None:
        """Go on from what the server holds. Raises UnusableInputError, or ConfigurationError from a later program."""
        where = "the key 'parked' of the metadata database"
        self.parked = None if raw is None else unpack_saved(raw, where).parked

    def pack(self, parked: Parked) -> bytes:
        """The value of the key `parked`."""
        return pack_saved(Saved(self._group, self._name, parked=parked))

    def park(self, engine: GroupEngine) -> Parked:
        """All that this incarnation, which has ended, may have to send again."""
        return Parked.of(engine.state(), engine.me, self.parked)

    def removals(self, engine: GroupEngine) -> int:
        """How many operations of it, which the group does not have for certain, are more than increments and adds."""
        cut = engine.cut or 0
        return sum(
            not _is_additive(operation.payload)
            for operation in self.park(engine).operations
            if operation.dot.origin != engine.me or operation.dot.counter > cut
        )

    def prepared(self, commit: Commit, engine: GroupEngine) -> None:
        """A commit is about to be sent: it notes what has become known of earlier incarnations with it."""
        if self.parked is not None:
            met = self.parked.meeting(engine)
            if met is not self.parked:
                self._save(commit, met)

    def add_work(self, engine: GroupEngine) -> None:
        """Something for the next commit, if there is something to be said. Call it when none is under way."""
        if engine.standing is not Standing.MEMBER:
            return
        parked = self.parked
        if parked is None:
            if self._own_tombs(engine):
                self._committer.at_its_end(partial(self._settle, engine))
        elif parked.is_decided(engine):
            if uncovered := parked.uncovered(engine)[:_AT_ONCE]:
                for operation in uncovered:
                    self._send_again(operation)
            elif self._own_tombs(engine):
                self._committer.at_its_end(partial(self._settle, engine))
            elif parked.may_be_dropped(engine):
                self._committer.at_its_end(self._drop)

    def _own_tombs(self, engine: GroupEngine) -> list[str]:
        return sorted(i for i in engine.tombs if name_of(i) == self._name)

    def _send_again(self, operation: ParkedOperation) -> None:
        _, decoded = effects.decode(operation.payload)
        additive = [effect for effect in decoded if isinstance(effect, One | Inc)]
        for effect in additive:  # so that all keys are looked up
            self._committer.inside(effect.key, _nothing)
        key = additive[0].key if additive else b""
        self._committer.inside(key, partial(self._perform, operation, additive))

    def _perform(
        self, operation: ParkedOperation, additive: list[One | Inc], batch: LocalBatch
    ) -> None:
        parked = self.parked
        assert parked is not None
        batch.close()
        dot = batch.tag.dot
        for effect in additive:
            if isinstance(effect, Inc):
                batch.increment(effect.key, effect.delta)
            else:
                batch.add_members(effect.key, effect.slots)
        batch.close()
        if batch.tag.dot == dot:  # it was a question that nobody waits for any more
            left = tuple(o for o in parked.operations if o.dot != operation.dot)
            parked = replace(parked, operations=left)
        else:
            parked = parked.reissued(operation, dot)
        self.parked = parked
        batch.plan.metadata(Expect.OK, b"SET", metadata.PARKED, self.pack(parked))

    def _settle(self, engine: GroupEngine, commit: Commit) -> None:
        if engine.standing is not Standing.MEMBER:
            return
        for incarnation in self._own_tombs(engine):
            tag = engine.settle(incarnation)
            if self.parked is not None:
                self._save(commit, self.parked.settled(incarnation, tag.dot))

    def _drop(self, commit: Commit) -> None:
        self.parked = None
        commit.plan.metadata(Expect.INTEGER, b"DEL", metadata.PARKED)

    def _save(self, commit: Commit, parked: Parked) -> None:
        self.parked = parked
        commit.plan.metadata(Expect.OK, b"SET", metadata.PARKED, self.pack(parked))


def _is_additive(payload: bytes) -> bool:
    try:
        _, decoded = effects.decode(payload)
    except UnknownPayloadError:
        return False
    return all(isinstance(effect, One | Inc | AskKey | ToldKey) for effect in decoded)


def _nothing(batch: LocalBatch) -> None:
    """Only the key has to be known."""
