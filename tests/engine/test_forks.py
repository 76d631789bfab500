"""Two views of one epoch, none of them forced: a voter's disk was set back, and it has voted twice."""

from dataclasses import replace

import pytest

from crdtcast.engine import Standing
from crdtcast.engine.forks import Forks
from crdtcast.engine.views import Decided, Record, ViewChange
from crdtcast.exceptions import LocalProtocolError
from tests.engine.town import Town

EMPTY, OTHER = ViewChange(), ViewChange(level=1)


def divided(one: str, other: str, *, forced: bool = False) -> Town:
    """A group whose epoch 0 has ended in two ways: for these members so, and for those otherwise. All are linked."""
    town = Town(one + other)
    town.send(one[0], b"before")
    town.run()
    for name in one + other:
        change, state = EMPTY if name in one else OTHER, town.engines[name].state()
        view, record = state.view.after(change), state.record
        assert record is not None
        town.engines[name] = town.engine_type(
            town.id(name),
            replace(
                state,
                view=view,
                decided=(Decided(0, state.view.name, change, forced),),
                record=Record(record.member, record.serial + 1, 1, view.name, record.sent),
            ),
        )
    town.link_all()
    return town


def standings(town: Town, names: str) -> set[Standing]:
    return {town.engines[name].standing for name in names}


def test_both_sides_stop_changing_views_and_data_goes_on() -> None:
    town = divided("ab", "cde")
    town.run()
    assert standings(town, "abcde") == {Standing.SPLIT}
    for name in "ac":
        with pytest.raises(
            LocalProtocolError, match="follow two different changes of epoch 0, since"
        ):
            town.engines[name].evict(town.id("b"))
    views = {name: engine.view for name, engine in town.engines.items()}
    town.send("a", b"from a")
    town.send("d", b"from d")
    town.run(200)
    for name, engine in town.engines.items():
        assert engine.view == views[name] and not engine.state().frozen
        assert sorted(town.log[name]) == [b"before", b"from a", b"from d"]
        assert engine.standing.can_send


def test_voter_that_promised_to_the_other_side_promises_no_more() -> None:
    town = divided("abf", "cde")
    town.engines["a"].evict(town.id("b"))
    town.run(200)
    assert {engine.view.epoch for engine in town.engines.values()} == {1}


def test_one_side_surrenders_and_joins_again() -> None:
    town = divided("ab", "cde")
    town.run()
    for name in "ab":
        engine = town.engines[name]
        engine.surrender()
        assert engine.standing is Standing.EVICTED
        town.join(name, "c", replaces=[engine.me])
        town.run()
    town.run(100)
    town.assert_one_group("a", "b", "c", "d", "e")
    assert town.engines["a"].view.voters == {engine.me for engine in town.engines.values()}


def test_claim_of_a_single_member_stops_only_itself() -> None:
    """It lies, or it is alone on its side: then it hears of the others."""
    town = divided("a", "bcd")
    town.run()
    assert standings(town, "a") == {Standing.SPLIT} and standings(town, "bcd") == {Standing.MEMBER}
    doubts = town.engines["b"].blames.take_doubts()
    assert (
        doubts.keys() == {town.id("a")} and "different changes of epoch 0" in doubts[town.id("a")]
    )
    town.engines["b"].evict(town.id("a"))
    town.run(100)
    a = town.engines["a"]
    assert a.standing is Standing.EVICTED
    town.join("a", "b", replaces=[a.me])
    town.run(100)
    town.assert_one_group("a", "b", "c", "d")


def test_forced_change_is_no_sign_of_a_fork() -> None:
    town = divided("ab", "cde", forced=True)
    town.run()
    assert standings(town, "abcde") == {Standing.MEMBER}


def test_member_that_changes_sides_no_longer_counts() -> None:
    town = Town("abc")
    town.run()
    a = town.engines["a"]
    others = {"b", "c"}
    forks = Forks(a._consensus, lambda: others)
    a._consensus._decide(EMPTY, forced=False)
    name = a._consensus.decided[0].name
    other = Decided(0, name, OTHER)
    for _ in range(2):
        forks.note("b", 1, "other", [other])
    assert forks.apart == {"b": 0} and not forks.is_split
    forks.note("c", 2, "others", [other])
    assert forks.is_split
    others.remove("c")
    assert not forks.is_split
    others.add("c")
    forks.note("b", 1, a.view.name, [])
    assert forks.apart == {"c": 0}
