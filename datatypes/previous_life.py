"""The known facts about a former life, in which a replica issued an operation that it sends again after an eviction."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from crdtcast.causality.tags import Dot

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Former(Generic[C]):
    """The known facts about a former life, for `PureOpCRDT.rebase_blind` and `rebase_behind`.

    dot, index: of the operation, as it was issued.
    home: the object at the end of that life, after all own operations, or, if known, before this one; None after a
        restart.
    renamed: returns dot and index under which an own operation was sent again, None if it was not.
    remembered: the result of `PureOpCRDT.remember` before the operation; None: nothing, or it is lost.
    noted: data that the type keeps for the next operations on the same object.
    """

    dot: Dot
    index: int
    home: C | None
    renamed: Callable[[Dot, int], tuple[Dot, int] | None]
    remembered: Any = None
    noted: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def unknown(cls) -> "Former[C]":
        """For an operation before which nothing was sent again."""
        return cls(Dot("", 0), 0, None, lambda dot, index: None)

    def within(self, key: Hashable, home: Any, remembered: Any = None) -> "Former[Any]":
        """The same for a value inside the object; `home` is that value there."""
        noted = self.noted.setdefault(key, {})
        return replace(self, home=home, remembered=remembered, noted=noted)
