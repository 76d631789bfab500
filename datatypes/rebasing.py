"""Operations of a replica that was evicted, sent again with their original meaning: a three-way comparison per object.

Sent again as they were, they would come after all that the group did meanwhile, and an old removal would erase writes
that it has never seen. So the returning node decides at home what to send instead; nothing extra travels.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple, TypeVar

from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import PureOpCRDT

C = TypeVar("C", bound=PureOpCRDT[Any])


class Rebased(NamedTuple):
    """An operation that the group does not have, and what is to be issued for it; nothing if it yields."""

    operation: list[Any]
    issued: list[list[Any]]


class _AllBefore(dict[str, int]):
    """The past of an operation that comes after everything."""

    def get(self, origin: str, default: Any = None) -> Any:
        return 1 << 62


def rebased(
    base: C, mine: Iterable[list[Any]], theirs: C, dots: Iterable[Dot] | None = None
) -> Iterator[Rebased]:
    """What to issue, behind `theirs`, for the operations `mine` of one object, in their order.

    base: the object at the node that comes back, without `mine`: as the group knew it (`PureOpCRDT.clone(until=…)`).
    dots: of their messages, for types whose operations name others. One operation is one message here.
    theirs: the object in the state that the node was given. Neither is changed. Each operation is judged by the type
    (`PureOpCRDT.rebase_behind`).
    """
    at_home, present = base.clone(), theirs.clone()
    past: Vector = _AllBefore()
    copies: dict[Dot, Dot] = {}

    def renamed(dot: Dot, index: int) -> tuple[Dot, int] | None:
        again = copies.get(dot)
        return None if again is None or index else (again, 0)

    named = (Dot("mine", number) for number in count(1)) if dots is None else dots
    for number, (operation, dot) in enumerate(zip(mine, named, strict=False), 1):
        former = Former(dot, 0, at_home, renamed)
        issued = type(base).rebase_behind(operation, base, theirs, at_home, present, former)
        at_home.effect(operation, Tag(dot, (), past))
        copies[dot] = Dot("again", number)
        for index, again in enumerate(issued):
            present.effect(again, Tag(Dot("again", number), (), past), index)
        yield Rebased(operation, issued)
