"""A map from members to exact scores, in the order of the scores, like a sorted set of Redis.

Each member is a number as in crdtcast.datatypes.numbers; a counted tree keeps the order.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import index as as_index
from typing import Any, ClassVar, cast

from crdtcast.datatypes.canonical import canonical, plain
from crdtcast.datatypes.differences import Difference, differences
from crdtcast.datatypes.numbers import NumberSlots, decimal, loaded, score
from crdtcast.datatypes.operations import Element, Operation, element, natural
from crdtcast.datatypes.ordered import CountedTree
from crdtcast.datatypes.polog import EVERYTHING, Everything
from crdtcast.datatypes.pure import SLIGHT
from crdtcast.short_repr import shown


class SortedMap(NumberSlots[list[tuple[Element, Decimal]]]):
    """Members with scores, lowest first. The last of concurrent assignments to a member wins, and increments count
    unless an assignment has seen them.

    Operations: `set(member, score)`, `increment(member, by=1)`, `remove(member)`, `reset()`. An increment of an absent
    member starts from 0; a removal removes what it has seen. Scores are exact decimals or an infinity, which increments
    do not change. Equal scores are ordered by member: bytes, then integers, then text. `set` ships a time; the others
    are pure.
    """

    TYPE: ClassVar[str] = "map_sorted"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "set": Operation(
            "Give a member a score. The last of concurrent ones wins.",
            member=element,
            score=score,
            ships=(natural,),
        ),
        "increment": Operation(
            "Add to a member's score, exactly. An absent member starts at 0.",
            member=element,
            by=decimal,
            defaults=(1,),
            additive=True,
        ),
        "remove": Operation("Remove a member. Concurrent operations survive.", member=element),
        "reset": Operation("Remove all members. Concurrent operations survive."),
    }

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._order: CountedTree[Hashable] = CountedTree()

    def slot_of(self, args: Sequence[Any]) -> Hashable:
        return cast(Hashable, args[0])

    def show(self, slot: Hashable, number: Decimal | None) -> None:
        present = self._numbers.get(slot)
        if present == number:
            return
        if present is not None:
            self._order.remove(*self._order.search(self._key(slot), self._key))
        super().show(slot, number)
        if number is not None:
            self._order.insert(*self._order.search(self._key(slot), self._key), slot)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING and not self.log:
            self._numbers.clear()
            self._order = CountedTree()
        else:
            super().clear_stable(slot)

    def _key(self, slot: Hashable) -> tuple[Decimal, str, Any]:
        return self._numbers[slot], type(slot).__name__, slot

    def differences(
        self, before: list[tuple[Element, Decimal]], after: list[tuple[Element, Decimal]]
    ) -> tuple[Difference, ...]:
        """Members as keys, scores as their values: the order follows from them."""
        return differences(dict(before), dict(after))

    @property
    def value(self) -> list[tuple[Element, Decimal]]:
        return list(self)

    @property
    def blank(self) -> bool:
        return not self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, member: object) -> bool:
        return member in self._numbers

    def __iter__(self) -> Iterator[tuple[Element, Decimal]]:
        """Members and scores, lowest score first."""
        for slot in self._order:
            yield cast(Element, slot), self._numbers[slot]

    def score(self, member: Element) -> Decimal | None:
        return self._numbers.get(member)

    def rank(self, member: Element) -> int | None:
        """The number of members before this one; None if it is absent. Logarithmic."""
        if member not in self._numbers:
            return None
        return self._order.rank(*self._order.search(self._key(member), self._key))

    def at(self, position: int) -> tuple[Element, Decimal]:
        """Member and score at a position, from the end if it is negative. Logarithmic. Raises IndexError if there is
        none.
        """
        index = as_index(position)
        index += len(self) if index < 0 else 0
        if not 0 <= index < len(self):
            raise IndexError(f"position {shown(position)} is outside a {self.TYPE} of {len(self)}")
        slot = self._order.at(index)
        return cast(Element, slot), self._numbers[slot]

    @property
    def slight(self) -> bool:
        return len(self._numbers) <= SLIGHT

    def dump_stable(self) -> Any:
        numbers = sorted(self._numbers.items(), key=lambda item: canonical(item[0]))
        return [[member, plain(number)] for member, number in numbers]

    def load_stable(self, dumped: Any, version: int) -> None:
        for member, number in dumped:
            self.show(element(member), loaded(number))
