"""Who holds stability back, and since when: nobody for what is on its way, and everybody else soon."""

import random

from crdtcast.engine import Durability
from crdtcast.engine.stability_lag import Holding
from tests.engine.group import Group
from tests.engine.town import Town


def test_silent_member_is_named_with_the_time_it_lags() -> None:
    group = Group("abc")
    group.pump()
    holding = Holding()
    assert holding.look(group["a"], 0.0).holders == {}
    group.cut("a", "c")
    group.cut("b", "c")
    group["a"].send(b"x")
    assert holding.look(group["a"], 10.0).holders == {}, "it may be on its way"
    for now in (20.0, 30.0):
        settle(group)
        held = holding.look(group["a"], now)
        assert held.holders == {group["c"].me: now - 10.0}
        assert held.lag == now - 10.0
    group.link("a", "c")
    group.link("b", "c")
    settle(group)
    held = holding.look(group["a"], 40.0)
    assert (held.lag, held.holders) == (0.0, {})


def settle(group: Group) -> None:
    for _ in range(10):
        for engine in group.engines.values():
            while engine.poll():
                pass
            engine.poll_stable()
            engine.tick()
        group.pump()


def test_busy_group_names_no_member_as_lagging() -> None:
    group, holding, rng = Group("abc"), Holding(), random.Random(1)
    group.pump()
    for now in range(200):
        for _ in range(rng.randrange(5)):
            group[rng.choice("abc")].send(b"x")
        held = holding.look(group["a"], float(now))
        assert held.holders == {} and held.lag <= 2.0, held
        settle(group)
        group["a"].send(b"always something unstable")


def test_a_member_that_never_came_is_named_by_its_name() -> None:
    group, holding = Group("ab"), Holding()
    alone = Group("abc", linked=False)["a"]
    alone.send(b"x")
    holding.look(alone, 0.0)
    assert holding.look(alone, 5.0).holders == {"b": 5.0, "c": 5.0}
    group.pump()
    group["a"].send(b"x")
    holding.look(group["a"], 6.0)
    assert holding.look(group["a"], 6.5).holders == {}, "of another engine's time"


def test_own_disk_that_does_not_sync_is_named() -> None:
    group = Group("ab", durable=Durability.DECLARED)
    group.pump()
    holding = Holding()
    group["a"].send(b"x")
    holding.look(group["a"], 0.0)
    assert group["a"].me in holding.look(group["a"], 5.0).holders
    group["a"].mark_durable(dict(group["a"].vector))
    assert group["a"].me not in holding.look(group["a"], 6.0).holders


def test_an_evicted_member_holds_nothing_back_any_more() -> None:
    town = Town("abc")
    town.run()
    holding = Holding()
    town.cut("c", "ab")
    town.send("a", b"x")
    engine = town.engines["a"]
    holding.look(engine, 0.0)
    town.run()
    assert holding.look(engine, 5.0).holders == {town.id("c"): 5.0}
    engine.evict(town.id("c"))
    town.run()
    assert holding.look(engine, 6.0).holders == {}
