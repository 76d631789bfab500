"""Putting out members that are dead or out of reach, by one decision at a time, so that all have the same of them."""

import pytest

from crdtcast.causality.messages import Message
from crdtcast.engine import How, Standing
from crdtcast.exceptions import LocalProtocolError
from tests.engine.town import Town


def test_evicted_dead_member_leaves_only_a_tomb() -> None:
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
    assert town.engines["a"].view.voters == {town.id("a"), town.id("b")}


@pytest.mark.parametrize(("everybody", "dead"), [("abcde", "de"), ("abcdefg", "efg")])
@pytest.mark.parametrize("by", ["a", "abc"])
def test_several_dead_at_once(everybody: str, dead: str, by: str) -> None:
    town = Town(everybody)
    for name in everybody:
        town.send(name, name.encode())
    town.run(1)
    gone = [engine.me for name in dead if (engine := town.take_down(name)) is not None]
    for name in by:
        town.engines[name].evict(*gone)
    town.run(60)
    town.assert_one_group(*(name for name in everybody if name not in dead))
    assert town.engines["a"].view.epoch == 1, "one change for all of them"


def test_half_of_a_group_freezes_nothing_and_names_the_missing() -> None:
    town = Town("abcd")
    gone = [engine.me for name in "cd" if (engine := town.take_down(name)) is not None]
    town.engines["a"].evict(*gone)
    town.send("a", b"still sends")
    town.run(200)
    a = town.engines["a"]
    assert a.waits_for() == gone
    assert a.open_change is None and not a.ended
    assert town.engines["b"].victims == set()
    assert town.log["b"] == [b"still sends"]


def test_second_dead_member_is_named() -> None:
    town = Town("abcde")
    d, e = (town.take_down(name) for name in "de")
    assert d is not None and e is not None
    a = town.engines["a"]
    a.evict(d.me)
    town.run()
    assert a.waits_for() == [e.me]
    assert town.engines["b"].victims == set()
    a.evict(e.me)
    town.run()
    town.assert_one_group("a", "b", "c")


def hide_a_joiner(town: Town, ticks: int = 3) -> tuple[str, str]:
    """b lets e in, and both die after so many ticks; a hears of e only by what others promise. Their ids."""
    dead = town.id("b")
    town.passes = lambda sender, receiver, content: (
        receiver != "a"
        or not (sender == "e" or (isinstance(content, Message) and content.dot.origin == dead))
    )
    hidden = town.join("e", "b").me
    town.run(ticks)
    town.take_down("b")
    town.take_down("e")
    return dead, hidden


def three_with_a_hidden_joiner() -> tuple[Town, str, str]:
    """Of a, b and c; a has asked to evict b, and knows that this waits for the hidden one. The ids of these two."""
    town = Town("abc")
    town.run()
    dead, hidden = hide_a_joiner(town)
    town.engines["a"].evict(dead)
    until_named(town, hidden)
    return town, dead, hidden


def until_named(town: Town, hidden: str) -> None:
    a = town.engines["a"]
    for _ in range(60):
        if hidden in a.evictable:
            return
        town.run(1)
    raise AssertionError("nobody has told a of it")


def test_joiner_known_only_to_others_is_named_and_evictable() -> None:
    town = Town("ab")
    town.join("c", "a")
    dead, hidden = hide_a_joiner(town, ticks=0)
    a = town.engines["a"]
    a.evict(dead)  # which freezes the operation that has let e in
    town.run(5)
    town.join("b", "a", replaces=[dead])
    town.run(100)
    assert hidden in town.engines["c"].members and hidden not in a.members
    assert a.waits_for() == [hidden]
    a = town.restart("a")
    town.run(100)
    assert a.waits_for() == [hidden]
    a.evict(hidden)
    a.withdraw(hidden)
    a.evict(hidden)
    town.passes = lambda sender, receiver, content: True
    town.run()
    town.assert_one_group("a", "b", "c")


def test_eviction_request_stays_until_it_can_be_done() -> None:
    town = Town("abcd")
    town.cut("ab", "cd")
    town.engines["a"].evict(town.id("d"))
    town.run(200)
    assert town.engines["a"].waits_for()
    town.bring_back("a", town.engines["a"], town.log["a"])
    town.heal()
    town.run(100)
    assert town.engines["d"].standing is Standing.EVICTED
    town.take_down("d")
    town.run()
    town.assert_one_group("a", "b", "c")


def test_eviction_request_is_withdrawn() -> None:
    town = Town("abcd")
    town.cut("ab", "cd")
    a = town.engines["a"]
    a.evict(town.id("c"), town.id("d"))
    town.run(20)
    with pytest.raises(LocalProtocolError, match="has not asked to evict"):
        a.withdraw(town.id("b"))
    a.withdraw(town.id("c"))
    assert a.wants.victims.keys() == {town.id("d")}
    a.withdraw()
    town.heal()
    town.send("d", b"goes on")
    town.run(100)
    town.assert_one_group("a", "b", "c", "d")
    assert town.engines["b"].view.epoch == 0


def test_withdrawal_unfreezes_frozen_members() -> None:
    town = Town("abc")
    town.run()
    a, b = town.engines["a"], town.engines["b"]
    a.evict(town.id("c"))
    town.cuts.add(frozenset("ab"))  # what b answers is lost, and nobody notices
    town.cuts.add(frozenset("bc"))
    for _ in range(40):
        a.tick()
    town.cuts.clear()
    town.send("c", b"1")
    a.withdraw()
    town.run(200)
    assert not b.victims
    town.assert_one_group("a", "b", "c")
    assert town.log["b"] == [b"1"]


@pytest.mark.parametrize("members", [2, 4, 6])
def test_sides_that_evict_each_other_and_admit_do_not_split(members: int) -> None:
    left, right = "abc"[: members // 2], "xyz"[: members // 2]
    town = Town(left + right)
    town.run()
    town.cut(left, right)
    for k in range(2):
        for side, other in ((left, right), (right, left)):
            town.engines[side[0]].evict(*map(town.id, other))
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
    for engine in town.engines.values():
        assert not engine.ended, "one side has decided without a majority"
        assert engine.standing is Standing.MEMBER
    town.heal()
    town.run(300)
    gone = [n for n, engine in town.engines.items() if engine.standing is Standing.EVICTED]
    assert {name[0] for name in gone} <= set(left) or {name[0] for name in gone} <= set(right)
    for name in gone:
        town.take_down(name)
    town.run(100)
    town.assert_one_group(*town.engines)


def test_two_of_three_that_evict_each_other() -> None:
    town = Town("abc")
    town.engines["a"].evict(town.id("c"))
    town.engines["c"].evict(town.id("a"))
    town.run(100)
    gone = [name for name in "ac" if town.engines[name].standing is Standing.EVICTED]
    assert len(gone) == 1
    town.take_down(gone[0])
    town.run()
    town.assert_one_group(*town.engines)


def test_of_two_a_live_one_can_be_evicted() -> None:
    town = Town("ab")
    town.send("b", b"1")
    town.engines["a"].evict(town.id("b"))
    town.run()
    assert town.engines["b"].standing is Standing.EVICTED
    town.take_down("b")
    town.run()
    town.assert_one_group("a")


def test_two_regions_of_which_one_is_dead() -> None:
    town = Town("ax")
    town.send("x", b"1")
    town.run()
    dead = town.take_down("x")
    assert dead is not None
    a = town.engines["a"]
    a.evict(dead.me)
    town.run(60)
    assert a.waits_for() == [dead.me], "one of two is no majority"
    town.join("b", "a")
    town.run(60)
    assert a.waits_for() == [dead.me], "nor with a plain joiner: x could do the same"
    town.join("x", "a", [dead.me])  # it comes back
    town.run(100)
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


def test_witnesses_alone_decide_nothing() -> None:
    town = Town("abvwz", witnesses="vwz")
    gone = [town.take_down(name) for name in "ab"]
    for by, dead in zip("vw", gone, strict=True):  # each of which takes the other one for alive
        assert dead is not None
        town.engines[by].evict(dead.me)
    town.run(100)
    assert not town.engines["v"].ended
    with pytest.raises(LocalProtocolError, match="the group would have no data"):
        assert gone[1] is not None
        town.engines["v"].evict(gone[1].me)


def test_the_last_member_with_data_is_not_evicted_by_mistake() -> None:
    town = Town("aw", witnesses="w")
    before = town.engines["w"].state()
    with pytest.raises(LocalProtocolError, match="the group would have no data"):
        town.engines["w"].evict(town.id("a"))
    assert town.engines["w"].state() == before


def test_evicted_leaver_that_had_sent_everything_leaves() -> None:
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
    assert town.log["a"] == [b"1", b"2"], "c had all of it, so all of it counts"


def test_cut_off_leaver_learns_of_its_eviction() -> None:
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
    town.take_down("d")
    town.assert_one_group("a", "b", "c")


def test_unreachable_victim_is_told_of_its_eviction() -> None:
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


def test_message_held_by_one_survivor_is_kept() -> None:
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
    assert town.engines["b"].waits_for() == [town.id("a")]
    town.heal()
    town.run(80)
    town.assert_one_group("a", "b", "c")
    assert town.log["c"] == [b"1", b"2", b"after 2"]


def test_members_without_a_link_to_each_other_decide() -> None:
    """All records go by way of c."""
    town = Town("abcd")
    town.cut("a", "b")
    town.cut("d", "abc")
    town.engines["a"].evict(town.id("d"))
    town.take_down("d")
    town.run(60)
    for name in "abc":
        assert town.names(name) == ["a", "b", "c"]
    town.heal()
    town.run()
    town.assert_one_group("a", "b", "c")


def test_joiner_that_never_started_goes_with_the_next_eviction() -> None:
    town = Town("abc")
    town.engines["a"].admit(town.fresh_base("j"))
    town.run()
    dead = town.take_down("c")
    assert dead is not None
    town.engines["b"].evict(dead.me)
    town.run(100)
    town.assert_one_group("a", "b")


def test_forced_eviction_needs_no_majority() -> None:
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


def test_force_is_ignored_if_a_majority_is_present() -> None:
    town = Town("abc")
    dead = town.take_down("c")
    assert dead is not None
    town.engines["a"].evict(dead.me, force=True)
    town.run()
    town.assert_one_group("a", "b")
    assert {cut.how for cut in town.engines["a"].tombs.values()} == {How.EVICTED}


def test_mutual_forced_evictions_wait_for_the_operator() -> None:
    town = Town("abxy")
    town.cut("ab", "xy")
    for one, others in (("a", "xy"), ("x", "ab")):
        town.engines[one].evict(*map(town.id, others), force=True)
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
    town.run(80)
    assert town.names("a") == ["a", "b", "x", "y"]
    assert not town.engines["a"].tombs


def test_member_cannot_evict_itself_or_a_stranger() -> None:
    town = Town("ab")
    before = town.engines["a"].state()
    with pytest.raises(LocalProtocolError, match="use leave"):
        town.engines["a"].evict(town.id("a"))
    with pytest.raises(LocalProtocolError, match="not a member"):
        town.engines["a"].evict("q.1")
    with pytest.raises(LocalProtocolError, match="no dispute"):
        town.engines["a"].surrender()
    with pytest.raises(LocalProtocolError, match="was not evicted"):
        town.engines["a"].settle(town.id("b"))
    assert town.engines["a"].state() == before


def test_absent_member_learns_a_decision_from_any_member() -> None:
    town = Town("abcd")
    dead = town.take_down("d")
    assert dead is not None
    town.engines["a"].evict(dead.me)
    for _ in range(200):
        town.run(1)
        if town.engines["c"].open_change is not None:
            break
    c, log = town.engines["c"], town.log["c"]
    town.take_down("c")
    town.run(100)
    town.bring_back("c", c, log)
    town.run(100)
    town.assert_one_group("a", "b", "c")


def test_joiners_unknown_to_some_members_form_no_majority() -> None:
    """b, c and d join through a, which hears nothing for a while; then both sides of a cut evict each other."""
    town = Town("ae")
    town.run(5)
    town.passes = lambda sender, receiver, content: receiver != "a"
    for name in "bcd":
        town.join(name, "a")
    town.run(20)
    town.cut("ae", "bcd")
    town.passes = lambda sender, receiver, content: True
    town.engines["a"].evict(*map(town.id, "bcd"))
    town.engines["b"].evict(*map(town.id, "ae"))
    town.run(100)
    everybody = ["a", "b", "c", "d", "e"]
    assert everybody in (town.names("a"), town.names("b")), "both sides have decided"
    town.heal()
    town.run(200)
    for name in everybody:
        if town.engines[name].standing is Standing.EVICTED:
            town.take_down(name)
    town.run()
    assert sorted(town.engines) in (["a", "e"], ["b", "c", "d"])
    town.assert_one_group(*town.engines)


def test_request_for_an_unknown_joiner_survives_other_decisions() -> None:
    town = Town("abcdf")
    town.run()
    a = town.engines["a"]
    dead, hidden = hide_a_joiner(town)
    passes = town.passes
    town.passes = lambda sender, receiver, content: (
        passes(sender, receiver, content) and not (sender == "d" and a.open_change is not None)
    )
    a.evict(dead)
    until_named(town, hidden)
    town.take_down("d")  # before it has promised
    a.evict(hidden)
    town.run(200)
    assert a.view.epoch == 1, "the others have ended the ballot without victims"
    assert a.wants.victims.keys() == {dead, hidden}
    d = next(member for member in a.members if member.startswith("d"))
    a.evict(d)
    town.passes = lambda sender, receiver, content: True
    town.run(100)
    town.assert_one_group("a", "c", "f")


def test_last_member_evicts_an_unknown_joiner_and_leaves() -> None:
    town, dead, hidden = three_with_a_hidden_joiner()
    a = town.engines["a"]
    c = town.take_down("c")
    assert c is not None
    a.evict(dead, c.me, hidden, force=True)
    a.leave()
    town.run(1000)
    assert a.standing is Standing.LEFT


def test_withdrawal_is_checked_against_the_requests() -> None:
    town, dead, hidden = three_with_a_hidden_joiner()
    a = town.engines["a"]
    a.evict(hidden)
    a = town.restart("a")
    assert hidden not in a.evictable, "nobody has told it again"
    a.withdraw("e")
    town.run(8)
    town.join("b", "a", replaces=[dead])
    a.withdraw("b")  # of the two that there are, it wants one
    assert not a.wants
    with pytest.raises(LocalProtocolError, match="a has not asked to evict b"):
        a.withdraw("b")


@pytest.mark.parametrize("force", [False, True])
def test_a_restart_right_after_the_decision_wants_nothing_more(force: bool) -> None:
    town = Town("ab" if force else "a")
    gone = town.id("b") if force else town.join("b", "a").me
    town.take_down("b")
    a = town.engines["a"]
    a.evict(gone, force=force)
    while not a.view.epoch:
        a.tick()
    town.restart("a")
    town.run(100)
    assert not town.engines["a"].wants
    town.assert_one_group("a")


def test_member_that_asked_often_is_answered_after_a_restart() -> None:
    town = Town("abcde")
    town.run()
    a = town.engines["a"]
    e = town.take_down("e")
    assert e is not None
    town.cut("abd", "c")
    a.evict(e.me)
    for _ in range(2000):
        a._exchange.ask()  # as in hours
    town.run(100)
    assert len(a.waits_for()) == 1
    town.restart("a")
    town.cuts.clear()
    town.cut("a", "bc")  # these are reached by way of d
    town.link_all()
    town.run(300)
    assert not town.engines["a"].wants
