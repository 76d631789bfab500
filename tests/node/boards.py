"""A type in two versions, as an old and a new program have it; and a type that is new."""

from typing import Any, ClassVar

from crdtcast.datatypes import Arrival, Arrived, AWSet, Operation, ResettableCounter, text


class OldBoard(AWSet):
    """Notes on a board: put up, taken down."""

    TYPE: ClassVar[str] = "board_example"
    OPERATIONS = {  # noqa: RUF012
        "add": Operation(note=text),
        "remove": Operation(note=text),
    }


class NewBoard(OldBoard):
    """Notes can be rewritten; and the stable part is saved in another form."""

    VERSION = 2
    OPERATIONS = {  # noqa: RUF012
        **OldBoard.OPERATIONS,
        "rewrite": Operation(note=text, to=text),
    }

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "rewrite":
            old, new = operation.args
            return Arrival((old, new), ((new, None),))
        return super().arrival(operation)

    def dump_stable(self) -> Any:
        return {"notes": super().dump_stable()}

    def load_stable(self, dumped: Any, version: int) -> None:
        super().load_stable(dumped if version == 1 else dumped["notes"], version)


class Likes(ResettableCounter):
    """What old programs have never heard of."""

    TYPE: ClassVar[str] = "likes_example"
