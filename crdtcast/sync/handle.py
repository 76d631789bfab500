"""Handles whose methods block, for any thread. `crdtcast.sync.handles` has one for each type, generated from it."""

import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.replica import handle as trio_handle
from crdtcast.replica.objects import Key
from crdtcast.replica.observed import Look, Observed
from crdtcast.sync.trio_thread import TrioThread

T = TypeVar("T")
V = TypeVar("V")
C_co = TypeVar("C_co", bound=PureOpCRDT[Any], covariant=True)


class HandleOwner(Protocol):
    """The replica, as a handle sees it."""

    @property
    @abstractmethod
    def thread(self) -> TrioThread[Any]:
        """Where it runs."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Rises with each message that takes effect; for that thread."""

    @abstractmethod
    async def object_changed(self, key: Key, since: int) -> None:
        """Return when an operation on the object has taken effect after that revision; for that thread."""

    @abstractmethod
    def handle(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> trio_handle.Handle[Any]:
        """The handle for use in that thread."""


class SyncHandle(Generic[C_co]):
    """One object of a replica. As `crdtcast.Handle`, and each call returns when it is done.

    `cart.add("milk")` checks, tags, applies and broadcasts the operation, and returns its `Tag`. Once the group has
    started, it never waits for other replicas. Errors are those of `crdtcast.Handle`.
    """

    def __init__(self, replica: HandleOwner, name: str, crdt_type: type[C_co]) -> None:
        """Raises TypeClashError if the name has another type, LocalProtocolError if `crdt_type` is not a data type."""
        trio_handle.check_door(self, replica, "handle", "a replica of crdtcast.sync")
        self._thread: TrioThread[Any] = replica.thread
        self._replica = replica
        self._seen: threading.local = threading.local()
        self._handle: trio_handle.Handle[C_co] = replica.handle(name, crdt_type)
        self._key: Key = (name, crdt_type.TYPE)

    @property
    def name(self) -> str:
        """The object's name."""
        return self._handle.name

    @property
    def value(self: "SyncHandle[PureOpCRDT[V]]") -> V:
        """The current value of the object at this replica, a copy; that of a new object if it does not exist."""
        return self._look(lambda: self._handle.value)

    @property
    def exists(self) -> bool:
        """Whether the object has an operation that was not deleted."""
        return self._look(lambda: self._handle.exists)

    @property
    def unknown(self) -> int:
        """The number of operations of newer programs that are stored but not in `value`."""
        return self._thread.read(lambda: self._handle.unknown)

    def observe(self: "SyncHandle[PureOpCRDT[V]]") -> "SyncObserver[V]":
        """Tell the value now, then every change of it, local or remote: `for told in cart.observe(): …`. See
        `crdtcast.Handle.observe`.
        """
        return SyncObserver(
            self._thread, Look(self._handle.seen), partial(self._replica.object_changed, self._key)
        )

    def changed(self, *, timeout: float | None = None) -> None:
        """Return when an operation on the object was applied since this thread has looked at it last (`value`,
        `exists`); it may return earlier, so look again. Raises TimeoutError after `timeout` seconds.
        """
        since = getattr(self._seen, "revision", None)
        if since is None:
            since = self._thread.read(lambda: self._replica.revision)
        self._thread.call(self._replica.object_changed, self._key, since, seconds=timeout)

    def _look(self, at: Callable[[], T]) -> T:
        seen, self._seen.revision = self._thread.read(lambda: (at(), self._replica.revision))
        return seen

    def perform(self, operation: str, *args: object) -> Tag:
        """Issue an operation by its name: the same as the method of that name."""
        return self._thread.call(self._handle.perform, operation, *args)

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            raise trio_handle.no_method(self, name)

    def __repr__(self) -> str:
        return f"<{self.name!r}: {self.value!r}>"


class SyncObserver(Generic[V]):
    """What `SyncHandle.observe` tells, for one thread: an iterator that waits."""

    def __init__(
        self,
        thread: TrioThread[Any],
        look: Look[V],
        changed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._thread = thread
        self._look = look
        self._changed = changed

    def __iter__(self) -> "SyncObserver[V]":
        return self

    def __next__(self) -> Observed[V]:
        return self.next()

    def next(self, timeout: float | None = None) -> Observed[V]:
        """The next change. Raises TimeoutError after so many seconds: ask again, nothing is lost."""
        told, revision = self._thread.call(self._next, seconds=timeout)
        self._look.taken(told, revision)  # not before: this thread may have been interrupted
        return told

    async def _next(self) -> tuple[Observed[V], int]:
        while (told := self._look.look()) is None:
            await self._changed(self._look.revision)
        return told, self._look.revision
