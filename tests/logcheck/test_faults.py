"""Right logs pass, and of logs with one planted fault the first event named is that one."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from crdtcast.causality.member_id import name_of
from crdtcast.eventlog.check import Checked, Problem, check_logs
from crdtcast.eventlog.format import EventKind
from tests.effort import seeds
from tests.logcheck.event_logs import Logs, Settings, make_up, write_logs
from tests.logcheck.log_faults import FAULTS, pasts, plant

RIGHT = [
    Settings(replicas=3, messages=80, seed=1),
    Settings(replicas=1, messages=10, seed=2, cuts=0),
    Settings(replicas=5, messages=120, seed=3, cuts=3, killed=2),
    Settings(replicas=3, messages=80, seed=5, restarts=4),
    Settings(replicas=4, messages=80, seed=6, restarts=1, supersedes=3, cuts=2),
    Settings(replicas=2, messages=60, seed=7, supersedes=4),
    Settings(replicas=12, messages=100, seed=8, cuts=4),
    Settings(replicas=4, messages=60, seed=9, at_rest=False, restarts=1, supersedes=1),
]
SEEN_AS = {
    "drop": {Problem.CAUSAL, Problem.TAG},
    "drop-last": {Problem.UNSAFE_STABLE, Problem.STABLE_UNDELIVERED, Problem.TAG},
    "swap": {Problem.CAUSAL},
    "duplicate": {Problem.DUPLICATE},
    "never-sent": {Problem.GHOST},
    "foreign-send": {Problem.FOREIGN},
    "rolled-back": {Problem.ROLLED_BACK},
    "dependant-first": {Problem.CAUSAL},
    "omitted": {Problem.TAG},
    "invented": {Problem.TAG},
    "invented-nothing": {Problem.TAG},
    "early-stable": {Problem.UNSAFE_STABLE, Problem.STABLE_ORDER},
    "stable-before-delivery": {Problem.STABLE_UNDELIVERED},
    "stable-twice": {Problem.STABLE_TWICE},
    "stable-out-of-order": {Problem.STABLE_ORDER},
    "wrong-digest": {Problem.DIVERGED},
    "leak": {Problem.STABLE_ORDER, Problem.STALL},
    "leak-unclaimed": {Problem.STABLE_ORDER},
    "hole": {Problem.LOG},
    "line-twice": {Problem.LOG},
}
NOT_CAUSAL = {"metadata-left"}
"""The audit's: what a garbage collection says of sizes is nothing that an application did."""


def checked(directory: Path, logs: Logs, *, live: bool = False) -> Checked:
    write_logs(directory, logs)
    return check_logs([directory], live=live)


@pytest.mark.parametrize("settings", RIGHT, ids=lambda settings: f"seed-{settings.seed}")
def test_right_logs_pass(tmp_path: Path, settings: Settings) -> None:
    logs = make_up(settings)
    result = checked(tmp_path, logs)
    assert result.violations == ()
    assert result.counts["events"] == sum(map(len, logs.values()))
    assert result.counts["messages"] == settings.messages


def test_every_fault_is_either_seen_or_known_as_not_causal() -> None:
    assert SEEN_AS.keys() | NOT_CAUSAL == FAULTS.keys()


@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize("fault", SEEN_AS)
def test_the_first_event_named_is_the_planted_one(tmp_path: Path, fault: str, seed: int) -> None:
    logs = make_up(Settings(replicas=3 + seed % 3, messages=50, seed=seed, cuts=2))
    planted = plant(fault, logs, seed)
    first = checked(tmp_path, logs).violations[0]
    assert first.problem in SEEN_AS[fault], first
    assert name_of(first.place.incarnation) == planted.replica, first
    if first.problem is not Problem.LOG:
        assert planted.about in {first.object, str(first.dot), *map(str, first.others)}, first


def hasty(seed: int) -> Logs:
    """Logs in which many STABLE lines have moved to an earlier place, after the delivery."""
    logs = make_up(Settings(replicas=4, messages=40, seed=seed, cuts=2))
    draw = random.Random(seed)
    for incarnation, log in logs.items():
        for _ in range(12):
            place = draw.choice([p for p, e in enumerate(log) if e.kind == EventKind.STABLE])
            delivered = next(
                p
                for p, e in enumerate(log)
                if e.kind in (EventKind.SEND, EventKind.DELIVER) and e.dot == log[place].dot
            )
            if delivered < place:
                log.insert(draw.randint(delivered + 1, place), log.pop(place))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
    return logs


@pytest.mark.parametrize("seed", seeds(8))
def test_unsafe_stability_is_found_exactly_by_its_definition(tmp_path: Path, seed: int) -> None:
    logs = hasty(seed)
    past = pasts(logs)
    unsafe = {
        (incarnation, event.dot)
        for incarnation, log in logs.items()
        for place, event in enumerate(log)
        if event.kind == EventKind.STABLE
        and any(e.kind == EventKind.DELIVER and event.dot not in past[e.dot] for e in log[place:])
    }
    result = checked(tmp_path, logs)
    assert {
        (v.place.incarnation, v.dot)
        for v in result.violations
        if v.problem is Problem.UNSAFE_STABLE
    } == unsafe
    assert len(unsafe) > 3


def test_clocks_that_are_wrong_by_hours_change_nothing(tmp_path: Path) -> None:
    logs = make_up(Settings(replicas=4, messages=80, seed=11, supersedes=1))
    for hours, incarnation in enumerate(sorted(logs)):
        logs[incarnation] = [replace(e, ts=e.ts + hours * 3_600_000_000) for e in logs[incarnation]]
    assert checked(tmp_path / "right", logs).violations == ()
    planted = plant("dependant-first", logs, 3)
    first = checked(tmp_path / "wrong", logs).violations[0]
    assert (first.problem, str(first.dot)) == (Problem.CAUSAL, planted.about)


def test_checker_holds_only_messages_in_flight(tmp_path: Path) -> None:
    result = checked(tmp_path, make_up(Settings(messages=1500, seed=12, cuts=0)))
    assert result.violations == ()
    assert result.counts["held"] < 1000
