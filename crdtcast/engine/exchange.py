"""Who is told which records and decisions, on which link; and who answers when a member asks whether it is there.

Whatever is new goes to everybody who is linked, at once, and again until they say that they have it. So it gets along
where two members have no link with each other. When all have everything, nothing is sent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crdtcast.engine.consensus import Consensus
from crdtcast.engine.peer import BACKOFF_MAX, HOLD_MIN
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.messages import Asked, Transmit, Views

MOST_SKIPPED = 1000
"""Numbers of ballots go up one by one: so much further than is known here nobody can be."""


@dataclass(slots=True)
class _Link:
    """What one linked process has said that it has, and what it was sent since."""

    epoch: int = -1
    has: Mapping[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    sent_epoch: int = -1
    asks: dict[str, tuple[int, int]] = field(default_factory=dict)
    owes: bool = True
    """Whether it is to be told what this member has, though nothing is new."""
    again_at: int | None = None
    delay: int = HOLD_MIN


class Exchange:
    """Of one member, about its `consensus`."""

    def __init__(self, me: str, consensus: Consensus) -> None:
        self._me = me
        self._consensus = consensus
        self._links: dict[str, _Link] = {}
        self.asks: dict[str, Asked] = {}
        """The newest question of each member that asks, with those who have answered it."""
        self._news = False
        self._told = -1  # the serial of the own record

    @property
    def has_news(self) -> bool:
        """Whether `flush` may have something to send."""
        return self._news or self._consensus.own.serial != self._told

    def link_up(self, peer: str) -> None:
        """What was sent on an earlier link may be lost."""
        self._links[peer] = _Link()
        self._news = True

    def link_down(self, peer: str) -> None:
        """Nothing can be sent to it."""
        self._links.pop(peer, None)

    def take(self, sender: str, frame: Views, *, answers: bool) -> bool:
        """Take what a peer has passed on. Whether anything of it is news. answers: whether this member goes on.

        Raises RemoteProtocolError for what no member can have noted; nothing is taken then.
        """
        consensus = self._consensus
        most = consensus.highest() + MOST_SKIPPED
        for record in frame.records:
            ballots = [record.promised] + ([record.proposal.ballot] if record.proposal else [])
            if record.name == consensus.view.name and any(b.number > most for b in ballots):
                raise RemoteProtocolError(
                    f"{sender} passes on a ballot of {record.member} that cannot be"
                )
        link = self._links.get(sender)
        if link is not None:
            link.epoch, link.has = frame.epoch, frame.has
            link.owes = link.owes or bool(frame.records or frame.decided or frame.asks)
            if not self._lacks(link):
                link.again_at, link.delay = None, HOLD_MIN
        news = [consensus.told(each) for each in frame.decided]
        news += [consensus.hear(record) for record in frame.records if record.member != self._me]
        news += [self._hear_asked(each, answers=answers) for each in frame.asks]
        self._news = True
        return any(news)

    def _hear_asked(self, asked: Asked, *, answers: bool) -> bool:
        known = self.asks.get(asked.asker)
        answered = set(asked.answered)
        if known is not None:
            if asked.number < known.number:
                return False
            if asked.number == known.number:
                answered |= known.answered
        if answers:
            answered.add(self._me)
        now = Asked(asked.asker, asked.number, frozenset(answered))
        if now == known:
            return False
        self.asks[asked.asker] = now
        return True

    def ask(self) -> None:
        """Ask all members whether they are there."""
        known = self.asks.get(self._me)
        number = 1 if known is None else known.number + 1
        self.asks[self._me] = Asked(self._me, number, frozenset({self._me}))
        self._news = True

    @property
    def answered(self) -> frozenset[str]:
        """Who has answered since this member asked last."""
        known = self.asks.get(self._me)
        return frozenset() if known is None else known.answered

    def is_over(self) -> None:
        """The epoch is decided: who was there before that does not matter."""
        self.asks = {}
        self._news = True

    def is_in(self, peer: str, epoch: int) -> bool:
        """Whether a member is known to have come as far as that epoch."""
        record = self._consensus.records.get(peer)
        link = self._links.get(peer)
        return (record is not None and record.epoch >= epoch) or (
            link is not None and link.epoch >= epoch
        )

    def _relevant(self) -> dict[str, int]:
        consensus = self._consensus
        return {record.member: record.serial for record in consensus.current()}

    def _lacks(self, link: _Link) -> bool:
        epoch = self._consensus.view.epoch
        return link.epoch < epoch or any(
            link.has.get(member, -1) < serial for member, serial in self._relevant().items()
        )

    def tick(self, tick: int) -> None:
        """The timer: what was sent and not confirmed is sent again."""
        for link in self._links.values():
            if link.again_at is not None and tick >= link.again_at:
                link.again_at = None
                if self._lacks(link) or link.epoch < 0:
                    link.delay = min(2 * link.delay, BACKOFF_MAX)
                    link.sent, link.sent_epoch = {}, -1
                    link.asks = {}
                    link.owes = True
                    self._news = True

    def flush(self, tick: int) -> Iterable[Transmit]:
        """What is to be sent now."""
        consensus = self._consensus
        self._news, self._told = False, consensus.own.serial
        serials = {member: record.serial for member, record in consensus.records.items()}
        relevant = self._relevant()
        view = consensus.view
        for peer, link in self._links.items():
            records = tuple(
                consensus.records[member]
                for member, serial in relevant.items()
                if member != peer
                and serial > max(link.has.get(member, -1), link.sent.get(member, -1))
            )
            known = max(link.epoch, link.sent_epoch)
            decided = tuple(
                each for epoch, each in sorted(consensus.decided.items()) if known <= epoch
            )
            asks = tuple(
                each
                for asker, each in self.asks.items()
                if link.asks.get(asker) != (each.number, len(each.answered))
            )
            if not (records or decided or asks or link.owes):
                continue
            yield Transmit(peer, Views(view.epoch, view.name, serials, records, decided, asks))
            link.owes = False
            link.sent.update((record.member, record.serial) for record in records)
            link.sent_epoch = view.epoch
            link.asks.update((each.asker, (each.number, len(each.answered))) for each in asks)
            if link.again_at is None and self._lacks(link):
                link.again_at = tick + link.delay
