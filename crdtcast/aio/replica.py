"""A replica, as tasks of asyncio use it."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from crdtcast.aio.guest import Guest
from crdtcast.causality.tags import Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.engine import MemberInfo
from crdtcast.engine.whispers import Listener, Whisper
from crdtcast.replica import replica as trio_replica
from crdtcast.replica.batch import Batch
from crdtcast.replica.comparison import Comparison
from crdtcast.replica.handles import TypedObjects
from crdtcast.replica.objects import Key, ObjectInfo, Objects
from crdtcast.replica.observed import check_callback, tell
from crdtcast.replica.replica import Snapshot
from crdtcast.replica.session import Token
from crdtcast.replica.whispered import WHISPER_SECONDS, WhisperFeed
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus

_LOGGER = logging.getLogger("crdtcast.replica")
_TURN = 0.001
"""Seconds for which operations do not let others run: a turn of both loops costs as much as many operations."""


class Replica(TypedObjects):
    """The objects of one member of a group. Made by `crdtcast.aio.open_replica`; use it in that loop's thread only.

    Methods, their errors and what cancelling them means are those of `crdtcast.Replica` and of its member. Reads, as
    `handle.value`, need no `await`: nothing changes between two awaits of a task.
    """

    def __init__(self, replica: trio_replica.Replica, run: Guest) -> None:
        self._replica = replica
        self._run = run
        self._turn: float = 0.0
        self._beside: set[asyncio.Task[None]] = set()

    @property
    def _here(self) -> trio_replica.Replica:
        """The replica, for what any state of it allows, but no other thread."""
        self._run.check_place()
        return self._replica

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
        return self._replica.member.incarnation

    @property
    def address(self) -> Address:
        """Host and port where the other replicas reach this one."""
        return self._replica.address

    @property
    def held(self) -> Objects:
        """The objects, for handles and tools; `objects` lists them. Raises LocalProtocolError in another thread."""
        return self._here.held

    @property
    def members(self) -> dict[str, MemberInfo]:
        """The members of the group, by name."""
        return self._here.member.members

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other replica."""
        return self._here.links()

    # Objects

    def require(self, crdt_type: type[PureOpCRDT[Any]]) -> None:
        """See `crdtcast.Replica.require`."""
        self._here.require(crdt_type)

    def upgrade(self, *types: type[PureOpCRDT[Any]]) -> None:
        """See `crdtcast.Replica.upgrade`."""
        self._here.upgrade(*types)

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """See `crdtcast.Replica.objects`."""
        return self._here.objects(prefix)

    def snapshot(self) -> Snapshot:
        """Copy the values of all objects, at one causal cut."""
        return self._here.snapshot()

    def batch(self) -> Batch:
        """See `crdtcast.Replica.batch`: a plain `with` block, without `await` inside."""
        self._run.check()
        return self._replica.batch()

    async def delete(self, name: str) -> Tag:
        """See `crdtcast.Replica.delete`."""
        await self._begun()
        with self._replica.batch() as batch:
            batch.delete(name)
        assert batch.tag is not None
        return batch.tag

    async def issue(self, key: Key, operation: str, *args: Any) -> Tag:
        """Prepare, tag, apply and send one operation, once the group has started: what handles do."""
        await self._begun()
        return self._replica.perform(key, operation, *args)

    async def _begun(self) -> None:
        """Can be cancelled; what comes then cannot, so a cancelled operation has not happened."""
        self._run.check()
        if not self._replica.has_begun:
            await self._run.call(self._replica.begun)
        elif time.monotonic() - self._turn > _TURN:
            await asyncio.sleep(
                0
            )  # other tasks, and Trio, get their turn, even if a task writes in a tight loop
            self._turn = time.monotonic()

    # Waiting

    async def ready(self) -> None:
        """See `crdtcast.Replica.ready`."""
        await self._run.call(self._replica.ready)

    async def changed(self) -> None:
        """See `crdtcast.Replica.changed`."""
        await self._run.call(self._replica.changed, self._replica.news)

    @property
    def revision(self) -> int:
        """Rises with each message that takes effect."""
        return self._replica.revision

    def spawn(self, function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Run it in a task beside, until the returned function is called, or the replica ends."""
        self._run.check()
        task = asyncio.create_task(function())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

        def stop() -> None:
            task.cancel()

        return stop

    def remotely(self, key: Key, since: int) -> bool:
        """See `crdtcast.Replica.remotely`."""
        return self._replica.remotely(key, since)

    async def object_changed(self, key: Key, since: int | None = None) -> None:
        """See `crdtcast.Handle.changed`."""
        if since is None:
            since = self._replica.revision
        await self._run.call(self._replica.object_changed, key, since)

    async def token(self) -> Token:
        """See `crdtcast.Replica.token`."""
        return await self._run.call(self._replica.token)

    async def at_least(self, token: Token) -> None:
        """See `crdtcast.Replica.at_least`; limit it with `asyncio.timeout`."""
        await self._run.call(self._replica.at_least, token)

    async def wait_quiet(self) -> None:
        """See `crdtcast.Replica.wait_quiet`."""
        await self._run.call(self._replica.wait_quiet)

    @property
    def is_journaled(self) -> bool:
        """See `crdtcast.Replica.is_journaled`."""
        return self._replica.is_journaled

    async def wait_durable(self) -> None:
        """See `crdtcast.Replica.wait_durable`."""
        await self._run.call(self._replica.wait_durable)

    async def wait_delivered(self, tag: Tag, *, count: int) -> None:
        """See `crdtcast.Member.wait_delivered`."""
        await self._run.call(lambda: self._replica.member.wait_delivered(tag, count=count))

    async def wait_stable(self, tag: Tag) -> None:
        """See `crdtcast.Member.wait_stable`."""
        await self._run.call(self._replica.member.wait_stable, tag)

    async def verify(self, seconds: float = 30.0) -> Comparison:
        """See `crdtcast.Replica.verify`."""
        return await self._run.call(self._replica.verify, seconds)

    # Whispers

    def whisper(self, topic: str, payload: bytes, *, seconds: float = WHISPER_SECONDS) -> None:
        """See `crdtcast.Replica.whisper`: it does not wait."""
        self._run.check()
        self._replica.whisper(topic, payload, seconds=seconds)

    def whispers(self, *topics: str) -> WhisperFeed:
        """See `crdtcast.Replica.whispers`."""
        self._run.check()
        return WhisperFeed(self._replica.listener(*topics), self._heard)

    def on_whisper(self, callback: Callable[[Whisper], object], *topics: str) -> Callable[[], None]:
        """See `crdtcast.Replica.on_whisper`."""
        check_callback(callback)
        return self.spawn(partial(tell, self.whispers(*topics), callback, _LOGGER))

    async def _heard(self, listener: Listener) -> None:
        await self._run.call(self._replica.heard, listener)

    # Membership

    async def leave(self) -> None:
        """See `crdtcast.Member.leave`."""
        await self._run.call(self._replica.member.leave)

    def evict(self, *members: str, force: bool = False) -> None:
        """See `crdtcast.Member.evict`."""
        self._run.check()
        self._replica.member.evict(*members, force=force)

    def withdraw(self, *members: str) -> None:
        """See `crdtcast.Member.withdraw`."""
        self._run.check()
        self._replica.member.withdraw(*members)

    def __repr__(self) -> str:
        return f"<asyncio replica {self.name!r}>"
