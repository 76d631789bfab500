"""The whole check, without a screen: find the logs, merge each group's, judge."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from crdtcast.logcheck.definition import Definition
from crdtcast.logcheck.merge import Merge
from crdtcast.logcheck.segments import Log, find_logs
from crdtcast.logcheck.violations import Violation


@dataclass(frozen=True, slots=True)
class Checked:
    """What came out. `violations` are in the order of the merged events, the first 100 of each
    group; `counts` has all of them, and what was read. `notes` say what could not be judged."""

    violations: tuple[Violation, ...]
    counts: Counter[str]
    notes: tuple[str, ...]
    groups: dict[str, list[Log]]


def check_logs(
    locations: Iterable[Path | str],
    *,
    live: bool = False,
    progress: Callable[[int], object] = lambda events: None,
) -> Checked:
    """Check all logs in these files and directories.

    :param live: they are still being written: their ends are not judged.
    :param progress: called every now and then with the number of events read of the group.
    :raises UnusableInputError: there is nothing to check, or it cannot be read.
    """
    found = find_logs(Path(location) for location in locations)
    violations: list[Violation] = []
    counts = Counter[str](groups=len(found.groups))
    notes = [f"{path} holds no events" for path in found.foreign]
    for name, logs in found.groups.items():
        definition = Definition(logs, live=live)
        merge = Merge(logs, definition, progress)
        merge.run()
        violations += definition.finish()
        counts.update(definition.counts)
        counts.update(definition.roll.counts)
        counts.update(
            events=merge.events,
            logs=len(logs),
            held=definition.messages.peak,
            torn=sum(log.torn for log in logs),
        )
        notes += _notes(name, definition)
    if counts["torn"]:
        notes.append(f"{counts['torn']} torn lines were skipped")
    return Checked(tuple(violations), counts, tuple(notes), found.groups)


def _notes(group: str, definition: Definition) -> list[str]:
    notes = []
    if absent := sorted(definition.absent()):
        notes.append(
            f"group {group}: no log of {', '.join(absent)}: what they sent and delivered "
            "is not judged"
        )
    if definition.counts["unstable"]:
        notes.append(
            f"group {group}: at the end {definition.counts['unstable']} deliveries are not stable "
            "yet, and no log says otherwise"
        )
    return notes
