"""What has changed from one value to another, in the terms of the value: what an observer is told."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import copysign
from typing import Any, Final, TypeAlias

_FINE: Final = 2_000
"""Longest run of a sequence in which single edits are looked for: the time for that grows with its square."""


@dataclass(frozen=True, slots=True)
class Added:
    """An element is in the set now."""

    element: Any


@dataclass(frozen=True, slots=True)
class Removed:
    """An element is in the set no more."""

    element: Any


@dataclass(frozen=True, slots=True)
class Assigned:
    """A key of the map has this value now."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A key is in the map no more."""

    key: Any


@dataclass(frozen=True, slots=True)
class Spliced:
    """`removed` items from `index` on were replaced by `inserted`, a list or text. Indices count what earlier splices
    of the same change have left, so they can be carried out one after the other.
    """

    index: int
    removed: int
    inserted: Any


@dataclass(frozen=True, slots=True)
class Became:
    """The whole value is another one."""

    value: Any


@dataclass(frozen=True, slots=True)
class Within:
    """The value at a key of the map has changed by these steps."""

    key: Any
    changes: "tuple[Difference, ...]"


Difference: TypeAlias = Added | Removed | Assigned | Unassigned | Spliced | Became | Within


def differences(before: Any, after: Any) -> tuple[Difference, ...]:
    """The steps from one value to the other; none if they are equal. Sets tell elements, maps keys, lists and texts
    positions, all others the new value.
    """
    if _same(before, after):
        return ()
    match before, after:
        case Set(), Set():
            gone, new = sorted(before - after, key=repr), sorted(after - before, key=repr)
            return (*map(Removed, gone), *map(Added, new))
        case Mapping(), Mapping():
            return tuple(_of_maps(before, after))
        case (str(), str()) | (list(), list()):
            return tuple(_of_sequences(before, after))
    return (Became(after),)


def whole(before: Any, after: Any) -> tuple[Difference, ...]:
    """The new value in one step; for types whose list or map is one thing, as concurrent values of a register."""
    return () if _same(before, after) else (Became(after),)


def _of_maps(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[Difference]:
    for key in before:
        if key not in after:
            yield Unassigned(key)
    for key, value in after.items():
        if key not in before or not _same(before[key], value):
            yield Assigned(key, value)


def _of_sequences(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Difference]:
    begin = _common(before, after)
    old, new = before[begin:], after[begin:]
    if same := _common(old, new, at_end=True):
        old, new = old[:-same], new[:-same]
    if not isinstance(before, str) or not old or not new or max(len(old), len(new)) > _FINE:
        yield Spliced(begin, len(old), new)
        return
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if kind != "equal":
            yield Spliced(begin + new_from, old_to - old_from, new[new_from:new_to])


def _common(one: Sequence[Any], other: Sequence[Any], *, at_end: bool = False) -> int:
    """The number of items with which both begin, or end. Compares slices: a text of a megabyte is soon read."""
    low, high = 0, min(len(one), len(other))  # so many are the same; no more than so many
    while low < high:
        middle = (low + high + 1) // 2
        if at_end:
            mine = one[len(one) - middle : len(one) - low]
            theirs = other[len(other) - middle : len(other) - low]
        else:
            mine, theirs = one[low:middle], other[low:middle]
        if _same(mine, theirs):
            low = middle
        else:
            high = middle - 1
    return low


def _same(one: Any, other: Any) -> bool:
    """Equal, and of one type, at every depth: `True` is no 1, and 0.0 no -0.0. NaN is NaN."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and copysign(1, one) == copysign(1, other)) or (
            one != one and other != other
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            key in other and _same(value, other[key]) for key, value in one.items()
        )
    return bool(one == other) or (one != one and other != other)
