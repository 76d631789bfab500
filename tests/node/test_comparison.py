"""Replicas compared while they are written to: equal ones are never called different, and a difference is
found and named.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from crdtcast import Replica
from crdtcast.causality.tags import Dot, Tag
from crdtcast.replica.comparison import Comparing, Comparison
from tests.node.group_support import SimulatedHost, World, members_are
from tests.node.network import Network, eventually, simulated

NAMES = ("a", "b", "c")


class Shop:
    """A member with objects, on a simulated network."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.replica = Replica(host.name, clock_ms=lambda: int(trio.current_time() * 1000))
        host.ledger = self.replica.machine  # type: ignore[assignment]

    def perform(self, name: str, type_name: str, operation: str, *args: Any) -> None:
        self.replica.perform((name, type_name), operation, *args)

    def value(self, name: str) -> Any:
        held = self.replica.held
        return held.crdt((name, held.visible_type(name) or "")).value

    @property
    def names(self) -> list[str]:
        return [line.name for line in self.replica.objects()]

    async def compare(self) -> Comparison:
        return await self.replica.verify(10)


@asynccontextmanager
async def shops(*names: str) -> AsyncIterator[tuple[World, dict[str, Shop]]]:
    async with trio.open_nursery() as nursery:
        world = World(Network(nursery), nursery)
        found: dict[str, Shop] = {}
        for number, name in enumerate(names):
            host = await world.start(name, names[0] if number else None)
            shop = found[name] = Shop(host)
            await (host.join() if number else host.found())
            shop.replica.speak_for(host.up)
        for shop in found.values():
            await members_are(shop.host.up, *names)
        with trio.fail_after(3600):
            yield world, found
        nursery.cancel_scope.cancel()


@simulated
async def test_replicas_that_are_written_to_are_compared_and_never_called_different() -> None:
    rng = random.Random(7)
    async with shops(*NAMES) as (world, present):
        compared = 0

        async def disturb() -> None:
            while True:
                world.cut(rng.choice(NAMES))
                await trio.sleep(rng.random())
                world.heal()
                await trio.sleep(rng.random())

        async def write(shop: Shop) -> None:
            while True:
                name = f"o{rng.randrange(40)}"
                shop.perform(name, "set_aw", "add", rng.randrange(5))
                await trio.sleep(rng.random() / 10)

        async with trio.open_nursery() as writers:
            for shop in present.values():
                writers.start_soon(write, shop)
            writers.start_soon(disturb)
            await trio.sleep(2)
            for _ in range(12):
                asker = present[rng.choice(NAMES)]
                outcome = await asker.compare()
                assert outcome.equal, outcome
                assert outcome.compared + outcome.changing == outcome.objects
                compared += outcome.compared
            writers.cancel_scope.cancel()
        world.heal()
        assert compared > 0
        await trio.sleep(5)
        outcome = await present["a"].compare()
        assert outcome == Comparison(outcome.objects, outcome.objects, 0, 0, {}, (), NAMES)
        assert outcome.objects > 30


@simulated
async def test_a_difference_is_named_with_who_has_what() -> None:
    async with shops(*NAMES) as (_, present):
        for name in ("cart", "hits"):
            present["a"].perform(name, "set_aw", "add", "x")
        await eventually(lambda: len(present["c"].names) == 2)
        # As a defect would: an operation that only c has.
        ghost = Tag(Dot("ghost.1", 1), (), {})
        present["c"].replica.held.deliver([["cart", "set_aw", "add", "y"]], ghost)
        outcome = await present["b"].compare()
        assert not outcome.equal
        assert list(outcome.different) == ["set_aw:cart"]
        digests = outcome.different["set_aw:cart"]
        assert digests["a"] == digests["b"] != digests["c"]
        assert outcome.compared == 2
        # A newer program's operation is there for all, and understood by none.
        for shop in present.values():
            later = [["hits", ["set_aw", 99], "sort"]]
            shop.replica.held.deliver(later, Tag(Dot("ghost.1", 2), (), {}))
        outcome = await present["b"].compare()
        assert (outcome.compared, outcome.unknown) == (1, 1)
        assert list(outcome.different) == ["set_aw:cart"]


@simulated
async def test_who_does_not_answer_is_named_and_nothing_is_claimed() -> None:
    async with shops(*NAMES) as (_, present):
        present["c"].host.die()
        outcome = await present["a"].compare()
        assert not outcome.equal
        assert (outcome.silent, outcome.compared, outcome.different) == (("c",), 0, {})


@simulated
async def test_a_joiner_and_one_who_comes_back_take_part_and_none_is_disturbed() -> None:
    async with shops("a", "b") as (world, present):
        a = present["a"]
        a.perform("hits", "counter_pn", "increment", 2)
        host = await world.start("c", "a")
        c = present["c"] = Shop(host)
        a.replica.machine.comparing.ask("under way", ["a", "b"])
        await host.join()
        c.replica.speak_for(host.up)
        assert c.value("hits") == 2
        assert (await c.compare()).equal
        for shop in present.values():
            await members_are(shop.host.up, *NAMES)
            await shop.host.up.wait_established()
        world.cut("c")
        c.perform("hits", "counter_pn", "increment", 5)
        c.perform("cart", "set_aw", "add", "milk")
        c.perform("hits", "counter_pn", "increment", 1)
        await c.replica.delete("hits")
        present["a"].host.up.evict("c")
        await members_are(present["b"].host.up, "a", "b")
        present["b"].perform("hits", "counter_pn", "increment", 10)
        world.heal()
        await eventually(lambda: a.value("hits") == 18)
        await eventually(lambda: host.up.parked is None)
        assert c.replica.machine.yielded == 1, "a deletion could take what it has never seen"
        await members_are(present["a"].host.up, *NAMES)
        outcome = await present["b"].compare()
        assert (outcome.equal, outcome.compared) == (True, 2)


@simulated
async def test_what_takes_something_away_is_sent_again_where_the_group_has_not_changed_it() -> None:
    async with shops(*NAMES) as (world, present):
        a, b, c = (present[name] for name in NAMES)
        for name in ("old", "kept", "done"):
            a.perform(name, "register_lww", "assign", name)
        a.perform("cart", "set_aw", "add_all", ["tea", "milk", "bread"])
        a.perform("many", "set_aw", "add_all", [f"{number:0100}" for number in range(200)])
        assert (await present["c"].compare()).equal
        host = present["c"].host
        world.cut("c")
        c.perform("cart", "set_aw", "add", "own")
        c.perform("cart", "set_aw", "remove", "own")
        c.perform("cart", "set_aw", "remove", "tea")
        c.perform("old", "register_lww", "assign", "new")
        c.perform("old", "register_lww", "assign", "newer")
        c.perform("kept", "register_lww", "assign", "lost")
        c.perform("many", "set_aw", "remove", f"{7:0100}")
        await c.replica.delete("done")
        present["a"].host.up.evict("c")
        await members_are(present["b"].host.up, "a", "b")
        b.perform("cart", "set_aw", "add", "own")
        b.perform("cart", "set_aw", "add", "eggs")
        b.perform("kept", "register_lww", "assign", "of b")
        world.heal()
        await eventually(lambda: a.names == ["cart", "kept", "many", "old"])
        await eventually(lambda: host.up.parked is None)
        for name in NAMES:
            await present[name].host.up.wait_established()
        assert (await present["b"].compare()).equal
        assert sorted(a.value("cart")) == ["bread", "eggs", "milk", "own"]
        assert [a.value(name) for name in ("old", "kept")] == ["newer", "of b"]
        assert len(a.value("many")) == 200, "of a large object nobody knows what it was"
        assert c.replica.machine.yielded == 3


def test_what_is_no_comparison_is_nothing_to_anybody() -> None:
    said: list[list[Any]] = []
    comparing = Comparing("a", lambda: {"x": "1"}, said.append)
    comparing.delivered(["ask", "7", ["a", "b"]])
    for nonsense in (
        ["ask", "8", ["a", ["b"]]],
        ["ask", "8", ["a", {"b": 1}]],
        ["ask", ["8"], ["a"]],
        ["tell", "7", "b", {"x": ["1"]}],
        ["tell", "7", "b", {b"x": "1"}],
        ["tell", "7", "b", None],
        ["confirm", "7", "b", [["x"]]],
        ["confirm", "7"],
        ["done", None],
        [],
    ):
        comparing.delivered(nonsense)
    assert said == [["tell", "7", "a", {"x": "1"}]]
    assert comparing.missing("7") == {"a", "b"}
