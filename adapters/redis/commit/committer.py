"""The path of a write: one commit at a time from clients and peers to the server, then replies, then the network.

Rules: remote messages first, then the local commands as messages of their own; everything in one MULTI … EXEC with our
metadata; at most one EXEC in flight, prepared only when the one before is answered; every reply inside it checked;
reads of the same round behind the writes; clients answered after EXEC, peers told after the clients. While a commit is
under way the node holds its outbox, so nothing uncommitted leaves the process. If the connection dies, all memory is
dropped and read again from the server (`resume`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from crdtcast.adapters.redis import crash_points
from crdtcast.adapters.redis.clients.large_request import LargeArgs
from crdtcast.adapters.redis.clients.transaction import (
    ABORTED,
    SlotContents,
    Transaction,
    Uncertain,
    prepare_transaction,
)
from crdtcast.adapters.redis.clients.watches import Watches, WatchRequest, WatchVerdict
from crdtcast.adapters.redis.commands.table import CommandKind
from crdtcast.adapters.redis.commit.batch import MAX_BYTES, MAX_OPERATIONS, LocalBatch
from crdtcast.adapters.redis.commit.divided_removal import divided
from crdtcast.adapters.redis.commit.lookup import Looks, Lookup
from crdtcast.adapters.redis.commit.message_intake import Inside, MessageIntake
from crdtcast.adapters.redis.commit.phase import (
    REFUSES,
    SERVING,
    TRANSITIONS,
    ServerEvent,
    ServerPhase,
)
from crdtcast.adapters.redis.commit.plan import SAYS_OK, Answerable, Expect, Plan
from crdtcast.adapters.redis.commit.reads import (
    CommitReads,
    add_read,
    add_read_at_one_instant,
    holds_many,
)
from crdtcast.adapters.redis.commit.refusals import Refusals
from crdtcast.adapters.redis.commit.replies import CommitReplies
from crdtcast.adapters.redis.commit.request_intake import RequestIntake
from crdtcast.adapters.redis.commit.round import Commit
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.deadlines.index import BEGINNING, PIN_BELOW_MS, Due, GoneDeadline
from crdtcast.adapters.redis.deadlines.reassertion import hold, moved_ahead, reassert
from crdtcast.adapters.redis.group.format_level import FormatLevel
from crdtcast.adapters.redis.recorded.answer import Derived, RecordedWork, store
from crdtcast.adapters.redis.recorded.record import ServerRecord
from crdtcast.adapters.redis.recorded.segments import Segments, refusal_of
from crdtcast.adapters.redis.server.connection import pack
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import described
from crdtcast.adapters.redis.store.effects import (
    EffectsEvent,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.causality.hlc import HLC
from crdtcast.causality.messages import Delivery, Message
from crdtcast.causality.tags import Dot, covers
from crdtcast.engine import Engine, GroupEngine
from crdtcast.exceptions import ServerError, SupersededError
from crdtcast.phases import Lifecycle

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.clients.passthrough import Passthrough
    from crdtcast.adapters.redis.server.connection import Replies, ServerConnection

MAX_STABLE = 2000
STABLE_EVERY = 32
"""Commits behind which what is stable is taken, unless a tick has come before; a large one counts several times. Taken
with each commit, it would be an eighth of what a single write costs.
"""
_STRETCH_BYTES = 64 << 10
"""What a commit holds counts as one more from so many bytes on."""
MAX_TRIES = 3

_ARGS = attrgetter("args")
_MULTI, _EXEC = pack((b"MULTI",)), pack((b"EXEC",))
_GUARD_REPLIES = 4
_KEPT = ReplyError(
    "ERR crdtcast: this key was overwritten directly in the server; this write is kept and "
    "replicated, and the gateway repairs the key: do not send it again"
)
_CHANGED = ReplyError(
    "ERR crdtcast: this key was changed directly in the server, and the gateway repairs it: read "
    "it again"
)
_NO_MORE_TRIES = ReplyError(
    f"ERR crdtcast: the connection to the server broke {MAX_TRIES} times during this command; "
    "nothing was written"
)
_REPLY_LOST = ReplyError(
    "ERR crdtcast: this write was applied, but the connection to the server broke before its "
    "reply arrived"
)
_MAYBE_PUBLISHED = ReplyError(
    "ERR crdtcast: the connection to the server broke during this command: the message may or "
    "may not have been published"
)


class CommitObserver(Protocol):
    """Who is told of what was committed: the event log and the durability probe."""

    def gathering(self, commit: Commit, number: int) -> None:
        """Where members come and go: `commit`, which will be of that number, has taken what is stable, and what the
        engine has issued by itself; nothing is delivered yet.
        """
        ...

    def prepared(self, commit: Commit, number: int) -> None:
        """Where members come and go: `commit`, which will be of that number, holds all that the engine knows at this
        instant; it is about to be sent.
        """
        ...

    def derived(self, record: Derived) -> None:
        """The server has carried this out by itself: what is known of keys has it, and the next commit will tell."""
        ...

    def committed(self, commit: Commit) -> None: ...

    @property
    def has_forgettable(self) -> bool:
        """Whether the server holds what is stable and may be forgotten now."""
        ...

    def forgettable(self, dots: list[Dot]) -> list[Dot]:
        """What the server may forget with this commit. dots: what has become stable with it."""
        ...

    def reads(self) -> list[tuple[list[bytes], Callable[[object], None]]]:
        """Own reads that can wait, for behind the next commit, at an instant that the committed vector describes."""
        ...

    def about_to_gather(self) -> None:
        """Where members come and go: what has to be `inside` the next commit is to be said now."""
        ...


class Committer:
    """Gathers, prepares, commits, answers. Driven by `submit`, `kick` and the server's replies; it never waits."""

    def __init__(
        self,
        *,
        metadata_db: int,
        clock: HLC,
        formats: FormatLevel,
        observer: CommitObserver,
        relay: Passthrough,
        flush_clients: Callable[[], None],
        hold_peers: Callable[[bool], None],
        fatal: Callable[[Exception], None],
        later: Callable[[Callable[[], None]], None],
        most_replied: int,
        logger: logging.Logger,
    ) -> None:
        """most_replied: bytes of replies that reads of one commit may give one client; 0: any number."""
        self._metadata_db = metadata_db
        self._guard = _fence_guard(metadata_db)
        self._clock = clock
        self._formats = formats
        self.refusals: Refusals = Refusals(formats)
        self._observer = observer
        self._relay = relay
        self._flush_clients = flush_clients
        self._hold_peers = hold_peers
        self._fatal = fatal
        self.later = later
        self._most_replied = most_replied
        self._log = logger
        self._life = Lifecycle(TRANSITIONS, ServerPhase.WAITING)
        self._server: ServerConnection | None = None
        self._commit: Commit | None = None
        """The one that is under way, or was when the connection was lost."""
        self._tried: dict[Request, int] = {}
        self._epoch = b""
        self._why_refused = ""
        self._repairs: set[bytes] = set()
        self._reads = CommitReads()
        self._inside: list[Inside] = []
        self._last: list[Callable[[Commit], None]] = []
        self._asked: list[tuple[list[bytes], Callable[[object], None]]] = []
        self._watches = Watches()
        self.recorded: RecordedWork = RecordedWork()
        self._records_first = False  # what is recorded has waited for reads of our own
        self._advance_ms = 0
        """What the clock of the deadlines is to be moved by, for tests."""
        self._grace_ms: int | None = None
        """The next commit looks for expired keys; of deadlines that others set, only behind this."""
        self._puts_expiry_off = False
        """Whether that look was put off once, since others were waiting."""
        self._ticks = 0  # since the last commit; no more than 2, and 1 as long as one is under way
        self._left_stable = 0  # commits and stretches since what is stable was taken
        self._noted = 0  # by the member about its view, of what the server has
        self._membership: object = None  # what the server has of it
        self.engine: Engine | GroupEngine | None = None
        self._group: GroupEngine | None = None
        """The engine, where members come and go."""
        self.keyspace: Keyspace = Keyspace(metadata_db)
        self._messages = MessageIntake(clock, formats, later, self.kick, self.keyspace)
        self._intake = RequestIntake(
            relay, self._reads, self.refusals, self._repairs, self.keyspace
        )
        self._requests = self._intake.waiting
        self.state: StoredState | None = None
        self.on_looked_up: Callable[[bytes], None] = lambda key: None
        """Called for each key that the server was asked about, and has."""
        self.counted: Callable[[Sequence[bytes], object], object] = lambda words, reply: reply
        """What is told of a reply that counts subscribers."""
        self.commits: int = 0
        self.changed_behind: int = 0
        """Keys found changed past the gateway, since start."""

    # The server comes and goes

    def resume(
        self,
        server: ServerConnection,
        engine: Engine | GroupEngine,
        keyspace: Keyspace,
        state: StoredState,
        epoch: bytes,
        record: ServerRecord | None,
    ) -> None:
        """Go on with what was read from the server; settle what was under way when the connection died.

        record: what the server has done by itself, and is `recorded` here.
        """
        self._server, self.engine, self.keyspace = server, engine, keyspace
        self._messages.keyspace = self._intake.keyspace = keyspace
        self.state = replace(state, incarnation=engine.me, level=self._formats.agreed(engine))
        self._group = engine if isinstance(engine, GroupEngine) else None
        if self._group is not None:
            outline = self._group.outline()
            self._noted = metadata.notes(outline)
            is_stored = metadata.pack_membership(outline) == state.membership
            self._membership = metadata.membership_of(outline) if is_stored else None
        self._epoch = epoch
        self._life.move(ServerEvent.OWN)
        self.refusals.resume(engine, keyspace)
        self._repairs.clear()
        self._inside.clear()
        self._last.clear()
        self._intake.alone = None
        if self._commit is not None:
            self._settle(self._commit, state, record)
        self._commit = None
        self._hold_peers(False)
        self.kick()

    def suspend(self) -> None:
        """The connection is gone: memory is worth nothing until it has been compared with the server."""
        self._hold_peers(True)
        self._watches.lost()
        self._life.move(ServerEvent.LOSE)

    def refuse(self, reason: str, *, reads: bool) -> None:
        """Answer what waits, and all that comes, with an error: the server has been away for too long.

        reads: the server answers, it only takes no writes: reads are relayed to it.
        """
        self._life.move(ServerEvent.FIND_FULL if reads else ServerEvent.GIVE_UP)
        self._why_refused = reason
        if self._commit is not None:
            unsure = ReplyError(
                f"ERR crdtcast: {reason}; the connection broke during this write: when the server "
                "is back, read to see whether it was applied"
            )
            for request in self._commit.requests:
                if not request.answered:
                    is_unsure = request.writes or request.publishes
                    request.answer(unsure if is_unsure else self._refused())
        waiting = list(self._requests)
        self._requests.clear()
        for request in waiting:
            self.submit(request)
        self._flush_clients()
        self._relay.go_on()

    @property
    def refusal(self) -> str | None:
        """Why clients get errors for their writes, whatever these are: the server has been away for too long, or takes
        none.
        """
        return self._why_refused if self._life.phase in REFUSES else None

    def _refused(self) -> ReplyError:
        return ReplyError(f"ERR crdtcast: {self._why_refused}; nothing was written, try again")

    def _settle(self, commit: Commit, state: StoredState, record: ServerRecord | None) -> None:
        """Answer the commit that was cut off, once and honestly: what is stored tells whether it was applied."""
        applied = 0 < commit.number <= state.number or (
            bool(commit.sent) and all(covers(state.vector, tag.dot) for tag, _, _ in commit.sent)
        )
        again: list[Request] = []
        tried, self._tried = self._tried, {}
        plan = commit.plan
        unwritten: set[Request] = set()
        if applied and commit.segments is not None:
            unwritten = set(commit.segments.answered_by(record))
        values: dict[int, object] = {id(request): value for request, value in plan.answers}
        for request, _ in (*plan.from_reply, *plan.from_sum, *plan.counted):
            values[id(request)] = _REPLY_LOST
        for request in commit.requests:
            if request.answered:
                continue
            if request.publishes and commit.is_sent and not commit.number:
                request.answer(_MAYBE_PUBLISHED)  # nothing in the server tells
                continue
            is_kept = applied and (request.writes or request.publishes)
            if not is_kept or not unwritten.isdisjoint(request.parts):
                tries = tried.get(request, 0) + 1
                if tries < MAX_TRIES:
                    again.append(request)
                    self._tried[request] = tries
                else:  # it may be what breaks the connection; at any rate its client has waited enough
                    request.answer(_NO_MORE_TRIES)
                continue
            for part in (request,) if id(request) in values else request.parts:
                if not part.answered:
                    part.answer(values[id(part)])
        self._requests.extendleft(reversed(again))
        self._flush_clients()
        self._tell_lost(commit)

    def _tell_lost(self, commit: Commit) -> None:
        lost = ServerError("the connection to the server broke before the reply arrived")
        for _, callback in commit.after:
            callback(lost)

    @property
    def unsure(self) -> set[Dot]:
        """Own messages of the commit that was refused, or under way when the connection died: nobody was told."""
        return set() if self._commit is None else {tag.dot for tag, _, _ in self._commit.sent}

    @property
    def phase(self) -> ServerPhase:
        """How far the gateway has got with its server."""
        return self._life.phase

    @property
    def serving(self) -> bool:
        """Whether the server is connected."""
        return self._life.phase in SERVING

    @property
    def working(self) -> bool:
        """Whether a commit is under way or waits."""
        return self._commit is not None or bool(self._requests)

    def inside(
        self, key: bytes, add: Callable[[LocalBatch], None], looks: Sequence[Looks] = ()
    ) -> None:
        """An operation of the gateway's own on `key`, at the head of the next commit. looks: what it has to know of
        slots, as of the instant before that commit.
        """
        self._inside.append((key, looks, add))

    def at_its_end(self, add: Callable[[Commit], None]) -> None:
        """Call `add` when all else of the next commit is prepared: what it has the engine do, and reads `after` it."""
        self._last.append(add)

    def advance(self, by_ms: int) -> None:
        """Move the clock that deadlines are judged by."""
        self._advance_ms += by_ms
        self.at_its_end(lambda commit: None)
        self.kick()

    def expire(self, grace_ms: int) -> None:
        """Tell the others, with the next commit, which keys the server has dropped; of deadlines that they have set
        only those that have been over for so long.
        """
        self._grace_ms = grace_ms
        self.kick()

    def ask(self, reads: list[tuple[list[bytes], Callable[[object], None]]]) -> None:
        """Do these reads of database 0 behind the next commit, all at one instant."""
        self._asked += reads
        self.kick()

    @property
    def order(self) -> int:
        """`StoredState.order`, with what is recorded only."""
        assert self.state is not None
        return self.state.order + self.recorded.count

    @property
    def sending(self) -> bool:
        """Whether it is open if own messages are in the server."""
        commit = self._commit
        return not self.serving or bool(
            commit is not None and (commit.own or commit.segments is not None)
        )

    @property
    def behind(self) -> bool:
        """Whether the engine has got on by itself since the last commit: only where members come and go.

        It issues membership operations, and notes what it promises and accepts. Nothing of that may leave before it is
        stored.
        """
        engine, state = self._group, self.state
        if engine is None or state is None:
            return False
        if engine.vector != state.vector:
            return True
        return metadata.membership_of(engine.outline()) != self._membership

    # Clients and peers bring work

    def submit(self, request: Request) -> None:
        """A client's read or write. It is answered when its commit has been."""
        phase = self._life.phase
        if phase not in REFUSES:
            self._requests.append(request)
        elif phase is ServerPhase.READ_ONLY and request.command.kind is CommandKind.READ:
            self._relay.send(request)
        else:
            self.refusals.count(request)
            request.answer(self._refused())

    def submit_divided(self, request: Request) -> None:
        """The same, in pieces if it removes very many keys; one that is refused for a key is refused whole."""
        is_refused = self.keyspace.refused and self.refusals.by_key(request) is not None
        for piece in (request,) if is_refused else divided(request):
            self.submit(piece)

    def ticked(self) -> None:
        """A timer's tick, or news from a peer: what can wait goes with the next commit.

        It is worth a commit of its own if none has begun since the last tick: there is no load then.
        """
        self._ticks = 2 if self._ticks and self._life.phase is ServerPhase.READY else 1
        self.kick()

    def kick(self) -> None:
        """Start a commit if there is work and none is under way."""
        if self._life.phase is not ServerPhase.READY:
            return
        engine = self.engine
        assert engine is not None
        if self._group is not None:
            self._observer.about_to_gather()
        is_idle = self._ticks == 2
        has_load = self._requests or engine.has_deliverable() or self.recorded.pending
        reads = self._asked
        if self._records_first:
            reads = []
        elif self._ticks and (has_load or is_idle):
            reads += self._observer.reads()
        if not (
            has_load
            or reads
            or self._repairs
            or self._inside
            or self._grace_ms is not None
            or self._last
            or (is_idle and (engine.has_stable() or self._is_left))
            or (self._group is not None and self.behind)
        ):
            return
        takes_stable = self._ticks or self._left_stable >= STABLE_EVERY
        self._ticks = 0
        self._life.move(ServerEvent.BEGIN)
        self._hold_peers(True)
        if self._records_first:
            self._records_first = False
        else:
            self._asked = []
        self._commit = commit = Commit(Plan(self._metadata_db), reads)
        if self.recorded.pending is not None:
            commit.derived = self.recorded.take()
        if self._grace_ms is not None:
            self._puts_expiry_off = bool(has_load) and not self._puts_expiry_off
            if not self._puts_expiry_off:
                commit.grace_ms, self._grace_ms = self._grace_ms, None
        if takes_stable:
            self._take_stable(commit, engine)
        self._gather(commit, engine)
        if not commit.requests and not self._worthwhile(commit):
            self._commit = None
            self._life.move(ServerEvent.END)
            self._hold_peers(False)
            return
        if commit.deliveries or self._inside:
            self._messages.note_unknown(commit, self._inside)
        contents: Uncertain = {}
        if (alone := self._intake.alone) is not None and not (self._inside or self._repairs):
            contents = alone.uncertain  # of which it has to know, if nothing is done before it
        if commit.extended:
            commit.unknown |= dict.fromkeys(commit.extended)  # their deadlines are needed, too
        if (
            commit.unknown
            or commit.unknown_slots
            or commit.looks
            or contents
            or commit.grace_ms is not None
        ):
            self._look_up(list(commit.unknown), contents, commit)
        elif commit.has_large or commit.transactions:
            self._fold_first(commit)
        else:
            self._prepare(commit)

    def _worthwhile(self, commit: Commit) -> bool:
        """Whether something else was gathered: it may be that all requests wait for relayed reads."""
        return bool(
            commit.deliveries
            or commit.derived is not None
            or commit.stable
            or commit.after
            or commit.plan.pieces
            or self._repairs
            or self._inside
            or commit.grace_ms is not None
            or self._last
            or self.behind
            or self._is_left
        )

    @property
    def _is_left(self) -> bool:
        """Whether the server holds what it may forget: deadlines without data, of which a commit drops a bounded
        number, and messages of which an event log has told only now.
        """
        engine = self.engine
        return self._observer.has_forgettable or (
            engine is not None and self.keyspace.dates.has_unneeded(engine.stable, engine.vector)
        )

    def _take_stable(self, commit: Commit, engine: Engine | GroupEngine) -> None:
        """What has become stable is forgotten, here and by the server: with a commit that does it for many at once. So
        is what would be remembered of too many keys.
        """
        self.keyspace.trim()
        commit.stable = engine.poll_stable(MAX_STABLE)
        self._left_stable = STABLE_EVERY if len(commit.stable) == MAX_STABLE else 0

    def _gather(self, commit: Commit, engine: Engine | GroupEngine) -> None:
        if self._group is not None:
            commit.issued = self._group.take_issued()
            self._observer.gathering(commit, self.commits + 1)
        delivered = 0
        own = self._inside or self._intake.alone is not None or commit.grace_ms is not None
        if not own and engine.has_deliverable():
            delivered = self._messages.take(commit, engine)
        if not commit.is_flushed:  # else the next one has to ask what keys hold
            self._intake.take(commit)
        self._left_stable += 1 + (delivered + commit.size) // _STRETCH_BYTES

    def _look_up(self, keys: list[bytes], contents: Uncertain, commit: Commit) -> None:
        """One pipelined read for the whole batch."""
        assert self._server is not None
        lookup, keyspace = Lookup(), self.keyspace
        if keyspace.dates.in_use:
            lookup.dated(keys, keyspace, self.on_looked_up)
            commit.plan.atomic = True  # what is watched from here on ends with the commit
        else:
            for key in keys:
                lookup.type_of(key, keyspace, self.on_looked_up)
        if commit.grace_ms is not None:
            due: list[Due] = []
            commit.due = due
            lookup.due(keyspace, commit.grace_ms, due.extend)
        for key in commit.extended:
            lookup.whole(key, keyspace, partial(commit.contents.__setitem__, key))
        for key, type_, slot in commit.unknown_slots:
            lookup.number(key, type_, slot, keyspace)
        for key, looks in commit.looks:
            assert looks.take is not None
            lookup.slots(key, looks.type, looks.slots, keyspace, looks.take)
        found: dict[bytes, SlotContents] = {}
        for key, named in contents.items():
            for type_, slots in named.items():
                lookup.contents(key, type_, list(slots), partial(found.__setitem__, key))

        def learn(replies: Replies) -> None:
            try:
                lookup.learn(replies)
            except ServerError as error:
                self._abandon(commit, str(error))
                return
            if self._intake.alone is not None and contents:
                self._intake.alone.contents = found
            self._fold_first(commit)

        self._server.send(lookup.payload, lookup.replies, learn)

    # Prepare and commit

    def _fold_first(self, commit: Commit) -> None:
        """Prepare it when the large requests in it are encoded, a piece in each turn of the loop."""
        calls = (call for transaction in commit.transactions for call in transaction.calls)
        work = [
            call.args
            for call in (*commit.requests, *calls)
            if type(call.args) is LargeArgs and call.command.is_list
        ]
        if work:
            self.later(partial(self._fold_on, commit, work))
        else:
            self._prepare(commit)

    def _fold_on(self, commit: Commit, work: list[LargeArgs]) -> None:
        server = self._server
        assert server is not None
        if commit is not self._commit or self._life.phase is not ServerPhase.COMMITTING:
            return  # the connection was lost meanwhile: all begins anew
        try:
            if work:
                if work[-1].fold():
                    work.pop()
                self.later(partial(self._fold_on, commit, work))
            else:
                self._prepare(commit)
        except Exception as error:  # as in a callback of the connection
            self._log.exception("cannot prepare a commit")
            server.abort(f"internal error: {type(error).__name__}: {error}")

    def _prepare(self, commit: Commit) -> None:
        engine, keyspace, plan, state = self.engine, self.keyspace, commit.plan, self.state
        assert engine is not None and state is not None
        if commit.derived is not None:
            store(commit.derived, keyspace, plan)
            self._reads.note_large_sets(commit.derived.event.effects)
        if self._repairs:
            commit.repaired = frozenset(self._repairs)
            self._repairs.clear()
            for key in commit.repaired:
                keyspace.restore(key, plan)  # with what becomes stable now: it may be nowhere else
        for tag in commit.stable:
            keyspace.log.stabilise(tag.dot)
        batch = LocalBatch(plan, keyspace, engine, self._clock.now)
        if commit.due:
            self._expire(batch, commit)
        if self._inside:
            self._prepare_own(batch)
        if keyspace.rewritten:
            commit.repaired |= keyspace.rewritten
            keyspace.rewritten.clear()
        if commit.deliveries:
            self._apply_deliveries(batch, commit)
        batch.bounded = len(commit.requests) > 1 and not self._fits_one_message(commit)
        hindered = self.refusals.hinder_writes(commit)
        plain = commit.together and not (hindered or keyspace.refused)
        for place, request in enumerate(commit.requests):
            command = request.command
            if not (
                command.prepare(batch, request)
                if plain
                else self._carry_out(batch, request, hindered=hindered)
            ):
                # The batch cannot know what this command would find: the server can, or it is to be asked first.
                if self._may_record(commit, request):
                    self._record(commit, batch, place, hindered=hindered)
                    break
                if command.looks:
                    keyspace.forget(request.args[1])
                self._put_back(commit, place)
                break
        if plan.protocol != 2:
            plan.speak(2)
        found: Mapping[bytes, GoneDeadline] = {}
        if commit.segments is None:
            commit.sent = batch.end()
        else:
            found = commit.segments.dated()
        if holds_many(commit.size):
            for _, _, event in commit.sent:
                self._reads.note_large_sets(event.effects)
        if self._last:
            last, self._last = self._last, []
            for end in last:
                end(commit)
        if keyspace.unsettled:
            keyspace.settle(plan)
        if keyspace.dates.orphans and (commit.stable or not commit.requests):
            keyspace.drop_orphans(engine.stable, engine.vector, plan)
        if keyspace.dates.touched or found:
            keyspace.set_deadlines(plan, found)
        if self._advance_ms:
            by_ms, self._advance_ms = self._advance_ms, 0
            keyspace.advance(by_ms, plan)
        self._add_metadata(commit, engine, state)
        if commit.after or not plan.writes:
            plan.finish()  # else the fence's guard does it
        commit.transaction = plan.writes
        commit.is_sent = True
        if crash_points.ARMED:
            crash_point("batch-prepared")
            if plan.settling:
                crash_point("hidden-prepared")
        self._transmit(commit)

    def _apply_deliveries(self, batch: LocalBatch, commit: Commit) -> None:
        assert self.engine is not None
        keyspace, plan = self.keyspace, commit.plan
        held = {key: hold(keyspace, key, worth) for key, worth in commit.contents.items()}
        for delivery, (timestamp, applied) in commit.deliveries:
            keyspace.apply(applied, delivery.tag, timestamp, plan, sees_all=delivery.sees_all)
            if commit.may_hold_many:
                self._reads.note_large_sets(applied)
        if keyspace.dates.touched and not self.refusals.is_ending:
            self._expire_behind(batch, commit)
        self.engine.silent = False
        if held and not self.refusals.is_ending:
            ((delivery, event),) = commit.deliveries
            for key, before in held.items():
                reassert(batch, key, before, delivery, event)

    def _carry_out(self, batch: LocalBatch, request: Request, *, hindered: bool) -> bool:
        """Prepare one request, or its refusal. False, having changed nothing, if the server must be asked first.

        hindered: whether it may be refused as a write, whatever its key holds.
        """
        command = request.command
        if isinstance(request, Transaction):
            is_prepared = self.refusals.answer_transaction(
                batch.plan, request
            ) or self._prepare_transaction(batch, request)
            if is_prepared and self._intake.alone is request:
                self._intake.alone = None
            return is_prepared
        if self.refusals.answer(batch.plan, request, hindered=hindered):
            return True
        if command.kind is CommandKind.READ:
            add_read(batch, request)
            return True
        if command.kind is CommandKind.PUBSUB:
            self._publish(batch, request)
            return True
        if isinstance(request, WatchRequest):
            self._watches.begin(batch, request)
            return True
        prepared: bool = command.prepare(batch, request)
        return prepared

    def _expire(self, batch: LocalBatch, commit: Commit) -> None:
        """What the server has dropped. It rests on what the last commit left, so nothing was delivered for this one."""
        for each in commit.due:
            self.keyspace.learn_due(each)
        refused = self.keyspace.refused
        if not self.refusals.is_ending:
            batch.expire([each.key for each in commit.due if each.key not in refused])
        batch.close()
        commit.has_more_due = self.keyspace.dates.looks_on != BEGINNING

    def _expire_behind(self, batch: LocalBatch, commit: Commit) -> None:
        """What the server had dropped before a deadline came that has not seen it pass, and would show it again."""
        keys = [
            key
            for key in self.keyspace.dates.dropped()
            if moved_ahead(self.keyspace, key, commit.deliveries)
        ]
        if keys:
            batch.expire_behind(keys, commit.before)
            commit.unaware = len(batch.sent)

    # What the server decides

    def _may_record(self, commit: Commit, request: Request) -> bool:
        """Whether the server may carry this out in this commit, and all that comes behind it.

        Our own reads behind a commit show what its vector says, and what is done `at_its_end` may send messages: what
        is recorded waits for the next commit then, which goes without.
        """
        if not _can_be_recorded(request) or self._intake.alone is request:
            return False
        if commit.after or self._last:
            self._records_first = not self._last
            return False
        return True

    def _record(self, commit: Commit, batch: LocalBatch, place: int, *, hindered: bool) -> None:
        """Have the server carry out what stands from this place on, under a dot that is reserved."""
        engine, keyspace, plan = self.engine, self.keyspace, commit.plan
        assert engine is not None
        plan.speak(2)
        if dropped := keyspace.dates.dropped():
            batch.expire(dropped)  # what begins the keys anew would not tell that they had expired
        commit.sent = batch.end()
        if keyspace.unsettled:
            keyspace.settle(plan)
        if keyspace.dates.touched:
            keyspace.set_deadlines(plan, {}, pins=True)
        dot = engine.reserve()
        assert engine.reserved is not None
        offset_ms = keyspace.dates.offset_ms
        record = ServerRecord(dot, engine.reserved.context, self._clock.now(), offset_ms=offset_ms)
        commit.segments = segments = Segments(
            plan, keyspace, record, whole=bool(commit.transactions), metadata_db=self._metadata_db
        )
        for at, request in enumerate(commit.requests[place:], place):
            if not segments.takes(request) or (at > place and _is_watching(request)):
                self._put_back(commit, at)
                break
            if isinstance(request, Transaction):
                self._record_transaction(batch, segments, request)
            elif not self.refusals.answer(plan, request, hindered=hindered):
                self._add_recorded(batch, segments, request)
        segments.end()
        crash_point("dot-reserved")

    def _record_transaction(
        self, batch: LocalBatch, segments: Segments, transaction: Transaction
    ) -> None:
        if self.refusals.answer_transaction(batch.plan, transaction):
            return
        for call in transaction.calls:
            self._add_recorded(batch, segments, call)
        transaction.go()

    def _add_recorded(self, batch: LocalBatch, segments: Segments, request: Request) -> None:
        if request.command.write is not None:
            if (refusal := refusal_of(request, self.keyspace.dates.now)) is not None:
                batch.plan.answer_with(request, refusal)
            else:
                segments.add(request)
            return
        segments.end()
        if isinstance(request, WatchRequest):
            self._watches.begin(batch, request)
        elif request.command.kind is CommandKind.PUBSUB:
            self._publish(batch, request)
        else:
            if request.command.tells_deadline:
                self.keyspace.set_deadlines(batch.plan, segments.dated())
            add_read(batch, request)

    @staticmethod
    def _publish(batch: LocalBatch, request: Request) -> None:
        if (denied := request.command.denied) is not None:
            batch.plan.answer_with(request, denied)
        else:
            request.command.prepare(batch, request)

    def _prepare_own(self, batch: LocalBatch) -> None:
        """What is `inside`. It rests on what the last commit left, so nothing was delivered for this one."""
        inside, self._inside = self._inside, []
        if not self.refusals.is_ending:
            for _, _, add in inside:
                add(batch)
                batch.increments.show(())  # the next one may put the key right
        batch.close()
        for _, _, event in batch.sent:
            self._reads.note_large_sets(event.effects)

    def _put_back(self, commit: Commit, place: int) -> None:
        """The requests from this place on are for the next commit."""
        self._requests.extendleft(reversed(commit.requests[place:]))
        del commit.requests[place:]

    def _prepare_transaction(self, batch: LocalBatch, transaction: Transaction) -> bool:
        """False if the server must be asked first; then nothing of it is in the batch."""
        plan = batch.plan
        watch, verdict = transaction.watch, WatchVerdict.GO
        if watch is not None:
            verdict = self._watches.verdict(batch, watch)
        if verdict is WatchVerdict.MARKED:
            plan.answer_with(transaction, ABORTED)
        elif verdict is WatchVerdict.UNSURE:
            self._intake.alone = transaction  # so that nothing comes between the look and it
            return False
        elif transaction.is_recorded or not prepare_transaction(
            batch, transaction, partial(add_read_at_one_instant, batch)
        ):
            self._intake.alone = None if _can_be_recorded(transaction) else transaction
            return False
        else:
            plan.atomic = plan.atomic or bool(transaction.calls)
            transaction.go()
        return True

    @staticmethod
    def _fits_one_message(commit: Commit) -> bool:
        """Whether the message of this commit needs no look at how full it is."""
        if commit.transactions or commit.size > MAX_BYTES:
            return False
        return sum(map(len, map(_ARGS, commit.requests))) <= MAX_OPERATIONS

    def _note_stored(self, commit: Commit, engine: Engine | GroupEngine) -> None:
        messages = commit.stored
        if commit.derived is not None:
            messages += commit.derived.messages
        messages += commit.received
        messages += [Message(tag.dot, tag.context, payload) for tag, payload, _ in commit.sent]
        if self._group is not None:
            commit.issued = [*commit.issued, *self._group.take_issued()]
            if commit.issued:
                # The engine's own stand between the others; what became stable at once is not needed any more.
                dots = [message.dot for message in messages] + [tag.dot for tag in commit.issued]
                commit.stored = engine.messages(dots)
        for tag, _, _ in commit.sent[: commit.unaware] if commit.unaware else ():
            commit.stored = _ahead(commit.stored, tag.dot, commit.deliveries)

    def _add_metadata(
        self, commit: Commit, engine: Engine | GroupEngine, state: StoredState
    ) -> None:
        plan = commit.plan
        if not (
            plan.writes
            or commit.deliveries
            or commit.sent
            or commit.stable
            or self.behind
            or self._observer.has_forgettable
        ):
            return
        state.number = commit.number = state.number + 1
        self._note_stored(commit, engine)
        order = state.order
        entries: list[bytes] = []
        for message in commit.stored:
            order += 1
            entries += (metadata.store_field(message.dot), metadata.encode_entry(order, message))
        if entries:
            plan.metadata(Expect.INTEGER, b"HSET", metadata.STORE, *entries)
        dots = [tag.dot for tag in commit.stable] if commit.stable else []
        forgotten = dots if self._group is None else self._observer.forgettable(dots)
        if forgotten:
            fields = map(metadata.store_field, forgotten)
            plan.metadata(Expect.INTEGER, b"HDEL", metadata.STORE, *fields)
        if dots and self.keyspace.aside is not None:
            self.keyspace.aside.stable(dots, plan)
        state.vector = vector = dict(engine.vector)
        state.counter = vector.get(engine.me, 0)
        state.context = engine.context
        if state.stable != engine.stable:
            state.stable = dict(engine.stable)
        state.clock = self._clock.latest
        state.order = order
        if self._group is not None:
            outline = self._group.outline()
            state.level = self._formats.agreed(engine)
            if (membership := metadata.membership_of(outline)) != self._membership:
                self._membership = membership
                state.membership = metadata.pack_membership(outline)
                before, self._noted = self._noted, metadata.notes(outline)
                state.order += self._noted - before
        plan.metadata(SAYS_OK, b"SET", metadata.STATE, state.encode())
        if self._group is not None:
            self._observer.prepared(commit, self.commits + 1)

    def _transmit(self, commit: Commit) -> None:
        assert self._server is not None
        plan = commit.plan
        pieces = plan.pieces
        count = len(pieces)
        reads = commit.after
        after = b"".join([pack(command) for command, _ in reads]) if reads else b""
        if commit.transaction or plan.atomic:
            # The fence is watched and read right behind every EXEC, so the next MULTI fails, and we learn it now, as
            # soon as another gateway has taken the server.
            payload = b"".join((_MULTI, *pieces, _EXEC, after, self._guard))
            replies = count + 2 + len(reads) + _GUARD_REPLIES
        else:
            payload = b"".join((*pieces, after))
            replies = count + len(reads)
        if not replies:
            self._finish(commit, [], [])
            self.kick()
            return
        reader = None
        if plan.reads:
            in_exec = commit.transaction or plan.atomic
            reader = CommitReplies(plan, in_exec=in_exec, limit=self._most_replied)
        self._server.send(payload, replies, partial(self._answered, commit), reader=reader)
        if crash_points.ARMED:
            crash_point("exec-sent")
            if plan.settling:
                crash_point("hidden-sent")

    def _answered(self, commit: Commit, replies: Replies) -> None:
        plan = commit.plan
        if not commit.transaction and not plan.atomic:
            own = len(plan.pieces)
            self._finish(commit, replies[:own], replies[own:])
            return
        count = len(plan.pieces)
        executed = replies[count + 1]
        fence = replies[-2]
        if executed is None or fence != self._epoch:
            self._lost_fence(fence)
            return
        if isinstance(executed, Exception):
            refused = next(
                (reply for reply in replies[1 : 1 + count] if isinstance(reply, Exception)),
                executed,
            )
            self._abandon(commit, str(refused))
            return
        if crash_points.ARMED:
            crash_point("exec-answered")
            if plan.settling:
                crash_point("hidden-answered")
        self._check(commit, executed)
        self.commits += commit.transaction
        reads = replies[count + 2 : -_GUARD_REPLIES] if commit.after else []
        self._finish(commit, executed, reads)

    def _lost_fence(self, fence: object) -> None:
        """Either another gateway has taken the server, with a higher epoch, or our keys were removed from it, or keys
        that were looked at may have been dropped since.
        """
        assert self._server is not None
        if isinstance(fence, bytes) and fence.isdigit() and int(fence) > int(self._epoch):
            self._fatal(
                SupersededError(
                    f"another gateway has taken over this server (fence {_text(fence)}, ours was "
                    f"{_text(self._epoch)}): this gateway stops: run one gateway for each server"
                )
            )
        elif fence == self._epoch:
            self._server.abort(
                f"more than {PIN_BELOW_MS // 2000} s passed between reading keys with deadlines "
                "and the commit: they are read again"
            )
        else:
            self._server.abort(
                "its data was removed directly in the server (FLUSHALL, FLUSHDB, or a "
                "maxmemory-policy that evicts keys)"
            )

    def _check(self, commit: Commit, replies: Replies) -> None:
        plan = commit.plan
        for place in plan.surprises(replies):
            key, expect, reply = plan.keys.get(place), plan.expected[place], replies[place]
            if key is None:
                self._log.error("the server refused to store metadata: %s", _text(reply))
            else:
                commit.wrong |= {place}
                self._repair(key, expect, reply)

    def _repair(self, key: bytes, expect: object, reply: object) -> None:
        """The key was changed past the gateway: put back what it is worth, and say so."""
        if key in self._repairs:
            return
        self.changed_behind += 1
        self._repairs.add(key)
        self._log.error(
            "key %s was changed directly in the server (expected %s, the server answered %s): "
            "the gateway repairs it: write through the gateway only",
            described(key),
            getattr(expect, "value", expect),
            _text(reply),
        )

    def _finish(self, commit: Commit, replies: Replies, own: Replies) -> None:
        plan, wrong, keyspace = commit.plan, commit.wrong, self.keyspace
        for request, place in plan.from_reply:
            value = replies[place]
            if type(value) is not int:
                value = self._reads.shaped(request, value)
            if wrong:
                changed = {plan.keys[at] for at in wrong}
                value = _instead(request, place in wrong, changed) or value
            request.answer(value)
        for request, places in plan.from_sum:
            request.answer(
                sum(map(replies.__getitem__, places)) if wrong.isdisjoint(places) else _KEPT
            )
        for request, place in plan.counted:
            request.answer(self.counted(request.args, replies[place]))
        for request, value in plan.answers:
            request.answer(value)
        for key, place in plan.settling:
            keyspace.settled(key, replies[place])
        if commit.segments is not None:
            self._take_record(commit.segments, replies)
            for key, _ in plan.settling:
                keyspace.forget(key)  # it may have been written since
        if self._watches.needs_replies:
            self._watches.committed(plan, replies, keyspace.dates.now)
        if plan.dated or keyspace.dates.touched:
            self._note_deadlines(plan, replies)
        self._commit = None
        self._flush_clients()  # nobody waits for the event log: a restart writes what is missing there
        self._observer.committed(commit)
        if commit.after:
            for (_, callback), reply in zip(commit.after, own, strict=True):
                callback(reply)
        if crash_points.ARMED and commit.sent:
            crash_point("client-answered")
        if crash_points.ARMED and commit.deliveries:
            crash_point("remote-applied")
        self._life.move(ServerEvent.END)
        self._hold_peers(False)
        # Whatever else waits has time until the poller's round is over.
        if self._requests or self.recorded.pending is not None:
            self.kick()

    def _take_record(self, segments: Segments, replies: Replies) -> None:
        """Answer what the server has carried out by itself, and derive its one message in the same turn."""
        engine = self.engine
        assert engine is not None
        again, record = segments.answered(replies)
        self._requests.extendleft(reversed(again))
        for key, place in segments.written() if self._watches.has_any else ():
            self._watches.written(key, place)
        self.recorded.answered(engine, self.keyspace, record)
        if self.recorded.pending is not None:
            self._observer.derived(self.recorded.pending)
        self.keyspace.unsettled.update(dict.fromkeys(segments.unsettled))
        crash_point("record-derived")

    def _note_deadlines(self, plan: Plan, replies: Replies) -> None:
        assert self.engine is not None
        for moves, place in plan.dated:
            self.keyspace.deadlines_set(moves, replies[place], self.engine.vector)
        self.keyspace.forget_dated()

    def _abandon(self, commit: Commit, reason: str) -> None:
        """The server refused the whole commit, so nothing of it was applied: tell the clients, and read it anew."""
        assert self._server is not None
        self._log.error("the server refused a commit; nothing of it was applied: %s", reason)
        error = ReplyError(reason)
        reads = [r for r in commit.requests if not (r.writes or r.answered)]
        for request in commit.requests:
            if request.writes:
                self.refusals.count(request)
                request.answer(error)
        self._requests.extendleft(reversed(reads))
        commit.requests.clear()  # so that nothing of it is to be settled
        self._flush_clients()
        self._tell_lost(commit)
        commit.after = []
        self._server.abort(f"it refused a commit: {reason}")


def _ahead(
    messages: list[Message], dot: Dot, deliveries: Sequence[tuple[Delivery, EffectsEvent]]
) -> list[Message]:
    """The messages in an order in which this one stands before what it has not seen, as an event log has to tell it."""
    unseen = {delivery.tag.dot for delivery, _ in deliveries}
    place = next(place for place, message in enumerate(messages) if message.dot == dot)
    before = place
    while before and messages[before - 1].dot in unseen:
        before -= 1
    return [*messages[:before], messages[place], *messages[before:place], *messages[place + 1 :]]


def _fence_guard(metadata_db: int) -> bytes:
    words = (
        (b"SELECT", b"%d" % metadata_db),
        (b"WATCH", metadata.FENCE),
        (b"GET", metadata.FENCE),
        (b"SELECT", b"0"),
    )
    return b"".join(map(pack, words))


def _instead(request: Answerable, is_wrong: bool, changed: set[bytes]) -> ReplyError | None:
    """What to answer instead of a reply that tells what others have put under one of these keys."""
    if is_wrong:
        return _KEPT
    command = request.command
    if command.is_read and not changed.isdisjoint(command.keys_of(request.args)):
        return _CHANGED
    return None


def _can_be_recorded(request: Request) -> bool:
    """Whether its effects can be told from what the server says of it, in all its parts."""
    writes = [part.command.write for part in request.parts if part.writes]
    return bool(writes) and all(row is not None and row.derive is not None for row in writes)


def _is_watching(request: Request) -> bool:
    """Whether it may only be carried out if certain keys were not written: those must be known when it is prepared."""
    return isinstance(request, Transaction) and request.watch is not None


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
