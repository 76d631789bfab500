"""Keeps one member of a group in its journal. Rule: nothing leaves this process before all that its
engine knew when it was said is durable. Many changes share one sync, which runs in a thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from crdtcast.exceptions import ConfigurationError, EndedError, JournalError, UnusableInputError
from crdtcast.group_state import Happened as Told
from crdtcast.journal.interface import Journal
from crdtcast.journal.noting import Changes, NotingEngine
from crdtcast.journal.saved import (
    Batch,
    Folding,
    Happened,
    Life,
    Saved,
    pack_batch,
    pack_saved,
    unpack_batch,
    unpack_saved,
)
from crdtcast.journal.tagging import Tagging
from crdtcast.options import format_address

if TYPE_CHECKING:
    from crdtcast.member import GroupMember

COMPACT_BYTES = 64 * 2**20
"""A snapshot is taken when the journal has grown by so much since the last one, or by twice its size."""


class Observer(Protocol):
    """Follows what becomes durable; for event logs."""

    def begun(self) -> None:
        """The member has another engine."""
        ...

    def taken(self, happened: Sequence[Happened]) -> None:
        """This is about to be synced, in the order in which it happened."""
        ...

    def synced(self) -> None:
        """It is. Nothing that depends on it has left yet."""
        ...

    def ended(self) -> None:
        """What was taken and not synced never happened."""
        ...


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a journal says of its member's former life.

    saved: as it was at the end; the application's state is that of the last snapshot. since: what
    has happened to the application after that. damage: see `crdtcast.journal.Recovered`.
    """

    saved: Saved
    since: Sequence[Told]
    damage: str


class Recording:
    """One member's journal. compact_bytes: see `COMPACT_BYTES`."""

    def __init__(
        self,
        journal: Journal,
        member: "GroupMember",
        *,
        compact_bytes: int = COMPACT_BYTES,
        observer: Callable[["GroupMember"], Observer] | None = None,
    ) -> None:
        self._journal = journal
        self._member = member
        self._channel = member.channel
        self._compact_at = compact_bytes
        self._observer = None if observer is None else observer(member)
        self._asked: tuple[str, ...] = ()
        self._changes: Changes | None = None
        self._snapshot_due = True
        self._snapshot_bytes = 0
        self._later: list[Callable[[], None]] = []
        self._waiting: list[trio.Event] = []
        self._dirty = trio.Event()
        self._finished = False
        self._failure: JournalError | None = None
        self._is_running = False
        self.closed = trio.Event()
        """Set when the journal is nobody's any more."""

    # Before it runs

    def load(self) -> Resumed | None:
        """The former life; None if there is none. Reads all of it, and blocks meanwhile.

        Raises what `Journal.load` raises; ConfigurationError for another member's journal.
        """
        try:
            return self._load()
        except BaseException:
            self._journal.close()
            raise

    async def load_aside(self) -> Resumed | None:
        """`load`, while everybody else goes on, if the journal may take long."""
        return await trio.to_thread.run_sync(self.load) if self._journal.blocks else self.load()

    def _load(self) -> Resumed | None:
        found = self._journal.load()
        name, group = self._channel.name, self._channel.group
        where = f"the journal of {name!r} in group {group!r}"
        if found.snapshot is None:
            if found.damage or found.records:
                raise UnusableInputError(
                    f"{where} has lost its beginning ({found.damage or 'no snapshot'}): move it away, "
                    "and let the node join as the replacement of its former life (replace=True)"
                )
            return None
        saved = unpack_saved(found.snapshot, where)
        if (saved.group, saved.name) != (group, name):
            raise ConfigurationError(
                f"{where} is that of {saved.name!r} in group {saved.group!r}: give each member a "
                "journal of its own"
            )
        folding = Folding(saved)
        for record in found.records:
            folding.add(unpack_batch(record, where))
        now = folding.result()
        since = Tagging(saved.state).replay(folding.happened)
        self._asked = now.life.asked
        return Resumed(now, list(since), found.damage)

    def close(self) -> None:
        """It is not used any more, or never was. (While it runs, it closes itself.)"""
        if not self._is_running:
            self._journal.close()

    def start(self) -> None:
        """From here on nothing leaves that is not durable."""
        if not self._is_running:
            self._is_running = True
            self._channel.hold = True
            self._channel.on_held = self.wake
            self._channel.shared.spawn(self._run)

    # What is to be kept

    @property
    def asked(self) -> tuple[str, ...]:
        """Bases under which this member has asked to be let in, without becoming a member so far."""
        return self._asked

    async def asks(self, base: str) -> None:
        """Return when it is durable that `base` will be asked to be let in."""
        if base not in self._asked:
            self._asked += (base,)
            self._snapshot_due |= self._changes is None
            self.start()
            await self.synced()

    def begin_anew(self) -> None:
        """The member has another engine, or none of its own any more: all of it is to be written."""
        self._changes = None
        self._snapshot_due = True
        if self._observer is not None and not self._member.is_over:
            self._observer.begun()
        self.start()
        self.wake()

    def is_member(self) -> None:
        """It was let in: what it has asked before is settled."""
        self._asked = ()

    def later(self, send: Callable[[], None]) -> None:
        """Do that when all that is known now is durable."""
        self._later.append(send)
        self.wake()

    async def synced(self) -> None:
        """Return when all that is known now is durable."""
        done = trio.Event()
        self._waiting.append(done)
        self.wake()
        await done.wait()
        if done in self._waiting:
            if self._failure is not None:
                raise JournalError(str(self._failure)) from self._failure
            raise EndedError(
                f"the journal of {self._channel.name!r} is closed, and what was sent last may not be "
                "in it: open the group again, and look"
            )

    def wake(self) -> None:
        """Something may have to be written, or to leave."""
        self._dirty.set()

    def finish(self) -> None:
        """The member has left: there is nothing to go on from."""
        self._finished = True
        self.wake()

    # The work

    async def _run(self) -> None:
        try:
            try:
                while not self._finished:
                    await self._dirty.wait()
                    self._dirty = trio.Event()
                    await self._commit()
            except trio.Cancelled:
                if not self._snapshot_due:  # the application may have failed, and is not asked
                    with trio.CancelScope(shield=True):
                        await self._commit()
                raise
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
        """One sync, and all that waits for it."""
        work = self._to_write()
        engine = self._channel.engine
        effects = [] if engine is None else engine.take_outbox()
        later, self._later = self._later, []
        waiting, self._waiting = self._waiting, []
        if work is not None:
            try:
                await self._do(work)
            except JournalError as error:
                self._failure = error
                self._waiting += waiting
                raise
            if self._observer is not None:
                self._observer.synced()
        if self._channel.engine is engine:
            self._channel.send_effects(effects)
        for send in later:
            send()
        for done in waiting:
            done.set()

    async def _do(self, work: Callable[[], None]) -> None:
        if not self._journal.blocks:
            work()
            return
        # Never left out: the next record begins where this one ends.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(work)

    def _to_write(self) -> Callable[[], None] | None:
        member = self._member
        # What is not stable would be in the snapshot, too, and nothing gained.
        held = 0 if member.is_outside else 2 * member.engine.held_bytes
        limit = max(self._compact_at, 2 * self._snapshot_bytes, held)
        if self._snapshot_due or self._journal.grown > limit:
            return partial(self._write_snapshot, self._snapshot())
        if self._changes is None:
            return None
        batch = self._changes.take(member.parked, self._life())
        if batch.is_empty:
            return None
        self._tell(batch.happened)
        return partial(self._write_batch, batch)

    def _snapshot(self) -> Saved:
        member, channel = self._member, self._channel
        self._snapshot_due = False
        life = self._life()
        if member.is_outside:
            return Saved(channel.group, channel.name, life=life)
        # First, as it may let the application say something.
        application = None if member.witness else member.application_state()
        engine = member.engine
        assert isinstance(engine, NotingEngine)
        self._tell(engine.take_happened())
        self._changes = Changes(engine, member.parked, life)
        return Saved(
            channel.group,
            channel.name,
            channel.founding,
            engine.me,
            member.witness,
            engine.state(),
            application,
            member.parked,
            life,
        )

    def _life(self) -> Life:
        known = self._channel.shared.known.items()
        addresses = {name: format_address(address) for name, address in known}
        return Life(self._member.is_over, self._asked, addresses)

    def _tell(self, happened: Sequence[Happened]) -> None:
        if self._observer is not None:
            self._observer.taken(happened)

    def _write_batch(self, batch: Batch) -> None:
        self._journal.append([pack_batch(batch)])
        self._journal.sync()

    def _write_snapshot(self, saved: Saved) -> None:
        packed = pack_saved(saved)
        self._snapshot_bytes = len(packed)
        self._journal.compact(packed)
        self._journal.sync()
