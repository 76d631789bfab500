"""A voter whose disk was set back votes twice, since nobody who could tell it is there: an epoch has two views."""

from collections.abc import Collection

import pytest

from crdtcast.engine import Standing
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld


def go_on(world: GroupWorld, names: Collection[str], rounds: int) -> None:
    """Time passes for these, and nothing is lost between them."""
    for _ in range(rounds):
        for name in names:
            world.apply(("tick", name))
            world.apply(("sync", name))
        for pair in world.wires.busy:
            while pair in world.wires.flights and set(pair) <= set(names):
                world.apply(("net", *pair, 0))
        for name in names:
            for verb in ("poll", "stable"):
                while world.apply((verb, name)):
                    pass
            world.apply(("sync", name))


def until_it_asks_to_accept(world: GroupWorld, proposer: str) -> None:
    for _ in range(1_000):
        for name in list(world.machines):
            world.apply(("sync", name))
        for pair in world.wires.busy:
            world.apply(("net", *pair, 0))
            change = world.machines[proposer].running.open_change
            if change is not None and change.change is not None:
                return
    raise AssertionError("nobody asks to accept anything")


def every(world: GroupWorld, verb: str, some: str, others: str) -> None:
    for one in some:
        for other in others:
            world.apply((verb, one, other))


@pytest.mark.parametrize(
    ("side", "other", "stops"),
    [("abc", "de", "abd"), ("abcd", "efg", "abcef")],
    ids=["one", "both"],
)
def test_both_sides_stop_until_the_operator_ends_one(side: str, other: str, stops: str) -> None:
    """The last of one side is the voter, the last of the other one is to be evicted. What the voter says before it was
    told counts, too, until it has joined again.
    """
    voter, victim, names = side[-1], other[-1], side + other
    world = GroupWorld(tuple(names))
    world.apply(("send", "a"))
    go_on(world, names, 6)
    world.apply(("evict", "a", victim))
    until_it_asks_to_accept(world, "a")
    world.apply(("sync", voter))
    world.apply(("backup", voter))
    every(world, "cut", side, other)
    go_on(world, side, 60)
    assert victim not in world.machines["a"].running.members
    snapshot = len(world.machines[voter].commits) - 1
    assert world.apply(("setback", voter, snapshot))
    every(world, "cut", voter, side[:-1])
    every(world, "link", voter, other)
    world.apply(("send", other[0]))
    go_on(world, voter + other, 300)
    first, second = (world.machines[name].running for name in ("a", other[0]))
    assert first.view.epoch == second.view.epoch == 1 and first.view.name != second.view.name
    assert world.counts["voted_twice"] == 1

    every(world, "link", side[:-1], voter + other)
    go_on(world, names, 20)
    assert world.machines[voter].engine is None, "others have a later record of it"
    standings = {m.name: m.running.standing for m in world.machines.values() if m.up}
    assert [name for name, s in standings.items() if s is Standing.SPLIT] == list(stops)
    drain_and_judge(world)
    assert world.counts["split_views"] and world.counts["rolled_back"]
