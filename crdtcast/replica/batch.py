"""Operations on several objects that are sent in one message, and so take effect together everywhere.

No reader sees a part of a batch: a replica applies a message between two turns of the other tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.exceptions import LocalProtocolError
from crdtcast.replica.batch_handles import TypedBatch
from crdtcast.replica.objects import Key, Objects, checked_name


class BatchTarget(Protocol):
    """The replica that sends a batch, as the batch sees it."""

    @property
    def revision(self) -> int:
        """Rises with each message that takes effect."""

    @property
    def held(self) -> Objects: ...

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type."""

    def commit(self, entries: Sequence[list[Any]]) -> Tag:
        """Tag, apply and send prepared entries as one message."""


@dataclass(slots=True)
class _Item:
    """An operation as called and as prepared; or the deletion of a name."""

    key: Key
    call: tuple[str, tuple[Any, ...]] | None
    prepared: list[Any] | None = None


class _Plan:
    """Prepares operations one after the other, as if the earlier ones had taken effect."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._deleted: set[str] = set()
        self._type_of: dict[str, Key] = {}
        self._before: dict[str, list[list[Any]]] = {}

    def add(self, item: _Item) -> None:
        name = item.key[0]
        if item.call is None:
            self._deleted.add(name)
            self._type_of.pop(name, None)
            self._before.pop(name, None)
            return
        operation, args = item.call
        if self._type_of.get(name, item.key) != item.key:
            raise LocalProtocolError(
                f"{name!r} is a {self._type_of[name][1]} and a {item.key[1]} in one batch: use "
                "one type for each name"
            )
        before = self._before.get(name, [])
        if name in self._deleted:
            item.prepared = self._objects.fresh(item.key).prepare(operation, *args, after=before)
        else:
            item.prepared = self._objects.prepare(item.key, operation, args, before)
        self._type_of[name] = item.key
        self._before.setdefault(name, before).append(item.prepared)


class Batch(TypedBatch):
    """A `with` block that collects operations and sends them as one message at its end.

    An exception in the block, or a refusal at its end, sends nothing and changes nothing. Values of objects do not
    change inside the block; but each operation is checked as if the earlier ones had taken effect. `tag` is that of the
    message, None if there was nothing to send.
    """

    def __init__(self, replica: BatchTarget) -> None:
        self.tag: Tag | None = None
        self._replica = replica
        self._items: list[_Item] = []
        self._plan = _Plan(replica.held)
        self._revision = replica.revision
        self._open = True

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type, as `Replica.require`."""
        self._replica.require(crdt_type)

    def delete(self, name: str) -> None:
        """Delete the object called `name`, as `Replica.delete`; later operations create it again."""
        self._append(_Item((checked_name(name), ""), None))

    def append(self, key: Key, operation: str, args: tuple[Any, ...]) -> None:
        """Add an operation. Raises InvalidOperationError if it is refused; it is not in the batch then."""
        self._append(_Item(key, (operation, args)))

    def _append(self, item: _Item) -> None:
        self._check_open()
        self._plan.add(item)
        self._items.append(item)

    def _check_open(self) -> None:
        if not self._open:
            raise LocalProtocolError("this batch has ended: start another one")

    def _entries(self) -> list[list[Any]]:
        if self._replica.revision != self._revision:
            # Other operations took effect since: what was allowed then may be refused now.
            plan = _Plan(self._replica.held)
            for item in self._items:
                plan.add(item)
        if any(item.call is None for item in self._items):
            return [self._entry(item) for item in self._items]
        held = self._replica.held
        operations: dict[Key, list[list[Any]]] = {}
        for item in self._items:
            assert item.prepared is not None
            operations.setdefault(item.key, []).append(item.prepared)
        return [
            held.entry(key, prepared)
            for key, together in operations.items()
            for prepared in held.crdt(key).compressed(together)
        ]

    def _entry(self, item: _Item) -> list[Any]:
        if item.prepared is None:
            return [item.key[0], None]
        return self._replica.held.entry(item.key, item.prepared)

    def __enter__(self) -> "Batch":
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        if kind is None and self._items:
            entries = self._entries()
            if entries:
                self.tag = self._replica.commit(entries)
