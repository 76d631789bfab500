"""Replicated objects by name, in this process's memory: apply locally, broadcast, effect,
stabilise.

What a message's operations mean is `crdtcast.objects`. Nothing is kept on disk while the replica
runs: one that crashes has lost what nobody else had received (VOLATILE); one that stops cleanly may
leave its state in a file and go on from it. The path that survives a crash is the gateway's
(crdtcast.adapters.redis).
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import trio

from crdtcast import statefile
from crdtcast.batches import Batch
from crdtcast.datatypes import PureOpCRDT
from crdtcast.datatypes.canonical import digest_of
from crdtcast.datatypes.shown import shown
from crdtcast.datatypes.site import Site
from crdtcast.engine import Engine
from crdtcast.eventlog import EventLog
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError, SupersededError
from crdtcast.fresh import fresh_incarnation, wall_clock_us
from crdtcast.hlc import HLC
from crdtcast.node import Node, running
from crdtcast.objects import (
    Key,
    ObjectInfo,
    Objects,
    check_data_type,
    checked_name,
    known_types,
    packed,
    unpacked,
)
from crdtcast.options import Address, NodeOptions, parse_address, peer_addresses
from crdtcast.peers import LinkStatus
from crdtcast.sessions import Token, token
from crdtcast.statefile import Saved
from crdtcast.tags import Dot, Tag, merge_into

__all__ = ["Handle", "ObjectInfo", "Replica", "Snapshot", "known_types", "open_replica"]

V = TypeVar("V")
EventLogs: TypeAlias = str | os.PathLike[str] | Callable[[str], EventLog]
"""A directory, or what makes the log for an incarnation id."""

VOLATILE = "in memory only: what no other replica has received is lost when this process ends"

_SLICE = 256
"""Deliveries between two turns of the other tasks."""
_SETTLED = 0.25
"""Seconds without an operation after which an object's state goes into the event log."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What all objects were worth at one cut of the group's history: with a message all that came
    before it, of a batch all or nothing.

    vector: the cut. Two replicas at the same cut have the same `values` and `digest`, if both know
        all types.
    values: of the visible objects, by name. unknown: names that this program cannot show.
    """

    token: Token
    vector: Mapping[str, int]
    values: Mapping[str, Any]
    unknown: tuple[str, ...]
    digest: str


class Handle(Generic[V]):
    """One object of a replica. Every operation of its type is an async method here.

    `await cart.add("milk")` checks, tags, applies and broadcasts the operation, and returns its
    `Tag`. It never waits for other replicas. `InvalidOperationError`: refused, nothing was sent.
    `TypeClashError`: the name has another type, here or by a concurrent creation that has won.
    """

    def __init__(self, replica: "Replica", key: Key) -> None:
        self._replica = replica
        self._key = key

    @property
    def name(self) -> str:
        return self._key[0]

    @property
    def crdt(self) -> PureOpCRDT[V]:
        """The object itself, to look at (`len`, `in`, `log_size`) but not to change. It is another
        one after a deletion or an upgrade. Of an object that has lost its name to another type, its
        content is still to be had here.
        """
        return self._replica.held.crdt(self._key)

    @property
    def value(self) -> V:
        """What the object is worth here and now; that of a new object if there is none."""
        self._replica.held.check_type(self._key)
        return self.crdt.value

    @property
    def exists(self) -> bool:
        """Whether there is an operation on it that has not been deleted."""
        return self._replica.held.get(self._key) is not None

    @property
    def unknown(self) -> int:
        """Operations of newer programs that are stored and not in `value` (docs/replica.md)."""
        held = self._replica.held.get(self._key)
        return 0 if held is None else held.unread

    async def changed(self) -> None:
        """Return when an operation on the object has taken effect, own or other, or it has been
        deleted.

        Nothing is missed by `while not condition(): await handle.changed()`.
        """
        await self._replica.object_changed(self._key)

    async def perform(self, operation: str, *args: Any) -> Tag:
        """An operation by its name: the same as the method of that name."""
        tag = self._replica.perform(self._key, operation, *args)
        # Other tasks get their turn, however fast somebody writes in a loop.
        await trio.lowlevel.checkpoint()
        return tag

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Tag]]:
        crdt_type = self._replica.held.type_named(self._key[1])
        assert crdt_type is not None
        if operation in crdt_type.OPERATIONS:
            return partial(self.perform, operation)
        raise AttributeError(
            f"{crdt_type.__name__} has no operation {operation!r}; it has "
            f"{', '.join(sorted(crdt_type.OPERATIONS))}"
        )

    def __repr__(self) -> str:
        return f"<{self.name!r} at {self._replica.name}: {self.crdt!r}>"


class Replica:
    """Objects of one member. Made by `open_replica`; all of it belongs to the Trio thread."""

    def __init__(
        self,
        options: NodeOptions,
        incarnation: str,
        *,
        types: Iterable[type[PureOpCRDT[Any]]] = (),
        event_log: EventLog | None = None,
        clock_us: Callable[[], int] = wall_clock_us,
        saved: Saved | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self.engine = Engine(
            incarnation,
            {options.name, *options.named_peers},
            state=None if saved is None else saved.engine,
        )
        self.node = Node(options, self.engine, on_work=self._wake, logger=logger)
        self.unreadable = 0
        """Operations delivered here that are none, for this program and for all older ones."""
        self.revision = 0
        """Rises with each message that takes effect here."""
        self._logger = logger or logging.getLogger("crdtcast.replica")
        self._clock = HLC(lambda: clock_us() // 1000)
        # A clean stop hands its rights over: all that the owner ever did is in the state.
        self._site = Site(incarnation if saved is None else saved.owner, self._clock)
        self.held = Objects(types, self._site)
        """The objects, for tools; `objects` lists them."""
        self._log = event_log
        self._vectors: dict[Key, dict[str, int]] = {}
        self._unlogged: dict[Key, float] = {}
        self._work = trio.lowlevel.ParkingLot()
        self._news = trio.lowlevel.ParkingLot()
        self._watched: dict[Key, trio.lowlevel.ParkingLot] = {}
        self._torn = False  # an error, of a type most likely, has left something half applied
        if saved is not None:
            self._clock.latest = saved.clock
            unstable = {self.engine.tag(m.dot): m.payload for m in saved.engine.unstable}
            self._skipped(self.held.load(saved.objects, unstable))

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def address(self) -> Address:
        """Host and port where the other replicas reach this one."""
        return self.node.address

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other replica."""
        return self.node.status()

    # Objects

    def object(self, name: str, crdt_type: type[PureOpCRDT[V]]) -> Handle[V]:
        """The object called `name` of that type; its first operation, here or elsewhere, makes it.

        Raises TypeClashError if the name has another type.
        """
        self.require(crdt_type)
        key = (checked_name(name), crdt_type.TYPE)
        self.held.check_type(key)
        return Handle(self, key)

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Know the type from now on. LocalProtocolError if its name stands for another class, or it
        is no data type.
        """
        check_data_type(crdt_type)
        if self.held.type_named(crdt_type.TYPE) is None:
            self.upgrade(crdt_type)
        elif not self.held.knows(crdt_type):
            known = self.held.type_named(crdt_type.TYPE)
            raise LocalProtocolError(
                f"{crdt_type.__name__} calls itself {crdt_type.TYPE!r}, which is "
                f"{known.__name__ if known else '?'} here: give it a TYPE of its own, or let "
                "`upgrade` replace that by a higher VERSION"
            )

    def upgrade(self, *types: type[PureOpCRDT[Any]]) -> None:
        """Know new types, or newer versions of known ones, while the replica runs. What was stored
        because it was not understood takes effect.
        """
        for crdt_type in types:
            check_data_type(crdt_type)
            try:
                skipped = self.held.learn(crdt_type)
            except BaseException:
                self._torn = True
                raise
            self._skipped(skipped)
        for lot in list(self._watched.values()):
            lot.unpark_all()
        self._watched.clear()
        self._news.unpark_all()

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """What objects there are, in the order of their names; also those that have lost their name
        to another type, or that this program does not know.
        """
        return self.held.listing(prefix)

    async def delete(self, name: str) -> Tag:
        """Delete the object called `name`: all operations on it, of whatever type, that have been
        seen here. Operations that are concurrent with the deletion survive it, everywhere.
        """
        tag = self.commit([[checked_name(name), None]])
        await trio.lowlevel.checkpoint()
        return tag

    def batch(self) -> Batch:
        """`with replica.batch() as batch:` collects operations on several objects, which travel as
        one message and take effect together. `batch.object(name, Type).add(…)`; no `await`.
        """
        return Batch(self, self.held)

    def snapshot(self) -> Snapshot:
        """What everything is worth now, at one causal cut. Copies all values."""
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
            vector={origin: n for origin, n in self.engine.vector.items() if n},
            values=values,
            unknown=tuple(dict.fromkeys(unknown)),
            digest=digest_of("replica", digests),
        )

    # Waiting

    async def changed(self) -> None:
        """Return when another replica's operation has been applied, or something became stable."""
        await self._news.park()

    async def object_changed(self, key: Key) -> None:
        """(For handles.)"""
        await self._watched.setdefault(key, trio.lowlevel.ParkingLot()).park()

    async def wait_quiet(self) -> None:
        """Return when all that is known here is stable: every replica has delivered it."""
        while not self.engine.quiet:
            await self._news.park()

    async def token(self) -> Token:
        """What this replica has seen. Another one that is `at_least` there shows a client all that
        it has read and written here: read your writes, monotonic reads, writes in their order.
        """
        await trio.lowlevel.checkpoint()
        return self._token()

    async def at_least(self, token: Token) -> None:
        """Return when this replica has seen all that `token` stands for.

        That may be never, if the replica that gave the token has crashed before it sent all of it
        to anybody: use `trio.fail_after`. LocalProtocolError for a token of another group.
        """
        if not isinstance(token, Token):
            raise LocalProtocolError(
                f"{shown(token)} is no token: `Token.parse` makes one of the text of one"
            )
        if token.group != self.node.options.group:
            raise LocalProtocolError(
                f"a token of group {token.group!r} at a replica of group "
                f"{self.node.options.group!r}: ask a replica of its own group"
            )
        await trio.lowlevel.checkpoint()
        while not token.covered_by(self.engine.vector):
            await self._news.park()

    def _token(self) -> Token:
        return token(self.node.options.group, self.engine.context)

    # What is issued

    def perform(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, without waiting for anything."""
        prepared = self.held.prepare(key, operation, args)
        return self.commit([self.held.entry(key, prepared)])

    def commit(self, entries: Sequence[list[Any]]) -> Tag:
        """(For handles and batches.) Tag, apply and send prepared entries as one message."""
        payload = packed(entries)
        if len(payload) > self.node.max_payload:
            raise InvalidOperationError(
                f"{shown(entries[0][0])}: a message of {len(payload):,} bytes; at most "
                f"{self.node.max_payload:,} fit into a frame"
            )
        tag = self.engine.send(payload)
        try:
            keys, _ = self.held.deliver(entries, tag)
        except BaseException:
            self._torn = True
            raise
        if self._log is not None:
            self._log.send(tag, [_operation_shown(entry) for entry in entries])
            self._log.flush()
        self._touch(tag.dot, keys)
        self.node.flush()
        return tag

    # What arrives

    def _wake(self) -> None:
        self._work.unpark_all()

    async def pump(self) -> None:
        """(For `open_replica`.) Take what the engine has, in slices, for ever."""
        while True:
            if self._take():
                self._news.unpark_all()
            if self.engine.has_deliverable() or self.engine.has_stable():
                await trio.lowlevel.checkpoint()
            else:
                await self._work.park()

    def _take(self) -> bool:
        try:
            taken, stable = self._take_slice()
        except BaseException:
            self._torn = True
            raise
        if self._log is not None:
            self._log_settled(self._log, trio.current_time() - _SETTLED)
            self._log.flush()
        if taken:
            self.node.flush()
        return bool(taken or stable)

    def _take_slice(self) -> tuple[int, int]:
        engine = self.engine
        log = self._log
        taken = 0
        while taken < _SLICE and (delivery := engine.poll()) is not None:
            taken += 1
            if log is not None:
                log.deliver(delivery.tag.dot)
            self._deliver(delivery.payload, delivery.tag)
        stable = engine.poll_stable(_SLICE)
        for tag in stable:
            if log is not None:
                log.stable(tag.dot)
            self.held.stable(tag)
        return taken, len(stable)

    def _deliver(self, payload: bytes, tag: Tag) -> None:
        entries = unpacked(payload)
        keys, wrong = self.held.deliver(entries, tag)
        for why in wrong if entries else ["no list of operations"]:
            self.unreadable += 1
            # The same everywhere, so replicas still agree.
            self._logger.warning("skipped an operation of %s: %s", tag.dot, why)
        self._touch(tag.dot, keys)

    def _skipped(self, operations: int) -> None:
        if operations:
            self.unreadable += operations
            self._logger.warning("skipped %d stored operations that are none", operations)

    def _touch(self, dot: Dot, keys: list[Key]) -> None:
        self.revision += 1
        for key in keys:
            lot = self._watched.pop(key, None)
            if lot is not None:
                lot.unpark_all()
        if self._log is not None:
            now = trio.current_time()
            for key in keys:
                merge_into(self._vectors.setdefault(key, {}), dict([dot]))
                # Taken out first: the dictionary stays in order of the last operation.
                self._unlogged.pop(key, None)
                self._unlogged[key] = now

    # Event log

    def _log_settled(self, log: EventLog, before: float) -> None:
        while self._unlogged:
            key, touched = next(iter(self._unlogged.items()))
            if touched > before:
                return
            del self._unlogged[key]
            held = self.held.get(key)
            if held is None:
                # Deleted, so its vector need not be kept; a digest of nothing says that.
                vector = self._vectors.pop(key)
                if self.held.type_named(key[1]) is not None:
                    log.state(_label(key), vector, self.held.fresh(key).digest())
            elif held.crdt is not None and not held.behind:
                log.state(_label(key), self._vectors[key], held.crdt.digest())

    def begin_log(self) -> None:
        """(For `open_replica`.)"""
        if self._log is not None:
            members = {self.name, *self.node.options.named_peers}
            stable = {origin: n for origin, n in self.engine.stable.items() if n}
            self._log.start(self.engine.vector, members, stable or None)
            self._log.flush()

    def end_log(self) -> None:
        """(For `open_replica`.)"""
        if self._log is not None:
            self._log_settled(self._log, float("inf"))
            self._log.stop(self.engine.counters().unstable)

    # The end

    def saved(self) -> Saved | None:
        """(For `open_replica`.) What the next life goes on from; None if an error has left
        something half applied: that would not be what others were told.
        """
        if self._torn:
            return None
        return Saved(
            group=self.node.options.group,
            incarnation=self.engine.me,
            owner=self._site.owner,
            clock=self._clock.latest,
            engine=self.engine.state(),
            objects=self.held.packed(),
        )


def _operation_shown(entry: list[Any]) -> tuple[str, list[Any]]:
    name, named, *operation = entry
    if named is None:
        return name, ["delete"]
    return _label((name, named if isinstance(named, str) else named[0])), operation


def _label(key: Key) -> str:
    return f"{key[1]}:{key[0]}"


@asynccontextmanager
async def open_replica(
    name: str,
    *,
    listen: str = "127.0.0.1:0",
    peers: Mapping[str, str | Address | None],
    group: str = "default",
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    event_log: EventLogs | None = None,
    state: str | os.PathLike[str] | None = None,
    clock_us: Callable[[], int] = wall_clock_us,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[Replica]:
    """A replica that runs as long as the `with` block, in memory.

    name: unique in the group. listen: `host:port`; port 0 takes a free one (`replica.address`).
    peers: all other members, name -> `host:port`, or None for one that will dial us.
    types: your own data types, beside those of `crdtcast.datatypes`.
    event_log: directory of a log for `crdtcast audit`; or a function from the incarnation to a log.
    state: file that a clean stop writes and the next start goes on from, and removes: a crash
        leaves none, and the group does not take a replica back that has lost its state.
    options: any other of `crdtcast.options.NodeOptions`.

    Raises `ConfigurationError` for options that cannot work or an address that is taken, and in the
    block's place `SupersededError` when another process has taken this replica's name over.
    """
    node_options = NodeOptions(
        name=name,
        listen=parse_address(listen),
        group=group,
        peers=peer_addresses(peers),
        **options,
    )
    path = None if state is None else Path(state)
    saved = None if path is None else statefile.read(path, group, name)
    incarnation = fresh_incarnation(name, clock_us, saved.incarnation if saved else None)
    log: EventLog | None = None
    if callable(event_log):
        log = event_log(incarnation)
    elif event_log is not None:
        log = EventLog(
            os.fspath(event_log),
            group=group,
            replica=name,
            incarnation=incarnation,
            clock_us=clock_us,
        )
    replica = Replica(
        node_options,
        incarnation,
        types=types,
        event_log=log,
        clock_us=clock_us,
        saved=saved,
        logger=logger,
    )
    replica.begin_log()
    ended = False
    try:
        if path is not None and saved is not None:
            statefile.consume(path)
        async with running(replica.node, replica.pump):
            yield replica
    except SupersededError:
        ended = True
        raise
    finally:
        replica.end_log()
        left = replica.saved()
        if path is not None and left is not None and not ended:
            statefile.write(path, left)
