"""Replicated objects in a group whose members come and go; with a journal they survive their process.

The objects are a `Shelf`; here is who waits for them.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import trio

from crdtcast.causality.member_id import wall_clock_ms
from crdtcast.causality.tags import Dot, Tag, covers
from crdtcast.datatypes import PureOpCRDT
from crdtcast.engine import Fate, GroupEngine
from crdtcast.exceptions import EndedError, NotReadyError
from crdtcast.group.member import GroupMember
from crdtcast.replica.comparison import Comparison
from crdtcast.replica.object_machine import Shelf
from crdtcast.replica.objects import Key, Objects
from crdtcast.replica.replica import Replica
from crdtcast.replica.session import Token
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus


class GroupReplica(Replica):
    """Objects of one member of a group whose members come and go. Made by `open_replica` with `found` or `join`.

    `member` is its place in the group: who the others are, `leave`, `evict`, waiting until k members have a message.
    While that one cannot send (it leaves, or is on its way back from an eviction) operations raise `EndedError`, and
    have changed nothing; `member.ready` returns when it can.

    To have one on links that are open already, give its `shelf` to `GroupLinks.found` or `join` as the process, and let
    it `speak_for` the member that these return.
    """

    def __init__(
        self,
        name: str,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        types: Iterable[type[PureOpCRDT[Any]]] = (),
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(logger)
        self.shelf = Shelf(name, clock_ms, self._logger, types=types, on_news=self._happened)
        self.shelf.comparing.on_news = self._answered
        self._answers = trio.lowlevel.ParkingLot()
        self._member: GroupMember | None = None
        self._has_begun = False

    def speak_for(self, member: GroupMember) -> None:
        """This is its place in the group, to which the shelf was given as the process."""
        self._member = member
        if not member.is_outside:
            self._begin()
        member.channel.shared.spawn(self._end_with_member)

    async def begun(self) -> None:
        await super().begun()
        if not self._has_begun:
            await self.member.begun()
            self._begin()

    async def ready(self) -> None:
        """Return when this replica can issue operations: at once, unless its group has not begun, or its member is on
        its way back after an eviction. EndedError: it has left.
        """
        await self.begun()
        await self.member.ready()

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.shelf.speak_for(self.member)

    @property
    def member(self) -> GroupMember:
        """Its place in the group. NotReadyError: it has none yet."""
        if self._member is None:
            raise NotReadyError(f"{self.name!r} is no member of its group yet: wait for that")
        return self._member

    @property
    def name(self) -> str:
        return self.shelf.name

    @property
    def group(self) -> str:
        return self.member.group

    @property
    def address(self) -> Address:
        return self.member.address

    def links(self) -> dict[str, LinkStatus]:
        return self.member.links()

    @property
    def held(self) -> Objects:
        return self.shelf.objects

    @property
    def unreadable(self) -> int:
        return self.shelf.unreadable

    @property
    def _engine(self) -> GroupEngine:
        return self.member.engine

    # Waiting

    async def wait_quiet(self) -> None:
        await self.begun()
        await self.member.wait_until(self._is_quiet)

    def _is_quiet(self) -> bool:
        member = self.member
        parked, engine = member.parked, member.engine
        comes_back = member.is_over or not (parked is None or parked.may_be_dropped(engine))
        return engine.quiet and not comes_back

    async def wait_durable(self) -> None:
        """Return when all that has taken effect here so far survives the loss of power here.

        LocalProtocolError: there is no journal. JournalError ends the replica.
        """
        await self.member.wait_durable()

    async def _seen(self, token: Token) -> None:
        await self.begun()
        await self.member.wait_until(lambda: all(map(self._has_seen, token.dots)))

    def _has_seen(self, dot: Dot) -> bool:
        engine = self.member.engine
        if covers(engine.vector, dot):
            return True
        # Of those who have ended no counters are kept. One that was evicted sends again what the group did not have of
        # it, and then settles: so when that is over, whatever there is of it has been seen. Somebody new is not taken
        # for one of them: whoever lets members in is known everywhere.
        fate = engine.fate(dot.origin)
        if fate is Fate.SETTLED:
            return True
        return isinstance(fate, int) and dot.counter <= fate and dot.origin not in engine.vector

    async def verify(self, seconds: float = 30.0) -> Comparison:
        """Compare all replicas while everybody goes on writing. What nobody touches meanwhile has to be equal.

        seconds: how long they have to answer. If some do not, they are named, and nothing is said of the objects.

        LocalProtocolError: this member was evicted meanwhile, and is back: ask again. EndedError: it has left.
        """
        await self.member.ready()
        number = secrets.token_hex(8)
        comparing = self.shelf.comparing
        comparing.ask(number, [n for n, each in self.member.members.items() if not each.witness])
        with trio.move_on_after(seconds):
            while comparing.missing(number):
                await self._answers.park()
                self._check_open()
        return comparing.end(number)

    # What is issued

    def _send(self, entries: Sequence[list[Any]]) -> Tag:
        if not self._has_begun:
            _ = self._engine  # NotReadyError, which says who is missing
            self._begin()
        most = self.member.channel.max_payload
        payload = self._fitting(self.shelf.packed(entries), entries, most)
        try:
            return self.shelf.send(payload)
        except Exception as error:
            if self.shelf.torn:
                self._failed(error)
            raise

    def _failed(self, error: BaseException) -> None:
        self.shelf.torn = True
        if isinstance(error, Exception):
            self.member.process_failed(error)

    # What has happened

    def upgrade(self, *types: type[PureOpCRDT[Any]]) -> None:
        super().upgrade(*types)
        if self._member is not None:
            self._member.look_again()

    def _skipped(self, operations: int) -> None:
        self.shelf.unreadable += operations
        super()._skipped(operations)

    def _answered(self, number: str) -> None:
        self._answers.unpark_all()

    def _all_changed(self) -> None:
        super()._all_changed()
        self._answers.unpark_all()

    def _happened(self, keys: Collection[Key] | None) -> None:
        if keys is None:
            self._all_changed()
            return
        if keys:
            self._touch(keys)
        self._news.unpark_all()

    async def _end_with_member(self) -> None:
        try:
            with suppress(EndedError):
                await self.begun()
                while True:
                    await self.member.changed()
        finally:
            self.end()
