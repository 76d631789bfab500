"""A member's side of a join: it gives a copy of its server's keys in slices, then lets the joiner in.

The copy is made before the join, so that a joiner that cannot acknowledge anything yet holds nobody's stability back.
Keys are read behind commits, so each value is one of the group's history; those that are touched after the joiner has
come are read again, round after round. With the admission go those that are left, read behind the very commit that
holds the join. Nothing of an admission leaves before that commit is synced.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from crdtcast.adapters.redis.recorder import Read
from crdtcast.adapters.redis.slices import FORGET, Ending, Row, Slice, opaque_read, reads_of
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import CrdtcastError, NotReadyError, RemoteProtocolError, ServerError
from crdtcast.group_state import Entry, pack_entry
from crdtcast.incarnation import base_of, name_of
from crdtcast.link import Link
from crdtcast.wire_groups import PART_BYTES, Admit, Copy, Fetch, InGroup, Offer, Part, Unable

if TYPE_CHECKING:
    from crdtcast.adapters.redis.committer import Commit
    from crdtcast.adapters.redis.gateway import Gateway
    from crdtcast.adapters.redis.grouped import GroupPeers

_SLICE_KEYS = 1000
_FEW_KEYS = 500
"""So many keys may be left for the admission itself."""
_ROUNDS = 5
"""Rounds over the keys that change while they are copied; if there are still many then, the admission takes longer."""
_FRAME_ROOM = 1024


class Pending:
    """Reads at one instant: `done` when all are answered, or `lost` with the connection."""

    def __init__(self, reads: Iterable[Read]) -> None:
        self.lost = False
        self.done = trio.Event()
        self.reads: list[Read] = [
            (command, partial(self._take, callback)) for command, callback in reads
        ]
        self._left = len(self.reads)
        if not self._left:
            self.done.set()

    def _take(self, callback: object, reply: object) -> None:
        self._left -= 1
        if isinstance(reply, ServerError):
            self.lost = True
        elif not self.lost:
            assert callable(callback)
            callback(reply)
        if not self._left:
            self.done.set()


class _Guest:
    """One joiner: how far the copy for it has come, and what is offered to it."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.cursor: bytes | None = b"0"
        """Of the SCAN; None when that is over."""
        self.dirty: set[bytes] = set()
        """Touched since the joiner came, and not read again yet."""
        self.round: list[bytes] = []
        self.rounds = 0
        self.place = 0
        self.busy = False
        self.serial = 0
        self.offered = b""


class Giver:
    """Answers joiners on behalf of one gateway."""

    def __init__(self, gateway: Gateway, peers: GroupPeers) -> None:
        self._gateway = gateway
        self._peers = peers
        self._guests: dict[Link, _Guest] = {}

    def asked(self, link: Link, frame: InGroup) -> None:
        """A frame of the dialogue came. Raises RemoteProtocolError for what nobody may ask."""
        match frame:
            case Copy():
                self._copy(link)
            case Admit(base, replaces, witness):
                self._admit(link, base, replaces, witness)
            case Fetch(serial, offset):
                self._fetch(link, serial, offset)
            case _:
                raise RemoteProtocolError(f"a {type(frame).__name__}, which nobody has asked for")

    def gone(self, link: Link) -> None:
        """The joiner has it all, or the link with it is gone."""
        self._guests.pop(link, None)

    def clear(self) -> None:
        """What was read of the server is worth nothing any more: nothing that was begun goes on."""
        self._guests.clear()

    def committed(self, commit: Commit) -> None:
        """The keys of this commit have other values now."""
        if self._guests:
            touched = _touched(commit)
            for guest in self._guests.values():
                guest.dirty |= touched

    def _answer(self, link: Link, frame: InGroup) -> None:
        self._peers.channel.send_to([link.name], frame)

    def _offer(self, link: Link, guest: _Guest, offered: bytes) -> None:
        guest.serial += 1
        guest.offered = offered
        self._answer(link, Offer(guest.serial, len(offered)))

    def _fetch(self, link: Link, serial: int, offset: int) -> None:
        if serial == FORGET:
            self._guests.pop(link, None)
            return
        guest = self._guests.get(link)
        if guest is None or guest.serial != serial:
            self._answer(link, Unable(True, "this copy is too old by now: begin again"))
            return
        size = min(PART_BYTES, link.peer.max_frame - _FRAME_ROOM)
        self._answer(link, Part(serial, offset, guest.offered[offset : offset + size]))

    def _why_not(self) -> Unable | None:
        """What stands against giving anything away now."""
        committer = self._gateway.committer
        me = self._gateway.options.node.name
        if committer.engine is None or not committer.serving:
            return Unable(True, f"the server beside {me} does not answer")
        if committer.keyspace.damaged:
            return Unable(True, f"{me} waits for keys that were overwritten past it")
        return None

    # The copy

    def _copy(self, link: Link) -> None:
        refusal = self._why_not()
        if refusal is not None:
            self._answer(link, refusal)
            return
        guest = self._guests.setdefault(link, _Guest())
        if not guest.busy:
            guest.busy = True
            self._gateway.spawn(partial(self._next_slice, link, guest))

    async def _next_slice(self, link: Link, guest: _Guest) -> None:
        try:
            slice_ = await self._slice(guest)
            guest.busy = False
            if self._guests.get(link) is guest:
                self._offer(link, guest, slice_.encode())
        except ServerError as error:
            self._guests.pop(link, None)
            self._answer(link, Unable(True, str(error)))

    async def _slice(self, guest: _Guest) -> Slice:
        if guest.total is None:
            (total,) = await self._ask([[b"DBSIZE"]])
            guest.total = int(str(total))
        if guest.cursor is not None:
            (answer,) = await self._ask([[b"SCAN", guest.cursor, b"COUNT", b"%d" % _SLICE_KEYS]])
            assert isinstance(answer, list)
            cursor, names = answer
            guest.cursor = None if cursor == b"0" else cursor
        else:
            if not guest.round:
                guest.round, guest.dirty = sorted(guest.dirty), set()
                guest.rounds += 1
            names, guest.round = guest.round[:_SLICE_KEYS], guest.round[_SLICE_KEYS:]
        rows: list[Row] = []
        gateway = self._gateway
        hidden = gateway.committer.keyspace.hidden
        pending = Pending(reads_of(names, hidden, gateway.options.metadata_db, rows.append))
        gateway.ask(pending.reads)
        await pending.done.wait()
        if pending.lost:
            raise ServerError("the connection with the server broke while keys were read")
        slice_ = Slice(guest.place, guest.total, self._is_enough(guest), rows)
        guest.place += 1
        return slice_

    @staticmethod
    def _is_enough(guest: _Guest) -> bool:
        if guest.cursor is not None or guest.round:
            return False
        return len(guest.dirty) <= _FEW_KEYS or guest.rounds >= _ROUNDS

    async def _ask(self, commands: list[list[bytes]]) -> list[object]:
        replies: list[object] = []
        pending = Pending((command, replies.append) for command in commands)
        self._gateway.ask(pending.reads)
        await pending.done.wait()
        if pending.lost or any(isinstance(reply, Exception) for reply in replies):
            raise ServerError(f"the server does not answer: {replies!r:.200}")
        return replies

    # The admission

    def _admit(self, link: Link, base: str, replaces: tuple[str, ...], witness: bool) -> None:
        if name_of(base) != link.name:
            raise RemoteProtocolError(f"{link.name} wants to join as {base}, a name of others")
        if (refusal := self._why_not()) is not None:
            self._answer(link, refusal)
            return
        guest = self._guests.get(link)
        if guest is None or guest.busy or not self._is_enough(guest):
            self._answer(link, Unable(True, "copy the keys first"))
            return
        self._gateway.committer.at_its_end(
            partial(self._let_in, link, guest, base, replaces, witness)
        )
        self._gateway.committer.kick()

    def _let_in(
        self,
        link: Link,
        guest: _Guest,
        base: str,
        replaces: tuple[str, ...],
        witness: bool,
        commit: Commit,
    ) -> None:
        """The end of a commit: the group has the joiner from here on, with all that this commit holds."""
        if self._guests.get(link) is not guest:
            return
        committer = self._gateway.committer
        engine = committer.engine
        assert isinstance(engine, GroupEngine)
        named = [r for r in replaces if "." in r]
        named += [m for m in engine.members if name_of(m) in replaces and base_of(m) != base]
        try:
            admission = engine.admit(base, replaces=named, witness=witness)
        except CrdtcastError as error:
            self._answer(link, Unable(isinstance(error, NotReadyError), str(error)))
            return
        packed = pack_entry(
            Entry(admission.incarnation, self._peers.channel.founding, admission.state, ())
        )
        rows: list[Row] = []
        opaque: dict[bytes, bytes] = {}
        db = self._gateway.options.metadata_db
        keys, guest.dirty = sorted(guest.dirty | _touched(commit)), set()
        reads = [
            *reads_of(keys, committer.keyspace.hidden, db, rows.append),
            *opaque_read(db, opaque.update),
        ]
        pending = Pending(reads)
        commit.after += pending.reads
        clock = self._gateway.hlc.latest

        async def give() -> None:
            await pending.done.wait()
            if pending.lost:
                self._guests.pop(link, None)
                self._answer(link, Unable(True, "the connection with the server broke"))
                return
            await self._peers.gate.wait_synced(committer.commits)
            if self._guests.get(link) is guest:
                self._offer(link, guest, Ending(packed, clock, opaque, rows).encode())

        self._gateway.spawn(give)


def _touched(commit: Commit) -> set[bytes]:
    touched = {effect.key for _, decoded in commit.deliveries for effect in decoded}
    touched |= {effect.key for _, _, decoded in commit.sent for effect in decoded}
    return touched | commit.repaired
