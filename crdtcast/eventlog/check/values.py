"""Convergence: after the same operations an object has the same value everywhere.

Keeps a hash of each logged (object, cut), not the cut itself.
"""

from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b

from crdtcast.causality.tags import Vector
from crdtcast.eventlog.check.violations import LogPlace


@dataclass(frozen=True, slots=True)
class Parted:
    """The first place where an object has another value than most members with the same operations, and the first place
    of each other value."""

    object: str
    place: LogPlace
    others: tuple[LogPlace, ...]


class Values:
    """The values in STATE lines."""

    def __init__(self) -> None:
        self._first: dict[bytes, tuple[str, LogPlace, int]] = {}  # digest, where, how often
        # Only for digests that differ: the object, and digest -> the places that log it.
        self._parted: dict[bytes, tuple[str, defaultdict[str, list[LogPlace]]]] = {}

    def told(self, object: str, cut: Vector, digest: str, place: LogPlace) -> None:
        """After the operations under `cut`, `object` has a value with this digest."""
        key = blake2b(repr((object, sorted(cut.items()))).encode(), digest_size=16).digest()
        known = self._first.get(key)
        if known is None:
            self._first[key] = digest, place, 1
        elif key in self._parted:
            self._parted[key][1][digest].append(place)
        elif known[0] == digest:
            self._first[key] = digest, known[1], known[2] + 1
        else:
            told: defaultdict[str, list[LogPlace]] = defaultdict(list)
            told[known[0]] = [known[1]] * known[2]
            told[digest].append(place)
            self._parted[key] = object, told

    def parted(self) -> list[Parted]:
        """For each object with different values, the first cut where they differ and the rarest value there."""
        found: dict[str, Parted] = {}
        for object, told in self._parted.values():
            rarest, *others = sorted(told.values(), key=len)
            found.setdefault(
                object, Parted(object, rarest[0], tuple(places[0] for places in others))
            )
        return list(found.values())
