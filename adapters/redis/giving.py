"""A member's side of a join: it gives a copy of its server's keys in slices, then lets the joiner in.

The copy is made before the join, so that a joiner that cannot acknowledge anything yet holds nobody's stability back.
Keys are read behind commits, so each value is one of the group's history; those that are touched after the joiner has
come are read again, round after round. With the admission go those that are left, read behind the very commit that
holds the join. Nothing of an admission leaves before that commit is synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.census import take_census
from crdtcast.adapters.redis.contents import Contents, with_deadline
from crdtcast.adapters.redis.databases import (
    BEGIN,
    END,
    Databases,
    by_name,
    described,
    scan,
    select,
)
from crdtcast.adapters.redis.effects import WHOLE, Effect, KillAll
from crdtcast.adapters.redis.own_reads import Pending, read_together, replies_to
from crdtcast.adapters.redis.sizes import Weight, weights_of
from crdtcast.adapters.redis.slices import Ending, Row, Slice, reads_of
from crdtcast.adapters.redis.types.strings import String
from crdtcast.engine import GroupEngine, Span
from crdtcast.exceptions import CrdtcastError, HandshakeError, NotReadyError, ServerError
from crdtcast.group_state import Entry, pack_entry
from crdtcast.hosting import Guest, Hosting, crowd
from crdtcast.link import Link
from crdtcast.replacing import whose_place
from crdtcast.wire_groups import Admit, Unable

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit import Commit
    from crdtcast.adapters.redis.gateway import Gateway
    from crdtcast.adapters.redis.grouped import GroupPeers

_SLICE_KEYS = 1000
_SLICE_BYTES = 1 << 20
"""Of a slice, as far as the sizes of its keys tell, unless it is one key; also of a page of a text."""
_FEW_KEYS = 500
"""So many keys may be left for the admission itself."""
_ROUNDS = 5
"""Rounds over the keys that change while they are copied; if there are still many then, the admission takes longer."""


class _Guest(Guest):
    """One joiner: how far the copy for it has come."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.total: int | None = None
        self.left_out: dict[str, int] = {}
        """What the copy will not have."""
        self.cursor: bytes | None = BEGIN
        """Of the scan; None when that is over."""
        self.dirty: set[bytes] = set()
        """Touched since the joiner came, and not read again yet."""
        self.round: list[bytes] = []
        self.names: deque[tuple[bytes, Weight]] = deque()
        """To be read next, with what they are said to weigh."""
        self.page: tuple[bytes, int] | None = None
        """The text that is being read, and where its next page begins."""
        self.rounds = 0
        self.place = 0
        self.busy = False
        self.is_flushed = False
        """All keys were removed since it has some."""
        self.offered_on: Link | None = None
        """Where the last slice went: on another link it is offered again."""
        self.admitted_with: set[bytes] = set()
        """Keys that went with an admission, which may not have come through."""


class Giver(Hosting[_Guest]):
    """Answers joiners on behalf of one gateway."""

    def __init__(self, gateway: Gateway, peers: GroupPeers) -> None:
        super().__init__(lambda link, frame: peers.channel.send_to([link.name], frame))
        self._gateway = gateway
        self._peers = peers

    def committed(self, commit: Commit) -> None:
        """The keys of this commit have other values now."""
        if guests := list(self.guests()):
            touched, is_flushed = _touched(commit), _is_flushed(commit)
            for guest in guests:
                guest.dirty |= touched
                guest.is_flushed |= is_flushed

    def _why_not(self) -> Unable | None:
        """What stands against giving anything away now."""
        committer = self._gateway.committer
        me = self._gateway.options.node.name
        if committer.engine is None or not committer.serving:
            return Unable(True, f"the server beside {me} does not answer")
        if damaged := sorted(committer.keyspace.damaged):
            return Unable(
                True,
                f"{me} waits for keys that were overwritten past it ({described(damaged[0])}, …)",
            )
        return None

    def _cannot_read(self, link: Link, reads: Span) -> Unable | None:
        """What the format level has against giving it anything; it may rise between two slices."""
        engine = self._gateway.committer.engine
        assert isinstance(engine, GroupEngine)
        try:
            engine.check_reader(link.name, reads)
        except HandshakeError as error:
            return Unable(False, str(error))
        return None

    @property
    def _databases(self) -> Databases:
        return self._gateway.committer.keyspace.databases

    # The copy

    def _copy(self, link: Link, reads: Span) -> None:
        refusal = self._why_not() or self._cannot_read(link, reads)
        if refusal is not None:
            self._answer(link, refusal)
            return
        guest = self._guest(link) or self._receive(_Guest(link))
        if guest.is_flushed:
            self._begin_again(guest, link)
            return
        guest.dirty |= guest.admitted_with
        guest.admitted_with = set()
        if guest.offered_on not in (None, link):
            guest.offered_on = link
            self._offer(guest, guest.offered)
        elif not guest.busy:
            guest.busy = True
            self._gateway.spawn(partial(self._next_slice, guest))

    async def _next_slice(self, guest: _Guest) -> None:
        try:
            slice_ = await self._slice(guest)
            guest.busy = False
            if self._is_here(guest):
                guest.offered_on = guest.link
                self._offer(guest, slice_.encode())
        except ServerError as error:
            self._dismiss(guest)
            self._answer(guest.link, Unable(True, str(error)))

    async def _slice(self, guest: _Guest) -> Slice:
        if guest.total is None:
            databases = self._databases
            each = [words for db in databases.clients for words in ([*select(db)], [b"DBSIZE"])]
            told = await self._ask([*each, [*select(0)]])
            guest.total = sum(int(str(size)) for size in told[1::2])
            guest.left_out = await take_census(self._ask, databases)
            guest.dirty |= self._gateway.committer.keyspace.dates.orphans.keys()
        rows = await self._rows(guest)
        slice_ = Slice(guest.place, guest.total, self._is_enough(guest), rows, guest.left_out)
        guest.place += 1
        return slice_

    async def _rows(self, guest: _Guest) -> list[Row]:
        """The next ones: of a few keys, or the next page of a text."""
        if guest.page is None and not guest.names:
            await self._find_names(guest)
        names = [] if guest.page is not None else self._some_names(guest)
        if guest.page is not None:
            return await self._page(guest, *guest.page)
        rows: list[Row] = []
        gateway = self._gateway
        reads = reads_of(names, gateway.committer.keyspace, rows.append)
        await read_together(gateway.ask, reads)
        return rows

    async def _find_names(self, guest: _Guest) -> None:
        if guest.cursor is not None:
            cursor, names = await scan(self._ask, self._databases, guest.cursor, _SLICE_KEYS)
            guest.cursor = None if cursor == END else cursor
        else:
            if not guest.round:
                guest.round, guest.dirty = sorted(guest.dirty), set()
                guest.rounds += 1
            names, guest.round = guest.round[:_SLICE_KEYS], guest.round[_SLICE_KEYS:]
        read = by_name(partial(replies_to, self._gateway.ask))
        weights = await weights_of(names, read)
        guest.names.extend(zip(names, weights, strict=True))

    def _some_names(self, guest: _Guest) -> list[bytes]:
        """So many of the keys that are next as a slice may have bytes; or none, if a long text is: see `page`."""
        some: list[bytes] = []
        room = _SLICE_BYTES
        while guest.names:
            name, (native, weight) = guest.names[0]
            is_long = native is String and weight > _SLICE_BYTES
            if is_long and not some and name not in self._gateway.committer.keyspace.hidden:
                guest.page = name, 0
                guest.names.popleft()
                break
            if some and weight > room:
                break
            some.append(name)
            guest.names.popleft()
            room -= weight
        return some

    async def _page(self, guest: _Guest, key: bytes, at: int) -> list[Row]:
        end = at + _SLICE_BYTES - 1
        commands = [[b"GETRANGE", key, b"%d" % at, b"%d" % end], [b"PEXPIRETIME", key]]
        text, until = await by_name(partial(replies_to, self._gateway.ask))(commands)
        is_whole = not isinstance(text, bytes) or len(text) < _SLICE_BYTES
        guest.page = None if is_whole else (key, at + _SLICE_BYTES)
        if isinstance(text, bytes) and text:
            contents: Contents = {String.type: {WHOLE: text}}
            if not at and isinstance(until, int) and until >= 0:
                contents = with_deadline(contents, until)
            return [Row(key, contents, at)]
        return []  # it was written meanwhile, and is read again

    @staticmethod
    def _is_enough(guest: _Guest) -> bool:
        if guest.cursor is not None or guest.round or guest.names or guest.page is not None:
            return False
        return len(guest.dirty) <= _FEW_KEYS or guest.rounds >= _ROUNDS

    async def _ask(self, commands: list[list[bytes]]) -> list[object]:
        replies = await replies_to(self._gateway.ask, commands)
        if any(isinstance(reply, Exception) for reply in replies):
            raise ServerError(f"the server does not answer: {replies!r:.200}")
        return replies

    def _begin_again(self, guest: _Guest, link: Link) -> None:
        """It has keys that are gone, and nobody knows which."""
        self._dismiss(guest)
        self._answer(link, Unable(True, "all keys were removed while it copied them"))

    # The admission

    def _admit(self, link: Link, frame: Admit) -> None:
        if (refusal := self._why_not()) is not None:
            self._answer(link, refusal)
            return
        guest = self._guest(link)
        if guest is None or guest.busy or not self._is_enough(guest):
            self._answer(link, Unable(True, "copy the keys first"))
            return
        if guest.is_flushed:
            self._begin_again(guest, link)
            return
        self._gateway.committer.at_its_end(partial(self._let_in, guest, frame))
        self._gateway.committer.kick()

    def _let_in(
        self,
        guest: _Guest,
        frame: Admit,
        commit: Commit,
    ) -> None:
        """The end of a commit: the group has the joiner from here on, with all that this commit holds."""
        if not self._is_here(guest):
            return
        if guest.is_flushed or _is_flushed(commit):
            self._begin_again(guest, guest.link)
            return
        committer = self._gateway.committer
        engine = committer.engine
        assert isinstance(engine, GroupEngine)
        if (unable := crowd(engine, frame.base)) is not None:
            self._answer(guest.link, unable)
            return
        try:
            named = whose_place(engine, frame.base, frame.replaces, self._peers.channel.here)
            admission = engine.admit(
                frame.base, replaces=named, witness=frame.witness, reads=frame.reads
            )
        except CrdtcastError as error:
            self._answer(guest.link, Unable(isinstance(error, NotReadyError), str(error)))
            return
        packed = pack_entry(
            Entry(admission.incarnation, self._peers.channel.founding, admission.state, ())
        )
        rows: list[Row] = []
        keys = sorted(guest.dirty | guest.admitted_with | _touched(commit))
        guest.dirty, guest.admitted_with, guest.offered_on = set(), set(keys), None
        pending = Pending(reads_of(keys, committer.keyspace, rows.append))
        commit.after += pending.reads
        clock = self._gateway.hlc.latest

        async def give() -> None:
            await pending.done.wait()
            if pending.lost:
                self._dismiss(guest)
                self._answer(guest.link, Unable(True, "the connection with the server broke"))
                return
            await self._peers.gate.wait_synced(committer.commits)
            if self._is_here(guest):
                self._offer(guest, Ending(packed, clock, rows).encode())

        self._gateway.spawn(give)


def _is_flushed(commit: Commit) -> bool:
    return any(isinstance(effect, KillAll) for effect in _effects(commit))


def _touched(commit: Commit) -> set[bytes]:
    touched = {effect.key for effect in _effects(commit) if not isinstance(effect, KillAll)}
    return touched | commit.repaired


def _effects(commit: Commit) -> Iterator[Effect]:
    for _, event in commit.deliveries:
        yield from event.effects
    for _, _, event in commit.own:
        yield from event.effects
