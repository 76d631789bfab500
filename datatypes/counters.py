"""Counters. Resettable: Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data
Types", 2017, section 5.
"""

from collections.abc import Hashable
from typing import Any, ClassVar

from crdtcast.datatypes.operations import Operation, integer
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.pure import Arrival, Arrived, PureOpCRDT


class ResettableCounter(PureOpCRDT[int]):
    """A counter whose reset takes back exactly the deltas that it has seen; concurrent ones stay.

    Operations: `increment(by=1)`, `decrement(by=1)` with signed 64-bit integers, `reset()`. The
    value is exact and unbounded. Every delta stays in the log by itself until it is stable: only
    then has every reset to come seen it, so that folding it into one sum with the others is safe.
    Resets are never stored.
    """

    TYPE: ClassVar[str] = "counter_resettable"
    OPERATIONS = {  # noqa: RUF012
        "increment": Operation(integer, defaults=(1,)),
        "decrement": Operation(integer, defaults=(1,)),
        "reset": Operation(),
    }

    def __init__(self) -> None:
        super().__init__()
        self._stable = 0
        self._unstable = 0  # sum over the log, kept up so that reading is no scan

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "increment":
            return Arrival(leaves=((None, operation.args[0]),))
        if operation.name == "decrement":
            return Arrival(leaves=((None, -operation.args[0]),))
        return Arrival(EVERYTHING)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        self._stable = 0

    def entered(self, entry: Entry) -> None:
        self._unstable += entry.content

    def left(self, entry: Entry) -> None:
        self._unstable -= entry.content

    def stabilise(self, entry: Entry) -> None:
        self._stable += entry.content

    @property
    def value(self) -> int:
        return self._stable + self._unstable

    def dump_stable(self) -> Any:
        return hex(self._stable)  # a sum may outgrow msgpack's integers

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = int(dumped, 16)
