"""The contact's side of a join: it gives a copy of its server's keys in slices, then admits the joiner.

The copy is made before the join, because a joiner that cannot acknowledge messages yet must not delay stability. Keys
are read after commits, so each value is one of the group's history. Keys that are written during the copy are read
again (`region_copy`). The rest goes with the admission, read right after the commit that holds the join. No part of an
admission is sent before that commit is synced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from crdtcast.adapters.redis.adoption.census import take_census
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.group.peers import GroupPeers
from crdtcast.adapters.redis.server.own_reads import Pending, replies_to
from crdtcast.adapters.redis.server.steps import taken
from crdtcast.adapters.redis.store.databases import Databases, described, select
from crdtcast.adapters.redis.store.effects import Effect
from crdtcast.adapters.redis.transfer.region_copy import RegionCopy
from crdtcast.adapters.redis.transfer.state_messages import Ending, Slice
from crdtcast.causality.hlc import HLC
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import CrdtcastError, NotReadyError, ServerError
from crdtcast.group.join_server import Guest, Hosting, check_crowd, whose_place
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy
from crdtcast.wire.state import JoinerEntry, pack_entry


class _Guest(Guest):
    """One joiner, with the progress of its copy."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.copy: RegionCopy | None = None
        self.total = 0
        self.left_out: dict[str, int] = {}
        """Keys that the copy will lack, by type."""
        self.place = 0
        self.busy = False
        """The next slice is being read."""
        self.ready: Slice | None = None
        """The next slice, read while the last one was on its way."""
        self.wants = False
        """The joiner waits for the next slice."""
        self.serial = 0
        """Serial of its last request for a slice."""
        self.offered_on: Link | None = None
        """The link on which the last slice was sent: on another link it is offered again."""

    @property
    def is_flushed(self) -> bool:
        """Whether all keys of a database were removed since the joiner has some."""
        return self.copy is not None and self.copy.is_flushed


class Giver(Hosting[_Guest]):
    """Answers joiners on behalf of one gateway.

    clock: the clock that a joiner's clock must exceed.
    spawn: runs a task until the gateway ends.
    """

    def __init__(
        self,
        committer: Committer,
        peers: GroupPeers,
        clock: HLC,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        super().__init__(lambda link, frame: peers.channel.send_to([link.name], frame))
        self._committer = committer
        self._peers = peers
        self._clock = clock
        self._spawn = spawn

    def committed(self, commit: Commit) -> None:
        """The keys of this commit have new values."""
        for guest in self.guests() if self.has_guests else ():
            if guest.copy is not None:
                guest.copy.touched(_effects(commit), commit.repaired)

    def _check_giving(self) -> None:
        """Raises NotReadyError if this member cannot give a copy now."""
        committer = self._committer
        me = self._peers.channel.name
        if committer.engine is None or not committer.serving:
            raise NotReadyError(f"the server of {me} does not answer")
        keyspace = committer.keyspace
        if keyspace.dates.adopts:
            raise NotReadyError(
                f"{me} makes the index of the deadlines in the database that it has taken over (its log and status "
                "show how far it is)"
            )
        if waiting := sorted(keyspace.damaged | keyspace.incomplete):
            raise NotReadyError(
                f"{me} waits for the repair of keys that were changed directly in its server "
                f"({described(waiting[0])}, …)"
            )

    @property
    def _databases(self) -> Databases:
        return self._committer.keyspace.databases

    # The copy

    def _copy(self, link: Link, frame: Copy) -> None:
        self._check_giving()
        engine = self._committer.engine
        assert isinstance(engine, GroupEngine)
        engine.check_reader(link.name, frame.reads)  # the level may rise between two slices
        guest = self._guest(link) or self._receive(_Guest(link))
        guest.serial = frame.serial
        self._check_flushed(guest)
        if guest.copy is not None:
            guest.copy.take_back()
        if guest.offered is not None and guest.offered_on not in (None, link):
            guest.offered_on = link
            self._offer(guest, guest.serial, guest.offered.data)
        else:
            guest.wants = True
            self._go_on(guest)

    def _go_on(self, guest: _Guest) -> None:
        """Give the joiner the next slice if it waits and the slice is ready. Read one slice ahead, unless enough is
        copied.
        """
        if guest.wants and guest.ready is not None:
            slice_, guest.ready, guest.wants = guest.ready, None, False
            guest.offered_on = guest.link
            self._offer(guest, guest.serial, slice_.encode())
        is_enough = guest.copy is not None and guest.copy.is_enough
        if not guest.busy and guest.ready is None and (guest.wants or not is_enough):
            guest.busy = True
            self._spawn(partial(self._read_slice, guest))

    async def _read_slice(self, guest: _Guest) -> None:
        try:
            guest.ready = await self._slice(guest)
            guest.busy = False
            if self._is_here(guest):
                self._go_on(guest)
        except ServerError as error:
            self._dismiss(guest)
            self._refuse(guest.link, guest.serial, error)

    async def _slice(self, guest: _Guest) -> Slice:
        if guest.copy is None:
            guest.copy = copy = RegionCopy(self._committer.keyspace)
            databases = self._databases
            each = [words for db in databases.clients for words in ([*select(db)], [b"DBSIZE"])]
            told = await self._ask([*each, [*select(0)]])
            guest.total = sum(int(str(size)) for size in told[1::2])
            guest.left_out = await self._census(databases)
        else:
            copy = guest.copy
        rows = await taken(copy.steps(), self._read)
        if any(row.part is not None for row in rows):
            crash_point("copy-page-read")
        patterns = self._committer.keyspace.left_out.patterns
        slice_ = Slice(guest.place, guest.total, copy.is_enough, rows, guest.left_out, patterns)
        guest.place += 1
        return slice_

    async def _census(self, databases: Databases) -> dict[str, int]:
        census = await take_census(self._ask, databases, self._committer.keyspace.left_out)
        return census.counts

    async def _read(self, commands: list[list[bytes]]) -> list[object]:
        return await replies_to(self._committer.ask, commands)

    async def _ask(self, commands: list[list[bytes]]) -> list[object]:
        replies = await self._read(commands)
        if any(isinstance(reply, Exception) for reply in replies):
            raise ServerError(f"the server does not answer: {replies!r:.200}")
        return replies

    def _check_flushed(self, guest: _Guest) -> None:
        """Raises NotReadyError if the joiner has keys that are gone, and it is unknown which: it must start again."""
        if guest.is_flushed:
            self._dismiss(guest)
            raise NotReadyError("all keys were removed during the copy")

    # The admission

    def _admit(self, link: Link, frame: Admit) -> None:
        self._check_giving()
        guest = self._guest(link)
        has_more = guest is None or guest.busy or guest.ready is not None
        if guest is None or has_more or guest.copy is None or not guest.copy.is_enough:
            raise NotReadyError("copy the keys first")
        self._check_flushed(guest)
        self._committer.at_its_end(partial(self._let_in, guest, frame))
        self._committer.kick()

    def _let_in(
        self,
        guest: _Guest,
        frame: Admit,
        commit: Commit,
    ) -> None:
        """Admit the joiner at the end of a commit: it is in the group from now on, with all that this commit holds."""
        copy = guest.copy
        if not self._is_here(guest) or copy is None:
            return
        copy.touched(_effects(commit), commit.repaired)
        committer = self._committer
        engine = committer.engine
        assert isinstance(engine, GroupEngine)
        try:
            self._check_flushed(guest)
            check_crowd(engine, frame.base)
            named = whose_place(engine, frame.base, frame.replaces, self._peers.channel.here)
            admission = engine.admit(
                frame.base, replaces=named, witness=frame.witness, reads=frame.reads
            )
        except CrdtcastError as error:
            self._refuse(guest.link, frame.serial, error)
            return
        packed = pack_entry(
            JoinerEntry(admission.incarnation, self._peers.channel.group_id, admission.state, ())
        )
        guest.offered_on = None
        reads, rows = copy.closing()
        pending = Pending(reads)
        commit.after += pending.reads
        clock = self._clock.latest

        async def give() -> None:
            await pending.done.wait()
            if pending.lost:
                self._dismiss(guest)
                error = NotReadyError("the connection to the server broke")
                self._refuse(guest.link, frame.serial, error)
                return
            await self._peers.gate.wait_synced(committer.commits)
            if self._is_here(guest):
                self._offer(guest, frame.serial, Ending(packed, clock, rows).encode())

        self._spawn(give)


def _effects(commit: Commit) -> Iterator[Effect]:
    for _, event in commit.deliveries:
        yield from event.effects
    for _, _, event in commit.own:
        yield from event.effects
