"""What the engines with vectors and a delay queue share: everything except stability and the content of messages.

The order of delivery is fixed when messages arrive: `_ordered`, V of the middleware in Younes 2023, Algorithms 3 and 7.
Delivered is what the application has taken: `_delivered`, V of the client. Tags and stability use only `_delivered`.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from benchmarks.baselines.delay_queue import DelayQueue, advance
from benchmarks.baselines.interface import Measures
from benchmarks.baselines.positions import BaselinePositions, VectorView
from benchmarks.baselines.sizes import metadata_bytes
from benchmarks.baselines.stable_map import StableMap
from crdtcast.causality.messages import Delivery, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.exceptions import RemoteProtocolError


class VectorStamped(Protocol):
    """A broadcast with the vector that orders it."""

    @property
    def dot(self) -> Dot: ...

    @property
    def vector(self) -> tuple[int, ...]: ...

    @property
    def payload(self) -> bytes: ...


M = TypeVar("M", bound=VectorStamped)


class DelayQueueEngine(ABC, Generic[M]):
    """Causal order by vector and delay queue. Subclasses make messages and tags, and determine what is stable.

    me: own id.
    members: ids of all members, the own one included; the same at every member.
    stability: whether to determine stability, at its cost in messages and memory; if not, nothing is reported.

    Raises ConfigurationError unless `members` are two or more different ids with `me` among them.
    """

    message_type: ClassVar[type]
    queue_type: ClassVar[type[DelayQueue[Any]]] = DelayQueue
    map_type: ClassVar[type[StableMap]] = StableMap

    def __init__(self, me: str, members: Sequence[str], *, stability: bool = True) -> None:
        self.me = me
        self._positions = BaselinePositions(me, members)
        self._own = self._positions.own
        self._size = len(self._positions.members)
        self._delivered = [0] * self._size
        self._ordered = [0] * self._size
        self._queue: DelayQueue[M] = self.queue_type()
        self._ready: deque[tuple[int, M]] = deque()
        self._outbox: list[Transmit] = []
        self._stability = stability
        self._unstable = self.map_type(self._positions.members)
        self._compared = 0

    @property
    def delivered(self) -> Vector:
        """Origin -> highest counter delivered here. It is a view, and changes with the engine."""
        return VectorView(self._positions, self._delivered)

    @property
    def quiet(self) -> bool:
        """Whether nothing waits, nothing is unstable, and nothing is left to send."""
        waiting = self._ready or self._queue.entries or self._unstable.ready
        return not (waiting or self._unstable or self._owes())

    def connected(self, peer: str) -> None:
        """Nothing to do: links are taken to be reliable, as published."""

    def disconnected(self, peer: str) -> None:
        """Nothing to do: links are taken to be reliable, as published."""

    def send(self, payload: bytes) -> Tag:
        """tcbroadcast."""
        counter = self._delivered[self._own] + 1
        self._delivered[self._own] = self._ordered[self._own] = counter
        message = self._stamp(Dot(self.me, counter), payload)
        self._outbox.append(Transmit(None, message))
        tag = self._tag(self._own, message)
        if self._stability:
            self._note_sent(message, tag)
        return tag

    def receive(self, sender: str, message: Any) -> None:
        """Take what `sender` sent; duplicates are ignored.

        Raises RemoteProtocolError, with the state unchanged, if no member can send this.
        """
        position = self._positions.of.get(sender, self._own)
        if position == self._own:
            raise RemoteProtocolError(f"{sender} is not another member of this group")
        kind = type(message)
        if kind is not self.message_type:
            self._receive_control(position, message)
            return
        if message.dot.origin != sender or not self._fits(position, message):
            raise RemoteProtocolError(
                f"{sender} sent {message.dot}, whose vector has the wrong length"
            )
        self._arrived(position, message)

    def _fits(self, position: int, message: M) -> bool:
        """Whether this is a well-formed message of the member at `position`."""
        vector = message.vector
        return len(vector) == self._size and message.dot.counter == vector[position] > 0

    def _arrived(self, position: int, message: M) -> None:
        """Order a message, and those that waited for it; or let it wait. Duplicates are recognised by their dot."""
        vector, ordered = message.vector, self._ordered
        if vector[position] <= ordered[position] or message.dot in self._queue.dots:
            return
        self._compared += 1
        if advance(ordered, position, vector):
            self._ready.append((position, message))
            if self._queue.entries:
                self._ready.extend(self._queue.release(ordered))
        else:
            self._queue.add(position, message)

    def poll(self) -> Delivery | None:
        """tcdeliver: the next message in the order that was fixed on arrival."""
        if not self._ready:
            return None
        position, message = self._ready.popleft()
        self._delivered[position] += 1
        tag = self._tag(position, message)
        if self._stability:
            self._note_delivered(position, message, tag)
        return Delivery(message.payload, tag)

    def has_stable(self) -> bool:
        """Whether `poll_stable` would return a tag."""
        return bool(self._unstable.ready)

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        """tcstable: tags that have become stable, each once, in the order of their delivery."""
        return self._unstable.take(limit)

    @abstractmethod
    def tick(self) -> None:
        """The timer: send what others need to determine stability, if it has changed."""

    def take_outbox(self) -> list[Transmit]:
        """What to send, in order."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def measures(self) -> Measures:
        """Work: `queue_scans` (visited entries of the delay queue) and `vector_entries` (of any vector)."""
        words = 2 * self._size  # delivered, ordered
        words += self._message_words() * (len(self._ready) + len(self._queue.entries))
        structures: list[object] = [self._delivered, self._ordered, self._ready, self._queue]
        if self._stability:
            # A dot, a place in the order of delivery, the tag's vector.
            words += (3 + self._size) * (len(self._unstable) + len(self._unstable.ready))
            words += self._stability_words()
            structures += [self._unstable, *self._stability_structures()]
        compared = (self._compared + self._queue.compared) * self._size
        return Measures(
            work={
                "edge_visits": 0,
                "queue_scans": self._queue.scans,
                "vector_entries": compared + self._stability_entries(),
            },
            metadata_words=words,
            metadata_bytes=metadata_bytes(*structures),
        )

    def _message_words(self) -> int:
        """Words of a waiting message: its sender and its vector."""
        return 1 + self._size

    @abstractmethod
    def _stamp(self, dot: Dot, payload: bytes) -> M:
        """The message to broadcast; `_delivered` and `_ordered` cover it already."""

    @abstractmethod
    def _tag(self, position: int, message: M) -> Tag:
        """The end-to-end tag of a message."""

    @abstractmethod
    def _receive_control(self, position: int, message: Any) -> None:
        """Take another kind of message, or raise RemoteProtocolError."""

    @abstractmethod
    def _note_sent(self, message: M, tag: Tag) -> None: ...

    @abstractmethod
    def _note_delivered(self, position: int, message: M, tag: Tag) -> None: ...

    @abstractmethod
    def _owes(self) -> bool:
        """Whether `tick` has something to send."""

    @abstractmethod
    def _stability_words(self) -> int: ...

    @abstractmethod
    def _stability_entries(self) -> int: ...

    @abstractmethod
    def _stability_structures(self) -> list[object]: ...
