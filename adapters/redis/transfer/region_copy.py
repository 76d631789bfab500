"""A giver's copy of all its keys for one joiner: what to read next, while clients write.

Small keys are read together, and again if they were written; large ones in pages, and again slot by slot (`key_pages`).
When little is left to read again, or after some rounds, the rest is read at one instant, that of the admission. So the
size of that read is bounded: by what clients write during a round, plus one value for each key that is replaced as a
whole all the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from crdtcast.adapters.redis.ops.recorder import Read
from crdtcast.adapters.redis.server.own_reads import at_once
from crdtcast.adapters.redis.server.sizes import Weight, steps_to_weigh
from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.adapters.redis.store.databases import BEGIN, END, home_of, scanning
from crdtcast.adapters.redis.store.effects import Effect, KillAll, RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.transfer.key_pages import KeyPages, Rows
from crdtcast.adapters.redis.transfer.row_reads import Subject, reading
from crdtcast.adapters.redis.types.native import PAGE_BYTES, NativeType
from crdtcast.exceptions import ServerError

_SLICE_KEYS = 1000
_FEW_KEYS = 500
"""Up to this many keys may be left for the admission itself, if they weigh no more than a page."""
_ROUNDS = 5
"""Rounds over keys that change while they are copied; if much is left after them, the admission takes longer."""


class RegionCopy:
    """The copy of one keyspace's server."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.is_flushed: bool = False
        """All keys of a database were removed after some had been read: it is unknown which of them the joiner has."""
        self._keyspace = keyspace
        self._cursor: bytes | None = BEGIN
        """Cursor of the scan; None when that is over."""
        self._dirty: set[bytes] = set(keyspace.dates.orphans)
        """Keys to read as a whole, or from their beginning: written since the joiner came, and not in `_pages`."""
        self._round: list[bytes] = []
        self._names: deque[tuple[bytes, Weight]] = deque()
        """Keys to read next, with their estimated weight."""
        self._pages: dict[bytes, KeyPages] = {}
        """Large keys that are being read, or have been."""
        self._under_way: deque[KeyPages] = deque()
        """Those being read now, one after the other."""
        self._rounds = 0
        self._is_little = False
        self._went: set[bytes] = set()
        """Keys sent with an admission that may have failed."""

    @property
    def is_enough(self) -> bool:
        """Whether the rest may be read with the admission."""
        is_few = len(self._dirty) <= _FEW_KEYS or self._rounds >= _ROUNDS
        return self._is_little and is_few

    def touched(self, effects: Iterable[Effect], repaired: Iterable[bytes] = ()) -> None:
        """These effects were committed. repaired: keys that were repaired."""
        for effect in effects:
            if isinstance(effect, KillAll):
                self.is_flushed = True
            elif (pages := self._pages.get(effect.key)) is None:
                self._dirty.add(effect.key)
            else:
                pages.touched((effect,))
                if pages.is_stale or pages.hides != self._hidden(effect.key):
                    self._give_up(pages)
        for key in repaired:
            if (pages := self._pages.get(key)) is not None:
                self._give_up(pages)
            self._dirty.add(key)

    def take_back(self) -> None:
        """An admission has failed: its keys must be read again."""
        self._dirty |= self._went
        self._went = set()
        for pages in self._pages.values():
            pages.take_back()

    def steps(self) -> Steps[Rows]:
        """Read the next slice: some small keys, or a page of a large one."""
        rows: Rows = []
        if not self._under_way and not self._names:
            yield from self._find()
        if not self._under_way and (names := self._some_names()):
            rows = yield from reading(list(map(Subject, names)), self._keyspace)
        elif self._under_way:
            pages = self._under_way[0]
            rows = yield from pages.steps()
            if pages.is_stale:
                self._give_up(pages)
            elif not pages.has_more:
                self._under_way.remove(pages)
        self._is_little = yield from self._weigh_rest()
        return rows

    def _find(self) -> Steps[None]:
        if self._cursor is not None:
            databases = self._keyspace.databases
            try:
                cursor, found = yield from scanning(databases, self._cursor, _SLICE_KEYS)
                while not found and cursor != END:  # an empty database
                    cursor, found = yield from scanning(databases, cursor, _SLICE_KEYS)
            except TypeError as error:
                raise ServerError(str(error)) from error
            self._cursor = None if cursor == END else cursor
            kept = self._keyspace.left_out.kept(found)
            names = [name for name in kept if name not in self._pages]
        else:
            if not self._round:
                self._begin_round()
            names, self._round = self._round[:_SLICE_KEYS], self._round[_SLICE_KEYS:]
        weights = yield from steps_to_weigh(names)
        self._names.extend(zip(names, weights, strict=True))

    def _begin_round(self) -> None:
        self._round, self._dirty = sorted(self._dirty), set()
        for pages in self._pages.values():
            pages.begin_round()
            if pages.has_more:
                self._under_way.append(pages)
        self._rounds += 1

    def _some_names(self) -> list[bytes]:
        """The next keys, as many as fit a slice; none if the next one is large: it is started."""
        some: list[bytes] = []
        room = PAGE_BYTES
        while self._names:
            name, (native, weight) = self._names[0]
            if native is not None and (weight > PAGE_BYTES or name in self._keyspace.hidden):
                if not some:
                    self._names.popleft()
                    self._begin(name, native)
                break
            if some and weight > room:
                break
            some.append(name)
            self._names.popleft()
            room -= weight
        return some

    def _begin(self, key: bytes, native: type[NativeType]) -> None:
        if key in self._pages:
            return  # SCAN has returned it twice
        if native.type in self._hidden(key):
            self._dirty.add(key)  # another type has come since it was weighed
            return
        homes = {native.type: home_of(key)}
        for type_ in sorted(self._hidden(key)):
            homes[type_] = self._keyspace.place_of(key, type_)
        self._dirty.discard(key)
        self._pages[key] = pages = KeyPages(key, homes, self._keyspace)
        self._under_way.append(pages)

    def _give_up(self, pages: KeyPages) -> None:
        pages.is_stale = True
        if self._pages.pop(pages.key, None) is not None:
            self._dirty.add(pages.key)
        if pages in self._under_way:
            self._under_way.remove(pages)

    def _weigh_rest(self) -> Steps[bool]:
        """Whether little is left."""
        if self._cursor is not None or self._round or self._names or self._under_way:
            return False
        if self._rounds >= _ROUNDS:
            return True
        if len(self._dirty) > _FEW_KEYS:
            return False
        weight = sum(pages.open_bytes for pages in self._pages.values())
        weights = yield from steps_to_weigh(sorted(self._dirty))
        return weight + sum(each for _, each in weights) <= PAGE_BYTES

    def closing(self) -> tuple[list[Read], Rows]:
        """Reads of the rest, at one instant, and the list that receives their rows."""
        rows: Rows = []
        self._went |= self._dirty
        self._dirty = set()
        subjects = [*map(Subject, sorted(self._went))]
        subjects += [pages.closing() for pages in self._pages.values()]
        return list(at_once(reading(subjects, self._keyspace), rows.extend)), rows

    def _hidden(self, key: bytes) -> frozenset[RedisType]:
        return frozenset(self._keyspace.hidden.get(key, ()))
