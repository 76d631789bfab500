"""Issues operations of an evicted replica again with their original meaning: a three-way comparison per object.

Sent unchanged, they would come after all that the group did meanwhile, and an old removal would erase writes that it
has never seen. So the returning node decides locally what to send instead; no extra data is sent.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple, TypeVar

from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import PureOpCRDT

C = TypeVar("C", bound=PureOpCRDT[Any])


class Rebased(NamedTuple):
    """An operation that the group does not have, and what to issue for it; empty if it yields."""

    operation: list[Any]
    issued: list[list[Any]]


class _AllBefore(dict[str, int]):
    """The past of an operation that comes after everything else."""

    def get(self, origin: str, default: Any = None) -> Any:
        return 1 << 62


def rebased(
    base: C, mine: Iterable[list[Any]], theirs: C, dots: Iterable[Dot] | None = None
) -> Iterator[Rebased]:
    """What to issue, after `theirs`, for the operations `mine` of one object, in their order. The type decides for each
    operation (`PureOpCRDT.rebase_behind`).

    base: the object at the returning node without `mine`, as the group knew it (`PureOpCRDT.clone(until=…)`).
    theirs: the object in the state that the node has received. Neither is changed.
    dots: of the messages of `mine`, for types whose operations name others. Each operation is one message.
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
