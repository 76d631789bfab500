"""How members exchange views: what this one takes, and which records and decisions it sends on which link; and which
members answer when one asks whether they are there.

A member sends its own record to all linked peers, at once. What it knows of others it passes on to peers that do not
say soon that they have it: so that works where two members have no link with each other. What is not confirmed is sent
again with back-off. When all have everything, nothing is sent.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from crdtcast.causality.messages import Transmit
from crdtcast.engine.blames import Blames
from crdtcast.engine.checks import MOST_STRANGE, remembers_more
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.forks import Forks
from crdtcast.engine.peer import BACKOFF_MAX
from crdtcast.engine.view_checks import check_own_record, check_views
from crdtcast.engine.views import Asked, Record, Views

PASS_ON = 2
"""Ticks for which others may still say that they have a record before it is passed on to them."""
MOST_SKIPPED = 1 << 24
"""Questions of a member, at most, that others may know and it does not after a restart: no life asks so many."""


@dataclass(slots=True)
class _Link:
    """What one linked process has said that it has, and what it was sent since.

    epoch, name, has: of its last frame. sent, sent_epoch: what is on its way to it.
    asks: asker -> the number of the question that it was sent, and how many answers with it.
    owes: whether it gets a frame with what this member has, though nothing is new.
    is_due: whether it gets all that it still lacks, of any member. again_at: the tick of the next look at that.
    """

    epoch: int = -1
    name: str = ""
    has: Mapping[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    sent_epoch: int = -1
    asks: dict[str, tuple[int, int]] = field(default_factory=dict)
    owes: bool = True
    is_due: bool = True
    again_at: int | None = None
    delay: int = PASS_ON


class Exchange:
    """The exchange of one member, about its `consensus`."""

    def __init__(self, consensus: Consensus, forks: Forks, blames: Blames) -> None:
        self._me = consensus.own.member
        self._consensus = consensus
        self._forks = forks
        self._blames = blames
        self._links: dict[str, _Link] = {}
        self.asks: dict[str, Asked] = {}
        """Asker -> its newest question, with the members that have answered it."""
        self._number = 0  # of the own newest question; those before a restart count, once others have reported them
        self._news = False
        # What can wait for a tick: answers, and that this member has more of others' records.
        self._late_news = self._has_more = False
        self._told = -1  # the serial of the own record that was sent last
        self._unsure: set[str] = set()  # links that may lack something

    @property
    def has_news(self) -> bool:
        """Whether `flush` may have something to send."""
        return self._news or self._consensus.own.serial != self._told

    @property
    def is_quiet(self) -> bool:
        """Whether all linked peers have everything."""
        return not self._unsure and not self.has_news

    def link_up(self, peer: str) -> None:
        """There is a link. What was sent on an earlier one may be lost."""
        self._links[peer] = _Link()
        self._unsure.add(peer)
        self._news = True

    def link_down(self, peer: str) -> None:
        """The link is gone: nothing can be sent to the peer."""
        self._links.pop(peer, None)
        self._unsure.discard(peer)

    def check_serial(self, sender: str, frame: Views) -> None:
        """Raises what `remembers_more` returns if a peer has seen more records of this member than it has noted."""
        own = [record.serial for record in frame.records if record.member == self._me]
        told, serial = max(frame.has.get(self._me, 0), *own, 0), self._consensus.own.serial
        if told > serial:
            resumed = self._consensus.knowledge.resumed
            raise remembers_more(sender, self._me, told, serial, resumed=resumed, what="records")

    def receive(self, sender: str, frame: Views) -> bool:
        """Take records, decisions, and questions whether this member is there. Returns whether any of it is news."""
        self._check(sender, frame)
        for record in frame.records:
            if record.member == sender:
                self._check_own(record)
        return self._take(
            sender, frame, answers=self._me in self._consensus.knowledge.membership.going_on()
        )

    def pass_on(self, sender: str, frame: Views) -> None:
        """Take a frame after this member is out: others may still learn from it what it hears."""
        self._check(sender, frame)
        self._take(sender, frame, answers=False)

    def _check(self, sender: str, frame: Views) -> None:
        knowledge = self._consensus.knowledge
        check_views(sender, frame, knowledge.vector, knowledge.newest(sender))

    def _check_own(self, record: Record) -> None:
        """Raises an error if its member cannot have noted this, or delivered so much of this one."""
        consensus = self._consensus
        check_own_record(record, consensus.view, consensus.knowledge)

    def _take(self, sender: str, frame: Views, *, answers: bool) -> bool:
        """Keep what is of use in a valid frame. Returns whether any of it is news."""
        consensus = self._consensus
        members = self._of_use((record.member for record in frame.records), consensus.records)
        askers = self._of_use((asked.asker for asked in frame.asks), self.asks)
        frame = frame._replace(
            records=tuple(record for record in frame.records if record.member in members),
            asks=tuple(asked for asked in frame.asks if asked.asker in askers),
        )
        epoch = self._forks.note(sender, frame.epoch, frame.name, frame.decided)
        if epoch is not None and not self._forks.is_split:
            self._blames.doubt(
                sender,
                f"{sender} and {self._me} follow different changes of epoch {epoch:,}: a disk was "
                f"set back, or {sender} lies: if only {sender} does so, evict it; it joins again",
            )
        link = self._links.get(sender)
        if link is not None:
            link.epoch, link.name, link.has = frame.epoch, frame.name, frame.has
            if frame.records or frame.decided:
                link.owes = self._news = True
            self._unsure.add(sender)
        news = [consensus.told(frame.decided)]
        news += [consensus.hear(record) for record in frame.records if record.member != self._me]
        if any(news):
            self._unsure.update(self._links)
            self._has_more = True
        news += [self._hear_asked(sender, each, answers=answers) for each in frame.asks]
        return any(news)

    def _of_use(self, incarnations: Iterable[str], known: Iterable[str]) -> set[str]:
        """Those of which something may be kept: none that are forgotten, and only few that are still to come.
        known: those of which something is kept.
        """
        membership = self._consensus.knowledge.membership
        strange = set(known) - membership.vector.keys()
        for incarnation in set(incarnations) - membership.vector.keys():
            if len(strange) < MOST_STRANGE and not membership.is_past(incarnation):
                strange.add(incarnation)
        return strange.union(membership.vector)

    def _hear_asked(self, sender: str, asked: Asked, *, answers: bool) -> bool:
        known = self.asks.get(asked.asker)
        number = 0 if known is None else known.number
        if asked.asker == self._me and asked.number > number:
            # Asked before a restart, or a lie: answers to it do not count.
            if self._number < asked.number <= self._number + MOST_SKIPPED:
                self._number = asked.number
                if known is not None:
                    self.ask()
            return False
        if sender == asked.asker and number > asked.number + MOST_SKIPPED:
            known = None  # a lie, too: no member has asked so often
        answered = set(asked.answered)
        is_new = known is None or asked.number > known.number
        if known is not None:
            if asked.number < known.number:
                return False
            if not is_new:
                answered |= known.answered
        if answers:
            answered.add(self._me)
        now = Asked(asked.asker, asked.number, frozenset(answered))
        if now == known:
            return False
        self.asks[asked.asker] = now
        self._news = self._news or is_new
        self._late_news = self._late_news or asked.asker != self._me
        return True

    def ask(self) -> None:
        """Ask all members whether they are there."""
        self._number += 1
        self.asks[self._me] = Asked(self._me, self._number, frozenset({self._me}))
        self._news = True

    @property
    def answered(self) -> frozenset[str]:
        """The members that have answered since this one asked last."""
        known = self.asks.get(self._me)
        return frozenset() if known is None else known.answered

    def drop_questions(self) -> None:
        """The epoch is decided: earlier answers do not matter."""
        self.asks = {}
        self._unsure.update(self._links)
        self._news = True

    def is_in(self, peer: str, epoch: int) -> bool:
        """Whether a member is known to have come as far as that epoch."""
        record = self._consensus.records.get(peer)
        link = self._links.get(peer)
        return (record is not None and record.epoch >= epoch) or (
            link is not None and link.epoch >= epoch
        )

    def untold(self) -> Set[str]:
        """Once this member has left: the voters that do not know it yet; empty if a majority of them does.

        If no voter is left: all that have gone before and do not know it, since they may wait for what only this one
        knows.
        """
        view = self._consensus.view
        if not view.voters:
            return self.unaware()
        told = {voter for voter in view.voters if self.is_in(voter, view.epoch)}
        return set() if 2 * len(told) > len(view.voters) else view.voters - told

    def unaware(self) -> Set[str]:
        """The linked members that have gone, and do not know it yet."""
        return {
            who
            for each in self._consensus.decided.values()
            for who in each.change.out
            if who in self._links and not self.is_in(who, each.epoch + 1)
        }

    def _relevant(self) -> dict[str, int]:
        consensus = self._consensus
        return {record.member: record.serial for record in consensus.current()}

    def _lacks(self, link: _Link) -> bool:
        epoch = self._consensus.view.epoch
        if self._consensus.contradicts(link.epoch, link.name):
            return True
        return link.epoch < epoch or any(
            link.has.get(member, -1) < serial for member, serial in self._relevant().items()
        )

    def tick(self, tick: int) -> None:
        """The timer: a peer that still lacks something gets it, again if it was sent before."""
        if self._has_more:
            for link in self._links.values():
                link.owes = True
        self._news = self._news or self._late_news or self._has_more
        self._late_news = self._has_more = False
        for peer in list(self._unsure):
            link = self._links[peer]
            if not self._lacks(link):
                link.again_at, link.delay = None, PASS_ON
                self._unsure.discard(peer)
            elif link.again_at is None:
                link.again_at = tick + link.delay
            elif tick >= link.again_at:
                link.delay = min(2 * link.delay, BACKOFF_MAX)
                link.again_at = tick + link.delay
                link.sent, link.sent_epoch, link.asks = {}, -1, {}
                link.owes = link.is_due = self._news = True

    def all_told(self) -> Views:
        """What a peer that knows nothing would be sent."""
        consensus = self._consensus
        return Views(
            consensus.view.epoch,
            consensus.view.name,
            {member: record.serial for member, record in consensus.records.items()},
            tuple(consensus.current()),
            tuple(each for _, each in sorted(consensus.decided.items())),
            tuple(self.asks.values()),
        )

    def flush(self) -> Iterable[Transmit]:
        """What is to be sent now."""
        consensus = self._consensus
        self._news, self._told = False, consensus.own.serial
        view, me = consensus.view, self._me
        serials = {member: record.serial for member, record in consensus.records.items()}
        relevant = self._relevant()
        for peer, link in self._links.items():
            members = relevant if link.is_due else (me,)
            records = tuple(
                consensus.records[member]
                for member in members
                if member != peer
                and serials[member] > max(link.has.get(member, -1), link.sent.get(member, -1))
            )
            known = max(link.epoch, link.sent_epoch)
            if link.sent_epoch < 0 and consensus.contradicts(link.epoch, link.name):
                known = -1  # it has to learn where that has begun
            decided = (
                tuple(each for epoch, each in sorted(consensus.decided.items()) if known <= epoch)
                if known < view.epoch
                else ()
            )
            asks = tuple(
                each
                for asker, each in self.asks.items()
                if asker != peer or me in each.answered
                if link.asks.get(asker) != (each.number, len(each.answered))
            )
            if records or decided or asks or link.owes:
                yield Transmit(peer, Views(view.epoch, view.name, serials, records, decided, asks))
                link.owes = link.is_due = False
                link.sent.update((record.member, record.serial) for record in records)
                link.sent_epoch = view.epoch
                link.asks.update((each.asker, (each.number, len(each.answered))) for each in asks)
                self._unsure.add(peer)
