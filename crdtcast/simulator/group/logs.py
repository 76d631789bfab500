"""Event logs of a simulated group, in the format of real nodes (`crdtcast.eventlog.writer`), on simulated time.

As at a node, the lines reach the disk with a sync, before anything leaves. A crash loses the lines since then.
"""

from pathlib import Path

from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Dot, Tag
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog
from crdtcast.simulator.group.machine import Machine
from crdtcast.simulator.group.observer import RunObserver

GROUP = "simulated"
START_US = 1_700_000_000_000_000
STEP_US = 1_000
"""Simulated time between two events of the group."""


class GroupLogs(RunObserver):
    """One log for each process. Creates `directory` if it is missing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, EventLog] = {}
        self._told: dict[str, GroupLog] = {}
        self._now = START_US

    def _clock(self) -> int:
        self._now += STEP_US
        return self._now

    def started(self, machine: Machine) -> None:
        """A START line, in a new log or after the lines of the last process of that incarnation."""
        log = EventLog(
            self._directory,
            group=GROUP,
            replica=machine.name,
            incarnation=machine.me,
            clock_us=self._clock,
        )
        self._logs[machine.name] = log
        told = self._told[machine.name] = GroupLog(machine.running, log)
        told.start(machine.commits[-1].state.counter if machine.commits else 0)

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """A SEND line."""
        self._told[machine.name].sent(tag, reissues=reissues)

    def delivered(self, machine: Machine, delivery: Delivery) -> None:
        """A DELIVER line, and lines for changes of members that follow from it."""
        self._told[machine.name].polled(delivery)

    def stable(self, machine: Machine, tag: Tag) -> None:
        """A STABLE line."""
        self._told[machine.name].stable([tag])

    def changed(self, machine: Machine) -> None:
        """JOIN, VIEW, LEFT and EVICT lines, if there are any to write."""
        self._told[machine.name].issued(())

    def synced(self, machine: Machine) -> None:
        """Flush the lines so far to disk."""
        self._logs[machine.name].flush()

    def stopped(self, machine: Machine, *, cleanly: bool) -> None:
        """A STOP line after a clean stop; otherwise the lines since the last sync are lost."""
        del self._told[machine.name]
        log = self._logs.pop(machine.name)
        if cleanly:
            log.stop()
        else:
            log.abandon()

    def close(self) -> None:
        """Close all logs at the end of the run."""
        for log in self._logs.values():
            log.stop()
        self._logs.clear()
