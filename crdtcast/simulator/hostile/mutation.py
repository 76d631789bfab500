"""The lies of a hostile member: structured mutations of every kind of frame, from a seed and what the member knows.

Values are wrong in their meaning (numbers too large or small, unknown names, kinds that do not fit) or in their shape
(a field of another type, one too many, one too few). All lies go through the wire format, as bytes; a lie that it
cannot carry is not sent.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgpack

from crdtcast.causality.member_id import base_of, new_incarnation
from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import Span
from crdtcast.engine.operations import (
    Cut,
    How,
    Join,
    Operation,
    OperationKind,
    Reads,
    Settled,
    Sweep,
    encode,
)
from crdtcast.engine.views import (
    NO_BALLOT,
    NO_WORD,
    Accepted,
    Asked,
    Ballot,
    Decided,
    Promise,
    Proposal,
    Record,
    View,
    ViewChange,
    Views,
    Word,
)
from crdtcast.wire.group_frames import Admit, Copy, Grouped, InGroup, grouped_fields
from crdtcast.wire.state import JoinerEntry, pack_entry

T = TypeVar("T")

HUGE = (2**31, 2**63 - 2, 2**63 - 1, 2**64 - 1, 10**18)
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    "",
    "nobody",
    "a.1+",
    b"\xff",
    [],
    {},
    [[]],
    2**64 - 1,
)
_LONG = bytes(2**20)
FAKES = 5
"""Number of names that a hostile member invents in a run."""


@dataclass(frozen=True, slots=True)
class Lore:
    """What a hostile member knows: the members, itself included, the ended, the victims, and what it has of each."""

    me: str
    vector: Vector
    members: Sequence[str]
    victims: Sequence[str]
    ended: Mapping[str, Cut]
    view: View
    record: Record
    views: Views
    """What the liar would send to a member that knows nothing. (`record` is what it has noted last.)"""

    @classmethod
    def of(cls, engine: GroupEngine) -> "Lore":
        """What its engine knows at this instant."""
        members, victims = sorted(engine.members), sorted(engine.victims)
        views = engine.views_told()
        record = next(each for each in views.records if each.member == engine.me)
        return cls(
            engine.me,
            dict(engine.vector),
            members,
            victims,
            engine.ended,
            engine.view,
            record,
            views,
        )


class Mutation:
    """One lie, chosen only by `chance`: the same seed and the same lore give the same lie."""

    def __init__(self, chance: random.Random, lore: Lore) -> None:
        self._chance = chance
        self._lore = lore

    # Names and numbers

    def somebody(self) -> str:
        """The id of a member, the liar included, or of one that has ended, never existed, or is still to come."""
        lore, chance = self._lore, self._chance
        if lore.victims and chance.random() < 0.3:
            return chance.choice(lore.victims)
        if chance.random() < 0.6:
            return chance.choice(lore.members or [lore.me])
        contact = chance.choice([*lore.members, lore.me])
        at = chance.choice((1, lore.vector.get(contact, 0) or 1, lore.vector.get(contact, 0) + 3))
        return chance.choice(
            [*lore.ended, *lore.vector, self.fake(), f"{self.fake()}+{base_of(contact)}+{at}"]
        )

    def fake(self) -> str:
        """The base of a member that never existed, sometimes with the name of one that does."""
        lore, chance = self._lore, self._chance
        name = "q" if chance.random() < 0.7 else chance.choice([*lore.members, lore.me])[0]
        return new_incarnation(name, 2**20 + chance.randrange(FAKES), 0)

    def number(self, about: int = 0) -> int:
        """A number near the true one, or far from it."""
        chance = self._chance
        if chance.random() < 0.15:
            return chance.choice(HUGE)
        return max(chance.choice((0, 1, about - 1, about, about + 1, about + 2, 5000)), 0)

    def count(self, who: str) -> int:
        """The number of a member's messages, true or not."""
        true = self._lore.vector.get(who, 0)
        return true if self._chance.random() < 0.5 else self.number(true)

    def vector(self) -> dict[str, int]:
        """The liar's vector with some entries changed, omitted or invented."""
        chance, told = self._chance, dict(self._lore.vector)
        for _ in range(chance.randrange(4)):
            who = self.somebody()
            if chance.random() < 0.3:
                told.pop(who, None)
            else:
                told[who] = self.number(told.get(who, 0))
        return told

    def context(self) -> tuple[Dot, ...]:
        """A context that a message may claim."""
        chosen = [self.somebody() for _ in range(self._chance.randrange(3))]
        return tuple(Dot(who, max(self.count(who), 1)) for who in chosen)

    # Membership operations

    def operation(self) -> Operation:
        """An operation of any kind, with values of the right types."""
        return self._chance.choice(self._operations())()

    def _operations(self) -> list[Callable[[], Operation]]:
        return [
            self._join,
            lambda: Sweep(self._cuts(3)),
            lambda: Sweep(self._cuts(2)),
            self._settled,
            lambda: Reads(self._span()),
        ]

    def _join(self) -> Join:
        some = [base_of(self.somebody()) for _ in range(self._chance.choice((0, 0, 0, 1, 2)))]
        witness = self._chance.random() < 0.2
        base = self.fake() if self._chance.random() < 0.8 else base_of(self.somebody())
        return Join(base, tuple(some), witness, self.vector(), self._span())

    def _settled(self) -> Settled:
        who = self.somebody()
        return Settled(who, self.count(who))

    def _cuts(self, most: int) -> tuple[tuple[str, Cut], ...]:
        named = [self.somebody() for _ in range(self._chance.randrange(most))]
        return tuple((who, Cut(self.count(who), self._chance.choice(list(How)))) for who in named)

    def _span(self) -> Span:
        if self._chance.random() < 0.8:
            return Span(1, 1)
        lowest = self._chance.choice((1, 2, 1000))
        return Span(lowest, lowest + self._chance.choice((0, 1, 10**6)))

    def instead_of(self, operation: Operation) -> Operation:
        """The operation, or half of the time one of the same kind with other numbers."""
        if self._chance.random() < 0.5:
            return operation
        match operation:
            case Sweep(ended):
                return Sweep(self._changed(ended))
            case Settled(who, counter):
                return Settled(who, self.number(counter))
            case Join():
                return replace(operation, vector=self.vector())
            case _:
                return operation

    def _changed(self, ended: tuple[tuple[str, Cut], ...]) -> tuple[tuple[str, Cut], ...]:
        return tuple((who, replace(cut, counter=self.number(cut.counter))) for who, cut in ended)

    def payload(self) -> tuple[int, bytes]:
        """The kind and the payload of a message: an operation, whole or damaged, of an unknown kind, or an
        application's.
        """
        chance = self._chance
        way = chance.random()
        if way < 0.1:
            return OperationKind.APPLICATION, b"lie:%d" % chance.randrange(1000)
        if way < 0.15:
            return chance.choice((9, 77, 255)), bytes(chance.randrange(40))
        kind, packed = encode(self.operation())
        if way < 0.8:
            return kind, packed
        if way < 0.9:
            return chance.choice(list(OperationKind)), packed
        return kind, self.damaged_bytes(packed)

    # Frames

    def digest(self, digest: Digest) -> Digest:
        """A digest with a change."""
        chance = self._chance
        dropped = digest.dropped if chance.random() < 0.8 else self.number(digest.dropped)
        vector = self.vector()
        if chance.random() < 0.05:
            vector |= {new_incarnation("q", 2**21 + n, 0): n for n in range(300)}
        return Digest(chance.choice(list(DigestKind)), vector, dropped, chance.random() < 0.97)

    def frame(self, receiver: str) -> InGroup:
        """An invented frame to one member, other than the liar's next message."""
        digest = Digest(DigestKind.NEWS, self._lore.vector)
        makers: list[Callable[[], InGroup]] = [
            lambda: self.digest(digest),
            lambda: self.digest(digest),
            lambda: self._more_than_all(receiver),
            lambda: self._ended(receiver),
            self.views_anew,
            self.views_anew,
            self.views_anew,
            self._far,
            self._nobodys,
            self._admit,
            lambda: Copy(1),
        ]
        return self._chance.choice(makers)()

    # Views

    def views(self, frame: Views) -> Views:
        """A frame of views with a change in what the liar says of itself."""
        own = next((r for r in frame.records if r.member == self._lore.me), self._lore.record)
        others = tuple(r for r in frame.records if r.member != own.member)
        match self._chance.randrange(10):
            case 0:
                return self._views_of(frame)
            case 1:
                return frame._replace(decided=(*frame.decided, self._decided()))
            case 2 | 3:
                return frame._replace(asks=(*frame.asks, self._asked()))
            case _:
                return frame._replace(records=(self.record(own), *others))

    def views_anew(self) -> Views:
        """A false frame of views that no member has asked for."""
        return self.views(self._lore.views)

    def _views_of(self, frame: Views) -> Views:
        """The same records, with other serials, another epoch or another view."""
        chance = self._chance
        way = chance.randrange(3)
        if way == 0:
            has = dict(frame.has)
            for _ in range(chance.randrange(1, 4)):
                who = self.somebody()
                has[who] = self.number(has.get(who, 0))
            if chance.random() < 0.1:
                has |= {new_incarnation("q", 2**23 + n, 0): 1 for n in range(1_500)}
            return frame._replace(has=has)
        if way == 1:
            return frame._replace(epoch=self.number(frame.epoch))
        return frame._replace(name=self._name())

    def _name(self) -> str:
        return self._chance.choice((self._lore.view.name, "", "0123456789abcdef"))

    def record(self, own: Record) -> Record:
        """The liar's record with a change; most of these are newer than the last one."""
        chance = self._chance
        news = replace(own, serial=own.serial + chance.randrange(1, 4))
        makers: list[Callable[[Record], Record]] = [
            self._numbered,
            self._proposing,
            self._proposing,
            self._promising,
            self._promising,
            self._accepting,
            self._promised,
        ]
        return chance.choice(makers)(news)

    def _numbered(self, record: Record) -> Record:
        way = self._chance.randrange(4)
        if way == 0:
            return replace(record, serial=self.number(record.serial))
        if way == 1:
            return replace(record, epoch=self.number(record.epoch))
        if way == 2:
            return replace(record, name=self._name())
        return replace(record, sent=self.number(record.sent))

    def _promised(self, record: Record) -> Record:
        return replace(record, promised=self._ballot(record.promised))

    def _ballot(self, about: Ballot) -> Ballot:
        """Most of the time a later ballot of the liar itself."""
        if self._chance.random() < 0.6:
            return Ballot(about.number + self._chance.choice((1, 2, 900)), self._lore.me)
        return Ballot(self.number(about.number), self.somebody())

    def _ids(self, most: int) -> tuple[str, ...]:
        """Ids, most of the time sorted."""
        some = [self.somebody() for _ in range(self._chance.randrange(most))]
        return tuple(sorted(set(some))) if self._chance.random() < 0.9 else tuple(some)

    def _others(self, most: int) -> tuple[str, ...]:
        """Some of the other members."""
        others = [who for who in self._lore.members if who != self._lore.me]
        chosen = self._chance.sample(others, min(len(others), self._chance.randrange(most)))
        return tuple(sorted(chosen))

    def _proposing(self, record: Record) -> Record:
        """The liar proposes something, or asks to accept what no member has promised."""
        chance, me = self._chance, self._lore.me
        ballot = self._ballot(record.promised)
        victims = self._others(3) if chance.random() < 0.7 else self._ids(3)
        leaves = me in victims if chance.random() < 0.9 else chance.random() < 0.5
        level = chance.choice((None, None, None, 1, 2, 1000))
        proposal = Proposal(ballot, victims, level, leaves, self._word(victims))
        if chance.random() < 0.5:
            change = self._change_for(proposal) if chance.random() < 0.6 else self._change()
            proposal = proposal._replace(change=change)
        delivered = {who: self._lore.vector.get(who, 0) for who in victims}
        promise = Promise(ballot, delivered, self._known())
        promised = replace(record, promised=ballot, promise=promise, proposal=proposal)
        return promised if chance.random() < 0.9 else replace(record, proposal=proposal)

    def _word(self, victims: tuple[str, ...]) -> Word:
        way = self._chance.random()
        if way < 0.88:
            return NO_WORD
        if way < 0.92:
            return Word(replaced=victims)
        return Word(forced=victims) if way < 0.96 else Word(self._ids(2), self._ids(2))

    def _known(self) -> tuple[str, ...]:
        """The members, sometimes with additional or missing ones."""
        known = set(self._lore.members)
        if self._chance.random() < 0.2:
            known ^= set(self._ids(3))
        return tuple(sorted(known))

    def _promising(self, record: Record) -> Record:
        """A promise for a false ballot, or with other numbers or members."""
        chance = self._chance
        promise = record.promise or Promise(record.promised, {}, self._known())
        if record.promised == NO_BALLOT or chance.random() < 0.2:
            promise = promise._replace(ballot=self._ballot(record.promised))
            record = replace(record, promised=promise.ballot)
        if chance.random() < 0.5:
            who = self.somebody()
            counter = promise.delivered.get(who, self._lore.vector.get(who, 0))
            promise = promise._replace(delivered={**promise.delivered, who: self.number(counter)})
        else:
            promise = promise._replace(members=self._known())
        return replace(record, promise=promise)

    def _accepting(self, record: Record) -> Record:
        """The liar has accepted what no member has asked for."""
        chance = self._chance
        ballot = self._ballot(record.promised) if chance.random() < 0.5 else record.promised
        accepted = Accepted(ballot, self._change(), self._word(self._ids(2)))
        return replace(record, promised=max(ballot, record.promised), accepted=accepted)

    def _change_for(self, proposal: Proposal) -> ViewChange:
        """A change that fits such terms, with the liar's numbers."""
        how = How.FORCED if proposal.word.forced else How.EVICTED
        cuts = tuple((who, Cut(self.count(who), how)) for who in proposal.victims)
        votes = self._ids(3) if self._chance.random() < 0.2 else ()
        return ViewChange(cuts, proposal.victims, votes, proposal.level)

    def _change(self) -> ViewChange:
        chance = self._chance
        out = self._others(3) if chance.random() < 0.7 else self._ids(3)
        cuts = tuple(
            (who, Cut(self.count(who), chance.choice(list(How))))
            for who in out
            if chance.random() < 0.9
        )
        if chance.random() < 0.2:
            cuts += self._cuts(2)
        votes = self._ids(3) if chance.random() < 0.5 else ()
        return ViewChange(cuts, out, votes, chance.choice((None, None, 1, 2, 1000)))

    def _decided(self) -> Decided:
        """A decision of an epoch that is over, or that no member is in."""
        view = self._lore.view
        epoch, name = self.number(view.epoch), self._name()
        if epoch == view.epoch and name == view.name:
            name = "0123456789abcdef"
        return Decided(epoch, name, self._change(), self._chance.random() < 0.3)

    def false_decision(self) -> Views:
        """A false decision of the current view. Only the votes could show that it is false."""
        view = self._lore.view
        decided = Decided(view.epoch, view.name, self._change(), self._chance.random() < 0.5)
        return self._lore.views._replace(decided=(decided,))

    def false_record(self) -> Views:
        """A false record of other members. Only these members could show that it is false."""
        frame = self._lore.views
        others = [record for record in frame.records if record.member != self._lore.me]
        changed = tuple(map(self.record, others))
        return frame._replace(records=changed)

    def _asked(self) -> Asked:
        """A question of the liar or of another member, with invented numbers and answers."""
        chance, known = self._chance, {each.asker: each.number for each in self._lore.views.asks}
        asker = self._lore.me if chance.random() < 0.4 else self.somebody()
        answered = (
            frozenset(self._lore.members) if chance.random() < 0.3 else frozenset(self._ids(4))
        )
        if chance.random() < 0.05:
            answered |= {new_incarnation("q", 2**23 + n, 0) for n in range(1_500)}
        return Asked(asker, self.number(known.get(asker, 0)), answered)

    # The other frames

    def _more_than_all(self, receiver: str) -> Digest:
        """A digest that has more of its receiver than that one has sent."""
        count = self._lore.vector.get(receiver, 0) + self._chance.choice((1, 3, 5000))
        return Digest(DigestKind.NEWS, {**self._lore.vector, receiver: count})

    def _ended(self, receiver: str) -> Ended:
        who = receiver if self._chance.random() < 0.2 else self.somebody()
        return Ended(who, None if self._chance.random() < 0.3 else self.count(who))

    def far(self, ahead: int) -> Message:
        """A message of the liar far ahead, which it never reaches. It is the same each time it is made."""
        counter = self._lore.vector.get(self._lore.me, 0) // 1000 * 1000 + 10_000 + ahead
        return Message(Dot(self._lore.me, counter), (), b"far %d" % counter)

    def big(self, number: int) -> Message:
        """One of many long messages of the liar, with gaps between their numbers."""
        return Message(Dot(self._lore.me, 10**9 + 2 * number), (), _LONG)

    def _far(self) -> Message:
        return self.far(self._chance.choice((0, 1, 2, 2**31, 2**62)))

    def _nobodys(self) -> Message:
        """A message of an origin that no member has let in, or ever will."""
        contact = self._chance.choice([*self._lore.members, self._lore.me])
        at = self._chance.choice((10**6, 2**62))
        origin = f"{new_incarnation('q', 2**22, 0)}+{base_of(contact)}+{at}"
        return Message(Dot(origin, self._chance.choice((1, 2, 2**62))), (), b"nobody's")

    def _admit(self) -> Admit:
        replaces = [self.somebody() for _ in range(self._chance.choice((0, 0, 1)))]
        return Admit(1, self.fake(), tuple(replaces), self._chance.random() < 0.2, self._span())

    def in_anothers_name(self, which: int) -> InGroup:
        """A lie in another member's name, which only that member could show to be false."""
        return (self.stolen, self.false_record, self.false_decision)[which % 3]()

    def stolen(self) -> Message:
        """A message in the name of another member. Only that member could show that it is false."""
        others = [who for who in self._lore.members if who != self._lore.me] or [self._lore.me]
        origin = self._chance.choice(others)
        return Message(Dot(origin, self._lore.vector.get(origin, 0) + 1), (), b"stolen")

    def entry(self, entry: JoinerEntry) -> bytes:
        """What a joiner gets from this contact, packed."""
        state = entry.state
        changes: list[dict[str, Any]] = [
            {},
            {"counter": self.number(state.counter)},
            {"vector": self.vector()},
            {"stable": self.vector()},
            {"context": self.context()},
            {"members": state.members[1:]},
            {"members": (*state.members, *state.members[:1])},
            {"ended": {self.somebody(): Cut(self.number(), How.EVICTED)}},
            {"tombs": {self.somebody(): Cut(self.number(), How.FORCED)}},
            {"frozen": {self.somebody(): self.number()}},
            {"cuts": {self.somebody(): Cut(self.number(), How.EVICTED)}},
            {"swept": {self.somebody(): Dot(self.somebody(), max(self.number(), 1))}},
            {"replaced": {base_of(self.somebody()): self.somebody()}},
            {"dropped": self.number(state.dropped)},
            {"agreed": self.number(state.agreed)},
            {"unstable": state.unstable[1:]},
            {"unstable": state.unstable[::-1]},
        ]
        told = replace(entry, state=replace(state, **self._chance.choice(changes)))
        try:
            packed = pack_entry(told)
        except (ValueError, OverflowError):
            return b""  # msgpack cannot hold such a number
        return packed if self._chance.random() < 0.7 else self.damaged_bytes(packed)

    # Shapes

    def body(self, frame: InGroup) -> bytes:
        """The bytes of a frame, some with a field of another shape. Empty if the wire cannot carry it."""
        fields = grouped_fields(Grouped(1, frame))
        if self._chance.random() < 0.15:
            fields = self._damaged(fields)
        try:
            packed: bytes = msgpack.packb(fields)
        except (ValueError, OverflowError, TypeError):
            return b""
        return packed

    def damaged_bytes(self, packed: bytes) -> bytes:
        """The same document with one value changed, or the same bytes with one changed, or truncated."""
        chance = self._chance
        if not packed or chance.random() < 0.3:
            place = chance.randrange(len(packed) + 1)
            return packed[:place] + bytes([chance.randrange(256)]) + packed[place + 1 :]
        if chance.random() < 0.1:
            return packed[: chance.randrange(len(packed))]
        document = msgpack.unpackb(packed, strict_map_key=False)
        try:
            changed: bytes = msgpack.packb(self._damaged(document))
        except (ValueError, OverflowError, TypeError):
            return b"\xc1"
        return changed

    def _damaged(self, value: Any) -> Any:
        """A document with one place changed."""
        chance = self._chance
        if isinstance(value, list | tuple) and value and chance.random() < 0.8:
            some = list(value)
            place = chance.randrange(len(some))
            way = chance.random()
            if way < 0.1:
                del some[place]
            elif way < 0.2:
                some.insert(place, chance.choice(JUNK))
            else:
                some[place] = self._damaged(some[place])
            return some
        if isinstance(value, dict) and value and chance.random() < 0.8:
            key = chance.choice(list(value))
            if chance.random() < 0.3:
                return {**value, chance.choice(("", "nobody", 5)): value[key]}
            return {**value, key: self._damaged(value[key])}
        return chance.choice((*JUNK, *HUGE))
