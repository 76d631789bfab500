"""Text that many edit at once: a sequence of characters (crdtcast.datatypes.sequence)."""

from typing import Any, ClassVar

from crdtcast.datatypes.identities import identity, run_of_identities
from crdtcast.datatypes.operations import Operation, integer, text
from crdtcast.datatypes.sequence import Positions, side_of_parent


class SharedText(Positions[str]):
    """A text: what somebody types in one go, forwards or backwards, stays together.

    Operations: `insert(index, text)`, `delete(index, count=1)`, `reset()`; by identity
    `place(parent, "L" or "R", text)`, `kill(runs)`. Indices count code points, as in Python.
    """

    TYPE: ClassVar[str] = "text"
    OPERATIONS = {  # noqa: RUF012
        "insert": Operation(integer, text, sent_as="place"),
        "delete": Operation(integer, integer, defaults=(1,), sent_as="kill"),
        "place": Operation(identity, side_of_parent, text),
        "kill": Operation(run_of_identities),
        "reset": Operation(),
    }

    def load_stable(self, dumped: Any, version: int) -> None:
        super().load_stable(dumped, version)
        text("".join(self))

    @property
    def value(self) -> str:
        return "".join(self)
