"""The joiner's side of a join: slices of a member's keys are written to the server as they come, the last keys together
with the admission in one transaction. Until then a marker says that the server holds only part of a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice
from typing import TypeVar

from crdtcast.adapters.redis.adoption.census import described
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.deadlines.adopted import ADOPTING
from crdtcast.adapters.redis.server.connection import Replies, ServerConnection, Words
from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.databases import Databases
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.adapters.redis.transfer.key_rows import Row
from crdtcast.adapters.redis.transfer.row_writes import commands_for
from crdtcast.adapters.redis.transfer.state_messages import Ending, Slice
from crdtcast.causality.member_id import name_of
from crdtcast.exceptions import ConfigurationError, NotReadyError, ServerError
from crdtcast.group.join_client import Joining, Wish
from crdtcast.group.join_server import FORGET
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.offer_frames import Fetch
from crdtcast.wire.offers import ContactLostError
from crdtcast.wire.state import JoinerEntry, unpack_entry

_COMMANDS_AT_ONCE = 2_000

Progress = Callable[[int, int], None]


T = TypeVar("T")


def _some(many: Iterable[T]) -> Iterable[list[T]]:
    left = iter(many)
    while some := list(islice(left, _COMMANDS_AT_ONCE)):
        yield some


class Writer:
    """Writes a copy of a region to a server.

    connection: on database 0, watching the fence.
    former: incarnations that the join must end, whichever program continues it.
    parked: writes that they may have to send again; None leaves the stored ones.
    """

    def __init__(
        self,
        connection: ServerConnection,
        databases: Databases,
        *,
        former: Iterable[str] = (),
        parked: bytes | None = None,
    ) -> None:
        self._connection = connection
        self._databases = databases
        self._db = databases.ours
        self._marker: tuple[bytes | str, ...] = (b"", *former)
        self._parked = parked
        self._hiding: dict[bytes, set[RedisType]] = {}

    async def begin(self) -> None:
        """Remove everything except the fence, the parked writes, and the marker that a copy is under way."""
        self._hiding.clear()
        ours = [metadata.STATE, metadata.STORE, metadata.RECORD, ADOPTING, metadata.LEFT_OUT]
        ours += metadata.REFUSED
        for prefix in (metadata.HIDDEN_PREFIX, metadata.EXACT_PREFIX, metadata.TAKEN_PREFIX):
            ours += await self._named(prefix)
        others: list[Words] = [("DEL", *some) for some in _some(ours)]
        if self._parked is not None:
            others.append(("SET", metadata.PARKED, self._parked))
        await self._call(
            [
                ("MULTI",),
                ("SELECT", self._db),
                ("SADD", metadata.JOINING, *self._marker),
                *others,
                *chain.from_iterable(
                    (("SELECT", db), ("FLUSHDB",)) for db in self._databases.clients
                ),
                ("EXEC",),
                ("SELECT", self._db),
                ("WATCH", metadata.FENCE),
                ("SELECT", 0),
            ]
        )
        crash_point("copy-begun")

    async def _named(self, prefix: bytes) -> list[bytes]:
        names: list[bytes] = []
        cursor: bytes = b"0"
        while True:
            ((cursor, some),) = await self._call_there(
                [("SCAN", cursor, "MATCH", prefix + b"*", "COUNT", 1000)]
            )
            names += some
            if cursor == b"0":
                return names

    async def asking(self, base: str) -> None:
        """Note that we are about to ask to join under this id: after a crash, the next program must replace it."""
        await self._call_there([("SADD", metadata.JOINING, base)])
        crash_point("join-about-to-be-asked")

    async def write(self, rows: Sequence[Row]) -> None:
        """Write some keys, or a page of a large one."""
        for some in _some(commands_for(rows, self._db, self._hiding)):
            await self._call(some)
        crash_point("copy-slice-written")
        if any(row.part is not None for row in rows):
            crash_point("copy-page-written")

    async def finish(
        self, ending: Ending, state: StoredState, entry: JoinerEntry, left_out: Sequence[bytes]
    ) -> None:
        """Write the last keys and everything that a restart needs, in one transaction.

        left_out: patterns of keys that the group leaves out.
        """
        stored: list[Words] = [("SADD", metadata.LEFT_OUT, *left_out)] if left_out else []
        entries: list[bytes] = []
        for order, message in enumerate(entry.state.unstable, 1):
            entries += metadata.entry(order, message)
        if entries:
            stored.append(("HSET", metadata.STORE, *entries))
        await self._call(
            [
                ("MULTI",),
                *commands_for(ending.rows, self._db, self._hiding),
                ("SELECT", self._db),
                *stored,
                ("SET", metadata.STATE, state.encode()),
                ("DEL", metadata.JOINING),
                ("EXEC",),
                ("SELECT", 0),
            ]
        )
        crash_point("join-finished")

    async def _call_there(self, commands: list[Words]) -> Replies:
        replies = await self._call([("SELECT", self._db), *commands, ("SELECT", 0)])
        return replies[1:-1]

    async def _call(self, commands: list[Words]) -> Replies:
        """Raises ServerError if any reply is an error, or another gateway has taken the server."""
        replies = await self._connection.call(commands)
        for command, reply in zip(commands, replies, strict=True):
            inner = reply if command[0] == "EXEC" and isinstance(reply, list) else [reply]
            failed = [r for r in inner if isinstance(r, Exception)]
            if failed:
                raise ServerError(f"the server refuses {command[0]!r:.40}: {failed[0]}")
            if command[0] == "EXEC" and reply is None:
                raise ServerError("another gateway is taking over this server")
        return replies


class Arriving(Joining):
    """The attempts to join, one after another.

    told: called with the number of keys copied, and the total; keys that change meanwhile count more than once.
    leave_out: names of types that the copy may lack; None allows all, for a member that comes back.
    ask_first: a contact that refused an earlier start for types that it leaves out, or "".
    """

    def __init__(
        self,
        channel: Channel,
        writer: Writer,
        told: Progress,
        leave_out: Collection[str] | None,
        ask_first: str = "",
    ) -> None:
        super().__init__(channel, effects.READS)
        self.source: str = ask_first
        self.ask_first: str = ask_first
        """Empty as soon as that contact has reported what it leaves out."""
        self.refused_by: str = ""
        """The contact that leaves out types that the operator did not name."""
        self.ending: Ending | None = None
        """The ending of the last attempt, if it succeeded."""
        self.left_out: dict[str, int] = {}
        """Keys of the last attempt's contact that the copy lacks, by type."""
        self.patterns: Sequence[bytes] = ()
        """Of the keys that the group leaves out, by the last attempt's contact."""
        self._leave_out = leave_out
        self._writer = writer
        self._told = told
        self._contact = ""
        self._process = b""
        self._place = 0
        self._keys = 0

    async def through(self, link: Link, wish: Wish) -> tuple[bytes, JoinerEntry]:
        """See `Joining.through`; the copy is not returned, it is in the server. Raises ServerError if writing it
        fails.
        """
        self._use(link)
        self._contact = link.name
        self.ending = None
        if link.peer.process != self._process:  # otherwise continue where the link broke
            self._begin_anew()
            self._process = link.peer.process
        self.source = self.ask_first
        try:
            while not await self._next_slice():
                pass
            await self._writer.asking(wish.base)
            self.asked = True
            self.ending = Ending.decode(await self._fetcher.get(self._admit(wish)))
        except ContactLostError:
            self.source = link.name
            raise
        return b"", unpack_entry(self.ending.entry)

    def _begin_anew(self) -> None:
        """Start again: drop what the contact may have begun for us on this link."""
        self._place = self._keys = 0
        self._fetcher.say(Fetch(FORGET, 0))

    async def _next_slice(self) -> bool:
        """Take the next slice. Returns whether enough is copied to ask to join."""
        slice_ = Slice.decode(await self._fetcher.get(self._copying()))
        if slice_.place == 0:
            self._check(slice_.left_out)
            self.patterns = slice_.patterns
            self._place = self._keys = 0
            await self._writer.begin()
        elif slice_.place == self._place - 1:
            return slice_.done  # it came before, but the contact could not know that
        elif slice_.place != self._place:
            self._begin_anew()
            raise NotReadyError("a slice of the copy is missing")
        self._place += 1
        await self._writer.write(slice_.rows)
        self._keys += sum(row.part is None for row in slice_.rows)
        self._told(self._keys, max(slice_.total, self._keys))
        return slice_.done

    def _check(self, left_out: dict[str, int]) -> None:
        """Raises ConfigurationError, before any change at this member, if the copy would lack types that the operator
        did not name. Then no other member may be tried silently, even one without such keys.
        """
        self.left_out = left_out
        if self._contact == self.ask_first:
            self.ask_first = ""
        unsaid = [] if self._leave_out is None else sorted(left_out.keys() - set(self._leave_out))
        if unsaid:
            self.refused_by = self._contact
            options = " ".join(f"--leave-out {kind}" for kind in unsaid)
            raise ConfigurationError(
                f"{self._contact} holds data that is not replicated, which this server would "
                f"lack: {described(left_out)}: remove it at that server's own port, or start this "
                f"gateway with {options}. Nothing was changed"
            )


def stored_state(group: str, name: str, entry: JoinerEntry, clock: int) -> StoredState:
    """The state with which an admitted joiner starts."""
    state = entry.state
    return StoredState(
        group=group,
        name=name,
        incarnation=entry.incarnation,
        members=tuple(sorted({name_of(member.incarnation) for member in state.members})),
        counter=state.vector.get(entry.incarnation, 0),
        vector=dict(state.vector),
        context=state.context,
        stable=dict(state.stable),
        clock=clock,
        order=len(state.unstable),
        level=max(state.view.level, state.agreed),
        founding=entry.group_id,
        membership=metadata.pack_membership(state),
    )
