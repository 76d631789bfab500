"""Replicated objects among members that are fixed, in this process's memory: apply locally, broadcast, effect,
stabilise.

Nothing is kept on disk while the replica runs: one that crashes has lost what nobody else had received; one that stops
cleanly may leave its state in a file and go on from it. Replicas that survive: `crdtcast.replica.group_replica`.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import wall_clock_us
from crdtcast.causality.tags import Dot, Tag, merge_into
from crdtcast.datatypes import PureOpCRDT
from crdtcast.datatypes.site import Site
from crdtcast.engine import Engine
from crdtcast.eventlog.writer import EventLog
from crdtcast.fixed.node import Node
from crdtcast.fixed.state_file import Saved
from crdtcast.replica.objects import Key, Objects, packed, unpacked
from crdtcast.replica.replica import Replica
from crdtcast.replica.session import Token
from crdtcast.transport.log_throttle import ahead, skips
from crdtcast.transport.options import Address, NodeOptions
from crdtcast.transport.peers import LinkStatus

_SLICE = 256
"""Deliveries between two turns of the other tasks."""
_SETTLED = 0.25
"""Seconds without an operation after which an object's state goes into the event log."""


class FixedReplica(Replica):
    """Objects of one member of a group whose members are fixed. Made by `open_replica(name, peers=…)`."""

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
        super().__init__(logger)
        self.engine = Engine(
            incarnation,
            {options.name, *options.named_peers},
            state=None if saved is None else saved.engine,
        )
        self.node = Node(options, self.engine, on_work=self._wake, logger=logger)
        self._unreadable = 0
        self._skips = skips(self._logger, time.monotonic)
        self._clock = HLC(lambda: clock_us() // 1000)
        self._clock.on_ahead = ahead(
            logger or logging.getLogger("crdtcast.replica"), time.monotonic
        )
        # A clean stop hands its rights over: all that the owner ever did is in the state.
        self._site = Site(incarnation if saved is None else saved.owner, self._clock)
        self._held = Objects(types, self._site)
        self._log = event_log
        self._vectors: dict[Key, dict[str, int]] = {}
        self._unlogged: OrderedDict[Key, float] = OrderedDict()
        self._work = trio.lowlevel.ParkingLot()
        self._torn = False  # an error, of a type most likely, has left something half applied
        if saved is not None:
            self._clock.latest = saved.clock
            unstable = {self.engine.tag(m.dot): m.payload for m in saved.engine.unstable}
            self._skipped(self.held.load(saved.objects, unstable))

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def group(self) -> str:
        return self.node.options.group

    @property
    def address(self) -> Address:
        return self.node.address

    def links(self) -> dict[str, LinkStatus]:
        return self.node.status()

    @property
    def held(self) -> Objects:
        return self._held

    @property
    def unreadable(self) -> int:
        return self._unreadable

    @property
    def _engine(self) -> Engine:
        return self.engine

    # Waiting

    async def wait_quiet(self) -> None:
        while not self.engine.quiet:
            self._check_open()
            await self._news.park()

    async def _seen(self, token: Token) -> None:
        while not token.covered_by(self.engine.vector):
            self._check_open()
            await self._news.park()

    # What is issued

    def _send(self, entries: Sequence[list[Any]]) -> Tag:
        tag = self.engine.send(self._fitting(packed(entries), entries, self.node.max_payload))
        try:
            keys, _ = self.held.deliver(entries, tag)
        except BaseException as error:
            self._failed(error)
            raise
        if self._log is not None:
            self._log.send(tag, [_operation_shown(entry) for entry in entries])
            self._log.flush()
        self._took(tag.dot, keys)
        self.node.flush()
        return tag

    def _failed(self, error: BaseException) -> None:
        self._torn = True

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
        except BaseException as error:
            self._failed(error)
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
        self._unreadable += self._skips(tag, wrong if entries else ["no list of operations"])
        self._took(tag.dot, keys)

    def _skipped(self, operations: int) -> None:
        self._unreadable += operations
        super()._skipped(operations)

    def _took(self, dot: Dot, keys: list[Key]) -> None:
        self._touch(keys)
        if self._log is None:
            return
        now = trio.current_time()
        for key in keys:
            merge_into(self._vectors.setdefault(key, {}), dict([dot]))
            self._unlogged[key] = now
            self._unlogged.move_to_end(key)

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
