"""A node with a defect: `python broken.py WHICH SKEW_MS FLAG LIES JSON`, for `tests/chaos/test_broken.py`."""

import sys
from dataclasses import replace
from itertools import count

import msgpack

from crdtcast.causality.tags import Dot, Tag
from crdtcast.chaos.child import main
from crdtcast.journal import FileJournal, Recovered
from crdtcast.replica.object_machine import Shelf


def drop() -> None:
    """Every 50th message of another member is not applied."""
    right, number = Shelf.tcdeliver, count(1)

    def tcdeliver(self: Shelf, payload: bytes, tag: Tag) -> None:
        mine = tag.dot.origin.startswith(f"{self.name}.")
        if mine or next(number) % 50:
            right(self, payload, tag)

    Shelf.tcdeliver = tcdeliver  # type: ignore[method-assign]


def twice() -> None:
    """What is sent again after an eviction counts twice."""
    right = Shelf.reissue

    def reissue(self: Shelf, payload: bytes, dot: Dot) -> bytes | None:
        again = right(self, payload, dot)
        if again is None:
            return None
        kind, entries, *_ = msgpack.unpackb(again)
        packed: bytes = msgpack.packb([kind, entries + entries])
        return packed

    Shelf.reissue = reissue  # type: ignore[method-assign]


def forget() -> None:
    """Nothing is sent again after an eviction."""
    Shelf.reissue = lambda self, payload, dot: None  # type: ignore[method-assign]


def renew() -> None:
    """Whoever starts again does so as somebody new."""
    right = FileJournal.load

    def load(self: FileJournal) -> Recovered:
        found = right(self)
        return found if found.snapshot is None else replace(found, damage="planted")

    FileJournal.load = load  # type: ignore[method-assign]


if __name__ == "__main__":
    {"drop": drop, "twice": twice, "forget": forget, "renew": renew}[sys.argv.pop(1)]()
    sys.exit(main())
