"""A user's own `Doc`, joined with a replicated document: edits of the one go to all replicas, and theirs come in.

A callback of pycrdt runs in the middle of a transaction, where a document can be neither read nor changed. So the
callback only puts the edit into a queue. It is the only one for each document and stays for good: pycrdt 0.14 keeps
the memory of removed ones, and can crash when one is removed in a callback.
"""

import logging
from collections import deque
from collections.abc import Callable
from threading import RLock, get_ident
from types import TracebackType
from typing import Any, Final

from pycrdt import Doc, Transaction, TransactionEvent, merge_updates

from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.handle import SyncYDocHandle, Updates, YDocHandle
from crdtcast.exceptions import (
    CrdtcastError,
    EndedError,
    InvalidOperationError,
    LocalProtocolError,
)
from crdtcast.short_repr import shown

ORIGIN: Final = "crdtcast"
"""The origin of the transactions that bring what others wrote: an UndoManager leaves them alone."""
_LOGGER = logging.getLogger("crdtcast.pycrdt")


class _Edits:
    """The edits of a user's document that were not sent yet."""

    def __init__(self, doc: "Doc[Any]", on_edit: Callable[[], None]) -> None:
        self._doc = doc
        self._on_edit = on_edit
        self._queue: deque[tuple[int, bytes]] = deque()
        self._count: int = 0
        self._receiver: int | None = None
        """The thread in which updates of others are applied now: what other threads do meanwhile are edits."""
        self._is_open: bool = True
        doc.observe(self._edited)

    def _edited(self, event: TransactionEvent) -> None:
        if self._is_open and self._receiver != get_ident():
            self.add(event.update)
            self._on_edit()

    def add(self, update: bytes) -> None:
        """One more."""
        self._count += 1
        self._queue.append((self._count, update))

    def __bool__(self) -> bool:
        return bool(self._queue)

    def merged(self) -> tuple[int, bytes]:
        """All of them as one update, and the number of the last one."""
        updates = [update for _, update in self._queue]
        return self._queue[-1][0], updates[0] if len(updates) == 1 else merge_updates(*updates)

    def sent(self, until: int) -> None:
        """Those up to that number were sent."""
        while self._queue and self._queue[0][0] <= until:
            self._queue.popleft()

    def receive(self, *updates: bytes) -> None:
        """Apply what others wrote, in one transaction. Raises ExceptionGroup, with all applied, if observers of the
        document have failed.
        """
        self._receiver = get_ident()
        try:
            with self._transaction():
                for update in updates:
                    self._doc.apply_update(update)
        finally:
            self._receiver = None

    def _transaction(self) -> Transaction:
        try:
            return self._doc.transaction(origin=ORIGIN)
        except RuntimeError:  # the program keeps one open
            return self._doc.transaction()

    def close(self) -> None:
        """Note no more edits. The callback stays, and does nothing."""
        self._is_open = False
        self._queue.clear()


def _check(live: object, handle: object, kind: type, doc: object) -> None:
    for given, wanted in ((handle, kind), (doc, Doc)):
        if not isinstance(given, wanted):
            raise LocalProtocolError(
                f"{type(live).__name__} joins a {kind.__name__} with a Doc of pycrdt: {shown(given)} is no "
                f"{wanted.__name__}"
            )


class LiveDocument:
    """Joins a pycrdt `Doc` with a replicated document, in Trio or asyncio, until `close` or the end of the replica.

    Edit `doc` as any other. The edits between two awaits of a task go out as one update; `await live.flush()` sends
    them now, and raises what is wrong if they cannot be sent. What others write is applied to `doc` between two steps
    of the program, and its observers tell of it. Do not keep a transaction open over an await.

    `async with LiveDocument(handle, doc):` flushes and closes at the end. A `Doc` has one `LiveDocument` in its life.
    """

    def __init__(self, handle: YDocHandle, doc: "Doc[Any]") -> None:
        """Both get what the other one has: `doc` at once, the replicas as with an edit."""
        _check(self, handle, YDocHandle, doc)
        self.doc = doc
        self._handle = handle
        self._replica = handle._replica
        self._updates: Updates = handle.updates()
        self._thread: int = get_ident()
        self._is_waking: bool = False
        self._has_ended: bool = False
        """Whether the replica has."""
        self._sending: int = 0
        self._edits = _Edits(doc, self._wake)
        self._meet()
        self._stop: Callable[[], None] = self._replica.spawn(self._listen)

    def _receive(self, *updates: bytes) -> None:
        try:
            self._edits.receive(*updates)
        except ExceptionGroup:
            _LOGGER.exception("an observer of the Doc joined with %r has failed", self._handle.name)

    def _meet(self) -> None:
        """Each gets what it lacks of the other: at the start, and after a gap."""
        handle = self._handle
        self._receive(handle.update_since(self.doc.get_state()))
        beyond = self.doc.get_update(handle.state_vector())
        if handle.lacks(beyond):
            self._edits.add(beyond)
            self._wake()

    def _wake(self) -> None:
        """Send what is queued in the next step of the program."""
        if self._has_ended:
            return  # editing `doc` is still allowed
        if get_ident() != self._thread:
            raise LocalProtocolError(
                f"the Doc joined with {self._handle.name!r} was edited in another thread: edit it "
                "in the thread of its LiveDocument (trio.from_thread.run_sync, "
                "loop.call_soon_threadsafe); this edit is sent with the next one there"
            )
        if not self._is_waking:
            try:
                self._replica.spawn(self._send_soon)
            except (EndedError, RuntimeError):
                return  # the replica is ending, with its tasks
            self._is_waking = True

    async def _send_soon(self) -> None:
        self._is_waking = False
        if self._sending:
            return  # that goes on until all is sent
        try:
            try:
                await self._send()
            except EndedError:  # it may be on its way back from an eviction
                await self._replica.ready()
                await self._send()
        except EndedError:
            pass  # the replica has ended
        except InvalidOperationError as error:
            _LOGGER.error(
                "an edit of %r is refused, so none of this Doc is sent any more: join a new Doc: %s",
                self._handle.name,
                error,
            )
        except CrdtcastError as error:
            _LOGGER.warning(
                "edits of %r wait until the next one: they cannot be sent: %s",
                self._handle.name,
                error,
            )
        except Exception:  # it would end the replica
            _LOGGER.exception("edits of %r cannot be sent", self._handle.name)

    async def flush(self) -> None:
        """Send the edits so far; return when they are applied at this replica. Errors are those of
        `YDocHandle.apply`, and the edits are still queued then. If it is cancelled, they are sent without it.
        """
        try:
            await self._send()
        except BaseException as error:
            # What was to send them has left it to this call, which is cancelled, or during a return from an eviction.
            if isinstance(error, EndedError) or not isinstance(error, Exception):
                self._wake()
            raise

    async def _send(self) -> None:
        self._sending += 1
        try:
            while self._edits:
                last, update = self._edits.merged()
                try:
                    await self._handle.apply(update)
                except MissingUpdatesError as error:
                    # The state has become another one, after an eviction; it is lacking what this document has.
                    await self._handle.apply(self.doc.get_update(error.state_vector))
                self._edits.sent(last)
        finally:
            self._sending -= 1

    async def _listen(self) -> None:
        try:
            while True:
                taken = self._updates.take()
                if taken is None:
                    self._meet()
                elif taken:
                    self._receive(*(applied.update for applied in taken))
                else:
                    await self._updates.changed()
                if self._edits:
                    self._wake()
        except EndedError:
            self._has_ended = True
        except CrdtcastError as error:
            _LOGGER.warning("the live document of %r has ended: %s", self._handle.name, error)
        except Exception:
            _LOGGER.exception("the live document of %r has ended", self._handle.name)
        except BaseException:  # it is cancelled
            self._has_ended = True
            raise

    def close(self) -> None:
        """Separate the two. Edits that were not sent are dropped: `flush` before."""
        self._stop()
        self._edits.close()

    async def __aenter__(self) -> "LiveDocument":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self.close()


class SyncLiveDocument:
    """Joins a pycrdt `Doc` with a replicated document, for a program without an event loop.

    Nothing happens to `doc` in the background: `exchange` sends the edits since the last call, as one update, and gets
    what others wrote. Call it in the thread that edits `doc`.

    `with SyncLiveDocument(handle, doc) as live:` exchanges and closes at the end. A `Doc` has one in its life.
    """

    def __init__(self, handle: SyncYDocHandle, doc: "Doc[Any]") -> None:
        """Both get what the other one has."""
        _check(self, handle, SyncYDocHandle, doc)
        self.doc = doc
        self._handle = handle
        self._edits = _Edits(doc, lambda: None)
        self._exchanging = RLock()
        beyond = doc.get_update(handle.state_vector())
        if handle.lacks(beyond):
            self._edits.add(beyond)
        self.exchange()

    def exchange(self) -> None:
        """Send and get. Errors are those of `YDocHandle.apply`: the edits are sent with the next call then. An
        ExceptionGroup is of observers of `doc` that have failed: all is sent and received then.
        """
        with self._exchanging:
            if self._edits:
                last, update = self._edits.merged()
                try:
                    self._handle.apply(update)
                except MissingUpdatesError as error:
                    self._handle.apply(self.doc.get_update(error.state_vector))
                self._edits.sent(last)
            self._edits.receive(self._handle.update_since(self.doc.get_state()))

    def close(self) -> None:
        """Separate the two. Edits that were not sent are dropped: `exchange` before."""
        self._edits.close()

    def __enter__(self) -> "SyncLiveDocument":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.exchange()
        finally:
            self.close()
