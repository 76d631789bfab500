"""Snapshots of a CRDT: versioned msgpack of the stable part and of the PO-Log with its tags.

The log is written in a canonical order, so equal states give equal bytes; a restored log is in causal order per origin,
and needs no more. A tag's reduced context is not kept: only the engine needs it.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgpack

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.polog import Entry, POLog
from crdtcast.exceptions import UnusableInputError
from crdtcast.short_repr import shown

FORMAT: Final = 1
"""Version of the envelope; the stable part has its type's version."""


class Taken(NamedTuple):
    version: int
    stable: Any
    entries: list[Entry]


def pack(type_name: str, version: int, stable: Any, log: POLog) -> bytes:
    """[format, type, version, stable part, {origin: [[counter, past, [[index, slot, content], ...]], ...]}]."""
    messages: dict[Dot, tuple[Tag, list[Entry]]] = {}
    for entry in log:
        messages.setdefault(entry.tag.dot, (entry.tag, []))[1].append(entry)
    origins: dict[str, list[Any]] = {}
    for dot in sorted(messages):
        tag, entries = messages[dot]
        entries.sort(key=lambda entry: (entry.index, canonical(entry.slot)))
        past = dict(sorted(tag.past.items()))
        written = [[entry.index, _written(entry.slot), entry.content] for entry in entries]
        origins.setdefault(dot.origin, []).append([dot.counter, past, written])
    try:
        packed: bytes = msgpack.packb([FORMAT, type_name, version, stable, origins])
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"cannot write the state of this {type_name}: {error}: make dump_stable, slots and "
            "contents of what `exact` accepts"
        ) from error
    return packed


def unpack(snapshot: bytes, type_name: str, version: int) -> Taken:
    """The inverse of `pack`. Raises UnusableInputError if the snapshot is damaged, of another type, or of a version
    above `version`.
    """
    with reading(type_name):
        found_format, found_type, found_version, stable, origins = msgpack.unpackb(snapshot)
        if found_type != type_name:
            raise ValueError(f"it is a snapshot of a {shown(found_type)}")
        if found_format > FORMAT or found_version > version:
            raise ValueError(
                f"it has format {found_format}, version {found_version}; this program reads up to "
                f"{FORMAT}, {version}: upgrade it"
            )
        entries: list[Entry] = []
        for origin, messages in origins.items():
            previous = 0
            for counter, past, written in messages:
                if counter <= previous or not (_is_vector({origin: counter}) and _is_vector(past)):
                    raise ValueError(f"the messages of {shown(origin)} are out of order")
                previous = counter
                tag = Tag(Dot(origin, counter), (), past)
                entries.extend(
                    Entry(tag, index, _read(slot), content) for index, slot, content in written
                )
    return Taken(found_version, stable, entries)


@contextmanager
def reading(type_name: str) -> Iterator[None]:
    """Turn any error of Python from a damaged snapshot into one clear error."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        AttributeError,
        msgpack.UnpackException,
    ) as error:
        raise UnusableInputError(
            f"cannot restore a {type_name} from this snapshot: {error}"
        ) from error


def _is_vector(past: Any) -> bool:
    return (
        isinstance(past, dict)
        and set(map(type, past)) <= {str}
        and set(map(type, past.values())) <= {int}
    )


def _written(slot: Hashable) -> Any:
    return [_written(part) for part in slot] if isinstance(slot, tuple) else slot


def _read(slot: Any) -> Hashable:
    return tuple(_read(part) for part in slot) if isinstance(slot, list) else slot
