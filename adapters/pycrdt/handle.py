"""Handles of `YDoc`: for tasks of Trio and asyncio, for threads, and within a batch."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from crdtcast.adapters.pycrdt.follower import Applied, Follower
from crdtcast.adapters.pycrdt.ydoc import YDoc
from crdtcast.causality.tags import Tag
from crdtcast.replica.handle import BatchHandle, BatchOwner, Handle, ObjectOwner
from crdtcast.sync.handle import HandleOwner, SyncHandle

MOST_WAITING: Final = 2**20
"""Bytes of updates that wait for a reader by default."""


class Updates:
    """The updates that a document gets from now on, local or remote, in the order of delivery. Made by
    `YDocHandle.updates`; for one task.
    """

    def __init__(
        self, owner: ObjectOwner, key: tuple[str, str], crdt: Callable[[], YDoc], most_bytes: int
    ) -> None:
        self._owner = owner
        self._key = key
        self._crdt = crdt
        self._most_bytes = most_bytes
        self._revision: int = owner.revision
        self._document = crdt()
        self._follower: Follower = self._document.follow(most_bytes)

    def take(self) -> list[Applied] | None:
        """What was applied since the last call, without waiting. None if that is unknown: this reader was too slow, or
        the state is another one (an upgrade, or a return after an eviction). Then ask for what is missing by state
        vector (`update_since`); later calls tell what comes after this one.

        Raises TypeClashError if the object has lost its name to another type.
        """
        self._owner.held.check_type(self._key)
        self._revision = self._owner.revision
        crdt = self._crdt()
        if crdt is not self._document:
            had_nothing = self._document.untouched
            self._document, self._follower = crdt, crdt.follow(self._most_bytes)
            return [] if had_nothing and crdt.untouched else None
        is_behind = self._follower.is_behind
        taken = self._follower.take()
        return None if is_behind else taken

    async def changed(self) -> None:
        """Return when there may be something to take. Raises EndedError when the replica ends."""
        await self._owner.object_changed(self._key, self._revision)

    async def __aiter__(self) -> AsyncIterator[Applied | None]:
        """Each update, and None in the place of those that were lost: `take` says when, and which errors it raises."""
        while True:
            taken = self.take()
            if taken is None:
                yield None
            else:
                for applied in taken:
                    yield applied
            if not taken:
                await self.changed()


class YDocHandle(Handle[YDoc]):
    """A Yjs document of a replica: `YDocHandle(replica, "notes")`, in Trio and in asyncio."""

    def __init__(self, replica: ObjectOwner, name: str) -> None:
        """Raises TypeClashError if the name has another type."""
        super().__init__(replica, name, YDoc)

    async def apply(self, update: bytes) -> Tag:
        """Apply an update of Yjs (v1). One that is too large for a message goes in parts, and takes effect as a whole
        at every replica.

        Raises InvalidOperationError if it is not an update; MissingUpdatesError if it needs what this replica does not
        have. Nothing has changed then.
        """
        return await self.perform("apply", update)

    def text(self, name: str) -> str:
        """The text in that root; empty if there is none."""
        return self.crdt.text(name)

    def state_vector(self) -> bytes:
        """What this replica has, as Yjs encodes it."""
        return self.crdt.state_vector()

    def update_since(self, state_vector: bytes = b"\x00") -> bytes:
        """All that a document with that state vector lacks, as one update; by default the whole document.

        Raises InvalidOperationError if it is not a state vector.
        """
        return self.crdt.update_since(state_vector)

    def lacks(self, update: bytes) -> bool:
        """See `YDoc.lacks`."""
        return self.crdt.lacks(update)

    def updates(self, most_bytes: int = MOST_WAITING) -> Updates:
        """The updates from now on, in the order of delivery, for one reader; `most_bytes` of them wait for it."""
        return Updates(self._replica, self._key, lambda: self.crdt, most_bytes)


class SyncYDocHandle(SyncHandle[YDoc]):
    """A Yjs document of a replica, for threads: `SyncYDocHandle(replica, "notes")`."""

    def __init__(self, replica: HandleOwner, name: str) -> None:
        """Raises TypeClashError if the name has another type."""
        super().__init__(replica, name, YDoc)

    def apply(self, update: bytes) -> Tag:
        """As `YDocHandle.apply`."""
        return self.perform("apply", update)

    def text(self, name: str) -> str:
        """The text in that root; empty if there is none."""
        return self._look(lambda: self._handle.crdt.text(name))

    def state_vector(self) -> bytes:
        """What this replica has, as Yjs encodes it."""
        return self._look(lambda: self._handle.crdt.state_vector())

    def update_since(self, state_vector: bytes = b"\x00") -> bytes:
        """As `YDocHandle.update_since`."""
        return self._look(lambda: self._handle.crdt.update_since(state_vector))

    def lacks(self, update: bytes) -> bool:
        """See `YDoc.lacks`."""
        return self._look(lambda: self._handle.crdt.lacks(update))


class YDocBatchHandle(BatchHandle):
    """A Yjs document within a batch: `YDocBatchHandle(batch, "notes")`."""

    def __init__(self, batch: BatchOwner, name: str) -> None:
        super().__init__(batch, name, YDoc)

    def apply(self, update: bytes) -> None:
        """Apply an update of Yjs (v1), of at most one message."""
        self.perform("apply", update)
