"""A walk over the slots of one value, or over the bytes of a single slot, in pages of at most about `PAGE_BYTES`.

Clients may write the value meanwhile: slots that exist all the time are in at least one page, others may be.
"""

from __future__ import annotations

from crdtcast.adapters.redis.server.sizes import weighing, weight_of
from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.adapters.redis.store.databases import Home, in_home
from crdtcast.adapters.redis.types.native import BEGINNING, PAGE_BYTES, NativeType, Page

MOST_SLOTS = 10_000
"""Slots of a page: as many as one turn of the loop has time for."""


class ValuePages:
    """One walk.

    home: where the value is.
    start: where the first page begins.
    most: slots of a page.
    """

    def __init__(
        self,
        native: type[NativeType],
        home: Home,
        start: bytes = BEGINNING,
        most: int | None = None,
    ) -> None:
        self.native: type[NativeType] = native
        self.home: Home = home
        self.following: bytes | None = start
        """Where the next page begins; None after the last one."""
        self.slots: int = 0
        """Estimated slots of the next page; 0 before they were counted."""
        self.count: int = 0
        """Slots of the value when they were counted; for a single slot its bytes."""
        self._most = MOST_SLOTS if most is None else most

    def weigh(self) -> Steps[int]:
        """Find out how many slots fit in a page. Returns the approximate bytes per slot."""
        commands = [[self.native.size, self.home.key], weighing(self.home.key)]
        count, size = yield from in_home(self.home, commands)
        weight = weight_of(size)
        self.count = count if isinstance(count, int) else 0
        self.slots = self._bounded(PAGE_BYTES * self.count // max(weight, 1))
        return weight // max(self.count, 1)

    def page(self) -> Steps[Page | None]:
        """Read the next page. None if the value has another type now: the walk is over."""
        start = self.following
        assert start is not None
        if not self.slots:
            yield from self.weigh()
        words = self.native.page_reading(self.home.key, start, self.slots)
        (reply,) = yield from in_home(self.home, [words])
        page = self.native.page_of(start, reply)
        self.following = None if page is None else page.following
        if page is not None:
            size = sum(len(slot) + len(worth) for slot, worth in page.content.items())
            fitting = self.slots * PAGE_BYTES // max(size, 1)
            self.slots = self._bounded(min(fitting, 2 * self.slots))
        return page

    def _bounded(self, slots: int) -> int:
        return min(max(slots, 1), self._most)
