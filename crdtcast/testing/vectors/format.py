"""Vector files: expected values of CRDTs for operations with given causal relations, read and checked.

The format is number 1, described in the header of `crdt-vectors.yaml`. A vector without a level has the level `must`:
every correct implementation passes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import yaml

from crdtcast.exceptions import UnusableInputError

FORMAT: Final = 1
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if it is installed: ten times faster. Both read the same."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VectorEvent:
    """An operation of a vector. `past` holds the positions in the vector of all events that happened before it."""

    id: str
    replica: str
    op: str
    args: tuple[Any, ...]
    past: frozenset[int]
    rejected: bool


@dataclass(frozen=True, slots=True)
class View:
    """The value at a replica that has delivered the events at these positions, with their causes."""

    seen: frozenset[int]
    value: Any


@dataclass(frozen=True, slots=True)
class Vector:
    """One case: its events in a causal order, and the expected results."""

    id: str
    type: str
    level: str
    events: tuple[VectorEvent, ...]
    expect: Any
    views: tuple[View, ...]
    pure_log_size: int | None


def load(path: str) -> list[Vector]:
    """The vectors of a file. Raises UnusableInputError if it is not a valid vector file."""
    try:
        found = yaml.load(Path(path).read_bytes(), LOADER)
    except OSError as error:
        raise UnusableInputError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UnusableInputError(f"{path} is not valid YAML: {reason}") from error
    try:
        return parse(found)
    except UnusableInputError as error:
        raise UnusableInputError(f"{path} is not a usable vector file: {error}") from error


def parse(document: Any) -> list[Vector]:
    """The vectors of a file's content. Raises UnusableInputError, which names the vector and what is wrong with it."""
    top = _mapping(document, "the file")
    if top.get("format") != FORMAT:
        raise UnusableInputError(
            f"it has format {top.get('format')!r}; this program reads {FORMAT}"
        )
    vectors: list[Vector] = []
    known: set[str] = set()
    for number, entry in enumerate(_field(top, "vectors", list, "the file"), 1):
        where = f"vector number {number}"
        fields = _mapping(entry, where)
        vector = _vector(fields, f"vector {_field(fields, 'id', str, where)}")
        if vector.id in known:
            raise UnusableInputError(f"two vectors have the id {vector.id}")
        known.add(vector.id)
        vectors.append(vector)
    return vectors


def _vector(fields: Mapping[str, Any], where: str) -> Vector:
    events: list[VectorEvent] = []
    positions: dict[str, int] = {}
    latest: dict[str, int] = {}
    for number, entry in enumerate(_field(fields, "events", list, where), 1):
        event = _event(entry, f"{where}, event number {number}", events, positions, latest)
        if event.id in positions:
            raise UnusableInputError(f"{where} has two events with the id {event.id}")
        positions[event.id] = latest[event.replica] = len(events)
        events.append(event)
    if "expect" not in fields:
        raise UnusableInputError(f"{where} has no expectation")
    views = [
        _view(entry, f"{where}, views", events, positions)
        for entry in _field(fields, "views", list, where, default=[])
    ]
    return Vector(
        id=_field(fields, "id", str, where),
        type=_field(fields, "type", str, where),
        level=_field(fields, "level", str, where, default="must"),
        events=tuple(events),
        expect=fields["expect"],
        views=tuple(views),
        pure_log_size=_field(fields, "pure_log_size", int, where, default=None),
    )


def _event(
    entry: Any,
    where: str,
    earlier: Sequence[VectorEvent],
    positions: Mapping[str, int],
    latest: Mapping[str, int],
) -> VectorEvent:
    fields = _mapping(entry, where)
    replica = _field(fields, "replica", str, where)
    causes = _positions(_field(fields, "happens_after", list, where, default=[]), where, positions)
    if replica in latest:
        causes.append(latest[replica])
    return VectorEvent(
        id=_field(fields, "id", str, where),
        replica=replica,
        op=_field(fields, "op", str, where),
        args=tuple(_field(fields, "args", list, where, default=[])),
        past=_with_pasts(causes, earlier),
        rejected=_field(fields, "rejected", bool, where, default=False),
    )


def _view(
    entry: Any, where: str, events: Sequence[VectorEvent], positions: Mapping[str, int]
) -> View:
    fields = _mapping(entry, where)
    if "value" not in fields:
        raise UnusableInputError(f"{where}: a view without a value")
    seen = _positions(_field(fields, "seen", list, where), where, positions)
    return View(_with_pasts(seen, events), fields["value"])


def _positions(ids: Sequence[Any], where: str, positions: Mapping[str, int]) -> list[int]:
    for name in ids:
        if not isinstance(name, str) or name not in positions:
            raise UnusableInputError(f"{where} refers to {name!r}, which is not an earlier event")
    return [positions[name] for name in ids]


def _with_pasts(chosen: Sequence[int], events: Sequence[VectorEvent]) -> frozenset[int]:
    return frozenset(chosen).union(*(events[position].past for position in chosen))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UnusableInputError(f"{where} is not a mapping")
    return value


_REQUIRED: Final = object()


def _field(
    fields: Mapping[str, Any], name: str, kind: type[T], where: str, *, default: Any = _REQUIRED
) -> T:
    value = fields.get(name, default)
    if value is _REQUIRED:
        raise UnusableInputError(f"{where} has no {name}")
    if value is not default and type(value) is not kind:
        raise UnusableInputError(f"{where}: {name} is not a {kind.__name__}")
    return cast(T, value)
