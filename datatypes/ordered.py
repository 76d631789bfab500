"""A counted tree of blocks (Bayer and McCreight's B-tree, with counts instead of keys): position to item, item to
position, insertion and removal in logarithmic time, at about ten bytes per item.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 64
"""Most items of a block, and blocks of an inner node, before it is split."""


class Block:
    """A leaf holds items, an inner node holds blocks; `weight` is the number of counted items below."""

    __slots__ = ("inner", "items", "parent", "weight")

    def __init__(self, items: list[Any], inner: bool) -> None:
        self.parent: Block | None = None
        self.items: list[Any] = items
        self.inner: bool = inner
        self.weight: int = 0


class CountedTree(Generic[T]):
    """Items in a given order. Its length and its positions refer to the items that count."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = Block([], inner=False)

    def counts(self, item: T) -> bool:
        """Whether an item has a position."""
        return True

    def moved(self, item: T, leaf: Block) -> None:
        """`item` is in `leaf` from now on. For items that store their leaf."""

    def __len__(self) -> int:
        return self._root.weight

    def __iter__(self) -> Iterator[T]:
        """All items in order, including those that do not count."""
        stack: list[Iterator[Any]] = [iter([self._root])]
        while stack:
            block = next(stack[-1], None)
            if block is None:
                stack.pop()
            elif block.inner:
                stack.append(iter(block.items))
            else:
                yield from block.items

    def counted(self) -> Iterator[T]:
        """The items that count, in order; blocks without any are skipped."""
        stack = [self._root]
        while stack:
            block = stack.pop()
            if not block.weight:
                continue
            if block.inner:
                stack.extend(reversed(block.items))
            else:
                yield from (item for item in block.items if self.counts(item))

    def at(self, position: int) -> T:
        """The item at a position from 0 to the length less one."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        block = self._root
        while block.inner:
            for child in block.items:
                if position < child.weight:
                    block = child
                    break
                position -= child.weight
        # Usually all items count.
        if block.weight == len(block.items):
            counted = block.items
        else:
            counted = [item for item in block.items if self.counts(item)]
        found: T = counted[position]
        return found

    def rank(self, leaf: Block, offset: int) -> int:
        """The number of counted items before the item at an offset in a leaf."""
        all_count = leaf.weight == len(leaf.items)
        before = offset if all_count else sum(map(self.counts, leaf.items[:offset]))
        block = leaf
        while (parent := block.parent) is not None:
            for child in parent.items:
                if child is block:
                    break
                before += child.weight
            block = parent
        return before

    def before(self, leaf: Block, offset: int) -> Iterator[T]:
        """The items before an offset in a leaf, the nearest first, including those that do not count."""
        yield from reversed(leaf.items[:offset])
        block = leaf
        while (parent := block.parent) is not None:
            for child in reversed(parent.items[: parent.items.index(block)]):
                yield from _backwards(child)
            block = parent

    def ends(self) -> tuple[Block, Block]:
        """The first and the last leaf."""
        first = last = self._root
        while first.inner:
            first = first.items[0]
        while last.inner:
            last = last.items[-1]
        return first, last

    def search(self, key: Any, key_of: Callable[[T], Any]) -> tuple[Block, int]:
        """Leaf and offset of the first item whose key is not below `key`; the items must be in the order of their keys.
        The offset may be the length of the leaf.
        """

        def lowest(block: Block) -> Any:
            while block.inner:
                block = block.items[0]
            return key_of(block.items[0])

        block = self._root
        while block.inner:
            block = block.items[max(bisect_right(block.items, key, key=lowest) - 1, 0)]
        return block, bisect_left(block.items, key, key=key_of)

    def insert(self, leaf: Block, offset: int, item: T) -> None:
        leaf.items.insert(offset, item)
        self.moved(item, leaf)
        if self.counts(item):
            self.reweigh(leaf, 1)
        if len(leaf.items) > MOST:
            self._split(leaf)

    def remove(self, leaf: Block, offset: int) -> None:
        item = leaf.items.pop(offset)
        if self.counts(item):
            self.reweigh(leaf, -1)
        if len(leaf.items) < MOST // 4:
            self._shrink(leaf)

    def reweigh(self, leaf: Block, by: int) -> None:
        """Add `by`, which may be negative, to the number of counted items of a leaf."""
        block: Block | None = leaf
        while block is not None:
            block.weight += by
            block = block.parent

    def _split(self, block: Block) -> None:
        half = len(block.items) // 2
        right = Block(block.items[half:], block.inner)
        del block.items[half:]
        self._adopt(right, right.items)
        block.weight -= right.weight
        parent = block.parent
        if parent is None:
            parent = self._root = Block([block], inner=True)
            parent.weight = block.weight + right.weight
            block.parent = parent
        right.parent = parent
        parent.items.insert(parent.items.index(block) + 1, right)
        if len(parent.items) > MOST:
            self._split(parent)

    def _adopt(self, block: Block, items: list[Any]) -> None:
        """Make `block` the parent of `items`, which are in it now, and add their count."""
        for item in items:
            if block.inner:
                item.parent = block
                block.weight += item.weight
            else:
                self.moved(item, block)
                block.weight += self.counts(item)

    def _shrink(self, block: Block) -> None:
        """Join a block that has become small with a small neighbour; remove an empty one."""
        parent = block.parent
        if parent is None:
            if block.inner and len(block.items) == 1:
                self._root = block.items[0]
                self._root.parent = None
                self._shrink(self._root)
            return
        place = parent.items.index(block)
        if not block.items:
            del parent.items[place]
        else:
            place = max(place - 1, 0)
            if place + 1 == len(parent.items):
                return
            left, right = parent.items[place : place + 2]
            if len(left.items) + len(right.items) > MOST // 2:
                return
            left.items.extend(right.items)
            self._adopt(left, right.items)
            del parent.items[place + 1]
        if len(parent.items) < MOST // 4:
            self._shrink(parent)


def _backwards(block: Block) -> Iterator[Any]:
    for item in reversed(block.items):
        if block.inner:
            yield from _backwards(item)
        else:
            yield item
