"""When a member begins a ballot, and with which terms: its operator's wants, its own leave, and what needs no request:
removals of replaced members, and votes for joined ones.

It *asks first*: nothing is frozen unless all who would go on are there, and a quorum. A ballot that waits too long for
its decision is ended by one without victims, of the first member that notices. Then it is asked for again. Ticks are
the only clock.
"""

from crdtcast.engine.consensus import Consensus
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import NO_BALLOT, Proposal, Wants, Word

PACE = 4
"""Ticks by which a member waits longer than the linked voter before it, with a ballot that any would begin."""
ASK_AGAIN = 8
"""Ticks after which members that have not answered are asked again, with back-off to eight times as long."""
GIVE_UP = 3 * ASK_AGAIN
"""Ticks after which a member that does not answer, and of which nothing has ever come, counts as dead on its way."""
PATIENCE = 40
"""Ticks without any progress after which a ballot is given up by its proposer, or by a member that has to force another
one; by others after twice as long.
"""
MOST_PATIENCE = 4
"""Factor up to which that grows where ballots get in each other's way."""


class Proposer:
    """The proposer of one member. wants: what it has saved."""

    def __init__(self, consensus: Consensus, exchange: Exchange, wants: Wants) -> None:
        self._me = consensus.own.member
        self._consensus = consensus
        self._exchange = exchange
        self._knowledge = consensus.knowledge
        self._membership = consensus.knowledge.membership
        self.wants: Wants = wants
        self.waits_for: tuple[str, ...] = ()
        """The members that the own wants wait for."""
        self.since: int = 0
        """The tick at which the epoch began, or its newest ballot last made progress."""
        self._epoch: int | None = None  # a restart may follow a decision at once
        self._progress = consensus.progress()
        self._asked_at: int | None = None
        self._ask_at = 0
        self._ask_delay = ASK_AGAIN
        self._tries = 0
        self._due: int | None = None
        self.named: set[str] = set()
        """Members that only others know, and that have not promised."""

    @property
    def is_leaving(self) -> bool:
        """Whether this member has asked the group to let it leave."""
        proposal = self._consensus.own.proposal
        return proposal is not None and proposal.leaves

    def look(self, tick: int) -> None:
        """Begin a ballot if it is time to."""
        self._note_time(tick)
        consensus = self._consensus
        if self._me not in self._membership.going_on():
            self.waits_for = ()
            return
        if consensus.abstains():
            return
        if consensus.own.promised != NO_BALLOT:
            self._look_at_open(tick)
            return
        terms = self._terms()
        if terms is None:
            waits_for = self.waits_for if self.wants.leaves else ()
            self._rest()
            self.waits_for = waits_for
        elif not terms.needs_all or not self.wants:
            self._begin_in_turn(terms, tick)
        else:
            self._begin(self._ready(terms, tick))

    def _note_time(self, tick: int) -> None:
        consensus = self._consensus
        if consensus.view.epoch != self._epoch:
            self._epoch = consensus.view.epoch
            self.since = tick
            self._rest()
            self._tries = 0
            self.named = set()
            self.wants = self.wants.without(
                filter(self._membership.is_over, self.wants.victims),
                consensus.view.level,
            )
        if (progress := consensus.progress()) != self._progress:
            self._progress = progress
            self.since = tick

    def _rest(self) -> None:
        self._asked_at = self._due = None
        self._ask_at = 0
        self._ask_delay = ASK_AGAIN
        self.waits_for = ()

    # An open epoch

    def _look_at_open(self, tick: int) -> None:
        consensus = self._consensus
        own = consensus.own.proposal
        if own is not None and own.ballot != consensus.own.promised:
            own = None  # another one's ballot is open
        if own is not None:
            self.waits_for = tuple(sorted(consensus.without_promise(own)))
            if own.change is None and not self._still_wanted(own):
                consensus.prepare(Proposal(own.ballot))
                return
            if own.needs_all and tick - self.since >= ASK_AGAIN and self._names_more(own):
                self._begin(self._ready(self._terms() or own, tick))
                return
        forces = any(self.wants.victims.values())  # it does without those that others wait for
        patience = PATIENCE * (1 if own is not None or forces else 2) + PACE * self._rank()
        if not forces:
            patience *= min(1 << self._tries, MOST_PATIENCE)
        waited = tick - self.since
        may_overrule = bool(self.wants) if own is None else not own.needs_all
        if may_overrule and waited >= (PATIENCE if own is None else PACE):
            # A ballot that needs only a quorum has none. By the operator's word, those left may do without.
            terms = self._terms()
            if terms is not None and terms.needs_all and (terms := self._ready(terms, tick)):
                self._tries += 1
                consensus.prepare(terms)
                return
        if waited < patience:
            return
        self._tries += 1
        consensus.prepare(Proposal(NO_BALLOT))

    def _names_more(self, own: Proposal) -> bool:
        """Whether others know members that will never answer, and have to go, too, for this to be decided."""
        strange = self._consensus.without_promise(own).difference(self._membership.going_on())
        self.named |= strange
        if strange & self.wants.victims.keys() or self._membership.replaced_among(strange):
            return True
        return any(map(self._consensus.is_unheard, strange))

    def _still_wanted(self, own: Proposal) -> bool:
        wanted = set(self.wants.victims)
        if self.wants.leaves:
            wanted.add(self._me)
        victims = set(own.victims) - wanted
        return all(
            map(self._consensus.is_unheard, victims - self._membership.replaced_among(victims))
        )

    # Terms

    def _terms(self) -> Proposal | None:
        """What this member would ask for now; None if nothing."""
        knowledge, wants = self._knowledge, self.wants
        members = set(self._membership.going_on())
        replaced = self._membership.replaced_among(members | self.named) - {self._me}
        victims = (wants.victims.keys() & (members | self.named)) | replaced
        leaves = wants.leaves
        if leaves:
            # Those that it still has to evict go first, if no other member is left that could admit them again.
            is_last = members <= victims | {self._me}
            self.waits_for = tuple(sorted(knowledge.untold(victims, self._consensus.view.voters)))
            leaves = not self.waits_for and not (victims and is_last)
        if leaves:
            victims.add(self._me)
        level = None if leaves else wants.level  # its own program may not even read that
        if victims or level is not None:
            return Proposal(
                NO_BALLOT,
                tuple(sorted(victims)),
                level,
                leaves,
                Word(tuple(sorted(replaced))),
            )
        if any(map(self._consensus.may_vote, members - self._consensus.view.voters)):
            return Proposal(NO_BALLOT)
        return None

    def _ready(self, terms: Proposal, tick: int) -> Proposal | None:
        """The terms, if all members that are needed have answered; otherwise None, and these are asked.

        Members of which nothing has ever come may have died on their way, and go, too, if they do not answer. By the
        operator's word, `force` or a replacement, the members that are left do without a quorum of the voters.
        """
        knowledge, view = self._knowledge, self._consensus.view
        if self._asked_at is None:
            self._asked_at = tick
            self._ask(tick)  # those that have answered an earlier question may be gone by now
        waited = tick - self._asked_at
        answered = {*self._exchange.answered, self._me}.difference(terms.word.replaced)
        given_up = {who for who, force in self.wants.victims.items() if force}
        if self._tries:
            answered -= given_up  # they answer, and do not vote
        going_on = {*self._membership.going_on(), *self.named} - set(terms.victims)
        missing = going_on - answered
        if terms.level is not None:
            missing |= going_on.intersection(knowledge.lacking_level(terms.level))
        if waited >= GIVE_UP and (unheard := set(filter(self._consensus.is_unheard, missing))):
            terms = terms._replace(victims=tuple(sorted({*terms.victims, *unheard})))
            missing -= unheard
        # A member that is about to go may be the only one to have what others lack of those that went before.
        if not missing and self._membership.cuts and waited < PATIENCE:
            return None
        if not missing:
            if view.is_quorum(answered, terms.word):
                return terms
            silent = view.voters.intersection(terms.victims) - answered
            if waited >= ASK_AGAIN and silent <= given_up.union(terms.word.replaced):
                forced = tuple(who for who in terms.victims if who != self._me)
                return terms._replace(word=Word(forced=forced))
            missing = set(view.voters) - answered
        self.waits_for = tuple(sorted(missing))
        if tick >= self._ask_at:
            self._ask(tick)
        return None

    def _ask(self, tick: int) -> None:
        self._exchange.ask()
        self._ask_at = tick + self._ask_delay
        self._ask_delay = min(2 * self._ask_delay, 8 * ASK_AGAIN)

    def _begin(self, terms: Proposal | None) -> None:
        if terms is not None:
            self._consensus.prepare(terms)
            self._asked_at = None
            self._ask_at = 0

    def _begin_in_turn(self, terms: Proposal, tick: int) -> None:
        """Begin a ballot that any member would begin: the least linked voter does, another one if that does not."""
        if self._due is None:
            self._due = tick + PACE * self._rank()
        if tick >= self._due:
            self._begin(self._ready(terms, tick) if terms.needs_all else terms)

    def _rank(self) -> int:
        voters = self._consensus.view.voters
        mine = self._me in voters
        before = [m for m in self._knowledge.linked() if (m in voters) == mine and m < self._me]
        return len(before) if mine else len(voters) + len(before)
