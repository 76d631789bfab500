"""A text that many replicas edit at once: a sequence of characters (crdtcast.datatypes.sequence)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from crdtcast.datatypes.identities import identity, run_of_identities
from crdtcast.datatypes.operations import Operation, integer, text
from crdtcast.datatypes.sequence import Positions, side_of_parent


class SharedText(Positions[str, str]):
    """A text: characters typed together, forwards or backwards, stay together.

    Operations: `insert(index, text)`, `delete(index, count=1)`, `reset()`; by identity `place(parent, side, text)`,
    `kill(runs)`. Indices count code points, as in Python.
    """

    TYPE: ClassVar[str] = "text"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "insert": Operation(
            "Insert a text before the character at an index, as list.insert takes indices.",
            index=integer,
            text=text,
            sent_as="place",
        ),
        "delete": Operation(
            "Delete the character at an index, or `count` of them.",
            index=integer,
            count=integer,
            defaults=(1,),
            sent_as="kill",
        ),
        "place": Operation(
            "Insert a text to the left or right of a character, or (None) at an end.",
            parent=identity,
            side=side_of_parent,
            text=text,
        ),
        "kill": Operation("Delete characters by their identities.", runs=run_of_identities),
        "reset": Operation("Delete all characters seen. Concurrent insertions survive."),
    }

    def load_stable(self, dumped: Any, version: int) -> None:
        super().load_stable(dumped, version)
        text("".join(self))

    @property
    def value(self) -> str:
        return "".join(self)
