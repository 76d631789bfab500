"""What an embedded replica leaves behind when it stops cleanly, and goes on from.

Rule: a file is used once. It is gone before the replica that has read it says anything to anybody,
since a second life from the same file would contradict what the first one has acknowledged.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from crdtcast.causality.member_id import name_of
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import EngineState
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.journal.atomic_file import replace_file, sync_directory
from crdtcast.journal.format import check_format

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """owner: whose rights the objects' operations spend (`crdtcast.datatypes.Site`); clock: the
    latest time stamp given; incarnation: the one that has stopped.
    """

    group: str
    incarnation: str
    owner: str
    clock: int
    engine: EngineState
    objects: list[Any]


def write(path: Path, saved: Saved) -> None:
    """Write the whole file or none, and through to the disk."""
    engine = saved.engine
    unstable = [
        [*m.dot, [list(dot) for dot in m.context], m.payload, m.kind] for m in engine.unstable
    ]
    packed = msgpack.packb(
        [
            _FORMAT,
            saved.group,
            saved.incarnation,
            saved.owner,
            saved.clock,
            engine.counter,
            dict(engine.vector),
            [list(dot) for dot in engine.context],
            dict(engine.stable),
            unstable,
            saved.objects,
        ]
    )
    replace_file(path, packed)


def read(path: Path, group: str, name: str) -> Saved | None:
    """What the file holds; None if there is none, as at a first start and after a crash.

    Raises UnusableInputError for a damaged file, ConfigurationError for another replica's, or a newer program's.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    saved = _read(path, raw)
    if saved.group != group or name_of(saved.incarnation) != name:
        raise ConfigurationError(
            f"{path} is the state of {saved.incarnation} in group {saved.group!r}, not of "
            f"{name!r} in {group!r}: give each replica a file of its own"
        )
    return saved


def consume(path: Path) -> None:
    """Remove the file, through to the disk."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def _read(path: Path, raw: bytes) -> Saved:
    try:
        version, *rest = msgpack.unpackb(raw)
        check_format(os.fspath(path), version, _FORMAT)
        if version != _FORMAT:
            raise ValueError(f"format {version}")
        group, incarnation, owner, clock, counter, vector, context, stable, unstable, held = rest
        engine = EngineState(
            counter=counter,
            vector=vector,
            context=tuple(Dot(*dot) for dot in context),
            stable=stable,
            unstable=tuple(
                Message(
                    Dot(origin, number), tuple(Dot(*dot) for dot in depended), payload, kind=kind
                )
                for origin, number, depended, payload, kind in unstable
            ),
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise UnusableInputError(
            f"{path} is no replica's state, or damaged ({error}): remove it to start with nothing"
        ) from error
    return Saved(group, incarnation, owner, clock, engine, held)
