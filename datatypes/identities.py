"""Identities of a sequence's elements, and runs of them: checked, listed, and joined."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from crdtcast.datatypes.operations import MAX_INTEGER
from crdtcast.short_repr import shown

Identity: TypeAlias = tuple[str, int, int, int]
"""Of an element: origin and counter of the message that inserted it, index of the operation in the message, and number
of the element in the operation.
"""

Run: TypeAlias = tuple[str, int, int, int, int]
"""Neighbours from one operation: origin, counter, index, number of the first, count."""

_LONGEST: Final = 2**24


def identity(value: Identity | None) -> list[Any] | None:
    """[origin, counter, index, number], or None for the beginning or end."""
    return None if value is None else identity_of_one(value)


def identity_of_one(value: Identity) -> list[Any]:
    """[origin, counter, index, number]."""
    _natural_numbers(value, 4)
    return list(value)


def run_of_identities(value: list[Run]) -> list[list[Any]]:
    """A list of [origin, counter, index, first number, count]."""
    if type(value) is not list:
        raise ValueError(f"a {type(value).__name__} is not a list of runs of identities")
    for run in value:
        _natural_numbers(run, 5)
        if run[4] > _LONGEST:
            raise ValueError(f"a run of {run[4]} identities is longer than {_LONGEST}")
    return [list(run) for run in value]


def _natural_numbers(value: Any, length: int) -> None:
    if (
        type(value) not in (list, tuple)
        or len(value) != length
        or type(value[0]) is not str
        or any(type(number) is not int or not 0 <= number <= MAX_INTEGER for number in value[1:])
    ):
        raise ValueError(f"{shown(value)} is not an identity of {length} parts")


def in_runs(name: Identity, runs: Iterable[Sequence[Any]]) -> bool:
    """Whether one of the runs names an element."""
    *insertion, number = name
    return any(run[:3] == insertion and run[3] <= number < sum(run[3:]) for run in runs)


def apart(runs: Sequence[list[Any]]) -> Iterator[list[Any]]:
    """The same identities in runs that do not overlap, so that identities named twice cost no more."""
    end: list[Any] = []
    for *insertion, first, count in sorted(runs) if len(runs) > 1 else runs:
        begin = max(first, end[3]) if end[:3] == insertion else first
        if first + count > begin:
            yield [*insertion, begin, first + count - begin]
            end = [*insertion, first + count]


def runs_of(names: Iterable[Identity]) -> list[list[Any]]:
    """Identities as runs: neighbours from one operation become one run."""
    runs: list[list[Any]] = []
    for origin, counter, index, number in names:
        if runs and runs[-1][:3] == [origin, counter, index] and number == sum(runs[-1][3:]):
            runs[-1][4] += 1
        else:
            runs.append([origin, counter, index, number, 1])
    return runs
