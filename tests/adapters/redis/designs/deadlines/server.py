"""A native server: values with deadlines of its own clock, and a database of its gateway's own."""

from dataclasses import dataclass, field

from .effects import Message, Slot, Value
from .index import DeadlineIndex


@dataclass(slots=True)
class Native:
    """A key as the server holds it. `deadline` is `NONE` if it has none."""

    slots: dict[Slot, Value]
    deadline: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """A deadline without data."""

    deadline: int
    mine: bool


@dataclass
class Metadata:
    """The gateway's own database: written in the same steps as the data, kept over a restart of the gateway."""

    vector: list[int]
    hlc: int = 0
    unstable: list[Message] = field(default_factory=list)
    index: DeadlineIndex = field(default_factory=DeadlineIndex)
    orphans: dict[str, Orphan] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Keys that a leading clock has dropped although they should live, until they are copied."""


class Server:
    """What a step of the gateway finds and leaves. A step is atomic, and time is frozen in it."""

    def __init__(self, members: int, offset: int) -> None:
        self.offset = offset
        """How far this clock leads the true time."""
        self.time = self.latest = 0
        self.data: dict[str, Native] = {}
        self.own = Metadata([0] * members)

    def begin(self, now: int) -> None:
        """The TIME of the step that begins, at the true time `now`."""
        self.time = now + self.offset
        self.latest = max(self.latest, self.time)

    def get(self, key: str) -> Native | None:
        """Whatever looks at a key whose deadline has passed drops it."""
        native = self.data.get(key)
        if native is not None and native.deadline <= self.time:
            del self.data[key]
            return None
        return native

    def put(self, key: str, slots: dict[Slot, Value], deadline: int) -> None:
        """A deadline in the past drops the key at once."""
        if slots and deadline > self.time:
            self.data[key] = Native(dict(slots), deadline)
        else:
            self.data.pop(key, None)

    def drop_passed(self) -> None:
        """What the server does by itself, at any instant."""
        for key in list(self.data):
            self.get(key)
