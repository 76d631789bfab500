"""Who is in the group, who has ended and where, which evictions are open: what the delivered operations say.

Plain state and the decisions on it that need no messages: who is past, the least set of victims that can be concluded,
and whether the survivors are a majority. Everything here is the same at members that have delivered the same.
"""

import enum
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from crdtcast.engine.level import PROGRAM, Raised, Span
from crdtcast.engine.operations import Cut, Evict, Frozen, How, Join, Kind, Operation, decode
from crdtcast.engine.state import EngineState
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.incarnation import base_of, joined_by
from crdtcast.tags import Dot, Vector


class Standing(enum.Enum):
    """What an engine's own incarnation is, as far as it knows itself.

    DISPUTED: a member, but one that was forcibly evicted by those whom this side has forcibly evicted. It goes on; the
    operator names the side that ends (`GroupEngine.surrender`), and may come back.
    """

    MEMBER = "member"
    DISPUTED = "disputed"
    LEAVING = "leaving"
    LEFT = "left"
    EVICTED = "evicted"

    @property
    def can_send(self) -> bool:
        """Whether it is in the group, as far as it knows, and does not leave."""
        return self is Standing.MEMBER or self is Standing.DISPUTED


class Fate(enum.Enum):
    """What has become of a former incarnation, when no number of messages says it.

    MEMBER: it has not ended here, or is not known here yet. SETTLED: no trace of it is left.
    """

    MEMBER = "member"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Member:
    """One member. witness: it votes, reports and stores, but holds no application state. reads: the format levels that
    its program reads, as it said last, in its message number `said_at` (0: with its join).
    """

    incarnation: str
    witness: bool = False
    reads: Span = PROGRAM
    said_at: int = 0


@dataclass(frozen=True, slots=True)
class GroupState(EngineState):
    """What a restart, or a joiner, needs, of one instant.

    members: all, oneself included. replaced: base of an incarnation -> member whose join replaces it. ended:
    incarnations that have ended and were not dropped. evictions: victim -> reporter -> what it had delivered of the
    victim. forced: victims by an operator's word. swept: ended incarnation -> first delivered sweep that lists it.
    tombs: cuts of the evicted that have not settled. dropped: see `Digest`. level: the format level in force. raised:
    what was asked for beyond that.
    """

    members: tuple[Member, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, Cut] = field(default_factory=dict)
    evictions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    forced: frozenset[str] = frozenset()
    swept: Mapping[str, Dot] = field(default_factory=dict)
    tombs: Mapping[str, Cut] = field(default_factory=dict)
    dropped: int = 0
    level: int = PROGRAM.lowest
    raised: tuple[Raised, ...] = ()


class Membership:
    """Members and the ended. `vector` is the engine's, read only."""

    def __init__(self, me: str, vector: Vector, state: GroupState) -> None:
        self.me = me
        self._vector = vector
        self.members = {member.incarnation: member for member in state.members}
        self.replaced = dict(state.replaced)
        self.ended = dict(state.ended)
        self.evictions = {x: dict(reports) for x, reports in state.evictions.items()}
        self.forced = set(state.forced)
        self.swept = dict(state.swept)
        self.tombs = dict(state.tombs)
        self._by_base = {base_of(i): i for i in (*self.members, *self.ended)}
        # Victim -> who has evicted it, and by which message. Without any it is a victim in every past that is still to
        # come: the message is stable. None: it was replaced before it was known, so its own join has made it a victim.
        self._opened_by: dict[str, dict[str, int] | None] = {
            victim: None if self._replaced_first(victim, state.stable) else {}
            for victim in self.evictions
        }
        # Victim -> reporter -> number of the message with its report. Without one it is in every such past, too: it is
        # stable, or in the past of the reporter's join.
        self._reported_by: dict[str, dict[str, int]] = {victim: {} for victim in self.evictions}
        for message in state.unstable:
            if message.kind in (Kind.EVICT, Kind.FROZEN, Kind.JOIN):
                with suppress(RemoteProtocolError):
                    self._note(decode(message.kind, message.payload), message.dot)

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
            # No contact is itself unknown to a member; but for a leaver nobody waits before letting others in.
            return self.me not in self.ended
        cut = self.ended.get(contact)
        return self._vector.get(contact, 0) >= join[1] or (
            cut is not None and join[1] > cut.counter
        )

    def cut_of(self, incarnation: str) -> int | None:
        """How many messages of an ended incarnation count; None if it has not ended, or that is forgotten.

        None of one that was let in beyond the cut of its contact: it never was a member for anybody else.
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

    def established(self, stable: Vector) -> frozenset[str]:
        """The members whose join is stable here."""
        return frozenset(i for i in self.members if self.is_established(i, stable))

    def is_established(self, incarnation: str, stable: Vector) -> bool:
        """Whether the join of a member is stable here, so that everybody knows it. Founders: always."""
        join = joined_by(incarnation)
        if join is None:
            return True
        contact = self._by_base.get(join[0])
        return contact is None or stable.get(contact, 0) >= join[1]

    def is_victim_within(self, known: Callable[[str], int], victim: str) -> bool:
        """Whether somebody has evicted a victim in the past that covers so much of each origin."""
        opened = self._opened_by[victim]
        return not opened or any(known(origin) >= number for origin, number in opened.items())

    def report_within(self, known: Callable[[str], int], victim: str, reporter: str) -> int | None:
        """What a member has reported on a victim, if that report is in the past that covers so much of each origin."""
        number = self._reported_by[victim].get(reporter, 0)
        return self.evictions[victim].get(reporter) if known(reporter) >= number else None

    # Changes

    def _replaced_first(self, incarnation: str, stable: Vector) -> bool:
        return self.is_replaced(incarnation) and not self.is_established(incarnation, stable)

    def open_eviction(self, victim: str, dot: Dot | None) -> None:
        """It is a victim from now on, by this message (None: by its own join); nobody has reported on it yet."""
        self.evictions[victim] = {}
        self._opened_by[victim] = None if dot is None else {dot.origin: dot.counter}
        self._reported_by[victim] = {}

    def drop_eviction(self, victim: str) -> None:
        """It is a victim no more."""
        self.evictions.pop(victim, None)
        self._opened_by.pop(victim, None)
        self._reported_by.pop(victim, None)
        self.forced.discard(victim)

    def report(self, report: Frozen, dot: Dot) -> bool:
        """A member has reported on somebody, in this message. Whether that is a victim."""
        reports = self.evictions.get(report.incarnation)
        if reports is None:
            return False
        reports[dot.origin] = report.counter
        self._note(report, dot)
        return True

    def evict_again(self, victim: str, dot: Dot) -> None:
        """Another message evicts a victim, too."""
        opened = self._opened_by[victim]
        if opened is not None:
            opened.setdefault(dot.origin, dot.counter)

    def _note(self, operation: Operation | None, dot: Dot) -> None:
        origin, number = dot
        match operation:
            case Frozen(victim) if victim in self.evictions:
                self._reported_by[victim].setdefault(origin, number)
            case Evict(victim) if victim in self.evictions:
                self.evict_again(victim, dot)
            case Join():
                for replaced in map(self.incarnation, operation.replaces):
                    if replaced is not None and replaced in self.evictions:
                        self.evict_again(replaced, dot)

    def join(self, incarnation: str, join: Join) -> None:
        """It is a member. What its contact has reported on victims counts for it, too."""
        self.members[incarnation] = Member(incarnation, join.witness, join.reads)
        # Two contacts that know nothing of each other may have let one base in; then all take the same one.
        self._by_base[join.base] = min(incarnation, self._by_base.get(join.base, incarnation))
        for base in join.replaces:
            self.replaced[base] = incarnation
        contact = joined_by(incarnation)
        assert contact is not None
        reporter = self._by_base[contact[0]]
        for reports in self.evictions.values():
            if reporter in reports:
                reports[incarnation] = reports[reporter]

    def reads(self, dot: Dot, span: Span) -> None:
        """A member has announced the format levels that its program reads, in this message."""
        member = self.members.get(dot.origin)
        if member is not None:
            self.members[dot.origin] = replace(member, reads=span, said_at=dot.counter)

    def end(self, incarnation: str, cut: Cut) -> None:
        """It is no member any more."""
        del self.members[incarnation]
        self.drop_eviction(incarnation)
        self.ended[incarnation] = cut
        if cut.how is not How.LEFT:
            self.tombs[incarnation] = cut

    def drop(self, incarnation: str) -> None:
        """Nothing of it is left, but for its tomb."""
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

    # Decisions

    def least_set(self, victim: str) -> frozenset[str] | None:
        """The least set of victims with `victim` on all of whom everybody outside of it has reported, or None.

        Not one victim at a time: two dead of five would wait for each other's report. Not all of them at once: the
        order of arrival would then change the majority.
        """
        chosen = {victim}
        unseen = [victim]
        while unseen:
            reports = self.evictions[unseen.pop()]
            for member in self.members:
                if member not in chosen and member not in reports:
                    if member not in self.evictions:
                        return None
                    chosen.add(member)
                    unseen.append(member)
        return frozenset(chosen)

    def concludes(self, victims: Collection[str]) -> bool:
        """Whether this member may cut these off when they are reported on: not, unless by force, once it knows that it
        is a victim, too. Of two that would cut each other off one knows: a member that reports on both reports on it
        first, and the later report comes after the earlier one.
        """
        return self.me not in self.evictions or self.forced.issuperset(victims)

    def has_majority(self, victims: Collection[str], stable: Vector) -> bool:
        """Whether the survivors that everybody knows outnumber the victims, and one of them holds data.

        Victims count whether or not everybody knows them: both sides of a partition may have admitted joiners.
        Replaced ones, and those evicted by force, do not count; if nobody counts, anybody who is left will do.
        """
        against = [v for v in victims if v not in self.forced and not self.is_replaced(v)]
        survivors = [
            member
            for incarnation, member in self.members.items()
            if incarnation not in victims
            and (not against or self.is_established(incarnation, stable))
        ]
        return len(survivors) > len(against) and any(not m.witness for m in survivors)
