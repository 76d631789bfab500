"""How the types of the vector files map to ours: class, names of the operations, form of the value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crdtcast.causality.tags import Dot
from crdtcast.datatypes import (
    AWSet,
    BoundedCounter,
    DWFlag,
    EWFlag,
    GSet,
    LWWRegister,
    MVRegister,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    RWSet,
    TwoPhaseSet,
)


def _itself(value: Any) -> Any:
    return value


def _as_they_are(args: Sequence[Any]) -> tuple[Sequence[Any], int]:
    return args, 0


def _without_references(args: Sequence[Any], dots: Mapping[str, Dot]) -> Sequence[Any]:
    return args


def _last_is_the_time(args: Sequence[Any]) -> tuple[Sequence[Any], int]:
    *given, time_ms = args
    return given, time_ms


def sorted_list(value: Iterable[Any]) -> list[Any]:
    return sorted(value, key=lambda element: (type(element).__name__, element))


@dataclass(frozen=True, slots=True)
class VectorType:
    """How a type of the vector files maps to one of ours.

    operations: their name -> ours.
    show: turns our value into their form.
    arguments: turns theirs into ours and the wall clock, in milliseconds, of the issuing replica.
    resolve: turns arguments that name events into ours, with the dots of the events so far.
    """

    crdt: type[PureOpCRDT[Any]]
    operations: Mapping[str, str]
    show: Callable[[Any], Any] = _itself
    arguments: Callable[[Sequence[Any]], tuple[Sequence[Any], int]] = _as_they_are
    resolve: Callable[[Sequence[Any], Mapping[str, Dot]], Sequence[Any]] = _without_references


def _named(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


_ADD = _named("add", "add_all")
_ADD_REMOVE = _named("add", "add_all", "remove", "remove_all")
_DELTAS = {"inc": "increment", "dec": "decrement"}
_FLAG = _named("enable", "disable", "reset")

SIMPLE_TYPES: Final[Mapping[str, VectorType]] = {
    "set_aw": VectorType(AWSet, {**_ADD_REMOVE, "reset": "reset"}, sorted_list),
    "set_rw": VectorType(RWSet, {**_ADD_REMOVE, "reset": "reset"}, sorted_list),
    "set_go": VectorType(GSet, _ADD, sorted_list),
    "set_2p": VectorType(TwoPhaseSet, _ADD_REMOVE, sorted_list),
    "counter_fat": VectorType(ResettableCounter, {**_DELTAS, "reset": "reset"}),
    "counter_pn": VectorType(PNCounter, _DELTAS),
    "counter_b": VectorType(BoundedCounter, {**_DELTAS, "transfer": "transfer"}),
    # Their stored time, max(given, seen + 1), is what a hybrid clock makes of the given wall time.
    "register_lww": VectorType(LWWRegister, _named("assign"), _itself, _last_is_the_time),
    "register_mv": VectorType(MVRegister, _named("assign", "reset")),
    "flag_ew": VectorType(EWFlag, _FLAG),
    "flag_dw": VectorType(DWFlag, _FLAG),
}
