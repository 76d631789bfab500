"""A gateway's life in a group whose members come and go: it founds or joins the group, serves joiners, and leaves.

Everything that the group has agreed on is in the server with the data. A small local file says whether this is still
the same server. See docs/redis-groups.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Protocol

import trio

from crdtcast.adapters.redis.adoption.census import described
from crdtcast.adapters.redis.adoption.founding import counted, noting, refusal_of
from crdtcast.adapters.redis.adoption.left_out import LeftOut
from crdtcast.adapters.redis.adoption.plain import make_plain
from crdtcast.adapters.redis.clock import Clock
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.durability import DurabilityProbe, Mark
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.group.fence import claim
from crdtcast.adapters.redis.group.join_refusal import JoinRefusal
from crdtcast.adapters.redis.group.peers import GroupPeers
from crdtcast.adapters.redis.group.questions import Questions
from crdtcast.adapters.redis.group.recovery import Durability, FoundState, Way, decide_member
from crdtcast.adapters.redis.group.reissue import GatewayReissue
from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.recorded.answer import ParkedRecord, message_of
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.server.inspection import Inspection, inspect
from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.databases import Databases
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.adapters.redis.store.synced_file import Synced
from crdtcast.adapters.redis.transfer.giver import Giver
from crdtcast.adapters.redis.transfer.joiner import Arriving, Writer, stored_state
from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import fresh_incarnation, member_named, name_of
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Standing
from crdtcast.engine.views import View
from crdtcast.exceptions import (
    ConfigurationError,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    RolledBackError,
    ServerError,
)
from crdtcast.group.join_client import JoinClient
from crdtcast.group.status import change_wanted, turnover
from crdtcast.service.admin.administered import departed
from crdtcast.service.admin.reserved import unreserved
from crdtcast.transport.link import Link
from crdtcast.transport.options import format_address, parse_address
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import Asking, Fetch

_PROGRESS_SECONDS = 1.0
_ASK_SECONDS = 2.0
"""How long members that do not answer are asked whether an identity is in use."""
_ASK_AGAIN_SECONDS = 0.5
_LISTEN_SECONDS = 0.02
_RIVAL_SECONDS = 30.0
"""How long members may say that it is: they notice a dead link after some missed keep-alives."""


class MemberHost(Protocol):
    """The gateway of a membership: its parts, and the functions that the member needs."""

    @property
    def options(self) -> GatewayOptions: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def hlc(self) -> HLC: ...
    @property
    def committer(self) -> Committer: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def durability(self) -> DurabilityProbe: ...
    def on_work(self) -> None:
        """Look for work: something may be deliverable or stable, or a tick has passed."""

    def write_file(self, state: StoredState, found: FoundState, *, begun: bool = True) -> None:
        """Note in the local file which incarnation continues at which server.

        begun: False before it founds its group.
        """

    def note(self, *, left: bool = False, plain: bool = False) -> None:
        """Rewrite the local file: addresses or the format level have changed, or the gateway has left its group.

        plain: the server becomes a plain one.
        """

    async def make_plain(self) -> None:
        """Stop serving clients, and remove from the server all that is the gateway's own. Raises nothing: it tries
        again until it is done.
        """

    def begin_anew(self, reason: str) -> None:
        """Close the connection to the server, reconnect, and find out again which incarnation this is."""

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something in the background until the gateway ends. It must handle its own errors."""

    def fatal(self, error: Exception) -> None:
        """End the gateway with this error."""


class Belonging:
    """The membership of one gateway."""

    def __init__(self, gateway: MemberHost, options: GroupOptions, logger: logging.Logger) -> None:
        self._gateway = gateway
        self._options = options
        self._log = logger
        committer = gateway.committer
        self.peers: GroupPeers = GroupPeers(
            gateway.options.node,
            advertise=options.advertise,
            behind=lambda: committer.behind,
            number=lambda: committer.commits,
            on_work=gateway.on_work,
            logger=logger,
        )
        self.peers.channel.serials = gateway.questions.serials
        self._giver = Giver(committer, self.peers, gateway.hlc, gateway.spawn)
        self._returning = GatewayReissue(
            committer,
            gateway.options.node.group,
            gateway.options.node.name,
            gateway.options.metadata_db,
            logger,
        )
        self.first_of: Callable[[Dot], Dot | None] = self._returning.first_of
        """See `GatewayReissue`."""
        committer.has_work = self._returning.has_work
        self._evicted: GroupEngine | None = None
        self._is_whole = True
        """Whether the server has all that the evicted incarnation had."""
        self._is_complete = True
        """Whether all messages of the evicted incarnation are known, in the server or in memory."""
        self.stored: int = 0
        """`Committer.order` at the last answer."""
        self._resumed_at = 0
        self._entering: JoinClient | None = None
        self._standing = Standing.MEMBER
        self._asks_first = False
        """Whether it had left before this start, and must ask whether the others know that."""
        self._leaves_plain = False
        """Whether the server becomes a plain one when this member has left."""
        self._members: tuple[str, ...] = ()
        self._may_lack = False
        """Whether other members may know more of this incarnation than its server."""
        self._rivals_since: float | None = None
        self._look_for_rivals_at = 0.0
        self._change_told = ""
        self._noted_level = 0
        self._told_at = 0.0
        self.changed: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        """Unparked when the members, or the standing of this one, may have changed."""
        self.left: trio.Event = trio.Event()
        """Set when this gateway has left the group cleanly."""
        self.peers.channel.on_asked = self._asked
        self.peers.channel.on_gone = self._gone
        self.peers.channel.on_rolled_back = self._rolled_back
        file = LocalFile.read(gateway.options.state_dir, gateway.options.node.name)
        self._addresses = dict(file.addresses) if file is not None else {}
        self.left_out: dict[str, int] = dict(file.left_out) if file is not None else {}
        """Number of keys that the last join did not copy, by type."""
        for name, address in self._addresses.items():
            self.peers.shared.known[name] = parse_address(address)

    @property
    def engine(self) -> GroupEngine:
        """The present engine. Raises LocalProtocolError if this gateway is not a member yet."""
        engine = self.peers.channel.engine
        if engine is None:
            raise LocalProtocolError("this gateway is not yet a member of its group")
        return engine

    @property
    def yielded(self) -> int:
        """Writes of evicted incarnations that were not sent again, since start."""
        return self._returning.yielded

    # Joining

    async def identify(
        self, connection: ServerConnection, inspection: Inspection, epoch: int
    ) -> tuple[StoredState, Inspection]:
        """Decide which incarnation this is, from what the server holds or by a join; take the fence.

        Raises ConfigurationError if no way to continue is safe, HandshakeError if no member admits this one,
        ServerError if the server fails.
        """
        gateway = self._gateway
        node, db = gateway.options.node, gateway.options.metadata_db
        file = LocalFile.read(gateway.options.state_dir, node.name)
        state = inspection.found.state
        was = None if file is None or not file.plain else file.incarnation
        if state is not None and state.incarnation == was:  # it ended before that was done
            await make_plain(connection, db, None)
            inspection = await inspect(connection, db)
        founds = self._options.founds and self._evicted is None
        others = self._others_known(file)
        decided = partial(
            decide_member,
            node.group,
            node.name,
            file,
            founds=founds,
            others=others,
            discards=self._options.discards_data,
        )
        way = decided(inspection.found)
        self._refuse_if_nothing_leaves(inspection.found)
        if way in (Way.FOUND, Way.ADOPT, Way.CONVERT):
            state = self._founded(file, inspection.found.state)
            more: list[Words] = []
            if way is not Way.CONVERT:
                more = await self._taking_over(connection, inspection, is_first=file is None)
            # First: a server with this identity and no file could be a copy of another one.
            gateway.write_file(state, inspection.found, begun=False)
            crash_point("founding-noted")
            await claim(connection, db, inspection.fence, epoch, state, more)
            crash_point("founding-claimed")
            self.peers.shared.owns(inspection.found.run_id, epoch, inspection.databases.told)
            inspection = await inspect(connection, db)
        else:
            # The fence stops any other writer (another gateway, or our own last EXEC in flight).
            # Anything read before it may be out of date, and would overwrite newer data.
            await claim(connection, db, inspection.fence, epoch, None)
            self.peers.shared.owns(inspection.found.run_id, epoch, inspection.databases.told)
            inspection = await inspect(connection, db)
            if way is Way.SAME:
                way = decided(inspection.found)
            if way is Way.SAME and file is not None and file.run_id != inspection.found.run_id:
                await self._check_unique()
            if self._evicted is None:
                self._evicted = self._ended_by_loss(inspection)
            if self._evicted is not None:
                way = Way.JOIN
        if way is Way.JOIN:
            # Half a copy, or the file of a former incarnation: that has ended, even if the group
            # does not know it.
            replaces = [node.name] if file is not None else list(self._options.replaces)
            # A member that comes back never had these keys; a refusal would keep its region down.
            leave_out = self._options.leave_out if file is None else None
            if file is not None and inspection.found.state is None:
                keys = inspection.found.keys
                lost = f"the server has lost this member's metadata, and the group's data replaces its {keys:,} keys"
                self._log.warning(
                    "%s: waiting for another member to fill it (%s)",
                    lost if keys else "the server is empty",
                    ", ".join(sorted(file.addresses)) or "none is known",
                )
            try:
                await self._enter(
                    connection, inspection.databases, replaces, inspection.found, leave_out
                )
            except HandshakeError as error:
                empty = self.peers.shared.outside(node.group)
                if file is None or not empty or inspection.found.state is not None:
                    raise
                raise HandshakeError(self._nobody_has_data(file, empty)) from error
            self._evicted, self._is_whole, self._is_complete = None, True, True
            inspection = await inspect(connection, db)
        if inspection.found.state is None:
            raise ServerError("the server has just lost its data")
        wanted = LeftOut(map(os.fsencode, self._options.leave_out_keys))
        if wanted and wanted.patterns != inspection.left_out.patterns:
            self._log.warning(
                "--leave-out-keys counts when a group is founded; this group leaves out: %s",
                inspection.left_out.shown() or "nothing",
            )
        self._log.warning("%s at %s: %s", node.name, gateway.options.server, way.value)
        return inspection.found.state, inspection

    def _refuse_if_nothing_leaves(self, found: FoundState) -> None:
        """Raises ConfigurationError at the first connection. Later the log says so, and clients are still served."""
        waits = found.durability is Durability.EVERYSEC
        if waits and found.never_syncs and self._gateway.committer.engine is None:
            raise ConfigurationError(
                "appendfsync is no, so the server never says what it has synced, and nothing could leave this region: "
                "set appendfsync everysec or always (CONFIG SET appendfsync everysec, or its configuration file)"
            )

    def _nobody_has_data(self, file: LocalFile, empty: Collection[str]) -> str:
        """Why a member that was in the group cannot come back: no linked member has data.

        empty: the linked members without data.
        """
        if away := sorted(file.addresses.keys() - set(empty)):
            return (
                f"the servers of {', '.join(sorted({*empty, file.name}))} have lost their data: "
                f"start a member whose server has it ({', '.join(away)}) before these"
            )
        names = sorted({*empty, file.name})
        return (
            f"all servers of group {file.group!r} have lost their data, those of {', '.join(names)}: "
            "restore the data of one server; or, to begin a new group, delete "
            f"{' and '.join(f'{name}.*' for name in names)} in their state directories (here: "
            f"{self._gateway.options.state_dir}), then start one gateway with --found and the "
            "others with --join"
        )

    async def _taking_over(
        self, connection: ServerConnection, inspection: Inspection, *, is_first: bool
    ) -> list[Words]:
        """The commands that note what is left to do for the data that the server holds.

        is_first: whether data that cannot be replicated is refused; a member that continues only logs it.

        Raises ConfigurationError, before any change, if some of it is.
        """
        left_out = LeftOut(map(os.fsencode, self._options.leave_out_keys))
        if not inspection.found.keys:
            return noting(inspection, left_out)
        began = trio.current_time()
        self._log.warning("counting the %s keys of the server", f"{inspection.found.keys:,}")
        census = await counted(connection, inspection, left_out)
        complaint = refusal_of(census, inspection, self._options.leave_out)
        if complaint is not None and is_first:
            raise ConfigurationError(complaint)
        if complaint is not None or census.counts:
            self._log.error("not replicated: %s", described(census.counts, census.examples))
        self._log.warning(
            "takes over the data of its server: %s keys, counted in %.1f s",
            f"{inspection.found.keys:,}",
            trio.current_time() - began,
        )
        return noting(inspection, left_out)

    async def _check_unique(self) -> None:
        """Ask the other members, as far as they can be reached, whether this identity is in use.

        The server is not the one that this gateway left: restarted, or a copy of it, with a copy of the local file. A
        copy must not continue beside the original. Members may hold a dead link for a while, so they are asked again.

        Raises ConfigurationError if another running process has this identity.
        """
        if self._gateway.committer.engine is not None:
            return  # this process is the original
        shared = self.peers.shared
        began = trio.current_time()
        while True:
            waited = trio.current_time() - began
            if rivals := shared.rivals():
                if waited > _RIVAL_SECONDS:
                    raise ConfigurationError(_copied(rivals))
                shared.dial_again()
            elif not shared.unanswered() or waited > _ASK_SECONDS:
                self._may_lack = True
                return
            with trio.move_on_after(_ASK_AGAIN_SECONDS):
                await shared.news()

    async def hear_others(self) -> None:
        """Before clients are served: if the server was restarted, or restored, wait for what the linked members know of
        this incarnation, at most two seconds. If they know more than the server, it does not continue.
        """
        shared = self.peers.shared
        with trio.move_on_after(_ASK_SECONDS if self._may_lack else 0):
            while (engine := self.peers.engine) is None or (
                engine.counters().digests_in < len(shared.links().up)
            ):
                with trio.move_on_after(_LISTEN_SECONDS):
                    await self.changed.park()
        self._may_lack = False

    def _look_for_rivals(self) -> None:
        """End this gateway if another process uses its identity, and has the links with the other members."""
        now = trio.current_time()
        if now < self._look_for_rivals_at:
            return
        self._look_for_rivals_at = now + _ASK_AGAIN_SECONDS
        rivals = self.peers.shared.rivals()
        if not rivals:
            self._rivals_since = None
        elif self._rivals_since is None:
            self._rivals_since = now
        elif now - self._rivals_since > _RIVAL_SECONDS:
            self._gateway.fatal(EndedError(_copied(rivals)))

    def _others_known(self, file: LocalFile | None) -> bool | None:
        """Whether the group has other members, as far as this member knows; None if it cannot know."""
        before = self._gateway.committer.engine
        if isinstance(before, GroupEngine):
            return len(before.members) > 1
        return True if file is not None and file.addresses else None

    def _ended_by_loss(self, inspection: Inspection) -> GroupEngine | None:
        """The incarnation that has to end, if its server came back with less than other members may have; else None."""
        gateway, state = self._gateway, inspection.found.state
        before = gateway.committer.engine
        is_complete = True
        if isinstance(before, GroupEngine):  # this process remembers all of it
            known = self.stored if state is None or state.incarnation == before.me else 0
        elif state is None:
            return None
        else:
            known, is_complete = self._least_order(state), False
            group_state = state.group_state(inspection.unstable)
            before = GroupEngine(state.incarnation, group_state, effects.READS)
            self._returning.resume(inspection.parked)
            if inspection.record is not None:
                self._returning.recorded = ParkedRecord.of(inspection.record)
        message = None if inspection.record is None else message_of(inspection.record)
        if (0 if state is None else state.order + (message is not None)) >= known:
            return None
        text = f"the server has lost some data that {before.me} had stored"
        if len(before.members) == 1:
            self._log.error("%s, and no other member has it: it continues with the rest", text)
            return None
        self._log.error("%s: it joins again as another incarnation", text)
        self._is_whole, self._is_complete = False, is_complete
        return before

    def _least_order(self, state: StoredState) -> int:
        """The least `StoredState.order` of a server that has lost nothing on which a sent message, or a session token,
        rests. As the files know it: 0 if they do not.
        """
        options = self._gateway.options
        synced = Synced.read(options.state_dir, options.node.name)
        if synced is not None and synced.incarnation == state.incarnation:
            return synced.order
        return 0

    def _founded(self, file: LocalFile | None, former: StoredState | None) -> StoredState:
        """The first state of a new group. former: the state as a fixed member; its data stays and counts as stable."""
        node = self._gateway.options.node
        before = [known.incarnation for known in (file, former) if known is not None]
        me = fresh_incarnation(node.name, self._gateway.clock.us, max(before, default=None))
        level = effects.READS.highest if self._options.level is None else self._options.level
        if former is not None:
            level = max(level, former.level)
        outline = GroupEngine.found(me, [], reads=effects.READS).outline()
        outline = replace(outline, view=View.first([me], level), agreed=level)
        return StoredState(
            group=node.group,
            name=node.name,
            incarnation=me,
            members=(node.name,),
            counter=0,
            vector=outline.vector,
            context=(),
            stable={},
            clock=0 if former is None else former.clock,
            order=0,
            level=level,
            founding=me,
            membership=metadata.pack_membership(outline),
        )

    async def _enter(
        self,
        connection: ServerConnection,
        databases: Databases,
        replaces: list[str],
        found: FoundState,
        leave_out: tuple[str, ...] | None,
    ) -> None:
        """Fill the server from the group, and join. At the end the server has everything that a restart needs."""
        gateway = self._gateway
        node = gateway.options.node
        if self._gateway.committer.engine is not None:
            self._gateway.committer.refuse(
                "this gateway's server is being filled from the group", reads=False, passes=True
            )
        former, parked = [], None
        if self._evicted is not None:
            former = [self._evicted.me]
            parked = await self._returning.park(
                connection,
                self._evicted,
                is_whole=self._is_whole,
                is_complete=self._is_complete,
            )
        writer = Writer(connection, databases, former=former, parked=parked)
        refusal = JoinRefusal(gateway.options.state_dir, node.name)
        ask_first = "" if leave_out is None else refusal.contact()
        arriving = Arriving(
            self.peers.channel, writer, self._tell_progress, leave_out, ask_first=ask_first
        )
        self._entering = entering = JoinClient(self.peers.channel, self._log, arriving)
        try:
            _, entry = await entering.enter(
                (*replaces, *former), False, copies=True, asked=tuple(sorted(found.joining or ()))
            )
        finally:
            self._entering = None
            self._returning.never_began |= entering.abandoned
            if arriving.refused_by:
                refusal.note(arriving.refused_by)
        if arriving.ask_first:
            self._log.warning(
                "joined without %s, which had refused an earlier start because of keys that are "
                "not replicated: these keys stay in that server only",
                arriving.ask_first,
            )
        assert arriving.ending is not None
        ending = arriving.ending
        self.left_out = arriving.left_out
        if self.left_out:
            self._log.error("the copy of the group's data lacks: %s", described(self.left_out))
        state = stored_state(node.group, node.name, entry, ending.clock)
        gateway.write_file(
            state, found
        )  # first: if the process ends in between, this incarnation has not sent anything yet
        crash_point("join-noted-in-file")
        await writer.finish(ending, state, entry, arriving.patterns)
        refusal.forget()

    def _tell_progress(self, received: int, total: int) -> None:
        now = trio.current_time()
        if now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
            self._log.warning(
                "joining: %s of about %s keys are copied", f"{received:,}", f"{total:,}"
            )

    def resume(self, state: StoredState, inspection: Inspection) -> GroupEngine:
        """The engine of this member, from the state in the server."""
        self._giver.clear()
        self._returning.resume(inspection.parked)
        group_state = state.group_state(inspection.unstable)
        return GroupEngine(state.incarnation, group_state, effects.READS)

    def start(self, engine: GroupEngine, state: StoredState) -> None:
        """Take part with that engine. Nothing is sent before everything read from the server is synced."""
        gateway = self._gateway
        self._standing = Standing.MEMBER
        self._asks_first = engine.wants.leaves and engine.me not in engine.going_on()
        if self._asks_first:
            self._log.warning(
                "%s has left, not confirmed: it asks whether the others know, then joins again",
                engine.me,
            )
        self.stored = gateway.committer.recorded.count + state.order
        self._resumed_at = state.vector.get(engine.me, 0)
        self.peers.start(engine, state.founding)
        mark = Mark(gateway.committer.commits, dict(state.vector), self.stored)
        gateway.durability.committed(mark)

    # Membership

    def _asked(self, link: Link, frame: InGroup) -> None:
        questions, is_here = self._gateway.questions, link.name in self.peers.channel.here
        if is_here and isinstance(frame, Asking) and questions.knows(link.name, frame):
            questions.heard(link.name, frame)
        elif isinstance(frame, Copy | Admit | Fetch):
            if self.peers.engine is not None:
                self._giver.asked(link, frame)
        elif self._entering is not None:
            self._entering.heard(link, frame)

    def _gone(self, link: Link) -> None:
        self._gateway.questions.gone(link.name)
        self._giver.gone(link)
        if self._entering is not None:
            self._entering.gone(link)

    def add_work(self) -> None:
        """The next commit is about to be gathered: add messages to send again."""
        engine = self.peers.engine
        if engine is not None and engine is self._gateway.committer.engine:
            self._returning.add_work(engine)

    def prepared(self, commit: Commit, number: int) -> None:
        """A commit is about to be sent: hold what the engine wants to send until it is synced."""
        engine = self.engine
        self._returning.prepared(commit, engine)
        self.peers.gate.add(engine.take_outbox(), number)

    def committed(self, commit: Commit) -> None:
        """A commit was answered."""
        self._giver.committed(commit)

    def look(self) -> None:
        """React to changes of the engine."""
        self.changed.unpark_all()
        self._look_for_rivals()
        self._keep_addresses()
        engine = self.peers.engine
        if engine is None:
            return
        if (wanted := change_wanted(engine)) != self._change_told:
            self._change_told = wanted
            if wanted:
                self._log.info("%s", wanted)
        if (members := tuple(engine.members)) != self._members:
            if self._members:
                for line in turnover(engine, self._members, self._gateway.options.node.group):
                    self._log.info("%s", line)
            self._members = members
        stored = self._gateway.committer.state
        if stored is not None and stored.level != self._noted_level:
            self._noted_level = stored.level
            self._gateway.note()
        if engine.standing is self._standing:
            return
        committer = self._gateway.committer
        if committer.sending or committer.behind:
            return  # its new state must be stored first
        self._standing = engine.standing
        if self._standing is Standing.LEFT:
            is_plain = self._leaves_plain and not self._asks_first
            self._gateway.note(left=True, plain=is_plain)
            if is_plain:
                self._gateway.spawn(self._end_plain)
            elif self._asks_first:
                text = f"{engine.me} has left, and the others know"
                self._log.warning("%s: it joins again", text)
                self._gateway.begin_anew(text)
            else:
                self.left.set()
        elif self._standing is Standing.EVICTED:
            self._was_evicted(engine)
        elif self._standing is Standing.DISPUTED:
            self._log.warning(
                "group %s is disputed: this side and another one have evicted each other, at "
                "least one of them by force: decide which side goes on, and let the "
                "members of the other side surrender",
                self._gateway.options.node.group,
            )
        elif self._standing is Standing.SPLIT:
            self._log.error("%s cannot change the members: %s", engine.me, engine.told_of_split())

    def _rolled_back(self, error: RolledBackError) -> None:
        """Another member has more of this incarnation than our server; the files did not show that."""
        engine = self.engine
        self._standing = Standing.EVICTED
        if engine.vector.get(engine.me, 0) == self._resumed_at:  # nothing was sent since
            self._log.error("%s: it joins again as another incarnation", error)
            self._evicted, self._is_whole, self._is_complete = engine, False, False
            self._gateway.begin_anew(str(error))
            return
        self._gateway.fatal(
            EndedError(
                f"{error}: its server was restored from an older state and has been written to "
                "since: check its data at the server's own port; then empty the server "
                "(FLUSHALL), start with --join HOST:PORT, and write missing data again"
            )
        )

    def _was_evicted(self, engine: GroupEngine) -> None:
        """Join again: the group's data replaces the server's, and what the group lacks is sent again."""
        self._evicted = engine
        group = self._gateway.options.node.group
        text = f"{engine.me} was evicted from group {group!r}, and joins again"
        self._log.warning("%s", text)
        self._gateway.begin_anew(text)

    def _keep_addresses(self) -> None:
        """Keep the others' addresses for a restart: the options need not name them."""
        known = {name: format_address(a) for name, a in sorted(self.peers.shared.known.items())}
        engine = self.peers.engine
        if engine is None:
            return
        members = set(map(name_of, engine.members))
        kept = {name: address for name, address in known.items() if name in members}
        if kept != self._addresses:
            self._addresses = kept
            self._gateway.note()

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the other members, by name."""
        return dict(self._addresses)

    # Operators' commands

    def members(self) -> list[dict[str, object]]:
        """The members as JSON values: name, incarnation, whether it is this one, whether it votes, how it is linked."""
        engine = self.engine
        voters = engine.view.voters
        stable, victims = engine.established, engine.victims
        links = self.peers.status()
        here = self.peers.channel.here
        told: list[dict[str, object]] = []
        for incarnation, member in sorted(engine.members.items()):
            name = name_of(incarnation)
            link = links.get(name)
            told.append(
                {
                    "name": name,
                    "incarnation": incarnation,
                    "me": incarnation == engine.me,
                    "witness": member.witness,
                    "voter": incarnation in voters,
                    "known_to_all": incarnation in stable,
                    "to_be_evicted": incarnation in victims,
                    "linked": incarnation == engine.me or here.get(name) == incarnation,
                    "address": self._addresses.get(name) or (link.address if link else None),
                }
            )
        return told

    def other(self, name: str) -> str:
        """That name. Raises LocalProtocolError if no other member has, or had, it."""
        others = {
            name_of(member) for member in self.engine.members
        } | self.peers.shared.known.keys()
        others.discard(self._gateway.options.node.name)
        if name not in others:
            known = ", ".join(sorted(others)) or "none"
            raise LocalProtocolError(f"no other member is called {name!r}: use one of: {known}")
        return name

    def evict(self, *members: str, force: bool = False) -> None:
        """Ask the group to evict members in one change, by their names or incarnations; see `GroupEngine.evict`.

        Raises LocalProtocolError if a name is not a member's.
        """
        known, group = self.engine.evictable, self._gateway.options.node.group
        victims = [member_named(member, known, group) for member in members]
        self.engine.evict(*victims, force=force)
        self._gateway.committer.kick()

    def withdraw(self, *members: str) -> None:
        """Withdraw this member's requests to evict these, or all of them; see `GroupEngine.withdraw`."""
        self.engine.withdraw(*members)
        self._gateway.committer.kick()

    def raise_level(self, level: int) -> None:
        """Ask for a higher format level. Raises LocalProtocolError if not all members read it."""
        self.engine.raise_level(level)
        self._gateway.committer.kick()

    def surrender(self) -> None:
        """End this side of a dispute or split; the other one continues. Raises LocalProtocolError if there is none."""
        self.engine.surrender()
        self._gateway.committer.kick()
        self.look()

    async def leave(self, *, plain: bool = False) -> None:
        """Begin to leave the group: writes are refused from now on. `left` is set when that is done.

        plain: remove all that is the gateway's own from the server then.
        """
        await unreserved(self)
        self.leave_now(plain=plain)

    async def _end_plain(self) -> None:
        await self._gateway.make_plain()
        self.left.set()

    def leave_now(self, *, plain: bool = False) -> None:
        """Like `leave`, while no dot is reserved."""
        engine = self.engine
        self._leaves_plain |= plain
        self._asks_first = False
        if engine.standing.can_send:
            engine.leave()
            self._log.warning("%s leaves the group", engine.me)
            self._gateway.committer.kick()

    async def leave_first(self) -> None:
        """Before a stop on a signal: leave if the options say so, and wait as long as they say."""
        seconds = self._options.leave_within
        if seconds is None or self.peers.engine is None:
            return
        with trio.move_on_after(seconds) as patience:
            await self.leave()
            await self.left.wait()
        if patience.cancelled_caught:
            departure = departed(self.engine)
            if (warning := departure.warning(seconds)) is not None:
                self._log.warning("%s", warning)


def _copied(rivals: list[str]) -> str:
    return (
        f"another running gateway has the identity of this one ({'; '.join(rivals)}): one of the two servers is a copy "
        "of the other: stop the gateway that should not continue; to use its server, empty it (FLUSHALL at its own "
        "port), and start its gateway with another --name, another --state-dir and --join"
    )
