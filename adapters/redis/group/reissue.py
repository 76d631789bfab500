"""Sends again, in order, what an evicted gateway had acknowledged and the group does not have, once it is back.

Before its server is emptied, its messages are put aside (`parked`), with what their removals took away. Once it is
certain what the group has, they are compared (`rebase`) and sent under new dots. The transaction that stores them
notes these dots. See `crdtcast.engine.reissue`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import trio

from crdtcast.adapters.redis.commit.batch import MAX_BYTES, MAX_OPERATIONS
from crdtcast.adapters.redis.commit.lookup import Looks
from crdtcast.adapters.redis.commit.plan import SAYS_OK, Expect
from crdtcast.adapters.redis.group.parked_message import Performing
from crdtcast.adapters.redis.group.preimages import is_whole, lost_name, taken_name, takes_away
from crdtcast.adapters.redis.group.rebase import Mine, Part, Removal, Slot, Write, rebasing
from crdtcast.adapters.redis.recorded.answer import ParkedRecord
from crdtcast.adapters.redis.server.sizes import weighing, weight_of
from crdtcast.adapters.redis.server.steps import taken
from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.databases import Home, by_name
from crdtcast.adapters.redis.store.effects import EffectsEvent, Inc, KeyEffect, One, RedisType, Reg
from crdtcast.adapters.redis.store.slot_value import Worth
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.types import BY_NAME, TYPES
from crdtcast.adapters.redis.types.native import Content, NativeType
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.member_id import base_of, name_of
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Parked, ParkedOperation, Standing
from crdtcast.journal.saved import Saved, pack_saved, unpack_saved

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.batch import LocalBatch
    from crdtcast.adapters.redis.commit.committer import Committer
    from crdtcast.adapters.redis.commit.round import Commit
    from crdtcast.adapters.redis.server.connection import Replies, ServerConnection, Words

_MESSAGES_AT_ONCE = 64
"""Messages sent again in one commit."""
_STEPS_AT_ONCE = 4096
"""Operations, keys and members in one commit, or in one read of what removals took away. One message may have more."""
_COMPARED_AT_ONCE = 4
"""Messages compared in one turn of the loop. Each may have 4,096 operations."""
_SHOWN = 10

_Decoded: TypeAlias = "tuple[ParkedOperation, EffectsEvent]"


class _Taken:
    """What the effects of one message removed, by place (None: not known), and which slots are back."""

    def __init__(self) -> None:
        self.contents: dict[int, Contents | None] = {}
        self.back: dict[int, set[Slot]] = {}
        self._room = MAX_BYTES

    def with_room(self, contents: Contents | None) -> Contents | None:
        """The contents; None if they are too much for one message."""
        for content in (contents or {}).values():
            self._room -= sum(len(slot) + len(worth) for slot, worth in content.items())
        return contents if self._room >= 0 else None


class _Asked(NamedTuple):
    """An effect that may have removed something, and the key that keeps it."""

    taken: _Taken
    place: int
    effect: KeyEffect
    name: bytes

    def contents(self, native: type[NativeType], content: Content | None) -> Contents | None:
        """The kept contents: of a whole key, whose copy has the native type, or of slots, in a hash."""
        if content is None:
            return None
        if is_whole(self.effect):
            return {native.type: content} if content else {}
        type_ = self.effect.type  # type: ignore[union-attr]
        assert type_ is not None
        shown = TYPES[type_].shown  # a script has kept it as the server prints it
        return {type_: {slot: shown(worth) for slot, worth in content.items()}} if content else {}

    def keep(self, contents: Contents | None) -> None:
        """Note the contents, unless they are too much for one message."""
        self.taken.contents[self.place] = self.taken.with_room(contents)


class GatewayReissue:
    """The parked operations of one gateway, as its server has them."""

    def __init__(
        self, committer: Committer, group: str, name: str, metadata_db: int, logger: logging.Logger
    ) -> None:
        self._committer = committer
        self._group = group
        self._name = name
        self._db = metadata_db
        self._log = logger
        self.parked: Parked | None = None
        self.never_began: set[str] = set()
        """Bases of attempts to join that this process has made and replaced."""
        self.recorded: ParkedRecord | None = None
        """The record in a server that has lost part of its data, of the incarnation that ends by that."""
        self._rebasing: Iterator[None] | None = None
        """The comparison, while it is under way, or done and not noted yet."""
        self._firsts: tuple[Parked | None, dict[Dot, Dot]] = None, {}
        self._theirs: dict[tuple[bytes, RedisType, bytes], Worth | None] = {}
        """Values of the slots that the present commit sends again."""
        self._begun: set[bytes] = set()
        """Keys that did not exist before messages were sent again."""
        self.yielded: int = 0
        """Writes that were not sent again, since start."""

    def resume(self, raw: bytes | None) -> None:
        """Continue from what the server holds. Raises UnusableInputError or ConfigurationError if it cannot be read."""
        where = "the key 'parked' of the metadata database"
        self.parked = None if raw is None else unpack_saved(raw, where).parked
        self._rebasing = None
        for operation in () if self.parked is None else self.parked.operations:
            Mine.decode(operation.payload)

    def _pack(self, parked: Parked) -> bytes:
        return pack_saved(Saved(self._group, self._name, parked=parked))

    # At the end of an incarnation

    async def park(
        self,
        connection: ServerConnection,
        engine: GroupEngine,
        *,
        is_whole: bool,
        is_complete: bool,
    ) -> bytes:
        """The value of the key `parked`: all that this incarnation, which has ended, may have to send again.

        connection: on database 0; the server still has the incarnation's data.
        is_whole: whether it has all of the data.
        is_complete: whether the engine has all of its messages.

        Raises ServerError if the connection is lost.
        """
        parked = Parked.of(engine.state(), engine.me, self.parked, is_complete=is_complete)
        own = [operation for operation in parked.operations if operation.dot.origin == engine.me]
        others = parked.operations[: len(parked.operations) - len(own)]
        # Messages of an unanswered commit were not sent, and its clients' commands run again.
        unsure = self._committer.unsure
        own = [operation for operation in own if operation.dot not in unsure]
        home = dict(engine.vector)
        packed: list[ParkedOperation] = []
        recorded = self._committer.recorded.parked or self.recorded
        for some in _portions(own):
            await trio.lowlevel.checkpoint()
            found = [_Taken() for _ in some]
            if is_whole:
                found = await self._taken(connection, some)
            for (operation, event), kept in zip(some, found, strict=True):
                mine = Mine.of(event.effects, kept.contents, home, event.timestamp, kept.back)
                packed.append(replace(operation, payload=mine.encode()))
        self.recorded = None
        if recorded is not None and recorded.operation.dot.origin == engine.me:
            event = effects.decode_own(recorded.operation)
            mine = Mine.of(event.effects, recorded.taken, home, event.timestamp)
            packed.append(replace(recorded.operation, payload=mine.encode()))
        return self._pack(replace(parked, operations=(*others, *packed)))

    async def _taken(
        self, connection: ServerConnection, operations: Sequence[_Decoded]
    ) -> list[_Taken]:
        """What the effects of these removed or overwrote, and what of it is back."""
        found = [_Taken() for _ in operations]
        asked = [
            _Asked(taken, place, effect, taken_name(operation.dot, place))
            for taken, (operation, event) in zip(found, operations, strict=True)
            for place, effect in enumerate(event.effects)
            if takes_away(effect)
        ]
        types = await self._read(connection, [("TYPE", each.name) for each in asked])
        lost = await self._read(connection, [("EXISTS", lost_name(each.name)) for each in asked])
        kept: list[tuple[_Asked, type[NativeType]]] = []
        for each, type_, is_lost in zip(asked, types, lost, strict=True):
            native = BY_NAME.get(type_)
            is_known = not is_lost and (native is not None or type_ == b"none")
            each.taken.contents[each.place] = {} if is_known else None
            if is_known and native is not None:
                kept.append((each, native))
        sizes = await self._read(connection, [(n.size, each.name) for each, n in kept])
        memory = await self._read(connection, [tuple(weighing(each.name)) for each, _ in kept])
        small: list[tuple[_Asked, type[NativeType]]] = []
        weight = 0
        for (each, native), size, taken_up in zip(kept, sizes, memory, strict=True):
            most = MAX_BYTES if native is String else MAX_OPERATIONS
            if not isinstance(size, int) or size > most:
                each.taken.contents[each.place] = None
                continue
            if weight_of(taken_up) > MAX_BYTES:
                content = await self._read_in_pages(connection, each.name, native)
                each.keep(each.contents(native, content))
                continue
            weight += weight_of(taken_up)
            if weight > MAX_BYTES:
                await self._read_contents(connection, small)
                small, weight = [], weight_of(taken_up)
            small.append((each, native))
        await self._read_contents(connection, small)
        await self._note_what_is_back(connection, asked)
        return found

    async def _read_contents(
        self, connection: ServerConnection, kept: Sequence[tuple[_Asked, type[NativeType]]]
    ) -> None:
        replies = await self._read(connection, [n.reading(each.name) for each, n in kept])
        for (each, native), reply in zip(kept, replies, strict=True):
            each.keep(each.contents(native, native.content(reply)))

    async def _read_in_pages(
        self, connection: ServerConnection, name: bytes, native: type[NativeType]
    ) -> Content | None:
        """A large kept value; None as soon as it is too much for one message. It does not change meanwhile."""
        walk = ValuePages(native, Home(name, name, self._db))
        content: dict[bytes, Worth] = {}
        size = 0
        while walk.following is not None and size <= MAX_BYTES:
            page = await taken(walk.page(), connection.call)
            if page is None:
                return None
            content |= page.content
            size = sum(len(slot) + len(worth) for slot, worth in content.items())
        return content if size <= MAX_BYTES else None

    async def _note_what_is_back(
        self, connection: ServerConnection, asked: Iterable[_Asked]
    ) -> None:
        """Note slots that were removed and exist in the end: others, who had not seen the removal, have added them."""
        removed = [
            (each, (type_, slot))
            for each in asked
            if not isinstance(each.effect, Reg)
            for type_, content in (each.taken.contents[each.place] or {}).items()
            for slot in content
        ]
        for start in range(0, len(removed), _STEPS_AT_ONCE):
            some = removed[start : start + _STEPS_AT_ONCE]
            read = by_name(connection.call)
            replies = await read(
                [TYPES[type_].asking(each.effect.key, slot) for each, (type_, slot) in some]
            )
            for (each, slot), reply in zip(some, replies, strict=True):
                if TYPES[slot[0]].slot_of(reply) is not None:
                    each.taken.back.setdefault(each.place, set()).add(slot)

    async def _read(self, connection: ServerConnection, commands: list[Words]) -> Replies:
        """Read from the metadata database."""
        replies = await connection.call([("SELECT", self._db), *commands, ("SELECT", 0)])
        return replies[1:-1]

    # In the next incarnation

    def first_of(self, dot: Dot) -> Dot | None:
        """The message of a former incarnation that was sent again as this one; None if there is none."""
        if self.parked is None:
            return None
        if self._firsts[0] is not self.parked:
            copies = self.parked.copies
            firsts = {again: first for first, dots in copies.items() for again in dots}
            self._firsts = self.parked, firsts
        return self._firsts[1].get(dot)

    def prepared(self, commit: Commit, engine: GroupEngine) -> None:
        """A commit is about to be sent: note in it what has become known of earlier incarnations."""
        if self.parked is not None:
            met = self.parked.meeting(engine)
            if met is not self.parked:
                self._save(commit, met)

    def has_work(self, engine: GroupEngine) -> bool:
        """Whether `add_work` may add something, now or later."""
        return self.parked is not None or (engine.has_tombs and bool(self._to_settle(engine)))

    def add_work(self, engine: GroupEngine) -> None:
        """Add the next step to the next commit, if there is one. Call it when no commit is under way."""
        parked = self.parked
        if not self.has_work(engine):
            return
        if engine.standing is not Standing.MEMBER:
            return
        if parked is None:
            if self._to_settle(engine):
                self._committer.at_its_end(partial(self._settle, engine))
        elif parked.is_decided(engine):
            uncovered = parked.uncovered(engine)
            # Messages of the incarnation that ended last, not compared yet, come after all others.
            if uncovered and not Mine.decode(uncovered[-1].payload).rebased:
                if self._rebasing is None:
                    self._rebase(parked, uncovered)
            elif uncovered:
                self._send_some_again(uncovered)
            elif self._to_settle(engine):
                self._committer.at_its_end(partial(self._settle, engine))
            elif parked.may_be_dropped(engine):
                self._committer.at_its_end(self._drop)

    def _to_settle(self, engine: GroupEngine) -> list[str]:
        """Former incarnations that the group may forget, since all that they ever told of was sent again. A session
        token may name messages of all others that are lost: how many theirs are remains known.
        """
        own = (i for i in engine.tombs if name_of(i) == self._name)
        return sorted(filter(self._is_known_whole, own))

    def _is_known_whole(self, incarnation: str) -> bool:
        parked = self.parked
        if parked is not None and incarnation in parked.ended:
            return incarnation not in parked.incomplete
        return base_of(incarnation) in self.never_began

    def _rebase(self, parked: Parked, uncovered: Iterable[ParkedOperation]) -> None:
        """Compare all messages that the group does not have, once, and note what is left of each."""
        newest = parked.ended[-1]

        def when(operation: ParkedOperation) -> tuple[bool, int, int]:
            """Messages that the last incarnation had not sent again by its end come after its own: no removal of it had
            seen them.
            """
            last = parked.copies.get(operation.dot, (operation.dot,))[-1]
            return last.origin != newest, parked.ended.index(last.origin), last.counter

        order = sorted(uncovered, key=when)
        self._rebasing = self._compared(order)
        self._go_on(self._rebasing)

    def _compared(self, order: Sequence[ParkedOperation]) -> Iterator[None]:
        """Compare, with a step for each message in each pass."""
        results, yielding = yield from rebasing(Mine.decode(each.payload) for each in order)
        left: dict[Dot, ParkedOperation] = {}
        for operation, mine in zip(order, results, strict=True):
            left[operation.dot] = replace(operation, payload=mine.encode())
            yield

        def note(commit: Commit) -> None:
            assert self.parked is not None
            self._rebasing = None
            self._tell_yielding(yielding)
            operations = tuple(left.get(o.dot, o) for o in self.parked.operations)
            self._save(commit, replace(self.parked, operations=operations))

        self._committer.at_its_end(note)

    def _go_on(self, steps: Iterator[None]) -> None:
        """Do some steps, and the rest in later turns of the loop."""
        if steps is not self._rebasing:
            return  # the state was read from the server again
        if len(list(islice(steps, _COMPARED_AT_ONCE))) == _COMPARED_AT_ONCE:
            self._committer.later(partial(self._go_on, steps))
        else:
            self._committer.kick()

    def _send_some_again(self, operations: Sequence[ParkedOperation]) -> None:
        steps = 0
        self._theirs = {}
        for operation in operations[:_MESSAGES_AT_ONCE]:
            mine = Mine.decode(operation.payload)
            more = sum(map(_steps_of, mine.parts))
            if steps and steps + more > _STEPS_AT_ONCE:
                break
            steps += more
            for part in mine.parts:  # so that all keys are looked up
                self._committer.inside(part.key, _nothing, self._looks_of(part))
            key = mine.parts[0].key if mine.parts else b""
            self._committer.inside(key, partial(self._perform, operation, mine))
        self._committer.at_its_end(self._save_sent)

    def _looks_of(self, part: Part) -> list[Looks]:
        """The slots that must be known before a part is performed."""
        match part:
            case Inc(_, type_, slot) if type_ is not String.type:
                return [Looks(type_, (slot,))]
            case Write(key, type_, values):
                return [self._look_at(key, type_, list(values))]
            case Removal(key, _, _, taken) if taken:
                valued = {t: content for t, content in taken.items() if TYPES[t].valued}
                return [self._look_at(key, t, list(content)) for t, content in valued.items()]
        return []

    def _look_at(self, key: bytes, type_: RedisType, slots: list[bytes]) -> Looks:
        def take(replies: Replies) -> None:
            for slot, reply in zip(slots, replies, strict=True):
                self._theirs[key, type_, slot] = TYPES[type_].slot_of(reply)

        return Looks(type_, slots, take)

    def _perform(self, operation: ParkedOperation, mine: Mine, batch: LocalBatch) -> None:
        parked = self.parked
        assert parked is not None
        batch.close()
        dot = batch.tag.dot
        batch.bounded = False
        performing = Performing(mine, batch, self._theirs, self._begun)
        yielding = [kept for part in mine.parts if (kept := performing.perform(part)) is not None]
        yielding += performing.finish()
        batch.close()
        batch.bounded = True
        self._tell_yielding(yielding)
        if batch.tag.dot == dot:  # nothing is left of it
            left = tuple(o for o in parked.operations if o.dot != operation.dot)
            self.parked = replace(parked, operations=left)
        else:
            self.parked = parked.reissued(operation, dot)

    def _save_sent(self, commit: Commit) -> None:
        """Save once for all messages in this commit: the value may be large."""
        assert self.parked is not None
        self._save(commit, self.parked)

    def _tell_yielding(self, yielding: Iterable[object]) -> None:
        shown = [str(part) for part in yielding]
        if not shown:
            return
        self.yielded += len(shown)
        self._log.warning(
            "a write from before the eviction is not sent again, since the group's state "
            "prevails: %s%s",
            ", ".join(shown[:_SHOWN]),
            f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "",
        )

    def _settle(self, engine: GroupEngine, commit: Commit) -> None:
        if engine.standing is not Standing.MEMBER:
            return
        for incarnation in self._to_settle(engine):
            tag = engine.settle(incarnation)
            if self.parked is not None:
                self._save(commit, self.parked.settled(incarnation, tag.dot))

    def _drop(self, commit: Commit) -> None:
        self.parked = None
        self._begun.clear()
        commit.plan.metadata(Expect.INTEGER, b"DEL", metadata.PARKED)

    def _save(self, commit: Commit, parked: Parked) -> None:
        self.parked = parked
        commit.plan.metadata(SAYS_OK, b"SET", metadata.PARKED, self._pack(parked))


def _portions(operations: Iterable[ParkedOperation]) -> Iterator[list[_Decoded]]:
    """The operations with their effects, as many at a time as one turn of the loop, and one read, may take."""
    some: list[_Decoded] = []
    effects_in_it = 0
    for operation in operations:
        event = effects.decode_own(operation)
        some.append((operation, event))
        effects_in_it += len(event.effects)
        if effects_in_it >= _STEPS_AT_ONCE:
            yield some
            some, effects_in_it = [], 0
    if some:
        yield some


def _steps_of(part: Part) -> int:
    match part:
        case One(slots=slots):
            return len(slots)
        case Write(values=values):
            return 1 + len(values)
        case Removal(taken=taken):
            return 1 + sum(map(len, (taken or {}).values()))
    return 1


def _nothing(batch: LocalBatch) -> None:
    """Do nothing: only the key has to be looked up."""
