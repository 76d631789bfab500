"""One server: steps that are carried out whole but do not roll back, a fence, and a log whose tail a crash may lose."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from crdtcast.causality.tags import Dot
from crdtcast.engine import EngineState
from crdtcast.engine.reissue import Parked
from tests.adapters.redis.designs.recorded.commands import (
    Command,
    Entry,
    Refused,
    Reply,
    execute,
    has_data,
)
from tests.adapters.redis.designs.recorded.effects import DEADLINE, SET, STRING, Values
from tests.adapters.redis.designs.recorded.faults import Fault

NOT_LOADED = 0.1
"""How often the server does not know a script any more."""

Run: TypeAlias = tuple[Entry, ...]
Executed: TypeAlias = dict[int, tuple[Run, ...]]


@dataclass(frozen=True, slots=True)
class Record:
    """What a recorded stretch has done, and what its one message is to be: written in the step that does it."""

    dot: Dot | None
    context: tuple[Dot, ...]
    time: int
    entries: tuple[Entry, ...]

    @property
    def wrote(self) -> bool:
        """Whether there is a message to derive."""
        return any(entry.wrote for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Stored:
    """Our metadata: who writes here, what its engine was at this commit, the clock, the number of the commit."""

    incarnation: str
    engine: EngineState
    clock: int
    number: int


@dataclass(frozen=True, slots=True)
class Image:
    """All that a server holds, at one instant. `executed` is the oracle's: requests that were carried out, with what
    the server has said to them.
    """

    values: Values = field(default_factory=dict)
    stored: Stored | None = None
    record: Record | None = None
    parked: Parked | None = None
    executed: Executed = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """Commands that are carried out by the server alone. A script is one client's, and ends at its first error."""

    request: int
    commands: tuple[Command, ...]
    is_script: bool


@dataclass(frozen=True, slots=True)
class Exec:
    """One MULTI … EXEC of a gateway. known: the values after all that is known beforehand, and who asked for it. waits:
    a record that stays, of a member that is out and has not been told so.
    """

    fence: int
    known: Values
    plain: tuple[Entry, ...]
    segments: tuple[Segment, ...]
    record: Record | None
    stored: Stored
    parked: Parked | None
    waits: Record | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What EXEC has returned: the record as it was written; None if nothing was, and what the server has said."""

    record: Record | None
    entries: tuple[Entry, ...]


class Server:
    """always: each step is synced before its answer. Else the last ones may be lost with the machine."""

    def __init__(self, name: str, always: bool, random: Random, faults: frozenset[Fault]) -> None:
        self.name, self.always = name, always
        self.fence = 0
        self.images = [Image()]
        """From the last synced one to the latest."""
        self.first = 0
        """The number of the first one, of all."""
        self.said: dict[int, list[tuple[Reply, ...]]] = {}
        """The oracle's: all that it has ever replied to a request, lost or not."""
        self.wrote: set[tuple[int, tuple[Reply, ...]]] = set()
        """The oracle's: those of them with which it has changed anything."""
        self.archive: list[Image] = []
        """Images of before: what a server may come back with that has lost what it had promised."""
        self._random = random
        self._faults = faults

    @property
    def image(self) -> Image:
        """What it holds."""
        return self.images[-1]

    @property
    def position(self) -> int:
        """The number of the latest image."""
        return self.first + len(self.images) - 1

    def sync(self) -> None:
        """All that was written is on the disk."""
        self.archive = [*self.archive, *self.images[:-1]][-8:]
        self.first = self.position
        self.images = self.images[-1:]

    def lose(self, steps: int) -> int:
        """The machine dies, and the last steps that were not synced are lost; how many were."""
        steps = min(steps, len(self.images) - 1)
        if steps:
            del self.images[-steps:]
        self.fence += 1
        return steps

    def tear(self) -> None:
        """It comes back with less than it had promised: before a record was derived, if there was one lately."""
        self.sync()
        recorded = [image for image in self.archive if image.record is not None]
        self.images = [self._random.choice(recorded or self.archive)]
        self.fence += 1

    def write(self, image: Image) -> None:
        """One step."""
        self.images.append(image)
        if self.always:
            self.sync()

    def write_with(self, record: Record | None) -> None:
        """A step that writes the record alone: a planted fault."""
        self.write(replace(self.image, record=record))

    def execute(self, plan: Exec) -> Answer | None:
        """EXEC; None if somebody has taken the fence meanwhile."""
        if plan.fence != self.fence:
            return None
        values = dict(plan.known)
        executed = dict(self.image.executed)
        for entry in plan.plain:
            self._note(executed, entry.request, (entry,))
        entries: list[Entry] = []
        kept: tuple[Entry, ...] = ()
        for segment in plan.segments:
            if segment.is_script and self._random.random() < NOT_LOADED:
                continue
            done, came_to_its_end = self._run(values, segment)
            self._note(executed, segment.request, done)
            entries += done
            if Fault.RECORD_OF_THE_LAST_SEGMENT in self._faults:
                kept = done
            elif came_to_its_end or Fault.RECORD_AT_THE_END not in self._faults:
                kept += done
        record = plan.waits
        if plan.record is not None:
            record = replace(plan.record, entries=kept)
            if not record.wrote and Fault.FAILED_NX_SENDS not in self._faults:
                record = None
        aside = Fault.RECORD_IN_A_STEP_OF_ITS_OWN in self._faults
        self.write(Image(values, plan.stored, None if aside else record, plan.parked, executed))
        return Answer(record, tuple(entries))

    def _note(self, executed: Executed, request: int, run: Run) -> None:
        executed[request] = (*executed.get(request, ()), run)
        replies = tuple(entry.reply for entry in run)
        self.said.setdefault(request, []).append(replies)
        if any(entry.wrote for entry in run):
            self.wrote.add((request, replies))

    def _run(self, values: Values, segment: Segment) -> tuple[tuple[Entry, ...], bool]:
        done: list[Entry] = []
        for command in segment.commands:
            was_there = has_data(values, command.key)
            before = dict(values)
            reply = execute(values, command, self._random)
            self._spoil(values, before, command)
            done.append(Entry(segment.request, command, reply, was_there))
            if segment.is_script and isinstance(reply, Refused):
                return tuple(done), False
        return tuple(done), True

    def _spoil(self, values: Values, before: Values, command: Command) -> None:
        """What the fixed script would leave out: planted."""
        key = command.key
        if Fault.ORPHAN_LOST in self._faults and not has_data(values, key):
            values.pop((key, DEADLINE, ""), None)
        if Fault.HIDDEN_STAYS in self._faults and (key, STRING, "") in before:
            values.update({s: v for s, v in before.items() if s[0] == key and s[1] == SET})
