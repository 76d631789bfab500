"""Replicas compared while they are written to: equal ones are never called different, and a difference is
found and named.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from crdtcast.comparison import Comparison
from crdtcast.shelf import Shelf
from crdtcast.tags import Dot, Tag
from tests.node.group_support import Host, World, members_are
from tests.node.network import Network, eventually, simulated

NAMES = ("a", "b", "c")


class Shop:
    """A member with a shelf, on a simulated network."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.shelf = Shelf(host.name, lambda: int(trio.current_time() * 1000))
        host.ledger = self.shelf  # type: ignore[assignment]

    async def compare(self, number: str, names: tuple[str, ...] = NAMES) -> Comparison:
        comparing = self.shelf.comparing
        comparing.ask(number, names)
        with trio.move_on_after(10):
            while comparing.missing(number):  # noqa: ASYNC110 (on a clock that jumps)
                await trio.sleep(0.01)
        return comparing.end(number)


@asynccontextmanager
async def shops(*names: str) -> AsyncIterator[tuple[World, dict[str, Shop]]]:
    async with trio.open_nursery() as nursery:
        world = World(Network(nursery), nursery)
        found: dict[str, Shop] = {}
        for number, name in enumerate(names):
            host = await world.start(name, names[0] if number else None)
            shop = found[name] = Shop(host)
            await (host.join() if number else host.found())
            shop.shelf.speak_for(host.up)
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
                shop.shelf.perform(name, "set_aw", "add", [rng.randrange(5)])
                await trio.sleep(rng.random() / 10)

        async with trio.open_nursery() as writers:
            for shop in present.values():
                writers.start_soon(write, shop)
            writers.start_soon(disturb)
            await trio.sleep(2)
            for number in range(12):
                asker = present[rng.choice(NAMES)]
                outcome = await asker.compare(str(number))
                assert outcome.equal, outcome
                assert outcome.compared + outcome.changing == outcome.objects
                compared += outcome.compared
            writers.cancel_scope.cancel()
        world.heal()
        assert compared > 0
        await trio.sleep(5)
        outcome = await present["a"].compare("at rest")
        assert outcome == Comparison(outcome.objects, outcome.objects, 0, 0, {}, ())
        assert outcome.objects > 30


@simulated
async def test_a_difference_is_named_with_who_has_what() -> None:
    async with shops(*NAMES) as (_, present):
        for name in ("cart", "hits"):
            present["a"].shelf.perform(name, "set_aw", "add", ["x"])
        await eventually(lambda: len(present["c"].shelf.listing()) == 2)
        # As a defect would: an operation that only c has.
        ghost = Tag(Dot("ghost.1", 1), (), {})
        present["c"].shelf.objects.deliver([["cart", "set_aw", "add", "y"]], ghost)
        outcome = await present["b"].compare("1")
        assert not outcome.equal
        assert list(outcome.different) == ["set_aw:cart"]
        digests = outcome.different["set_aw:cart"]
        assert digests["a"] == digests["b"] != digests["c"]
        assert outcome.compared == 2
        # A newer program's operation is there for all, and understood by none.
        for shop in present.values():
            later = [["hits", ["set_aw", 99], "sort"]]
            shop.shelf.objects.deliver(later, Tag(Dot("ghost.1", 2), (), {}))
        outcome = await present["b"].compare("2")
        assert (outcome.compared, outcome.unknown) == (1, 1)
        assert list(outcome.different) == ["set_aw:cart"]


@simulated
async def test_who_does_not_answer_is_named_and_nothing_is_claimed() -> None:
    async with shops(*NAMES) as (_, present):
        present["c"].host.die()
        outcome = await present["a"].compare("1")
        assert not outcome.equal
        assert (outcome.silent, outcome.compared, outcome.different) == (("c",), 0, {})


@simulated
async def test_a_joiner_and_one_who_comes_back_take_part_and_none_is_disturbed() -> None:
    async with shops("a", "b") as (world, present):
        a = present["a"].shelf
        a.perform("hits", "counter_pn", "increment", [2])
        host = await world.start("c", "a")
        c = present["c"] = Shop(host)
        a.comparing.ask("under way", ["a", "b"])
        await host.join()
        c.shelf.speak_for(host.up)
        assert c.shelf.value("hits") == ("counter_pn", 2)
        assert (await c.compare("1")).equal
        for shop in present.values():
            await members_are(shop.host.up, *NAMES)
            await shop.host.up.wait_established()
        world.cut("c")
        c.shelf.perform("hits", "counter_pn", "increment", [5])
        c.shelf.perform("cart", "set_aw", "add", ["milk"])
        c.shelf.perform("hits", "counter_pn", "increment", [1])
        c.shelf.delete("hits")
        present["a"].host.up.evict("c")
        await members_are(present["b"].host.up, "a", "b")
        present["b"].shelf.perform("hits", "counter_pn", "increment", [10])
        world.heal()
        await eventually(lambda: a.value("hits") == ("counter_pn", 18))
        await eventually(lambda: host.up.parked is None)
        assert c.shelf.yielded == 1, "a deletion could take what it has never seen"
        await members_are(present["a"].host.up, *NAMES)
        outcome = await present["b"].compare("2")
        assert (outcome.equal, outcome.compared) == (True, 2)


@simulated
async def test_what_takes_something_away_is_sent_again_where_the_group_has_not_changed_it() -> None:
    async with shops(*NAMES) as (world, present):
        a, b, c = (present[name].shelf for name in NAMES)
        for name in ("old", "kept", "done"):
            a.perform(name, "register_lww", "assign", [name])
        a.perform("cart", "set_aw", "add_all", [["tea", "milk", "bread"]])
        a.perform("many", "set_aw", "add_all", [[f"{number:0100}" for number in range(200)]])
        assert (await present["c"].compare("1")).equal
        host = present["c"].host
        world.cut("c")
        c.perform("cart", "set_aw", "add", ["own"])
        c.perform("cart", "set_aw", "remove", ["own"])
        c.perform("cart", "set_aw", "remove", ["tea"])
        c.perform("old", "register_lww", "assign", ["new"])
        c.perform("old", "register_lww", "assign", ["newer"])
        c.perform("kept", "register_lww", "assign", ["lost"])
        c.perform("many", "set_aw", "remove", [f"{7:0100}"])
        c.delete("done")
        present["a"].host.up.evict("c")
        await members_are(present["b"].host.up, "a", "b")
        b.perform("cart", "set_aw", "add", ["own"])
        b.perform("cart", "set_aw", "add", ["eggs"])
        b.perform("kept", "register_lww", "assign", ["of b"])
        world.heal()
        await eventually(
            lambda: [line.name for line in a.listing()] == ["cart", "kept", "many", "old"]
        )
        await eventually(lambda: host.up.parked is None)
        for name in NAMES:
            await present[name].host.up.wait_established()
        assert (await present["b"].compare("2")).equal
        assert sorted(a.value("cart")[1]) == ["bread", "eggs", "milk", "own"]
        assert [a.value(name)[1] for name in ("old", "kept")] == ["newer", "of b"]
        assert len(a.value("many")[1]) == 200, "of a large object nobody knows what it was"
        assert c.yielded == 3
