"""The lives of one member: how it comes into its group, continues from a journal, ends, and comes back under a new
incarnation. The table is `crdtcast.group.phase`.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import trio

from crdtcast.causality.member_id import name_of, valid_incarnation, valid_name
from crdtcast.engine import GroupEngine, GroupState, How, Parked, Standing
from crdtcast.engine.delivery_waits import Waits
from crdtcast.engine.founding import Begun
from crdtcast.eventlog.durable_log import Logged
from crdtcast.exceptions import (
    ConfigurationError,
    CrdtcastError,
    EndedError,
    LocalProtocolError,
    RolledBackError,
    TransitionError,
)
from crdtcast.group.application import Application
from crdtcast.group.events import Evicted, Joined
from crdtcast.group.founding import GroupFounding
from crdtcast.group.join_client import JoinClient
from crdtcast.group.join_server import JoinServer
from crdtcast.group.journaling import COMPACT_BYTES, JournalObserver, MemberJournal, Resumed
from crdtcast.group.limits import Bound, Limits
from crdtcast.group.phase import ENDED, TRANSITIONS, MemberEvent, MemberPhase, refusal
from crdtcast.group.reissue import Reissue
from crdtcast.group.state_machine import StateMachine
from crdtcast.group.status import change_wanted, turnover
from crdtcast.journal import FileJournal, Journal
from crdtcast.journal.restart_decision import asks_first, is_whole, may_have_left, staying
from crdtcast.journal.spill import Spill
from crdtcast.phases import Lifecycle
from crdtcast.short_repr import shown
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import Fetch
from crdtcast.wire.offers import Progress
from crdtcast.wire.state import JoinerEntry

_logger = logging.getLogger("crdtcast.group")
_SEEN = {
    (MemberPhase.MEMBER, Standing.LEAVING): MemberEvent.PUT_OUT,
    (MemberPhase.MEMBER, Standing.EVICTED): MemberEvent.OVER,
    (MemberPhase.LEAVING, Standing.EVICTED): MemberEvent.OVER,
    (MemberPhase.LEAVING, Standing.LEFT): MemberEvent.GONE,
    (MemberPhase.WITHDRAWING, Standing.EVICTED): MemberEvent.GONE,
    (MemberPhase.WITHDRAWING, Standing.LEFT): MemberEvent.GONE,
    (MemberPhase.EVICTED, Standing.EVICTED): MemberEvent.OVER,
    (MemberPhase.EVICTED, Standing.LEFT): MemberEvent.OVER,
}
"""The event for a member in a phase when its engine reaches a standing."""


class MemberLife(Lifecycle[MemberPhase, MemberEvent]):
    """Moves one member from phase to phase. `Member` is its public side."""

    def __init__(
        self,
        channel: Channel,
        *,
        machine: StateMachine | None = None,
        witness: bool = False,
        journal: Journal | None = None,
        compact_bytes: int = COMPACT_BYTES,
        limits: Limits | None = None,
        observer: Callable[[Logged], JournalObserver] | None = None,
    ) -> None:
        super().__init__(TRANSITIONS, MemberPhase.OUTSIDE)
        self.channel = channel
        self.application: Application = Application(
            channel, machine, witness=witness, is_over=lambda: self.phase in ENDED, tell=self.tell
        )
        self.waits: Waits = Waits(lambda: self.engine)
        self.reissue: Reissue = Reissue(
            channel, self.application, tell=self.tell, lost=self.waits.fail
        )
        self.bound: Bound = Bound(limits or Limits(), _logger)
        self.changed: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        """Wakes tasks that wait for other members, or for another phase or standing."""
        self.looked: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        """Wakes tasks that wait for any progress of the engine."""
        self.journal: MemberJournal | None = None
        self._founding: GroupFounding | None = None
        self._join_client = JoinClient(channel, _logger)
        self._join_server = JoinServer(
            channel, self.application, self._answer, in_memory=journal is None
        )
        self._join_scope = trio.CancelScope()
        self._leaves = False
        """Whether `leave` was called. If an eviction comes first, the member leaves once it is back."""
        self._members: tuple[str, ...] = ()
        self._change_told = ""
        self._standing = Standing.MEMBER  # as last seen
        channel.on_work = self._wake
        channel.on_asked = self._asked
        channel.on_gone = self._gone
        if journal is not None:
            spill = None
            if isinstance(journal, FileJournal):
                spill = Spill(journal.path, self.bound.limits.memory_bytes)
            self.journal = MemberJournal(
                journal,
                channel,
                self.application,
                lambda: self.parked,
                spill=spill,
                compact_bytes=compact_bytes,
                observer=None if observer is None else observer(self),
            )
            self._join_client.before_asking = self.journal.asks
            channel.on_rolled_back = self._rolled_back

    @property
    def name(self) -> str:
        return self.channel.name

    @property
    def group(self) -> str:
        return self.channel.group

    @property
    def engine(self) -> GroupEngine:
        """The engine of the current or last incarnation. Raises the error of `refusal` if there never was one."""
        engine = self.application.engine
        if engine is None:
            raise self.refusal()
        return engine

    @property
    def parked(self) -> Parked | None:
        """The messages that it must send again."""
        return self.reissue.parked

    @property
    def kept_out(self) -> str | None:
        """See `Member.kept_out`."""
        return self._join_client.kept_out if self.phase is MemberPhase.REJOINING else None

    def refusal(self) -> CrdtcastError:
        """The error of sending in this phase, which is not MEMBER."""
        if self.phase is MemberPhase.FOUNDING and self._founding is not None:
            return self._founding.why_not()
        return self._refusal(self.phase)

    def check_going_on(self) -> None:
        """Raises EndedError if it has ended: nothing can be asked of the group any more."""
        if self.phase in ENDED:
            raise self.refusal()

    def put_out(self) -> CrdtcastError:
        """The error of sending in phase MEMBER when the engine already knows that it was evicted."""
        return self._refusal(MemberPhase.EVICTED)

    def _refusal(self, phase: MemberPhase) -> CrdtcastError:
        engine = self.application.engine
        me = None if engine is None else engine.me
        return refusal(phase, name=self.name, group=self.group, me=me)

    def move(self, event: MemberEvent) -> MemberPhase:
        """See `Lifecycle.move`; also wakes waiting tasks."""
        try:
            phase = super().move(event)
        except TransitionError as error:
            raise TransitionError(f"{self.name!r} in group {self.group!r}: {error}") from None
        self.changed.unpark_all()
        return phase

    async def begun(self) -> None:
        """See `Member.begun`."""
        await trio.lowlevel.checkpoint()
        while self.application.engine is None:
            if self.phase in ENDED:
                raise self.refusal()
            await self.changed.park()

    async def ready(self) -> None:
        """See `Member.ready`."""
        await self.begun()
        while not (self.phase is MemberPhase.MEMBER and self.engine.standing.can_send):
            if self.phase in ENDED:
                raise self.refusal()
            await self.changed.park()

    # Coming and going

    def found(self, founders: Collection[str], progress: Progress | None) -> None:
        """See `Member.found`."""
        self._check_outside()
        if progress is not None:
            self._join_client.report_to(progress)
        if self.journal is not None and self._resume(self.journal, self.journal.load()):
            return
        if self.application.witness and set(founders) <= {self.name}:
            raise ConfigurationError(
                f"{self.name!r} cannot found group {self.group!r} alone as a witness: the first member holds data"
            )
        self._founding = GroupFounding(
            self.channel, founders, witness=self.application.witness, logger=_logger
        )
        self.move(MemberEvent.FOUND)
        if isinstance(begun := self._founding.outcome_now, Begun):
            self._begin_as(begun)
        else:
            self.channel.shared.spawn(partial(self._await, self._founding))

    def _check_outside(self) -> None:
        self.check_going_on()
        if self.phase is not MemberPhase.OUTSIDE:
            raise LocalProtocolError(
                f"{self.name} is already in group {self.group!r}, or on its way: use it, or leave first"
            )

    async def _await(self, founding: GroupFounding) -> None:
        outcome = await founding.outcome()
        if self.phase in ENDED:
            return
        if isinstance(outcome, Begun):
            self._begin_as(outcome)
            return
        _logger.info(
            "group %s has started without %s: it joins as that founder's replacement",
            self.group,
            self.name,
        )
        self.move(MemberEvent.JOIN)
        await self._enter((self.name,))

    def _begin_as(self, begun: Begun) -> None:
        self.channel.group_id = begun.group_id
        state = GroupEngine.first_state(begun.members, begun.level)
        self.application.follow(self._new_engine(begun.me, state))
        self._begin(MemberEvent.BEGIN)

    async def join(
        self, *, replace: bool, replaces: Iterable[str], progress: Progress | None
    ) -> None:
        """See `Member.join`."""
        self._check_outside()
        if progress is not None:
            self._join_client.report_to(progress)
        lost = (*((self.name,) if replace else ()), *_checked(replaces))
        if (journal := self.journal) is not None:
            resumed = await journal.load_aside()
            if self.phase in ENDED:
                journal.close()
                raise self.refusal()
            if self._resume(journal, resumed):
                await self.ready()
                return
            if not self.channel.options.peers:
                journal.close()
                raise ConfigurationError(
                    f"the journal of {self.name!r} in group {self.group!r} is empty: set "
                    "found=True (--found) for the first member of a new group, or "
                    "join='host:port' (--join host:port) with the address of any member"
                )
        self.move(MemberEvent.JOIN)
        await self._enter(lost)
        if self.phase in ENDED:
            raise self.refusal()

    async def leave(self) -> None:
        """See `Member.leave`."""
        if self.application.engine is None or self.phase is MemberPhase.CLOSED:
            raise self.refusal()
        self._check_data_remains()
        self._leaves = True
        if self.phase in (MemberPhase.MEMBER, MemberPhase.EVICTED):
            self.move(MemberEvent.LEAVE)
        try:
            while self.phase not in ENDED:
                if self._may_go:
                    self.engine.leave()
                    self.tell()
                else:
                    await self.looked.park()
            if self.phase is not MemberPhase.LEFT:
                raise self.refusal()
        finally:
            self._close()
            if self.journal is not None and self.phase is MemberPhase.LEFT:
                await self.journal.closed.wait()

    def _check_data_remains(self) -> None:
        """Raises LocalProtocolError if only witnesses would remain: nobody could ever join them."""
        engine = self.engine
        if self.phase is not MemberPhase.MEMBER or self.application.witness:
            return
        witnesses = set(engine.going_on()) - {engine.me}
        if witnesses and not engine.keeps_data_without({engine.me}):
            raise LocalProtocolError(
                f"{self.name!r} cannot leave group {self.group!r}: only {', '.join(sorted(map(name_of, witnesses)))} "
                "would remain, without any data: let another member that holds data join first, or the others leave "
                "before it"
            )

    @property
    def _may_go(self) -> bool:
        """Whether this is a member that wants to leave, has sent all that it must, and has not asked to leave yet."""
        if not self.engine.standing.can_send:
            return False
        if self.phase is MemberPhase.WITHDRAWING:
            return True
        sends_again = self.engine.standing is Standing.MEMBER and self.parked is not None
        return self.phase is MemberPhase.LEAVING and not sends_again and not self._is_awaited

    @property
    def _is_awaited(self) -> bool:
        """Whether members that this one has evicted are linked and on their way back, and no other member could admit
        them.
        """
        engine = self.engine
        gone = {*engine.wants.victims, *engine.tombs}
        for who in engine.going_on():
            if who not in gone and who != engine.me and not engine.members[who].witness:
                return False
        up = self.channel.shared.links().up
        return any(name_of(who) in up for who in gone)

    @property
    def has_left(self) -> bool:
        """See `Member.has_left`."""
        engine = self.engine
        is_decided = engine.wants.leaves and engine.me not in engine.going_on()
        return self.phase is MemberPhase.LEFT or is_decided

    # One life

    def _new_engine(self, me: str, state: GroupState) -> GroupEngine:
        return (
            GroupEngine(me, state) if self.journal is None else self.journal.new_engine(me, state)
        )

    def _begin(self, event: MemberEvent) -> None:
        """Start to take part as this incarnation."""
        self.move(event)
        if self._leaves and self.phase is MemberPhase.MEMBER:
            self.move(MemberEvent.LEAVE)
        engine = self.engine
        if self.journal is not None:
            self.journal.begin_anew(engine)
        self._standing = Standing.MEMBER
        self.channel.start(engine)
        self.look()
        self.application.wake()

    async def _enter(self, replaces: tuple[str, ...], *, for_ever: bool = False) -> None:
        """Join in place of these incarnations; do nothing more if this is closed meanwhile."""
        application = self.application
        if self.phase in ENDED:
            return
        with trio.CancelScope() as self._join_scope:
            copy, entry = await self._join_client.enter(
                replaces,
                application.witness,
                copies=application.copies,
                asked=() if self.journal is None else self.journal.asked,
                for_ever=for_ever,
            )
            if self.phase not in ENDED:
                await self._become(copy, entry)

    async def _become(self, copy: bytes, entry: JoinerEntry) -> None:
        """Become the member that the contact has admitted, with its application's state. Leave at once if the
        application does not accept that state.
        """
        self.move(MemberEvent.ADMIT)
        self._join_server.clear()
        self.application.follow(self._new_engine(entry.incarnation, entry.state))
        if self.journal is not None:
            self.journal.is_member()
        try:
            if self.application.copies:
                self.application.catch_up(copy, entry.since)
        except Exception as error:
            if self.phase not in ENDED:
                await self._withdraw(error)
            raise
        if self.phase not in ENDED:  # the application may have ended it
            self._begin(MemberEvent.BEGIN)

    async def _withdraw(self, error: Exception) -> None:
        """Leave at once: the group has admitted this member, and must not wait for it."""
        _logger.error(
            "%s leaves group %s: its state machine failed on the group's state: %s",
            self.engine.me,
            self.group,
            error,
        )
        self._begin(MemberEvent.FAIL)
        self.application.machine = None  # events are still taken: otherwise it could not leave
        if self.journal is not None:
            self.journal.ends()
        with (
            suppress(EndedError),  # its links may be closed meanwhile
            trio.move_on_after(self.channel.options.handshake_timeout, shield=True),
        ):
            await self.leave()

    def _resume(self, journal: MemberJournal, resumed: Resumed | None) -> bool:
        """Continue from the journal: as the same incarnation, or as a new one if the journal is incomplete. Returns
        whether it holds a former life.
        """
        if resumed is None or not resumed.saved.incarnation:
            return False
        saved, application = resumed.saved, self.application
        try:
            same = is_whole(saved, resumed.damage, has_machine=application.machine is not None)
            application.witness = saved.witness
            self.reissue.parked = saved.parked
            self.channel.group_id = saved.group_id
            self.channel.shared.learn(saved.life.addresses)
            state = staying(saved.state) if same else saved.state
            engine = self._new_engine(saved.incarnation, state)
            self.move(MemberEvent.RESUME)
            if saved.application is not None:
                application.catch_up(saved.application, resumed.since)
        except BaseException:
            journal.close()
            raise
        if self.phase in ENDED:  # the application has ended it
            return True
        application.follow(engine)
        if same:
            if saved.state.wants.leaves:
                _logger.info(
                    "%s did not leave group %s before it stopped: it continues as a member",
                    engine.me,
                    self.group,
                )
            self._begin(MemberEvent.BEGIN)
            self.channel.shared.spawn(partial(self.reissue.send_again, engine))
        elif asks_first(saved, resumed.damage):
            _logger.warning(
                "%s has left group %s, not confirmed: it asks whether the others know, then "
                "joins again",
                engine.me,
                self.group,
            )
            self._begin(MemberEvent.PUT_OUT)
        else:
            if may_have_left(saved.state):
                _logger.warning(
                    "%s asked group %s to let it leave, and does not know the answer: it joins again "
                    "under a new id, which needs a running member of the group",
                    engine.me,
                    self.group,
                )
            self._renounce(engine, resumed.damage)
            self._end_incarnation(parks=not saved.life.over)
            journal.begin_anew(engine, is_over=True)
        return True

    def _renounce(self, engine: GroupEngine, reason: str) -> None:
        """Stop this incarnation from sending: some of its data is missing."""
        engine.renounce()
        if reason:
            _logger.error(
                "the journal of %s in group %s is incomplete (%s): it joins again under a new "
                "id, and sends again what the group does not have",
                engine.me,
                self.group,
                reason,
            )

    def _rolled_back(self, error: RolledBackError) -> None:
        self._renounce(self.engine, str(error))
        self._end_incarnation(parks=True)

    def _end_incarnation(self, *, parks: bool) -> None:
        """End the incarnation: first park what it must send again."""
        self.move(MemberEvent.OVER)
        engine = self.engine
        self._join_server.clear()
        if parks and not self.application.witness:
            self.reissue.park(engine)
        if self.journal is not None:
            self.journal.ends()
        self.application.hears(Evicted(engine.me))
        self.channel.shared.spawn(self._come_back)

    async def _come_back(self) -> None:
        """Join again as a new incarnation that replaces this one; then send the parked messages again."""
        if self.journal is not None:
            await self.journal.synced()
        await self._enter((self.engine.me,), for_ever=True)
        if self.phase in ENDED:
            return
        engine = self.engine
        self.application.hears(Joined(engine.me))
        await self.reissue.send_again(engine)

    def end(self) -> None:
        """See `Member.end`."""
        if self.phase not in ENDED:
            self.move(MemberEvent.STOP)
        self.waits.end(self.refusal())
        if self.journal is not None:
            self.journal.close()
        self._join_scope.cancel()
        self.application.wake()
        self.changed.unpark_all()
        self.looked.unpark_all()

    async def discard(self) -> None:
        """End after a join that has failed, so that the group can be opened again at once."""
        self.channel.close()
        self.end()
        if self.journal is not None:
            with trio.CancelScope(shield=True):
                await self.journal.stop()

    def _close(self) -> None:
        """Close the channel, after sending the others what this member knows."""
        if self.channel.closed or self.phase is MemberPhase.CLOSED:
            return
        if self.phase is MemberPhase.LEFT and self.journal is not None:
            self.journal.finish(keeps=self.parked is not None)
        self.channel.flush()
        self.channel.close()
        self.end()

    # Progress of the engine

    def _wake(self) -> None:
        self.application.wake()
        self.waits.check()
        self.look()

    def tell(self) -> None:
        """Send and act on progress that the application or an operator has caused."""
        self.channel.flush()
        self.waits.check()
        self.look()

    def look(self) -> None:
        """Act on the engine's new state."""
        engine = self.engine
        if (wanted := change_wanted(engine)) != self._change_told:
            self._change_told = wanted
            if wanted:
                _logger.info("%s", wanted)
        members = tuple(engine.members)
        if members != self._members:
            self._members_changed(engine, members)
        for name in map(name_of, members):
            if name not in self.channel.here:
                self.channel.shared.want(name)
        self.reissue.look(engine)
        if holders := self.bound.look(engine, set(self.channel.here)):
            self.bound.evicts(engine, holders)
            self.channel.flush()
        self.looked.unpark_all()
        if (standing := engine.standing) is not self._standing:
            self._standing = standing
            self.changed.unpark_all()
            _logger.info("%s in group %s: %s", engine.me, self.group, standing.value)
            self._stands(engine, standing)

    def _members_changed(self, engine: GroupEngine, members: tuple[str, ...]) -> None:
        names, before = set(map(name_of, members)), set(map(name_of, self._members))
        if before:
            for line in turnover(engine, self._members, self.group):
                _logger.info("%s", line)
        self._members = members
        # A member that was cut off by force may have done the same to us: only a link shows that, so one side must
        # dial.
        forced = {name_of(who) for who, cut in engine.tombs.items() if cut.how is How.FORCED}
        for name in before - names - forced:
            self.channel.shared.unwant(name)
        self.changed.unpark_all()

    def _stands(self, engine: GroupEngine, standing: Standing) -> None:
        if standing is Standing.DISPUTED:
            _logger.warning(
                "group %s is disputed: this side and another one have evicted each other, at "
                "least one of them by force: decide which side goes on, and let the "
                "members of the other side surrender",
                self.group,
            )
        elif standing is Standing.SPLIT:
            _logger.error("%s cannot change the members: %s", engine.me, engine.told_of_split())
        event = _SEEN.get((self.phase, standing))
        if event is MemberEvent.OVER:
            line = "%s was evicted from group %s, and joins again"
            if standing is Standing.LEFT:
                line = "%s has left group %s, and the others know: it joins again"
            _logger.warning(line, engine.me, self.group)
            self._end_incarnation(parks=True)
        elif event is not None:
            self.move(event)
            if event is MemberEvent.GONE:
                self._close()

    # Others that join

    def _asked(self, link: Link, frame: InGroup) -> None:
        if isinstance(frame, Copy | Admit | Fetch):
            self._join_server.asked(link, frame)
        else:
            self._join_client.heard(link, frame)

    def _gone(self, link: Link) -> None:
        self._join_client.gone(link)
        if self._founding is not None:
            self._founding.gone(link)
        self._join_server.gone(link)

    def _answer(self, link: Link, frame: InGroup) -> None:
        send = partial(self.channel.send_to, [link.name], frame)
        if self.journal is None:
            send()
        else:
            self.journal.later(send)  # its content may not be durable yet


def _checked(replaces: Iterable[str]) -> tuple[str, ...]:
    """Those to replace. Raises ConfigurationError if they are not names or incarnation ids."""
    given = () if isinstance(replaces, str) else tuple(replaces)
    if isinstance(replaces, str) or not all(valid_name(x) or valid_incarnation(x) for x in given):
        raise ConfigurationError(
            f"replaces={shown(replaces)}: pass a list of names or incarnation ids"
        )
    return given
