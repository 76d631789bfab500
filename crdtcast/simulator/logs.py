"""Event logs of a simulated group, in the format of a real node's (`crdtcast.eventlog`), on simulated time.

As at a node, lines reach the disk with the sync before anything leaves, so a crash loses what came since.
"""

from pathlib import Path

from crdtcast.engine.operations import How
from crdtcast.eventlog import EventLog
from crdtcast.incarnation import base_of, joined_by
from crdtcast.messages import Delivery
from crdtcast.simulator.member import Machine
from crdtcast.simulator.observer import Observer
from crdtcast.tags import Dot, Tag

GROUP = "simulated"
START_US = 1_700_000_000_000_000
STEP_US = 1_000
"""Simulated time between two events of the group."""


class GroupLogs(Observer):
    """One log for each process. `directory` is made if need be."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logs: dict[str, EventLog] = {}
        self._members: dict[str, set[str]] = {}
        self._ended: dict[str, set[str]] = {}
        self._now = START_US

    def _clock(self) -> int:
        self._now += STEP_US
        return self._now

    def started(self, machine: Machine) -> None:
        """A START line, in a new log or behind what the last process of that incarnation has written."""
        log = EventLog(
            self._directory,
            group=GROUP,
            replica=machine.name,
            incarnation=machine.me,
            clock_us=self._clock,
        )
        self._logs[machine.name] = log
        engine = machine.running
        self._members[machine.name] = set(engine.members)
        self._ended[machine.name] = set(engine.ended)
        # What the engine has sent as soon as it was made comes as lines of its own.
        own = machine.commits[-1].state.vector.get(machine.me, 0) if machine.commits else 0
        log.start({**engine.vector, machine.me: own}, engine.members, dict(engine.stable))

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """A SEND line, and what the message does to the members."""
        self._changes(machine, tag.dot.counter - 1)
        self._logs[machine.name].send(tag, reissues=reissues)
        self._changes(machine, tag.dot.counter)

    def delivered(self, machine: Machine, delivery: Delivery) -> None:
        """A DELIVER line. What it does to the members follows with `changed`."""
        self._logs[machine.name].deliver(delivery.tag.dot)

    def stable(self, machine: Machine, tag: Tag) -> None:
        """A STABLE line."""
        self._logs[machine.name].stable(tag.dot)

    def changed(self, machine: Machine) -> None:
        """JOIN, LEAVE and EVICT lines, if there are any to write."""
        self._changes(machine, machine.running.vector[machine.me])

    def synced(self, machine: Machine) -> None:
        """The lines so far are on disk."""
        self._logs[machine.name].flush()

    def stopped(self, machine: Machine, *, cleanly: bool) -> None:
        """A STOP line, or none and a lost end."""
        log = self._logs.pop(machine.name)
        if cleanly:
            log.stop()
        else:
            log.abandon()

    def close(self) -> None:
        """The run is over: all logs end."""
        for log in self._logs.values():
            log.stop()
        self._logs.clear()

    def _changes(self, machine: Machine, told: int) -> None:
        """What has changed since the last line, but for the effect of own messages behind number `told`."""
        log, engine = self._logs[machine.name], machine.running
        members, known = set(engine.members), self._members[machine.name]
        ended, known_ended = engine.ended, self._ended[machine.name]
        for member in sorted(members - known):
            dot = _join_of(member, (*members, *ended))
            if dot is None or (dot.origin == machine.me and dot.counter > told):
                continue
            replaced = engine.state().replaced
            replaces = sorted(base for base, by in replaced.items() if by == member)
            log.joined(member, dot, replaces=replaces)
            known.add(member)
        for incarnation, cut in ended.items():
            dot = Dot(incarnation, cut.counter)
            unsaid = incarnation == machine.me and cut.how is How.LEFT and cut.counter > told
            if incarnation in known_ended or unsaid:
                continue
            if cut.how is How.LEFT:
                log.left(dot)
            else:
                log.evicted(incarnation, cut.counter)
            known_ended.add(incarnation)
            known.discard(incarnation)


def _join_of(member: str, ids: tuple[str, ...]) -> Dot | None:
    join = joined_by(member)
    if join is None:
        return None
    contact = next((i for i in ids if base_of(i) == join[0]), None)
    return None if contact is None else Dot(contact, join[1])
