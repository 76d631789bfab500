"""Finds out exactly whether keys are worth the same at all members, while clients write, and repairs those that are
not.

This member asks each linked member for a key's state, with that member's vector. It waits until its own vector covers
all of them, and reads its own server after a commit. To each answer it applies what it has delivered beyond that
answer's vector. So all values belong to one history and must be equal: a key that differs was changed directly in a
server. The right value is decided (`key_states.decide`) and written at the start of the very next commit, so nothing
comes in between.

Of a large key only slots that may differ (`slot_looks`) are compared in this way, a page at a time. If they are more
than one page, this member refuses commands on the key until all of it is repaired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack
import trio

from crdtcast.adapters.redis.compare.key_digests import (
    DIGEST_BYTES,
    NOTHING,
    DigestLook,
    look_at,
    look_at_keys,
)
from crdtcast.adapters.redis.compare.key_journal import KeyJournal
from crdtcast.adapters.redis.compare.key_states import (
    Value,
    decide,
    value_at,
)
from crdtcast.adapters.redis.compare.slot_looks import SlotLooks
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.deadlines.index import MARGIN_MS
from crdtcast.adapters.redis.ops.recorder import Read
from crdtcast.adapters.redis.server.own_reads import at_once, read_together
from crdtcast.adapters.redis.server.sizes import weighing, weight_of, weights_of
from crdtcast.adapters.redis.server.steps import taken
from crdtcast.adapters.redis.store.contents import ROWS, Contents, Slots
from crdtcast.adapters.redis.store.databases import check_name, described, in_home, scan
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.transfer.key_rows import Row, packed_slots, unpacked_slots
from crdtcast.adapters.redis.transfer.row_reads import Subject, reading
from crdtcast.adapters.redis.transfer.state_messages import States
from crdtcast.adapters.redis.types.native import PAGE_BYTES
from crdtcast.causality.tags import Vector, dominates
from crdtcast.engine import Engine, GroupEngine
from crdtcast.exceptions import NotReadyError, RemoteProtocolError, ServerError
from crdtcast.msgpack_limits import unpacked as within_limits

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.batch import LocalBatch
    from crdtcast.adapters.redis.commit.committer import Committer
    from crdtcast.adapters.redis.commit.round import Commit

COVER_SECONDS = 15.0
"""How long this member waits until its vector covers an answer."""
PAGE_KEYS = 500
"""Keys that are compared together; SCAN may give some more."""

Ask = Callable[[str, bytes], Awaitable[bytes]]
Work: TypeAlias = "Callable[[LocalBatch], None]"
_pack: Callable[[object], bytes] = msgpack.packb


class KeyDifference(Enum):
    """The result of comparing a key, and what was done."""

    EQUAL = "equal"
    PUT_RIGHT = "put right here"
    ELSEWHERE = "to be put right elsewhere"
    DISPUTED = "disputed"
    WAITING = "waits for a member that is away"
    NOT_REPLICATED = "not replicated"


@dataclass(frozen=True, slots=True)
class FoundDifferences:
    """The result for one key.

    values: by member, in words; "" for nothing.
    why: the reason for the finding.
    """

    key: bytes
    finding: KeyDifference
    values: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    tell: tuple[str, ...] = ()
    """Members that must look at the key themselves."""


@dataclass(frozen=True, slots=True)
class _Heard:
    vector: Vector
    rows: dict[bytes, Row]
    large: frozenset[bytes]
    left: frozenset[bytes]


@dataclass(slots=True)
class _Pass:
    """A pass over all slots of a large key that may differ."""

    key: bytes
    act: bool
    source: str | None
    restored: int
    """How often any key was restored, if only this pass restores keys."""
    is_long: bool = False
    """Whether there is more than a page."""
    is_skipped: bool = False
    """Some slots could not be repaired."""
    found: FoundDifferences | None = None
    tell: set[str] = field(default_factory=set)

    def note(self, found: FoundDifferences) -> None:
        """Note the result of a page."""
        self.tell.update(found.tell)
        if self.found is None or _WEIGHT.index(found.finding) > _WEIGHT.index(self.found.finding):
            self.found = found


_WEIGHT = (
    KeyDifference.EQUAL,
    KeyDifference.NOT_REPLICATED,
    KeyDifference.ELSEWHERE,
    KeyDifference.PUT_RIGHT,
    KeyDifference.WAITING,
    KeyDifference.DISPUTED,
)
"""Findings by weight: the heaviest one of a key's pages is that of the key."""


class KeyComparison:
    """The comparison of one gateway.

    ask: sends a question to a peer.
    read: reads the gateway's own server after the next commit, at one instant.
    linked: names of the linked members that hold data.
    members: how many members hold data, including this one.
    """

    def __init__(
        self,
        name: str,
        committer: Committer,
        *,
        ask: Ask,
        read: Callable[[list[Read]], None],
        linked: Callable[[], list[str]],
        members: Callable[[], int],
    ) -> None:
        self._name = name
        self._committer = committer
        self._ask = ask
        self._read = read
        self._linked = linked
        self._members = members
        self._journals: list[KeyJournal] = []
        self._news = trio.lowlevel.ParkingLot()
        self._begun: list[trio.Event] = []
        """Events of works in the commit under way."""
        self._slots = SlotLooks(lambda: committer.keyspace, ask, self._replies)
        self.on_look: Callable[[Iterable[bytes]], None] = lambda keys: None
        """Called with keys that a peer wants this member to examine soon."""
        self.on_settle: Callable[[Sequence[bytes]], Awaitable[object]] = self.examine
        """Examines keys at once: a peer has repaired them, and waits for the end."""

    # Notices from the gateway

    def committed(self, commit: Commit) -> None:
        """A commit was answered; own reads after it are not yet."""
        for journal in self._journals:
            journal.committed(commit)
        if self._begun:
            for event in self._begun:
                event.set()
            self._begun.clear()
        if self._news:
            self._news.unpark_all()

    def resumed(self) -> None:
        """Everything was read from the server again: comparisons under way are worthless."""
        self._journals.clear()
        self._begun.clear()

    # States

    async def look(
        self, subjects: Sequence[Subject], take: Callable[[Vector, list[Row]], None]
    ) -> None:
        """Call `take` with their rows when the next commit with the reads is answered, before another one begins.

        Raises NotReadyError if the server is lost.
        """
        while not await self._looked(subjects, take):
            pass

    async def _looked(
        self, subjects: Sequence[Subject], take: Callable[[Vector, list[Row]], None]
    ) -> bool:
        """Returns False if the types that keys hide have changed during the reading."""
        hidden = self._hidden(subjects)
        is_taken = False

        def finish(rows: list[Row]) -> None:
            nonlocal is_taken
            state = self._committer.state
            if state is not None and hidden == self._hidden(subjects):
                take(dict(state.vector), rows)
                is_taken = True

        keyspace = self._committer.keyspace
        await self._read_together([*at_once(reading(subjects, keyspace, exact=True), finish)])
        return is_taken

    def _hidden(self, subjects: Iterable[Subject]) -> dict[bytes, frozenset[RedisType]]:
        hidden = self._committer.keyspace.hidden
        return {each.key: frozenset(hidden.get(each.key, ())) for each in subjects}

    async def _large(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """The keys to compare by their slots, and the others, as many as fit a page."""
        large: list[bytes] = []
        small: list[bytes] = []
        room = PAGE_BYTES
        weights = await weights_of(keys, self._replies)
        for key, (native, weight) in zip(keys, weights, strict=True):
            hidden = self._committer.keyspace.hidden.get(key, ())
            is_divisible = native is not None and native.get is not None
            if (is_divisible or hidden) and weight + await self._hidden_weight(key) > PAGE_BYTES:
                large.append(key)
            elif not small or weight <= room:
                small.append(key)
                room -= weight
        return large, small

    async def _hidden_weight(self, key: bytes) -> int:
        keyspace = self._committer.keyspace
        homes = [keyspace.place_of(key, type_) for type_ in keyspace.hidden.get(key, ())]
        weight = 0
        for home in homes:
            (size,) = await taken(in_home(home, [weighing(home.key)]), self._replies)
            weight += weight_of(size)
        return weight

    # Questions of peers

    async def answer(self, question: bytes) -> bytes:
        """The answer to a peer's question: states of keys, whether a page of keys is the same at this member, some of
        all own keys, some of those that are disputed, or a request to examine keys, at once or soon.

        Raises RemoteProtocolError if the question is invalid, NotReadyError if the server does not answer.
        """
        if not self._committer.serving:
            raise NotReadyError("the server does not answer")
        verb, *rest = _opened(question)
        match verb, rest:
            case "rows", [[*subjects]]:
                return (await self._told(_subjects(subjects))).encode()
            case "page", [[*keys], bytes(digest)] if _are_keys(keys):
                own = b"".join(look.digest for look in await self.looks(keys))
                return _pack([None if own == digest else own])
            case "list", [bytes(cursor)] if cursor.replace(b":", b"", 1).isdigit():
                cursor, names = await self.scan(cursor)
                looks = await self.looks(names)
                kinds = Counter(kind for look in looks for kind in look.not_replicated)
                return _pack([cursor, names, b"".join(look.digest for look in looks), dict(kinds)])
            case "disputed", [bytes(after)]:
                disputed = self._committer.keyspace.disputed
                return _pack([nsmallest(PAGE_KEYS, (key for key in disputed if key > after))])
            case "look", [[*keys]] if _are_keys(keys):
                self.on_look(keys)
                return _pack([True])
            case "settle", [[*keys]] if _are_keys(keys):
                await self.on_settle(keys)
                return _pack([True])
            case _:
                if (answer := await self._slots.answer([verb, *rest])) is not None:
                    return answer
                raise RemoteProtocolError(f"unknown question {verb!r:.40}")

    async def _told(self, subjects: Sequence[Subject]) -> States:
        """The states that a peer gets."""
        found: list[States] = []
        large, small = await self._large([key for key, slots in subjects if slots is None])
        whole = frozenset(small)
        told = [each for each in subjects if each.slots is not None or each.key in whole]
        if told:
            await self.look(told, lambda *rows: found.append(States(*rows)))
        elif self._committer.state is not None:
            found.append(States(dict(self._committer.state.vector), []))
        else:
            raise NotReadyError("the server does not answer")
        incomplete = self._committer.keyspace.incomplete
        rows = [
            replace(row, contents=None, foreign="a key that is being repaired")
            if row.key in incomplete
            else row
            for row in found[0].rows
        ]
        known = {*large, *(each.key for each in told)}
        left = [each.key for each in subjects if each.key not in known]
        return States(found[0].vector, rows, large, left)

    async def scan(self, at: bytes) -> tuple[bytes, list[bytes]]:
        """Some names of own keys, without repetitions, and where to continue. Raises NotReadyError if the server does
        not answer.
        """
        databases = self._committer.keyspace.databases
        try:
            following, names = await scan(self._replies, databases, at, PAGE_KEYS)
        except TypeError as error:
            raise NotReadyError(str(error)) from error
        kept = self._committer.keyspace.left_out.kept(names)
        return following, list(dict.fromkeys(kept))

    async def _replies(self, commands: Sequence[Sequence[bytes]]) -> list[object]:
        replies: list[object] = []
        await self._read_together([(list(command), replies.append) for command in commands])
        return replies

    async def _read_together(self, reads: list[Read]) -> None:
        try:
            await read_together(self._read, reads)
        except ServerError as error:
            raise NotReadyError(str(error)) from error

    async def looks(self, keys: Sequence[bytes]) -> list[DigestLook]:
        """Digests of own keys, in their order, not all of one instant. Raises NotReadyError if the server does not
        answer.
        """
        keyspace = self._committer.keyspace
        special = [key for key in keys if key in keyspace.hidden or key in keyspace.damaged]
        found: dict[bytes, DigestLook] = {}
        if special:
            rows: list[Row] = []
            await self.look([*map(Subject, special)], lambda _, told: rows.extend(told))
            found = {row.key: look_at(row) for row in rows}
        rest = [key for key in keys if key not in found]
        if rest:
            looks = await look_at_keys(rest, self._replies, keyspace.exact)
            found.update((look.key, look) for look in looks)
        return [found[key] for key in keys]

    async def page(self, peer: str, looks: Sequence[DigestLook]) -> list[bytes]:
        """Those of these own keys whose value may differ at a peer. Raises NotReadyError if the peer does not answer in
        full.
        """
        digests = b"".join(look.digest for look in looks)
        question = _pack(["page", [look.key for look in looks], digests])
        (told,) = _opened(await self._ask(peer, question))
        if told is None:
            return []
        return [
            look.key
            for look, other in zip(looks, _digests(told, len(looks)), strict=True)
            # A key that is not replicated, and missing at the peer, needs no second look.
            if look.digest != other and not (look.foreign and other == NOTHING)
        ]

    async def list_of(
        self, peer: str, cursor: bytes
    ) -> tuple[bytes, dict[bytes, bytes], dict[str, int]]:
        """Some of a peer's keys with their digests; where to continue; and counts of keys that are not replicated, by
        type.

        Raises NotReadyError if the peer does not answer in full, RemoteProtocolError if the answer is invalid.
        """
        answer = _opened(await self._ask(peer, _pack(["list", cursor])))
        match answer:
            case [bytes(cursor), [*names], digests, dict(kinds)] if _are_counts(kinds):
                pass
            case _:
                raise RemoteProtocolError(f"{peer} did not answer with a list of keys")
        return cursor, dict(zip(names, _digests(digests, len(names)), strict=True)), kinds

    # The comparison

    @property
    def changed(self) -> int:
        """Keys that were found changed directly in a server, since start."""
        return self._committer.changed_behind

    @property
    def disputed(self) -> frozenset[bytes]:
        """Keys for which nothing showed which copy is right. This member refuses them until they are settled."""
        return frozenset(self._committer.keyspace.disputed)

    async def disputed_at(self, peer: str) -> list[bytes]:
        """A peer's disputed keys.

        Raises NotReadyError if the peer does not answer in full, RemoteProtocolError if the answer is invalid.
        """
        found: list[bytes] = []
        while True:
            (keys,) = _opened(
                await self._ask(peer, _pack(["disputed", found[-1] if found else b""]))
            )
            if keys == []:
                return found
            if not isinstance(keys, list) or not _are_keys(keys):
                raise RemoteProtocolError(f"{peer} did not answer with a list of keys")
            if sorted({*found[-1:], *keys}) != [*found[-1:], *keys]:
                raise RemoteProtocolError(f"{peer} lists its disputed keys without an order")
            found += keys

    async def tell(self, peer: str, keys: Sequence[bytes]) -> None:
        """Ask a peer to examine these keys itself. Raises NotReadyError if the peer does not answer."""
        await self._ask(peer, _pack(["look", list(keys)]))

    async def settle_at(self, peer: str, keys: Sequence[bytes]) -> None:
        """Have a peer examine repaired keys. Raises NotReadyError if the peer does not answer."""
        await self._ask(peer, _pack(["settle", list(keys)]))

    async def examine(
        self, keys: Sequence[bytes], *, act: bool = True, source: str | None = None
    ) -> list[FoundDifferences]:
        """Compare these keys exactly.

        act: repair at this member what is decided.
        source: the member that is right.

        Raises NotReadyError if nothing could be compared.
        """
        found: list[FoundDifferences] = []
        left = list(keys)
        while left:
            large, small = await self._large(left)
            if small:
                each, also_large = await self._examine_whole(small, act=act, source=source)
                found += each
                large += also_large
            for key in large:
                found.append(await self._examine_large(key, act=act, source=source))
            done = {*large, *(each.key for each in found)}
            left = [key for key in left if key not in done]
        return found

    async def _examine_whole(
        self, keys: Sequence[bytes], *, act: bool, source: str | None
    ) -> tuple[list[FoundDifferences], list[bytes]]:
        """The results of keys that are compared as a whole, as far as the answers had room; and the keys that are large
        at a peer.
        """
        journal = KeyJournal(keys, self._engine())
        subjects = [Subject(key) for key in keys]
        large: set[bytes] = set()
        found: list[FoundDifferences] = []

        def judge(row: Row, heard: dict[str, _Heard], subject: Subject) -> Work | None:
            if any(row.key in each.large for each in heard.values()):
                large.add(row.key)
            elif not any(row.key in each.left for each in heard.values()):
                put = partial(partial, _put, row.key)
                each, work = self._judge(subject, row, heard, journal, source, put)
                found.append(each)
                return work
            return None

        await self._compare(subjects, journal, judge, act=act, source=source)
        return found, sorted(large)

    async def _examine_large(
        self, key: bytes, *, act: bool, source: str | None
    ) -> FoundDifferences:
        """The result of a large key."""
        engine = self._engine()
        keyspace = self._committer.keyspace
        over = _Pass(key, act, source, keyspace.restored)
        journal = KeyJournal([key], engine)
        self._journals.append(journal)
        try:
            held: Slots | None = None
            for peer in self._names(source):
                async with aclosing(self._slots.candidates(peer, key)) as candidates:
                    async for slots in candidates:
                        if held is not None:
                            over.is_long = True
                            await self._examine_slots(Subject(key, held), journal, over)
                        held = slots
            if held is not None:
                await self._examine_slots(Subject(key, held), journal, over)
        finally:
            if journal in self._journals:
                self._journals.remove(journal)
        found = over.found
        assert found is not None
        if act and key in keyspace.refused:
            if found.finding not in (KeyDifference.DISPUTED, KeyDifference.WAITING):
                settled = self._do(key, partial(_settle_if_whole, over))
                self._committer.kick()
                await self._done([settled])
                over.tell.update(self._names(source))  # they may refuse it, too
            if over.is_skipped:
                raise NotReadyError(f"{described(key)} changed again during its repair: try again")
        return replace(found, tell=tuple(sorted(over.tell)))

    async def _examine_slots(self, subject: Subject, journal: KeyJournal, over: _Pass) -> None:
        def judge(row: Row, heard: dict[str, _Heard], subject: Subject) -> Work | None:
            put = partial(partial, _put_slots, over, subject, row.contents)
            found, work = self._judge(subject, row, heard, journal, over.source, put)
            shown = {n: f"{v} of the compared slots" for n, v in found.values.items() if v}
            over.note(replace(found, values={**found.values, **shown}))
            return work

        await self._compare([subject], journal, judge, act=over.act, source=over.source)
        if over.is_long:
            crash_point("repair-page-written")

    def _engine(self) -> Engine | GroupEngine:
        if (engine := self._committer.engine) is None:
            raise NotReadyError("the server does not answer")
        return engine

    def _names(self, source: str | None) -> list[str]:
        names = self._linked() if source is None else [source]
        if not names:
            raise NotReadyError("no other member is linked: try again when one is")
        return names

    async def _compare(
        self,
        subjects: Sequence[Subject],
        journal: KeyJournal,
        judge: Callable[[Row, dict[str, _Heard], Subject], Work | None],
        *,
        act: bool,
        source: str | None,
    ) -> None:
        """Ask the others, and judge their answers when own reads cover them, each at its instant."""
        committer, engine = self._committer, self._engine()
        names = self._names(source)
        is_new = journal not in self._journals
        if is_new:
            self._journals.append(journal)
        works: list[trio.Event] = []
        is_judged = False
        try:
            heard = await self._hear(names, _pack(["rows", list(map(_packed_subject, subjects))]))
            if not heard:
                raise NotReadyError(f"{', '.join(names)} did not answer: try again")
            await journal.read()

            def take(vector: Vector, rows: list[Row]) -> None:
                nonlocal is_judged
                if committer.engine is not engine or journal not in self._journals:
                    return
                is_judged = True
                for subject, row in zip(subjects, rows, strict=True):
                    work = judge(row, heard, subject)
                    if act and work is not None:
                        works.append(self._do(row.key, work))

            await self.look(subjects, take)
        finally:
            if is_new and journal in self._journals:
                self._journals.remove(journal)
        if not is_judged:
            raise NotReadyError("the server came back with another state: try again")
        if works:
            self._committer.kick()
        await self._done(works)

    async def _hear(self, names: Iterable[str], question: bytes) -> dict[str, _Heard]:
        """The answers that this member's vector covers in time."""
        heard: dict[str, _Heard] = {}

        async def hear(name: str) -> None:
            try:
                told = States.decode(await self._ask(name, question))
            except (NotReadyError, RemoteProtocolError):
                return
            if await self._covers(told.vector):
                rows = {row.key: row for row in told.rows}
                large, left = frozenset(told.large), frozenset(told.left)
                heard[name] = _Heard(told.vector, rows, large, left)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(hear, name)
        return heard

    async def _covers(self, vector: Vector) -> bool:
        """Whether this member's server reaches this vector in time."""
        with trio.move_on_after(COVER_SECONDS):
            while (state := self._committer.state) is None or not dominates(state.vector, vector):
                await self._news.park()
            return True
        return False

    def _judge(
        self,
        subject: Subject,
        own: Row,
        heard: dict[str, _Heard],
        journal: KeyJournal,
        source: str | None,
        put: Callable[[Value], Work],
    ) -> tuple[FoundDifferences, Work | None]:
        """Judge a key, or some slots: the finding, and the work to do at the start of the next commit.

        put: makes the work that writes a value.
        """
        key, keyspace = own.key, self._committer.keyspace
        mine = None if own.contents is None else Value(own.contents)
        values: dict[str, Value | None] = {self._name: mine}
        shown: dict[str, str] = {self._name: own.foreign or _shown(mine)}
        for name, told in heard.items():
            row = told.rows.get(key)
            if row is not None:
                values[name] = value_at(row, told.vector, journal.of(key), subject.slots)
                shown[name] = row.foreign or _shown(values[name])
        votes = {name: value for name, value in values.items() if value is not None}
        complete = len(values) >= self._members()
        damaged = key in keyspace.damaged
        if source is None and not damaged and self._is_passing(votes.values()):
            return FoundDifferences(key, KeyDifference.EQUAL, shown), None
        settle: Work | None = None
        is_refused = key in keyspace.disputed or key in keyspace.incomplete
        if is_refused and subject.slots is None:
            settle = partial(_settle, key)
        # Each member forgets deadlines without data at a different time.
        are_nothing = all(value.is_nothing for value in votes.values())
        if len(votes) == len(values) and (are_nothing or len(set(votes.values())) == 1):
            tell = () if settle is None else tuple(sorted(heard))  # they may refuse it, too
            return FoundDifferences(key, KeyDifference.EQUAL, shown, tell=tell), settle
        if len(votes) < len(values) and not damaged and are_nothing:
            return FoundDifferences(key, KeyDifference.NOT_REPLICATED, shown), None
        if source is not None:
            value, why = values.get(source), f"taken from {source}"
            if value is None:
                why = f"{source} holds a value that no gateway has written"
        else:
            verdict = decide(votes, self._members(), complete=complete or damaged)
            value, why = verdict.value, verdict.why
        if value is None:
            if not complete and source is None:
                return FoundDifferences(key, KeyDifference.WAITING, shown, why), None
            is_new = source is None and not damaged and key not in keyspace.disputed
            return (
                FoundDifferences(key, KeyDifference.DISPUTED, shown, why, tuple(sorted(heard))),
                (lambda batch: keyspace.dispute(key, batch.plan)) if is_new else None,
            )
        tell = tuple(sorted(n for n, v in values.items() if v != value and n != self._name))
        if value == mine:
            return FoundDifferences(key, KeyDifference.ELSEWHERE, shown, why, tell), settle
        if self._committer.refusals.growth is not None:
            return FoundDifferences(
                key, KeyDifference.WAITING, shown, "this server has no room"
            ), None
        # All other members may have refused it, or have another value again.
        found = FoundDifferences(key, KeyDifference.PUT_RIGHT, shown, why, tuple(self._linked()))
        return found, put(value)

    async def accept(self, key: bytes | None) -> list[bytes]:
        """Accept commands again on a refused key, or on all: their servers' values count.

        Raises NotReadyError if the server does not take that.
        """
        refused = self._committer.keyspace.refused
        keys = sorted(refused) if key is None else [key] if key in refused else []
        works = [self._do(each, partial(_settle, each)) for each in keys]
        self._committer.kick()
        await self._done(works)
        return keys

    def _is_passing(self, values: Iterable[Value]) -> bool:
        """Whether a deadline is over, or nearly, by some clock: one server may have dropped the key, and another
        not.
        """
        near = self._committer.keyspace.dates.now + MARGIN_MS
        return any(value.at <= near for value in values)

    async def _done(self, works: Iterable[trio.Event]) -> None:
        with trio.move_on_after(COVER_SECONDS) as patience:
            for event in works:
                await event.wait()
        if patience.cancelled_caught:
            raise NotReadyError("this server did not take the repair")

    def _do(self, key: bytes, work: Work) -> trio.Event:
        """Do the work in the next commit; the event is set when that is answered."""
        done = trio.Event()

        def begin(batch: LocalBatch) -> None:
            work(batch)
            self._begun.append(done)

        self._committer.inside(key, begin)
        return done


def _settle(key: bytes, batch: LocalBatch) -> None:
    batch.keyspace.in_order(key, batch.plan)


def _put(key: bytes, value: Value, batch: LocalBatch) -> None:
    if batch.has_touched(key):
        return  # an operation of this gateway comes before it: the next comparison finds the key again
    batch.keyspace.put(key, value.contents, batch.plan)


def _put_slots(
    over: _Pass, subject: Subject, own: Contents | None, value: Value, batch: LocalBatch
) -> None:
    keyspace, key = batch.keyspace, subject.key
    if batch.has_touched(key):
        over.is_skipped = True
        return
    if own is None and key not in keyspace.damaged:  # it holds another value
        keyspace.restore(key, batch.plan)
        over.restored += 1
    elif over.is_long and key not in keyspace.refused:
        keyspace.refuse_meanwhile(key, batch.plan)
    keyspace.put_slots(key, value.contents, subject.slots or {}, own or {}, batch.plan)


def _settle_if_whole(over: _Pass, batch: LocalBatch) -> None:
    """Accept commands on the key again, unless it was overwritten once more."""
    over.is_skipped |= batch.keyspace.restored != over.restored
    if not over.is_skipped:
        batch.keyspace.in_order(over.key, batch.plan)


def _packed_subject(subject: Subject) -> list[object]:
    key, slots = subject
    return [key, None if slots is None else packed_slots(slots)]


def _subjects(raw: list[Any]) -> list[Subject]:
    """Raises RemoteProtocolError if the question is invalid."""
    try:
        found = [
            Subject(key, None if slots is None else unpacked_slots(slots)) for key, slots in raw
        ]
    except (ValueError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(
            f"a question about a value that no gateway has: {error}"
        ) from error
    if not _are_keys([key for key, _ in found]):
        raise RemoteProtocolError("a question about keys that no gateway has")
    return found


def _shown(value: Value | None) -> str:
    return "" if value is None or value.is_nothing else str(value)


def _opened(raw: bytes) -> list[Any]:
    try:
        found = within_limits(raw, ROWS, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"an invalid question or answer: {error}") from error
    if isinstance(found, list) and found:
        return found
    raise RemoteProtocolError(f"an invalid question or answer: {found!r:.40}")


def _are_keys(keys: Sequence[Any]) -> bool:
    return 0 < len(keys) <= 2 * PAGE_KEYS and all(map(_is_key, keys))


def _is_key(key: Any) -> bool:
    try:
        check_name(key)
    except (ValueError, TypeError):
        return False
    return type(key) is bytes


def _are_counts(kinds: Mapping[Any, Any]) -> bool:
    return all(type(kind) is str and type(number) is int for kind, number in kinds.items())


def _digests(raw: Any, number: int) -> list[bytes]:
    if type(raw) is not bytes or len(raw) != number * DIGEST_BYTES:
        raise NotReadyError("the answer lacks a digest for some key")
    return [raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)]
