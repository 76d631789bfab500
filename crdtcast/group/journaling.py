"""Keeps one member of a group in its journal. Rule: a message leaves this process only when all that its engine knew at
that time is durable. Many changes share one sync, which runs in a thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import trio

from crdtcast.engine import GroupEngine, GroupState, Parked
from crdtcast.exceptions import ConfigurationError, EndedError, JournalError, UnusableInputError
from crdtcast.group.application import Application
from crdtcast.journal.interface import Journal
from crdtcast.journal.noting_store import Changes, NotingStore, noted
from crdtcast.journal.replayed_tags import Tagging
from crdtcast.journal.saved import (
    Happened,
    JournalBatch,
    JournalFolding,
    Life,
    Saved,
    pack_batch,
    pack_saved,
    unpack_batch,
    unpack_saved,
)
from crdtcast.journal.spill import Spill
from crdtcast.transport.channel import Channel
from crdtcast.transport.engine_driver import SENT_AT_ONCE
from crdtcast.transport.options import format_address
from crdtcast.wire.state import Happened as Told

COMPACT_BYTES = 4 * 2**20
"""The journal takes a snapshot when it has grown by this much since the last one, or by twice its size. A start carries
out again what came since, about 20,000 messages a second.
"""


class JournalObserver(Protocol):
    """Follows the changes that become durable; for event logs."""

    def resumed(self, happened: Sequence[Happened]) -> None:
        """The journal of the member's former life has these events, in their order. They were reported before in this
        order, but perhaps not all.
        """
        ...

    def begun(self, own: int) -> None:
        """The member has a new engine, which continues after its own message number `own`."""
        ...

    def taken(self, happened: Sequence[Happened]) -> None:
        """These events are about to be synced, in their order."""
        ...

    def synced(self) -> None:
        """The events are synced. No message that depends on them has left yet."""
        ...

    def ended(self) -> None:
        """Events that were taken and not synced never happened."""
        ...


@dataclass(frozen=True, slots=True)
class Resumed:
    """A member's former life, from its journal.

    saved: its state at the end, with the application's state of the last snapshot.
    since: what has happened to the application after that snapshot.
    happened: what has happened to the member after that snapshot.
    damage: see `crdtcast.journal.Recovered`.
    """

    saved: Saved
    since: Sequence[Told]
    happened: Sequence[Happened]
    damage: str


class MemberJournal:
    """One member's journal.

    parked: returns what the member must send again.
    spill: where payloads beyond a limit are stored.
    compact_bytes: see `COMPACT_BYTES`.
    observer: follows all changes.
    """

    def __init__(
        self,
        journal: Journal,
        channel: Channel,
        application: Application,
        parked: Callable[[], Parked | None],
        *,
        spill: Spill | None,
        compact_bytes: int,
        observer: JournalObserver | None,
    ) -> None:
        self._journal = journal
        self._channel = channel
        self._application = application
        self._parked = parked
        self._compact_at = compact_bytes
        self._observer = observer
        self._spill = spill
        self._store = NotingStore(spill)
        self._engine: GroupEngine | None = None
        self._is_over = False  # whether the incarnation is over: a new process joins again then
        self._asked: tuple[str, ...] = ()
        self._resumed: Resumed | None = None
        self._kept = ""  # the incarnation whose state the journal holds
        self._changes: Changes | None = None
        self._snapshot_due = True
        self._snapshot_bytes = 0
        self._later: list[Callable[[], None]] = []
        self._waiting: list[trio.Event] = []
        self._dirty = trio.Event()
        self._finished = self._keeps = False
        self._failure: JournalError | None = None
        self._is_running = False
        self._scope = trio.CancelScope()
        self.closed: trio.Event = trio.Event()
        """Set when the journal is released."""

    # Before it runs

    def new_engine(self, me: str, state: GroupState) -> GroupEngine:
        """Make an engine whose store notifies this journal of changes from now on."""
        engine, self._store = noted(me, state, spill=self._spill)
        return engine

    def load(self) -> Resumed | None:
        """Return the former life; None if there is none. Reads all of it, and blocks meanwhile.

        Raises what `Journal.load` raises, and ConfigurationError if the journal belongs to another member.
        """
        try:
            return self._load()
        except BaseException:
            self._journal.close()
            raise

    async def load_aside(self) -> Resumed | None:
        """Like `load`, but in a thread if the journal may take long, so that other tasks continue."""
        return await trio.to_thread.run_sync(self.load) if self._journal.blocks else self.load()

    def _load(self) -> Resumed | None:
        found = self._journal.load()
        name, group = self._channel.name, self._channel.group
        where = f"the journal of {name!r} in group {group!r}"
        if found.snapshot is None:
            if found.damage or found.records:
                raise UnusableInputError(
                    f"{where} is damaged at its start ({found.damage or 'no snapshot'}): move it "
                    "away, and let the node join again as its own replacement (replace=True; "
                    f"--replaces {name})"
                )
            return None
        saved = unpack_saved(found.snapshot, where)
        if (saved.group, saved.name) != (group, name):
            raise ConfigurationError(
                f"{where} belongs to {saved.name!r} in group {saved.group!r}: use a separate "
                "journal for each member"
            )
        folding = JournalFolding(saved)
        for record in found.records:
            folding.add(unpack_batch(record, where))
        now = folding.result()
        since = list(Tagging(saved.state).replay(folding.happened))
        self._asked = now.life.asked
        self._kept = now.incarnation
        happened = [item for item in folding.happened if not isinstance(item, Mapping)]
        resumed = Resumed(now, since, happened, found.damage)
        if self._observer is not None:
            self._resumed = resumed
        return resumed

    def close(self) -> None:
        """Close a journal that is not running. (While it runs, it closes itself.)"""
        if not self._is_running:
            self._journal.close()

    async def stop(self) -> None:
        """Stop and release it, as when the node is closed."""
        self._scope.cancel()
        if self._is_running and self._channel.shared.runs_tasks:
            await self.closed.wait()
        elif not self.closed.is_set():
            self._journal.close()

    def start(self) -> None:
        """Start: from now on only durable data leaves."""
        if not self._is_running:
            self._is_running = True
            self._channel.hold = True
            self._channel.on_held = self.wake
            self._channel.shared.spawn(self._run)

    # What the journal keeps

    @property
    def asked(self) -> tuple[str, ...]:
        """Bases under which this member has asked to join, without becoming a member so far."""
        return self._asked

    async def asks(self, asked: tuple[str, ...]) -> None:
        """Return when it is durable that this member may have been admitted under any of these bases."""
        if asked != self._asked:
            self._asked = asked
            self._snapshot_due |= self._changes is None
            self.start()
            await self.synced()

    def begin_anew(self, engine: GroupEngine, *, is_over: bool = False) -> None:
        """Write everything, because the member has a new engine. is_over: its incarnation `ends` at once."""
        self._engine, self._is_over = engine, is_over
        self._changes = None
        self._snapshot_due = True
        if self._observer is not None:
            self._tell_beginning(self._observer)
        self.start()
        self.wake()

    def _tell_beginning(self, observer: JournalObserver) -> None:
        resumed, self._resumed = self._resumed, None
        own = 0
        if resumed is not None and resumed.saved.incarnation:
            observer.resumed(resumed.happened)
            own = resumed.saved.state.counter
        if not self._is_over:
            observer.begun(own)

    def ends(self) -> None:
        """The incarnation is over: a process that starts from this journal joins as a new one."""
        self._is_over = True
        self.wake()

    def is_member(self) -> None:
        """The member was admitted: its earlier requests are settled."""
        self._asked = ()

    def later(self, send: Callable[[], None]) -> None:
        """Call `send` when all that is known now is durable."""
        self._later.append(send)
        self.wake()

    async def synced(self) -> None:
        """Return when all that is known now is durable."""
        done = trio.Event()
        self._waiting.append(done)
        self.wake()
        if not self.closed.is_set():
            await done.wait()
        if done in self._waiting:
            if self._failure is not None:
                raise JournalError(str(self._failure)) from self._failure
            raise EndedError(
                f"the journal of {self._channel.name!r} is closed, and the last messages sent may "
                "be missing from it: open the group again and check them"
            )

    def wake(self) -> None:
        """There may be something to write, or to send."""
        self._dirty.set()

    def finish(self, *, keeps: bool) -> None:
        """The member has left: write an empty journal; or, if it `keeps` some messages to send again, only these."""
        self._finished = True
        self._keeps = keeps
        self.wake()

    # The work

    async def _run(self) -> None:
        with self._scope:
            await self._keep()

    async def _keep(self) -> None:
        try:
            try:
                while not self._finished:
                    await self._dirty.wait()
                    self._dirty = trio.Event()
                    await self._commit()
            except trio.Cancelled:
                # If the application has failed, its state is not asked for.
                if not self._snapshot_due or self._channel.shared.failure is None:
                    with trio.CancelScope(shield=True):
                        await self._commit()
                raise
            if self._keeps:
                await self._commit()
            else:
                nothing = Saved(self._channel.group, self._channel.name)
                await self._do(partial(self._write_snapshot, nothing))
        finally:
            self._journal.close()
            if self._observer is not None:
                self._observer.ended()
            self.closed.set()
            for waiting in self._waiting:
                waiting.set()

    async def _commit(self) -> None:
        """Run one sync, and everything that waits for it."""
        steps = self._to_write()
        engine = self._channel.engine
        effects = [] if engine is None else engine.take_outbox()
        later, self._later = self._later, []
        waiting, self._waiting = self._waiting, []
        try:
            for work in steps:
                await self._do(work)
                if self._observer is not None:
                    self._observer.synced()
        except JournalError as error:
            self._failure = error
            self._waiting += waiting
            raise
        for begin in range(0, len(effects), SENT_AT_ONCE):
            if begin:
                await trio.lowlevel.cancel_shielded_checkpoint()  # a slow disk holds back thousands
            if self._channel.engine is engine:
                self._channel.send_effects(effects[begin : begin + SENT_AT_ONCE])
        for send in later:
            send()
        for done in waiting:
            done.set()

    async def _do(self, work: Callable[[], None]) -> None:
        if not self._journal.blocks:
            work()
            return
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True
            work()

        # Must not be skipped: the next record begins where this one ends.
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(begin)
            except RuntimeError:
                if begun:
                    raise
                work()  # no thread starts: at the interpreter's end Python 3.12 and later refuse it

    def _to_write(self) -> Sequence[Callable[[], None]]:
        """The writes to do, one after the other, all as of now."""
        # Unstable messages would be in the snapshot, too, so it would save nothing.
        held = 0 if self._engine is None else 2 * self._engine.held_bytes
        limit = max(self._compact_at, 2 * self._snapshot_bytes, held)
        if self._snapshot_due or self._journal.grown > limit:
            return self._rewrite()
        if self._changes is None:
            return ()
        batch = self._changes.take(self._parked(), self._life())
        if batch.is_empty:
            return ()
        if self._observer is not None:
            self._observer.taken(batch.happened)
        return (partial(self._write_batch, batch),)

    def _rewrite(self) -> Sequence[Callable[[], None]]:
        """The writes for a snapshot. It has no order of events. So an observer must get all events before, or a process
        that starts from this journal must be able to report them.
        """
        saved, happened = self._snapshot()
        write = partial(self._write_snapshot, saved)
        goes_on, self._kept = saved.incarnation == self._kept, saved.incarnation
        if self._observer is None:
            return (write,)
        self._observer.taken(happened)
        if not goes_on:
            self._observer.synced()  # without this snapshot no process starts as this incarnation
        if not goes_on or not happened:
            return (write,)
        outline = replace(saved.state, unstable=())
        batch = JournalBatch(happened, outline.context, outline, saved.life, (saved.parked,))
        return partial(self._write_batch, batch), write

    def _snapshot(self) -> tuple[Saved, Sequence[Happened]]:
        """The whole member, and what has happened since the last write."""
        channel, engine = self._channel, self._engine
        self._snapshot_due = False
        life = self._life()
        if engine is None:
            return Saved(channel.group, channel.name, life=life), ()
        # First, because it may make the application send a message.
        state = self._application.state()
        parked = self._parked()
        happened = self._store.take_happened()
        self._changes = Changes(engine, self._store, parked, life)
        saved = Saved(
            channel.group,
            channel.name,
            channel.group_id,
            engine.me,
            self._application.witness,
            engine.state(),
            state,
            parked,
            life,
        )
        return saved, happened

    def _life(self) -> Life:
        known = self._channel.shared.known.items()
        addresses = {name: format_address(address) for name, address in known}
        return Life(self._is_over, self._asked, addresses)

    def _write_batch(self, batch: JournalBatch) -> None:
        self._journal.append([pack_batch(batch)])
        self._journal.sync()

    def _write_snapshot(self, saved: Saved) -> None:
        packed = pack_saved(saved)
        self._snapshot_bytes = len(packed)
        self._journal.compact(packed)
        self._journal.sync()
