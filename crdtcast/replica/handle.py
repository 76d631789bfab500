"""Handles, through which a program uses an object: on a replica, and within a batch.

The handles of this package's types have the types' operations as methods: `crdtcast.replica.handles` and
`crdtcast.replica.batch_handles`, which are generated from the types (`crdtcast.handle_source`).
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import Difference, PureOpCRDT
from crdtcast.exceptions import LocalProtocolError
from crdtcast.replica.objects import Key, Objects, checked_name
from crdtcast.replica.observed import Observed, Observer, See, check_callback, tell
from crdtcast.short_repr import shown

_LOGGER = logging.getLogger("crdtcast.replica")

V = TypeVar("V")
H = TypeVar("H")
C_co = TypeVar("C_co", bound=PureOpCRDT[Any], covariant=True)


class ObjectOwner(Protocol):
    """The replica, as a handle sees it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the group."""

    @property
    @abstractmethod
    def held(self) -> Objects:
        """The objects."""

    @abstractmethod
    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type."""

    @abstractmethod
    async def issue(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, once the group has started."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """Rises with each message that takes effect."""

    @abstractmethod
    async def ready(self) -> None:
        """Return when operations can be issued. Raises EndedError when the replica has ended."""

    @abstractmethod
    def remotely(self, key: Key, since: int) -> bool:
        """Whether another replica's operation on the object has taken effect after that revision, or may have."""

    @abstractmethod
    def spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Run it beside, until the returned function is called, or the replica ends."""

    @abstractmethod
    async def object_changed(self, key: Key, since: int | None = None) -> None:
        """Return when an operation on the object has taken effect, or it was deleted: from now on, or after that
        revision.
        """


class Handle(Generic[C_co]):
    """One object of a replica: `perform` issues its operations. `AWSetHandle` and the others have a method for each.

    `await cart.add("milk")` checks, tags, applies and broadcasts the operation, and returns its `Tag`. Once the group
    has started, it never waits for other replicas. If the call is cancelled, nothing has happened.

    Raises InvalidOperationError if the operation is refused; nothing was sent. Raises TypeClashError if the name has
    another type, which may come from a concurrent creation that won. Raises EndedError or StoreFullError if this member
    cannot send (now); nothing has changed.

    A subclass can have such methods for your own type: `PollHandle(replica, "lunch", Poll)` (docs/replica.md).
    """

    def __init__(self, replica: ObjectOwner, name: str, crdt_type: type[C_co]) -> None:
        """Raises TypeClashError if the name has another type, LocalProtocolError if `crdt_type` is not a data type."""
        check_door(self, replica, "held", "a replica of crdtcast.open_replica or crdtcast.aio")
        replica.require(crdt_type)
        self._key = (checked_name(name), crdt_type.TYPE)
        replica.held.check_type(self._key)
        self._replica = replica

    @property
    def name(self) -> str:
        """The object's name."""
        return self._key[0]

    @property
    def crdt(self) -> C_co:
        """The object itself, to look at (`len`, `in`, `log_size`) but not to change. After a deletion or an upgrade it
        is another one. An object that has lost its name to another type is still available from this property.
        """
        crdt: Any = self._replica.held.crdt(self._key)
        found: C_co = crdt
        return found

    @property
    def value(self: "Handle[PureOpCRDT[V]]") -> V:
        """The current value of the object at this replica; that of a new object if it does not exist."""
        self._replica.held.check_type(self._key)
        return self.crdt.value

    @property
    def exists(self) -> bool:
        """Whether the object has an operation that was not deleted."""
        return self._replica.held.get(self._key) is not None

    @property
    def unknown(self) -> int:
        """The number of operations of newer programs that are stored but not in `value` (docs/replica.md)."""
        held = self._replica.held.get(self._key)
        return 0 if held is None else held.unread

    async def changed(self) -> None:
        """Return when an operation on the object was applied, local or remote, or the object was deleted; or when all
        objects were replaced, because this member is back after an eviction.
        """
        await self._replica.object_changed(self._key)

    def observe(self: "Handle[PureOpCRDT[V]]") -> Observer[V]:
        """Tell the value now, then every change of it, local or remote, in the terms of the value. See `Observed`.

        `async for told in cart.observe(): …`. It goes on when the object was deleted, when its type was upgraded, and
        when this member comes back after an eviction. Raises EndedError when the replica ends, TypeClashError if the
        object loses its name to another type.
        """
        return Observer(
            self.seen, lambda revision: self._replica.object_changed(self._key, revision)
        )

    @property
    def seen(self: "Handle[PureOpCRDT[V]]") -> See[V]:
        """The object, as its observer sees it."""
        return _Seen(self)

    def on_change(
        self: "Handle[PureOpCRDT[V]]", callback: Callable[[Observed[V]], object]
    ) -> Callable[[], None]:
        """Call `callback` with what `observe` tells, between two steps of the replica, until the returned function is
        called or the replica ends. It must not wait; it may issue operations through a task of its own. If it raises,
        that is logged, and it is told no more.
        """
        check_callback(callback)
        return self._replica.spawn(partial(tell, self.observe(), callback, _LOGGER))

    async def perform(self, operation: str, *args: object) -> Tag:
        """Issue an operation by its name: the same as the method of that name."""
        return await self._replica.issue(self._key, operation, *args)

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            raise no_method(self, name)

    def __repr__(self) -> str:
        return f"<{self.name!r} at {self._replica.name}: {self.crdt!r}>"


class _Seen(Generic[V]):
    """An object, as its observer sees it."""

    def __init__(self, handle: Handle[PureOpCRDT[V]]) -> None:
        self._handle = handle

    @property
    def value(self) -> V:
        return self._handle.value

    @property
    def revision(self) -> int:
        return self._handle._replica.revision

    def remotely(self, since: int) -> bool:
        return self._handle._replica.remotely(self._handle._key, since)

    def differences(self, before: V, after: V) -> tuple[Difference, ...]:
        return self._handle.crdt.differences(before, after)


class BatchOwner(Protocol):
    """The batch, as a handle within it sees it."""

    @abstractmethod
    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type."""

    @abstractmethod
    def append(self, key: Key, operation: str, args: tuple[Any, ...]) -> None:
        """Add an operation to the batch."""


class BatchHandle:
    """One object within a batch: `perform` adds an operation to the batch and returns nothing, and
    `AWSetBatchHandle` and the others have a method for each.
    """

    def __init__(self, batch: BatchOwner, name: str, crdt_type: type[PureOpCRDT[Any]]) -> None:
        check_door(self, batch, "append", "the batch of a replica")
        batch.require(crdt_type)
        self._batch = batch
        self._key = (checked_name(name), crdt_type.TYPE)

    def perform(self, operation: str, *args: object) -> None:
        """Add an operation by its name. Raises InvalidOperationError if it is refused; it is not in the batch then."""
        self._batch.append(self._key, operation, args)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_method(self, name)


def check_door(user: object, given: object, method: str, what: str) -> None:
    """Raises LocalProtocolError unless the type of `given` has this method, by which `what` is recognised."""
    if not hasattr(type(given), method):
        raise LocalProtocolError(f"{type(user).__name__} is for {what}, not for {shown(given)}")


def no_method(handle: object, name: str) -> AttributeError:
    """What a handle raises for an attribute that it does not have."""
    kind = type(handle)
    why = f"{kind.__name__} has no method {name!r}"
    if "perform" in vars(kind):  # a general handle
        why += f": use perform({name!r}, …), or write a handle class (docs/replica.md)"
    else:
        why += f": use {', '.join(each for each in vars(kind) if not each.startswith('_'))}"
    return AttributeError(why, name=name, obj=handle)


def nearest(
    crdt_type: type[Any], handles: Mapping[type[Any], type[H]], general: type[H]
) -> type[H]:
    """The handle class of a type: that of its nearest base class with one."""
    bases = getattr(crdt_type, "__mro__", ())  # the general handle refuses what is not a type
    return next((handles[base] for base in bases if base in handles), general)
