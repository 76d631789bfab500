"""Replicated objects by name, in this process's memory: apply locally, broadcast, effect,
stabilise.

A message's payload is a msgpack list of operations, each [object, type, operation, argument, …].
Nothing is kept on disk: a replica that stops has lost what nobody else had received (VOLATILE). The
path that survives a crash is the gateway's (crdtcast.adapters.redis).
"""

import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import msgpack
import trio

from crdtcast import datatypes
from crdtcast.datatypes import PureOpCRDT
from crdtcast.engine import Engine
from crdtcast.eventlog import EventLog
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError, RemoteProtocolError
from crdtcast.incarnation import new_incarnation
from crdtcast.node import Node, running
from crdtcast.options import Address, NodeOptions, parse_address
from crdtcast.peers import LinkStatus
from crdtcast.tags import Tag, merge_into

V = TypeVar("V")
Key: TypeAlias = tuple[str, str]
"""An object's name and its type's name. Two types under one name are two objects."""
EventLogs: TypeAlias = str | os.PathLike[str] | Callable[[str], EventLog]
"""A directory, or what makes the log for an incarnation id."""

VOLATILE = "in memory only: what no other replica has received is lost when this process ends"

_SLICE = 256
"""Deliveries between two turns of the other tasks."""
_SETTLED = 0.25
"""Seconds without an operation after which an object's state goes into the event log."""


def _wall_clock_us() -> int:
    return time.time_ns() // 1000


def known_types() -> dict[str, type[PureOpCRDT[Any]]]:
    """The types that come with this package, by the name they have on the wire."""
    exported = (getattr(datatypes, name) for name in datatypes.__all__)
    return {
        crdt.TYPE: crdt
        for crdt in exported
        if isinstance(crdt, type) and issubclass(crdt, PureOpCRDT) and hasattr(crdt, "TYPE")
    }


class Handle(Generic[V]):
    """One object of a replica. Every operation of its type is an async method here.

    `await cart.add("milk")` checks, tags, applies and broadcasts the operation, and returns its
    `Tag`. It never waits for other replicas. `InvalidOperationError`: refused, nothing was sent.
    """

    def __init__(self, replica: "Replica", key: Key, crdt: PureOpCRDT[V]) -> None:
        self._replica = replica
        self._key = key
        self.crdt = crdt

    @property
    def name(self) -> str:
        return self._key[0]

    @property
    def value(self) -> V:
        """What the object is worth here and now."""
        return self.crdt.value

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Tag]]:
        if operation in type(self.crdt).OPERATIONS:
            return partial(self._perform, operation)
        raise AttributeError(
            f"{type(self.crdt).__name__} has no operation {operation!r}; it has "
            f"{', '.join(sorted(type(self.crdt).OPERATIONS))}"
        )

    async def _perform(self, operation: str, *args: Any) -> Tag:
        tag = self._replica.perform(self._key, operation, *args)
        # Other tasks get their turn, however fast somebody writes in a loop.
        await trio.lowlevel.checkpoint()
        return tag

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
        logger: logging.Logger | None = None,
    ) -> None:
        self.engine = Engine(incarnation, {options.name, *options.named_peers})
        self.node = Node(options, self.engine, on_work=self._wake, logger=logger)
        self.unreadable = 0
        """Operations delivered here that this program could not apply."""
        self._logger = logger or logging.getLogger("crdtcast.replica")
        self._types = known_types() | {crdt.TYPE: crdt for crdt in types}
        self._objects: dict[Key, PureOpCRDT[Any]] = {}
        # What came for types that this program does not know (yet): applied once it does.
        self._opaque: dict[Key, list[Callable[[PureOpCRDT[Any]], None]]] = {}
        self._touched: dict[tuple[str, int], list[Key]] = {}
        self._log = event_log
        self._vectors: dict[Key, dict[str, int]] = {}
        self._unlogged: dict[Key, float] = {}
        self._work = trio.lowlevel.ParkingLot()
        self._news = trio.lowlevel.ParkingLot()

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

    def object(self, name: str, crdt_type: type[PureOpCRDT[V]]) -> Handle[V]:
        """The object called `name` of that type, made when it is first asked for or heard of."""
        self._types.setdefault(crdt_type.TYPE, crdt_type)
        if self._types[crdt_type.TYPE] is not crdt_type:
            raise LocalProtocolError(
                f"{crdt_type.__name__} calls itself {crdt_type.TYPE!r}, which is "
                f"{self._types[crdt_type.TYPE].__name__} here: give it a TYPE of its own"
            )
        key = (name, crdt_type.TYPE)
        crdt = self._find(key)
        assert crdt is not None
        return Handle(self, key, crdt)

    async def changed(self) -> None:
        """Return when another replica's operation has been applied, or something became stable."""
        await self._news.park()

    async def wait_quiet(self) -> None:
        """Return when all that is known here is stable: every replica has delivered it."""
        while not self.engine.quiet:
            await self._news.park()

    def perform(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, without waiting for anything."""
        crdt = self._find(key)
        if crdt is None:
            raise LocalProtocolError(f"no object {key[0]!r} of a known type {key[1]!r}")
        prepared = crdt.prepare(operation, *args)
        payload = msgpack.packb([[*key, *prepared]])
        if len(payload) > self.node.max_payload:
            raise InvalidOperationError(
                f"{key[0]!r}: an operation of {len(payload):,} bytes; at most "
                f"{self.node.max_payload:,} fit into a frame"
            )
        tag = self.engine.send(payload)
        crdt.effect(prepared, tag)
        if self._log is not None:
            self._log.send(tag, [(_label(key), prepared)])
            self._log.flush()
        self._touch(tag, [key])
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
            self._stabilise(tag)
        if log is not None:
            self._log_settled(log, trio.current_time() - _SETTLED)
            log.flush()
        if taken:
            self.node.flush()
        return bool(taken or stable)

    def _deliver(self, payload: bytes, tag: Tag) -> None:
        keys = []
        operations = _operations(payload)
        for index, entry in enumerate(operations):
            match entry:
                case [str(name), str(type_name), *operation]:
                    key = (name, type_name)
                    self._apply(key, partial(_effect, operation, tag, index))
                    keys.append(key)
                case _:
                    self._unreadable(tag, "no list of object, type and operation")
        if not operations:
            self._unreadable(tag, "no list of operations")
        self._touch(tag, keys)

    def _stabilise(self, tag: Tag) -> None:
        for key in dict.fromkeys(self._touched.pop(tag.dot, ())):
            self._apply(key, partial(_stable, tag))

    def _apply(self, key: Key, step: Callable[[PureOpCRDT[Any]], None]) -> None:
        crdt = self._find(key)
        if crdt is None:
            self._opaque.setdefault(key, []).append(step)
            return
        try:
            step(crdt)
        except RemoteProtocolError as error:
            self._unreadable(None, str(error))

    def _find(self, key: Key) -> PureOpCRDT[Any] | None:
        crdt = self._objects.get(key)
        if crdt is None and (crdt_type := self._types.get(key[1])) is not None:
            crdt = self._objects[key] = crdt_type()
            for step in self._opaque.pop(key, ()):
                self._apply(key, step)
        return crdt

    def _unreadable(self, tag: Tag | None, why: str) -> None:
        """The same everywhere, so replicas still agree; a newer program's operation, most
        likely.
        """
        self.unreadable += 1
        self._logger.warning("skipped an operation%s: %s", f" of {tag.dot}" if tag else "", why)

    def _touch(self, tag: Tag, keys: list[Key]) -> None:
        self._touched[tag.dot] = keys
        if self._log is not None:
            now = trio.current_time()
            for key in keys:
                merge_into(self._vectors.setdefault(key, {}), dict([tag.dot]))
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
            if (crdt := self._objects.get(key)) is not None:
                log.state(_label(key), self._vectors[key], crdt.digest())

    def begin_log(self) -> None:
        """(For `open_replica`.)"""
        if self._log is not None:
            self._log.start(self.engine.vector, {self.name, *self.node.options.named_peers})
            self._log.flush()

    def end_log(self) -> None:
        """(For `open_replica`.)"""
        if self._log is not None:
            self._log_settled(self._log, float("inf"))
            self._log.stop(self.engine.counters().unstable)


def _effect(operation: list[Any], tag: Tag, index: int, crdt: PureOpCRDT[Any]) -> None:
    crdt.effect(operation, tag, index)


def _stable(tag: Tag, crdt: PureOpCRDT[Any]) -> None:
    crdt.stable(tag)


def _operations(payload: bytes) -> list[Any]:
    try:
        operations = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException):
        return []
    return operations if isinstance(operations, list) else []


def _label(key: Key) -> str:
    return f"{key[1]}:{key[0]}"


def peer_addresses(peers: Mapping[str, str | Address | None]) -> dict[str, Address | None]:
    """Addresses given as text are parsed; None stays: such a peer will dial us."""
    return {
        name: parse_address(address) if isinstance(address, str) else address
        for name, address in peers.items()
    }


def fresh_incarnation(name: str, clock_us: Callable[[], int] = _wall_clock_us) -> str:
    """An incarnation id for a process that begins with nothing."""
    return new_incarnation(name, clock_us(), secrets.randbits(16))


@asynccontextmanager
async def open_replica(
    name: str,
    *,
    listen: str = "127.0.0.1:0",
    peers: Mapping[str, str | Address | None],
    group: str = "default",
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    event_log: EventLogs | None = None,
    clock_us: Callable[[], int] = _wall_clock_us,
    logger: logging.Logger | None = None,
    **options: Any,
) -> AsyncIterator[Replica]:
    """A replica that runs as long as the `with` block, in memory only.

    name: unique in the group. listen: `host:port`; port 0 takes a free one (`replica.address`).
    peers: all other members, name -> `host:port`, or None for one that will dial us.
    types: your own data types, beside those of `crdtcast.datatypes`.
    event_log: directory of a log for `crdtcast audit`; or a function from the incarnation to a log.
    options: any other of `crdtcast.options.NodeOptions`.

    Raises `ConfigurationError` for options that cannot work, OSError when the address is taken, and
    in the block's place `SupersededError` when another process has taken this replica's name over.
    """
    incarnation = fresh_incarnation(name, clock_us)
    node_options = NodeOptions(
        name=name,
        listen=parse_address(listen),
        group=group,
        peers=peer_addresses(peers),
        **options,
    )
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
    replica = Replica(node_options, incarnation, types=types, event_log=log, logger=logger)
    replica.begin_log()
    try:
        async with running(replica.node, replica.pump):
            yield replica
    finally:
        replica.end_log()
