"""What an evicted node keeps: its own operations that the group may not have, until its successor has settled.

They are parked durably before anything else happens. The successor sends again, in order, those that the group does not
have, and notes the new dot of each durably before the message leaves. So a crash in the middle sends nothing twice, and
if the successor ends early, the next one compares all of them again. The application decides what a removal or an
overwrite means after all that has happened meanwhile (`PureOpCRDT.rebase`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.causality.tags import Dot
from crdtcast.engine.membership import Fate, GroupState, Membership


@dataclass(frozen=True, slots=True)
class ParkedOperation:
    """An own message that was not known to be everywhere: its first dot, its kind and its payload."""

    dot: Dot
    kind: int
    payload: bytes


class ReissueGroup(Protocol):
    """What this module needs of the successor's engine (`GroupEngine`)."""

    me: str
    vector: dict[str, int]
    stable: dict[str, int]

    def fate(self, incarnation: str) -> int | Fate: ...


@dataclass(frozen=True, slots=True)
class Parked:
    """Own operations of ended incarnations, in their order. A value: each change makes a new one, to be saved.

    copies: first dot -> the dots under which it was sent again. ended: the incarnations that sent any of them, oldest
        first.
    strangers: those of `ended` that did not know their join to be stable, so that it may have been cut off together
        with their contact: if no member knows them, they never were members.
    met: strangers whose join the present successor has delivered, so that they count although they are forgotten.
    settling: incarnation -> the dot of its last `settle`.
    incomplete: those of `ended` that may have sent messages, or told of them, that are lost here, too. The group never
        forgets how many of theirs it has: a settled one counts as had as a whole.
    """

    operations: tuple[ParkedOperation, ...] = ()
    copies: Mapping[Dot, tuple[Dot, ...]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    strangers: frozenset[str] = frozenset()
    met: frozenset[str] = frozenset()
    settling: Mapping[str, Dot] = field(default_factory=dict)
    incomplete: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        state: GroupState,
        me: str,
        earlier: "Parked | None" = None,
        *,
        is_complete: bool = True,
    ) -> "Parked":
        """What `me`, which has ended with this state, has sent itself and does not know to be stable; after what its
        predecessors have parked and not settled.

        is_complete: whether the state has all that `me` has ever sent or told of.
        """
        earlier = earlier or cls()
        known = {dot for dots in earlier.copies.values() for dot in dots}
        own = tuple(
            ParkedOperation(message.dot, message.kind, message.payload)
            for message in state.unstable
            if message.dot.origin == me and message.kind == 0 and message.dot not in known
        )
        membership = Membership(me, state.vector, state)
        known_everywhere = {
            incarnation
            for incarnation in (*earlier.met, me)
            if membership.is_established(incarnation, state.stable)
        }
        return replace(
            earlier,
            operations=earlier.operations + own,
            ended=(*earlier.ended, me),
            strangers=(earlier.strangers | {me}) - known_everywhere,
            met=frozenset(),
            incomplete=earlier.incomplete if is_complete else earlier.incomplete | {me},
        )

    def meeting(self, group: ReissueGroup) -> "Parked":
        """With those strangers whose join this successor has delivered by now. Look, and save it, whenever it has taken
        messages: later they, and their contacts, may be forgotten, like those that never were members.
        """
        if self.strangers <= self.met or group.me in self.ended:
            return self
        known = {stranger for stranger in self.strangers if _has_joined(group, stranger)}
        return self if known <= self.met else replace(self, met=self.met | known)

    def is_decided(self, group: ReissueGroup) -> bool:
        """Whether all these incarnations have ended for the group, so that it is certain how much of them it has."""
        return all(group.fate(incarnation) is not Fate.MEMBER for incarnation in self.ended)

    def uncovered(self, group: ReissueGroup) -> tuple[ParkedOperation, ...]:
        """What the group does not have, under any dot, in order. Ask only when it `is_decided`."""
        return tuple(
            operation
            for operation in self.operations
            if not any(self._has(group, dot) for dot in self._dots(operation))
        )

    def _dots(self, operation: ParkedOperation) -> Iterator[Dot]:
        yield operation.dot
        yield from self.copies.get(operation.dot, ())

    def _has(self, group: ReissueGroup, dot: Dot) -> bool:
        """Whether the group has that message: it has all of an incarnation that has settled and is forgotten."""
        incarnation = dot.origin
        delivered = group.vector.get(incarnation)
        if delivered is not None:
            return delivered >= dot.counter
        fate = group.fate(incarnation)
        if isinstance(fate, int):
            return fate >= dot.counter
        if fate is Fate.MEMBER:
            return False
        settling = self.settling.get(incarnation)
        return self._was_a_member(incarnation) or (
            settling is not None and self._has(group, settling)
        )

    def _was_a_member(self, incarnation: str) -> bool:
        """Whether an incarnation that is forgotten was known to the group once."""
        return incarnation not in self.strangers or incarnation in self.met

    def reissued(self, operation: ParkedOperation, dot: Dot) -> "Parked":
        """With an operation that is about to go out again as `dot`. Save this before that leaves."""
        again = (*self.copies.get(operation.dot, ()), dot)
        return replace(self, copies={**self.copies, operation.dot: again})

    def settled(self, incarnation: str, dot: Dot) -> "Parked":
        """`incarnation` has been settled by the message `dot`, after the last of its operations that went out."""
        return replace(self, settling={**self.settling, incarnation: dot})

    def may_be_dropped(self, group: ReissueGroup) -> bool:
        """Whether no crash, and no member's end, can make it uncertain again what the group has of these operations."""
        return all(self._is_over(group, incarnation) for incarnation in self.ended)

    def _is_over(self, group: ReissueGroup, incarnation: str) -> bool:
        settling = self.settling.get(incarnation)
        if settling is not None:
            return _is_stable(group, settling)
        fate = group.fate(incarnation)
        kept = fate if incarnation in self.incomplete and isinstance(fate, int) else None
        if kept is None and (self._was_a_member(incarnation) or fate is Fate.MEMBER):
            return fate is Fate.SETTLED
        # It never was a member, or it is never settled: only the copies count.
        return all(
            any(_is_stable(group, copy) for copy in self.copies.get(operation.dot, ()))
            for operation in self.operations
            if operation.dot.origin == incarnation and operation.dot.counter > (kept or 0)
        )


def _has_joined(group: ReissueGroup, stranger: str) -> bool:
    """Whether the join of a former incarnation is delivered, as far as is known: its contact may be forgotten."""
    if stranger in group.vector:
        return True
    join = joined_by(stranger)
    return join is None or any(
        base_of(contact) == join[0] and counter >= join[1]
        for contact, counter in group.vector.items()
    )


def _is_stable(group: ReissueGroup, dot: Dot) -> bool:
    """Whether it was reported stable: all messages of an incarnation that was dropped were."""
    if dot.origin in group.vector:
        return group.stable.get(dot.origin, 0) >= dot.counter
    return group.fate(dot.origin) is not Fate.MEMBER
