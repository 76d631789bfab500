"""The lives of one member: how it comes into its group, goes on from a journal, ends, and comes back under a
new incarnation.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import trio

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, GroupState, How, Parked, Standing
from crdtcast.engine.founding import Begun
from crdtcast.exceptions import (
    ConfigurationError,
    CrdtcastError,
    EndedError,
    LocalProtocolError,
    RolledBackError,
)
from crdtcast.group.broadcast import Broadcasting
from crdtcast.group.events import Evicted, Joined
from crdtcast.group.founding import GroupFounding
from crdtcast.group.join_client import JoinClient
from crdtcast.group.join_server import JoinServer
from crdtcast.group.journaling import MemberJournal, Resumed
from crdtcast.group.limits import Bound
from crdtcast.group.reissue import Reissue
from crdtcast.group.status import change_wanted, turnover
from crdtcast.journal.deciding import asks_first, is_whole
from crdtcast.wire.offers import Progress
from crdtcast.wire.state import Entry, Happened


class Living(Broadcasting):
    """Of a `Member`, which makes what is declared here."""

    witness: bool
    parked: Parked | None
    is_over: bool
    """Whether its incarnation has ended, and it is on its way back."""
    _logger: logging.Logger
    _started: bool
    _catching_up: bool
    _contact: JoinServer
    _entering: JoinClient
    _returning: Reissue
    _recording: MemberJournal | None
    _founding: GroupFounding | None
    _bound: Bound
    _news: deque[Evicted | Joined]
    _members: tuple[str, ...]
    _change_told: str
    _standing: Standing
    _is_leaving: bool
    _asks_first: bool
    """Whether it had left before this process started, and does not know whether the others know that."""
    _join_scope: trio.CancelScope
    _left: trio.Event
    _changed: trio.lowlevel.ParkingLot
    _looked: trio.lowlevel.ParkingLot

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Only until there is an engine: later it is an attribute like any other, and costs nothing."""
            if name == "engine":
                raise self.why_outside()
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def why_outside(self) -> CrdtcastError:
        """The error of a member that is outside its group: it waits for other founders, or its links are closed."""
        if self._founding is not None and not self._closed:
            return self._founding.why_not()
        return self._is_over()

    def _new_engine(self, me: str, state: GroupState) -> GroupEngine:
        if self._recording is None:
            return GroupEngine(me, state)
        return self._recording.new_engine(me, state)

    @property
    def group(self) -> str:
        return self.channel.group

    @property
    def incarnation(self) -> str:
        """This member's id now. It changes when it comes back from an eviction."""
        return self.engine.me

    @property
    def standing(self) -> Standing:
        """What this incarnation is, as far as it knows."""
        return self.engine.standing

    @property
    def kept_out(self) -> str | None:
        """Why this member is not let in again, if it is on its way back and others have said why not."""
        return None if self.standing.can_send else self._entering.kept_out

    async def ready(self) -> None:
        """Return when this member can send: at once, unless its group has not begun, or it is on its way back after an
        eviction.

        EndedError: it has left.
        """
        await self.begun()
        while self._closed or self._is_leaving or self._catching_up or not self.standing.can_send:
            if self._closed:
                raise self._is_over()
            await self._changed.park()

    async def begun(self) -> None:
        """Return when this is, or was, a member: once all founders have been up at the same time.

        EndedError: its links are closed before that.
        """
        await trio.lowlevel.checkpoint()
        while not self._started:
            if self._closed:
                raise self._is_over()
            await self._changed.park()

    # Coming and going

    def found(self, founders: Collection[str] = ()) -> None:
        """Found a new group, with these others; or go on, if there is a journal with a former life.

        Where there are others this returns before the group has begun: see `begun`. If the group has begun without this
        process, it joins that in its name's place.
        """
        recording = self._recording
        if recording is not None and self._resume(recording, recording.load()):
            return
        self._founding = GroupFounding(
            self.channel, founders, witness=self.witness, logger=self._logger
        )
        if isinstance(begun := self._founding.outcome_now, Begun):
            self._begin_as(begun)
        else:
            self.channel.shared.spawn(self._await_founding)

    async def _await_founding(self) -> None:
        assert self._founding is not None
        outcome = await self._founding.outcome()
        if self._closed:
            return
        if isinstance(outcome, Begun):
            self._begin_as(outcome)
            return
        self._logger.info(
            "group %s has started without %s: it joins as that founder's replacement",
            self.group,
            self.name,
        )
        with self._join_scope:
            entered = await self._entering.enter((self.name,), self.witness, copies=self._copies)
            await self._become(*entered)

    def _begin_as(self, begun: Begun) -> None:
        self.channel.group_id = begun.group_id
        engine = self._new_engine(begun.me, GroupEngine.first_state(begun.members, begun.level))
        engine.resumed = False
        self._begin(engine)

    async def join(
        self,
        *,
        replace: bool = False,
        replaces: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """Join the group through any of its members that is linked; return when this is a member. With
        a journal that holds a former life, go on from that.

        replace: take the place of a member of the same name, which is evicted: an earlier life of
            this node. replaces: of these members, by name or incarnation id, which are lost, by the
            operator's word; one that is alive is not replaced. progress: called with the bytes that
            are copied, and of how many.

        Raises HandshakeError if no member lets this one in, with the reason; EndedError if it has
        left, or its links are closed; what the machine raises when it is given the group's state:
        this member has left the group again then.
        """
        if self._closed:
            raise self._is_over()
        if self._started:
            raise LocalProtocolError(
                f"{self.incarnation} is already in group {self.group!r}: use it, or leave first"
            )
        if progress is not None:
            self._entering.report_to(progress)
        lost = (*((self.name,) if replace else ()), *replaces)
        if self._recording is not None:
            resumed = await self._recording.load_aside()
            if self._resume(self._recording, resumed):
                await self.ready()
                return
            if not self.channel.options.peers:
                self._recording.close()
                raise ConfigurationError(
                    f"the journal of {self.name!r} in group {self.group!r} is empty: set "
                    "found=True (--found) for the first member of a new group, or "
                    "join='host:port' (--join host:port) with the address of any member"
                )
            lost += self._recording.asked
        with self._join_scope:
            await self._become(*await self._entering.enter(lost, self.witness, copies=self._copies))
        if self._closed:
            raise self._is_over()

    @property
    def _copies(self) -> bool:
        return self._machine is not None and not self.witness

    async def leave(self) -> None:
        """Leave the group, in order: return when enough others have all that this member has, the group has decided
        it, and a majority of those who vote from then on knows that.

        Nothing can be sent from the call on. What it still has to send again after an eviction goes out first, and the
        last member lets those in again whom it has put out, if they are there.

        Those it waits for may be gone for good, so give it a `trio.move_on_after`. If that ends it, `has_left` says
        whether it was decided. If not, the others take this member for dead; what only it had is in its journal, from
        which the next start sends it again under a new id, or lost.
        """
        if (self._closed and not self._left.is_set()) or not self._started:
            raise self._is_over()
        self._is_leaving = True
        try:
            while (self._sends_again or self._is_awaited) and not self._closed:
                await self._looked.park()
            if self.standing.can_send and not self._closed:
                self.engine.leave()
                self._tell()
            while not self._left.is_set():
                if self._closed:
                    raise self._is_over()
                await self._changed.park()
        finally:
            self._end()
            if self._recording is not None and self._left.is_set():
                await self._recording.closed.wait()

    @property
    def has_left(self) -> bool:
        """Whether the group has decided that this member has left; others may not know it yet."""
        engine = self.engine
        return self._left.is_set() or (engine.wants.leaves and engine.me not in engine.going_on())

    @property
    def _is_awaited(self) -> bool:
        """Whether those whom it has put out are there and on their way back, and nobody else could let them in."""
        engine = self.engine
        if not self.standing.can_send:
            return False
        gone = {*engine.wants.victims, *engine.tombs}
        for who in engine.going_on():
            if who not in gone and who != engine.me and not engine.members[who].witness:
                return False
        up = self.channel.shared.links().up
        return any(name_of(who) in up for who in gone)

    @property
    def _sends_again(self) -> bool:
        """Whether it is back after an eviction, and what it had said before goes out once more."""
        is_member = self.standing is Standing.MEMBER and not self.is_over
        return is_member and self.parked is not None

    # One life

    @property
    def is_outside(self) -> bool:
        """Whether it never was a member."""
        return not self._started

    def _begin(self, engine: GroupEngine) -> None:
        self.engine = engine
        if self._recording is not None:
            self._recording.begin_anew()
        self._operations = {message.dot for message in engine.state().unstable if message.kind}
        self._standing = Standing.MEMBER
        self.channel.on_work = self._wake
        self.channel.start(engine)
        self._begun()
        self._look()
        self._work.unpark_all()
        self._changed.unpark_all()

    def _begun(self) -> None:
        if not self._started:
            self._started = True
            if self._machine is not None or self.witness:
                self.channel.shared.spawn(self._pump)

    async def _become(self, copy: bytes, entry: Entry) -> None:
        """Be a member as the contact has said, with its application's state; or leave at once, if the
        application does not take that.
        """
        self._stable.clear()
        self._contact.clear()
        self.engine = self._new_engine(entry.incarnation, entry.state)
        self.is_over = self._asks_first = False
        if self._recording is not None:
            self._recording.is_member()
        try:
            if self._copies:
                self._catch_up(copy, entry.since)
        except Exception as error:
            await self._withdraw(error)
            raise
        self._begin(self.engine)

    def _resume(self, recording: MemberJournal, resumed: Resumed | None) -> bool:
        """Go on from the journal: as the same incarnation, or as a new one if that one is not all
        there. Whether it holds a former life.
        """
        if resumed is None or not resumed.saved.incarnation:
            return False
        saved = resumed.saved
        try:
            same = is_whole(saved, resumed.damage, has_machine=self._machine is not None)
            self.witness = saved.witness
            self.parked = saved.parked
            self.channel.group_id = saved.group_id
            self.channel.shared.learn(saved.life.addresses)
            engine = self._new_engine(saved.incarnation, saved.state)
            if saved.application is not None:
                self._catch_up(saved.application, resumed.since)
        except BaseException:
            recording.close()
            raise
        if same:
            self._begin(engine)
            self.channel.shared.spawn(self._returning.send_again)
        elif asks_first(saved, resumed.damage):
            self._asks_first = True
            self._begin(engine)
        else:
            self.engine = engine
            self._goes_on_anew(resumed.damage)
            self._end_incarnation(parks=not saved.life.over)
            recording.begin_anew()
        return True

    def _goes_on_anew(self, reason: str) -> None:
        """This incarnation may not say anything any more: something of it is missing here."""
        self.engine.renounce()
        self._standing = Standing.EVICTED
        self._begun()
        if reason:
            self._logger.error(
                "the journal of %s in group %s is incomplete (%s): it joins again under a new "
                "id, and sends again what the group does not have",
                self.engine.me,
                self.group,
                reason,
            )

    def _rolled_back(self, error: RolledBackError) -> None:
        self._goes_on_anew(str(error))
        self._end_incarnation(parks=True)

    def _catch_up(self, copy: bytes, since: Sequence[Happened]) -> None:
        assert self._machine is not None
        self._catching_up = True
        try:
            self._machine.set_state(copy)
            for happened in since:
                if happened.payload is None:
                    self._machine.tcstable(happened.tag)
                else:
                    self._machine.tcdeliver(happened.payload, happened.tag)
        finally:
            self._catching_up = False

    async def _withdraw(self, error: Exception) -> None:
        """The group has let this member in, and must not wait for it."""
        self._logger.error(
            "%s leaves group %s: its state machine failed on the group's state: %s",
            self.incarnation,
            self.group,
            error,
        )
        self._machine = None
        is_pumped = self._started
        self._begin(self.engine)
        self.is_over = True  # a process that starts from this journal joins anew
        if not is_pumped:
            self.channel.shared.spawn(self._pump)  # it can only leave if it takes what comes
        with (
            suppress(EndedError),  # its links are closed meanwhile
            trio.move_on_after(self.channel.options.handshake_timeout, shield=True),
        ):
            await self.leave()

    def end(self) -> None:
        """(For `Host`.)"""
        super().end()
        if self._recording is not None:
            self._recording.close()
        self._join_scope.cancel()
        self._changed.unpark_all()
        self._looked.unpark_all()

    def _end(self) -> None:
        if not self._closed:
            self.channel.flush()
            self.channel.close()
            self.end()

    def _wake(self) -> None:
        super()._wake()
        self._look()

    def _tell(self) -> None:
        super()._tell()
        self._look()

    def _look(self) -> None:
        """What has the engine made of what it got?"""
        engine = self.engine
        if (wanted := change_wanted(engine)) != self._change_told:
            self._change_told = wanted
            if wanted:
                self._logger.info("%s", wanted)
        members = tuple(engine.members)
        if members != self._members:
            names, before = set(map(name_of, members)), set(map(name_of, self._members))
            if before:
                for line in turnover(engine, self._members, self.group):
                    self._logger.info("%s", line)
            self._members = members
            # Who was cut off by force may have done the same: somebody has to dial, to find that out.
            forced = {name_of(x) for x, cut in engine.tombs.items() if cut.how is How.FORCED}
            for name in before - names - forced:
                self.channel.shared.unwant(name)
            self._changed.unpark_all()
        for name in map(name_of, members):
            if name not in self.channel.here:
                self.channel.shared.want(name)
        self._returning.look()
        if holders := self._bound.look(engine, set(self.channel.here)):
            self._bound.evicts(engine, holders)
            self.channel.flush()
        self._looked.unpark_all()
        if (standing := engine.standing) is not self._standing:
            self._standing = standing
            self._changed.unpark_all()
            self._logger.info("%s in group %s: %s", engine.me, self.group, standing.value)
            if standing is Standing.LEAVING and self._asks_first:
                self._logger.warning(
                    "%s has left group %s, not confirmed: it asks whether the others know, then "
                    "joins again",
                    engine.me,
                    self.group,
                )
            elif standing is Standing.LEFT and self._asks_first and not self._is_leaving:
                self._logger.warning(
                    "%s has left group %s, and the others know: it joins again",
                    engine.me,
                    self.group,
                )
                self._end_incarnation(parks=True)
            elif standing is Standing.LEFT:
                self._left.set()
                if self._recording is not None:
                    self._recording.finish(keeps=self.parked is not None)
                self._end()
            elif standing is Standing.EVICTED:
                self._was_evicted()
            elif standing is Standing.DISPUTED:
                self._logger.warning(
                    "group %s is disputed: this side and another one have evicted each other, at "
                    "least one of them by force: decide which side goes on, and let the "
                    "members of the other side surrender",
                    self.group,
                )
            elif self._standing is Standing.SPLIT:
                self._logger.error(
                    "%s cannot change the members: %s", engine.me, engine.told_of_split()
                )

    def _was_evicted(self) -> None:
        self._logger.warning(
            "%s was evicted from group %s, and joins again", self.engine.me, self.group
        )
        self._end_incarnation(parks=True)

    def _end_incarnation(self, *, parks: bool) -> None:
        """It is over: what it has to send again is put aside, before anything else happens."""
        engine = self.engine
        self._news.append(Evicted(engine.me))
        self._contact.clear()
        if parks and not self.witness:
            self.parked = Parked.of(engine.state(), engine.me, self.parked)
        self.is_over = True
        self._work.unpark_all()
        self.channel.shared.spawn(self._come_back)

    async def _come_back(self) -> None:
        """Join again under a new incarnation that replaces this one; then send again."""
        replaces: tuple[str, ...] = (self.engine.me,)
        if self._recording is not None:
            replaces += self._recording.asked
            await self._recording.synced()
        entered = await self._entering.enter(
            replaces, self.witness, copies=self._copies, for_ever=True
        )
        if self._closed:
            return
        await self._become(*entered)
        self._news.append(Joined(self.engine.me))
        self._work.unpark_all()
        await self._returning.send_again()
        if self._is_leaving and self.standing is Standing.MEMBER:
            self.engine.leave()
            self._tell()

    def _is_over(self) -> EndedError:
        if not self._started:
            return EndedError(f"{self.name} was never in group {self.group!r}: join it first")
        if self._is_leaving or self.standing is Standing.LEFT:
            what = f"{self.engine.me} is leaving group {self.group!r}, or has left it"
        else:
            what = f"{self.engine.me} is no longer a member of group {self.group!r}"
        return EndedError(
            f"{what}: open the group again (`open_member`, or `join` of the host) to continue as "
            "a new incarnation"
        )
