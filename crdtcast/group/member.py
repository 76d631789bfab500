"""One member of a group, as programs see it. `crdtcast.group.lifecycle` moves it through its phases,
`crdtcast.group.application` has its events, and `GroupEngine` decides what the group agrees on.

With a journal (`crdtcast.group.journaling`) it survives its process.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import trio

from crdtcast.causality.member_id import member_named, name_of
from crdtcast.causality.tags import Tag
from crdtcast.engine import GroupEngine, MemberInfo, Parked, Standing
from crdtcast.engine.delivery_waits import Notion
from crdtcast.exceptions import (
    CrdtcastError,
    EndedError,
    LocalProtocolError,
    NotReadyError,
    StoreFullError,
)
from crdtcast.group.events import Event
from crdtcast.group.lifecycle import MemberLife
from crdtcast.group.phase import ENDED, MemberPhase
from crdtcast.group.state_machine import StateMachine, already_taken
from crdtcast.short_repr import shown
from crdtcast.transport.channel import Channel
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus
from crdtcast.wire.offers import Progress

_MEMBER = MemberPhase.MEMBER


class Member:
    """One member: causal broadcast (`tcbroadcast`, `tcdeliver`, `tcstable`), and its place in the group. Iterate over
    it for events (one task at a time), or give it a machine. Use it in the Trio thread only.
    """

    def __init__(self, life: MemberLife) -> None:
        self.channel: Channel = life.channel
        self.refused_writes: int = 0
        """Writes refused since the start because the member could not send at that time."""
        self._life = life
        self._application = life.application

    @property
    def name(self) -> str:
        return self.channel.name

    @property
    def group(self) -> str:
        return self.channel.group

    @property
    def address(self) -> Address:
        """Host and port where the other members reach this one."""
        return self.channel.address

    @property
    def engine(self) -> GroupEngine:
        """The engine of the current incarnation. Raises NotReadyError if it is in no group yet, EndedError if it never
        was.
        """
        return self._life.engine

    @property
    def incarnation(self) -> str:
        """This member's current id. It changes when it comes back from an eviction."""
        return self.engine.me

    @property
    def phase(self) -> MemberPhase:
        """The phase of its life."""
        return self._life.phase

    @property
    def standing(self) -> Standing:
        """The standing of this incarnation, as far as it knows."""
        return self.engine.standing

    @property
    def witness(self) -> bool:
        """Whether this member votes and stores messages, and holds no state."""
        return self._application.witness

    @property
    def parked(self) -> Parked | None:
        """The messages that it must send again after an eviction."""
        return self._life.parked

    @property
    def is_outside(self) -> bool:
        """Whether it never was a member."""
        return self._application.engine is None

    def why_outside(self) -> CrdtcastError:
        """The error of a member that `is_outside`: it waits for other founders, for instance.

        Raises LocalProtocolError if it is, or was, a member.
        """
        if not self.is_outside:
            raise LocalProtocolError(f"{self.name!r} is, or was, a member of group {self.group!r}")
        return self._life.refusal()

    @property
    def kept_out(self) -> str | None:
        """Why the others do not admit this member again, if it is rejoining: what they have said, or that none of those
        that are linked is a member.
        """
        return self._life.kept_out

    # Coming and going

    def found(self, founders: Collection[str] = (), progress: Progress | None = None) -> None:
        """Found a new group, with these others; or continue, if a journal holds a former life.

        With other founders this returns before the group has started: see `begun`. If the group has started without
        this process, it joins in place of the founder of its name, and calls `progress` as `join` does.

        Raises LocalProtocolError if it is in the group already, or on its way; EndedError if it has left, or its links
        are closed.
        """
        self._life.found(founders, progress)

    async def join(
        self,
        *,
        replace: bool = False,
        replaces: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """Join the group through any of its linked members; return when this is a member. If a journal holds a former
        life, continue from that.

        replace: replace the member of the same name, an earlier life of this node; that one is evicted.
        replaces: replace these lost members, by name or incarnation id, by the operator's word. Living members are not
            replaced.
        progress: called with the bytes of the state that are copied, and their total.

        Raises HandshakeError, with the reason, if no member admits this one; EndedError if it has left, or its links
        are closed; the machine's error if it fails on the group's state: this member has left the group again then.
        """
        await self._life.join(replace=replace, replaces=replaces, progress=progress)

    async def begun(self) -> None:
        """Return when this is, or was, a member: once all founders have been up at the same time.

        Raises EndedError if its host is closed before that.
        """
        await self._life.begun()

    async def ready(self) -> None:
        """Return when this member can send: at once, unless its group has not started, or it is joining again after an
        eviction.

        Raises EndedError if it has left.
        """
        await self._life.ready()

    async def leave(self) -> None:
        """Leave the group properly: return when enough others have all that this member has, the group has decided that
        it leaves, and a majority of the remaining voters knows that.

        From the call on nothing can be sent. Messages that it must send again after an eviction go out first. The last
        member admits those again that it has evicted, if they are linked.

        Members that it waits for may never come back, so use `trio.move_on_after`. If that ends the call, `has_left`
        says whether the group has decided. If not, the others consider this member dead. What only it had is in its
        journal, and the next start sends it; without a journal it is lost. That start takes the leave back, unless
        this member had already put it to the vote: then it joins again under a new id.

        Raises LocalProtocolError if only witnesses would remain: it goes on then. EndedError if it has ended.
        """
        await self._life.leave()

    @property
    def has_left(self) -> bool:
        """Whether the group has decided that this member has left; others may not know it yet."""
        return self._life.has_left

    def end(self) -> None:
        """End without leaving: its host is closed, so nothing is received or sent any more."""
        self._life.end()

    # The members of the group

    @property
    def members(self) -> dict[str, MemberInfo]:
        """The members by name, as of the messages delivered at this member; includes this one until it leaves. A member
        that is about to be replaced is not listed, only its successor.
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
        life = self._life
        if life.phase in ENDED:
            raise life.refusal()
        await life.changed.park()

    async def wait_established(self) -> None:
        """Return when every member's join is stable at this member, so that all know each other, and each has a
        vote.
        """
        await self.wait_until(
            lambda: self.engine.established == self.engine.members.keys() == self.engine.view.voters
        )

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition()` is true; it is checked whenever this member makes progress.

        Raises EndedError if this member has left, or its host is closed.
        """
        life = self._life
        await trio.lowlevel.checkpoint()
        while not condition():
            if life.phase in ENDED:
                raise life.refusal()
            await life.looked.park()

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other member."""
        return self.channel.status()

    def cut(self, name: str) -> None:
        """Close the link with the process of that name, for all groups, until `heal`; for operators and tests."""
        self.channel.shared.cut(name)

    def heal(self, name: str) -> None:
        """Undo `cut`."""
        self.channel.shared.heal(name)

    def fullness(self) -> str | None:
        """Return why the limit for unstable data refuses new messages; None if there is room."""
        try:
            self._life.bound.check(self.engine)
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

        Raises LocalProtocolError if a name is unknown or this member's own, or if no member with data would remain;
        EndedError if this member has ended, as `withdraw`, `raise_level` and `surrender` do.
        """
        self._life.check_going_on()
        if not isinstance(force, bool):
            raise LocalProtocolError(f"evict: force is {shown(force)}: give True or False")
        victims = [member_named(each, self.engine.evictable, self.group) for each in members]
        self.engine.evict(*victims, force=force)
        self._life.tell()

    def withdraw(self, *members: str) -> None:
        """Take back requests of `evict`; all of them, if no member is named.

        Raises LocalProtocolError if this member has not asked to evict one of them.
        """
        self._life.check_going_on()
        self.engine.withdraw(*members)
        self._life.tell()

    def raise_level(self, level: int) -> None:
        """Ask for a higher format level of the group. When it is in force, all members must run programs that read it.

        Raises LocalProtocolError if some member does not read it, or if there is nothing to raise.
        """
        self._life.check_going_on()
        self.engine.raise_level(level)
        self._life.tell()

    def surrender(self) -> None:
        """Give up this side after a mutual forced eviction, by the operator's word. This member joins the other side
        again, like an evicted one.
        """
        self._life.check_going_on()
        self.engine.surrender()
        self._life.look()

    @property
    def is_journaled(self) -> bool:
        """Whether what it knows becomes durable by its journal. Not once it has left: the others have it all."""
        return self._life.journal is not None and self.phase is not MemberPhase.LEFT

    async def wait_durable(self) -> None:
        """Return when everything that this member has sent and delivered so far is in its journal, so that it survives
        a power loss of this machine.

        Raises LocalProtocolError if there is no journal, JournalError if the journal fails; the member ends then.
        """
        if self._life.journal is None:
            raise LocalProtocolError(
                f"{self.name!r} has no journal, so nothing becomes durable: open it with "
                "journal=…, or use wait_delivered"
            )
        await self._life.journal.synced()

    # Causal broadcast

    @trio.lowlevel.enable_ki_protection
    def tcbroadcast(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """Send `payload` to all; never waits. It counts as delivered at this member when this returns.

        after: explicit causality; None means after everything delivered or sent at this member so far.

        Raises LocalProtocolError if `payload` is not bytes, or longer than `channel.max_payload`; EndedError if this
        incarnation is leaving, has left or was evicted (see `ready`); NotReadyError if its group has not started, or
        its machine is receiving the state of the group; StoreFullError: see `Limits`. Nothing was sent then. An error
        of the machine's `tcdeliver` comes out here, too, and ends the node.
        """
        life, application, channel = self._life, self._application, self.channel
        engine = application.engine
        try:
            if life.phase is not _MEMBER or engine is None:
                raise life.refusal()
            is_near = engine.held_bytes >= life.bound.attends_from
            if is_near:
                life.bound.check(engine)
            if not isinstance(payload, bytes):
                raise LocalProtocolError(
                    f"cannot send a {type(payload).__name__}: a payload is bytes: encode it first"
                )
            if len(payload) > channel.max_payload:
                raise LocalProtocolError(
                    f"cannot send a payload of {len(payload):,} bytes: at most {channel.max_payload:,} fit into a "
                    "frame: send smaller payloads, or raise max_frame on all members"
                )
            tag = engine.send(payload, after=after)
        except (NotReadyError, EndedError, StoreFullError) as error:
            self.refused_writes += 1
            if life.phase is _MEMBER and isinstance(error, EndedError):
                raise life.put_out() from None  # the engine knows it already, the phase does not yet
            raise
        try:
            application.delivered(payload, tag)
        except Exception:
            life.end()
            raise
        finally:
            channel.flush_soon()
        if is_near and life.bound.warns(engine):
            life.look()
        return tag

    async def wait_delivered(self, tag: Tag, *, count: int) -> None:
        """Return when `count` members, including this one, have taken the message, by their acknowledgements. From then
        on it survives the loss of any `count` - 1 of them. Concurrent messages may still come, from any member.

        Raises LocalProtocolError if there are fewer members.
        """
        await self._life.waits.wait(tag, Notion.DELIVERED, count)

    async def wait_quorum_stable(self, tag: Tag, *, count: int) -> None:
        """Return when, for `count` members including this one, none of their messages concurrent with `tag`'s can be
        delivered at this member any more. Messages of other members still can, so keep the metadata that tells the
        message from concurrent ones.

        Raises LocalProtocolError if there are fewer members.
        """
        await self._life.waits.wait(tag, Notion.QUORUM_STABLE, count)

    async def wait_stable(self, tag: Tag) -> None:
        """Return when no message concurrent with `tag`'s can be delivered at this member any more: all members have
        taken it. The notice (`Stable`, `tcstable`) may come a moment later.
        """
        await self._life.waits.wait(tag, Notion.STABLE)

    @property
    def waiting(self) -> int:
        """The number of waits that have not returned yet."""
        return len(self._life.waits)

    def settle(self) -> None:
        """Give the state machine at once the notices of stability that wait for its turn."""
        self._application.settle()

    async def run(self, machine: StateMachine) -> None:
        """Let `machine` take all events of this member, until cancelled.

        Messages that this member has sent before are not delivered to it again. Raises LocalProtocolError if it has a
        machine already.
        """
        await self._application.run(machine)

    def next_event(self) -> Event | None:
        """Return the next event, if there is one now. Raises LocalProtocolError if there is a state machine."""
        application = self._application
        if application.machine is not None:
            raise already_taken(self.name)
        return application.next_event()

    def __aiter__(self) -> "Member":
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event. Ends when this member has left its group, and by cancellation when the node is
        closed.
        """
        application = self._application
        # Called for each delivery: usually there is an event, and no need to wait.
        event = application.at_hand() if application.machine is None else None
        if event is None and (event := await application.next()) is None:
            raise StopAsyncIteration
        return event

    # For the state machine

    def look_again(self) -> None:
        """Ask the state machine again for the messages that it was not ready to `reissue`."""
        self._life.reissue.look(self.engine)

    def machine_failed(self, error: Exception) -> None:
        """End the node with that error of its state machine."""
        self._application.fail(error)
