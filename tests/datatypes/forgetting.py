"""The reset that a container gives to what it holds, as an operation that the kit can issue."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from crdtcast.datatypes import EVERYTHING, Arrival, Arrived, Operation, PureOpCRDT
from crdtcast.testing import VisibleOperation, check_crdt, weighted
from crdtcast.testing.harness import Specification


def check_forgetting(
    crdt: type[PureOpCRDT[Any]],
    operations: st.SearchStrategy[Any],
    specification: Specification,
    *,
    examples: int,
    shrink: bool = True,
) -> None:
    """What a reset has seen counts for nothing, and the rest as ever: true of every type."""

    def arrival(self: PureOpCRDT[Any], operation: Arrived) -> Arrival:
        if operation.name == "forget":
            return Arrival(EVERYTHING)
        return crdt.arrival(self, operation)

    def permit(
        self: PureOpCRDT[Any], name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]
    ) -> None:
        if name != "forget":
            crdt.permit(self, name, args, [earlier for earlier in after if earlier[0] != "forget"])

    def remembered(visible: Sequence[VisibleOperation]) -> Any:
        resets = [operation for operation in visible if operation.name == "forget"]
        return specification(
            [
                operation
                for operation in visible
                if operation.name != "forget" and not any(operation < reset for reset in resets)
            ]
        )

    forgetting = type(
        f"{crdt.__name__}Forgetting",
        (crdt,),
        {
            "OPERATIONS": {**crdt.OPERATIONS, "forget": Operation()},
            "arrival": arrival,
            "permit": permit,
        },
    )
    check_crdt(
        forgetting,
        weighted((5, operations), (1, st.just(("forget",)))),
        remembered,
        examples=examples,
        seed=3,
        shrink=shrink,
    )
