"""A type of the catalogue with what is needed to check it: which operations, and what they are to
mean.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from crdtcast.causality.tags import Tag
from crdtcast.datatypes import Operation, PureOpCRDT
from crdtcast.testing import VisibleOperation, check_crdt, weighted
from crdtcast.testing.crdt_check import Specification


class Case(NamedTuple):
    """calls: a few operations for every causal order of small cases. forgotten: the specification
    with operations `forget` among the visible ones, where the usual one does not do.
    """

    crdt: type[PureOpCRDT[Any]]
    operations: st.SearchStrategy[Any]
    specification: Specification
    calls: Sequence[Sequence[Any]]
    forgotten: Specification | None = None

    def remembered(self, visible: Sequence[VisibleOperation]) -> Any:
        """A container's reset is the type's own; without one, what it has seen counts for nothing,
        and the rest as ever.
        """
        if self.forgotten is not None:
            return self.forgotten(visible)
        reset = self.crdt.OPERATIONS.get("reset")
        if reset is None:
            return self.specification(not_forgotten(visible))
        name = reset.sent_as or "reset"
        return self.specification(
            [
                VisibleOperation(name, (), operation.tag, operation.index, operation.sent)
                if operation.name == "forget"
                else operation
                for operation in visible
            ]
        )


def not_forgotten(visible: Sequence[VisibleOperation]) -> list[VisibleOperation]:
    forgets = [operation for operation in visible if operation.name == "forget"]
    return [
        operation
        for operation in visible
        if operation not in forgets and not any(operation < forget for forget in forgets)
    ]


def of(crdt: type[PureOpCRDT[Any]], cases: Sequence[Case]) -> Case:
    """The case of a type, or of the one that a mutant is made of."""
    return next(case for parent in crdt.__mro__ for case in cases if case.crdt is parent)


def check_forgetting(
    case: Case, *, examples: int, seed: int = 3, shrink: bool = True, **options: Any
) -> None:
    """The reset that a container gives to what it holds, as an operation that the kit can issue."""

    class Forgetting(case.crdt):  # type: ignore[name-defined,misc]
        OPERATIONS = {**case.crdt.OPERATIONS, "forget": Operation()}  # noqa: RUF012

        def effect(
            self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
        ) -> None:
            if operation[0] == "forget":
                self.forget(tag, index)
            else:
                super().effect(operation, tag, index, version)

        def check_arriving(self, operation: Sequence[Any], version: int | None = None) -> None:
            if operation[0] != "forget":
                super().check_arriving(operation, version)

        def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
            if name == "forget":
                return [name]
            known = [earlier for earlier in after if earlier[0] != "forget"]
            prepared: list[Any] = super().prepare(name, *args, after=known)
            return prepared

        def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
            compressed: list[list[Any]] = []
            since: list[list[Any]] = []
            for operation in operations:
                if operation[0] == "forget":
                    compressed += [*super().compress(since), operation]
                    since = []
                else:
                    since.append(operation)
            return compressed + super().compress(since)

    Forgetting.__name__ = f"{case.crdt.__name__}Forgetting"
    check_crdt(
        Forgetting,
        weighted((5, case.operations), (1, st.just(("forget",)))),
        case.remembered,
        examples=examples,
        seed=seed,
        shrink=shrink,
        **options,
    )
