"""A node with a defect: `python broken.py WHICH SKEW_MS FLAG LIES JSON`, for `tests/chaos/test_broken.py`."""

import sys
from dataclasses import replace
from itertools import count

import msgpack

from crdtcast.causality.tags import Dot, Tag
from crdtcast.chaos.child import main
from crdtcast.journal import FileJournal, Recovered
from crdtcast.replica.object_machine import ObjectMachine


def drop() -> None:
    """Every 50th message of another member is not applied."""
    right, number = ObjectMachine.tcdeliver, count(1)

    def tcdeliver(self: ObjectMachine, payload: bytes, tag: Tag) -> None:
        mine = tag.dot.origin.startswith(f"{self.name}.")
        if mine or next(number) % 50:
            right(self, payload, tag)

    ObjectMachine.tcdeliver = tcdeliver  # type: ignore[method-assign]


def twice() -> None:
    """What is sent again after an eviction counts twice."""
    right = ObjectMachine.reissue

    def reissue(self: ObjectMachine, payload: bytes, dot: Dot) -> bytes | None:
        again = right(self, payload, dot)
        if again is None:
            return None
        kind, entries, *_ = msgpack.unpackb(again)
        packed: bytes = msgpack.packb([kind, entries + entries])
        return packed

    ObjectMachine.reissue = reissue  # type: ignore[method-assign]


def forget() -> None:
    """Nothing is sent again after an eviction."""
    ObjectMachine.reissue = lambda self, payload, dot: None  # type: ignore[method-assign]


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
