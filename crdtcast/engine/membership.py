"""Who is in the group, who has ended and where: what the delivered operations and the decisions of views say.

Plain state, and what follows from it without messages. All of it is the same at members that have delivered the same
and are in the same view.
"""

import enum
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.operations import Cut, How, Join, Operation, Reads, Settled, Sweep
from crdtcast.engine.state import EngineState
from crdtcast.engine.views import NO_VIEW, NO_WANTS, Decided, Record, View, Wants


class Standing(enum.Enum):
    """What an engine's own incarnation is, as far as it knows itself.

    LEAVING: it leaves, until the others have all that it has; or it was removed, until they know that.
    DISPUTED: a member, but evicted by force by members that its own side has evicted, too. It goes on. The operator
        names the side that ends (`GroupEngine.surrender`), and may come back.
    SPLIT: a member, but one epoch has ended in two ways, and no operator has forced that: a voter's disk was set back.
        It goes on, but makes no change of views until those of one side have ended in the same way.
    """

    MEMBER = "member"
    DISPUTED = "disputed"
    SPLIT = "split"
    LEAVING = "leaving"
    LEFT = "left"
    EVICTED = "evicted"

    @property
    def can_send(self) -> bool:
        """Whether it is in the group, as far as it knows, and is not leaving."""
        return self in (Standing.MEMBER, Standing.DISPUTED, Standing.SPLIT)


class Fate(enum.Enum):
    """What has become of a former incarnation, if no number of messages says it.

    MEMBER: at this member it has not ended, or is not known yet. SETTLED: no trace of it is left.
    """

    MEMBER = "member"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One member. witness: it votes and stores, but holds no application state. reads: the format levels that its
    program reads, as it said last, in its message number `said_at` (0: in its join).
    """

    incarnation: str
    witness: bool = False
    reads: Span = PROGRAM
    said_at: int = 0


@dataclass(frozen=True, slots=True)
class Early:
    """What others have said of an incarnation that had not ended at this member: the first sweep that lists it at
    `counter`, and whether it has settled there. This counts if it ends at `counter`.
    """

    counter: int
    swept: Dot | None = None
    settled: bool = False

    def is_outdated_by(self, other: "Early") -> bool:
        """Whether the same sender has said something else since, which only a liar does."""
        if self.swept is None or other.swept is None:
            return self.swept is other.swept
        return self.swept.origin == other.swept.origin


@dataclass(frozen=True, slots=True)
class GroupState(EngineState):
    """What a restart, or a joiner, needs, of one instant.

    members: all, this one included, also those that went and have not ended at it.
    replaced: base of an incarnation -> member whose join replaces it.
    ended: incarnations that have ended and were not dropped. swept: ended one -> first delivered sweep that lists it.
    early: see `Early`. tombs: cuts of evicted incarnations that have not settled. dropped: see `Digest`.
    view: who votes. record: what this member has noted (None: nothing yet). decided: what has ended the last epochs.
    frozen: victim -> how much of it is taken while the epoch is open. cuts: of those that went and have not ended.
    agreed: a format level that may be in force soon. wants: what this member has to bring about.
    """

    members: tuple[MemberInfo, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, Cut] = field(default_factory=dict)
    swept: Mapping[str, Dot] = field(default_factory=dict)
    early: Mapping[str, tuple[Early, ...]] = field(default_factory=dict)
    tombs: Mapping[str, Cut] = field(default_factory=dict)
    dropped: int = 0
    view: View = NO_VIEW
    record: Record | None = None
    decided: tuple[Decided, ...] = ()
    frozen: Mapping[str, int] = field(default_factory=dict)
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    agreed: int = PROGRAM.lowest
    wants: Wants = NO_WANTS
    apart_from_messages: tuple[object, ...] = field(init=False, repr=False, compare=False)
    """All that does not follow from the messages, besides `members`, `early` and `decided`: see
    `GroupEngine.still_has`.
    """

    def __post_init__(self) -> None:
        apart = (
            *(self.record, self.view, self.wants, self.cuts, self.frozen, self.ended),
            *(self.tombs, self.replaced, self.swept, self.dropped, self.agreed),
        )
        object.__setattr__(self, "apart_from_messages", apart)

    def given_to_joiner(self) -> "GroupState":
        """The state without what is this member's alone: its promise, its vote, its wants."""
        return replace(self, record=None, wants=NO_WANTS)


class Membership:
    """Members and ended incarnations. vector: that of the engine, read only."""

    def __init__(self, me: str, vector: Vector, state: GroupState) -> None:
        self.me = me
        self.vector = vector
        self.members: dict[str, MemberInfo] = {
            member.incarnation: member for member in state.members
        }
        self.replaced: dict[str, str] = dict(state.replaced)
        self.ended: dict[str, Cut] = dict(state.ended)
        self.cuts: dict[str, Cut] = dict(state.cuts)
        self.frozen: dict[str, int] = dict(state.frozen)
        self.swept: dict[str, Dot] = dict(state.swept)
        self.early: dict[str, list[Early]] = {
            who: list(early) for who, early in state.early.items()
        }
        self.tombs: dict[str, Cut] = dict(state.tombs)
        self._by_base = {base_of(i): i for i in (*self.members, *self.ended)}
        self.joins: int = 0
        self.leaves: int = 0
        self.evictions: int = 0
        self.sweeps: int = 0
        """Counted at this member since its process started."""

    def incarnation(self, base: str) -> str | None:
        """The id of a member, or of one that has ended and was not dropped, by its base."""
        return self._by_base.get(base)

    def is_past(self, incarnation: str) -> bool:
        """Whether it has ended, and every trace but a tomb is gone; False for one whose join is still to come."""
        if incarnation in self.members or incarnation in self.ended:
            return False
        join = joined_by(incarnation)
        if join is None:
            return True
        contact = self._by_base.get(join[0])
        if contact is None:
            # A member knows every contact. But others admit joiners without waiting for a member that went.
            return self.me not in self.cuts
        cut = self.ended.get(contact)
        return self.vector.get(contact, 0) >= join[1] or (cut is not None and join[1] > cut.counter)

    def cut_of(self, incarnation: str) -> int | None:
        """How many messages of an ended incarnation count; None if it has not ended, or that is forgotten.

        0 for one that was admitted beyond the cut of its contact: for all others it never was a member.
        """
        cut = self.ended.get(incarnation) or self.tombs.get(incarnation)
        if cut is not None:
            return cut.counter
        join = joined_by(incarnation)
        if join is None or incarnation in self.members:
            return None
        for contact, ended in (*self.ended.items(), *self.tombs.items()):
            if base_of(contact) == join[0] and join[1] > ended.counter:
                return 0
        return None

    def fate(self, incarnation: str) -> int | Fate:
        """How many messages of a former incarnation the group has; a `Fate` if there is no such number."""
        cut = self.cut_of(incarnation)
        if cut is not None:
            return cut
        return Fate.SETTLED if self.is_past(incarnation) else Fate.MEMBER

    def is_replaced(self, incarnation: str) -> bool:
        """Whether a delivered join replaces it."""
        return base_of(incarnation) in self.replaced

    def replaced_among(self, incarnations: Iterable[str]) -> set[str]:
        """Those of them that delivered joins replace."""
        return set(filter(self.is_replaced, incarnations)) if self.replaced else set()

    def is_established(self, incarnation: str, stable: Vector) -> bool:
        """Whether the join of a member is stable, so that all members know it. Always true of founders."""
        join = joined_by(incarnation)
        if join is None:
            return True
        contact = self._by_base.get(join[0])
        return contact is None or stable.get(contact, 0) >= join[1]

    def going_on(self) -> list[str]:
        """The members except those that went."""
        return [member for member in self.members if member not in self.cuts]

    def others(self) -> Set[str]:
        """The members except this one, those that went, and those whose successor has joined."""
        others = set(self.going_on()) - {self.me}
        return others - self.replaced_among(others)

    def cut(self, incarnation: str) -> Cut | None:
        """The cut of an incarnation that went, whether or not it has ended yet. Also None if it is forgotten."""
        return self.cuts.get(incarnation) or self.ended.get(incarnation)

    def is_over(self, incarnation: str) -> bool:
        """Whether it went, or has ended, or can never be a member."""
        return self.cut(incarnation) is not None or self.is_past(incarnation)

    def may_be_a_member(self, incarnation: str) -> bool:
        """Whether it is or was a member that this one knows; or was admitted by a message that this one has not
        delivered, or by a contact that it does not know.
        """
        if incarnation in self.vector or incarnation in self.tombs:
            return True
        join = joined_by(incarnation)
        if join is None:
            return False
        contact = self.incarnation(join[0])
        return contact is None or self.vector[contact] < join[1]

    def limit(self, incarnation: str) -> int | None:
        """How many messages of a victim, or of a member that went, may be delivered. None for others: all."""
        frozen, cut = self.frozen.get(incarnation), self.cuts.get(incarnation)
        if cut is None:
            return frozen
        return cut.counter if frozen is None else min(frozen, cut.counter)

    def limited(self) -> set[str]:
        """Victims, and members that went."""
        return self.frozen.keys() | self.cuts.keys()

    # Changes

    def apply(self, operation: Operation, dot: Dot) -> None:
        """Apply an operation, except a join, where it is delivered, its sender included."""
        match operation:
            case Sweep(ended):
                self.sweeps += 1
                for incarnation, cut in ended:
                    if incarnation in self.ended:
                        self.swept.setdefault(incarnation, dot)
                    else:
                        self._note_early(incarnation, Early(cut.counter, swept=dot))
            case Settled(incarnation, counter):
                self._note_early(incarnation, Early(counter, settled=True))
                self.tombs.pop(incarnation, None)
            case Reads(span) if (member := self.members.get(dot.origin)) is not None:
                self.members[dot.origin] = replace(member, reads=span, said_at=dot.counter)

    def join(self, incarnation: str, join: Join) -> None:
        """An incarnation becomes a member."""
        self.joins += 1
        self.members[incarnation] = MemberInfo(incarnation, join.witness, join.reads)
        # Two contacts that know nothing of each other may have admitted one base; then all take the same one.
        self._by_base[join.base] = min(incarnation, self._by_base.get(join.base, incarnation))
        for base in join.replaces:
            self.replaced[base] = incarnation

    def _note_early(self, incarnation: str, early: Early) -> None:
        """Another member knows that it has ended, and this one does not yet. The last word of each sender counts."""
        if incarnation not in self.members or incarnation == self.me:
            return
        known = self.early.get(incarnation, ())
        kept = [each for each in known if not each.is_outdated_by(early)]
        self.early[incarnation] = [*kept, early]

    def drop_unborn(self) -> bool:
        """Forget the cuts of those that can never be members: they were admitted beyond their contact's end, or never.
        Returns whether there were any.
        """
        unborn = [x for x in self.cuts if x not in self.members and self.is_past(x)]
        for incarnation in unborn:
            del self.cuts[incarnation]
        return bool(unborn)

    def thaw(self) -> None:
        """The epoch is over: the freeze ends. What was said about the end of members that go on after all is false."""
        self.frozen.clear()
        self.early = {who: early for who, early in self.early.items() if who in self.cuts}

    def end(self, incarnation: str, cut: Cut) -> None:
        """An incarnation has ended: all of it that counts is delivered."""
        if cut.how.is_eviction:
            self.evictions += 1
        else:
            self.leaves += 1
        del self.members[incarnation]
        self.cuts.pop(incarnation, None)
        self.ended[incarnation] = cut
        if cut.how is not How.LEFT:
            self.tombs[incarnation] = cut
        for early in self.early.pop(incarnation, ()):
            if early.counter == cut.counter:
                if early.swept is not None:
                    self.swept.setdefault(incarnation, early.swept)
                if early.settled:
                    self.tombs.pop(incarnation, None)

    def drop(self, incarnation: str) -> None:
        """Forget an incarnation, except its tomb."""
        del self.ended[incarnation]
        del self.swept[incarnation]
        base = base_of(incarnation)
        if self._by_base.get(base) == incarnation:
            del self._by_base[base]
        self.replaced = {
            base: successor
            for base, successor in self.replaced.items()
            if successor != incarnation or self._by_base.get(base) in self.members
        }
