"""Old and new programs in one group: what one does not know it keeps, passes on, and applies once
it has been upgraded.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    InvalidOperationError,
    LocalProtocolError,
    Replica,
    UnusableInputError,
    open_replica,
)
from crdtcast.datatypes import AWSet

from .boards import Likes, NewBoard, OldBoard
from .replica_support import NAMES, isolate, level, rejoin, replicas, settle

OLD, NEW = [OldBoard], [NewBoard, Likes]


class Programs:
    """Three programs, each of which can be stopped and started again as another version."""

    def __init__(self, nursery: trio.Nursery, directory: Path) -> None:
        self._nursery = nursery
        self._directory = directory
        self._stops: dict[str, tuple[trio.Event, trio.Event]] = {}
        self.running: dict[str, Replica] = {}

    async def start(self, name: str, types: list[Any]) -> Replica:
        self.running[name] = await self._nursery.start(self._live, name, types)
        return self.running[name]

    async def stop(self, name: str) -> None:
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
        peers = {n: up[n].address if n in up else None for n in NAMES if n != name}
        async with open_replica(
            name,
            peers=peers,
            types=types,
            state=self._directory / name,
            digest_interval=0.01,
            event_log=self._directory / "log",
        ) as replica:
            task_status.started(replica)
            await ask.wait()
        stopped.set()


@asynccontextmanager
async def programs(directory: Path) -> AsyncIterator[Programs]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            group = Programs(nursery, directory)
            yield group
            for name in list(group.running):
                await group.stop(name)


def test_replicas_are_upgraded_one_by_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with programs(tmp_path) as group:
            for name in NAMES:
                await group.start(name, OLD)
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


def test_a_replica_restarts_amid_what_is_not_stable(tmp_path: Path) -> None:
    async def main() -> None:
        async with programs(tmp_path) as group:
            for name in NAMES:
                await group.start(name, NEW)
            eu, us, asia = group.running.values()
            isolate(asia, [eu, us, asia])
            await eu.object("board", NewBoard).add("a")
            await level([eu, us])
            isolate(us, [eu, us, asia])
            await us.object("board", NewBoard).add("nobody else has this")
            us = await group.restart("us", OLD)  # and even as an older program
            assert [(info.name, info.known) for info in us.objects()] == [("board", False)]
            with pytest.raises(LocalProtocolError, match="version 2, of which"):
                _ = us.object("board", OldBoard).value
            with pytest.raises(LocalProtocolError, match="version 2, of which"):
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
                eu.engine.send(msgpack.packb([garbage]))
            eu.node.flush()
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
            eu.engine.send(msgpack.packb([["board", ["guarded_example", 9], "spend"]]))
            eu.node.flush()
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


def test_state_is_used_once_and_only_by_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "a"

    async def main() -> None:
        async with open_replica("a", found=True, state=path) as first:
            await first.object("x", AWSet).add("kept")
            owner = first.held.site.owner if first.held.site else ""
            earlier = first.engine.me
        for wrong in ({"name": "b"}, {"name": "a", "group": "other"}):
            with pytest.raises(ConfigurationError, match="a file of its own"):
                async with open_replica(**{"peers": {}, **wrong}, state=path):  # type: ignore[arg-type]
                    pass
        async with open_replica("a", found=True, state=path) as second:
            assert not path.exists()
            assert second.object("x", AWSet).value == {"kept"}
            assert second.engine.me > earlier
            assert second.held.site is not None and second.held.site.owner == owner
            await second.object("x", AWSet).add("more")
        whole = path.read_bytes()
        for damaged in (whole[:-1], b"", b"\xc1", msgpack.packb([0])):
            path.write_bytes(damaged)
            with pytest.raises(UnusableInputError, match="no replica's state"):
                async with open_replica("a", found=True, state=path):
                    pass
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        async with open_replica("a", found=True, state=path) as third:
            assert third.object("x", AWSet).value == {"kept", "more"}

    trio.run(main)


def test_no_state_is_left_by_an_error_amid_an_operation(tmp_path: Path) -> None:
    class Breaks(AWSet):
        TYPE = "breaks_example"

        def entered(self, entry: Any) -> None:
            raise ZeroDivisionError

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_replica(
                "a", found=True, state=tmp_path / "a", types=[Breaks]
            ) as replica:
                await replica.object("x", Breaks).add("y")
        assert not (tmp_path / "a").exists()
        with pytest.raises(KeyError):
            async with open_replica("a", found=True, state=tmp_path / "a") as replica:
                await replica.object("x", AWSet).add("y")
                raise KeyError
        assert (tmp_path / "a").exists()

    trio.run(main)
