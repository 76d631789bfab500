"""How a change of view comes about where what is told is lost at the worst places; and that each rule is needed there:
the same schedule shows what goes wrong without it.
"""

import re

import pytest

from crdtcast.causality.messages import Ended, Message
from crdtcast.engine import GroupEngine, Standing
from crdtcast.engine.views import Views
from crdtcast.exceptions import RemoteProtocolError, RolledBackError
from tests.engine.town import Town
from tests.simulator.mutants import MUTANTS

OURS = "ours"


def engine(name: str) -> type[GroupEngine]:
    return GroupEngine if name == OURS else MUTANTS[name]


def asks_to_accept(content: object, ballot: int) -> bool:
    """Whether it tells of what a proposer asks to accept under a ballot of that number."""
    return isinstance(content, Views) and any(
        r.proposal is not None
        and r.proposal.change is not None
        and r.proposal.ballot.number == ballot
        for r in content.records
    )


def is_accepted(content: Views) -> bool:
    """Whether it tells that somebody has accepted something."""
    return any(record.accepted is not None for record in content.records)


def a_decision_that_only_b_knows(engine_type: type[GroupEngine]) -> Town:
    """a has asked to put c out, b has decided that, and is silent. a has accepted it, and c has heard of nothing."""
    town = Town("abc", engine_type=engine_type)
    town.run()

    def passes(sender: str, receiver: str, content: object) -> bool:
        if asks_to_accept(content, 1):
            return sender == "a" and receiver == "b"
        return "b" not in (sender, receiver) or town.engines["b"].view.epoch == 0

    town.passes = passes
    town.engines["a"].evict(town.id("c"))
    for _ in range(30):
        town.run(1)
        if town.engines["b"].view.epoch:
            return town
    raise AssertionError("b has decided nothing")


def names_of_views(town: Town) -> set[str]:
    return {engine.view.name for engine in town.engines.values()}


@pytest.mark.parametrize("kind", [OURS, "AdoptsNothing"])
def test_later_ballot_adopts_a_value_that_may_be_decided(kind: str) -> None:
    town = a_decision_that_only_b_knows(engine(kind))
    town.engines["a"].withdraw()
    town.run(60)
    a, b = town.engines["a"].view, town.engines["b"].view
    assert a.epoch == b.epoch == 1
    assert (a.name == b.name) == (kind == OURS)


def agrees_on_the_cut(kind: str, *, withdraws: bool) -> bool:
    """Whether a member that has promised to put c out has no more of it in the end than the one that has decided it."""
    town = a_decision_that_only_b_knows(engine(kind))
    town.send("c", b"beyond the cut")
    if withdraws:
        town.engines["a"].withdraw()
    town.run(60)
    town.passes = lambda sender, receiver, content: True
    town.link_all()
    town.run(60)
    a, b = town.engines["a"], town.engines["b"]
    return a.view.name == b.view.name and town.log["a"] == town.log["b"] == []


@pytest.mark.parametrize("kind", [OURS, "NoFreezing"])
def test_promise_stops_acceptance_of_victims_messages(kind: str) -> None:
    assert agrees_on_the_cut(kind, withdraws=False) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "ThawsByBallot"])
def test_a_freeze_lasts_until_the_epoch_is_decided(kind: str) -> None:
    assert agrees_on_the_cut(kind, withdraws=True) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "FreshJoiners"])
def test_a_joiner_is_bound_by_the_freeze_of_its_contact(kind: str) -> None:
    town = Town("abc", engine_type=engine(kind))
    town.run()
    a, c = town.engines["a"], town.engines["c"]
    town.engines["b"].evict(c.me)
    town.passes = lambda sender, receiver, content: (
        not (asks_to_accept(content, 1) or (receiver == "j" and isinstance(content, Views)))
    )
    for _ in range(30):
        town.run(1)
        if a.victims:
            break
    assert a.victims == {c.me}
    town.join("j", "a")
    town.send("c", b"beyond the cut")
    town.run(3)
    assert (town.log["j"] == []) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "TellsNoDecision"])
def test_absent_member_is_told_the_decision(kind: str) -> None:
    town = Town("abcde", engine_type=engine(kind))
    town.run()
    town.engines["a"].evict(town.id("d"))
    town.take_down("d")
    town.passes = lambda sender, receiver, content: (
        not (
            receiver == "c"
            and isinstance(content, Views)
            and (content.epoch or is_accepted(content))
        )
    )
    town.run(60)
    assert town.engines["a"].view.epoch == 1
    assert town.engines["c"].view.epoch == 0
    town.passes = lambda sender, receiver, content: True
    town.link_all()
    town.run(60)
    assert (town.engines["c"].view.epoch == 1) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "FreezesUnasked"])
def test_no_member_freezes_while_a_needed_voter_is_away(kind: str) -> None:
    town = Town("abcd", engine_type=engine(kind))
    town.run()
    gone = [dead.me for name in "cd" if (dead := town.take_down(name)) is not None]
    town.engines["a"].evict(*gone)
    town.run(5)
    assert (town.engines["b"].victims == set()) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "GoesUnheard"])
def test_voter_for_its_own_eviction_stays_until_others_know(kind: str) -> None:
    town = Town("ab", engine_type=engine(kind))
    town.run()
    town.passes = lambda sender, receiver, content: (
        not (sender == "b" and town.engines["b"].view.epoch == 1)
    )
    town.engines["a"].evict(town.id("b"))
    town.run()
    b = town.engines["b"]
    assert b.view.epoch == 1 and town.engines["a"].view.epoch == 0
    assert (b.standing is Standing.LEAVING) == (kind == OURS)
    if b.standing is Standing.EVICTED:
        town.take_down("b")
    town.passes = lambda sender, receiver, content: True
    town.run()
    assert (town.engines["a"].view.epoch == 1) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "LeaversTellEnds"])
def test_left_member_does_not_end_a_later_joiner(kind: str) -> None:
    town = Town("abc", engine_type=engine(kind))
    town.run()
    town.passes = lambda sender, receiver, content: (
        receiver != "c" or town.engines["c"].view.epoch == 0
    )
    town.engines["c"].leave()
    town.run()
    c = town.engines["c"]
    assert c.standing is Standing.LEAVING and c.me not in c.going_on()
    town.join("d", "a")
    town.run()
    e = town.join("e", "d")
    if kind == OURS:
        town.run()
        assert e.standing is Standing.MEMBER
    else:
        with pytest.raises(RemoteProtocolError, match=f"reports that {re.escape(e.me)} has ended"):
            town.run()


def test_rolled_back_disk_ends_the_incarnation() -> None:
    """Others have a record of it that it has not."""
    town = Town("abc")
    town.run()
    before = town.engines["b"].state()
    town.engines["a"].evict(town.id("c"))
    town.run()
    again = GroupEngine(town.id("b"), before)
    assert again.resumed
    told = Views(1, town.engines["a"].view.name, {again.me: again._consensus.own.serial + 1})
    state = again.state()
    with pytest.raises(RolledBackError, match="the journal of"):
        again.receive(town.id("a"), told)
    assert again.state() == state


def test_member_that_never_restarted_ignores_rollback_claims() -> None:
    town = Town("ab")
    a = town.engines["a"]
    with pytest.raises(RemoteProtocolError, match="b"):
        a.receive(town.id("b"), Views(0, a.view.name, {a.me: 99}))
    a.receive(town.id("b"), Ended("somebody.else"))


@pytest.mark.parametrize("kind", [OURS, "OwnMembersOnly"])
def test_member_unknown_to_the_proposer_counts_for_the_cut(kind: str) -> None:
    town = Town("abc", engine_type=engine(kind))
    town.run()

    def passes(sender: str, receiver: str, content: object) -> bool:
        if not isinstance(content, Message) or content.dot.origin != town.id("c"):
            return True
        return receiver == "j" or (receiver == "b" and content.dot.counter == 1)

    town.passes = passes
    j = town.join("j", "c")  # which b learns from the first message of c, and a does not
    town.run(3)
    town.send("c", b"only j has it")
    town.run(3)
    assert town.log["j"] == [b"only j has it"]
    town.engines["a"].evict(town.id("c"))
    town.run(3)
    town.passes = lambda sender, receiver, content: True
    town.run(100)
    agrees = j.standing is Standing.MEMBER and b"only j has it" in town.log["a"]
    assert (agrees and town.names("a") == ["a", "b", "j"]) == (kind == OURS)


@pytest.mark.parametrize("kind", [OURS, "FirstCutStays"])
def test_cut_is_stated_again_if_its_last_holders_are_gone(kind: str) -> None:
    town = Town("abcde", engine_type=engine(kind))
    town.run()
    gone = town.id("e")
    town.passes = lambda sender, receiver, content: (
        not (isinstance(content, Message) and content.dot.origin == gone and receiver != "d")
    )
    town.send("e", b"only d has it")
    town.run(3)
    town.engines["a"].evict(gone)
    town.run(30)
    a = town.engines["a"]
    assert a.view.epoch == 1 and gone in a.victims
    d = town.take_down("d")
    assert d is not None
    town.take_down("e")
    a.evict(d.me)
    town.run(200)
    assert (not a.victims) == (kind == OURS)
    if kind == OURS:
        town.assert_one_group("a", "b", "c")


def test_joiner_beyond_a_restated_cut_is_evicted() -> None:
    """j has gone on through the eviction of its contact b. Only c, which goes next, has the message that let it in."""
    town = Town("abc")
    town.run()
    contact = town.id("b")
    town.passes = lambda sender, receiver, content: (
        not (isinstance(content, Message) and content.dot.origin == contact and receiver == "a")
    )
    j = town.join("j", "b")
    town.run(3)
    town.engines["c"].evict(contact)
    town.run(30)
    a, c = town.engines["a"], town.engines["c"]
    assert a.view.name == c.view.name == j.view.name
    assert j.standing is Standing.MEMBER and j.me not in a.members
    town.take_down("b")
    a.evict(c.me)
    town.run(80)
    assert a.view.epoch == j.view.epoch == 2
    assert j.standing is Standing.EVICTED
    assert town.names("a") == ["a"]


@pytest.mark.parametrize("kind", [OURS, "LeavesUntold"])
def test_leaver_goes_once_others_have_all_its_messages(kind: str) -> None:
    town = Town("abc", engine_type=engine(kind))
    town.run()
    town.passes = lambda sender, receiver, content: (
        not (isinstance(content, Message) and receiver == "a")
    )
    town.send("b", b"of b, to c alone")
    town.run(2)
    town.engines["c"].leave()
    town.run(60)
    c = town.engines["c"]
    assert town.log["a"] == []
    assert (c.standing is Standing.LEAVING) == (kind == OURS)
    assert (c.waits_for() == [town.id("a")]) == (kind == OURS)
