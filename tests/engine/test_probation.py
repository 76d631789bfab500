"""Disks that were set back: what a member does that has started from one before others could tell it, and after."""

import pytest

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.engine import GroupEngine, GroupState, Standing
from crdtcast.engine.probation import LISTEN
from crdtcast.engine.views import Views
from crdtcast.exceptions import EndedError, NotReadyError, RolledBackError
from tests.engine.test_consensus import asks_to_accept
from tests.engine.town import Town


def start_again(town: Town, name: str, state: GroupState) -> GroupEngine:
    """A process of the same incarnation, from that state of its disk, and with links to all."""
    me = town.id(name)
    town.take_down(name)
    town.engines[name] = engine = GroupEngine(me, state)
    town.log[name] = []
    town.link_all()
    return engine


def messages_of(engine: GroupEngine) -> list[Message]:
    return [e.message for e in engine.take_outbox() if isinstance(e.message, Message)]


def hear(engine: GroupEngine, sender: GroupEngine) -> None:
    """All that a member has to tell another one arrives there."""
    for effect in sender.take_outbox():
        if effect.to in (None, engine.me):
            engine.receive(sender.me, effect.message)


def answer(engine: GroupEngine, *others: GroupEngine) -> None:
    """What it asks arrives, and the answers."""
    for effect in engine.take_outbox():
        for other in others:
            if effect.to in (None, other.me):
                other.receive(engine.me, effect.message)
    for other in others:
        hear(engine, other)


def talked() -> Town:
    town = Town("abc")
    town.send("b", b"one")
    town.run()
    return town


def test_member_on_probation_sends_nothing_before_all_answer() -> None:
    town = talked()
    b = start_again(town, "b", town.engines["b"].state())
    tag = b.send(b"two")
    assert not messages_of(b), "its number may have been used"
    answer(b, town.engines["a"])
    assert b.is_on_probation and not messages_of(b)
    answer(b, town.engines["c"])
    town.link_all()
    answer(b, town.engines["a"], town.engines["c"])
    assert not b.is_on_probation
    assert {message.dot for message in messages_of(b)} == {tag.dot}


def test_member_on_probation_continues_without_absent_ones() -> None:
    town = talked()
    town.take_down("c")
    b = start_again(town, "b", town.engines["b"].state())
    tag = b.send(b"two")
    for _ in range(LISTEN):
        assert not messages_of(b)
        answer(b, town.engines["a"])
        b.tick()
    assert tag.dot in [message.dot for message in messages_of(b)]
    assert b.is_unsure, "c may still have more of it"
    town.run()
    assert town.log["a"] == [b"one", b"two"]


def test_single_member_has_no_probation() -> None:
    alone = GroupEngine.found("a.1", [])
    again = GroupEngine("a.1", alone.state())
    again.send(b"one")
    assert not again.is_on_probation and len(messages_of(again)) == 1


def test_last_member_changes_its_group_without_links() -> None:
    town = talked()
    for gone in "ac":
        town.take_down(gone)
    b = start_again(town, "b", town.engines["b"].state())
    b.evict(*(other for other in b.members if other != b.me), force=True)
    town.run(LISTEN - 2)
    assert b.view.epoch == 0
    town.run(60)
    assert b.members.keys() == {b.me}
    assert town.join("d", "b").members.keys() == {b.me, town.id("d")}


def test_join_admitted_before_the_restart_is_answered_at_once() -> None:
    town = talked()
    base = town.fresh_base("d")
    first = town.engines["b"].admit(base)
    b = start_again(town, "b", town.engines["b"].state())
    assert b.is_on_probation and b.admit(base).incarnation == first.incarnation


def test_member_on_probation_does_not_vote_before_all_answer() -> None:
    """a asks b to promise; what c knows of b comes a little later."""
    town = talked()
    b = start_again(town, "b", town.engines["b"].state())
    town.passes = lambda sender, receiver, content: "c" not in (sender, receiver)
    record = b.state().record
    town.engines["a"].evict(town.id("c"))
    town.run(2)
    assert b.state().record == record
    town.run(100)
    assert b.view.epoch == 1, "it does not wait for ever"


def test_member_on_probation_admits_no_joiner() -> None:
    town = talked()
    b = start_again(town, "b", town.engines["b"].state())
    with pytest.raises(NotReadyError, match="asks the others"):
        b.admit(town.fresh_base("d"))
    town.run()
    assert b.admit(town.fresh_base("d"))


def test_member_that_lost_a_vote_is_told_before_it_votes() -> None:
    town = talked()
    before = town.engines["b"].state()
    town.passes = lambda sender, receiver, content: (
        not (
            isinstance(content, Views)
            and ({sender, receiver} == {"a", "b"} or asks_to_accept(content, 1))
        )
    )
    town.engines["c"].evict(town.id("a"))
    town.run(1)
    b = town.engines["b"]
    assert b.view.epoch == 0 and b._consensus.own.promised.number, "c alone knows of its promise"
    b = start_again(town, "b", before)
    town.passes = lambda sender, receiver, content: True
    town.engines["a"].evict(town.id("c"))
    with pytest.raises(RolledBackError, match="the journal of"):
        town.run()
    assert b.standing is Standing.EVICTED and b._consensus.own == before.record


def test_member_that_lost_acknowledged_messages_is_told() -> None:
    """Its own messages and its record are all there; what it lacks is stable everywhere, and kept by nobody."""
    town = talked()
    before = town.engines["b"].state()
    town.send("a", b"two", b"three")
    town.run()
    assert town.engines["a"].quiet
    b = start_again(town, "b", before)
    with pytest.raises(RolledBackError, match="knows that 2 were acknowledged"):
        town.run()
    assert b.standing is Standing.EVICTED


def test_member_that_lost_a_message_waiting_elsewhere_is_told() -> None:
    town = talked()
    before = town.engines["b"].state()
    town.passes = lambda sender, receiver, content: (
        not (sender == "b" and isinstance(content, Message) and content.payload == b"two")
    )
    town.send("b", b"two", b"three")
    for effect in town.engines["b"].take_outbox():
        if isinstance(effect.message, Message) and effect.message.payload == b"three":
            town.engines["a"].receive(town.id("b"), effect.message)
    assert town.engines["a"].vector[town.id("b")] == 1
    start_again(town, "b", before)
    with pytest.raises(RolledBackError, match="has 2 messages of it"):
        town.run()


def test_rolled_back_member_sends_nothing_more() -> None:
    town = talked()
    before = town.engines["b"].state()
    town.send("b", b"two")
    town.run()
    b = start_again(town, "b", before)
    with pytest.raises(RolledBackError):
        town.run()
    b.take_outbox()
    b.tick()
    assert not b.take_outbox()
    with pytest.raises(EndedError):
        b.send(b"three")
    successor = town.join("b", "a", replaces=[b.me])
    town.run(100)
    town.assert_one_group("a", "b", "c")
    assert successor.view.epoch and town.log["b"] == [b"one", b"two"]


def test_only_a_member_started_from_disk_accepts_loss_reports() -> None:
    town = talked()
    a, c = town.engines["a"], town.engines["c"]
    told = Digest(DigestKind.TOLD, {c.me: 5})
    with pytest.raises(Exception, match="reports that"):
        a.receive(c.me, told)
    assert a.blamed.keys() == {c.me} and a.standing is Standing.MEMBER
