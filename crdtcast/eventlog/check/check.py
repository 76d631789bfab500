"""The whole check, without output: find the logs, merge those of each group, check."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from crdtcast.eventlog.check.definition import Definition
from crdtcast.eventlog.check.merge import Merge
from crdtcast.eventlog.check.segments import FoundSegments, SegmentedLog, find_logs, founded_apart
from crdtcast.eventlog.check.violations import Violation


@dataclass(frozen=True, slots=True)
class Checked:
    """The result.

    violations: in the order of the merged events, at most 100 of each group.
    counts: of all violations, and of what was read; `counts_of`: the same for each group.
    notes: what could not be checked.
    """

    violations: tuple[Violation, ...]
    counts: Counter[str]
    notes: tuple[str, ...]
    groups: dict[str, list[SegmentedLog]]
    counts_of: dict[str, Counter[str]]


def check_logs(
    locations: Iterable[Path | str],
    *,
    live: bool = False,
    progress: Callable[[int], object] = lambda events: None,
) -> Checked:
    """Check all logs in these files and directories.

    :param live: the logs are still being written: their ends are not checked.
    :param progress: called now and then with the number of events read of the group.
    :raises UnusableInputError: if there is nothing to check, or it cannot be read.
    """
    found = find_logs(Path(location) for location in locations)
    violations: list[Violation] = []
    groups = _groups(found)
    counts = Counter[str](groups=len(groups))
    counts_of: dict[str, Counter[str]] = {}
    notes = [f"{path} has no events" for path in found.foreign]
    for name, logs in groups.items():
        definition = Definition(logs, group=name, live=live)
        merge = Merge(logs, definition, progress)
        merge.run()
        violations += definition.finish()
        counted = counts_of[name] = Counter(definition.counts)
        counted.update(definition.roll.counts)
        counted.update(definition.roll.views.counts)
        counted.update(
            events=merge.events,
            logs=len(logs),
            held=definition.messages.peak,
            torn=sum(log.torn for log in logs),
        )
        counts.update(counted)
        notes += _notes(name, definition)
    if counts["torn"]:
        notes.append(f"{counts['torn']} torn lines were skipped")
    return Checked(tuple(violations), counts, tuple(notes), groups, counts_of)


def _groups(found: FoundSegments) -> dict[str, list[SegmentedLog]]:
    """The logs of each group, by a name that tells it from the others."""
    groups: dict[str, list[SegmentedLog]] = {}
    for (name, run), together in found.groups.items():
        where = f" in {run}" if run else ""
        apart = founded_apart(together)
        for logs in apart:
            founded = f" of {logs[0].incarnation}" if len(apart) > 1 else ""
            groups[f"{name}{founded}{where}"] = logs
    return groups


def _notes(group: str, definition: Definition) -> list[str]:
    notes = []
    if absent := sorted(definition.absent()):
        notes.append(
            f"group {group}: no log of {', '.join(absent)}: their messages and deliveries are not "
            "checked"
        )
    if definition.counts["unstable"]:
        notes.append(
            f"group {group}: {definition.counts['unstable']:,} deliveries are not stable yet at "
            "the end of the logs"
        )
    return notes
