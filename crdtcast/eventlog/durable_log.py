"""The event log of a member with a journal.

A line is written once its event is durable, and before anything that depends on it is sent. After a restart the lines
are added that the process before could not write. So a log never knows less than other members, nor more than the
journal.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from crdtcast.causality.member_id import wall_clock_us
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, covers
from crdtcast.engine import GroupEngine, Parked
from crdtcast.engine.views import Decided
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import ROTATION, EventLog, Rotation, check_directory
from crdtcast.journal.saved import Happened

_logger = logging.getLogger("crdtcast.group")


class Logged(Protocol):
    """The member whose log it is; its engine changes when it begins a new life."""

    @property
    def group(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def parked(self) -> Parked | None: ...
    @property
    def engine(self) -> GroupEngine:
        """The engine of its present life."""
        ...


class DurableLog:
    """An `Observer` of a `MemberJournal`. directory: holds the logs of all its incarnations.

    Raises ConfigurationError if the directory cannot be used: now, because later the group already has this member.
    """

    def __init__(self, member: Logged, directory: Path, rotation: Rotation = ROTATION) -> None:
        check_directory(directory)
        self._member = member
        self._directory = directory
        self._rotation = rotation
        self._log: EventLog | None = None
        self._told: GroupLog | None = None
        self._incarnation = ""

    def resumed(self, happened: Sequence[Happened]) -> None:
        """Write the lines that the log lacks of these events."""
        log, told = self._open()
        if log.view is not None:  # without one there is no START, and the next one has it all
            told.catch_up()
            self.taken(_untold(happened, log))
            log.flush()

    def begun(self, own: int) -> None:
        """Write a START. Lines for own messages after number `own` follow later."""
        if self._log is None or self._told is None or self._incarnation != self._member.engine.me:
            _, self._told = self._open()
        self._told.start(own)

    def _open(self) -> tuple[EventLog, GroupLog]:
        if self._log is not None:
            self._log.close()
        engine = self._member.engine
        self._incarnation = engine.me
        self._log = EventLog(
            self._directory,
            group=self._member.group,
            replica=self._member.name,
            incarnation=engine.me,
            clock_us=wall_clock_us,
            rotation=self._rotation,
            log=_logger.warning,
        )
        self._told = GroupLog(engine, self._log)
        return self._log, self._told

    def taken(self, happened: Sequence[Happened]) -> None:
        """Add lines for what is about to be synced."""
        if self._log is None or self._told is None:
            return
        for item in happened:
            if isinstance(item, Message):
                self._told.happened(item, reissues=self._first(item.dot))
            elif isinstance(item, tuple):
                for dot in item:
                    self._log.stable(dot)
            else:
                self._told.decided([item])
        self._told.is_over()

    def synced(self) -> None:
        """Write the lines: their events are durable now."""
        if self._log is not None:
            self._log.flush()

    def ended(self) -> None:
        """Drop the lines of events that were not synced."""
        if self._log is not None:
            self._log.abandon()

    def _first(self, dot: Dot) -> Dot | None:
        """The message of a former incarnation that is sent again as this one."""
        parked = self._member.parked
        copies = {} if parked is None else parked.copies
        return next((first for first, again in copies.items() if dot in again), None)


def _untold(happened: Sequence[Happened], log: EventLog) -> list[Happened]:
    """The events that the log lacks."""
    rest: list[Happened] = []
    for item in happened:
        if isinstance(item, Decided):
            rest.append(item)
        elif not isinstance(item, Message):
            if dots := tuple(dot for dot in item if not covers(log.told_stable, dot)):
                rest.append(dots)
        elif not covers(log.vector, item.dot):
            rest.append(item)
    return rest
