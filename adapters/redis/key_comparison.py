"""Finds out exactly whether keys are worth the same at all members, while everybody writes, and puts right what is not.

A key's state is asked of each linked member, as of that member's vector. This one waits until it covers all of them,
reads its own server behind a commit, and applies to each answer what it has delivered beyond that answer's vector. So
all values stand for one history, and must be equal; what differs was changed past a gateway. What a key has to be is
decided (`key_states.decide`) and written at the head of the very next commit, so nothing comes in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgpack
import trio

from crdtcast.adapters.redis.contents import ROWS, reads_of
from crdtcast.adapters.redis.databases import by_name, check_name, scan
from crdtcast.adapters.redis.deadlines.index import MARGIN_MS
from crdtcast.adapters.redis.effects import RedisType
from crdtcast.adapters.redis.key_digests import (
    DIGEST_BYTES,
    NOTHING,
    Look,
    look_at,
    look_at_keys,
)
from crdtcast.adapters.redis.key_journal import KeyJournal
from crdtcast.adapters.redis.key_states import (
    KeyState,
    Value,
    decide,
    decode_states,
    encode_states,
    read_state,
)
from crdtcast.adapters.redis.own_reads import read_together
from crdtcast.adapters.redis.recorder import Read
from crdtcast.adapters.redis.sizes import portions, weights_of
from crdtcast.exceptions import NotReadyError, RemoteProtocolError, ServerError
from crdtcast.msgpack_limits import unpacked as within_limits
from crdtcast.tags import Vector, dominates

if TYPE_CHECKING:
    from crdtcast.adapters.redis.batch import LocalBatch
    from crdtcast.adapters.redis.commit import Commit
    from crdtcast.adapters.redis.committer import Committer

COVER_SECONDS = 15.0
"""So long this member waits for what an answer rests on."""
_EXAMINED_BYTES = 8 << 20
"""Of keys that are examined at once, as far as their sizes here tell; or one key."""
PAGE_KEYS = 500
"""Keys that are compared together; SCAN may give some more."""

Ask = Callable[[str, bytes], Awaitable[bytes]]
Work: TypeAlias = "Callable[[LocalBatch], None]"
_pack: Callable[[object], bytes] = msgpack.packb


class Finding(Enum):
    """What has become known of a key, and what was done."""

    EQUAL = "equal"
    PUT_RIGHT = "put right here"
    ELSEWHERE = "to be put right elsewhere"
    DISPUTED = "disputed"
    WAITING = "waits for a member that is away"
    NOT_REPLICATED = "not replicated"


@dataclass(frozen=True, slots=True)
class Found:
    """One key. values: by member, in words; "" for nothing. why: what the finding rests on."""

    key: bytes
    finding: Finding
    values: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    tell: tuple[str, ...] = ()
    """Members that have to look at the key themselves."""


@dataclass(frozen=True, slots=True)
class _Heard:
    vector: Vector
    states: dict[bytes, KeyState]


class KeyComparison:
    """Of one gateway. ask: a question to a peer. read: own reads behind the next commit, at one instant.

    linked: names of the members that are linked and hold data. members: how many hold data, this one included.
    """

    def __init__(
        self,
        name: str,
        committer: Committer,
        metadata_db: int,
        *,
        ask: Ask,
        read: Callable[[list[Read]], None],
        linked: Callable[[], list[str]],
        members: Callable[[], int],
    ) -> None:
        self._name = name
        self._committer = committer
        self._db = metadata_db
        self._ask = ask
        self._read = read
        self._linked = linked
        self._members = members
        self._journals: list[KeyJournal] = []
        self._news = trio.lowlevel.ParkingLot()
        self._begun: list[trio.Event] = []
        """Of works that are in the commit under way."""
        self.on_look: Callable[[Iterable[bytes]], None] = lambda keys: None
        """Called with keys that a peer wants looked at here."""

    # What the gateway tells

    def committed(self, commit: Commit) -> None:
        """A commit was answered; own reads behind it are not yet."""
        for journal in self._journals:
            journal.committed(commit)
        if self._begun:
            for event in self._begun:
                event.set()
            self._begun.clear()
        self._news.unpark_all()

    def resumed(self) -> None:
        """Everything was read from the server again: what is under way is worth nothing."""
        self._journals.clear()
        self._begun.clear()

    # States

    async def states(self, keys: Sequence[bytes]) -> tuple[Vector, list[KeyState]]:
        """These keys as of one instant. Raises NotReadyError."""
        found: list[tuple[Vector, list[KeyState]]] = []
        await self.look(keys, lambda vector, states: found.append((vector, states)))
        return found[0]

    async def look(
        self, keys: Sequence[bytes], take: Callable[[Vector, list[KeyState]], None]
    ) -> None:
        """Call `take` with these keys' states when the next commit that carries the reads is answered, before another
        one begins. Raises NotReadyError if the server goes away.
        """
        while not await self._looked(keys, take):
            pass

    async def _looked(
        self, keys: Sequence[bytes], take: Callable[[Vector, list[KeyState]], None]
    ) -> bool:
        """Whether it is known for all keys what they hide; a commit in between may have changed that."""
        hidden = self._hidden(keys)
        replies: list[object] = []
        taken = False

        def finish(reply: object) -> None:
            nonlocal taken
            replies.append(reply)
            state = self._committer.state
            if state is not None and hidden == self._hidden(keys):
                take(dict(state.vector), self._taken(keys, hidden, replies))
                taken = True

        commands = [command for key in keys for command in self._reads_of(key, hidden[key])]
        reads = [(list(command), replies.append) for command in commands]
        last, _ = reads[-1]
        await self._read_together([*reads[:-1], (last, finish)])
        return taken

    def _hidden(self, keys: Sequence[bytes]) -> dict[bytes, frozenset[RedisType]]:
        hidden = self._committer.keyspace.hidden
        return {key: frozenset(hidden.get(key, ())) for key in keys}

    def _reads_of(self, key: bytes, hidden: Collection[RedisType]) -> list[Sequence[bytes]]:
        return [(b"TYPE", key), *reads_of(key, hidden, self._db)]

    def _taken(
        self,
        keys: Sequence[bytes],
        hidden: Mapping[bytes, Collection[RedisType]],
        replies: list[object],
    ) -> list[KeyState]:
        keyspace = self._committer.keyspace
        states: list[KeyState] = []
        start = 0
        for key in keys:
            end = start + len(self._reads_of(key, hidden[key]))
            kind, *rest = replies[start:end]
            start = end
            if key in keyspace.damaged:
                state = KeyState(key, None, "a key that was overwritten past the gateway")
            else:
                state = read_state(key, kind, rest, hidden[key], keyspace)
            states.append(state)
        return states

    # What peers ask

    async def answer(self, question: bytes) -> bytes:
        """What a peer has asked: states of keys, whether a page of keys is the same here, some of all own keys, or
        that these keys be looked at. Raises RemoteProtocolError, NotReadyError.
        """
        if not self._committer.serving:
            raise NotReadyError("the server does not answer")
        verb, *rest = _opened(question)
        match verb, rest:
            case "states", [[*keys]] if _are_keys(keys):
                return encode_states(*await self.states(keys))
            case "page", [[*keys], bytes(digest)] if _are_keys(keys):
                own = b"".join(look.digest for look in await self.looks(keys))
                return _pack([None if own == digest else own])
            case "list", [bytes(cursor)] if cursor.replace(b":", b"", 1).isdigit():
                cursor, names = await self.scan(cursor)
                looks = await self.looks(names)
                kinds = Counter(kind for look in looks for kind in look.not_replicated)
                return _pack([cursor, names, b"".join(look.digest for look in looks), dict(kinds)])
            case "look", [[*keys]] if _are_keys(keys):
                self.on_look(keys)
                return _pack([True])
            case _:
                raise RemoteProtocolError(f"an unknown question {verb!r:.40}")

    async def scan(self, at: bytes) -> tuple[bytes, list[bytes]]:
        """Some names of own keys, without repetitions, and how to go on. Raises NotReadyError."""
        databases = self._committer.keyspace.databases
        try:
            following, names = await scan(self._replies, databases, at, PAGE_KEYS)
        except TypeError as error:
            raise NotReadyError(str(error)) from error
        return following, list(dict.fromkeys(names))

    async def _replies(self, commands: Sequence[Sequence[bytes]]) -> list[object]:
        replies: list[object] = []
        await self._read_together([(list(command), replies.append) for command in commands])
        return replies

    async def _read_together(self, reads: list[Read]) -> None:
        try:
            await read_together(self._read, reads)
        except ServerError as error:
            raise NotReadyError(str(error)) from error

    async def looks(self, keys: Sequence[bytes]) -> list[Look]:
        """Digests of own keys, in their order, not all of one instant. Raises NotReadyError."""
        keyspace = self._committer.keyspace
        special = [key for key in keys if key in keyspace.hidden or key in keyspace.damaged]
        found: dict[bytes, Look] = {}
        if special:
            found = {state.key: look_at(state) for state in (await self.states(special))[1]}
        rest = [key for key in keys if key not in found]
        if rest:
            looks = await look_at_keys(rest, by_name(self._replies))
            found.update((look.key, look) for look in looks)
        return [found[key] for key in keys]

    async def page(self, peer: str, looks: Sequence[Look]) -> list[bytes]:
        """Which of these own keys may be worth something else at a peer. Raises NotReadyError."""
        digests = b"".join(look.digest for look in looks)
        question = _pack(["page", [look.key for look in looks], digests])
        (told,) = _opened(await self._ask(peer, question))
        if told is None:
            return []
        return [
            look.key
            for look, other in zip(looks, _digests(told, len(looks)), strict=True)
            # What is not replicated, and nowhere else, needs no second look.
            if look.digest != other and not (look.foreign and other == NOTHING)
        ]

    async def list_of(
        self, peer: str, cursor: bytes
    ) -> tuple[bytes, dict[bytes, bytes], dict[str, int]]:
        """Some of a peer's keys with their digests, and how to go on; and what of them is not replicated, by type.

        Raises NotReadyError.
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
        """Keys that were found changed past a gateway, since start."""
        return self._committer.changed_behind

    @property
    def disputed(self) -> int:
        """Keys of which nothing tells who is right."""
        return len(self._committer.keyspace.disputed)

    async def tell(self, peer: str, keys: Sequence[bytes]) -> None:
        """Have a peer look at these keys itself. Raises NotReadyError."""
        await self._ask(peer, _pack(["look", list(keys)]))

    async def examine(
        self, keys: Sequence[bytes], *, act: bool = True, source: str | None = None
    ) -> list[Found]:
        """Compare these keys exactly. act: put right here what is decided. source: the member that is right.

        Raises NotReadyError if nothing could be compared.
        """
        found: list[Found] = []
        weights = [weight for _, weight in await weights_of(keys, self._replies)]
        for some in portions(keys, weights, _EXAMINED_BYTES):
            found += await self._examine(some, act=act, source=source)
        return found

    async def _examine(
        self, keys: Sequence[bytes], *, act: bool, source: str | None
    ) -> list[Found]:
        committer = self._committer
        engine = committer.engine
        names = self._linked() if source is None else [source]
        if engine is None or not names:
            raise NotReadyError("no other member is linked")
        journal = KeyJournal(keys, engine)
        self._journals.append(journal)
        found: list[Found] = []
        works: list[trio.Event] = []
        try:
            heard = await self._hear(names, keys)
            if not heard:
                raise NotReadyError(f"no answer of {', '.join(names)}")
            await journal.read()

            def take(vector: Vector, states: list[KeyState]) -> None:
                if committer.engine is engine and journal in self._journals:
                    for state in states:
                        each, work = self._judge(state, heard, journal, source)
                        found.append(each)
                        if act and work is not None:
                            works.append(self._do(state.key, work))

            await self.look(keys, take)
        finally:
            if journal in self._journals:
                self._journals.remove(journal)
        if len(found) < len(keys):
            raise NotReadyError("the server came back with another state meanwhile")
        await self._done(works)
        return found

    async def _hear(self, names: Iterable[str], keys: Sequence[bytes]) -> dict[str, _Heard]:
        """The answers that this member covers by now."""
        heard: dict[str, _Heard] = {}
        question = _pack(["states", list(keys)])

        async def hear(name: str) -> None:
            try:
                vector, states = decode_states(await self._ask(name, question))
            except (NotReadyError, RemoteProtocolError):
                return
            if await self._covers(vector):
                heard[name] = _Heard(vector, {state.key: state for state in states})

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(hear, name)
        return heard

    async def _covers(self, vector: Vector) -> bool:
        """Whether all that this stands for has come to the server here, in time."""
        with trio.move_on_after(COVER_SECONDS):
            while (state := self._committer.state) is None or not dominates(state.vector, vector):
                await self._news.park()
            return True
        return False

    def _judge(
        self,
        own: KeyState,
        heard: dict[str, _Heard],
        journal: KeyJournal,
        source: str | None,
    ) -> tuple[Found, Work | None]:
        """What has to be known of a key, and what is to be done about it at the head of the next commit."""
        key, keyspace = own.key, self._committer.keyspace
        values: dict[str, Value | None] = {self._name: own.value}
        shown: dict[str, str] = {self._name: own.foreign or _shown(own.value)}
        for name, told in heard.items():
            state = told.states.get(key)
            if state is not None:
                values[name] = state.at(told.vector, journal.of(key))
                shown[name] = state.foreign or _shown(values[name])
        votes = {name: value for name, value in values.items() if value is not None}
        complete = len(values) >= self._members()
        damaged = key in keyspace.damaged
        if source is None and not damaged and self._is_passing(votes.values()):
            return Found(key, Finding.EQUAL, shown), None
        settle: Work | None = None
        if key in keyspace.disputed:
            settle = partial(_settle, key)
        if len(votes) == len(values) and len(set(votes.values())) == 1:
            return Found(key, Finding.EQUAL, shown), settle
        if len(votes) < len(values) and not damaged and all(v.is_nothing for v in votes.values()):
            return Found(key, Finding.NOT_REPLICATED, shown), None
        if source is not None:
            value, why = values.get(source), f"it was taken from {source}"
            if value is None:
                why = f"{source} holds what no gateway has written"
        else:
            verdict = decide(votes, self._members(), complete=complete or damaged)
            value, why = verdict.value, verdict.why
        if value is None:
            if not complete and source is None:
                return Found(key, Finding.WAITING, shown, why), None
            is_new = source is None and not damaged and key not in keyspace.disputed
            return (
                Found(key, Finding.DISPUTED, shown, why, tuple(sorted(heard))),
                (lambda batch: keyspace.dispute(key, batch.plan)) if is_new else None,
            )
        tell = tuple(sorted(n for n, v in values.items() if v != value and n != self._name))
        if value == own.value:
            return Found(key, Finding.ELSEWHERE, shown, why, tell), settle
        if self._committer.refusals.growth is not None:
            return Found(key, Finding.WAITING, shown, "the server here has no room"), None
        # All the others may have refused it, or hold something else again.
        found = Found(key, Finding.PUT_RIGHT, shown, why, tuple(self._linked()))
        return found, partial(_put, key, value)

    async def accept(self, key: bytes | None) -> list[bytes]:
        """Carry out commands again on a key that is refused, or on all: they are what their server holds.

        Raises NotReadyError if the server does not take that.
        """
        refused = self._committer.keyspace.refused
        keys = sorted(refused) if key is None else [key] if key in refused else []
        works = [self._do(each, partial(_settle, each)) for each in keys]
        self._committer.kick()
        await self._done(works)
        return keys

    def _is_passing(self, values: Iterable[Value]) -> bool:
        """Whether a deadline is over, or nearly, by some clock: a server may have dropped the key, and another not."""
        near = self._committer.keyspace.dates.now + MARGIN_MS
        return any(value.at <= near for value in values)

    async def _done(self, works: Iterable[trio.Event]) -> None:
        with trio.move_on_after(COVER_SECONDS) as patience:
            for event in works:
                await event.wait()
        if patience.cancelled_caught:
            raise NotReadyError("the server here did not take what was decided")

    def _do(self, key: bytes, work: Work) -> trio.Event:
        """Have it done in the next commit; the event is set when that is answered."""
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
        return  # an operation of the gateway's own stands before it: the next comparison finds the key again
    batch.keyspace.put(key, value.contents, batch.plan)


def _shown(value: Value | None) -> str:
    return "" if value is None or value.is_nothing else str(value)


def _opened(raw: bytes) -> list[Any]:
    try:
        found = within_limits(raw, ROWS)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"a question or answer that no gateway sends: {error}") from error
    if isinstance(found, list) and found:
        return found
    raise RemoteProtocolError(f"a question or answer that no gateway sends: {found!r:.40}")


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
        raise NotReadyError("the answer has not a digest for each key")
    return [raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)]
