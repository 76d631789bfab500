"""Replicas compared while they are written to: equal ones are never called different, and a difference is
found and named.
"""

import random
from typing import Any

import trio

from crdtcast import Replica
from crdtcast.causality.tags import Dot, Tag
from crdtcast.replica.comparison import Comparing, Comparison
from crdtcast.testing import eventually, simulated
from tests.node.group_support import members_are

from .regions import regions

NAMES = ("a", "b", "c")


def perform(shop: Replica, name: str, type_name: str, operation: str, *args: Any) -> None:
    shop.perform((name, type_name), operation, *args)


def value(shop: Replica, name: str) -> Any:
    return shop.held.crdt((name, shop.held.visible_type(name) or "")).value


def names(shop: Replica) -> list[str]:
    return [line.name for line in shop.objects()]


@simulated
async def test_replicas_under_writes_are_never_called_different() -> None:
    rng = random.Random(7)
    async with regions(*NAMES) as cluster:
        compared = 0

        async def disturb() -> None:
            while True:
                cluster.network.cut(rng.choice(NAMES))
                await trio.sleep(rng.random())
                cluster.network.heal()
                await trio.sleep(rng.random())

        async def write(shop: Replica) -> None:
            while True:
                name = f"o{rng.randrange(40)}"
                perform(shop, name, "set_aw", "add", rng.randrange(5))
                await trio.sleep(rng.random() / 10)

        async with trio.open_nursery() as writers:
            for shop in cluster.up.values():
                writers.start_soon(write, shop)
            writers.start_soon(disturb)
            await trio.sleep(2)
            for _ in range(12):
                asker = cluster.up[rng.choice(NAMES)]
                outcome = await asker.verify(10)
                assert outcome.equal, outcome
                assert outcome.compared + outcome.changing == outcome.objects
                compared += outcome.compared
            writers.cancel_scope.cancel()
        cluster.network.heal()
        assert compared > 0
        await trio.sleep(5)
        outcome = await cluster.up["a"].verify(10)
        assert outcome == Comparison(outcome.objects, outcome.objects, 0, 0, {}, (), NAMES)
        assert outcome.objects > 30


@simulated
async def test_difference_is_named_with_the_value_of_each_replica() -> None:
    async with regions(*NAMES) as cluster:
        for name in ("cart", "hits"):
            perform(cluster.up["a"], name, "set_aw", "add", "x")
        await eventually(lambda: len(names(cluster.up["c"])) == 2)
        # As a defect would: an operation that only c has.
        ghost = Tag(Dot("ghost.1", 1), (), {})
        cluster.up["c"].held.deliver([["cart", "set_aw", "add", "y"]], ghost)
        outcome = await cluster.up["b"].verify(10)
        assert not outcome.equal
        assert list(outcome.different) == ["set_aw:cart"]
        digests = outcome.different["set_aw:cart"]
        assert digests["a"] == digests["b"] != digests["c"]
        assert outcome.compared == 2
        # A newer program's operation is there for all, and understood by none.
        for shop in cluster.up.values():
            later = [["hits", ["set_aw", 99], "sort"]]
            shop.held.deliver(later, Tag(Dot("ghost.1", 2), (), {}))
        outcome = await cluster.up["b"].verify(10)
        assert (outcome.compared, outcome.unknown) == (1, 1)
        assert list(outcome.different) == ["set_aw:cart"]


@simulated
async def test_silent_replica_is_named_and_no_result_is_claimed() -> None:
    async with regions(*NAMES) as cluster:
        cluster.crash("c")
        outcome = await cluster.up["a"].verify(10)
        assert not outcome.equal
        assert (outcome.silent, outcome.compared, outcome.different) == (("c",), 0, {})


@simulated
async def test_joiner_and_returning_member_take_part_in_comparisons() -> None:
    async with regions("a", "b") as cluster:
        a = cluster.up["a"]
        perform(a, "hits", "counter_pn", "increment", 2)
        a.machine.comparing.ask("under way", ["a", "b"])
        c = await cluster.start("c")
        assert value(c, "hits") == 2
        assert (await c.verify(10)).equal
        for shop in cluster.up.values():
            await members_are(shop.member, *NAMES)
            await shop.member.wait_established()
        cluster.network.cut("c")
        perform(c, "hits", "counter_pn", "increment", 5)
        perform(c, "cart", "set_aw", "add", "milk")
        perform(c, "hits", "counter_pn", "increment", 1)
        await c.delete("hits")
        cluster.up["a"].member.evict("c")
        await members_are(cluster.up["b"].member, "a", "b")
        perform(cluster.up["b"], "hits", "counter_pn", "increment", 10)
        cluster.network.heal()
        await eventually(lambda: value(a, "hits") == 18)
        await eventually(lambda: c.member.parked is None)
        assert c.machine.yielded == 1, "a deletion could take what it has never seen"
        await members_are(cluster.up["a"].member, *NAMES)
        outcome = await cluster.up["b"].verify(10)
        assert (outcome.equal, outcome.compared) == (True, 2)


@simulated
async def test_removal_is_resent_only_if_the_group_left_its_target() -> None:
    async with regions(*NAMES) as cluster:
        a, b, c = (cluster.up[name] for name in NAMES)
        for name in ("old", "kept", "done"):
            perform(a, name, "register_lww", "assign", name)
        perform(a, "cart", "set_aw", "add_all", ["tea", "milk", "bread"])
        perform(a, "many", "set_aw", "add_all", [f"{number:0100}" for number in range(200)])
        assert (await cluster.up["c"].verify(10)).equal
        cluster.network.cut("c")
        perform(c, "cart", "set_aw", "add", "own")
        perform(c, "cart", "set_aw", "remove", "own")
        perform(c, "cart", "set_aw", "remove", "tea")
        perform(c, "old", "register_lww", "assign", "new")
        perform(c, "old", "register_lww", "assign", "newer")
        perform(c, "kept", "register_lww", "assign", "lost")
        perform(c, "many", "set_aw", "remove", f"{7:0100}")
        await c.delete("done")
        cluster.up["a"].member.evict("c")
        await members_are(cluster.up["b"].member, "a", "b")
        perform(b, "cart", "set_aw", "add", "own")
        perform(b, "cart", "set_aw", "add", "eggs")
        perform(b, "kept", "register_lww", "assign", "of b")
        cluster.network.heal()
        await eventually(lambda: names(a) == ["cart", "kept", "many", "old"])
        await eventually(lambda: c.member.parked is None)
        for name in NAMES:
            await cluster.up[name].member.wait_established()
        assert (await cluster.up["b"].verify(10)).equal
        assert sorted(value(a, "cart")) == ["bread", "eggs", "milk", "own"]
        assert [value(a, name) for name in ("old", "kept")] == ["newer", "of b"]
        assert len(value(a, "many")) == 200, "of a large object nobody knows what it was"
        assert c.machine.yielded == 3


def test_invalid_comparison_message_is_ignored() -> None:
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
