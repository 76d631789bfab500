"""Several runs of one group stored side by side. A log lies in one directory: if two directories hold different logs
of one incarnation, they are of different runs.
"""

from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from crdtcast.eventlog.check.reading import opened

Segments: TypeAlias = dict[str, list[tuple[int, Path]]]
"""Incarnation -> its files, with the `seq` of their first events."""

_PIECE = 1 << 16


def runs(segments: Segments) -> dict[str, Segments]:
    """Divide the files of one group's name into runs, by the directory in which they differ; "" if there is one run."""
    todo = [("", segments)]
    parted: dict[str, Segments] = {}
    while todo:
        label, present = todo.pop()
        top = next(filter(None, (_above(found) for _, found in sorted(present.items()))), None)
        if top is None:
            parted[label] = present
            continue
        below: dict[str, Segments] = {}
        for incarnation, found in present.items():
            for first, path in found:
                inside = path.parent.is_relative_to(top) and path.parent != top
                where = str(top / path.parent.relative_to(top).parts[0]) if inside else str(top)
                below.setdefault(where, {}).setdefault(incarnation, []).append((first, path))
        todo += below.items()
    return dict(sorted(parted.items()))


def _above(found: list[tuple[int, Path]]) -> Path | None:
    """The directory below which two logs of one incarnation lie apart; None if there is one log."""
    by_first: dict[int, Path] = {}
    for first, path in found:
        other = by_first.setdefault(first, path)
        if other.parent != path.parent and not _is_copy(other, path):
            both = zip(other.parent.parts, path.parent.parts, strict=False)
            return Path(*(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both)))
    return None


def _is_copy(one: Path, other: Path) -> bool:
    """Whether both have the same content, as far as the shorter one goes."""
    try:
        with opened(one) as first, opened(other) as second:
            while (here := first.read(_PIECE)) and (there := second.read(_PIECE)):
                size = min(len(here), len(there))
                if here[:size] != there[:size]:
                    return False
    except EOFError:  # a gzip file that ends too early
        pass
    return True
