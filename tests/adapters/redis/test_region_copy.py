"""A region is copied in slices and pages while it is written: at random schedules, and with faults that are planted."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from crdtcast.adapters.redis.store import contents, value_pages
from crdtcast.adapters.redis.store.databases import Home, key_of
from crdtcast.adapters.redis.store.effects import Effect, KillKey, KillSlots, One, RedisType, Reg
from crdtcast.adapters.redis.transfer import key_pages, region_copy, row_reads
from crdtcast.adapters.redis.transfer.key_pages import KeyPages
from crdtcast.adapters.redis.transfer.region_copy import RegionCopy
from crdtcast.adapters.redis.types import strings
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import BEGINNING
from tests.adapters.redis.copy_support import CopyFailureError, Region, run, take
from tests.effort import search, seeds


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has few slots here, and few keys may be left for the end."""
    for module in (key_pages, region_copy, strings, value_pages):
        monkeypatch.setattr(module, "PAGE_BYTES", 24)
    for module in (key_pages, value_pages):
        monkeypatch.setattr(module, "MOST_SLOTS", 4)
    monkeypatch.setattr(key_pages, "LARGE_SLOT", 12)


def test_copy_equals_its_source_under_writes() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(300):
        counts.update(run(seed))
    for what in ("hidden", "taken back", "drop", "until", "replace", "2 rows"):
        assert counts[what], counts


def test_slots_added_to_a_key_of_one_large_slot_come_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_pages, "MOST_SLOTS", 1_000)
    for module in (key_pages, region_copy, value_pages):
        monkeypatch.setattr(module, "PAGE_BYTES", 4_000)
    region = Region(Random(0))
    region.server.call(b"SADD", b"s", b"x" * 4_000)
    pages = KeyPages(b"s", {RedisType.SET: Home(b"s", b"s", 0)}, region.keyspace)
    reads = 0
    while pages.has_more or reads == 0:
        take(pages.steps(), region)
        reads += 1
    slots = tuple(b"%d" % number for number in range(5_000))
    region.server.call(b"SADD", b"s", *slots)
    pages.touched([One(b"s", RedisType.SET, slots)])
    pages.begin_round()
    again = 0
    while pages.has_more:
        take(pages.steps(), region)
        again += 1
    assert again < 25  # not one by one


Plant = Callable[[pytest.MonkeyPatch], None]


def _slots_missed(*kinds: type[Effect]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = key_pages._slots_of
        patch.setattr(
            key_pages,
            "_slots_of",
            lambda effect: {} if isinstance(effect, kinds) else right(effect),
        )

    return plant


def _removals_not_carried(patch: pytest.MonkeyPatch) -> None:
    right = row_reads._part
    patch.setattr(row_reads, "_part", lambda *args: right(*args)._replace(gone={}))


def _deadline_not_carried(patch: pytest.MonkeyPatch) -> None:
    right = region_copy.reading

    def reading(*args: Any) -> Iterator[Any]:
        rows = yield from right(*args)
        return [
            row
            if row.part is None
            else replace(
                row, contents={t: c for t, c in row.contents.items() if t is not RedisType.DEADLINE}
            )
            for row in rows
        ]

    patch.setattr(region_copy, "reading", reading)


def _drop_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contents, "NOT_THERE", 0)


def _page_lost(patch: pytest.MonkeyPatch) -> None:
    right = KeyPages._page

    def page(self: KeyPages) -> Iterator[Any]:
        rows = yield from right(self)
        return rows if self._left else []

    patch.setattr(KeyPages, "_page", page)


def _cursor_restarted(patch: pytest.MonkeyPatch) -> None:
    right = KeyPages._page

    def page(self: KeyPages) -> Iterator[Any]:
        rows = yield from right(self)
        if self._left:
            self._left[0].following = BEGINNING
        return rows

    patch.setattr(KeyPages, "_page", page)


def _round_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyPages, "begin_round", lambda self: self._dirty.clear())


def _not_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyPages, "take_back", lambda self: None)


def _not_emptied_first(patch: pytest.MonkeyPatch) -> None:
    right = KeyPages.steps

    def steps(self: KeyPages) -> Iterator[Any]:
        rows = yield from right(self)
        return [row for row in rows if row.part is not None]

    patch.setattr(KeyPages, "steps", steps)


def _stale_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RegionCopy, "_give_up", lambda self, pages: None)


def _database_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region_copy, "home_of", lambda name: Home(name, key_of(name), 0))


def _digits_not_carried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactValues, "over", lambda self, key, type_, content: content)


FAULTS = {
    "digits of pages are not carried": _digits_not_carried,
    "pages are read from another database": _database_forgotten,
    "an added slot is not read again": _slots_missed(One),
    "a written slot is not read again": _slots_missed(Reg),
    "a removed slot is not read again": _slots_missed(KillSlots),
    "a removal is not carried": _removals_not_carried,
    "a removal of the key is missed": _slots_missed(KillKey),
    "a page is lost": _page_lost,
    "the cursor begins again": _cursor_restarted,
    "a round is forgotten": _round_forgotten,
    "a failed admission is not taken back": _not_taken_back,
    "what was there is not removed first": _not_emptied_first,
    "a stale copy is kept": _stale_kept,
    "the deadline is not carried": _deadline_not_carried,
    "a key that the server has dropped is kept": _drop_not_seen,
}


@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_of_a_copy_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in search(200):
        try:
            run(seed)
        except CopyFailureError:
            return
        except AssertionError:  # the stand-in for a server refuses what comes of it
            return
    pytest.fail("it is not found")
