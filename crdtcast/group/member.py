"""One member of a group, as programs see it. What the group agrees on is
`GroupEngine`'s matter; `group/lifecycle.py` lets it happen on links.

With a journal (`crdtcast.group.journaling`) it survives its process.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import trio

from crdtcast.causality.member_id import member_named, name_of
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import MemberInfo, Parked, Standing
from crdtcast.exceptions import (
    EndedError,
    LocalProtocolError,
    NotReadyError,
    StoreFullError,
)
from crdtcast.group.events import Delivered, Event, Evicted, Joined, Stable
from crdtcast.group.join_client import JoinClient
from crdtcast.group.join_server import JoinServer
from crdtcast.group.journaling import COMPACT_BYTES, MemberJournal, Observer
from crdtcast.group.lifecycle import Living
from crdtcast.group.limits import Bound, Limits
from crdtcast.group.reissue import Reissue
from crdtcast.group.state_machine import StateMachine, checked
from crdtcast.journal import FileJournal, Journal
from crdtcast.journal.spill import Spill
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import Fetch
from crdtcast.wire.state import Happened


class Member(Living):
    """One member of a group. Iterate over it for events, or pass a state machine.

    `tcbroadcast` raises EndedError once this incarnation is leaving, has left or was evicted (see `ready`), and
    NotReadyError inside a state machine that is receiving the past of the group.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        machine: StateMachine | None = None,
        witness: bool = False,
        journal: Journal | None = None,
        compact_bytes: int = COMPACT_BYTES,
        limits: Limits | None = None,
        observer: Callable[["Member"], Observer] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(channel)
        self._founding = None
        self.witness = witness
        self.parked: Parked | None = None
        self.is_over = False
        self._logger = logger or logging.getLogger("crdtcast.group")
        self._machine = checked(machine, channel.name)
        self._started = False
        self._catching_up = False
        self.refused_writes = 0
        """Since it began, because it is not, or no more, in a place to send."""
        self._contact = JoinServer(self, self._answer)
        self._entering = JoinClient(channel, self._logger)
        self._returning = Reissue(self)
        self._news: deque[Evicted | Joined] = deque()
        self._members: tuple[str, ...] = ()
        self._change_told = ""
        self._standing = Standing.MEMBER
        self._is_leaving = self._asks_first = False
        self._join_scope = trio.CancelScope()
        self._left = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._looked = trio.lowlevel.ParkingLot()
        channel.on_asked = self._asked
        channel.on_gone = self._gone
        self._bound = Bound(limits or Limits(), self._logger)
        self._recording: MemberJournal | None = None
        if journal is not None:
            spill = None
            if isinstance(journal, FileJournal):
                spill = Spill(journal.path, self._bound.limits.memory_bytes)
            self._recording = MemberJournal(
                journal, self, spill=spill, compact_bytes=compact_bytes, observer=observer
            )
            self._entering.before_asking = self._recording.asks
            channel.on_rolled_back = self._rolled_back

    # Who is in the group

    @property
    def members(self) -> dict[str, MemberInfo]:
        """The members by name, as of the messages delivered here; this one included until it leaves. Of a member that
        is about to be replaced, only its successor is named.
        """
        found: dict[str, MemberInfo] = {}
        for incarnation, member in sorted(self.engine.members.items()):
            found[name_of(incarnation)] = member
        return found

    async def changed(self) -> None:
        """Return when `members` or `standing` has changed. `while not condition(): await member.changed()` misses no
        change.

        Raises EndedError if this member has left, or its host is closed.
        """
        if self._closed:
            raise self._is_over()
        await self._changed.park()

    async def wait_established(self) -> None:
        """Return when every member's join is stable here, so that all know each other, and each has a vote."""
        await self.wait_until(
            lambda: self.engine.established == self.engine.members.keys() == self.engine.view.voters
        )

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition()` is true; it is checked whenever this member makes progress.

        Raises EndedError if this member has left, or its host is closed.
        """
        await trio.lowlevel.checkpoint()
        while not condition():
            if self._closed:
                raise self._is_over()
            await self._looked.park()

    def cut(self, name: str) -> None:
        """Close the link with the process of that name, for all groups, until `heal`; for operators and tests."""
        self.channel.shared.cut(name)

    def heal(self, name: str) -> None:
        """Undo `cut`."""
        self.channel.shared.heal(name)

    def fullness(self) -> str | None:
        """Return why the limit for unstable data refuses new messages; None if there is room."""
        try:
            self._bound.check(self.engine)
        except StoreFullError as error:
            return str(error)
        return None

    def evict(self, *members: str, force: bool = False) -> None:
        """Ask the group to remove dead or unreachable members, in one change.

        members: names or incarnation ids.
        force: evict without a majority. If the members are alive behind a cut and do the same, the group splits, and
            one side must be given up (`surrender`).

        The group decides when all other members have answered and a majority of the voters agrees, including those to
        be removed. The request stays until then, also over restarts, or until `withdraw`.

        Raises LocalProtocolError if a name is unknown or this member's own, or if no member with data would remain.
        """
        victims = [member_named(each, self.engine.evictable, self.group) for each in members]
        self.engine.evict(*victims, force=force)
        self._tell()
        self._look()

    def withdraw(self, *members: str) -> None:
        """Take back requests of `evict`; all of them, if no member is named.

        Raises LocalProtocolError if this member has not asked to evict one of them.
        """
        self.engine.withdraw(*members)
        self._tell()
        self._look()

    def raise_level(self, level: int) -> None:
        """Ask for a higher format level of the group. When it is in force, all members must run programs that read it.

        Raises LocalProtocolError if some member does not read it, or if there is nothing to raise.
        """
        self.engine.raise_level(level)
        self._tell()
        self._look()

    def surrender(self) -> None:
        """Give up this side after a mutual forced eviction, by the operator's word. This member joins the other side
        again, like an evicted one.
        """
        self.engine.surrender()
        self._look()

    @property
    def is_in_memory(self) -> bool:
        """Whether it has no journal, so that its data is lost with its process."""
        return self._recording is None

    async def wait_durable(self) -> None:
        """Return when everything that this member has sent and delivered so far is in its journal, so that it survives
        a power loss of this machine.

        Raises LocalProtocolError if there is no journal. JournalError ends the member.
        """
        if self._recording is None:
            raise LocalProtocolError(
                f"{self.name!r} has no journal, so nothing becomes durable: open it with "
                "journal=…, or use wait_delivered"
            )
        await self._recording.synced()

    # Events

    def tcbroadcast(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """See `Broadcasting.tcbroadcast`, and the errors above."""
        try:
            return self._broadcast(payload, after)
        except (NotReadyError, EndedError, StoreFullError):
            self.refused_writes += 1
            raise

    def _broadcast(self, payload: bytes, after: Sequence[Tag] | None) -> Tag:
        if not self._started:
            raise self.why_outside()
        if self._catching_up:
            raise NotReadyError(
                f"cannot send yet: {self.engine.me} is receiving the state of group {self.group!r}"
            )
        if not self._closed:
            standing = self.engine.standing
            is_put_out = standing is Standing.LEAVING and not self._is_leaving
            if is_put_out or standing is Standing.EVICTED:
                raise EndedError(
                    f"cannot send: {self.engine.me} was evicted from group {self.group!r} and is "
                    "joining again: send when `ready` returns"
                )
            if self._is_leaving or standing is Standing.LEAVING:
                raise self._is_over()
            self._bound.check(self.engine)
        tag = super().tcbroadcast(payload, after=after)
        if self._bound.warns(self.engine):
            self._look()
        return tag

    def _take(self) -> Event | None:
        if self._news:
            return self._news.popleft()
        return super()._take() if self._started else None  # its group may not have begun

    def _happened(self, event: Event) -> None:
        if self._contact.is_busy and isinstance(event, Delivered | Stable):
            payload = event.payload if isinstance(event, Delivered) else None
            self._contact.happened(Happened(event.tag, payload))
        super()._happened(event)

    def send_again(self, payload: bytes) -> Tag:
        """(For `Reissue`.) Send without telling anybody yet; `delivered_again` comes next."""
        return self.engine.send(payload)

    def delivered_again(self, payload: bytes, tag: Tag) -> None:
        """(For `Reissue`.) The new dot has been noted: it may go out."""
        self._happened(Delivered(payload, tag))
        self._tell()

    def instead_of(self, payload: bytes, dot: Dot) -> bytes | None:
        """(For `Reissue`.) What the application wants to go out in the place of that."""
        return payload if self._machine is None else self._machine.reissue(payload, dot)

    def look_again(self) -> None:
        """(For `Replica`.) What the application was not ready to send again it may be ready for now."""
        self._returning.look()

    def lost(self, origin: str, beyond: int) -> None:
        """(For `Reissue`.) The group has only so many messages of that former incarnation."""
        text = (
            f"{origin} was evicted before this message was in group {self.group!r}; it is sent "
            "again"
        )
        self._waits.fail(origin, beyond, EndedError(text))

    # Others that join

    def _asked(self, link: Link, frame: InGroup) -> None:
        if not isinstance(frame, Copy | Admit | Fetch):
            self._entering.heard(link, frame)
        elif self._started:
            self._contact.asked(link, frame)

    def _gone(self, link: Link) -> None:
        self._entering.gone(link)
        if self._founding is not None:
            self._founding.gone(link)
        self._contact.gone(link)

    def _answer(self, link: Link, frame: InGroup) -> None:
        send = partial(self.channel.send_to, [link.name], frame)
        if self._recording is None:
            send()
        else:
            self._recording.later(send)  # what it tells of may not be durable yet

    def application_state(self) -> bytes | None:
        """(For `JoinServer`.) What a joiner gets; None without a machine. Raises what that raises."""
        if self._machine is None:
            return None
        self.settle()
        state = self._machine.get_state()
        if not isinstance(state, bytes):
            raise LocalProtocolError(
                f"{type(self._machine).__name__}.get_state of {self.name} returned "
                f"{type(state).__name__}: return bytes; `set_state` of a joining member receives "
                "them"
            )
        return state

    def machine_failed(self, error: Exception) -> None:
        """(For `JoinServer`.) The node ends with that error, once what was just answered is on its way."""

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise error

        self.channel.shared.spawn(fail)

    def settle(self) -> None:
        """(For `JoinServer`.) Let the machine have what was polled for it."""
        while self._machine is not None and self._stable:
            self._happened(Stable(self._stable.popleft()))
