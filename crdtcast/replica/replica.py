"""Replicated objects by name, which a program reads and writes at one member.

`crdtcast.replica.objects` defines what a message's operations mean; the member and `crdtcast.replica.object_machine`
send and store them. This file is for tasks that wait for them.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from crdtcast.causality.member_id import wall_clock_ms
from crdtcast.causality.tags import Dot, Tag, covers
from crdtcast.datatypes import PureOpCRDT
from crdtcast.datatypes.canonical import digest_of
from crdtcast.engine import Fate, GroupEngine
from crdtcast.engine.whispers import Listener, Whisper
from crdtcast.exceptions import (
    EndedError,
    InvalidOperationError,
    LocalProtocolError,
    NotReadyError,
    UnusableInputError,
)
from crdtcast.group.member import Member
from crdtcast.group.phase import MemberPhase
from crdtcast.option_checks import FOREVER
from crdtcast.replica.batch import Batch
from crdtcast.replica.comparison import Comparison
from crdtcast.replica.handles import TypedObjects
from crdtcast.replica.object_machine import ObjectMachine
from crdtcast.replica.objects import (
    Key,
    ObjectInfo,
    Objects,
    check_data_type,
    check_parts,
    checked_name,
)
from crdtcast.replica.observed import check_callback, tell
from crdtcast.replica.recent import Recent
from crdtcast.replica.session import Token, token
from crdtcast.replica.whispered import WHISPER_SECONDS, WhisperFeed
from crdtcast.short_repr import shown
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus

_LARGE = 2**12
"""Bytes of an argument from which an operation may not fit in a message: the smallest frame is larger."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The values of all objects at one cut of the group's history. A cut includes all messages before each of its
    messages, and a batch as a whole or not at all.

    vector: the cut. Two replicas at the same cut have the same `values` and `digest`, if both know all types.
    values: those of the visible objects, by name.
    unknown: names of objects that this program cannot show.
    """

    token: Token
    vector: Mapping[str, int]
    values: Mapping[str, Any]
    unknown: tuple[str, ...]
    digest: str


class Replica(TypedObjects):
    """The objects of one member of a group. Made by `open_replica`; use it in the Trio thread only.

    `member` is its member of the group: use it for the other members, `leave`, `evict`, and waiting until k members
    have a message. While the member cannot send (it leaves, or returns from an eviction) operations raise `EndedError`
    and change nothing; `ready` returns when it can. After its `async with` block, or after the member has left, it can
    still be read; writing, and waiting for others, raises `EndedError`.

    For a replica on an open host, pass its `machine` to `Host.found` or `Host.join`, and call `speak_for` with the
    member that these return.
    """

    def __init__(
        self,
        name: str,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        types: Iterable[type[PureOpCRDT[Any]]] = (),
        logger: logging.Logger | None = None,
    ) -> None:
        self._revision = 0
        self._logger = logger or logging.getLogger("crdtcast.replica")
        self._news = trio.lowlevel.ParkingLot()
        self.news: int = 0
        """Rises whenever `changed` returns."""
        self._watched: dict[str, trio.lowlevel.ParkingLot] = {}  # by name: it may get another type
        self._recent = Recent()
        self._remote = Recent()
        self._ended = False
        self.machine: ObjectMachine = ObjectMachine(
            name, clock_ms, self._logger, types=types, on_news=self._happened
        )
        self.machine.comparing.on_news = self._answered
        self._answers = trio.lowlevel.ParkingLot()
        self._heard = trio.lowlevel.ParkingLot()
        self._member: Member | None = None
        self._has_begun = False

    def speak_for(self, member: Member) -> None:
        """Set this replica's member of the group, which got `machine` as its state machine."""
        self._member = member
        if not member.is_outside:
            self._begin()
        member.channel.shared.spawn(self._end_with_member)

    async def begun(self) -> None:
        """Return when the group has started: at once, unless this replica waits for other founders."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._has_begun:
            await self.member.begun()
            self._begin()

    @property
    def has_begun(self) -> bool:
        """Whether the group has started, and this replica takes operations."""
        return self._has_begun

    async def ready(self) -> None:
        """Return when this replica can issue operations: at once, unless its group has not started, or its member
        returns from an eviction. Raises EndedError if it has left.
        """
        await self.begun()
        await self.member.ready()

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.machine.speak_for(self.member)

    @property
    def member(self) -> Member:
        """Its member of the group. Raises NotReadyError if it has none yet."""
        if self._member is None:
            raise NotReadyError(f"{self.name!r} is not yet a member of its group: wait until it is")
        return self._member

    @property
    def name(self) -> str:
        """Its name in the group."""
        return self.machine.name

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.member.group

    @property
    def address(self) -> Address:
        """Host and port where the other replicas reach this one."""
        return self.member.address

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other replica."""
        return self.member.links()

    @property
    def held(self) -> Objects:
        """The objects, for tools; `objects` lists them."""
        return self.machine.objects

    @property
    def unreadable(self) -> int:
        """The number of delivered operations that no program up to this one can decode."""
        return self.machine.unreadable

    @property
    def _engine(self) -> GroupEngine:
        return self.member.engine

    # Objects

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type. Raises LocalProtocolError if its name belongs to another class, or if it is not a data
        type.
        """
        check_data_type(crdt_type)
        if self.held.type_named(crdt_type.TYPE) is None:
            self.upgrade(crdt_type)
        elif not self.held.knows(crdt_type):
            known = self.held.type_named(crdt_type.TYPE)
            raise LocalProtocolError(
                f"{crdt_type.__name__} uses TYPE {crdt_type.TYPE!r}, which is "
                f"{known.__name__ if known else '?'} at this member: choose another TYPE, or let "
                "`upgrade` replace it by a higher VERSION"
            )

    def upgrade(self, *types: type[PureOpCRDT[Any]]) -> None:
        """Register new types, or newer versions of known ones, while the replica runs. Stored operations that were
        unknown are applied. Raises LocalProtocolError as `require` does.
        """
        for crdt_type in types:
            check_data_type(crdt_type)
            self.held.check_upgrade(crdt_type)
            try:
                skipped = self.held.learn(crdt_type)
            except BaseException as error:
                self._failed(error)
                raise
            self._skipped(skipped)
        self._all_changed()
        if self._member is not None:
            self._member.look_again()

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """List all objects, in the order of their names, including those that have lost their name to another type, or
        that this program does not know.
        """
        return self.held.listing(prefix)

    async def delete(self, name: str) -> Tag:
        """Delete the object called `name`: all operations on it, of any type, that this replica has seen. Concurrent
        operations survive, at every replica.
        """
        await self.begun()
        tag = self.commit([[checked_name(name), None]])
        await trio.lowlevel.cancel_shielded_checkpoint()
        return tag

    def batch(self) -> Batch:
        """Collect operations on several objects, which are sent as one message and applied together.

        `with replica.batch() as batch:`, then `batch.object(name, Type).add(…)`, without `await`. Raises NotReadyError
        before the group has started, and sends nothing.
        """
        return Batch(self)

    def snapshot(self) -> Snapshot:
        """Copy the values of all objects, at one causal cut."""
        values: dict[str, Any] = {}
        digests: dict[str, str] = {}
        unknown: list[str] = []
        for held in self.held:
            name, type_name = held.key
            if held.behind:
                unknown.append(name)
            if held.crdt is not None and self.held.visible_type(name) == type_name:
                values[name] = held.crdt.value
                digests[name] = held.crdt.digest()
        return Snapshot(
            token=self._token(),
            vector={origin: n for origin, n in self._engine.vector.items() if n},
            values=values,
            unknown=tuple(dict.fromkeys(unknown)),
            digest=digest_of("replica", digests),
        )

    # Waiting

    async def changed(self, since: int | None = None) -> None:
        """Return when another replica's operation was applied, or a message became stable.

        since: what `news` was; None is now.
        """
        self._check_open()
        if since is None or since == self.news:
            await self._news.park()
        self._check_open()

    @property
    def revision(self) -> int:
        """Rises with each message that takes effect at this replica."""
        return self._revision

    def spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Run it beside, until the returned function is called, or the replica ends."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await function()

        self.member.channel.shared.spawn(run)
        return scope.cancel

    def remotely(self, key: Key, since: int) -> bool:
        """Whether another replica's operation on the object has taken effect after that `revision`, or may have."""
        return self._remote.changed(key[0], since)

    async def object_changed(self, key: Key, since: int | None = None) -> None:
        """Return when an operation on the object was applied, or it was deleted: `Handle.changed`.

        since: what `revision` was; None is now.
        """
        self._check_open()
        if since is not None and self._recent.changed(key[0], since):
            return
        await self._watched.setdefault(key[0], trio.lowlevel.ParkingLot()).park()
        self._check_open()

    async def token(self) -> Token:
        """Return what this replica has seen, for a client to show at other replicas.

        With a journal, that is durable then: after a power loss no other operation gets the number of a named one.

        A replica that is `at_least` there shows the client everything that it has read and written at this one. So the
        client reads its own writes, never goes back in time, and its writes stay in order.
        """
        await self.begun()
        told = self._token()
        if self.member.is_journaled:
            await self.member.wait_durable()
        return told

    async def at_least(self, token: Token) -> None:
        """Return when this replica has seen everything that `token` covers.

        This may never happen, if the data was lost with the replica that made the token: use `trio.fail_after`. Raises
        UnusableInputError for a token of another group, which may come from outside as an unreadable one.
        """
        if not isinstance(token, Token):
            raise LocalProtocolError(
                f"{shown(token)} is not a token: `Token.parse` reads the text of one"
            )
        if token.group != self.group:
            raise UnusableInputError(
                f"the token belongs to group {token.group!r}, and this replica to group "
                f"{self.group!r}: ask a replica of the token's group"
            )
        await trio.lowlevel.checkpoint()
        await self._seen(token)

    def _token(self) -> Token:
        return token(self.group, self._engine.context)

    async def wait_quiet(self) -> None:
        """Return when everything that this replica knows is stable: every replica has delivered it, and no object of
        this one has a log of it.
        """
        await self.begun()
        await self.member.wait_until(self._is_quiet)
        self.member.settle()

    def _is_quiet(self) -> bool:
        member = self.member
        parked, engine = member.parked, member.engine
        comes_back = member.phase is MemberPhase.REJOINING or not (
            parked is None or parked.may_be_dropped(engine)
        )
        return engine.quiet and not comes_back

    @property
    def is_journaled(self) -> bool:
        """Whether what is applied becomes durable by a journal: see `wait_durable`."""
        return self.member.is_journaled

    async def wait_durable(self) -> None:
        """Return when everything applied at this replica so far survives a power loss of this machine.

        Raises LocalProtocolError if there is no journal. JournalError ends the replica.
        """
        await self.member.wait_durable()

    async def _seen(self, token: Token) -> None:
        await self.begun()
        await self.member.wait_until(lambda: all(map(self._has_seen, token.dots)))

    def _has_seen(self, dot: Dot) -> bool:
        engine = self.member.engine
        if covers(engine.vector, dot):
            return True
        # No counters are kept of ended incarnations. An evicted one sends again what the group did not have of it, and
        # then settles: once that is over, all that exists of it has been seen. A new incarnation cannot be taken for an
        # ended one: every replica knows the members that admit others.
        fate = engine.fate(dot.origin)
        if fate is Fate.SETTLED:
            return True
        return isinstance(fate, int) and dot.counter <= fate and dot.origin not in engine.vector

    async def verify(self, seconds: float = 30.0) -> Comparison:
        """Compare all replicas while writes go on. Objects that do not change meanwhile must be equal.

        seconds: how long the others have to answer. The result names those that did not; then it says nothing about the
            objects.

        Raises LocalProtocolError if this member was evicted meanwhile and is back (ask again), or if `seconds` are not
        0 or more; EndedError if it has left.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise LocalProtocolError(f"cannot wait for {shown(seconds)} seconds: give 0 or more")
        await self.member.ready()
        number = secrets.token_hex(8)
        comparing = self.machine.comparing
        comparing.ask(number, [n for n, each in self.member.members.items() if not each.witness])
        with trio.move_on_after(min(seconds, FOREVER)):
            while comparing.missing(number):
                await self._answers.park()
                self._check_open()
        return comparing.end(number)

    # Whispers

    def whisper(self, topic: str, payload: bytes, *, seconds: float = WHISPER_SECONDS) -> None:
        """Tell all linked replicas, now and once, without waiting: best effort, for what is worth nothing later, such
        as where a cursor is.

        Only the latest whisper of a replica on a topic counts. It is never stored, and has no part in causality.
        Replicas that are linked later hear it, too, until it expires. An empty payload takes it back.

        topic: 1 to 256 characters.
        payload: at most 65,536 bytes. One replica has 1,024 topics and 1 MiB at a time; then the topics that it
            whispered on longest ago make room.
        seconds: when it expires, unless it is said again before; at most 3,600.

        Raises LocalProtocolError if it is beyond these limits, EndedError if the replica has ended.
        """
        self._check_open()
        self.member.channel.whisper(topic, payload, seconds)

    def whispers(self, *topics: str) -> WhisperFeed:
        """Tell what the other replicas whisper on these topics, on all if there are none: what is in force now, and
        then each change, as (sender, topic, payload).

        `async for sender, topic, payload in replica.whispers("cursors"): …`. An empty payload means that the sender's
        whisper is over: it took it back, it has expired, or the link with the sender is down. A listener that is slow
        misses all but the latest of each sender and topic. Raises EndedError when the replica ends.
        """
        return WhisperFeed(self.listener(*topics), self.heard)

    def on_whisper(self, callback: Callable[[Whisper], object], *topics: str) -> Callable[[], None]:
        """Call `callback` with what `whispers` tells, between two steps of the replica, until the returned function is
        called or the replica ends. It must not wait. If it raises, that is logged, and it is told no more.
        """
        check_callback(callback)
        return self.spawn(partial(tell, self.whispers(*topics), callback, self._logger))

    def listener(self, *topics: str) -> Listener:
        """What `whispers` takes its words from."""
        self._check_open()
        return self.member.channel.whispers.listen(topics, self._heard.unpark_all)

    async def heard(self, listener: Listener) -> None:
        """Return when the listener has heard something."""
        self._check_open()
        while not listener.has_news:
            await self._heard.park()
            self._check_open()

    # Own operations

    async def issue(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, once the group has started."""
        # Can be cancelled only before it has happened: so the caller may repeat it.
        await self.begun()
        tag = self.perform(key, operation, *args)
        # Other tasks get their turn, even if a task writes in a tight loop.
        await trio.lowlevel.cancel_shielded_checkpoint()
        return tag

    @trio.lowlevel.enable_ki_protection
    def perform(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, without waiting for anything."""
        prepared = self.held.prepare(key, operation, args)
        entry = self.held.entry(key, prepared)
        if any(type(each) is bytes and len(each) > _LARGE for each in prepared):
            return self._perform_large(key, prepared, entry)
        return self.commit([entry])

    def _perform_large(self, key: Key, prepared: list[Any], entry: list[Any]) -> Tag:
        """The same for an operation that a type may divide: it goes in several messages if it does not fit in one. An
        error at a later one leaves earlier parts behind, which the type gives up.
        """
        self._check_open()
        most = self.member.channel.max_payload
        if len(self.machine.packed([entry])) <= most:
            return self.commit([entry])
        room = most - len(self.machine.packed([self.held.entry(key, [])]))
        parts = self.held.crdt(key).divide(prepared, room) or [prepared]
        return [self.commit([self.held.entry(key, part)]) for part in parts][-1]

    @trio.lowlevel.enable_ki_protection
    def commit(self, entries: Sequence[list[Any]]) -> Tag:
        """Tag, apply and send prepared entries as one message."""
        self._check_open()
        return self._send(entries)

    def _fitting(self, payload: bytes, entries: Sequence[list[Any]], most: int) -> bytes:
        if len(payload) > most:
            raise InvalidOperationError(
                f"{shown(entries[0][0])}: a message of {len(payload):,} bytes is too large: at "
                f"most {most:,} fit into a frame: use smaller values"
            )
        check_parts(payload)
        return payload

    def _send(self, entries: Sequence[list[Any]]) -> Tag:
        if not self._has_begun:
            _ = self._engine  # raises NotReadyError, which names the missing founders
            self._begin()
        most = self.member.channel.max_payload
        payload = self._fitting(self.machine.packed(entries), entries, most)
        try:
            return self.machine.send(payload)
        except Exception as error:
            if self.machine.torn:
                self._failed(error)
            raise

    def _failed(self, error: BaseException) -> None:
        self.machine.torn = True
        if isinstance(error, Exception):
            self.member.machine_failed(error)

    # Events

    def _touch(self, keys: Iterable[Key]) -> None:
        """A message has taken effect on these objects."""
        self._revision += 1
        for name, _ in keys:
            self._recent.touch(name, self._revision)
            lot = self._watched.pop(name, None)
            if lot is not None:
                lot.unpark_all()

    def _all_changed(self) -> None:
        """Wake all waiting tasks."""
        self._revision += 1
        self._recent.all_changed(self._revision)
        self._remote.all_changed(self._revision)
        watched, self._watched = self._watched, {}
        for lot in watched.values():
            lot.unpark_all()
        self._wake()
        self._answers.unpark_all()
        self._heard.unpark_all()

    def _wake(self) -> None:
        self.news += 1
        self._news.unpark_all()

    def _skipped(self, operations: int) -> None:
        self.machine.unreadable += operations
        if operations:
            self._logger.warning("skipped %d stored operations that are invalid", operations)

    def end(self) -> None:
        """End the replica: no more operations, local or remote."""
        self._ended = True
        self._all_changed()

    def _check_open(self) -> None:
        if self._ended:
            raise EndedError(
                f"{self.name!r} is no longer a member of group {self.group!r}: open the replica "
                "again to continue"
            )

    def _answered(self, number: str) -> None:
        self._answers.unpark_all()

    def _happened(self, keys: Collection[Key] | None, own: bool) -> None:
        if keys is None:
            self._all_changed()
            return
        if keys:
            self._touch(keys)
            if not own:
                for name, _ in keys:
                    self._remote.touch(name, self._revision)
        self._wake()

    async def _end_with_member(self) -> None:
        try:
            with suppress(EndedError):
                await self.begun()
                while True:
                    await self.member.changed()
        finally:
            self.end()
