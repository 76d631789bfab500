"""The rules of views over a small causal data path, in random schedules: joins, deaths, crashes that lose what is not
durable, disks that are set back, members without links, leaving, replacement, force, and what the evicted send again.

Records travel out of band: each exchange passes on the newest that is known of anybody.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from typing import NamedTuple, TypeAlias

Vector: TypeAlias = dict[str, int]
BallotNumber: TypeAlias = tuple[int, str]
_NO_BALLOT: BallotNumber = (0, "")
_FAR = 1 << 30


class BrokenRuleError(Exception):
    """Something that must not be."""


class Change(NamedTuple):
    """What one epoch decides. cuts: of who goes, and of who went and had not ended everywhere, by name. votes: who gets
    one. forced: without the quorum.
    """

    cuts: tuple[tuple[str, int], ...]
    out: frozenset[str]
    votes: frozenset[str]
    is_forced: bool = False


History: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True)
class Proposal:
    """change: None while promises are asked for. replaced: who never comes back, by the operator's word."""

    ballot: BallotNumber
    victims: frozenset[str]
    votes: frozenset[str]
    replaced: frozenset[str]
    is_forced: bool
    change: Change | None = None


@dataclass(frozen=True)
class Record:
    """What one member has last noted; it only grows. vector, members: as of its promise."""

    serial: int = 0
    history: History = ()
    promised: BallotNumber = _NO_BALLOT
    accepted: tuple[BallotNumber, Change] | None = None
    vector: tuple[tuple[str, int], ...] = ()
    members: frozenset[str] = frozenset()
    proposal: Proposal | None = None


class Message(NamedTuple):
    """deps: what its origin had delivered. operation: its number in the world, or None. joins: whom it lets in."""

    origin: str
    counter: int
    deps: Vector
    operation: int | None = None
    joins: str = ""


@dataclass
class Disk:
    """Everything of a member that a crash leaves, as of the last time that it told anybody anything."""

    name: str
    voters0: frozenset[str]
    members: set[str]
    vector: Vector = field(default_factory=dict)
    messages: dict[tuple[str, int], Message] = field(default_factory=dict)
    rows: dict[str, Vector] = field(default_factory=dict)
    stable: Vector = field(default_factory=dict)
    applied: Counter[int] = field(default_factory=Counter)
    frozen: Vector = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    heard: set[str] = field(default_factory=set)
    is_leaving: bool = False

    def copied(self, name: str = "") -> Disk:
        """Another one with the same on it."""
        return replace(
            self,
            name=name or self.name,
            members=set(self.members),
            vector=dict(self.vector),
            messages=dict(self.messages),
            rows={name: dict(row) for name, row in self.rows.items()},
            stable=dict(self.stable),
            applied=Counter(self.applied),
            frozen=dict(self.frozen),
            heard=set(self.heard),
        )


class Member:
    """One incarnation."""

    def __init__(self, disk: Disk, world: World) -> None:
        self.d = disk
        self.world = world
        self.name = disk.name
        self.records: dict[str, Record] = {}
        self.waiting_rows: dict[str, Vector] = {}
        self.is_up = True
        self.is_over = False
        """Its disk was set back."""
        self.has_left = self.has_told = False
        self.was_set_back = False
        """(Of the world: nobody here knows.)"""
        self.disks = [disk.copied()]

    # What it knows

    @property
    def history(self) -> History:
        return self.d.record.history

    @property
    def is_asking(self) -> bool:
        """Whether a ballot of its own is under way, and no higher one is known to it."""
        proposal = self.d.record.proposal
        return proposal is not None and proposal.ballot >= self.d.record.promised

    @property
    def cuts(self) -> dict[str, int]:
        """Of who went, as stated last."""
        return {name: cut for change in self.history for name, cut in change.cuts}

    @property
    def voters(self) -> frozenset[str]:
        return voters_of(self.d.voters0, self.history)

    @property
    def is_in(self) -> bool:
        """Whether it goes on, by its own view."""
        return self.name not in self.cuts and not self.world.is_none(self.name, self.cuts)

    def unfinished(self) -> set[str]:
        """Who went, and has not ended here."""
        return {name for name, cut in self.cuts.items() if self.d.vector.get(name, 0) < cut}

    def lives(self) -> set[str]:
        """Members by its own view."""
        cuts = self.cuts
        return {m for m in self.d.members if m not in cuts and not self.world.is_none(m, cuts)}

    def waits_for(self) -> set[str]:
        """Whose rows count for stability."""
        if self.world.without == "a row stays until the end":
            return self.lives()
        return self.lives() | (self.unfinished() & self.d.members)

    def limit(self, origin: str) -> int:
        return min(self.cuts.get(origin, _FAR), self.d.frozen.get(origin, _FAR))

    # The data path

    def sync(self) -> None:
        """Before anything is told."""
        self.disks.append(self.d.copied())
        del self.disks[:-4]

    def send(self, operation: int | None = None, joins: str = "") -> Message:
        counter = self.d.vector.get(self.name, 0) + 1
        message = Message(self.name, counter, dict(self.d.vector), operation, joins)
        self.d.messages[self.name, counter] = message
        self._take(message)
        self.sync()
        return message

    def _take(self, message: Message) -> None:
        d = self.d
        d.vector[message.origin] = message.counter
        row = {**message.deps, message.origin: message.counter}
        if message.operation is not None:
            d.applied[message.operation] += 1
        if message.joins:
            d.members.add(message.joins)
            d.rows[message.joins] = dict(row)
        self.adopt(message.origin, row)

    def deliver(self) -> None:
        """All that may be."""
        d, is_new = self.d, True
        while is_new:
            is_new = False
            for (origin, counter), message in sorted(d.messages.items()):
                if counter != d.vector.get(origin, 0) + 1 or counter > self.limit(origin):
                    continue
                if any(d.vector.get(o, 0) < number for o, number in message.deps.items()):
                    continue
                for o, number in d.stable.items():
                    is_honest = not self.world.members[origin].was_set_back
                    if number > message.deps.get(o, 0) and o != origin and is_honest:
                        raise BrokenRuleError(
                            f"{self.name} holds {o}:{number} for stable, {origin}:{counter} is concurrent"
                        )
                self._take(message)
                is_new = True
        for name, row in list(self.waiting_rows.items()):
            self.adopt(name, row)
        self.stabilise()

    def adopt(self, name: str, row: Vector) -> None:
        """What a member has; it counts when all that it has sent before is here."""
        if name in self.d.frozen or name in self.cuts or name == self.name:
            return
        if self.d.vector.get(name, 0) < row.get(name, 0):
            self.waiting_rows[name] = row
            return
        self.waiting_rows.pop(name, None)
        self.d.heard.add(name)
        known = self.d.rows.setdefault(name, {})
        for origin, number in row.items():
            known[origin] = max(known.get(origin, 0), number)

    def stabilise(self) -> None:
        d, others = self.d, self.waits_for() - {self.name}
        for origin, own in d.vector.items():
            least = own
            for other in others:
                told = d.rows.get(other, {}).get(origin, 0)
                least = min(least, max(told, own) if other == origin else told)
            if least > d.stable.get(origin, 0):
                d.stable[origin] = least

    # Records

    def note(self, **changes: object) -> None:
        """Durable, with everything else, before anybody hears of it."""
        self.d.record = replace(self.d.record, serial=self.d.record.serial + 1, **changes)  # type: ignore[arg-type]
        self.sync()
        self.records[self.name] = self.d.record

    def hear(self, records: Mapping[str, Record]) -> None:
        """Somebody passes on what it knows."""
        for name, record in records.items():
            if name == self.name:
                if record.serial > self.d.record.serial:
                    self.is_over = True
            elif name not in self.records or self.records[name].serial < record.serial:
                self.records[name] = record
        self.react()

    def react(self) -> None:
        """To the records that are here."""
        moved = True
        while moved and self.is_up:
            moved = self._follow()
            if self.is_over or not self.is_in:
                return
            moved = moved or self._promise() or self._accept() or self._conclude()

    def _follow(self) -> bool:
        """Take a decision that somebody has."""
        own = self.history
        for record in self.records.values():
            if len(record.history) > len(own) and record.history[: len(own)] == own:
                self.decide(record.history[len(own)])
                return True
        return False

    def _promise(self) -> bool:
        own = self.d.record
        asked = [
            record.proposal
            for record in self.records.values()
            if record.history == own.history and record.proposal is not None
            if record.proposal.ballot > own.promised
        ]
        if not asked:
            return False
        proposal = max(asked, key=lambda each: each.ballot)
        if self.world.without == "a freeze lasts" and not proposal.victims:
            self.d.frozen = {}
        ended = set() if self.world.without == "a cut is stated anew" else self.unfinished()
        for name in (proposal.victims | ended) - {self.name}:
            self.d.frozen.setdefault(name, self.d.vector.get(name, 0))
        vector = tuple(sorted(self.d.vector.items()))
        self.note(promised=proposal.ballot, vector=vector, members=frozenset(self.d.members))
        return True

    def _accept(self) -> bool:
        own = self.d.record
        if self.name not in self.voters:
            return False
        for record in self.records.values():
            proposal = record.proposal
            if record.history != own.history or proposal is None or proposal.change is None:
                continue
            has = own.accepted is not None and own.accepted[0] >= proposal.ballot
            if proposal.ballot >= own.promised and not has:
                self.note(promised=proposal.ballot, accepted=(proposal.ballot, proposal.change))
                return True
        return False

    def prepare(
        self,
        victims: Iterable[str],
        votes: Iterable[str] = (),
        replaced: Iterable[str] = (),
        *,
        is_forced: bool = False,
    ) -> None:
        """Begin a ballot."""
        known = [record.promised[0] for record in self.records.values()]
        number = max([self.d.record.promised[0], *known]) + 1
        proposal = Proposal(
            (number, self.name),
            frozenset(victims),
            frozenset(votes),
            frozenset(replaced),
            is_forced,
        )
        self.note(proposal=proposal)
        self.react()

    def _is_quorum(self, who: Collection[str], proposal: Proposal | None) -> bool:
        """proposal: whether its operator has given his word for something; None: not known."""
        voters = self.voters
        given = voters & set(who)
        if proposal is None:
            return 2 * len(given) > len(voters)
        replaced = proposal.replaced & voters
        if replaced and not given & replaced:
            return len(given) >= (len(voters) + 1) // 2
        if proposal.is_forced:
            return True
        return 2 * len(given) > len(voters)

    def _conclude(self) -> bool:
        """The proposer's part; and anybody sees what a majority has accepted."""
        own = self.d.record
        there = {n: r for n, r in self.records.items() if r.history == own.history}
        asked = own.proposal
        for accepted in dict.fromkeys(record.accepted for record in there.values()):
            if accepted is None:
                continue
            ballot, change = accepted
            given = [name for name, record in there.items() if record.accepted == accepted]
            is_own = asked is not None and asked.ballot == ballot
            if self._is_quorum(given, asked if is_own else None):
                self.decide(change)
                return True
        if asked is None or asked.change is not None or asked.ballot != own.promised:
            return False
        promises = {n: r for n, r in there.items() if r.promised == asked.ballot}
        value = self._change(asked, promises)
        if value is not None:
            self.note(proposal=replace(asked, change=value))
        return value is not None

    def _change(self, proposal: Proposal, promises: Mapping[str, Record]) -> Change | None:
        if not self._is_quorum(promises, proposal):
            return None
        before = [r.accepted for name, r in promises.items() if r.accepted and name in self.voters]
        if before and self.world.without != "what was accepted is adopted":
            return max(before)[1]
        victims = proposal.victims
        cuts = self.cuts
        ended = {
            name
            for name, cut in cuts.items()
            if any(dict(record.vector).get(name, 0) < cut for record in promises.values())
        }
        if self.world.without == "a cut is stated anew":
            ended = set()
        if not victims and not ended:
            return Change((), victims, proposal.votes - self.voters, proposal.is_forced)
        on = {self.name} - victims
        if self.world.without != "all who go on promise":
            for name, record in promises.items():
                if name not in victims:
                    on |= record.members
        else:
            on |= self.d.members
        on = {m for m in on - victims - cuts.keys() if not self.world.is_none(m, cuts)}
        # Whom a victim let in beyond its cut never was a member.
        if proposal.is_forced:
            on &= promises.keys()
        if not on or not on <= promises.keys():
            return None
        found = {
            name: max(dict(promises[m].vector).get(name, 0) for m in on) for name in victims | ended
        }
        votes = set(proposal.votes - victims - self.voters)
        if not (self.voters - victims) | votes:
            votes = on - self.voters
        return Change(tuple(sorted(found.items())), victims, frozenset(votes), proposal.is_forced)

    def decide(self, change: Change) -> None:
        """This epoch is over."""
        own = self.history
        self.world.decided(own, change)
        self.d.frozen = {}
        self.note(
            history=(*own, change), promised=_NO_BALLOT, accepted=None, proposal=None, vector=()
        )
        if self.is_in and not self.is_over:
            for name, cut in change.cuts:
                if self.d.vector.get(name, 0) > cut:
                    if change.is_forced:
                        self.is_over = True  # it was asked for nothing: it has to surrender
                        self.world.counts["surrendered"] += 1
                        return
                    raise BrokenRuleError(f"{self.name} goes on beyond the cut of {name}")
            self.deliver()


def voters_of(first: frozenset[str], history: History) -> frozenset[str]:
    """Behind these changes."""
    voters = set(first)
    for change in history:
        voters = (voters | change.votes) - change.out
    return frozenset(voters)


class World:
    """Members, their links, and what must hold among them. without: the rule that is left out."""

    def __init__(self, seed: int, without: str = "") -> None:
        self.random = random.Random(seed)
        self.without = without
        self.members: dict[str, Member] = {}
        self.gone_links: set[frozenset[str]] = set()
        self.contacts: dict[str, tuple[str, int]] = {}
        self.changes: dict[History, set[Change]] = {}
        self.operations = 0
        self.by: dict[str, list[int]] = {}
        """The operations of each incarnation, in order."""
        self.is_spoiled = False
        """A disk was set back, or a change was forced: two changes of one epoch may be."""
        self.counts: Counter[str] = Counter()

    def found(self, names: str) -> None:
        voters = frozenset(names)
        for name in names:
            self.members[name] = Member(Disk(name, voters, set(names)), self)

    def is_none(self, name: str, cuts: Mapping[str, int]) -> bool:
        """Whether it was let in beyond its contact's cut, or by one who was."""
        while name in self.contacts:
            contact, counter = self.contacts[name]
            if counter > cuts.get(contact, _FAR):
                return True
            name = contact
        return False

    def decided(self, history: History, change: Change) -> None:
        made = self.changes.setdefault(history, set())
        made.add(change)
        if len(made) > 1 and not self.is_spoiled:
            raise BrokenRuleError(f"two changes of epoch {len(history)}")

    def live(self) -> list[Member]:
        """Who runs, and goes on by its own view."""
        return [m for m in self.members.values() if m.is_up and m.is_in and not m.is_over]

    def write(self, member: Member) -> None:
        self.operations += 1
        self.by.setdefault(member.name, []).append(self.operations)
        member.send(self.operations)

    def exchange(self, a: Member, b: Member, share: float = 1.0) -> None:
        """a tells b what it has, records too."""
        if frozenset((a.name, b.name)) in self.gone_links or not (a.is_up and b.is_up):
            return
        a.sync()
        for key, message in sorted(a.d.messages.items()):
            is_delivered = key[1] <= a.d.vector.get(key[0], 0)
            if is_delivered and (share == 1.0 or self.random.random() < share):
                b.d.messages.setdefault(key, message)
        if a.d.vector.get(b.name, 0) > b.d.vector.get(b.name, 0) and b.name not in b.cuts:
            b.is_over = True
        if b.is_in and not b.is_over:
            b.adopt(a.name, dict(a.d.vector))
            b.deliver()
        known = {**a.records, a.name: a.d.record}
        b.hear(
            known
            if share == 1.0
            else {n: record for n, record in known.items() if self.random.random() < share}
        )

    def join(self, contact: Member, name: str) -> Member:
        message = contact.send(joins=name)
        self.contacts[name] = contact.name, message.counter
        disk = contact.d.copied(name)
        disk.is_leaving, disk.heard = False, set()
        disk.record = Record(history=contact.history)
        if self.without == "a joiner inherits a freeze":
            disk.frozen = {}
        self.members[name] = member = Member(disk, self)
        member.records = dict(contact.records)
        return member

    def crash(self, member: Member, back: int = 1) -> None:
        """It goes on from its disk, or from an older one."""
        disk = member.disks[-min(back, len(member.disks))].copied()
        fresh = Member(disk, self)
        fresh.was_set_back = member.was_set_back or back > 1
        if back > 1:
            self.is_spoiled = True
            self.counts["set back"] += 1
        fresh.disks = [disk.copied()]
        self.members[member.name] = fresh
        self.counts["crashes"] += 1

    # What operators and members do

    def evict(self, proposer: Member, victims: Iterable[str], **options: object) -> None:
        votes = {
            name
            for name in proposer.lives() - proposer.voters
            if self._is_stable(self.members[name], proposer)
        }
        proposer.prepare(victims, votes, **options)  # type: ignore[arg-type]

    def _is_stable(self, learner: Member, at: Member) -> bool:
        """Whether the learner's join is stable there, and it has been heard of."""
        contact, counter = self.contacts.get(learner.name, ("", 0))
        return at.d.stable.get(contact, 0) >= counter and learner.name in at.d.heard

    def go_on(self, member: Member) -> None:
        """What a member does by itself: leaving, and coming back from an eviction."""
        cuts = member.cuts
        if member.has_left or not member.is_up or member.is_over:
            return
        if member.is_in:
            if member.d.is_leaving and not member.is_asking and self._has_told(member):
                member.has_told = True
                member.prepare({member.name})
            return
        if member.was_set_back:
            return  # an operator looks at it
        own = member.d.vector.get(member.name, 0)
        if member.d.is_leaving and cuts.get(member.name, -1) >= own:
            next_voters = voters_of(member.d.voters0, member.history)
            told = [
                n
                for n, record in member.records.items()
                if n in next_voters and record.history[: len(member.history)] == member.history
            ]
            if 2 * len(told) > len(next_voters):
                member.has_left, member.is_up = True, False
                self.counts["left"] += 1
            return
        cut = cuts.get(member.name, 0)
        if self.is_none(member.name, cuts):
            cut = 0
        contacts = [
            m
            for m in self.live()
            if m.d.vector.get(member.name, 0) >= cut
            and not m.was_set_back
            and m.history[: len(member.history)] == member.history
            and frozenset((m.name, member.name)) not in self.gone_links
            and not m.d.frozen
        ]
        if contacts:
            again = self.join(self.random.choice(contacts), member.name + "'")
            member.is_up = False
            for key, message in sorted(member.d.messages.items()):
                origin, counter = key
                if origin == member.name and counter > cut and message.operation is not None:
                    self.by.setdefault(again.name, []).append(message.operation)
                    self.by[member.name].remove(message.operation)
                    again.send(message.operation)
                    self.counts["sent again"] += 1
            self.counts["came back"] += 1

    def _has_told(self, member: Member) -> bool:
        """Whether a majority of the voters that go on, all if they are two or fewer, has what it has."""
        if self.without == "a leaver waits until it has told":
            return True
        voters = member.voters - {member.name}
        if not voters:
            voters = frozenset(member.lives() - {member.name})
        have = [
            v
            for v in voters
            if all(
                member.d.rows.get(v, {}).get(o, 0) >= number
                for o, number in member.d.vector.items()
                if o != v
            )
        ]
        return bool(voters) and (
            len(have) == len(voters) if len(voters) <= 2 else 2 * len(have) > len(voters)
        )


def run(seed: int, without: str = "") -> Counter[str]:
    """One schedule, and its end in peace. Raises BrokenRuleError."""
    world = World(seed, without)
    r = world.random
    world.found("abcde"[: r.randint(2, 5)])
    spare = ["p", "q", "r"]
    share = r.choice((0.3, 0.7, 1.0))
    may_set_back = r.random() < 0.1
    leaves = r.choice((0, 0.01, 0.02))
    may_replace = r.random() < 0.3
    for _ in range(r.choice((60, 150, 300))):
        live = world.live()
        if len(live) < 2:
            break
        one, other = r.sample(live, 2)
        chance = r.random()
        if chance < 0.20:
            if not (one.d.is_leaving or one.was_set_back):
                world.write(one)
        elif chance < 0.68:
            world.exchange(one, other, share)
        elif chance < 0.79:
            if one.name in one.voters:
                others = sorted(one.lives() - {one.name})
                world.evict(one, r.sample(others, min(len(others), r.choice((0, 1, 1, 1, 2)))))
                world.counts["asked"] += 1
        elif chance < 0.82 and spare:
            if not (one.d.is_leaving or one.was_set_back):
                world.join(one, spare.pop())
                world.counts["joined"] += 1
        elif chance < 0.86:
            world.gone_links.add(frozenset((one.name, other.name)))
        elif chance < 0.91 and world.gone_links:
            world.gone_links.discard(r.choice(sorted(world.gone_links, key=sorted)))
        elif chance < 0.94:
            back = r.randint(2, 4) if may_set_back and r.random() < 0.2 else 1
            world.crash(one, back)
            may_set_back = may_set_back and back == 1
        elif chance < 0.94 + leaves:
            if len(live) > 2 and not one.was_set_back:
                one.d.is_leaving = True
                one.sync()
        elif chance < 0.98:
            alive = {m.name for m in live}
            if all(2 * len((m.voters & alive) - {one.name}) > len(m.voters) for m in live):
                one.is_up = False
                world.counts["died"] += 1
        elif chance < 0.99 and may_replace:
            dead = [n for n, m in world.members.items() if not m.is_up and not m.has_left]
            dead = [n for n in dead if n in one.lives()]
            if dead and one.name in one.voters:
                world.evict(one, dead, replaced=dead)
                world.counts["replaced"] += 1
        for member in list(world.members.values()):
            world.go_on(member)
    settle(world)
    return world.counts


def settle(world: World) -> None:
    """The network is whole, nobody fails, and the operator puts out who is dead. Raises BrokenRuleError."""
    _come_to_rest(world)
    _judge(world)


def _come_to_rest(world: World) -> None:
    world.gone_links.clear()
    for member in world.members.values():
        member.is_up = member.is_up and not member.was_set_back
    for turn in range(120):
        for member in list(world.members.values()):
            world.go_on(member)
        up = [m for m in world.members.values() if m.is_up]
        for a, b in chain.from_iterable(permutations(up, 2) for _ in range(4)):
            world.exchange(a, b)
        live = world.live()
        if not live:
            world.counts["nobody left"] += 1
            return
        if _is_settled(world, live):
            world.counts["settled"] += 1
            return
        if len(live) == 1:
            live[0].d.is_leaving = False  # it stops
        names = {m.name for m in live}
        voters = [m for m in live if m.name in m.voters]
        proposer = (voters or live)[turn % len(voters or live)]
        dead = {
            n
            for m in live
            for n in m.lives()
            if not world.members[n].is_up or world.members[n].is_over
        } - proposer.cuts.keys()
        if any(m.d.is_leaving for m in live) and turn % 2 and not dead:
            continue  # it asks by itself
        if not voters or turn > 60:
            world.is_spoiled = True
            world.counts["forced"] += 1
            proposer.prepare(dead, (names & proposer.lives()) - proposer.voters, is_forced=True)
        elif 2 * len(proposer.voters & names) <= len(proposer.voters):
            world.evict(proposer, dead, replaced=dead)
        elif dead or any(m.d.frozen or m.unfinished() for m in live):
            world.evict(proposer, dead)
        elif any(m.name not in m.voters for m in live):
            world.evict(proposer, ())
    raise BrokenRuleError("it never settles")


def _is_settled(world: World, live: list[Member]) -> bool:
    names = {m.name for m in live}
    first = live[0]
    return (
        all(m.history == first.history for m in live)
        and first.voters == names
        and all(m.lives() == names for m in live)
        and not any(m.d.frozen or m.unfinished() or m.d.is_leaving for m in live)
        and all(m.d.vector == first.d.vector for m in live)
        and all(m.d.stable == m.d.vector for m in live)
        and not any(m.is_up and not m.is_in for m in world.members.values() if not m.is_over)
    )


def _judge(world: World) -> None:
    live = world.live()
    if not live:
        return
    applied = live[0].d.applied
    if any(m.d.applied != applied for m in live):
        raise BrokenRuleError("members have applied different operations")
    if any(number > 1 for number in applied.values()):
        raise BrokenRuleError("an operation was applied twice")
    names = {m.name for m in live}
    for name, operations in world.by.items():
        member = world.members[name]
        is_owed = name in names or (member.has_left and not member.was_set_back)
        if is_owed and (lost := [o for o in operations if o not in applied]):
            raise BrokenRuleError(f"operations {lost} of {name} are lost")
    for name, member in world.members.items():
        if (
            member.has_left
            and member.has_told
            and (lost := sorted(member.d.applied.keys() - applied.keys()))
        ):
            raise BrokenRuleError(f"{name} left, and what it had delivered is lost: {lost}")
