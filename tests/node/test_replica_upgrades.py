"""Old and new programs in one group: what one does not know it keeps, passes on, and applies once
it has been upgraded.
"""

import logging
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import InvalidOperationError, LocalProtocolError, Replica
from crdtcast.testing import Cluster

from .boards import Likes, NewBoard, OldBoard
from .replica_support import isolate, level, programs, rejoin, replicas, settle

OLD, NEW = [OldBoard], [NewBoard, Likes]


async def restart(group: Cluster[Replica], name: str, types: list[Any]) -> Replica:
    """As another version."""
    await group.up[name].wait_durable()
    await group.stop(name)
    return await group.start(name, types=types)


def test_replicas_are_upgraded_one_by_one() -> None:
    async def main() -> None:
        async with programs(types=OLD) as group:
            await group.up["us"].object("board", OldBoard).add("a")
            await settle(list(group.up.values()))
            await group.up["asia"].object("board", OldBoard).add("b")

            eu = await restart(group, "eu", NEW)
            board = eu.object("board", NewBoard)
            us, asia = group.up["us"], group.up["asia"]
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

            us = await restart(group, "us", NEW)
            await settle(list(group.up.values()))
            assert us.object("board", NewBoard).value == {"b", "c"}
            assert us.object("board", NewBoard).unknown == 0
            assert us.object("likes", Likes).value == 3
            await us.object("board", NewBoard).perform("rewrite", "c", "C")

            asia = await restart(group, "asia", NEW)
            await asia.object("likes", Likes).increment()
            replicas = list(group.up.values())
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


def test_replica_restarts_with_unstable_operations() -> None:
    async def main() -> None:
        async with programs(types=NEW) as group:
            eu, us, asia = group.up.values()
            isolate(asia, [eu, us, asia])
            await eu.object("board", NewBoard).add("a")
            await level([eu, us])
            us = await restart(group, "us", NEW)  # its journal begins with a snapshot of the board
            isolate(us, [eu, us, asia])
            await us.object("board", NewBoard).add("nobody else has this")
            us = await restart(group, "us", OLD)  # and even as an older program
            assert [(info.name, info.known) for info in us.objects()] == [("board", False)]
            with pytest.raises(LocalProtocolError, match="version 2, which"):
                _ = us.object("board", OldBoard).value
            with pytest.raises(LocalProtocolError, match="version 2, which"):
                await us.object("board", OldBoard).add("x")
            us = await restart(group, "us", NEW)
            assert us.object("board", NewBoard).value == {"a", "nobody else has this"}
            rejoin(asia, [eu, us, asia])
            await settle([eu, us, asia])
            for replica in (eu, us, asia):
                assert replica.object("board", NewBoard).value == {"a", "nobody else has this"}
                assert replica.object("board", NewBoard).crdt.log_size == 0

    trio.run(main)


def test_running_program_learns_a_new_type(caplog: pytest.LogCaptureFixture) -> None:
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


def test_unknown_operation_is_skipped_by_old_and_new_programs() -> None:
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


def test_rights_are_not_spent_after_an_unknown_operation() -> None:
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


def test_deletion_removes_stored_unknown_operations() -> None:
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
