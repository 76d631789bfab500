"""Whispers: short-lived words to the members that are linked, beside causal broadcast. Pure: no clock, no links.

Of each member and topic only the latest whisper counts, and only until it expires. A whisper has no tag, is in no
journal, is never repaired, and nothing waits for it.

    member.say(topic)  -> latest of each topic -> take(link), when that link may write -> frame
    frame -> receive -> latest of each (member, topic) -> Listener.next, when the program asks

A link that is slow, or a listener, finds only the latest of each topic; neither holds copies. All tables are limited
for each member, so a member that whispers without end displaces its own whispers only.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

from crdtcast.exceptions import LocalProtocolError
from crdtcast.short_repr import shown

MAX_TOPIC = 256
"""Most characters of a topic."""
MAX_WHISPER = 64 * 1024
"""Most bytes of one whisper."""
MAX_TOPICS = 1024
"""Most topics of one member at a time; the one that was said longest ago makes room."""
MAX_BYTES = 1024 * 1024
"""Most bytes of all whispers of one member at a time, with their topics."""
MAX_SECONDS = 3600.0
"""Longest life of a whisper that is not said again."""
_OVERHEAD = 64
"""Bytes that each whisper counts for, besides topic and payload."""


class Whisper(NamedTuple):
    """What a listener is told. sender: the name of the member. payload: empty if the whisper on that topic has
    ended: the sender took it back, it has expired, or the link is down.
    """

    sender: str
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class WhisperFrame:
    """A whisper on a link. serial: rises with each one that its sender sends; an older one never replaces a newer.
    lifetime_ms: how long it counts after its arrival. An empty payload takes the topic's former whisper back.
    """

    serial: int
    topic: str
    lifetime_ms: int
    payload: bytes


class _Entry(NamedTuple):
    serial: int
    payload: bytes
    until: float


_OVER = _Entry(0, b"", 0)
"""In the place of a whisper that has expired before it was sent: an earlier one, which lasts longer, is over, too."""


class _Latest:
    """The latest whisper of each topic of one member, the one said longest ago first. Limited."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.bytes = 0
        self._due = float("inf")

    def put(self, topic: str, entry: _Entry) -> list[tuple[str, _Entry]]:
        """Replace the topic's entry. Returns those that had to make room."""
        self.remove(topic)
        self.entries[topic] = entry
        self.bytes += _cost(topic, entry)
        self._due = min(self._due, entry.until)
        displaced = []
        while len(self.entries) > MAX_TOPICS or self.bytes > MAX_BYTES:
            oldest, gone = self.entries.popitem(last=False)
            self.bytes -= _cost(oldest, gone)
            displaced.append((oldest, gone))
        return displaced

    def remove(self, topic: str) -> None:
        """Forget the topic's entry, if there is one."""
        entry = self.entries.pop(topic, None)
        if entry is not None:
            self.bytes -= _cost(topic, entry)

    def expire(self, now: float) -> list[tuple[str, _Entry]]:
        """Forget all whose time is over, and return them."""
        if now < self._due:
            return []
        over = [(topic, entry) for topic, entry in self.entries.items() if entry.until <= now]
        for topic, _ in over:
            self.remove(topic)
        self._due = min((entry.until for entry in self.entries.values()), default=float("inf"))
        return over


def _cost(topic: str, entry: _Entry) -> int:
    return len(topic.encode()) + len(entry.payload) + _OVERHEAD


class Whispers:
    """What one member whispers, and what it hears. Peers are names of members that are linked; `now` is in seconds, of
    any clock that does not go back.

    dropped: by peer, the whispers that made room for others before they were sent, or that came and did not fit.
    on_waiting: called with a peer when something waits for its link.
    """

    def __init__(self, on_waiting: Callable[[str], object] = lambda peer: None) -> None:
        self.dropped: Counter[str] = Counter()
        self._on_waiting = on_waiting
        self._own = _Latest()
        self._serial = 0
        self._waiting: dict[str, OrderedDict[str, None]] = {}
        """Topics to send, by peer, in the order in which they came to wait."""
        self._heard: dict[str, _Latest] = {}
        self._floor: dict[str, int] = {}
        """By peer: serials up to this one are of whispers that were forgotten, or older."""
        self._listeners: WeakSet[Listener] = WeakSet()

    # Links

    def linked(self, peer: str) -> None:
        """There is a link with that member: it gets the latest of each topic."""
        self.unlinked(peer)
        self._heard[peer], self._floor[peer] = _Latest(), 0
        self._waiting[peer] = OrderedDict.fromkeys(self._own.entries)
        if self._own.entries:
            self._on_waiting(peer)

    def unlinked(self, peer: str) -> None:
        """The link is down: forget that member's whispers."""
        self._waiting.pop(peer, None)
        heard = self._heard.pop(peer, None)
        self._floor.pop(peer, None)
        for topic in () if heard is None else heard.entries:
            self._tell(peer, topic)

    @property
    def peers(self) -> tuple[str, ...]:
        """The members with a link."""
        return tuple(self._heard)

    # Own whispers

    def say(self, topic: str, payload: bytes, seconds: float, now: float) -> None:
        """Whisper to all that are linked now or will be within so many seconds. An empty payload takes it back.

        Raises LocalProtocolError, without any effect, if topic, payload or seconds are beyond the limits.
        """
        check_whisper(topic, payload, seconds)
        self._own.expire(now)
        for lost, _ in self._own.put(topic, _Entry(0, payload, now + seconds)):
            for peer, waiting in self._waiting.items():
                if lost in waiting:
                    del waiting[lost]
                    self.dropped[peer] += 1
        for peer, waiting in self._waiting.items():
            waiting[topic] = None
            if len(waiting) > MAX_TOPICS:  # some have expired
                waiting.popitem(last=False)
                self.dropped[peer] += 1
            self._on_waiting(peer)

    def said(self, topic: str) -> bytes:
        """What this member whispers on the topic; empty for nothing."""
        entry = self._own.entries.get(topic)
        return b"" if entry is None else entry.payload

    def waits_for(self, peer: str) -> bool:
        """Whether something is to be sent to that member."""
        return bool(self._waiting.get(peer))

    def take(self, peer: str, now: float, most: int = MAX_WHISPER) -> list[WhisperFrame]:
        """Up to about `most` bytes of what that member is to get, for its link to write now."""
        waiting = self._waiting.get(peer)
        frames: list[WhisperFrame] = []
        while waiting and most > 0:
            topic, _ = waiting.popitem(last=False)
            entry = self._own.entries.get(topic)
            if entry is None or entry.until <= now:
                entry = _OVER
            self._serial += 1
            lifetime = max(1, int((entry.until - now) * 1000))
            frames.append(WhisperFrame(self._serial, topic, lifetime, entry.payload))
            most -= _cost(topic, entry)
        return frames

    # Others' whispers

    def receive(self, peer: str, frame: WhisperFrame, now: float) -> None:
        """Take a frame of a linked member. One that is late changes nothing."""
        heard, topic = self._heard.get(peer), frame.topic
        if heard is None or self._is_late(peer, frame):
            return
        before = heard.entries.get(topic)
        if not frame.payload:
            heard.remove(topic)
            self._forgotten(peer, frame.serial)
            if before is None:
                return
        else:
            entry = _Entry(frame.serial, frame.payload, now + frame.lifetime_ms / 1000)
            for lost, displaced in heard.put(topic, entry):
                self.dropped[peer] += 1
                self._forgotten(peer, displaced.serial)
                self._tell(peer, lost)
            if before is not None and before.payload == frame.payload:
                return  # said again, so that it lives on
        self._tell(peer, topic)

    def expire(self, now: float) -> None:
        """Forget what has expired."""
        self._own.expire(now)
        for peer, heard in self._heard.items():
            for topic, entry in heard.expire(now):
                self._forgotten(peer, entry.serial)
                self._tell(peer, topic)

    def latest(self, peer: str, topic: str) -> bytes:
        """What that member whispers on the topic; empty for nothing."""
        heard = self._heard.get(peer)
        entry = None if heard is None else heard.entries.get(topic)
        return b"" if entry is None else entry.payload

    def all_heard(self) -> Iterator[tuple[str, str]]:
        """All (member, topic) of which there is a whisper now."""
        for peer, heard in self._heard.items():
            for topic in heard.entries:
                yield peer, topic

    def _is_late(self, peer: str, frame: WhisperFrame) -> bool:
        before = self._heard[peer].entries.get(frame.topic)
        newest = self._floor[peer] if before is None else max(self._floor[peer], before.serial)
        return frame.serial <= newest

    def _forgotten(self, peer: str, serial: int) -> None:
        self._floor[peer] = max(self._floor[peer], serial)

    # Listeners

    def listen(
        self, topics: Iterable[str], on_news: Callable[[], object] = lambda: None
    ) -> "Listener":
        """A new listener; it ends when nothing refers to it.

        topics: those that it hears; all, if there are none.
        on_news: called when it may have something new.

        Raises LocalProtocolError if one of them cannot be a topic.
        """
        named = [*topics]
        for topic in named:
            _check_topic(topic)
        listener = Listener(self, frozenset(named), on_news)
        self._listeners.add(listener)
        return listener

    def _tell(self, peer: str, topic: str) -> None:
        for listener in self._listeners:
            listener.note(peer, topic)


class Listener:
    """Hears the present whispers first, and then each change. Of one (member, topic) it holds at most one change."""

    def __init__(
        self, whispers: Whispers, topics: frozenset[str], on_news: Callable[[], object]
    ) -> None:
        self._whispers = whispers
        self._topics = topics
        self._on_news = on_news
        self._told: set[tuple[str, str]] = set()
        self._changed: OrderedDict[tuple[str, str], None] = OrderedDict.fromkeys(
            key for key in whispers.all_heard() if self._hears(key[1])
        )

    def _hears(self, topic: str) -> bool:
        return not self._topics or topic in self._topics

    def note(self, peer: str, topic: str) -> None:
        """The whisper of that member on that topic is another one, or has gone."""
        if self._hears(topic):
            key = peer, topic
            if key not in self._told and not self._whispers.latest(peer, topic):
                self._changed.pop(key, None)  # it came and went unnoticed
                return
            self._changed[key] = None
            self._on_news()

    @property
    def has_news(self) -> bool:
        """Whether `next` returns something."""
        return bool(self._changed)

    def next(self) -> Whisper | None:
        """The next change, as of now; None if there is none."""
        if not self._changed:
            return None
        key, _ = self._changed.popitem(last=False)
        payload = self._whispers.latest(*key)
        if payload:
            self._told.add(key)
        else:
            self._told.discard(key)
        return Whisper(*key, payload)


def check_whisper(topic: object, payload: object, seconds: object) -> None:
    """Raises LocalProtocolError if this cannot be whispered."""
    _check_topic(topic)
    if not isinstance(payload, bytes) or len(payload) > MAX_WHISPER:
        what = f"{len(payload):,} bytes" if isinstance(payload, bytes) else type(payload).__name__
        raise LocalProtocolError(
            f"cannot whisper {what}: a whisper has at most {MAX_WHISPER:,} bytes: use an object "
            "for more, or for what must arrive"
        )
    if not isinstance(seconds, int | float) or not 0.001 <= seconds <= MAX_SECONDS:
        raise LocalProtocolError(
            f"a whisper cannot last {shown(seconds)} seconds: give 0.001 to {MAX_SECONDS:.0f}"
        )


def _check_topic(topic: object) -> None:
    if type(topic) is not str or not 0 < len(topic) <= MAX_TOPIC or not is_text(topic):
        raise LocalProtocolError(
            f"cannot whisper on topic {shown(topic)}: use a text of 1 to {MAX_TOPIC} characters"
        )


def is_text(name: str) -> bool:
    """Whether it is Unicode: a lone half of a surrogate pair is not."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
