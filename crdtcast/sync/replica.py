"""A replica, as threads use it: each call returns when it is done."""

from types import TracebackType
from typing import Any

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.engine import MemberInfo
from crdtcast.engine.whispers import Whisper
from crdtcast.replica import batch as trio_batch
from crdtcast.replica import replica as trio_replica
from crdtcast.replica.batch_handles import TypedBatch
from crdtcast.replica.comparison import Comparison
from crdtcast.replica.handle import Handle
from crdtcast.replica.objects import Key, ObjectInfo
from crdtcast.replica.replica import Snapshot
from crdtcast.replica.session import Token
from crdtcast.replica.whispered import WHISPER_SECONDS, WhisperFeed
from crdtcast.sync.handles import TypedSyncObjects
from crdtcast.sync.trio_thread import TrioThread
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus


class Batch(TypedBatch):
    """See `crdtcast.Replica.batch`. `tag` is that of the message, None if there was nothing to send."""

    def __init__(self, replica: trio_replica.Replica, thread: TrioThread[Any]) -> None:
        self._thread = thread
        self._batch: trio_batch.Batch = thread.read(replica.batch)

    @property
    def tag(self) -> Tag | None:
        return self._batch.tag

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """Register the type."""
        self._thread.read(self._batch.require, crdt_type)

    def append(self, key: Key, operation: str, args: tuple[Any, ...]) -> None:
        """Add an operation. Raises InvalidOperationError if it is refused; it is not in the batch then."""
        self._thread.read(self._batch.append, key, operation, args)

    def delete(self, name: str) -> None:
        """Delete the object called `name`; later operations create it again."""
        self._thread.read(self._batch.delete, name)

    def __enter__(self) -> "Batch":
        self._thread.read(self._batch.__enter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.read(self._batch.__exit__, kind, error, trace)


class Replica(TypedSyncObjects):
    """The objects of one member of a group. Made by `crdtcast.sync.open_replica`; any thread may use it.

    Methods and their errors are those of `crdtcast.Replica` and of its member. Waits take a `timeout` in seconds, and
    raise TimeoutError then.
    """

    def __init__(
        self, replica: trio_replica.Replica, thread: TrioThread[trio_replica.Replica]
    ) -> None:
        self._replica = replica
        self._thread = thread

    @property
    def thread(self) -> TrioThread[Any]:
        """Where it runs."""
        return self._thread

    @property
    def name(self) -> str:
        """Its name in the group."""
        return self._replica.name

    @property
    def group(self) -> str:
        """The name of its group."""
        return self._replica.group

    @property
    def incarnation(self) -> str:
        """The id of this life of the member."""
        return self._thread.read(lambda: self._replica.member.incarnation)

    @property
    def address(self) -> Address:
        """Host and port where the other replicas reach this one."""
        return self._replica.address

    @property
    def members(self) -> dict[str, MemberInfo]:
        """The members of the group, by name."""
        return self._thread.read(lambda: self._replica.member.members)

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other replica."""
        return self._thread.read(self._replica.links)

    # Objects

    def handle(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> Handle[Any]:
        """The handle for use in the replica's thread."""
        return self._thread.read(self._replica.object, name, crdt_type)

    @property
    def revision(self) -> int:
        """Rises with each message that takes effect; for the replica's thread."""
        return self._replica.revision

    async def object_changed(self, key: Key, since: int) -> None:
        """Return when an operation on the object has taken effect after that revision; for the replica's thread."""
        await self._replica.object_changed(key, since)

    def upgrade(self, *types: type[PureOpCRDT[Any]]) -> None:
        """See `crdtcast.Replica.upgrade`."""
        self._thread.read(self._replica.upgrade, *types)

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """See `crdtcast.Replica.objects`."""
        return self._thread.read(self._replica.objects, prefix)

    def snapshot(self) -> Snapshot:
        """Copy the values of all objects, at one causal cut."""
        return self._thread.read(self._replica.snapshot)

    def batch(self) -> Batch:
        """See `crdtcast.Replica.batch`."""
        return Batch(self._replica, self._thread)

    def delete(self, name: str) -> Tag:
        """See `crdtcast.Replica.delete`."""
        return self._thread.call(self._replica.delete, name)

    # Waiting

    def ready(self, *, timeout: float | None = None) -> None:
        """See `crdtcast.Replica.ready`."""
        self._thread.call(self._replica.ready, seconds=timeout)

    def token(self) -> Token:
        """See `crdtcast.Replica.token`."""
        return self._thread.call(self._replica.token)

    def at_least(self, token: Token, *, timeout: float | None = None) -> None:
        """See `crdtcast.Replica.at_least`."""
        self._thread.call(self._replica.at_least, token, seconds=timeout)

    def wait_quiet(self, *, timeout: float | None = None) -> None:
        """See `crdtcast.Replica.wait_quiet`."""
        self._thread.call(self._replica.wait_quiet, seconds=timeout)

    def wait_durable(self, *, timeout: float | None = None) -> None:
        """See `crdtcast.Replica.wait_durable`."""
        self._thread.call(self._replica.wait_durable, seconds=timeout)

    def wait_delivered(self, tag: Tag, *, count: int, timeout: float | None = None) -> None:
        """See `crdtcast.Member.wait_delivered`."""

        async def delivered() -> None:
            await self._replica.member.wait_delivered(tag, count=count)

        self._thread.call(delivered, seconds=timeout)

    def wait_stable(self, tag: Tag, *, timeout: float | None = None) -> None:
        """See `crdtcast.Member.wait_stable`."""
        self._thread.call(self._replica.member.wait_stable, tag, seconds=timeout)

    def verify(self, seconds: float = 30.0) -> Comparison:
        """See `crdtcast.Replica.verify`."""
        return self._thread.call(self._replica.verify, seconds)

    # Whispers

    def whisper(self, topic: str, payload: bytes, *, seconds: float = WHISPER_SECONDS) -> None:
        """See `crdtcast.Replica.whisper`: it does not wait."""
        self._thread.read(lambda: self._replica.whisper(topic, payload, seconds=seconds))

    def whispers(self, *topics: str) -> "SyncWhispers":
        """See `crdtcast.Replica.whispers`: `for sender, topic, payload in replica.whispers("cursors"): …`."""
        return SyncWhispers(self._thread, self._thread.read(self._replica.whispers, *topics))

    # Membership

    def leave(self, *, timeout: float | None = None) -> None:
        """See `crdtcast.Member.leave`."""
        self._thread.call(self._replica.member.leave, seconds=timeout)

    def evict(self, *members: str, force: bool = False) -> None:
        """See `crdtcast.Member.evict`."""
        self._thread.read(lambda: self._replica.member.evict(*members, force=force))

    def withdraw(self, *members: str) -> None:
        """See `crdtcast.Member.withdraw`."""
        self._thread.read(self._replica.member.withdraw, *members)

    def __repr__(self) -> str:
        return f"<sync replica {self.name!r}>"


class SyncWhispers:
    """What `Replica.whispers` tells, for one thread: an iterator that waits."""

    def __init__(self, thread: TrioThread[Any], feed: WhisperFeed) -> None:
        self._thread = thread
        self._feed = feed

    def __iter__(self) -> "SyncWhispers":
        return self

    def __next__(self) -> Whisper:
        return self.next()

    def next(self, timeout: float | None = None) -> Whisper:
        """The next one. Raises TimeoutError after so many seconds: ask again."""
        return self._thread.call(self._feed.__anext__, seconds=timeout)
