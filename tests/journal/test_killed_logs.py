"""A member is killed before a sync of its journal, or behind it with none of the lines of its event log written, or
some. It goes on from the journal, and the logs of all are right.
"""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from crdtcast import EndedError, Member
from crdtcast.eventlog.check.check import check_logs
from crdtcast.eventlog.durable_log import DurableLog
from crdtcast.eventlog.format import Event, EventKind
from crdtcast.eventlog.writer import Rotation
from crdtcast.journal.saved import Happened
from crdtcast.testing import Cluster, eventually, simulated
from tests.journal.test_members import country
from tests.log_reader import LogReader
from tests.node.group_support import LedgerHost, members_are, start_member


class Watched(DurableLog):
    """The log of b, or of another member, which is never killed."""

    def __init__(self, member: Member, directory: Path, rotation: Rotation, fate: "Fate") -> None:
        super().__init__(member, directory, rotation)
        self._fate = fate if member.name == "b" else None
        self._is_dead = False

    def taken(self, happened: Sequence[Happened]) -> None:
        if happened:
            self._may_end(0.0)
        if not self._is_dead:
            super().taken(happened)

    def synced(self) -> None:
        if self._log is not None and self._log.has_unwritten:
            self._may_end(0.0)
            self._may_end(0.6)
        if not self._is_dead:
            super().synced()

    def _may_end(self, share: float) -> None:
        """Perhaps be killed now. Of the lines that wait that share is written, the last one torn."""
        if self._fate is None or self._is_dead or not self._fate.comes():
            return
        self._is_dead = True
        if (log := self._log) is not None:
            log._add_sent()
            lines = "".join(log._buffer)
            log._buffer = [lines[: int(share * len(lines))]]
            log._buffered = len(log._buffer[0])
            log.flush()
            log.abandon()
        self._fate.kill()


class Fate:
    """Kills b at its step number `at`, and in its next life at `again`; it has three steps in each sync."""

    def __init__(self, group: Cluster[LedgerHost], at: int, again: int) -> None:
        self._group = group
        self._steps = [at, again]
        self.life = trio.CancelScope()

    def comes(self) -> bool:
        """Whether the next step is the last one."""
        if not self._steps:
            return False
        self._steps[0] -= 1
        return self._steps[0] == 0

    def kill(self) -> None:
        self._steps.pop(0)
        self._group.kill("b")
        self.life.cancel()

    def spare(self) -> None:
        """It lives, whatever was planned."""
        self._steps.clear()


async def write(group: Cluster[LedgerHost], name: str) -> None:
    """Ten messages, if it may."""
    member = group.up[name].member
    for number in range(10):
        with suppress(EndedError):
            member.tcbroadcast(b"%d" % number)
        await trio.sleep(0.04)


async def lives_of_b(group: Cluster[LedgerHost], fate: Fate, logs: Path, *, evicted: bool) -> int:
    """How many it had, until it was not killed any more."""
    for number in itertools.count(1):
        with trio.CancelScope() as fate.life:
            await start_member(group, "b", event_logs=logs)
            await write(group, "b")
            await members_are(group.up["b"].member, *group.up)
            await trio.sleep(1)
        if not fate.life.cancelled_caught:
            fate.spare()
            return number
        if evicted and "b" in group.up["a"].member.members:
            group.up["a"].member.evict("b")
            await members_are(group.up["a"].member, *(group.up.keys() - {"b"}))
    raise AssertionError


def run(logs: Path, at: int, again: int, *, evicted: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many lives b had. It goes through joins, evictions by it and of others, and snapshots."""
    lives = 0

    async def course() -> None:
        nonlocal lives
        async with country() as group:
            fate = Fate(group, at, again)
            opened = partial(Watched, fate=fate)
            monkeypatch.setattr("crdtcast.group.open.DurableLog", opened)
            for name in "acef":  # b and c may be dead at once, and are outvoted still
                await start_member(group, name, event_logs=logs)
            await group.up["a"].member.wait_established()

            async def b() -> None:
                nonlocal lives
                lives = await lives_of_b(group, fate, logs, evicted=evicted)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(b)
                nursery.start_soon(write, group, "a")
                nursery.start_soon(write, group, "c")
                await start_member(group, "d", event_logs=logs)
                group.kill("c")
                group.up["a"].member.evict("c")
                await start_member(group, "c", event_logs=logs)
            await eventually(lambda: is_calm(group), 600)

    simulated(course)()
    return lives


def is_calm(group: Cluster[LedgerHost]) -> bool:
    members = [host.member for host in group.up.values()]
    return all(
        m.engine.quiet and m.parked is None and len(m.members) == len(members) for m in members
    )


def gaps(logs: Path) -> list[Event]:
    """STARTs of incarnations that go on with more than their logs tell."""
    found: list[Event] = []
    told: dict[str, dict[str, int]] = {}
    for event in LogReader(logs):
        if event.kind == EventKind.START:
            begun = event.vector or {}
            have = told.setdefault(event.incarnation, dict(begun))
            if any(have.get(origin, 0) < counter for origin, counter in begun.items()):
                found.append(event)
        elif event.kind in (EventKind.SEND, EventKind.DELIVER):
            told[event.incarnation][event.dot.origin] = event.dot.counter
    return found


@pytest.mark.parametrize(
    ("evicted", "stride"),
    [
        (False, 31),
        (True, 37),
        pytest.param(False, 1, marks=pytest.mark.slow),
        pytest.param(True, 1, marks=pytest.mark.slow),
    ],
)
def test_logs_are_right_wherever_a_member_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evicted: bool, stride: int
) -> None:
    for at in itertools.count(stride, stride):
        logs = tmp_path / str(at)
        lives = run(logs, at, at % 11 + 1, evicted=evicted, monkeypatch=monkeypatch)
        violations = check_logs([logs]).violations
        assert not violations, f"killed at step {at}: {violations[0]}"
        assert not gaps(logs), f"killed at step {at}"
        if lives == 1:
            assert at > 2 * stride
            return
