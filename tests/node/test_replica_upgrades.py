"""Old and new programs in one group: what one does not know it keeps, passes on, and applies once
it has been upgraded.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import InvalidOperationError, LocalProtocolError, Replica, open_replica
from crdtcast.journal import MemoryJournal

from .boards import Likes, NewBoard, OldBoard
from .replica_support import NAMES, isolate, level, rejoin, replicas, settle

OLD, NEW = [OldBoard], [NewBoard, Likes]


class Programs:
    """Founders with journals, each of which can be stopped and started again as another version."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._journals = {name: MemoryJournal() for name in NAMES}
        self._stops: dict[str, tuple[trio.Event, trio.Event]] = {}
        self.running: dict[str, Replica] = {}

    async def start(self, name: str, types: list[Any]) -> Replica:
        self.running[name] = await self._nursery.start(self._live, name, types)
        return self.running[name]

    async def stop(self, name: str) -> None:
        await self.running[name].wait_durable()
        ask, stopped = self._stops[name]
        ask.set()
        await stopped.wait()
        del self.running[name]

    async def restart(self, name: str, types: list[Any]) -> Replica:
        await self.stop(name)
        return await self.start(name, types)

    async def _live(
        self, name: str, types: list[Any], task_status: trio.TaskStatus[Replica]
    ) -> None:
        ask, stopped = self._stops[name] = (trio.Event(), trio.Event())
        up = self.running
        async with open_replica(
            name,
            founders={n: up[n].address if n in up else None for n in NAMES},
            types=types,
            journal=self._journals[name],
            digest_interval=0.01,
        ) as replica:
            task_status.started(replica)
            await ask.wait()
        stopped.set()


@asynccontextmanager
async def programs(types: list[Any]) -> AsyncIterator[Programs]:
    """All of them; types: that they know at first."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            group = Programs(nursery)
            for name in NAMES:
                await group.start(name, types)
            for replica in group.running.values():
                await replica.ready()
            yield group
            for name in list(group.running):
                await group.stop(name)


def test_replicas_are_upgraded_one_by_one() -> None:
    async def main() -> None:
        async with programs(OLD) as group:
            await group.running["us"].object("board", OldBoard).add("a")
            await settle(list(group.running.values()))
            await group.running["asia"].object("board", OldBoard).add("b")

            eu = await group.restart("eu", NEW)
            board = eu.object("board", NewBoard)
            us, asia = group.running["us"], group.running["asia"]
            await level([eu, us, asia])
            await board.perform("rewrite", "a", "A")
            await eu.object("likes", Likes).increment(3)
            await level([eu, us, asia])
            old = us.object("board", OldBoard)
            assert (board.value, board.unknown) == ({"A", "b"}, 0)
            assert (old.value, old.unknown) == ({"a", "b"}, 1)
            shown = [(info.name, info.known, info.unknown) for info in us.objects()]
            assert shown == [("board", True, 1), ("likes", False, 1)]
            assert us.snapshot().unknown == ("board", "likes")
            assert us.unreadable == 0

            # Old programs go on working, also behind what they do not understand.
            await old.remove("A")
            await asia.object("board", OldBoard).add("c")
            await settle([eu, us, asia])
            assert board.value == {"b", "c"}
            assert old.value == {"a", "b", "c"}

            us = await group.restart("us", NEW)
            await settle(list(group.running.values()))
            assert us.object("board", NewBoard).value == {"b", "c"}
            assert us.object("board", NewBoard).unknown == 0
            assert us.object("likes", Likes).value == 3
            await us.object("board", NewBoard).perform("rewrite", "c", "C")

            asia = await group.restart("asia", NEW)
            await asia.object("likes", Likes).increment()
            replicas = list(group.running.values())
            await level(replicas)
            await settle(replicas)
            for replica in replicas:
                assert replica.object("board", NewBoard).value == {"b", "C"}
                assert replica.object("likes", Likes).value == 4
                assert all(info.known and not info.unknown for info in replica.objects())
                assert all(info.unstable == 0 for info in replica.objects())
                assert replica.unreadable == 0
                assert not replica.held.touched
            assert len({replica.snapshot().digest for replica in replicas}) == 1
            assert len({str(replica.held.packed()) for replica in replicas}) == 1

    trio.run(main)


def test_a_replica_restarts_amid_what_is_not_stable() -> None:
    async def main() -> None:
        async with programs(NEW) as group:
            eu, us, asia = group.running.values()
            isolate(asia, [eu, us, asia])
            await eu.object("board", NewBoard).add("a")
            await level([eu, us])
            us = await group.restart("us", NEW)  # its journal begins with a snapshot of the board
            isolate(us, [eu, us, asia])
            await us.object("board", NewBoard).add("nobody else has this")
            us = await group.restart("us", OLD)  # and even as an older program
            assert [(info.name, info.known) for info in us.objects()] == [("board", False)]
            with pytest.raises(LocalProtocolError, match="version 2, which"):
                _ = us.object("board", OldBoard).value
            with pytest.raises(LocalProtocolError, match="version 2, which"):
                await us.object("board", OldBoard).add("x")
            us = await group.restart("us", NEW)
            assert us.object("board", NewBoard).value == {"a", "nobody else has this"}
            rejoin(asia, [eu, us, asia])
            await settle([eu, us, asia])
            for replica in (eu, us, asia):
                assert replica.object("board", NewBoard).value == {"a", "nobody else has this"}
                assert replica.object("board", NewBoard).crdt.log_size == 0

    trio.run(main)


def test_a_running_program_can_learn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "crdtcast.replica")

    async def main() -> None:
        types = {"eu": {"types": NEW}, "us": {"types": OLD}, "asia": {"types": OLD}}
        async with replicas(types) as group:
            eu, us, asia = group
            await eu.object("board", NewBoard).add("a")
            await eu.object("board", NewBoard).perform("rewrite", "a", "A")
            await eu.object("likes", Likes).increment()
            await settle(group)
            old = us.object("board", OldBoard)
            async with trio.open_nursery() as nursery:

                async def until_known() -> None:
                    while old.unknown:
                        await old.changed()

                nursery.start_soon(until_known)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(LocalProtocolError, match="let `upgrade` replace"):
                    us.object("board", NewBoard)
                us.upgrade(*NEW)
            assert old.value == us.object("board", NewBoard).value == {"A"}
            await old.perform("rewrite", "A", "B")
            with pytest.raises(LocalProtocolError, match="raise its VERSION"):
                us.upgrade(OldBoard)
            await level(group)
            assert eu.object("board", NewBoard).value == {"B"}
            assert asia.object("board", OldBoard).unknown == 2

    trio.run(main)
    assert [record for record in caplog.records if record.name == "crdtcast.replica"] == []


def test_what_no_program_understands_is_skipped_by_old_and_new_alike() -> None:
    async def main() -> None:
        types = {"eu": {"types": NEW}, "us": {"types": OLD}, "asia": {"types": OLD}}
        async with replicas(types) as group:
            eu, us, asia = group
            for garbage in (["board", ["board_example", 2], "explode"], ["new", ["board_example"]]):
                eu.member.tcbroadcast(eu.machine.packed([garbage]))
            await eu.object("board", NewBoard).add("a")
            await settle(group)
            assert us.object("board", OldBoard).unknown == 1
            us.upgrade(NewBoard)
            assert us.object("board", NewBoard).value == {"a"}
            assert us.object("board", NewBoard).unknown == 0
            assert (us.unreadable, asia.unreadable) == (2, 1)

    trio.run(main)


def test_rights_are_not_spent_behind_what_is_not_understood() -> None:
    class Guarded(OldBoard):
        TYPE = "guarded_example"

        def permit(self, name: str, args: Any, after: Any) -> None:
            pass

    async def main() -> None:
        async with replicas(types=[Guarded]) as group:
            eu, us, _ = group
            await us.object("board", Guarded).add("before")
            eu.member.tcbroadcast(eu.machine.packed([["board", ["guarded_example", 9], "spend"]]))
            await level(group)
            with pytest.raises(InvalidOperationError, match="upgrade it"):
                await us.object("board", Guarded).add("x")

    trio.run(main)


def test_a_deleted_object_takes_what_was_stored_for_it_along() -> None:
    async def main() -> None:
        types = {"eu": {"types": NEW}, "us": {"types": OLD}, "asia": {"types": OLD}}
        async with replicas(types) as group:
            eu, us, _ = group
            await eu.object("likes", Likes).increment(2)
            await settle(group)
            await us.delete("likes")
            await level(group)
            assert us.objects() == eu.objects() == []
            us.upgrade(Likes)
            assert us.object("likes", Likes).value == 0

    trio.run(main)
