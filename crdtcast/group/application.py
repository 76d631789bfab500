"""A member's application: its events in order, for a state machine or an iterator, and its state.

Delivery is pulled: an event counts as delivered when it is handed over, not before, so tags cover exactly what the
program has seen.
"""

from collections import deque
from collections.abc import Callable, Sequence

import trio

from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import GroupEngine, OperationKind
from crdtcast.exceptions import LocalProtocolError
from crdtcast.group.events import Delivered, Event, Evicted, Joined, Stable
from crdtcast.group.state_machine import Broken, StateMachine, already_taken, checked
from crdtcast.transport.channel import Channel
from crdtcast.wire.state import Happened

_STABLE_SLICE = 128
_TURN = 32
_APPLICATION = int(OperationKind.APPLICATION)


class Application:
    """The state machine of one member, or the task that iterates over its events (one at a time).

    witness: the member votes and stores, and has no state.
    is_over: whether no further event will come.
    tell: called when the engine has made progress because events were taken, so that the others must be notified.
    """

    def __init__(
        self,
        channel: Channel,
        machine: StateMachine | None,
        *,
        witness: bool,
        is_over: Callable[[], bool],
        tell: Callable[[], None],
    ) -> None:
        self.engine: GroupEngine | None = None
        """The engine that gives the events; None if this never was a member."""
        self.machine: StateMachine | None = checked(machine, channel.name)
        self.witness = witness
        self.on_happened: Callable[[Tag, bytes | None], None] = _unnoted
        """Called before the machine, with a payload for a delivery, with None for a notice of stability."""
        self._channel = channel
        self._is_over = is_over
        self._tell = tell
        self._news: deque[Evicted | Joined] = deque()
        self._stable: deque[Tag] = deque()
        self._operations: set[Dot] = set()  # membership operations: their stability is not reported
        self._delivered_since = 0
        self._events = 0
        self._untold = False  # the others must be notified of events taken
        self._work = trio.lowlevel.ParkingLot()

    def follow(self, engine: GroupEngine) -> None:
        """Take the events of this engine from now on."""
        if self.engine is None and (self.machine is not None or self.witness):
            self._channel.shared.spawn(self._pump)
        self.engine = engine
        self._stable.clear()
        self._operations = {message.dot for message in engine.state().unstable if message.kind}

    def wake(self) -> None:
        """Look again: there may be an event, or the end of events."""
        self._work.unpark_all()

    def hears(self, news: Evicted | Joined) -> None:
        """Report this event next."""
        self._news.append(news)
        self.wake()

    # Its state

    @property
    def copies(self) -> bool:
        """Whether it has a state, which joiners must copy."""
        return self.machine is not None and not self.witness

    def state(self) -> bytes | None:
        """Return the state for a joiner; None if there is none. Raises what the machine raises."""
        if self.machine is None or self.witness:
            return None
        self.settle()
        state = self.machine.get_state()
        if not isinstance(state, bytes):
            raise LocalProtocolError(
                f"{type(self.machine).__name__}.get_state of {self._channel.name} returned "
                f"{type(state).__name__}: return bytes; `set_state` of a joining member receives "
                "them"
            )
        return state

    def settle(self) -> None:
        """Give the machine the notices of stability that are polled already."""
        while self.machine is not None and self._stable:
            self._happened(Stable(self._stable.popleft()))

    def catch_up(self, state: bytes, since: Sequence[Happened]) -> None:
        """Give the machine this state, and what has happened since. Raises what the machine raises."""
        assert self.machine is not None
        self.machine.set_state(state)
        for happened in since:
            if happened.payload is None:
                self.machine.tcstable(happened.tag)
            else:
                self.machine.tcdeliver(happened.payload, happened.tag)

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        """Return what to send again instead of that message; None for nothing."""
        return payload if self.machine is None else self.machine.reissue(payload, dot)

    def fail(self, error: Exception) -> None:
        """End the node with that error, once the current answers have been sent."""

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise error

        self._channel.shared.spawn(fail)

    # Its events, handed over

    async def run(self, machine: StateMachine) -> None:
        """Let `machine` take all events, until cancelled. Raises LocalProtocolError if a machine is set already."""
        if self.machine is not None:
            raise already_taken(self._channel.name)
        self.machine = checked(machine, self._channel.name)
        try:
            await self._pump()
        finally:
            self.machine = None

    async def _pump(self) -> None:
        while (event := await self._next()) is not None:
            self._happened(event)
            while (event := self.at_hand()) is not None:
                self._happened(event)

    def _happened(self, event: Event) -> None:
        machine = self.machine
        if machine is None:
            return
        if type(event) is Delivered:  # as `delivered`, without a call
            self.on_happened(event.tag, event.payload)
            machine.tcdeliver(event.payload, event.tag)
        elif type(event) is Stable:
            self.on_happened(event.tag, None)
            machine.tcstable(event.tag)

    def delivered(self, payload: bytes, tag: Tag) -> None:
        """Give an own message to the machine, if there is one. Raises what the machine raises; the node ends then."""
        machine = self.machine
        if machine is None:
            return
        self.on_happened(tag, payload)
        try:
            machine.tcdeliver(payload, tag)
        except Exception as error:
            # The sender may catch the error, but this state has diverged.
            self.machine = Broken(self._channel.name)
            self._channel.ended(error)
            raise

    # Its events, taken

    async def next(self) -> Event | None:
        """Wait for the next event, when none is `at_hand`. None: there will be no more."""
        if self.machine is not None:
            raise already_taken(self._channel.name)
        return await self._next()

    def at_hand(self) -> Event | None:
        """The next event, if there is one now and other tasks need no turn yet.

        Only every 32nd event is a checkpoint: one for each would cost more than the event itself.
        """
        if (self._events + 1) % _TURN == 0 or (event := self.next_event()) is None:
            return None
        self._events += 1
        return event

    async def _next(self) -> Event | None:
        self._events += 1
        if self._events % _TURN == 0:
            if self.engine is not None:
                self._tell_others()
            await trio.lowlevel.checkpoint()
        while (event := self.next_event()) is None and not self._is_over():
            await self._work.park()
        return event

    def next_event(self) -> Event | None:
        """The next event, if there is one now."""
        if self._news:
            return self._news.popleft()
        engine, stable = self.engine, self._stable
        if engine is None:
            return None  # its group may not have started
        # A steady flow of deliveries must not starve notices of stability.
        if self._delivered_since >= _STABLE_SLICE and not stable:
            self._delivered_since = 0
            self._poll_stable(engine)
        if stable:
            return Stable(stable.popleft())
        while (delivery := engine.poll()) is not None:
            self._delivered_since += 1
            self._untold = True
            if delivery.kind == _APPLICATION:
                return Delivered(delivery.payload, delivery.tag)
            self._operations.add(delivery.tag.dot)
        while not stable and engine.has_stable():
            self._poll_stable(engine)
        if stable:
            return Stable(stable.popleft())
        if self._untold:
            self._tell_others()
        return None

    def _tell_others(self) -> None:
        self._untold = False
        self._tell()

    def _poll_stable(self, engine: GroupEngine) -> None:
        tags = engine.poll_stable(_STABLE_SLICE)
        operations = self._operations
        operations.update(tag.dot for tag in engine.take_issued())
        if not operations:
            self._stable.extend(tags)
            return
        for tag in tags:
            if tag.dot in operations:
                operations.discard(tag.dot)
            else:
                self._stable.append(tag)


def _unnoted(tag: Tag, payload: bytes | None) -> None:
    pass
