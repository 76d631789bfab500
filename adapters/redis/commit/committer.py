"""The path of a write: one commit at a time from clients and peers to the server, then replies, then the network.

Rules: remote messages come first, then local commands as separate messages, all in one MULTI … EXEC with our metadata.
At most one EXEC is in flight. The next one may be prepared meanwhile, and is sent when the answer has come and the
fence was read: before that, another gateway may have taken the server. If the first fails, the second is void, and its
requests are queued again in their order. Every reply inside an EXEC is checked.
Reads of the same round come after the writes. Clients are answered after EXEC, and peers get messages after the
clients. While a commit is under way the node holds its outbox, so nothing uncommitted leaves the process. If the
connection dies, all memory is dropped and read again from the server (`resume`).
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
from crdtcast.adapters.redis.recorded.draws import DrawingBatch
from crdtcast.adapters.redis.recorded.record import MOST_WORDS, ServerRecord
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
from crdtcast.adapters.redis.waits.barrier import Barrier
from crdtcast.causality.hlc import HLC
from crdtcast.causality.messages import Delivery, Message
from crdtcast.causality.tags import Dot, covers
from crdtcast.engine import Engine, GroupEngine, GroupState
from crdtcast.exceptions import ServerError, SupersededError
from crdtcast.phases import Lifecycle

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.clients.passthrough import Passthrough
    from crdtcast.adapters.redis.server.connection import Replies, ServerConnection

MAX_STABLE = 2000
STABLE_EVERY = 32
"""Commits after which stable messages are collected, unless a tick comes first; a large commit counts several times.
With each commit, that would be an eighth of the cost of a single write.
"""
_STRETCH_BYTES = 64 << 10
"""Bytes for which a commit counts once more."""
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
_TAKEN = ReplyError(
    "ERR crdtcast: what this command chose was removed directly in the server meanwhile, all or "
    "part of it; none of it is left now: write through the gateway only"
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
    """Gets the events of commits: for the event log and the durability probe."""

    def gathering(self, commit: Commit, number: int) -> None:
        """Only where members come and go: `commit`, which will get this number, has taken the stable messages, and
        those that the engine has issued by itself. Nothing is delivered yet.
        """
        ...

    def prepared(self, commit: Commit, number: int) -> None:
        """Only where members come and go: `commit`, which will get this number, is about to be sent. It holds all that
        the engine knows at this instant.
        """
        ...

    def derived(self, record: Derived) -> None:
        """The server has executed this by itself. The keyspace has it already; the next commit stores its message."""
        ...

    def committed(self, commit: Commit) -> None:
        """The commit was applied, and its clients are answered."""
        ...

    @property
    def has_forgettable(self) -> bool:
        """Whether the server holds stable messages that it may forget now."""
        ...

    def forgettable(self, dots: list[Dot]) -> list[Dot]:
        """The messages that the server may forget with this commit. dots: those that have become stable with it."""
        ...

    def reads(self) -> list[tuple[list[bytes], Callable[[object], None]]]:
        """Own reads that can wait, to run after the next commit, at the instant that its vector describes."""
        ...

    def about_to_gather(self) -> None:
        """Only after `Committer.has_work`: call `inside` now for own operations of the next commit."""
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
        set_aside: Callable[[], None],
        release_peers: Callable[[], None],
        fatal: Callable[[Exception], None],
        later: Callable[[Callable[[], None]], None],
        most_replied: int,
        logger: logging.Logger,
    ) -> None:
        """hold_peers: nothing that the engine sends leaves, until it is called again with False.
        set_aside: what the engine has sent so far rests on the commit in flight, what it sends later on the next one.
        release_peers: what was set aside may leave, even while the rest is held.
        most_replied: bytes of replies that one client may get from reads of one commit; 0: any number.
        """
        self._metadata_db = metadata_db
        self._guard = _fence_guard(metadata_db)
        self._clock = clock
        self._formats = formats
        self.refusals: Refusals = Refusals(formats)
        self._observer = observer
        self._relay = relay
        self._flush_clients = flush_clients
        self._hold_peers = hold_peers
        self._set_aside = set_aside
        self._release_peers = release_peers
        self._fatal = fatal
        self.later = later
        self._most_replied = most_replied
        self._log = logger
        self._life = Lifecycle(TRANSITIONS, ServerPhase.WAITING)
        self._server: ServerConnection | None = None
        self._commit: Commit | None = None
        """The commit that is under way, or was when the connection was lost."""
        self._next: Commit | None = None
        """The commit that is prepared behind it: nothing of it is sent."""
        self._void: set[Dot] = set()
        """Own messages of such a commit that is void, until memory is read again."""
        self._tried: dict[Request, int] = {}
        self._epoch = b""
        self._why_refused = ""
        self._advice = ""
        self._repairs: set[bytes] = set()
        self._reads = CommitReads()
        self._inside: list[Inside] = []
        self._last: list[Callable[[Commit], None]] = []
        self._steps: list[tuple[Sequence[bytes], Callable[[object], None]]] = []
        self._asked: list[tuple[list[bytes], Callable[[object], None]]] = []
        self._watches = Watches()
        self.recorded: RecordedWork = RecordedWork()
        self._records_first = False  # requests to record have waited for own reads
        self._advance_ms = 0
        """By how much to move the clock of deadlines, for tests."""
        self._grace_ms: int | None = None
        """Set: the next commit looks for expired keys. It is the argument of `expire`."""
        self._puts_expiry_off = False
        """Whether that search was postponed once, since other work was waiting."""
        self._looks_again = False  # whether something besides requests may be there for a commit
        self._has_extra = False  # whether that may be work of the gateway itself, see `_own_work`
        # Whether former incarnations had left something to do at the last look.
        self._has_steps = False
        self._ticks = 0  # since the last commit; at most 2, and at most 1 while one is under way
        self._left_stable = 0  # commits and stretches since stable messages were collected
        self._noted = 0  # notes of the member about its view that the server has
        self._membership: GroupState | None = None  # as the server has it
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
        """Called for each key that was looked up and exists."""
        self.counted: Callable[[Sequence[bytes], object], object] = lambda words, reply: reply
        """Corrects a reply that counts subscribers."""
        self.has_work: Callable[[GroupEngine], bool] = lambda group: False
        """Only where members come and go: whether former incarnations have left something to do."""
        self.commits: int = 0
        self.changed_behind: int = 0
        """Keys found changed directly in the server, since start."""

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
        """Continue from the state read from the server; settle the commit that was under way when the connection died.

        record: what the server has executed by itself and no commit had stored.
        """
        self._server, self.engine, self.keyspace = server, engine, keyspace
        self._messages.keyspace = self._intake.keyspace = keyspace
        self.state = replace(state, incarnation=engine.me, level=self._formats.agreed(engine))
        self._group = engine if isinstance(engine, GroupEngine) else None
        if self._group is not None:
            outline = self._group.outline()
            self._noted = metadata.notes(outline)
            is_stored = metadata.pack_membership(outline) == state.membership
            self._membership = outline if is_stored else None
        self._epoch = epoch
        self._life.move(ServerEvent.OWN)
        self.refusals.resume(engine, keyspace)
        self._repairs.clear()
        self._inside.clear()
        self._last.clear()
        self._steps.clear()
        self._intake.alone = None
        self._void.clear()
        if self._commit is not None:
            self._settle(self._commit, state, record)
        self._commit = None
        self._hold_peers(False)
        self.kick()

    def suspend(self) -> None:
        """The connection is lost: memory is invalid until it is read again from the server."""
        self._hold_peers(True)
        self._void_next()
        self._watches.lost()
        self._life.move(ServerEvent.LOSE)

    def refuse(self, reason: str, *, reads: bool, passes: bool) -> None:
        """Answer all waiting and later requests with an error: the server has been away for too long.

        reads: whether the server answers and only takes no writes: reads are relayed to it.
        passes: whether clients may try again: it may end without an operator.
        """
        self._life.move(ServerEvent.FIND_FULL if reads else ServerEvent.GIVE_UP)
        self._why_refused = reason
        self._advice = ", try again" if passes else ""
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
        """Why every write gets an error: the server has been away for too long, or takes no writes; None if not."""
        return self._why_refused if self._life.phase in REFUSES else None

    def _refused(self) -> ReplyError:
        return ReplyError(f"ERR crdtcast: {self._why_refused}; nothing was written{self._advice}")

    def _settle(self, commit: Commit, state: StoredState, record: ServerRecord | None) -> None:
        """Answer the interrupted commit, once and honestly: the stored state tells whether it was applied."""
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
        values.update((id(request), value) for request, _, _, value in plan.drawn)
        for request, _ in (*plan.from_reply, *plan.from_sum, *plan.counted):
            values[id(request)] = _REPLY_LOST
        for request in commit.requests:
            if request.answered:
                continue
            if request.publishes and commit.is_sent and not commit.number:
                request.answer(_MAYBE_PUBLISHED)  # nothing in the server shows that
                continue
            is_kept = applied and (request.writes or request.publishes)
            if not is_kept or not unwritten.isdisjoint(request.parts):
                tries = tried.get(request, 0) + 1
                if tries < MAX_TRIES:
                    again.append(request)
                    self._tried[request] = tries
                else:  # it may be the cause of the break; its client has waited long enough anyway
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
        """Own messages of the commit that was refused, or under way when the connection died, and of the one prepared
        behind it: no client or peer has heard of them.
        """
        commit = self._commit
        return self._void if commit is None else {tag.dot for tag, _, _ in commit.sent} | self._void

    @property
    def phase(self) -> ServerPhase:
        """The phase of the connection to the server."""
        return self._life.phase

    @property
    def serving(self) -> bool:
        """Whether the server is connected."""
        return self._life.phase in SERVING

    @property
    def working(self) -> bool:
        """Whether a commit is under way or waits."""
        return self._commit is not None or bool(self._requests)  # one behind it needs no mention

    def inside(
        self, key: bytes, add: Callable[[LocalBatch], None], looks: Sequence[Looks] = ()
    ) -> None:
        """Add an operation of the gateway itself on `key`, at the start of the next commit.

        looks: slots that it has to know, as of the instant before that commit.
        """
        self._inside.append((key, looks, add))
        self._has_extra = True

    def at_its_end(self, add: Callable[[Commit], None]) -> None:
        """Call `add` when the rest of the next commit is prepared. It may use the engine, and add reads `after` it."""
        self._last.append(add)
        self._has_extra = True

    def behind_all(self, script: Sequence[bytes], take: Callable[[object], None]) -> None:
        """Execute a script of the gateway's own behind all else that the next commit does to keys.

        take: gets its reply; not called if the connection is lost before.
        """
        self._steps.append((script, take))
        self._has_extra = True
        self.kick()

    def advance(self, by_ms: int) -> None:
        """Move the clock of deadlines."""
        self._advance_ms += by_ms
        self.at_its_end(lambda commit: None)
        self.kick()

    def expire(self, grace_ms: int) -> None:
        """Report, with the next commit, which keys the server has dropped at their deadlines.

        grace_ms: a deadline that another member set must have passed for so long.
        """
        self._grace_ms = grace_ms
        self._has_extra = True
        self.kick()

    def ask(self, reads: list[tuple[list[bytes], Callable[[object], None]]]) -> None:
        """Do these reads of database 0 after the next commit, all at one instant."""
        self._asked += reads
        self._has_extra = True
        self.kick()

    @property
    def order(self) -> int:
        """`StoredState.order`, plus messages that the server has as a record only."""
        assert self.state is not None
        return self.state.order + self.recorded.count

    @property
    def sending(self) -> bool:
        """Whether it is not known yet if own messages are in the server."""
        commit = self._commit
        return not self.serving or bool(
            commit is not None
            and (self._next is not None or commit.own or commit.segments is not None)
        )

    @property
    def behind(self) -> bool:
        """Whether the engine has changed by itself since the last commit: only where members come and go.

        It issues membership operations, and notes what it promises and accepts. None of these may leave before it is
        stored.
        """
        engine, state = self._group, self.state
        if engine is None or state is None:
            return False
        if engine.vector != state.vector:
            return True
        return self._has_new_membership(engine)

    def _has_new_membership(self, group: GroupEngine) -> bool:
        """Whether members, views or wishes are not as the server has them."""
        return self._membership is None or not group.still_has(self._membership)

    # Clients and peers bring work

    def submit(self, request: Request) -> None:
        """Take a client's read or write. It is answered after its commit."""
        phase = self._life.phase
        if phase not in REFUSES:
            self._requests.append(request)
        elif phase is ServerPhase.READ_ONLY and request.command.kind is CommandKind.READ:
            self._relay.send(request)
        else:
            self.refusals.count(request)
            request.answer(self._refused())

    def submit_divided(self, request: Request) -> None:
        """Like `submit`, in pieces if it removes very many keys. If one key is refused, the whole request is."""
        is_refused = self.keyspace.refused and self.refusals.by_key(request) is not None
        for piece in (request,) if is_refused else divided(request):
            self.submit(piece)

    def ticked(self) -> None:
        """A timer's tick, or news from a peer: work that can wait goes with the next commit.

        If no commit has begun since the last tick, the gateway is idle, and this work gets a commit of its own.
        """
        self._ticks = 2 if self._ticks and self._life.phase is ServerPhase.READY else 1
        self.kick()

    def look(self) -> None:
        """The poller's round is over: `kick` if that may begin a commit. It is called much more often than there is
        work.
        """
        if self._requests or self._looks_again:
            self.kick()

    def kick(self) -> None:
        """Start a commit if there is work and none is under way."""
        if self._life.phase is not ServerPhase.READY:
            self._looks_again = True
            if self._requests and self._life.phase is ServerPhase.COMMITTING:
                self._prepare_behind()
            return
        self._looks_again = False
        engine = self.engine
        assert engine is not None
        self._has_steps = self._group is not None and self.has_work(self._group)
        if self._has_steps:
            self._observer.about_to_gather()
            if self._life.phase is not ServerPhase.READY:
                return  # what it had to do has begun a commit
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
            or self._own_work()
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
            contents = alone.uncertain  # it must know these, if nothing comes before it
        if commit.extended:
            commit.unknown |= dict.fromkeys(commit.extended)  # their deadlines are needed, too
        if (
            commit.unknown
            or commit.unknown_slots
            or commit.looks
            or commit.draws is not None
            or contents
            or commit.grace_ms is not None
        ):
            self._look_up(list(commit.unknown), contents, commit)
        elif commit.has_large or commit.transactions:
            self._fold_first(commit)
        else:
            self._prepare(commit)

    def _worthwhile(self, commit: Commit) -> bool:
        """Whether anything besides requests was gathered: all requests may be waiting for relayed reads."""
        return bool(
            commit.deliveries
            or commit.derived is not None
            or commit.stable
            or commit.after
            or commit.plan.pieces
            or commit.grace_ms is not None
            or self._own_work()
            or self.behind
            or self._is_left
        )

    @property
    def _is_left(self) -> bool:
        """Whether the server still holds what it may forget: deadlines without data, of which a commit drops a bounded
        number, and messages that the event log has recorded only now.
        """
        engine = self.engine
        return self._observer.has_forgettable or (
            engine is not None and self.keyspace.dates.has_unneeded(engine.stable, engine.vector)
        )

    def _take_stable(self, commit: Commit, engine: Engine | GroupEngine) -> None:
        """Forget stable messages, in memory and in the server, many with one commit. Also trim the memory of keys."""
        self.keyspace.trim()
        commit.bytes_before, _ = engine.stored
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
        if not commit.is_flushed:  # else requests wait: the next commit looks up what keys hold
            self._intake.take(commit)
        self._left_stable += 1 + (delivered + commit.size) // _STRETCH_BYTES

    def _look_up(self, keys: list[bytes], contents: Uncertain, commit: Commit) -> None:
        """One pipelined read for the whole batch."""
        assert self._server is not None
        lookup, keyspace = Lookup(), self.keyspace
        if keyspace.dates.in_use:
            lookup.dated(keys, keyspace, self.on_looked_up)
            commit.plan.atomic = True  # EXEC ends the WATCH of this look
        else:
            lookup.types_of(keys, keyspace, self.on_looked_up)
        if commit.grace_ms is not None:
            due: list[Due] = []
            commit.due = due
            lookup.due(keyspace, commit.grace_ms, due.extend)
        for key in commit.extended:
            lookup.whole(key, keyspace, partial(commit.contents.__setitem__, key))
        for key, type_, slot in commit.unknown_slots:
            lookup.number(key, type_, slot, keyspace)
        if commit.draws is not None:
            commit.draws.ask(lookup)
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

    def _prepare_behind(self) -> None:
        """Prepare the next commit while one is in flight, if it is of plain writes whose effects are certain unless the
        first one fails.

        It takes no messages of others, so it must not come again and again before these: it waits if there are any, and
        at each tick. With fewer requests than the one in flight it waits, too: more of them make a write cheaper.
        """
        first, engine, keyspace = self._commit, self.engine, self.keyspace
        if (
            self._next is not None
            or first is None
            or not first.is_sent
            or len(self._requests) < len(first.requests)
            or not first.may_be_followed
        ):
            return
        assert engine is not None
        if (
            self._ticks
            or self._left_stable >= STABLE_EVERY
            or engine.has_deliverable()
            or self.recorded.pending is not None
            or self._intake.alone is not None
            or self._watches.has_any
            or keyspace.dates.touched
            or keyspace.is_unsettled
            or keyspace.rewritten
            or self._advance_ms
            or self._has_steps
            or self._own_work()
            or self.behind
        ):
            return
        commit = Commit(Plan(self._metadata_db), [])
        if not self._intake.take_known(commit):
            return
        self._left_stable += 1 + commit.size // _STRETCH_BYTES
        self._set_aside()
        self._next = commit
        if self._group is not None:
            self._observer.gathering(commit, self._number_of_next)
        self._prepare(commit)
        if crash_points.ARMED:
            crash_point("next-prepared")

    @property
    def _number_of_next(self) -> int:
        """The number, among those that this gateway has sent, of the commit that is being prepared."""
        return self.commits + (1 if self._next is None else 2)

    def _void_next(self) -> None:
        """The commit in flight has failed, and what was prepared behind it rests on it: its requests wait again."""
        if self._next is not None:
            commit, self._next = self._next, None
            self._void |= {tag.dot for tag, _, _ in commit.sent}
            self._requests.extendleft(reversed(commit.requests))

    def _fold_first(self, commit: Commit) -> None:
        """Encode the large requests of a commit, a piece in each turn of the loop; then prepare it."""
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
            return  # the connection was lost meanwhile: everything starts again
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
                keyspace.restore(key, plan)  # before `stabilise` forgets what may be nowhere else
        for tag in commit.stable:
            keyspace.log.stabilise(tag.dot)
        draws = commit.draws
        batch: LocalBatch
        if draws is None:
            batch = LocalBatch(plan, keyspace, engine, self._clock.now)
        else:
            by_gateway = bool(self._inside or commit.due or commit.repaired)
            draws.outdate(commit.deliveries, by_gateway=by_gateway)
            batch = DrawingBatch(plan, keyspace, engine, self._clock.now, draws.by_key)
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
                # The batch cannot know what this command finds: the server decides or is asked.
                if commit is not self._next and self._may_record(commit, request):
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
        if keyspace.is_unsettled:
            keyspace.settle(plan)
        dates = keyspace.dates
        if dates.orphans and (commit.stable or not commit.requests):
            keyspace.drop_orphans(engine.stable, engine.vector, plan)
        if dates.touched or found:
            keyspace.set_deadlines(plan, found)
        if self._advance_ms:
            by_ms, self._advance_ms = self._advance_ms, 0
            keyspace.advance(by_ms, plan)
        if self._steps:
            steps, self._steps = self._steps, []
            plan.scripts += [(take, plan.script(*words)) for words, take in steps]
        self._add_metadata(commit, engine, state)
        if commit.after or not plan.writes:
            plan.finish()  # else the fence's guard does it
        commit.transaction = plan.writes
        if commit is self._next:
            if not plan.writes:  # all of it waits for the answer after all
                self._next = None
                self._put_back(commit, 0)
            return
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
        """Prepare one request, or its refusal. Returns False, with nothing changed, if the server must be asked first.

        hindered: whether a write may be refused, whatever its key holds.
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
        if isinstance(request, Barrier):
            batch.plan.answer_with(request, None)
            return True
        prepared: bool = command.prepare(batch, request)
        return prepared

    def _expire(self, batch: LocalBatch, commit: Commit) -> None:
        """Report the keys that the server has dropped. That rests on the state after the last commit, so this commit
        takes no deliveries.
        """
        for each in commit.due:
            self.keyspace.learn_due(each)
        refused = self.keyspace.refused
        if not self.refusals.is_ending:
            batch.expire([each.key for each in commit.due if each.key not in refused])
        batch.close()
        commit.has_more_due = self.keyspace.dates.looks_on != BEGINNING

    def _expire_behind(self, batch: LocalBatch, commit: Commit) -> None:
        """Report keys that the server dropped before a message moved their deadline ahead. Its sender had not seen them
        expire, so they would appear again.
        """
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
        """Whether the server may execute this request, and all after it, in this commit.

        Own reads after a commit must match its vector, and work `at_its_end` may send messages. With either of them,
        recorded requests wait for the next commit, which goes without.
        """
        if not _can_be_recorded(request) or self._intake.alone is request:
            return False
        if commit.after or self._last:
            self._records_first = not self._last
            return False
        return True

    def _record(self, commit: Commit, batch: LocalBatch, place: int, *, hindered: bool) -> None:
        """Let the server execute the requests from this place on, under a reserved dot."""
        engine, keyspace, plan = self.engine, self.keyspace, commit.plan
        assert engine is not None
        plan.speak(2)
        if dropped := keyspace.dates.dropped():
            batch.expire(dropped)  # commands that begin these keys again would not report it
        commit.sent = batch.end()
        if keyspace.is_unsettled:
            keyspace.settle(plan)
        if keyspace.dates.touched:
            keyspace.set_deadlines(plan, {}, pins=True)
        dot = engine.reserve()
        assert engine.reserved is not None
        offset_ms = keyspace.dates.offset_ms
        record = ServerRecord(dot, engine.reserved.context, self._clock.now(), offset_ms=offset_ms)
        commit.segments = segments = Segments(
            plan,
            keyspace,
            record,
            whole=bool(commit.transactions),
            metadata_db=self._metadata_db,
            level=self._formats.in_force(engine),
        )
        for at, request in enumerate(commit.requests[place:], place):
            if not segments.takes(request) or (at > place and _needs_record(request)):
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
        if request.command.asks_plainly and len(request.args) <= MOST_WORDS:
            segments.add(request)
        elif request.command.write is not None:
            if (refusal := refusal_of(request, self.keyspace.dates.now)) is not None:
                batch.plan.answer_with(request, refusal)
            else:
                segments.add(request)
        else:
            self._add_between(batch, segments, request)

    def _add_between(self, batch: LocalBatch, segments: Segments, request: Request) -> None:
        """Add a request that does not write to a commit of which the server decides a part."""
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
        """Prepare the operations `inside`. They rest on the state after the last commit, so this commit takes no
        deliveries.
        """
        inside, self._inside = self._inside, []
        if not self.refusals.is_ending:
            for _, _, add in inside:
                add(batch)
                batch.show(())  # the next one may repair the key
        batch.close()
        for _, _, event in batch.sent:
            self._reads.note_large_sets(event.effects)

    def _put_back(self, commit: Commit, place: int) -> None:
        """Leave the requests from this place on to the next commit."""
        self._requests.extendleft(reversed(commit.requests[place:]))
        del commit.requests[place:]

    def _prepare_transaction(self, batch: LocalBatch, transaction: Transaction) -> bool:
        """Returns False if the server must be asked first; then the batch has nothing of it."""
        plan = batch.plan
        watch, verdict = transaction.watch, WatchVerdict.GO
        if watch is not None:
            verdict = self._watches.verdict(batch, watch)
        if verdict is WatchVerdict.MARKED:
            plan.answer_with(transaction, ABORTED)
        elif verdict is WatchVerdict.UNSURE:
            self._intake.alone = transaction  # nothing may come between the look and it
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
        """Whether all requests fit into one message, so that its size need not be watched."""
        if commit.transactions or commit.size > MAX_BYTES:
            return False
        return sum(map(len, map(_ARGS, commit.requests))) <= MAX_OPERATIONS

    def _entries(
        self, commit: Commit, engine: Engine | GroupEngine, order: int
    ) -> tuple[list[bytes], int]:
        """Fields and values of the commit's messages in the hash `store`. order: that of the last message before them.
        Returns the new one, too.
        """
        if self._group is not None and (issued := self._group.take_issued()):
            commit.issued = [*commit.issued, *issued]
        entries: list[bytes] = []
        if commit.issued or commit.derived is not None or commit.unaware:
            commit.stored = self._stored_in_order(commit, engine)
            for message in commit.stored:
                order += 1
                entries += metadata.entry(order, message)
            return entries, order
        for message in commit.received:
            order += 1
            entries += metadata.entry(order, message)
        for tag, payload, _ in commit.sent:
            order += 1
            entries += metadata.own_entry(order, tag, payload)
        return entries, order

    @staticmethod
    def _stored_in_order(commit: Commit, engine: Engine | GroupEngine) -> list[Message]:
        """The commit's messages, where the engine's own ones, derived ones or reports of expiry are among them."""
        messages = [] if commit.derived is None else [*commit.derived.messages]
        messages += commit.received
        messages += [Message(tag.dot, tag.context, payload) for tag, payload, _ in commit.sent]
        if commit.issued:
            # Stable ones are not needed.
            dots = [message.dot for message in messages] + [tag.dot for tag in commit.issued]
            messages = engine.messages(dots)
        for tag, _, _ in commit.sent[: commit.unaware] if commit.unaware else ():
            messages = _ahead(messages, tag.dot, commit.deliveries)
        return messages

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
        entries, order = self._entries(commit, engine, state.order)
        if entries:
            plan.metadata(Expect.INTEGER, b"HSET", metadata.STORE, *entries)
        dots = [tag.dot for tag in commit.stable] if commit.stable else []
        forgotten = self._observer.forgettable(dots)
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
        commit.changes_group = bool(commit.issued)
        if self._group is not None and self._has_new_membership(self._group):
            commit.changes_group = True
            self._membership = outline = self._group.outline()
            state.level = self._formats.agreed(engine)
            state.membership = metadata.pack_membership(outline)
            before, self._noted = self._noted, metadata.notes(outline)
            state.order += self._noted - before
        commit.vector, commit.order = vector, state.order
        plan.metadata(SAYS_OK, b"SET", metadata.STATE, state.encode())
        if self._group is not None:
            self._observer.prepared(commit, self._number_of_next)

    def _transmit(self, commit: Commit) -> None:
        assert self._server is not None
        plan = commit.plan
        pieces = plan.pieces
        count = len(pieces)
        reads = commit.after
        after = b"".join([pack(command) for command, _ in reads]) if reads else b""
        if commit.transaction or plan.atomic:
            # The fence is watched and read right after every EXEC: when another gateway takes the
            # server, we see it now, or the next EXEC fails.
            payload = b"".join((_MULTI, *pieces, _EXEC, after, self._guard))
            replies = count + 2 + len(reads) + _GUARD_REPLIES
        else:
            payload = b"".join((*pieces, after))
            replies = count + len(reads)
        if not replies:
            self._finish(commit, [], [])
            # Not now: what was answered may have let requests go on that are such a commit, too, thousands in a row.
            self.later(self.kick)
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
            self._go_on(commit)
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
        # It goes before all else: the server works on it meanwhile.
        self._commit, self._next = self._next, None
        if self._commit is not None:
            self._commit.is_sent = True
            self._transmit(self._commit)
            if crash_points.ARMED:
                crash_point("next-sent")
        reads = replies[count + 2 : -_GUARD_REPLIES] if commit.after else []
        self._finish(commit, executed, reads)
        self._go_on(commit)

    def _lost_fence(self, fence: object) -> None:
        """Handle a failed EXEC or another fence: another gateway has taken the server, with a higher epoch; or our keys
        were removed; or keys may have been dropped since they were looked up.
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
        elif isinstance(fence, Exception):
            self._server.abort(f"it refuses to read the gateway's metadata: {fence}")
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
        """The key was changed directly in the server: log that, and let the next commit restore its value."""
        if key in self._repairs:
            return
        self.changed_behind += 1
        self._repairs.add(key)
        self._has_extra = True
        self._log.error(
            "key %s was changed directly in the server (expected %s, the server answered %s): "
            "the gateway repairs it: write through the gateway only",
            described(key),
            getattr(expect, "value", expect),
            _text(reply),
        )

    def _finish(self, commit: Commit, replies: Replies, own: Replies) -> None:
        """Answer the clients of a commit that was applied. Another one may be in flight already."""
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
        for request, places, number, value in plan.drawn:
            if not wrong.isdisjoint(places):
                value = _KEPT
            elif sum(map(replies.__getitem__, places)) != number:
                value = _TAKEN
            request.answer(value)
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
        following = None if commit is self._commit else self._commit
        if plan.dated or (keyspace.dates.touched and following is None):
            self._note_deadlines(plan, replies)
        for take, place in plan.scripts:
            take(replies[place])
        if following is None:
            self._commit = None
        self._flush_clients()  # before the event log: a restart writes what is missing there
        self._observer.committed(commit)
        if commit.after:
            for (_, callback), reply in zip(commit.after, own, strict=True):
                callback(reply)
        if crash_points.ARMED and commit.sent:
            crash_point("client-answered")
        if crash_points.ARMED and commit.deliveries:
            crash_point("remote-applied")
        if following is not None:
            if self._life.phase is ServerPhase.COMMITTING:  # it may be lost already
                self._release_peers()
            self._looks_again = True
            return
        self._life.move(ServerEvent.END)
        self._hold_peers(False)

    def _go_on(self, commit: Commit) -> None:
        """A commit has ended: start the next one for requests; other work can wait until the poller's round is over."""
        if self._commit is not None:
            return  # the one that was prepared behind it is under way
        if self._requests or self.recorded.pending is not None:
            self.kick()
        elif (
            not commit.together
            or commit.deliveries
            or commit.after
            or self._has_steps
            or self._own_work()
        ):
            self._looks_again = True

    def _own_work(self) -> bool:
        """Whether work of the gateway itself waits for a commit."""
        if self._has_extra:
            self._has_extra = bool(
                self._repairs
                or self._inside
                or self._last
                or self._steps
                or self._asked
                or self._grace_ms is not None
            )
        return self._has_extra

    def _take_record(self, segments: Segments, replies: Replies) -> None:
        """Answer the requests that the server has executed by itself, and derive their message in the same turn."""
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
        """The server refused the whole commit, so nothing of it was applied: answer the clients, and read all again."""
        assert self._server is not None
        self._log.error("the server refused a commit; nothing of it was applied: %s", reason)
        self._void_next()
        error = ReplyError(reason)
        reads = [r for r in commit.requests if not (r.writes or r.answered)]
        for request in commit.requests:
            if request.writes:
                self.refusals.count(request)
                request.answer(error)
        self._requests.extendleft(reversed(reads))
        commit.requests.clear()  # `_settle` must not answer them again
        self._flush_clients()
        self._tell_lost(commit)
        commit.after = []
        self._server.abort(f"it refused a commit: {reason}")


def _ahead(
    messages: list[Message], dot: Dot, deliveries: Sequence[tuple[Delivery, EffectsEvent]]
) -> list[Message]:
    """The messages, with this one moved before those that it has not seen: the order that an event log needs."""
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
    """The error for a reply that rests on a value written directly in the server; None for any other reply."""
    if is_wrong:
        return _KEPT
    command = request.command
    if command.is_read and not changed.isdisjoint(command.keys_of(request.args)):
        return _CHANGED
    return None


def _can_be_recorded(request: Request) -> bool:
    """Whether the effects of all its writes can be derived from the server's replies."""
    writes = [part.command.write for part in request.parts if part.writes]
    return bool(writes) and all(row is not None and row.derive is not None for row in writes)


def _needs_record(request: Request) -> bool:
    """Whether what the server has done before it must be known: to a transaction with watched keys when it is prepared,
    to a barrier when it is answered.
    """
    if isinstance(request, Transaction):
        return request.watch is not None
    return isinstance(request, Barrier)


def _text(reply: object) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
