"""Messages that have arrived and are not delivered yet. A message waits under one missing dot at a time.

No queue is scanned and no graph is walked: the delivery of a dot wakes the messages that wait under it. Each is then
ready, or waits under its next missing dot. So a message is looked at once per dependency, at most.

Most messages wait for the application alone: those of one origin that come faster than they are taken, each of which
lacks only the one before it. They form a *line*, and need no index.

What waits is bounded for each origin separately, so no member can make messages of others wait, or fill the memory. A
message that is not kept comes again by repair when what it waits for is there.
"""

from collections import deque
from collections.abc import Container, Iterator
from itertools import chain
from typing import ClassVar, NamedTuple

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector

MOST_BEHIND = 1000
"""Messages that are kept while one is refused. Further ones would fill the memory; they come again by repair."""

_KEPT = 512
_KEPT_OF_CONTEXT = 128
"""Bytes in memory for a message besides its payload, and for each dot of its context."""


class Waiting(NamedTuple):
    """How much of one origin waits."""

    messages: int
    bytes: int


_NOTHING = Waiting(0, 0)


class Line(deque[Message]):
    """Messages of one origin without a gap, from the next but one on. bytes: their total size."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.bytes: int = 0


def _size(message: Message) -> int:
    return len(message.payload) + _KEPT + _KEPT_OF_CONTEXT * len(message.context)


class Inbox:
    """Received messages until `take` hands them over, with the index of what they wait for.

    vector: the delivered vector of the engine, shared; the inbox never changes it.
    At most one message of an origin is ready, the next one; `take` notices a second copy of it.
    """

    most_waiting: ClassVar[int] = 16_384
    """Messages of one origin that may wait at a time. Those that came without a gap may be more."""
    most_bytes: ClassVar[int] = 64 * 2**20
    """Bytes of one origin that may wait at a time, overhead included. One message may wait however long it is."""

    __slots__ = (
        "_accounts",
        "_crowded",
        "_of",
        "_pending",
        "_through",
        "_vector",
        "bytes",
        "crowded_out",
        "duplicates",
        "lines",
        "ready",
        "refused",
        "waiting",
    )

    def __init__(self, vector: dict[str, int]) -> None:
        self._vector = vector
        self.ready: deque[Message] = deque()
        self._pending: dict[Dot, Message] = {}
        self.waiting: dict[Dot, list[Message]] = {}
        self.lines: dict[str, Line] = {}
        """Origin -> its line, which is never empty."""
        self.refused: dict[str, Message] = {}
        """Origin -> its next message, which is deliverable, but which this member's program cannot read."""
        self.duplicates: int = 0
        self.bytes: int = 0
        """Total size of what waits."""
        self.crowded_out: int = 0
        """Messages that were not kept, since too much of their origin waited."""
        self._of: dict[str, Waiting] = {}
        self._crowded: set[str] = set()
        self._through: dict[str, int] = {}  # origin -> up to which all of it has come
        # The sender answers for a pending message of an origin that is not known (yet): ids are easily made up.
        self._accounts: dict[Dot, str] = {}

    @property
    def size(self) -> int:
        """How many messages the inbox holds."""
        return len(self.ready) + len(self._pending) + len(self.refused) + self._in_lines

    @property
    def _in_lines(self) -> int:
        return sum(map(len, self.lines.values()))

    def follow(self, message: Message) -> bool:
        """Take a message of another member if it lacks only the one before it, and that one is in the line, or the next
        of its origin. Returns whether it is taken: then it is well-formed, like a deliverable one.
        """
        (origin, counter), context = message.dot, message.context
        line = self.lines.get(origin)
        before = self._vector.get(origin, 0) + 1 if line is None else line[-1].dot[1]
        if counter != before + 1 or origin in self._of or self.refused:
            return False
        if context != ((origin, before),):
            vector = self._vector
            for depended, n in context:
                if not 0 < n <= (before if depended == origin else vector.get(depended, 0)):
                    return False
        size = len(message.payload) + _KEPT + _KEPT_OF_CONTEXT * len(context)
        if line is None:
            if origin not in self._vector:
                return False
            line = self.lines[origin] = Line()
        elif line.bytes + size > self.most_bytes:
            return False
        line.append(message)
        line.bytes += size
        self.bytes += size
        return True

    def add(self, message: Message, sender: str) -> bool:
        """Take a message whose dot is not delivered yet, if there is room. Returns whether it is kept."""
        missing = self._missing(message)
        if missing is None:
            self.ready.append(message)
            return True
        dot = message.dot
        line = self.lines.get(dot.origin)
        if dot in self._pending or (line is not None and dot.counter in _counters(line)):
            self.duplicates += 1
            return False
        if self.refused and len(self._pending) >= MOST_BEHIND:
            return False
        account = dot.origin if dot.origin in self._vector else sender
        held, size = self._of.get(account, _NOTHING), _size(message)
        if line is not None and account == dot.origin:
            held = Waiting(held.messages + len(line), held.bytes + line.bytes)
        follows = account == dot.origin and self._follows(message)
        if held.messages and (
            (held.messages >= self.most_waiting and not follows)
            or held.bytes + size > self.most_bytes
        ):
            self.crowded_out += 1
            self._crowded.add(account)
            return False
        if account != dot.origin:
            self._accounts[dot] = account
        elif follows:
            self._through[account] = max(dot.counter, self._through.get(account, 0))
        held = self._of.get(account, _NOTHING)
        self._of[account] = Waiting(held.messages + 1, held.bytes + size)
        self.bytes += size
        self._pending[dot] = message
        self.waiting.setdefault(missing, []).append(message)
        return True

    def _follows(self, message: Message) -> bool:
        """Whether all that its origin has sent before has come: it may wait for the application alone."""
        origin, counter = message.dot
        # The next one may be ready, which is seen nowhere else.
        known = [self._vector.get(origin, 0) + 1, self._through.get(origin, 0)]
        if (line := self.lines.get(origin)) is not None:
            known.append(line[-1].dot.counter)
        return counter - 1 <= max(known)

    def _release(self, message: Message) -> None:
        """A message no longer waits."""
        del self._pending[message.dot]
        account = self._accounts.pop(message.dot, message.dot.origin)
        held, size = self._of[account], _size(message)
        self.bytes -= size
        if held.messages == 1:
            del self._of[account]
            self._through.pop(account, None)
            self._crowded.discard(account)
        else:
            self._of[account] = Waiting(held.messages - 1, held.bytes - size)

    def waiting_by_origin(self) -> dict[str, Waiting]:
        """How much waits, by origin; messages of unknown origins count for their sender."""
        waiting = dict(self._of)
        for origin, line in self.lines.items():
            held = waiting.get(origin, _NOTHING)
            waiting[origin] = Waiting(held.messages + len(line), held.bytes + line.bytes)
        return waiting

    def crowded(self) -> list[str]:
        """The origins, or senders, of which more has come than is kept."""
        return sorted(self._crowded)

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
        """Wake the messages that wait under `dot`, which the vector now covers."""
        line = self.lines.get(dot[0])
        if line is not None:
            message = line.popleft()
            size = len(message.payload) + _KEPT + _KEPT_OF_CONTEXT * len(message.context)
            line.bytes -= size
            self.bytes -= size
            if not line:
                del self.lines[dot[0]]
            self.ready.append(message)
        for message in self.waiting.pop(dot, ()) if self.waiting else ():
            missing = self._missing(message)
            if missing is None:
                self._release(message)
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
        """All messages of the inbox, in no particular order."""
        lines = chain.from_iterable(self.lines.values())
        return chain(self.ready, lines, self._pending.values(), self.refused.values())

    def purge(self, origin: str, above: int = 0) -> int:
        """Drop everything of `origin` beyond the counter `above`, and return how much that was."""
        return self._purge(
            {m.dot for m in self.messages() if m.dot.origin == origin and m.dot.counter > above}
        )

    def purge_all(self, origins: Container[str], above: Vector) -> int:
        """Drop everything of these origins beyond the counters in `above`, in one pass."""
        return self._purge(
            {
                m.dot
                for m in self.messages()
                if m.dot.origin in origins and m.dot.counter > above.get(m.dot.origin, 0)
            }
        )

    def purge_handed_on_by(self, sender: str) -> int:
        """Drop what this peer has sent of unknown origins, which perhaps will never be known."""
        if not self._accounts:
            return 0
        return self._purge({dot for dot, account in self._accounts.items() if account == sender})

    def _purge(self, doomed: set[Dot]) -> int:
        if not doomed:
            return 0
        before = self.size
        self.ready = deque(m for m in self.ready if m.dot not in doomed)
        for dot in doomed & self._pending.keys():
            self._release(self._pending[dot])
            self._through.pop(dot.origin, None)
        for origin in {dot.origin for dot in doomed} & self.lines.keys():
            self._shorten(origin, doomed)
        self.refused = {o: m for o, m in self.refused.items() if m.dot not in doomed}
        for dot, waiting in list(self.waiting.items()):
            left = [m for m in waiting if m.dot not in doomed]
            if left:
                self.waiting[dot] = left
            else:
                del self.waiting[dot]
        return before - self.size

    def _shorten(self, origin: str, doomed: set[Dot]) -> None:
        """Keep the line up to the first message that goes: those behind it come again."""
        line = self.lines.pop(origin)
        self.bytes -= line.bytes
        kept = Line()
        for message in line:
            if message.dot in doomed:
                break
            kept.append(message)
            kept.bytes += _size(message)
        if kept:
            self.lines[origin] = kept
            self.bytes += kept.bytes


def _counters(line: Line) -> range:
    return range(line[0].dot.counter, line[-1].dot.counter + 1)
