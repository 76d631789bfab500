"""Messages that have arrived and are not delivered yet. A message waits under one missing dot at a time.

No queue is scanned and no graph is walked: the delivery of a dot wakes those that wait under it, each of them is then
ready or waits under its next missing dot. So a message is looked at once per dependency, at most.
"""

from collections import deque

from crdtcast.messages import Message
from crdtcast.tags import Dot


class Inbox:
    """Received messages until `poll` hands them over, with the index of what they wait for.

    `vector` is the engine's delivered vector, shared and read only here.
    """

    __slots__ = ("_held", "_ready", "_vector", "_waiting", "size")

    def __init__(self, vector: dict[str, int]) -> None:
        self._vector = vector
        # origin -> counter -> message: everything here, for duplicates and purges
        self._held: dict[str, dict[int, Message]] = {}
        self._waiting: dict[Dot, list[Message]] = {}
        self._ready: deque[Message] = deque()
        self.size = 0

    def add(self, message: Message) -> bool:
        """Take a message whose dot is not delivered yet; False if it is here already."""
        origin, counter = message.dot
        held = self._held.get(origin)
        if held is None:
            held = self._held[origin] = {}
        elif counter in held:
            return False
        held[counter] = message
        self.size += 1
        self._place(message)
        return True

    def _place(self, message: Message) -> None:
        vector = self._vector
        origin, counter = message.dot
        if vector.get(origin, 0) + 1 < counter:
            self._waiting.setdefault(Dot(origin, counter - 1), []).append(message)
            return
        for dot in message.context:
            if vector.get(dot[0], 0) < dot[1]:
                self._waiting.setdefault(dot, []).append(message)
                return
        self._ready.append(message)

    def take(self) -> Message | None:
        """Remove and return the next deliverable message."""
        ready = self._ready
        while ready:
            message = ready.popleft()
            origin, counter = message.dot
            held = self._held[origin]
            if held.get(counter) is message:  # not purged meanwhile
                del held[counter]
                self.size -= 1
                return message
        return None

    def delivered(self, dot: Dot) -> None:
        """Wake those that wait under `dot`, which the vector covers now."""
        if self._waiting:
            for message in self._waiting.pop(dot, ()):
                self._place(message)

    def has_deliverable(self) -> bool:
        """Whether `take` would return a message."""
        ready = self._ready
        while ready:
            origin, counter = ready[0].dot
            if self._held[origin].get(counter) is ready[0]:
                return True
            ready.popleft()
        return False

    def purge(self, origin: str, above: int = 0) -> int:
        """Drop everything of `origin` beyond the counter `above`, and return how much that was."""
        held = self._held.get(origin, {})
        kept = {counter: message for counter, message in held.items() if counter <= above}
        purged = len(held) - len(kept)
        if purged:
            self._held[origin] = kept
            self.size -= purged
            for dot, waiting in list(self._waiting.items()):
                left = [m for m in waiting if m.dot.origin != origin or m.dot.counter <= above]
                if left:
                    self._waiting[dot] = left
                else:
                    del self._waiting[dot]
        return purged
