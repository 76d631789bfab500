"""Actions and schedules: plain values that can be written to a file, read again and shrunk."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from crdtcast.exceptions import UnusableInputError

Action: TypeAlias = tuple[str | int, ...]
"""A verb and its arguments, see `GroupWorld.apply`. An impossible action does nothing."""

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One run of any world: the members' names, the actions, and the engine, `module:Class` (None: the real one)."""

    members: tuple[str, ...]
    actions: tuple[Action, ...] = ()
    seed: int | None = None
    engine: str | None = None

    def with_actions(self, actions: Sequence[Action]) -> Self:
        """The same run with other actions."""
        return replace(self, actions=tuple(actions))

    def to_json(self, failure: str | None = None) -> str:
        """One JSON document with one action a line.

        failure: what a replay ends in.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        actions = ",\n".join(f"  {json.dumps(action)}" for action in values.pop("actions"))
        head = {"format": FORMAT, **values, "failure": failure}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        return "\n".join(["{", *lines, ' "actions": [', actions, " ]", "}"]) + "\n"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `to_json` wrote. Raises UnusableInputError if it is not a schedule."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise UnusableInputError(
                    f"{path} has format {document['format']}; this program reads {FORMAT}"
                )
            known = {key: _frozen(value) for key, value in document.items()}
            del known["format"], known["failure"]
            return cls(**known)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableInputError(f"{path} is not a schedule: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSchedule(Schedule):
    """One run of a group whose members come and go: `members` found it, some as witnesses; one may be hostile.

    founding: whether the run starts before the group has begun.
    """

    witnesses: tuple[str, ...] = ()
    hostile: str | None = None
    founding: bool = False


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
