"""Cutting off members that are dead or out of reach, so that all survivors have the same of them."""

import pytest

from crdtcast.engine import How, Standing
from crdtcast.exceptions import LocalProtocolError
from tests.engine.town import Town


def test_a_dead_member_is_cut_off_and_nothing_of_it_is_left_but_a_tomb() -> None:
    town = Town("abc")
    town.send("c", b"1")
    town.run()
    town.cut("c", "b")
    town.send("c", b"2")  # reaches a alone
    town.run(1)
    dead = town.take_down("c")
    assert dead is not None
    town.engines["b"].evict(dead.me)
    town.run()
    town.assert_one_group("a", "b")
    assert town.log["a"] == town.log["b"] == [b"1", b"2"]
    assert {x: cut.counter for x, cut in town.engines["a"].tombs.items()} == {dead.me: 2}


@pytest.mark.parametrize(("everybody", "dead"), [("abcde", "de"), ("abcdefg", "efg")])
def test_several_dead_at_once(everybody: str, dead: str) -> None:
    town = Town(everybody)
    for name in everybody:
        town.send(name, name.encode())
    town.run(1)
    gone = {name: town.take_down(name) for name in dead}
    for victim, by in zip(dead, "abc", strict=False):
        engine = gone[victim]
        assert engine is not None
        town.engines[by].evict(engine.me)
    town.run(60)
    town.assert_one_group(*(name for name in everybody if name not in dead))


def test_half_of_a_group_concludes_nothing() -> None:
    town = Town("abcd")
    for name in "cd":
        engine = town.take_down(name)
        assert engine is not None
        town.engines["a"].evict(engine.me)
    town.send("a", b"still sends")
    town.run(60)
    assert len(town.engines["a"].victims) == 2
    assert town.engines["a"].counters().evictions_refused
    assert not town.engines["a"].ended
    assert town.log["b"] == [b"still sends"]


@pytest.mark.parametrize("members", [2, 4, 6])
def test_sides_that_evict_each_other_and_admit_joiners_do_not_split(members: int) -> None:
    left, right = "abc"[: members // 2], "xyz"[: members // 2]
    town = Town(left + right)
    town.run()
    town.cut(left, right)
    for k in range(2):
        for side, other in ((left, right), (right, left)):
            for name in other:
                if town.id(name) not in town.engines[side[0]].victims:
                    town.engines[side[0]].evict(town.id(name))
            joiner = f"{side[0]}{k}"
            town.cuts.update(frozenset((joiner, name)) for name in other)
            town.cuts.update(
                frozenset((joiner, f"{name}{n}")) for name in other for n in range(k + 1)
            )
            town.join(joiner, side[0])
        town.run()
    town.send(left[0], b"left")
    town.send(right[0], b"right")
    town.run()
    town.heal()
    town.run(200)
    for engine in town.engines.values():
        assert not engine.ended, "one side has concluded without a majority"
        assert engine.standing is Standing.MEMBER
    # Only the operator can tell which half goes on.
    for name in right:
        town.engines[left[0]].evict(town.id(name), force=True)
    town.run(80)
    others = [name for name in town.engines if name[0] in right]
    for name in others:
        assert town.engines[name].standing is Standing.EVICTED, name
        town.take_down(name)
    town.run()
    town.assert_one_group(*town.engines)


def test_two_regions_of_which_one_is_dead() -> None:
    town = Town("ax")
    town.send("x", b"1")
    town.run()
    dead = town.take_down("x")
    assert dead is not None
    town.engines["a"].evict(dead.me)
    town.run(60)
    assert town.engines["a"].victims == {dead.me}, "one of two is no majority"
    town.join("b", "a")
    town.run(60)
    assert town.engines["a"].victims == {dead.me}, "nor with a plain joiner: x could do the same"
    town.join("x", "a", [dead.me])  # it comes back
    town.run(60)
    town.assert_one_group("a", "b", "x")


def test_two_regions_and_the_operator_names_a_replacement() -> None:
    town = Town("ax")
    town.send("x", b"1")
    town.run()
    dead = town.take_down("x")
    assert dead is not None
    town.join("y", "a", [dead.me])
    town.run(60)
    town.assert_one_group("a", "y")
    assert town.log["y"] == [b"1"]


def test_two_regions_and_a_witness() -> None:
    town = Town("axw", witnesses="w")
    town.send("x", b"1")
    town.run()
    dead = town.take_down("x")
    assert dead is not None
    town.engines["a"].evict(dead.me)
    town.run(60)
    town.assert_one_group("a", "w")


def test_witnesses_alone_conclude_nothing() -> None:
    town = Town("abvwz", witnesses="vwz")
    gone = [town.take_down(name) for name in "ab"]
    for by, dead in zip("vw", gone, strict=True):  # each of which takes the other one for alive
        assert dead is not None
        town.engines[by].evict(dead.me)
    town.run(60)
    assert len(town.engines["v"].victims) == 2
    assert not town.engines["v"].ended


def test_the_last_member_with_data_is_not_evicted_by_mistake() -> None:
    town = Town("aw", witnesses="w")
    before = town.engines["w"].state()
    with pytest.raises(LocalProtocolError, match="no member would hold data"):
        town.engines["w"].evict(town.id("a"))
    assert town.engines["w"].state() == before


def test_a_leaver_that_is_a_victim() -> None:
    town = Town("abcd")
    town.send("d", b"1")
    town.cut("d", "ab")
    town.send("d", b"2")
    town.engines["d"].leave()
    town.run(1)
    town.engines["a"].evict(town.id("d"))
    town.run()
    town.heal()
    town.run(80)
    assert town.engines["d"].standing is Standing.LEFT
    town.take_down("d")
    town.run()
    town.assert_one_group("a", "b", "c")
    assert town.log["a"] == [b"1", b"2"], "c had its leave, so all of it counts"


def test_a_leaver_that_was_cut_off_before_its_leave_learns_so() -> None:
    town = Town("abcd")
    town.cut("d", "abc")
    town.send("d", b"1")
    town.engines["d"].leave()
    town.engines["a"].evict(town.id("d"))
    town.run()
    assert town.engines["d"].standing is Standing.LEAVING
    town.heal()
    town.run()
    assert town.engines["d"].standing is Standing.EVICTED
    assert town.engines["d"].cut == 0
    town.take_down("d")
    town.assert_one_group("a", "b", "c")


def test_a_victim_that_was_only_out_of_reach_is_told() -> None:
    town = Town("abc")
    town.cut("c", "ab")
    town.send("c", b"lost for now")
    town.engines["a"].evict(town.id("c"))
    town.run()
    town.assert_one_group("a", "b")
    town.heal()
    town.run()
    assert town.engines["c"].standing is Standing.EVICTED
    assert town.engines["c"].cut == 0
    assert town.engines["a"].counters().ghosts


def test_what_only_one_survivor_has_is_vouched_for() -> None:
    town = Town("abcd")
    town.cut("d", "bc")
    town.cut("a", "bc")
    town.send("d", b"1", b"2")
    town.run(1)
    town.send("a", b"after 2")
    dead = town.take_down("d")
    assert dead is not None
    town.engines["b"].evict(dead.me)
    town.run(5)
    assert town.engines["b"].victims, "a has not been heard"
    town.heal()
    town.run()
    town.assert_one_group("a", "b", "c")
    assert town.log["c"] == [b"1", b"2", b"after 2"]


def test_forced_eviction_does_without_a_majority() -> None:
    town = Town("ax")
    town.send("x", b"1")
    town.run()
    town.cut("a", "x")
    town.send("x", b"2")
    town.engines["a"].evict(town.id("x"), force=True)
    town.run()
    assert town.names("a") == ["a"]
    town.heal()
    town.run()
    assert town.engines["x"].standing is Standing.EVICTED
    assert {cut.how for cut in town.engines["a"].tombs.values()} == {How.FORCED}


def test_mutual_forced_evictions_wait_for_the_operator() -> None:
    town = Town("abxy")
    town.cut("ab", "xy")
    for one, others in (("a", "xy"), ("x", "ab")):
        for other in others:
            town.engines[one].evict(town.id(other), force=True)
    town.run()
    assert town.names("a") == ["a", "b"]
    assert town.names("x") == ["x", "y"]
    town.heal()
    town.run()
    assert {e.standing for e in town.engines.values()} == {Standing.DISPUTED}
    town.send("a", b"still sends")
    for name in "xy":
        town.engines[name].surrender()
        assert town.engines[name].standing is Standing.EVICTED
    old = {name: town.take_down(name) for name in "xy"}
    for name, engine in old.items():
        assert engine is not None
        town.join(name, "a", [engine.me])
        town.engines[name].settle(engine.me)
    town.run(60)
    assert town.names("a") == ["a", "b", "x", "y"]
    assert not town.engines["a"].tombs


def test_nobody_evicts_itself_nor_a_stranger() -> None:
    town = Town("ab")
    before = town.engines["a"].state()
    with pytest.raises(LocalProtocolError, match="let it leave"):
        town.engines["a"].evict(town.id("a"))
    with pytest.raises(LocalProtocolError, match="no member"):
        town.engines["a"].evict("q.1")
    with pytest.raises(LocalProtocolError, match="not in dispute"):
        town.engines["a"].surrender()
    with pytest.raises(LocalProtocolError, match="was not evicted"):
        town.engines["a"].settle(town.id("b"))
    assert town.engines["a"].state() == before


def test_a_sweep_carries_the_conclusion_to_one_whose_majority_has_left() -> None:
    town = Town("abcde")
    gone = [town.take_down(name) for name in "de"]
    town.cut("c", "ab")
    for engine in gone:
        assert engine is not None
        town.engines["a"].evict(engine.me)
    town.run(3)
    town.cuts.discard(frozenset("ac"))
    town.engines["a"].connected(town.id("c"))
    town.engines["c"].connected(town.id("a"))
    town.run(4)
    town.heal()
    town.engines["b"].leave()
    town.run(80)
    town.take_down("b")
    town.run()
    town.assert_one_group("a", "c")
