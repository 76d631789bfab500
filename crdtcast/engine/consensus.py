"""How a group decides the changes of its view: single-decree Paxos, once for each epoch.

Every member keeps one record (`engine.views`), which others pass on. So loss, order and duplicates of what is sent do
not matter. Besides Paxos there are three rules, which tie a decision to what members have delivered:

- A promise *freezes* the victims: its member delivers nothing more of them until the epoch is decided.
- A change with victims has the promises of all who go on, and cuts each victim at the most that any of these has.
- A freeze ends only with the decision of its epoch, since a later ballot may have to take over an earlier change.

docs/protocol.md, *Views*, gives the reasons.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from crdtcast.engine.group_knowledge import GroupKnowledge
from crdtcast.engine.operations import Cut, How
from crdtcast.engine.view_checks import is_new, is_plausible, may_be
from crdtcast.engine.views import (
    NO_BALLOT,
    Accepted,
    Ballot,
    Decided,
    Promise,
    Proposal,
    Record,
    View,
    ViewChange,
    Word,
)

MOST_SKIPPED = 1000
"""Ballot numbers by which one member may be ahead of all others."""


def _highest(record: Record) -> int:
    proposed = 0 if record.proposal is None else record.proposal.ballot.number
    return max(record.promised.number, proposed)


class Consensus:
    """One member's part. view, own, decided: what it has saved; see `GroupState`.

    abstains: whether this member must not vote: others may remember a vote of it, or one epoch has two views.
    on_decision: called when the epoch is over.
    """

    def __init__(
        self,
        view: View,
        own: Record,
        decided: Iterable[Decided],
        knowledge: GroupKnowledge,
        abstains: Callable[[], bool],
        on_decision: Callable[[ViewChange], None],
    ) -> None:
        self.view: View = view
        self.own: Record = own
        self.decided: dict[int, Decided] = {each.epoch: each for each in decided}
        """Epoch -> the decision that ended it: others may not know it yet."""
        self.records: dict[str, Record] = {own.member: own}
        """Member -> its newest known record."""
        self._told: list[Decided] = []  # decisions that follow the view of this member
        self.knowledge = knowledge
        self._membership = knowledge.membership
        self.abstains = abstains
        self._on_decision = on_decision

    # What is known

    def current(self) -> list[Record]:
        """The records of the members that are in the same view."""
        view = self.view
        return [r for r in self.records.values() if r.epoch == view.epoch and r.name == view.name]

    def hear(self, record: Record) -> bool:
        """Take a record that a peer passes on. Returns whether it is news."""
        known = self.records.get(record.member)
        if known is not None and known.serial >= record.serial:
            return False
        self.records[record.member] = record
        return True

    def contradicts(self, epoch: int, name: str) -> bool:
        """Whether this member had another view in that epoch, as far as it still knows."""
        if epoch == self.view.epoch:
            return name != self.view.name
        known = self.decided.get(epoch)
        return known is not None and known.name != name

    def told(self, decisions: Iterable[Decided]) -> bool:
        """Take decisions of successive epochs from a peer. Returns whether any is news.

        Only those count that follow from the view of this member, and from each other.
        """
        view, known = self.view, len(self._told)
        for each in self._told:
            view = view.after(each.change)
        for each in decisions:
            if (each.epoch, each.name) == (view.epoch, view.name):
                self._told.append(each)
                view = view.after(each.change)
        return len(self._told) > known

    def _in_reach(self) -> int:
        """The greatest ballot number that counts at this member. Numbers go up one by one, so one that is far beyond
        what this member, or any two others, have taken up does not count.
        """
        others = sorted(_highest(r) for r in self.current() if r.member != self.own.member)
        agreed = others[-2] if len(others) > 1 else 0
        return max(_highest(self.own), agreed) + MOST_SKIPPED

    def highest(self) -> int:
        """The greatest number of a ballot in this epoch that counts."""
        most = self._in_reach()
        return max(number for r in self.current() if (number := _highest(r)) <= most)

    def open_proposal(self) -> Proposal | None:
        """The proposal that this member has promised last, if the epoch is open and it knows that proposal."""
        if self.own.promised == NO_BALLOT:
            return None
        return next(
            (
                record.proposal
                for record in self.current()
                if record.proposal is not None and record.proposal.ballot == self.own.promised
            ),
            None,
        )

    def progress(self) -> tuple[Ballot, int, int]:
        """The ballot that this member has promised last, and how many members have promised and accepted it."""
        ballot = self.own.promised
        current = self.current() if ballot != NO_BALLOT else ()
        promised = sum(record.promised == ballot for record in current)
        accepted = sum(r.accepted is not None and r.accepted.ballot == ballot for r in current)
        return ballot, promised, accepted

    def drop(self, member: str) -> None:
        """Forget a member."""
        self.records.pop(member, None)

    # Paxos

    def prepare(self, terms: Proposal) -> None:
        """Begin a new ballot with these terms, whatever ballot they name."""
        ballot = Ballot(self.highest() + 1, self.own.member)
        self._note(proposal=terms._replace(ballot=ballot, change=None))
        self.react()

    def react(self) -> None:
        """Do what the known records ask for."""
        if not self._told and all(
            r.proposal is None and r.accepted is None for r in self.records.values()
        ):
            return  # as nearly always
        while self._follow() or self._promise() or self._accept() or self._conclude():
            pass

    def _note(self, **changes: object) -> None:
        """Change the own record. It is durable, with everything else, before another member hears of it."""
        self.own = replace(self.own, serial=self.own.serial + 1, **changes)  # type: ignore[arg-type]
        self.records[self.own.member] = self.own

    def _takes_part(self) -> bool:
        return self.own.member in self._membership.going_on() and not self.abstains()

    def may_vote(self, learner: str) -> bool:
        """Whether all members know it, and something of it has arrived."""
        return self.knowledge.is_established(learner) and not self.is_unheard(learner)

    def is_unheard(self, member: str) -> bool:
        """Whether it was admitted, and nothing of it has arrived: it may have died on its way."""
        if member in self.view.voters or member in self.records:
            return False
        return self.knowledge.is_silent(member)

    def _follow(self) -> bool:
        if not self._told:
            return False
        decided = self._told.pop(0)
        if not self._can_go_on(decided.change):
            self._told.clear()
            return False
        if decided.change.forces_out(self.own.member):
            self._told.clear()
            return False
        self._decide(decided.change, forced=decided.forced)
        return True

    def _promise(self) -> bool:
        if not self._takes_part():
            return False
        knowledge, own, most = self.knowledge, self.own, self._in_reach()
        asked = [
            record.proposal
            for record in self.current()
            if record.proposal is not None
            and record.proposal.ballot > own.promised
            and record.proposal.ballot.proposer == record.member
            and record.proposal.ballot.number <= most
            and (record.proposal.level is None or record.proposal.level in knowledge.reads)
        ]
        if not asked:
            return False
        proposal = max(asked, key=lambda each: each.ballot)
        report = Promise(proposal.ballot)
        if proposal.needs_all:
            taken = {*proposal.victims, *self._membership.cuts} - {own.member}
            knowledge.limits.freeze(taken)
            knowledge.agreed = max(knowledge.agreed, proposal.level or 0)
            delivered = {
                incarnation: knowledge.counted(incarnation) for incarnation in sorted(taken)
            }
            report = Promise(proposal.ballot, delivered, tuple(sorted(self._membership.going_on())))
        self._note(promised=proposal.ballot, promise=report)
        return True

    def _accept(self) -> bool:
        own = self.own
        if not self._takes_part():
            return False
        has_vote = own.member in self.view.voters
        for record in self.current():
            proposal = record.proposal
            if proposal is None or proposal.change is None or proposal.ballot < own.promised:
                continue
            if own.accepted is not None and own.accepted.ballot >= proposal.ballot:
                continue
            if record is not own and not self._may_follow(proposal, proposal.change):
                continue
            # If no voter goes on, the member that the operator has asked decides for the rest.
            if has_vote or (proposal.word.forced and record is own):
                accepted = Accepted(proposal.ballot, proposal.change, proposal.word)
                self._note(promised=proposal.ballot, accepted=accepted)
                return True
        return False

    def _may_follow(self, proposal: Proposal, change: ViewChange) -> bool:
        """Whether its proposer may ask to accept that, as far as this member can tell: its terms ask for it, or it was
        accepted before.
        """
        if not (is_plausible(change, self.knowledge) and self._can_go_on(change)):
            return False
        if proposal.ballot.number > self._in_reach():
            return False
        if is_new(change, proposal):
            return not proposal.needs_all or self._was_promised(proposal, change)
        return any(
            record.accepted is not None
            and record.accepted.ballot <= proposal.ballot
            and record.accepted.change == change
            for record in self.current()
        )

    def _was_promised(self, proposal: Proposal, change: ViewChange) -> bool:
        """Whether all who go on, as far as is known, have promised that, and none has more than its cuts."""
        promises, cuts = self.promises(proposal), dict(change.cuts)
        on, missing = self._going_on(proposal, promises)
        reports = [report.delivered for m in on - missing if (report := promises[m].promise)]
        return not missing and not any(
            each.get(victim, 0) > cuts[victim].counter for each in reports for victim in change.out
        )

    def _can_go_on(self, change: ViewChange) -> bool:
        """Whether this member goes, or reads the level: it never promises a level that it does not read."""
        level = change.level
        return level is None or level in self.knowledge.reads or self.own.member in change.out

    def _conclude(self) -> bool:
        """Decide what a quorum has accepted. As the proposer, ask to accept a change once it has the promises."""
        current, own = self.current(), self.own
        for accepted in {record.accepted for record in current if record.accepted is not None}:
            given = [record.member for record in current if record.accepted == accepted]
            change, forced = accepted.change, bool(accepted.word.forced)
            if change.forces_out(own.member) or not self._can_go_on(change):
                continue
            if forced and not self._was_asked(accepted):
                continue
            if self._is_quorum(given, accepted.word):
                self._decide(change, forced=forced)
                return True
        proposal = own.proposal
        if proposal is None or proposal.change is not None or proposal.ballot != own.promised:
            return False
        if not self._takes_part():
            return False
        value = self._value(proposal)
        if value is None:
            return False
        self._note(proposal=proposal._replace(change=value))
        return True

    def _was_asked(self, accepted: Accepted) -> bool:
        """Whether this member has promised it: no member that goes on is forced to what it has not promised."""
        return accepted.ballot <= self.own.promised

    def _is_quorum(self, who: Collection[str], word: Word) -> bool:
        return self.view.is_quorum(who, word)

    def promises(self, proposal: Proposal) -> dict[str, Record]:
        """The records of the members that have promised this and nothing later."""
        return {
            record.member: record
            for record in self.current()
            if record.promise is not None
            and record.promised == record.promise.ballot == proposal.ballot
        }

    def without_promise(self, proposal: Proposal) -> set[str]:
        """The members that go on, as far as is known, and have not promised."""
        return self._going_on(proposal, self.promises(proposal))[1]

    def without_answer(self, proposal: Proposal) -> set[str]:
        """The members that this waits for, as far as is known: those that have not promised it, or, once it has a
        change, voters that have not accepted that.
        """
        if proposal.change is not None:
            current = self.current()
            given = {
                r.member for r in current if r.accepted and r.accepted.ballot == proposal.ballot
            }
            return set(self.view.voters) - given
        if proposal.needs_all and (missing := self.without_promise(proposal)):
            return missing
        return set(self.view.voters) - self.promises(proposal).keys()

    def _going_on(
        self, proposal: Proposal, promises: Mapping[str, Record]
    ) -> tuple[set[str], set[str]]:
        """The members that go on: those that this one knows, and those that their promises name. And which of these
        have not promised. What a victim knows does not count: joiners beyond its cut never were members.
        """
        gone = set(proposal.victims)
        found: set[str] = set()
        missing: set[str] = set()
        unseen = set(self._membership.going_on()) - gone
        while unseen:
            member = unseen.pop()
            found.add(member)
            record = promises.get(member)
            if record is None or record.promise is None:
                missing.add(member)
                continue
            known = set(record.promise.members) - gone - found
            unseen |= {each for each in known if not self._membership.is_over(each)}
        return found, missing

    def _accepted_before(
        self, proposal: Proposal, promises: Mapping[str, Record]
    ) -> list[Accepted]:
        """What voters have accepted and may have been decided.

        If those who go on are a quorum by themselves, they know: what a victim says does not count then. And what is
        certain to be a lie was not decided.
        """
        voters = promises.keys() & self.view.voters
        going_on = voters - set(proposal.victims)
        asked = going_on if self._is_quorum(going_on, proposal.word) else voters
        accepted = [each for who in asked if (each := promises[who].accepted) is not None]
        return [
            each
            for each in accepted
            if may_be(each.change, self.knowledge) and self._can_go_on(each.change)
        ]

    def _value(self, proposal: Proposal) -> ViewChange | None:
        """The change to ask to accept; None while promises are missing."""
        promises = self.promises(proposal)
        if not self._is_quorum(promises, proposal.word):
            return None
        before = self._accepted_before(proposal, promises)
        if before:
            return max(before, key=lambda each: each.ballot).change
        if not proposal.needs_all:
            return ViewChange(votes=self._votes(self._membership.going_on(), ()))
        on, missing = self._going_on(proposal, promises)
        if missing or not (on or proposal.victims == (self.own.member,)):
            return None  # no member removes all members
        cuts = self._cuts(proposal, on, promises)
        return ViewChange(
            cuts,
            tuple(sorted(proposal.victims)),
            self._votes(on, proposal.victims),
            proposal.level,
        )

    def _cuts(
        self, proposal: Proposal, on: Collection[str], promises: Mapping[str, Record]
    ) -> tuple[tuple[str, Cut], ...]:
        """The cut of each victim; and again the cuts of members that went before and have not ended everywhere.

        The latter are stated again since all who have their last messages may go with this change.
        """
        knowledge = self.knowledge
        told = [record.promise.delivered for m in on if (record := promises[m]).promise is not None]
        cuts = {}
        for victim in proposal.victims:
            how = How.FORCED if proposal.word.forced else How.EVICTED
            if proposal.leaves and victim == proposal.ballot.proposer:
                how = How.LEFT
            # If no member goes on, the last one says itself how much it has sent.
            counters = [each.get(victim, 0) for each in told] or [knowledge.counted(victim)]
            cuts[victim] = Cut(max(counters), how)
        for incarnation in {x for each in told for x in each} - cuts.keys():
            known = self._membership.cut(incarnation)
            if known is not None:
                most = max(each.get(incarnation, known.counter) for each in told)
                cuts[incarnation] = Cut(min(most, known.counter), known.how)
        return tuple(sorted(cuts.items()))

    def _votes(self, on: Collection[str], gone: Collection[str]) -> tuple[str, ...]:
        """The learners that get a vote, of `on`. A view has a voter that holds data while any member does."""
        knowledge, voters = self.knowledge, self.view.voters
        learners = [member for member in sorted(on) if member not in voters and member not in gone]
        learners = [member for member in learners if self._membership.cut(member) is None]
        votes = [member for member in learners if self.may_vote(member)]
        if not any(map(knowledge.holds_data, [*(voters - set(gone)), *votes])):
            votes = learners
        return tuple(votes)

    def _decide(self, change: ViewChange, *, forced: bool) -> None:
        before = self.view
        self.decided[before.epoch] = Decided(before.epoch, before.name, change, forced)
        self.view = view = before.after(change)
        if self._told and self._told[0].name != view.name:
            self._told.clear()
        self._note(
            epoch=view.epoch,
            name=view.name,
            sent=self.knowledge.counted(self.own.member),
            promised=NO_BALLOT,
            promise=None,
            accepted=None,
            proposal=None,
        )
        self._on_decision(change)

    def prune(self) -> None:
        """Forget the decisions of epochs that all members have passed, also those admitted before that."""
        knowledge = self.knowledge
        least = self.view.epoch
        if not self._takes_part():
            return
        for member in self._membership.going_on():
            record = self.records.get(member)
            if record is None or knowledge.counted(member) < record.sent:
                return
            if record.epoch > self.view.epoch or self.contradicts(record.epoch, record.name):
                return
            least = min(least, record.epoch)
        for epoch in [epoch for epoch in self.decided if epoch < least]:
            del self.decided[epoch]
