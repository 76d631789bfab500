"""When a member begins a ballot, and with which terms: its operator's wants, its own leave, and what nobody has to ask
for, the end of those who were replaced and votes for those who have joined.

It *asks first*: unless all who would go on are there, and a quorum, nothing is frozen. What has waited too long for its
decision is ended by a ballot without victims, by whoever notices first; then it is asked for anew. Ticks are the only
clock.
"""

from crdtcast.engine.consensus import Consensus
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import NO_BALLOT, Proposal, Wants, Word

PACE = 4
"""Ticks by which a member waits longer than the linked voter before it, with what everybody would begin."""
ASK_AGAIN = 8
"""Ticks after which those who have not answered are asked again; later and later, up to eight times as long."""
GIVE_UP = 3 * ASK_AGAIN
"""Ticks after which members that do not answer, and of which nothing has ever come, are taken to have died on their
way.
"""
PATIENCE = 40
"""Ticks without any progress after which a ballot is given up by its proposer, or by somebody who is to force another
one; by others after twice as long.
"""
MOST_PATIENCE = 4
"""Times by which that grows where ballots get in each other's way."""


class Proposer:
    """Of one member. wants: what it has saved."""

    def __init__(self, consensus: Consensus, exchange: Exchange, wants: Wants) -> None:
        self._me = consensus.own.member
        self._consensus = consensus
        self._exchange = exchange
        self._knowledge = consensus.knowledge
        self._membership = consensus.knowledge.membership
        self.wants: Wants = wants
        self.waits_for: tuple[str, ...] = ()
        """Whom the own want waits for."""
        self.since: int = 0
        """The tick at which the epoch began, or its newest ballot last got on."""
        self._epoch: int | None = None  # a restart may follow a decision at once
        self._progress = consensus.progress()
        self._asked_at: int | None = None
        self._ask_at = 0
        self._ask_delay = ASK_AGAIN
        self._tries = 0
        self._due: int | None = None
        self.named: set[str] = set()
        """Members of which only others know, and that have not promised."""

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
        forces = any(self.wants.victims.values())  # it does without whom the others wait for
        patience = PATIENCE * (1 if own is not None or forces else 2) + PACE * self._rank()
        if not forces:
            patience *= min(1 << self._tries, MOST_PATIENCE)
        waited = tick - self.since
        may_overrule = bool(self.wants) if own is None else not own.needs_all
        if may_overrule and waited >= (PATIENCE if own is None else PACE):
            # What needs a quorum only has none. By a word, those who are left may do without.
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
        """Whether others know members of whom nobody will hear, and who have to go, too, for this to be decided."""
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
        """What this member would ask for now; None: nothing."""
        knowledge, wants = self._knowledge, self.wants
        members = set(self._membership.going_on())
        replaced = self._membership.replaced_among(members | self.named) - {self._me}
        victims = (wants.victims.keys() & (members | self.named)) | replaced
        leaves = wants.leaves
        if leaves:
            # Whom it still has to evict goes first, if nobody else is left who could let them in again.
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
        """The terms, if all who are needed have answered; otherwise they are asked.

        Members of which nothing has ever come may have died on their way, and go, too, if they do not answer. By the
        operator's word, `force` or a replacement, the members that are left do without a quorum of the voters.
        """
        knowledge, view = self._knowledge, self._consensus.view
        if self._asked_at is None:
            self._asked_at = tick
            self._ask(tick)  # who has answered an earlier question may be gone by now
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
        # Who is about to go may be the only one to have what others lack of those who went before.
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
        """What everybody would begin, the least of the linked voters begins; another one if that does not."""
        if self._due is None:
            self._due = tick + PACE * self._rank()
        if tick >= self._due:
            self._begin(self._ready(terms, tick) if terms.needs_all else terms)

    def _rank(self) -> int:
        voters = self._consensus.view.voters
        mine = self._me in voters
        before = [m for m in self._knowledge.linked() if (m in voters) == mine and m < self._me]
        return len(before) if mine else len(voters) + len(before)
