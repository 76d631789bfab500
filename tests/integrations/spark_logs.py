"""Made-up logs of many groups, all for one audit: the number of Spark's jobs takes the time, not that of groups."""

import gzip
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crdtcast.eventlog.format import Event, EventKind
from tests.effort import seeds
from tests.logcheck.event_logs import Logs, Settings, make_up, write_logs
from tests.logcheck.log_faults import FAULTS, Planted, plant

if TYPE_CHECKING:
    from crdtcast.integrations.spark.result import Result

HASTY = seeds(2)
CLEAN = [
    Settings(group="three", replicas=3, messages=80, seed=1),
    Settings(group="alone", replicas=1, messages=10, seed=2, cuts=0),
    Settings(group="five", replicas=5, messages=120, seed=3, cuts=3, killed=2),
    Settings(group="restarts", replicas=3, messages=80, seed=5, restarts=4),
    *(
        Settings(
            group=f"ended-{seed}",
            replicas=4,
            messages=80,
            seed=seed,
            restarts=1,
            supersedes=3,
            cuts=2,
        )
        for seed in seeds(1, first=6)
    ),
    *(
        Settings(
            group=f"killed-{seed}",
            replicas=4,
            messages=60,
            seed=seed,
            at_rest=False,
            restarts=1,
            supersedes=1,
        )
        for seed in seeds(1, first=9)
    ),
]


def write_all(directory: Path) -> dict[str, Planted]:
    """Clean groups, one of each planted fault, hasty ones, and those that are judged in part or not at all.

    Returns the faults by group.
    """
    groups = [make_up(settings) for settings in CLEAN]
    planted: dict[str, Planted] = {}
    for name in FAULTS:
        logs = make_up(Settings(group=name, replicas=3, messages=30, seed=1, cuts=2))
        planted[name] = plant(name, logs, 1)
        groups.append(logs)
    groups += [hasty(seed) for seed in HASTY]
    groups += [cut_off("cut-off"), raised("raised")]
    for logs in groups:
        write_logs(directory, logs)
    for name, logs in partly_judged().items():
        write_logs(directory, logs)
        zip_every_other(directory, name)
    return planted


def partly_judged() -> dict[str, Logs]:
    """Groups in which something cannot be judged, one in which all can, and one of these with a fault."""
    absent = made_up("absent")
    del absent[sorted(absent)[-1]]
    faulty = made_up("faulty")
    plant("drop", faulty, 1)
    return {
        "absent": absent,
        "silent": without(
            made_up("silent"), EventKind.STATE, EventKind.STABLE, EventKind.GC, EventKind.STOP
        ),
        **{
            f"changing-{kind.lower()}": changing(f"changing-{kind.lower()}", kind)
            for kind in (EventKind.JOIN, EventKind.LEFT, EventKind.EVICT)
        },
        "whole": made_up("whole"),
        "faulty": faulty,
    }


def zip_every_other(directory: Path, group: str) -> None:
    for path in sorted(directory.glob(f"{group}*"))[1::2]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def hasty(seed: int) -> Logs:
    """Logs in which many STABLE lines have moved to an earlier place, after the delivery."""
    settings = Settings(
        group=f"hasty-{seed}", replicas=4, messages=40, seed=seed, cuts=2, supersedes=seed % 2
    )
    logs = make_up(settings)
    draw = random.Random(seed)
    for incarnation, log in logs.items():
        for _ in range(12):
            told = [p for p, e in enumerate(log) if e.kind == EventKind.STABLE]
            if not told:
                continue
            place = draw.choice(told)
            delivered = [
                p
                for p, e in enumerate(log[:place])
                if e.kind in (EventKind.SEND, EventKind.DELIVER) and e.dot == log[place].dot
            ]
            if delivered:
                log.insert(draw.randint(delivered[0] + 1, place), log.pop(place))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
    return logs


def raised(group: str) -> Logs:
    """Clean logs in which a change of view raises the format level, and nobody comes or goes."""
    logs = make_up(Settings(group=group, replicas=3, messages=40, seed=9))
    first = next(event for event in next(iter(logs.values())) if event.kind == EventKind.SEND)
    for incarnation, log in logs.items():
        told: list[Event] = []
        for event in log:
            is_start = event.kind in (EventKind.START, EventKind.SEGMENT)
            view: dict[str, Any] = {
                "epoch": 0,
                "view": "0",
                "voters": tuple(sorted(logs)),
                "level": 1,
            }
            told.append(replace(event, **view if is_start else {}))
            about = (event.origin, event.counter) == (first.origin, first.counter)
            if about and event.kind in (EventKind.SEND, EventKind.DELIVER):
                telling: dict[str, Any] = {
                    "kind": EventKind.VIEW,
                    "epoch": 1,
                    "view": "1",
                    "before": "0",
                    "level": 2,
                }
                nothing: dict[str, Any] = dict.fromkeys(
                    ("origin", "counter", "deps", "object", "op")
                )
                told.append(replace(event, **telling, **nothing))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    return logs


def cut_off(group: str) -> Logs:
    """The logs as they are while being written: one replica's ends much earlier."""
    logs = make_up(Settings(group=group, replicas=3, messages=40, seed=21))
    behind = sorted(logs)[0]
    del logs[behind][len(logs[behind]) // 4 :]
    return logs


def made_up(group: str, **options: Any) -> Logs:
    return make_up(Settings(group=group, replicas=4, messages=24, seed=4, **options))


def without(logs: Logs, *kinds: EventKind) -> Logs:
    """The same, where nobody tells lines of these kinds."""
    for incarnation, log in logs.items():
        told = [event for event in log if event.kind not in kinds]
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    return logs


def changing(group: str, kind: EventKind) -> Logs:
    """A member joins, leaves or is evicted by the first message, and the last log lacks the second half."""
    logs = made_up(group)
    first = next(event for event in next(iter(logs.values())) if event.kind == EventKind.SEND)
    for incarnation, log in logs.items():
        told: list[Event] = []
        for event in log:
            told.append(event)
            if (event.kind, event.origin, event.counter) == (
                EventKind.SEND,
                first.origin,
                first.counter,
            ):
                told.append(replace(event, kind=kind, deps=None, object=None, op=None))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    last = sorted(logs)[-1]
    del logs[last][len(logs[last]) // 2 :]
    return logs


def run(*arguments: Any, **options: Any) -> "Result":
    """An audit. Its modules, matplotlib among them, are imported by the worker that runs one, not by all."""
    from crdtcast.integrations.spark import audit

    return audit.run(*arguments, **options)
