"""One gateway: its server, its clients, its peers. This file puts the parts together.

Serving is a loop: connect to the server, inspect it, decide which incarnation this is (`recovery`), take the fence,
read everything into memory, and serve until the connection is lost. Without a server, clients wait a moment and then
get a clear error.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from crdtcast.adapters.redis.adoption.index_making import make_index
from crdtcast.adapters.redis.adoption.plain import make_plain
from crdtcast.adapters.redis.clients.listener import Front
from crdtcast.adapters.redis.clients.passthrough import Passthrough
from crdtcast.adapters.redis.clients.session import ServerIdentity, Session
from crdtcast.adapters.redis.clients.subscriptions import Subscriptions
from crdtcast.adapters.redis.clock import Clock
from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.durability import DurabilityProbe, Mark, promise
from crdtcast.adapters.redis.commit.phase import ServerPhase
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.compare.comparison import KeyComparison
from crdtcast.adapters.redis.compare.rounds import CompareRounds
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex
from crdtcast.adapters.redis.deadlines.index import unpinning
from crdtcast.adapters.redis.group.fixed import FixedMember
from crdtcast.adapters.redis.group.format_level import FormatLevel
from crdtcast.adapters.redis.group.lifecycle import Belonging
from crdtcast.adapters.redis.group.peers import GroupPeers
from crdtcast.adapters.redis.group.preimages import Aside
from crdtcast.adapters.redis.group.questions import Questions
from crdtcast.adapters.redis.group.recovery import Durability, FoundState, Identity
from crdtcast.adapters.redis.ops.admin import GatewayCommands
from crdtcast.adapters.redis.ops.held_log import HeldLog
from crdtcast.adapters.redis.ops.recorder import Read, Recorder
from crdtcast.adapters.redis.options import GatewayOptions
from crdtcast.adapters.redis.recorded.answer import Derived, ended_by
from crdtcast.adapters.redis.recorded.derivation import derived
from crdtcast.adapters.redis.server.access_rights import check_rights, note_denied
from crdtcast.adapters.redis.server.address import SentinelService, ServerAddress
from crdtcast.adapters.redis.server.connection import ServerConnection
from crdtcast.adapters.redis.server.inspection import Inspection, inspect, no_room
from crdtcast.adapters.redis.server.monitor import Sections, ServerMonitor
from crdtcast.adapters.redis.server.poller import Poller
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.databases import in_words
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.local_file import LocalFile, check_state_directory
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.adapters.redis.store.synced_file import Synced
from crdtcast.adapters.redis.waits.blocked import BlockedCommands
from crdtcast.backoff import Backoff
from crdtcast.causality.hlc import HLC
from crdtcast.causality.member_id import name_of
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector, covers, make_tuple
from crdtcast.engine import Durability as EngineDurability
from crdtcast.engine import Engine, EngineState, GroupEngine
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog, check_directory
from crdtcast.exceptions import (
    ConfigurationError,
    CrdtcastError,
    HandshakeError,
    NotReadyError,
    ServerError,
    ServerReadOnlyError,
    SupersededError,
)
from crdtcast.fixed.node import Node
from crdtcast.transport.channel import Channel
from crdtcast.transport.endpoint import Endpoint
from crdtcast.transport.log_throttle import Throttle, ahead
from crdtcast.transport.options import Address, format_address
from crdtcast.transport.tcp import cannot_listen, is_loopback, listen
from crdtcast.wire.offer_frames import Asking

_CLIENTS_WAIT_SECONDS = 2.0
"""How long clients wait for a lost server before they get an error."""
_BROADCAST_SECONDS = 0.002
"""Least time between two broadcasts; the first one after a pause goes immediately."""
_RECORD_SECONDS = 0.02
"""Least time between two writes of the event log, if nothing leaves that its lines are about."""
_STEADY_SECONDS = 5.0
_PROBE_AGAIN_SECONDS = 0.1
_NOTE_SECONDS = 1.0
_EXPIRE_SECONDS = 0.5
"""Between two searches for expired keys."""
_GRACE_MS = 2_000
"""How long after a deadline the first member that did not set it reports the expiry; each further member waits as long
again."""
_LONG_GRACE_MS = 20_000
"""The same while another member reports: many keys that expire together take a while, and one report is enough."""
_LOOK_AGAIN_SECONDS = 2.0
"""Between two attempts to restore keys that were overwritten."""


class Gateway:
    """One gateway with all its parts. It runs until it is cancelled, stopped or superseded."""

    def __init__(self, options: GatewayOptions, logger: logging.Logger | None = None) -> None:
        self.options = options
        self.clock: Clock = Clock()
        self.inspection: Inspection | None = None
        self.adopted: AdoptedIndex | None = None
        """How far the index of a database that was taken over is made, if this process has a part in that."""
        self.node: Node | GroupPeers | None = None
        self.address: Address | None = None
        self._log = logger or logging.getLogger("crdtcast.gateway")
        self.hlc: HLC = HLC(self.clock.ms)
        self.hlc.on_ahead = ahead(self._log, time.monotonic)
        fixed = options.node.level if options.member is None else None
        self.formats: FormatLevel = FormatLevel(fixed, self._log)
        self._poller = Poller(self._log)
        self._epoch = 0
        self._synced: Synced | None = None
        self._complaints = Throttle(self._log, period=600)
        self._event_log: EventLog | None = None
        self._failure: Exception | None = None
        self._scope = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._to_flush = trio.Event()
        self._more_due = trio.Event()
        self._flushed = self._recorded = 0.0
        self._exchanged = 0  # bytes with clients, at the end of the poller's last round
        self._has_sent = False  # to links, which get their turn soon
        self._look_again = 0.0
        self._connection: ServerConnection | None = None
        self._state: StoredState | None = None
        self.recorder: Recorder = Recorder(
            None,
            clock=time.monotonic,
            metadata_db=options.metadata_db,
            store_bytes=self._store_bytes,
        )
        self.durability: DurabilityProbe = DurabilityProbe(
            self._durable, self._note_synced, self._log
        )
        self.relay: Passthrough = Passthrough(self._poller, self._after_events)
        self.committer: Committer = Committer(
            metadata_db=options.metadata_db,
            clock=self.hlc,
            formats=self.formats,
            relay=self.relay,
            observer=self,
            flush_clients=lambda: self.front.flush(),
            hold_peers=self._hold_peers,
            set_aside=self._set_aside,
            release_peers=self._release_peers,
            fatal=self.fatal,
            later=_in_next_turn,
            most_replied=options.limits.output,
            logger=self._log,
        )
        self.questions: Questions = Questions(self._say, self._answer, self.spawn, self._log)
        self.comparison: KeyComparison = KeyComparison(
            options.node.name,
            self.committer,
            ask=self.questions.ask,
            read=self.committer.ask,
            linked=self.linked,
            members=self._members_with_data,
        )
        self.rounds: CompareRounds = CompareRounds(
            options.node.name,
            self.comparison,
            options.compare_seconds,
            linked=self.linked,
            tell=self._tell_to_look,
            on_changed=self._was_changed,
            logger=self._log,
        )
        self.comparison.on_look = self.rounds.look
        self.comparison.on_settle = self.rounds.settle
        self.committer.on_looked_up = self.rounds.looked_up
        self._fixed = FixedMember(options, self.committer, self.clock.us, self.begin_anew)
        self.belonging: Belonging | None = None
        if options.member is not None:
            self.belonging = Belonging(self, options.member, self._log)
            self.node = self.belonging.peers
            self.belonging.peers.before_leaving = self.recorder.flush
            self.recorder.first_of = self.belonging.first_of
        self.table: Table = Table()
        self.admin: GatewayCommands = GatewayCommands(self)
        self.subscriptions: Subscriptions = Subscriptions(
            self._poller, lambda: self.front.flush(), self._log
        )
        self.committer.counted = self.subscriptions.counted
        self.waits: BlockedCommands = BlockedCommands(
            self.committer,
            group=self._group_identity,
            handle=lambda request: self.session.handle(request),
            spawn=self.spawn,
            answered=self._after_events,
            syncs_later=self._syncs_later,
        )
        self.session: Session = Session(
            self.table,
            status=self.admin.status,
            subscriptions=self.subscriptions,
            admin=self.admin.handle,
            waits=self.waits,
            password=options.password,
            refuse_growth=lambda: self.committer.refusals.growth,
            refuse_elsewhere=lambda: self.committer.refusals.elsewhere,
        )
        self.front: Front = Front(
            self._poller,
            self.table,
            self.session,
            self.committer.submit,
            limits=options.limits,
            tls=options.tls,
            logger=self._log,
        )
        self.session.submit_by(self.committer.submit_divided)

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve. Raises ConfigurationError if the server is unusable, SupersededError if another gateway takes it."""
        try:
            # Checks on this machine come first: if one fails, nothing was written to the server.
            if self.options.log_dir is not None:
                check_directory(self.options.log_dir)
            check_state_directory(self.options.state_dir)
            await self._bind()
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._poller.run, self._after_round)
                    nursery.start_soon(self.relay.run)
                    nursery.start_soon(self.subscriptions.run)
                    nursery.start_soon(self._flush_in_batches)
                    nursery.start_soon(self.front.close_idle)
                    if self.belonging is not None:  # it may have to join first, over these links
                        await nursery.start(self._run_peers, self.belonging.peers)
                    await nursery.start(self._serve_server)
                    if isinstance(self.node, Node):
                        await nursery.start(self._run_peers, self.node)
                    nursery.start_soon(self.rounds.run)
                    if self.belonging is not None:
                        await self.belonging.hear_others()
                    self._listen()
                    task_status.started()
                    if self.belonging is not None:
                        await self.belonging.left.wait()
                        self._scope.cancel()
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure

    async def _run_peers(
        self, peers: Node | GroupPeers, *, task_status: trio.TaskStatus[Address]
    ) -> None:
        try:
            await peers.run(task_status=task_status)
        except SupersededError as error:
            self.fatal(error)

    async def _bind(self) -> None:
        try:
            await self.front.bind(*self.options.listen_clients)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(self.options.listen_clients, error) from error
        if self.belonging is None:  # only a test: listening to peers begins after `identify`
            for listener in await listen(self.options.node.listen):
                await listener.aclose()

    def _listen(self) -> None:
        try:
            self.address = self.front.listen()
        except OSError as error:
            raise cannot_listen(self.options.listen_clients, error) from error
        if self.options.password is None and not is_loopback(self.address[0]):
            self._log.warning(
                "clients connect to %s without a password: %s",
                format_address(self.address),
                (
                    "protected mode refuses clients of other machines: set a password to admit them "
                    "(--password)"
                )
                if self.options.limits.local_only
                else (
                    "every client that reaches it can read and write all data: set a password "
                    "(--password)"
                ),
            )

    async def leave_first(self) -> None:
        """Leave the group if the options say so. For a stop on a signal."""
        if self.belonging is not None:
            await self.belonging.leave_first()

    def stop(self) -> None:
        """Let `run` return."""
        self._scope.cancel()

    def fatal(self, error: Exception) -> None:
        """Let `run` raise `error`."""
        self._failure = self._failure or error
        self._scope.cancel()

    def _close(self) -> None:
        self.waits.stop()
        self.front.close_all()
        self.relay.close()
        self.subscriptions.close()
        if self._connection is not None:
            self._connection.close()
        if isinstance(self._failure, SupersededError):
            if self._event_log is not None:
                self._event_log.abandon()  # the other gateway continues this log
        elif isinstance(self._event_log, HeldLog) and self._event_log.waits:
            self._event_log.abandon()  # the server may lose what is not synced
        elif self._event_log is not None and self.committer.engine is not None:
            _, unstable = self._store_bytes()
            self._event_log.stop(unstable)
        self._poller.close()

    # The server

    async def make_plain(self) -> None:
        """Stop serving clients, and remove from the server all that is the gateway's own."""
        hidden = sorted(self.committer.keyspace.hidden)
        self._serving.cancel()
        if self._connection is not None:
            self._connection.abort("this gateway has left its group")
        self.committer.refuse("this gateway has left its group", reads=False, passes=False)
        backoff = Backoff(random.SystemRandom(), first=0.05, longest=1.0)
        while True:
            try:
                address = await self.options.server.locate()
                connection = await ServerConnection.open(self._poller, address)
                try:
                    where = self.options.metadata_db, self._epoch, self.clock.offset_ms
                    await make_plain(connection, *where)
                finally:
                    connection.close()
                break
            except ServerError as error:
                self._log.error("%s; trying again", error)
                await trio.sleep(backoff.next_delay())
        self._log.warning(
            "the server is a plain one again; %d values that another type had hidden are gone%s",
            len(hidden),
            f" ({', '.join(map(in_words, hidden[:10]))})" if hidden else "",
        )

    async def _serve_server(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self._serving:
            await self._serve_until_cancelled(task_status)

    async def _serve_until_cancelled(self, task_status: trio.TaskStatus[None]) -> None:
        backoff = Backoff(random.SystemRandom(), first=0.05, longest=1.0)
        said = ""
        while True:
            try:
                address = await self.options.server.locate()
                connection = await ServerConnection.open(self._poller, address)
                try:
                    await self._attach(connection)
                except BaseException:
                    connection.close()
                    raise
            except (ServerError, ConfigurationError, HandshakeError) as error:
                if not isinstance(error, ServerError) and self.committer.engine is None:
                    raise
                if str(error) != said:
                    said = str(error)
                    until = " until it answers" if isinstance(error, ServerError) else ""
                    self._log.error("%s; trying again%s", error, until)
                answers = isinstance(error, ServerReadOnlyError)
                if answers or self.committer.phase is not ServerPhase.WAITING:
                    passes = isinstance(error, ServerError)
                    self.committer.refuse(str(error), reads=answers, passes=passes)
                await trio.sleep(backoff.next_delay())
                continue
            said = ""
            began = trio.current_time()
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._expire_keys)
                if self.adopted is not None:
                    nursery.start_soon(make_index, self.adopted, self.committer, self._log)
                if self.durability.level is Durability.EVERYSEC:
                    nursery.start_soon(self._probe_durability, connection.address)
                nursery.start_soon(self._monitor(connection).run)
                if self.durability.level is Durability.ALWAYS:
                    nursery.start_soon(self._note_what_is_synced)
                await connection.lost.wait()
                nursery.cancel_scope.cancel()
            self._log.error("%s", connection.error)
            if self._nursery is not None:
                self._nursery.start_soon(self._refuse_unless_back, connection)
            if trio.current_time() - began > _STEADY_SECONDS:
                backoff.reset()
            else:  # it answers, then fails at once: slow down
                await trio.sleep(backoff.next_delay())

    async def _expire_keys(self) -> None:
        """Tell the other members which keys the server has dropped at their deadlines."""
        told_at = -math.inf
        while True:
            with trio.move_on_after(_EXPIRE_SECONDS):
                await self._more_due.wait()
            self._more_due = trio.Event()
            engine = self.committer.engine
            if self.committer.keyspace.dates.in_use and engine is not None:
                place = (
                    sorted(engine.members).index(engine.me) if engine.me in engine.members else 0
                )
                dates = self.committer.keyspace.dates
                if dates.others_tell:
                    told_at, dates.others_tell = trio.current_time(), False
                is_told = trio.current_time() - told_at < _GRACE_MS / 1000
                self.committer.expire((_LONG_GRACE_MS if is_told else _GRACE_MS) * (1 + place))

    async def _refuse_unless_back(self, lost: ServerConnection) -> None:
        """Let clients wait a moment for the server to come back; then answer them with an error."""
        await trio.sleep(_CLIENTS_WAIT_SECONDS)
        if self._connection is lost and self.committer.phase is ServerPhase.WAITING:
            self.committer.refuse(str(lost.error), reads=False, passes=True)

    async def _attach(self, connection: ServerConnection) -> None:
        """Find out which incarnation this is at this server, and continue from what it holds."""
        options = self.options
        await check_rights(connection)
        inspection = await inspect(connection, options.metadata_db)
        self.table.extend_from_server(inspection.commands)
        await note_denied(connection, self.table)
        if isinstance(options.server, SentinelService) and not inspection.found.is_primary:
            raise ServerError(f"Sentinel names {connection.address}, which has become a replica")
        # A lower epoch does not mean another gateway: the server came back with less data.
        if self._epoch and inspection.fence > self._epoch:
            self.fatal(
                SupersededError(
                    "another gateway has taken over this server while this one was disconnected "
                    "from it"
                )
            )
            await trio.sleep_forever()
        epoch = self._epoch or self._next_epoch(inspection.fence)
        before = self.committer.engine
        how: Identity | None = None
        if self.belonging is None:
            how, state, inspection = await self._fixed.identify(connection, inspection, epoch)
        else:
            state, inspection = await self.belonging.identify(connection, inspection, epoch)
        self.inspection, self._state = inspection, state
        if inspection.pinned:
            await connection.call(
                unpinning(inspection.pinned, options.metadata_db, self.clock.offset_ms)
            )
        self.note()
        self._epoch = epoch
        self._connection = connection
        self.relay.use(connection.address)
        self.subscriptions.use(connection.address)
        self.durability.begin(inspection.found.durability)
        self._resume(connection, inspection, state, before)
        self._log.log(
            logging.WARNING if self.durability.level is Durability.VOLATILE else logging.INFO,
            "%s at %s: %s; durability %s: %s",
            options.node.name,
            connection.address,
            f"incarnation {state.incarnation}" if how is None else how.value,
            self.durability.level.value,
            self.promise,
        )

    @property
    def promise(self) -> str:
        """What acknowledged writes survive."""
        return promise(self.durability.level, refills=self.options.member is not None)

    def _next_epoch(self, fence: int) -> int:
        """Higher than the server's fence, and than any that it has forgotten: a server may be emptied."""
        return max(fence + 1, self.clock.ms())

    def _group_identity(self) -> str:
        """What tells the group from others, also of its name. Fixed members have only that."""
        state = self._state
        return (state.founding if state is not None else "") or self.options.node.group

    def note(self, *, left: bool = False, plain: bool = False) -> None:
        """Rewrite the local file: addresses or the format level have changed, or the gateway has left its group.

        plain: the server becomes a plain one.
        """
        assert self.inspection is not None and self._state is not None
        state, stored = self._state, self.committer.state
        if stored is not None and stored.incarnation == state.incarnation:
            state = replace(state, level=stored.level)
        self.write_file(state, self.inspection.found, left=left, plain=plain)

    def write_file(
        self,
        state: StoredState,
        found: FoundState,
        *,
        left: bool = False,
        plain: bool = False,
        begun: bool = True,
    ) -> None:
        """Note in the local file which incarnation continues at which server.

        left: it has left its group.
        plain: with that, its server becomes a plain one.
        begun: False before it founds its group.
        """
        LocalFile(
            group=state.group,
            name=state.name,
            incarnation=state.incarnation,
            run_id=found.run_id,
            role=found.role,
            durability=found.durability.value,
            server=found.address,
            level=state.level,
            addresses={} if self.belonging is None else self.belonging.addresses,
            left_out={} if self.belonging is None else self.belonging.left_out,
            left=left,
            plain=plain,
            begun=begun,
        ).write(self.options.state_dir)

    def _resume(
        self,
        connection: ServerConnection,
        inspection: Inspection,
        state: StoredState,
        before: Engine | GroupEngine | None,
    ) -> None:
        engine = self._engine_for(state, inspection)
        self.waits.resumed(engine.me)
        self.hlc.observe(state.clock)
        self.comparison.resumed()
        keyspace = Keyspace(self.options.metadata_db)
        keyspace.databases = inspection.databases
        keyspace.hidden, keyspace.damaged = inspection.hidden, inspection.damaged
        keyspace.exact.resume(inspection.exact)
        keyspace.disputed = inspection.disputed
        keyspace.left_out = inspection.left_out
        self.adopted, keyspace.dates.adopts = inspection.adopted, inspection.adopted is not None
        keyspace.incomplete = inspection.incomplete
        keyspace.refused = keyspace.damaged | keyspace.disputed | keyspace.incomplete
        if self.belonging is not None:
            keyspace.aside = Aside(self.options.metadata_db)
            keyspace.aside.has_room = self.committer.refusals.growth is None
        self._replay(engine, keyspace, inspection.unstable)
        # Before any link is up: other members may have its message already.
        self.committer.recorded.resume(engine, keyspace, inspection.record)
        if isinstance(before, Engine) and isinstance(engine, Engine):
            self._fixed.keep_what_the_server_lost(before, engine)
        keyspace.dates.offset_ms = self.clock.offset_ms
        keyspace.dates.told(inspection.time_ms + self.clock.offset_ms)
        keyspace.dates.resume(
            engine.me,
            inspection.orphans,
            engine.vector,
            in_use=inspection.has_deadlines or keyspace.log.deadlines.any_ends(),
        )
        self._begin_events(state, engine, keyspace, inspection)
        identity = ServerIdentity(
            name=inspection.product,
            version=inspection.version,
            redis_version=inspection.redis_version,
        )
        self.session.use(identity, inspection.databases, inspection.left_out)
        self._start_peers(engine, state)
        connection.on_lost = self._suspend
        self.committer.resume(
            connection,
            engine,
            keyspace,
            state,
            b"%d" % self._epoch,
            inspection.record or inspection.handed_on,
        )
        self._do_what_was_next(keyspace, inspection)

    def _do_what_was_next(self, keyspace: Keyspace, inspection: Inspection) -> None:
        """Do what the commit after the last one would have done, besides storing messages."""
        handed_on = inspection.handed_on
        ended = () if handed_on is None else ended_by(derived(handed_on))
        for work, keys in ((keyspace.ended, ended), (keyspace.let_out, inspection.unshown)):
            for key in keys:
                self.committer.inside(key, partial(_do_on_key, work, key))
        self.committer.kick()

    def _suspend(self, error: ServerError) -> None:
        self.committer.suspend()
        self.subscriptions.begin_anew(str(error))

    def _engine_for(self, state: StoredState, inspection: Inspection) -> Engine | GroupEngine:
        """The engine, from the state in the server."""
        if self.belonging is not None:
            return self.belonging.resume(state, inspection)
        engine = Engine(
            state.incarnation,
            state.members,
            state=EngineState(
                counter=state.counter,
                vector=state.vector,
                context=state.context,
                stable=state.stable,
                unstable=tuple(inspection.unstable),
            ),
            durable=EngineDurability.DECLARED,
        )
        engine.mark_durable(dict(engine.vector))
        return engine

    def _start_peers(self, engine: Engine | GroupEngine, state: StoredState) -> None:
        """Continue the links with that engine."""
        if isinstance(engine, GroupEngine):
            assert self.belonging is not None
            self.belonging.start(engine, state)
            return
        assert self.inspection is not None
        databases = self.inspection.databases.told
        if isinstance(self.node, Node):
            self.node.databases = databases
            self.node.replace_engine(engine, self._epoch)
        else:
            self.node = Node(
                self.options.node,
                engine,
                fence_epoch=self._epoch,
                databases=databases,
                on_work=self.on_work,
                on_rolled_back=self._fixed.rolled_back,
                clock_ms=self.clock.ms,
                logger=self._log,
            )
            self.node.before_leaving = self.recorder.flush
            self.node.on_asked = self.questions.heard
            self.node.on_gone = self.questions.gone

    def _replay(
        self, engine: Engine | GroupEngine, keyspace: Keyspace, unstable: list[Message]
    ) -> None:
        """Rebuild the unstable log from the stored messages, in the order of their delivery."""
        for message in unstable:
            if message.kind:
                continue  # an operation on the membership
            timestamp, applied = effects.decode_own(message)
            tag = engine.tag(message.dot)
            for index, effect in enumerate(applied):
                keyspace.log.apply(effect, tag, timestamp, index)
            if keyspace.aside is not None and message.dot.origin == engine.me:
                keyspace.aside.found(message.dot, applied)

    def _begin_events(
        self,
        state: StoredState,
        engine: Engine | GroupEngine,
        keyspace: Keyspace,
        inspection: Inspection,
    ) -> None:
        options = self.options
        told_stable: Vector = {}
        if options.log_dir is not None:
            if self._event_log is not None:
                self._event_log.close()
            ended = inspection.found.state
            if self.belonging is None and ended is not None and ended.incarnation != engine.me:
                self._complete_events(options.log_dir, ended, inspection)
            self._event_log = self._open_event_log(options.log_dir, engine.me)
            told_stable = self._event_log.told_stable
        group = None
        if isinstance(engine, GroupEngine) and isinstance(self._event_log, HeldLog):
            self._event_log.number = self.committer.commits
            group = GroupLog(engine, self._event_log)
        self.recorder.begin(
            self._event_log,
            keyspace,
            incarnation=engine.me,
            members=state.members if group is None else engine.members,
            vector=state.vector,  # the engine may have sent something already
            stable=state.stable,
            stored=inspection.stored,
            reported=[dot for dot in state.reported if not covers(told_stable, dot)],
            level=self.formats.in_force(engine),
            derived=self.committer.recorded.pending,
            group=group,
        )

    def _complete_events(self, directory: Path, ended: StoredState, inspection: Inspection) -> None:
        """The commits of an incarnation that has ended may be in the server, and not in its log yet."""
        log = self._open_event_log(directory, ended.incarnation)
        self.recorder.complete(
            log,
            incarnation=ended.incarnation,
            reported=[dot for dot in ended.reported if not covers(log.told_stable, dot)],
            stored=inspection.stored,
        )
        log.close()

    def _open_event_log(self, directory: Path, incarnation: str) -> EventLog:
        kind = EventLog if self.belonging is None else HeldLog
        return kind(
            directory,
            group=self.options.node.group,
            replica=self.options.node.name,
            incarnation=incarnation,
            clock_us=self.clock.us,
            rotation=self.options.rotation,
            log=self._log.warning,
        )

    def _monitor(self, connection: ServerConnection) -> ServerMonitor:
        """A monitor, to refuse writes before the server fails them inside EXEC, or evicts keys in this region only."""
        return ServerMonitor(
            self._poller,
            connection.address,
            told=self._look_at_memory,
            dead=connection.abort,
            patience=self.options.server_patience,
        )

    def _look_at_memory(self, sections: Sections) -> None:
        self.session.info.look(sections)
        problem = no_room(sections.get("memory", {}))
        full = self.committer.refusals.growth is not None
        if (problem is not None) == full:
            return
        self._log.warning("%s", problem or "the server has room again: the gateway takes writes")
        self.committer.refusals.growth = ReplyError(f"OOM {problem}") if problem else None
        self._keep_aside(has_room=problem is None)

    async def _note_what_is_synced(self) -> None:
        """Under `appendfsync always` every answered commit is synced: note that once a second."""
        while self.belonging is not None:
            await self._note_synced(self.belonging.stored)
            await trio.sleep(_NOTE_SECONDS)

    def _keep_aside(self, *, has_room: bool) -> None:
        """Without room, drop the kept preimages first."""
        aside = self.committer.keyspace.aside
        if aside is None:
            return
        if has_room:
            aside.has_room = True
        else:
            self.committer.at_its_end(lambda commit: aside.make_room(commit.plan))
            self.committer.kick()

    async def _probe_durability(self, address: ServerAddress) -> None:
        while True:  # a server closes idle connections; without this one nothing becomes stable
            with contextlib.suppress(ServerError):
                connection = await ServerConnection.open(self._poller, address)
                try:
                    await self.durability.run(connection, self.options.metadata_db)
                finally:
                    connection.close()
            await trio.sleep(_PROBE_AGAIN_SECONDS)

    # For operators

    @property
    def runtime(self) -> Node | Channel | None:
        """What transports the engine's messages; None before there is an engine."""
        if isinstance(self.node, GroupPeers):
            return None if self.node.engine is None else self.node.channel
        return self.node

    @property
    def endpoint(self) -> Endpoint:
        """The links. Raises NotReadyError if they do not exist yet."""
        if self.node is None:
            raise NotReadyError("not started yet")
        return self.node.shared if isinstance(self.node, GroupPeers) else self.node

    # Events between the parts; `CommitObserver` documents those of commits

    def gathering(self, commit: Commit, number: int) -> None:
        """See `CommitObserver`."""
        self.recorder.gathering(commit, number)

    def prepared(self, commit: Commit, number: int) -> None:
        """See `CommitObserver`."""
        if self.belonging is not None:
            self.recorder.prepared(commit)
            self.belonging.prepared(commit, number)

    def committed(self, commit: Commit) -> None:
        """See `CommitObserver`."""
        number, belonging = self.committer.commits, self.belonging
        self.recorder.committed(commit, number)
        if commit.number:
            order = commit.order + self.committer.recorded.count
            self.durability.committed(make_tuple(Mark, (number, commit.vector, order)))
            if belonging is not None:
                belonging.stored = order
        if belonging is not None:
            belonging.committed(commit)
        self.comparison.committed(commit)
        if self.waits.waiting:
            self.waits.look(in_step=True)
        if commit.has_more_due:
            self._more_due.set()
        for key in commit.repaired:
            self.recorder.touch_again(key)

    # Comparing keys with other members

    def linked(self) -> list[str]:
        """Names of the members that are linked and hold data."""
        if isinstance(self.node, Node):
            return self.node.linked
        engine = None if self.node is None else self.node.engine
        if engine is None or self.belonging is None:
            return []
        here = self.belonging.peers.channel.here
        return sorted(
            name
            for name, incarnation in here.items()
            if incarnation in engine.members and not engine.members[incarnation].witness
        )

    def others_with_data(self) -> list[str]:
        """Names of all other members that hold data, linked or not."""
        engine, node = self.committer.engine, self.options.node
        if not isinstance(engine, GroupEngine):
            return sorted(node.named_peers)
        names = {name_of(i) for i, member in engine.members.items() if not member.witness}
        return sorted(names - {node.name})

    def _members_with_data(self) -> int:
        return 1 + len(self.others_with_data())

    def _say(self, name: str, frame: Asking) -> None:
        if isinstance(self.node, Node):
            self.node.ask(name, frame)
        elif self.belonging is not None and name in self.belonging.peers.channel.here:
            self.belonging.peers.channel.send_to([name], frame)

    async def _answer(self, name: str, question: bytes) -> bytes:
        return await self.comparison.answer(question)

    def _tell_to_look(self, names: Sequence[str], keys: Sequence[bytes]) -> None:
        async def tell() -> None:
            for name in names:
                with contextlib.suppress(CrdtcastError):  # its next round finds them, too
                    await self.comparison.tell(name, keys)

        self.spawn(tell)

    def _was_changed(self, key: bytes) -> None:
        self.committer.changed_behind += 1

    def _restore_damaged(self) -> None:
        """Repair damaged keys, and keys repaired in part, from other members' states."""
        now, keyspace = time.monotonic(), self.committer.keyspace
        waiting = keyspace.damaged or keyspace.incomplete
        if waiting and now >= self._look_again and self.linked():
            self._look_again = now + _LOOK_AGAIN_SECONDS
            self.rounds.look(keyspace.damaged | keyspace.incomplete)

    def derived(self, record: Derived) -> None:
        """See `CommitObserver`."""
        self.recorder.derived(record)

    @property
    def has_forgettable(self) -> bool:
        """See `CommitObserver`."""
        return self.recorder.has_forgettable

    def forgettable(self, dots: list[Dot]) -> list[Dot]:
        """See `CommitObserver`."""
        return self.recorder.forgettable(dots)

    def about_to_gather(self) -> None:
        """See `CommitObserver`."""
        if self.belonging is not None:
            self.belonging.add_work()

    def reads(self) -> list[Read]:
        """See `CommitObserver`."""
        return self.recorder.reads()

    def begin_anew(self, reason: str) -> None:
        """Close the connection to the server, reconnect, and find out again which incarnation this is."""
        if self._connection is not None:
            self._connection.abort(reason)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something in the background until the gateway ends. It must handle its own errors."""
        if self._nursery is not None:
            self._nursery.start_soon(work)

    async def _note_synced(self, order: int) -> None:
        """Note how far the server is synced: if it comes back with less, it has lost messages that others may have."""
        engine = self.committer.engine
        if self.belonging is not None and engine is not None:
            synced = Synced(engine.me, order)
            if synced == self._synced:
                return
            options = self.options
            try:
                await trio.to_thread.run_sync(synced.write, options.state_dir, options.node.name)
                self._synced = synced
            except ConfigurationError as error:  # the previous note is still true
                self._complaints.log(time.monotonic(), "synced", logging.ERROR, str(error))

    def _syncs_later(self) -> bool:
        """Whether the incarnation may continue without own messages that were answered, but not synced. One at a server
        without a file, or among fixed members, ends if its server dies.
        """
        return self.belonging is not None and self.durability.level is Durability.EVERYSEC

    def _durable(self, mark: Mark) -> None:
        if self.belonging is not None:
            number, peers = mark.number, self.belonging.peers
            self.recorder.synced(number)
            peers.gate.synced(number)
            if self.durability.level is Durability.EVERYSEC:  # else the end of a commit flushes
                self.recorder.flush()
                peers.flush()
                engine = self.committer.engine
                self.waits.synced(0 if engine is None else mark.vector.get(engine.me, 0))
        elif isinstance(self.committer.engine, Engine):
            self.committer.engine.mark_durable(mark.vector)

    def _store_bytes(self) -> tuple[int, int]:
        engine = self.committer.engine
        return (0, 0) if engine is None else engine.stored

    def _after_events(self) -> None:
        self.committer.look()
        if self.front.touched:
            self.front.flush()
        if self.relay.stalled:
            self.relay.go_on()

    def _after_round(self) -> bool:
        """Returns whether clients have just asked, so that the server is about to answer, or were just answered and
        may ask again; but links that have something to send get their turn first.
        """
        self._after_events()
        front = self.front
        before, self._exchanged = self._exchanged, front.bytes_in + front.bytes_out
        if self._has_sent:
            self._has_sent = False
            return False
        return before != self._exchanged

    def on_work(self) -> None:
        """Look for work: something may be deliverable or stable, or a tick has passed."""
        now = time.monotonic()
        if now - self._recorded >= _RECORD_SECONDS:
            self._recorded = now
            self.recorder.flush()
        self._restore_damaged()
        self.committer.ticked()
        if self.belonging is not None:
            self.belonging.peers.flush()
            self.belonging.look()
        if self.waits.waiting:
            self.waits.look(in_step=False)
            self._after_events()
        self.front.flush()

    def _hold_peers(self, hold: bool) -> None:
        if self.node is None:
            return
        self.node.hold = hold
        if not hold:
            self._broadcast()

    def _set_aside(self) -> None:
        if self.node is not None:
            self.node.set_aside()

    def _release_peers(self) -> None:
        if self.node is not None:
            self.node.release()
            self._broadcast()

    def _broadcast(self) -> None:
        """Send what may leave, now or together with what comes a moment later."""
        assert self.node is not None
        if not self.node.has_outgoing:
            return
        now = trio.current_time()
        if now - self._flushed >= _BROADCAST_SECONDS:
            self._flushed = now
            self._has_sent = True
            self.node.flush()
        else:
            self._to_flush.set()

    async def _flush_in_batches(self) -> None:
        """Under load, send the messages of several commits together, so that peers apply them in one commit."""
        while True:
            await self._to_flush.wait()
            self._to_flush = trio.Event()
            await trio.sleep_until(self._flushed + _BROADCAST_SECONDS)
            self._flushed = trio.current_time()
            if self.node is not None:
                self.node.flush()


def _in_next_turn(callback: Callable[[], None]) -> None:
    """Call it after all ready tasks, the poller among them, have had their turn."""
    trio.lowlevel.current_trio_token().run_sync_soon(callback)


def _do_on_key(work: Callable[[bytes], None], key: bytes, batch: LocalBatch) -> None:
    work(key)
