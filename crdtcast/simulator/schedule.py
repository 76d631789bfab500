"""Actions and schedules: plain values that can be written to a file, read again and cut down."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crdtcast.engine import Durability
from crdtcast.exceptions import UnusableInputError

Action = tuple[str | int, ...]
"""A verb and what it concerns, see `World.apply`. What is impossible at its time does nothing."""

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: the members' names, how their journals work, the actions, and which engine (None: the real one).

    In a group whose members come and go (`dynamic`) the members are those that found it, some as witnesses, and one of
    them may be hostile. founding: whether it has not begun at first.
    """

    members: tuple[str, ...]
    durability: Durability
    actions: tuple[Action, ...]
    seed: int | None = None
    engine: str | None = None
    dynamic: bool = False
    witnesses: tuple[str, ...] = ()
    hostile: str | None = None
    founding: bool = False

    def with_actions(self, actions: Sequence[Action]) -> "Schedule":
        """The same run with other actions."""
        return replace(self, actions=tuple(actions))

    def to_json(self, failure: str | None = None) -> str:
        """One JSON document, an action a line. `failure` says what replaying it ends in."""
        head: dict[str, Any] = {
            "format": FORMAT,
            "seed": self.seed,
            "engine": self.engine,
            "members": list(self.members),
            "durability": self.durability.value,
            "dynamic": self.dynamic,
            "witnesses": list(self.witnesses),
            "hostile": self.hostile,
            "founding": self.founding,
            "failure": failure,
        }
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        actions = ",\n".join(f"  {json.dumps(list(action))}" for action in self.actions)
        return "\n".join(["{", *lines, ' "actions": [', actions, " ]", "}"]) + "\n"

    @classmethod
    def load(cls, path: Path) -> "Schedule":
        """Read a file that `to_json` wrote. Raises UnusableInputError if it is none."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise UnusableInputError(
                    f"{path} has format {document['format']}; this program reads {FORMAT}"
                )
            return cls(
                members=tuple(document["members"]),
                durability=Durability(document["durability"]),
                actions=tuple(tuple(action) for action in document["actions"]),
                seed=document["seed"],
                engine=document["engine"],
                dynamic=document.get("dynamic", False),
                witnesses=tuple(document.get("witnesses", ())),
                hostile=document.get("hostile"),
                founding=document.get("founding", False),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableInputError(f"{path} is not a schedule: {error}") from error
