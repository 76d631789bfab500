"""Every type of the catalogue on a replica: written, batched, journaled, deleted, gone."""

from typing import Any

import pytest
import trio

from crdtcast import InvalidOperationError, open_replica
from crdtcast.datatypes import BoundedCounter
from crdtcast.journal import MemoryJournal
from crdtcast.replica.objects import known_types

from .replica_support import level, replicas, settle

CALLS: dict[str, tuple[Any, ...]] = {
    "counter_b": ("increment", 5),
    "counter_go": ("increment",),
    "counter_pn": ("decrement", 2),
    "counter_resettable": ("increment", 3),
    "flag_dw": ("enable",),
    "flag_ew": ("enable",),
    "map_aw": ("update", "k", "map_aw", ["update", "l", "sequence", ["insert", 0, "x"]]),
    "map_go": ("update", "k", "counter_pn", ["increment", 1]),
    "map_sorted": ("set", "m", 2),
    "number": ("set", 7),
    "register_lww": ("assign", "x"),
    "register_mv": ("assign", ["x", 1]),
    "sequence": ("insert", 0, "x"),
    "set_2p": ("add", "x"),
    "set_aw": ("add", "x"),
    "set_go": ("add", "x"),
    "set_rw": ("add", "x"),
    "text": ("insert", 0, "hello"),
}


def test_every_type_lives_and_goes_on_a_replica() -> None:
    types = known_types()
    assert set(CALLS) == set(types)

    async def main() -> None:
        async with replicas() as group:
            eu, us, asia = group
            with eu.batch() as batch:
                for name, (operation, *args) in CALLS.items():
                    batch.object(name, types[name]).perform(operation, *args)
            await level(group)
            for name, (operation, *args) in CALLS.items():
                await us.object(name, types[name]).perform(operation, *args)
            await settle(group)
            assert [info.name for info in asia.objects()] == sorted(CALLS)
            assert all(info.unstable == info.unknown == 0 for info in asia.objects())
            assert len({replica.snapshot().digest for replica in group}) == 1
            for name in CALLS:
                await asia.delete(name)
            await level(group)
            assert all(replica.objects() == [] for replica in group)
            await settle(group)
            for replica in group:
                # The keys of a grow-only map only come, whatever becomes of their values.
                assert [held.key[1] for held in replica.held._all()] == ["map_go"]
                assert replica.held.crdt(("map_go", "map_go")).log_size == 0
                assert not replica.held.touched
                assert replica.unreadable == 0

    trio.run(main)


def test_a_journal_keeps_every_type_and_the_rights() -> None:
    types, journal = known_types(), MemoryJournal()

    async def main() -> None:
        async with open_replica("a", found=True, journal=journal) as first:
            for name, (operation, *args) in CALLS.items():
                await first.object(name, types[name]).perform(operation, *args)
            before = first.snapshot()
            await first.wait_durable()
        async with open_replica("a", journal=journal) as second:
            assert second.snapshot().digest == before.digest
            assert second.snapshot().values == before.values
            budget = second.object("counter_b", BoundedCounter)
            await budget.decrement(5)  # what the life before had the right to
            with pytest.raises(InvalidOperationError):
                await budget.decrement(1)
            later = second.object("register_lww", types["register_lww"])
            await later.assign("later")
            assert later.value == "later"

    trio.run(main)
