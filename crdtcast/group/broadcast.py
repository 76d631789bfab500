"""Causal broadcast for programs that bring their own state machine: tcbroadcast, tcdeliver,
tcstable.

Delivery is pulled: an event counts as delivered when the iterator hands it over, not before, so
tags speak of exactly what the program had seen.
"""

from collections import deque
from collections.abc import Sequence

import trio

from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import GroupEngine, Kind
from crdtcast.engine.waits import Notion, Waits
from crdtcast.exceptions import EndedError, LocalProtocolError
from crdtcast.group.events import Delivered, Event, Stable
from crdtcast.group.state_machine import StateMachine, already_taken, checked
from crdtcast.transport.channel import Channel
from crdtcast.transport.options import Address
from crdtcast.transport.peers import LinkStatus

_STABLE_SLICE = 128
_TURN = 32


class Broadcasting:
    """One member's tcbroadcast, tcdeliver and tcstable. Iterate over it for events (one task at a time); all of it
    belongs to the Trio thread.
    """

    engine: GroupEngine

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._machine: StateMachine | None = None
        self._waits = Waits(lambda: self.engine)
        self._stable: deque[Tag] = deque()
        self._operations: set[Dot] = set()  # of the membership; their stability is no news
        self._delivered_since = 0
        self._events = 0
        self._untold = False  # something was taken that the others have to be told
        self._closed = False
        self._work = trio.lowlevel.ParkingLot()

    @property
    def name(self) -> str:
        return self.channel.name

    @property
    def address(self) -> Address:
        """Host and port where the other members reach this one."""
        return self.channel.address

    def links(self) -> dict[str, LinkStatus]:
        """State of the link with each other member."""
        return self.channel.status()

    def tcbroadcast(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """Send `payload` to all; never waits. It counts as delivered here when this returns.

        after: explicit causality; None means after everything delivered or sent here so far.
        `LocalProtocolError`: no bytes, or longer than `channel.max_payload`; EndedError: this member is
        closed. Nothing was sent.
        """
        if not isinstance(payload, bytes):
            raise LocalProtocolError(
                f"cannot send a {type(payload).__name__}: a payload is bytes: encode it first"
            )
        if self._closed:
            raise self._is_over()
        most = self.channel.max_payload
        if len(payload) > most:
            raise LocalProtocolError(
                f"cannot send a payload of {len(payload):,} bytes: at most {most:,} fit into a "
                "frame: send smaller payloads, or raise max_frame on all members"
            )
        tag = self.engine.send(payload, after=after)
        try:
            self._happened(Delivered(payload, tag))
        finally:
            self.channel.flush_soon()
        return tag

    def _happened(self, event: Event) -> None:
        """Let the machine have it, if there is one."""
        if self._machine is None:
            return
        if isinstance(event, Delivered):
            self._machine.tcdeliver(event.payload, event.tag)
        elif isinstance(event, Stable):
            self._machine.tcstable(event.tag)

    async def wait_delivered(self, tag: Tag, *, count: int) -> None:
        """Return when `count` members, this one included, have taken the message, as far as they
        have acknowledged it here. From then on it survives the loss of any `count` - 1 of them;
        concurrent messages may still come, from any member.

        LocalProtocolError: so many members are not there.
        """
        await self._waits.wait(tag, Notion.DELIVERED, count)

    async def wait_quorum_stable(self, tag: Tag, *, count: int) -> None:
        """Return when there are `count` members, this one included, from none of which a message
        concurrent with `tag`'s can be delivered here any more. From the others it still can: this
        is no ground for dropping what tells the message from concurrent ones.

        LocalProtocolError: so many members are not there.
        """
        await self._waits.wait(tag, Notion.QUORUM_STABLE, count)

    async def wait_stable(self, tag: Tag) -> None:
        """Return when no message concurrent with `tag`'s can be delivered here any more: all
        members have taken it. The notice (`Stable`, `tcstable`) may come a moment later.
        """
        await self._waits.wait(tag, Notion.STABLE)

    @property
    def waiting(self) -> int:
        """Waits that have not returned yet."""
        return len(self._waits)

    async def run(self, machine: StateMachine) -> None:
        """Let `machine` take all events of this member, until cancelled.

        Messages that this member has sent before are not delivered to it again. LocalProtocolError if it has a machine
        already.
        """
        if self._machine is not None:
            raise already_taken(self.name)
        self._machine = checked(machine, self.name)
        try:
            await self._pump()
        finally:
            self._machine = None

    async def _pump(self) -> None:
        while (event := await self._next()) is not None:
            self._happened(event)
            while (event := self._at_hand()) is not None:
                self._happened(event)

    def _wake(self) -> None:
        self._work.unpark_all()
        self._waits.check()

    def _tell(self) -> None:
        """The engine has got on by what the application did."""
        self._untold = False
        self.channel.flush()
        self._waits.check()

    def end(self) -> None:
        """There is nothing more to come, and nobody left to tell."""
        self._closed = True
        self._waits.end(self._is_over())
        self._work.unpark_all()

    def _is_over(self) -> EndedError:
        return EndedError(
            f"{self.engine.me} is no longer a member: open its group again to continue as a new "
            "incarnation"
        )

    def __aiter__(self) -> "Broadcasting":
        return self

    async def __anext__(self) -> Event:
        """The next event; waits for it. Ends when this member has left its group, and by
        cancellation when the node is closed.

        While events are waiting, only every 32nd is a checkpoint: one each would cost more than
        the event itself.
        """
        if self._machine is not None:
            raise already_taken(self.name)
        if (event := self._at_hand()) is not None:
            return event
        event = await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    def _at_hand(self) -> Event | None:
        """The next event, if there is one now, and it is not time to let other tasks have their turn."""
        if (self._events + 1) % _TURN == 0 or (event := self.next_event()) is None:
            return None
        self._events += 1
        return event

    async def _next(self) -> Event | None:
        self._events += 1
        if self._events % _TURN == 0:
            self._tell()
            await trio.lowlevel.checkpoint()
        while (event := self.next_event()) is None and not self._closed:
            await self._work.park()
        return event

    def next_event(self) -> Event | None:
        """The next event if there is one now."""
        event = self._take()
        if event is None and self._untold:
            self._tell()
        return event

    def _take(self) -> Event | None:
        # Notices of stability must not starve behind deliveries that keep coming.
        if self._delivered_since >= _STABLE_SLICE and not self._stable:
            self._delivered_since = 0
            self._poll_stable()
        if self._stable:
            return Stable(self._stable.popleft())
        while (delivery := self.engine.poll()) is not None:
            self._delivered_since += 1
            self._untold = True
            if delivery.kind == Kind.APPLICATION:
                return Delivered(delivery.payload, delivery.tag)
            self._operations.add(delivery.tag.dot)
        while not self._stable and self.engine.has_stable():
            self._poll_stable()
        return Stable(self._stable.popleft()) if self._stable else None

    def _poll_stable(self) -> None:
        tags = self.engine.poll_stable(_STABLE_SLICE)
        operations = self._operations
        operations.update(tag.dot for tag in self.engine.take_issued())
        if not operations:
            self._stable.extend(tags)
            return
        for tag in tags:
            if tag.dot in operations:
                operations.discard(tag.dot)
            else:
                self._stable.append(tag)
