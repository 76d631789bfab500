"""Messages that have arrived and are not delivered yet. A message waits under one missing dot at a time.

No queue is scanned and no graph is walked: the delivery of a dot wakes those that wait under it, each of them is then
ready or waits under its next missing dot. So a message is looked at once per dependency, at most.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain

from crdtcast.messages import Message
from crdtcast.tags import Dot

MOST_BEHIND = 1000
"""Messages that are kept while one is refused. Further ones come again by repair, and would fill the memory."""


class Inbox:
    """Received messages until `take` hands them over, with the index of what they wait for.

    `vector` is the engine's delivered vector, shared and read only here. At most one message of an origin is ready,
    the next one; a second copy of it is noticed by `take`.
    """

    __slots__ = ("_pending", "_vector", "duplicates", "ready", "refused", "waiting")

    def __init__(self, vector: dict[str, int]) -> None:
        self._vector = vector
        self.ready: deque[Message] = deque()
        self._pending: dict[Dot, Message] = {}
        self.waiting: dict[Dot, list[Message]] = {}
        self.refused: dict[str, Message] = {}
        """Origin -> its next message, which is deliverable, and which this member's program cannot read."""
        self.duplicates = 0

    @property
    def size(self) -> int:
        """How many messages are here."""
        return len(self.ready) + len(self._pending) + len(self.refused)

    def add(self, message: Message) -> None:
        """Take a message whose dot is not delivered yet."""
        missing = self._missing(message)
        if missing is None:
            self.ready.append(message)
        elif message.dot in self._pending:
            self.duplicates += 1
        elif not self.refused or len(self._pending) < MOST_BEHIND:
            self._pending[message.dot] = message
            self.waiting.setdefault(missing, []).append(message)

    def _missing(self, message: Message) -> Dot | None:
        vector = self._vector
        origin, counter = message.dot
        if vector.get(origin, 0) + 1 < counter:
            return Dot(origin, counter - 1)
        for dot in message.context:
            if vector.get(dot[0], 0) < dot[1]:
                return dot
        return None

    def take(self) -> Message | None:
        """Remove and return the next deliverable message."""
        ready, vector = self.ready, self._vector
        while ready:
            message = ready.popleft()
            origin, counter = message.dot
            if vector.get(origin, 0) < counter:
                return message
            self.duplicates += 1
        return None

    def refuse(self) -> None:
        """Leave the next deliverable message undelivered, and with it all that comes after it."""
        message = self.ready.popleft()
        if self.refused.get(message.dot.origin) == message:
            self.duplicates += 1
        self.refused[message.dot.origin] = message

    def delivered(self, dot: Dot) -> None:
        """Wake those that wait under `dot`, which the vector covers now."""
        for message in self.waiting.pop(dot, ()):
            missing = self._missing(message)
            if missing is None:
                del self._pending[message.dot]
                self.ready.append(message)
            else:
                self.waiting.setdefault(missing, []).append(message)

    def has_deliverable(self) -> bool:
        """Whether `take` would return a message."""
        ready, vector = self.ready, self._vector
        while ready:
            origin, counter = ready[0].dot
            if vector.get(origin, 0) < counter:
                return True
            ready.popleft()
            self.duplicates += 1
        return False

    def messages(self) -> Iterator[Message]:
        """Everything that is here, in no particular order."""
        return chain(self.ready, self._pending.values(), self.refused.values())

    def purge(self, origin: str, above: int = 0) -> int:
        """Drop everything of `origin` beyond the counter `above`, and return how much that was."""
        doomed = {
            m.dot for m in self.messages() if m.dot.origin == origin and m.dot.counter > above
        }
        if not doomed:
            return 0
        before = self.size
        self.ready = deque(m for m in self.ready if m.dot not in doomed)
        self._pending = {dot: m for dot, m in self._pending.items() if dot not in doomed}
        self.refused = {o: m for o, m in self.refused.items() if m.dot not in doomed}
        for dot, waiting in list(self.waiting.items()):
            left = [m for m in waiting if m.dot not in doomed]
            if left:
                self.waiting[dot] = left
            else:
                del self.waiting[dot]
        return before - self.size
