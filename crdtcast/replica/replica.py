"""Replicated objects by name, whatever carries their messages: batches, snapshots, waits, sessions.

What a message's operations mean is `crdtcast.replica.objects`. How they travel and what of them survives is for the two
kinds of replicas to say: `FixedReplica` and `GroupReplica`, which `crdtcast.open_replica` makes.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.datatypes.canonical import digest_of
from crdtcast.datatypes.shown import shown
from crdtcast.engine.core import Core
from crdtcast.exceptions import EndedError, InvalidOperationError, LocalProtocolError
from crdtcast.replica.batch import Batch
from crdtcast.replica.handles import TypedObjects
from crdtcast.replica.objects import (
    Key,
    ObjectInfo,
    Objects,
    check_data_type,
    check_parts,
    checked_name,
)
from crdtcast.replica.session import Token, token
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus


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


class Replica(TypedObjects, ABC):
    """Objects of one member. All of it belongs to the Trio thread.

    Once its `async with` block has ended, or the member has left its group, what the objects are worth can still be
    read; everything else raises `EndedError`.
    """

    def __init__(self, logger: logging.Logger | None) -> None:
        self.revision = 0
        """Rises with each message that takes effect here."""
        self._logger = logger or logging.getLogger("crdtcast.replica")
        self._news = trio.lowlevel.ParkingLot()
        self._watched: dict[Key, trio.lowlevel.ParkingLot] = {}
        self._ended = False

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the group."""

    @property
    @abstractmethod
    def group(self) -> str:
        """The name of its group."""

    @property
    @abstractmethod
    def address(self) -> Address:
        """Host and port where the other replicas reach this one."""

    @abstractmethod
    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other replica."""

    @property
    @abstractmethod
    def held(self) -> Objects:
        """The objects, for tools; `objects` lists them."""

    @property
    @abstractmethod
    def unreadable(self) -> int:
        """Operations delivered here that are none, for this program and for all older ones."""

    @property
    @abstractmethod
    def _engine(self) -> Core:
        """What has been delivered here."""

    @abstractmethod
    def _send(self, entries: Sequence[list[Any]]) -> Tag:
        """Tag, apply and send prepared entries as one message."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """A type has failed amid an operation: its object is neither what it was nor what it should be."""

    # Objects

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
        because it was not understood takes effect. LocalProtocolError as for `require`.
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

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """What objects there are, in the order of their names; also those that have lost their name
        to another type, or that this program does not know.
        """
        return self.held.listing(prefix)

    async def delete(self, name: str) -> Tag:
        """Delete the object called `name`: all operations on it, of whatever type, that have been
        seen here. Operations that are concurrent with the deletion survive it, everywhere.
        """
        await self.begun()
        tag = self.commit([[checked_name(name), None]])
        await trio.lowlevel.cancel_shielded_checkpoint()
        return tag

    def batch(self) -> Batch:
        """`with replica.batch() as batch:` collects operations on several objects, which travel as
        one message and take effect together. `batch.object(name, Type).add(…)`; no `await`. Before the group has
        begun it raises `NotReadyError`, and sends nothing.
        """
        return Batch(self)

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
            vector={origin: n for origin, n in self._engine.vector.items() if n},
            values=values,
            unknown=tuple(dict.fromkeys(unknown)),
            digest=digest_of("replica", digests),
        )

    # Waiting

    async def begun(self) -> None:
        """Return when the group has begun: at once, unless this replica waits for other founders."""
        await trio.lowlevel.checkpoint_if_cancelled()

    async def changed(self) -> None:
        """Return when another replica's operation has been applied, or something became stable."""
        self._check_open()
        await self._news.park()
        self._check_open()

    async def object_changed(self, key: Key) -> None:
        """Return when an operation on the object has taken effect, or it was deleted: `Handle.changed`."""
        self._check_open()
        await self._watched.setdefault(key, trio.lowlevel.ParkingLot()).park()
        self._check_open()

    @abstractmethod
    async def wait_quiet(self) -> None:
        """Return when all that is known here is stable: every replica has delivered it."""

    async def token(self) -> Token:
        """What this replica has seen. Another one that is `at_least` there shows a client all that
        it has read and written here: read your writes, monotonic reads, writes in their order.
        """
        await self.begun()
        return self._token()

    async def at_least(self, token: Token) -> None:
        """Return when this replica has seen all that `token` stands for.

        That may be never, if what it stands for was lost with the replica that gave it: use `trio.fail_after`.
        LocalProtocolError for a token of another group.
        """
        if not isinstance(token, Token):
            raise LocalProtocolError(
                f"{shown(token)} is no token: `Token.parse` makes one of the text of one"
            )
        if token.group != self.group:
            raise LocalProtocolError(
                f"a token of group {token.group!r} at a replica of group {self.group!r}: ask a replica "
                "of its own group"
            )
        await trio.lowlevel.checkpoint()
        await self._seen(token)

    @abstractmethod
    async def _seen(self, token: Token) -> None:
        """Return when all of it has been."""

    def _token(self) -> Token:
        return token(self.group, self._engine.context)

    # What is issued

    def perform(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, without waiting for anything."""
        prepared = self.held.prepare(key, operation, args)
        return self.commit([self.held.entry(key, prepared)])

    def commit(self, entries: Sequence[list[Any]]) -> Tag:
        """(For handles and batches.) Tag, apply and send prepared entries as one message."""
        self._check_open()
        return self._send(entries)

    def _fitting(self, payload: bytes, entries: Sequence[list[Any]], most: int) -> bytes:
        if len(payload) > most:
            raise InvalidOperationError(
                f"{shown(entries[0][0])}: a message of {len(payload):,} bytes; at most {most:,} fit into a frame"
            )
        check_parts(payload)
        return payload

    # What has happened

    def _touch(self, keys: Iterable[Key]) -> None:
        """A message has taken effect on these."""
        self.revision += 1
        for key in keys:
            lot = self._watched.pop(key, None)
            if lot is not None:
                lot.unpark_all()

    def _all_changed(self) -> None:
        """Whoever waits for anything should look."""
        self.revision += 1
        watched, self._watched = self._watched, {}
        for lot in watched.values():
            lot.unpark_all()
        self._news.unpark_all()

    def _skipped(self, operations: int) -> None:
        if operations:
            self._logger.warning("skipped %d stored operations that are none", operations)

    def end(self) -> None:
        """(For `open_replica`.) Nothing is issued here any more, and nothing arrives."""
        self._ended = True
        self._all_changed()

    def _check_open(self) -> None:
        if self._ended:
            raise EndedError(
                f"{self.name!r} takes part no more in group {self.group!r}: open the replica again to go on"
            )
