"""Incarnations: handshakes, superseding, restarts, rolled-back journals, and input that no member may send."""

import dataclasses

import pytest

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Durability, Engine, EngineState
from crdtcast.exceptions import (
    ConfigurationError,
    HandshakeError,
    LocalProtocolError,
    RemoteProtocolError,
    RolledBackError,
    SupersededError,
)

from .group import Group, dot, incarnation, is_digest, is_message, message, news, stable, take


def everything(engine):
    """All that a refused input must leave as it was."""
    counters = dataclasses.replace(engine.counters())
    return engine.state(), engine.members, counters, engine.has_deliverable(), engine.has_stable()


def test_introductions():
    engine = Engine(incarnation("a", 5), "ab")
    assert engine.introduce(incarnation("b", 3))
    assert engine.introduce(incarnation("b", 3))
    assert engine.introduce(incarnation("b", 4))
    assert not engine.introduce(incarnation("b", 3))
    assert not engine.introduce(incarnation("a", 4))
    assert engine.members == {"a": incarnation("a", 5), "b": incarnation("b", 4)}
    before = everything(engine)
    with pytest.raises(HandshakeError, match="not a member of this group"):
        engine.introduce(incarnation("x"))
    with pytest.raises(HandshakeError, match="own address"):
        engine.introduce(engine.me)
    with pytest.raises(HandshakeError):
        engine.introduce("nonsense")
    with pytest.raises(SupersededError, match="taken over its name: stop"):
        engine.introduce(incarnation("a", 6))
    assert everything(engine) == before


@pytest.mark.parametrize(
    ("me", "names"),
    [("a", "ab"), (incarnation("a"), "bc"), (incarnation("a"), ["a", "b.c"]), ("a.x", "a")],
)
def test_a_group_that_makes_no_sense(me, names):
    with pytest.raises(ConfigurationError):
        Engine(me, names)


@pytest.mark.parametrize(
    "state",
    [
        EngineState(vector={incarnation("x"): 1}),
        EngineState(vector={incarnation("a", 9): 1}),
        EngineState(counter=2, vector={incarnation("a"): 1}),
        EngineState(vector={incarnation("b"): 1}, unstable=(message("b", 2),)),
    ],
)
def test_a_state_that_does_not_fit(state):
    with pytest.raises(ConfigurationError):
        Engine(incarnation("a"), "ab", state=state)


def test_a_peer_must_be_introduced_first():
    engine = Engine(incarnation("a"), "ab")
    for use in (
        lambda: engine.connected(incarnation("b")),
        lambda: engine.receive(incarnation("b"), news(b=0)),
        lambda: engine.receive(incarnation("x"), message("b", 1)),
    ):
        before = everything(engine)
        with pytest.raises(LocalProtocolError):
            use()
        assert everything(engine) == before


BAD = {
    "counter 0": message("b", 0),
    "negative counter": message("b", -1),
    "a counter that is no number": Message(Dot(incarnation("b"), "1"), (), b""),
    "an origin outside the group": message("x", 1),
    "an origin that is no incarnation": Message(Dot("b", 1), (), b""),
    "a context that names itself": message("b", 2, dot("b", 2)),
    "a context that names its own future": message("b", 2, dot("b", 3)),
    "a context with counter 0": message("b", 1, dot("c", 0)),
    "a context outside the group": message("b", 1, dot("x", 1)),
    "a digest with a negative counter": news(a=0, b=-1),
    "a digest with text in it": Digest(DigestKind.NEWS, {incarnation("b"): "1"}),
    "a digest with fractions": Digest(DigestKind.NEWS, {incarnation("b"): 1.5}),
    "a digest that names a stranger": news(a=0, b=0, c=0, x=1),
    "not a message or digest": "hello",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_frame_invalid_for_members_is_refused_without_effect(bad):
    group = Group("abc")
    group["b"].send(b"")
    group.pump()
    a = group["a"]
    before = everything(a)
    with pytest.raises(RemoteProtocolError):
        a.receive(incarnation("b"), bad)
    assert everything(a) == before
    assert a.take_outbox() == []
    group.settle()


ROLLED_BACK = {
    "a digest": news(a=2, b=0, c=0),
    "an own message": message("a", 2),
    "a dependency": message("b", 1, dot("a", 2)),
}


@pytest.mark.parametrize("proof", ROLLED_BACK.values(), ids=ROLLED_BACK.keys())
def test_peer_with_more_of_our_messages_proves_a_rollback(proof):
    group = Group("abc")
    group["a"].send(b"")
    group.pump()
    a = group.restart("a", group["a"].state(), same=True)
    for other in "bc":
        group.link("a", other)
    before = everything(a)
    with pytest.raises(RolledBackError, match="new incarnation"):
        a.receive(incarnation("b"), proof)
    assert everything(a) == before


@pytest.mark.parametrize("claim", ROLLED_BACK.values(), ids=ROLLED_BACK.keys())
def test_member_without_a_journal_rejects_rollback_claims(claim):
    group = Group("abc")
    group["a"].send(b"")
    group.pump()
    before = everything(group["a"])
    with pytest.raises(RemoteProtocolError, match=incarnation("b")):
        group["a"].receive(incarnation("b"), claim)
    assert everything(group["a"]) == before
    group.settle()


def test_a_digest_that_names_our_successor_ends_us():
    group = Group("ab")
    group.pump()
    before = everything(group["a"])
    successor = incarnation("a", 2)
    later = Digest(DigestKind.NEWS, {incarnation("a"): 0, successor: 0, incarnation("b"): 0})
    with pytest.raises(SupersededError):
        group["a"].receive(incarnation("b"), later)
    assert everything(group["a"]) == before


def test_same_incarnation_resumes_from_its_journal():
    group = Group("abc")
    sent = [group["a"].send(b"%d" % n) for n in range(3)]
    group["b"].send(b"")
    group.pump()
    take(group["a"])
    state = group["a"].state()
    a = group.restart("a", state, same=True)
    assert a.state() == state
    assert a.tag(sent[0].dot) < a.tag(sent[2].dot)
    assert a.send(b"next").dot == dot("a", 4)
    for other in "bc":
        group.link("a", other)
    notices = group.settle()
    assert [d for d in notices["a"] if d.origin == a.me] == [dot("a", n) for n in (1, 2, 3, 4)]


def test_unreported_stability_is_reported_after_a_restart():
    group = Group("ab")
    for _ in range(4):
        group["a"].send(b"")
    group.pump()
    take(group["b"])
    group.tick()
    group.pump()
    assert len(group["a"].poll_stable(1)) == 1
    a = group.restart("a", group["a"].state(), same=True)
    assert a.counters().unstable == 3
    group.link("a", "b")
    assert group.settle()["a"] == [dot("a", n) for n in (2, 3, 4)]


def test_new_incarnation_has_new_dots_and_keeps_its_causality():
    group = Group("ab")
    old = group["a"].send(b"old")
    a = group.restart("a", group["a"].state())
    new = a.send(b"new")
    assert new.dot == dot("a", 1, life=2)
    assert new.context == (old.dot,)
    assert a.tag(old.dot) < new
    group.link("a", "b")
    group.pump()
    assert [d.payload for d in take(group["b"])] == [b"old", b"new"]
    assert all(notices == [old.dot, new.dot] for notices in group.settle().values())


def test_messages_of_an_ended_incarnation_are_ignored():
    group = Group("abc")
    b = group["b"]
    assert b.introduce(incarnation("a", 2))
    before = b.state()
    b.receive(incarnation("a"), message("a", 1))
    b.receive(incarnation("a"), news(a=1, b=0, c=0))
    b.connected(incarnation("a"))
    b.disconnected(incarnation("a"))
    assert b.state() == before
    assert b.counters().stale == 2
    assert not b.has_deliverable()


def test_undelivered_messages_of_the_ended_return_from_others():
    group = Group("abc")
    group["a"].send(b"1")
    group.arrive("a", "b", is_message)
    group.arrive("a", "c", is_message)
    take(group["c"])
    lost = EngineState(vector={incarnation("a"): 0})  # a's journal had not synced it
    group.restart("a", lost)
    group.link("a", "b")
    assert group["b"].poll() is None
    assert group["b"].counters().purged == 1
    group.link("a", "c")
    group.settle()
    assert group["b"].vector[incarnation("a")] == 1
    assert group["a"].vector[incarnation("a")] == 1


def test_messages_only_the_ended_incarnation_had_are_lost():
    group = Group("abc")
    group["a"].send(b"1")
    group.arrive("a", "b", is_message)
    group.drop("a", "c")
    group.restart("a", EngineState(vector={incarnation("a"): 0}))
    group.link("a", "b")
    group.link("a", "c")
    group.settle()
    assert [group[name].vector[incarnation("a")] for name in "abc"] == [0, 0, 0]


def test_a_successor_is_heard_of_through_others():
    group = Group("abc")
    group.pump()
    group.restart("a", group["a"].state())
    group.link("a", "b")
    group["a"].send(b"")
    group.arrive("a", "b")
    take(group["b"])
    group["b"].tick()
    group.arrive("b", "c", is_digest)
    assert group["c"].members["a"] == incarnation("a", 2)
    assert not group["c"].introduce(incarnation("a", 1))


def test_rows_count_again_once_their_senders_drop_the_ended():
    """c may still take the lost message from a's first life, so b may not call anything stable on c's old word."""
    group = Group("abc", durable=Durability.DECLARED)
    group["b"].send(b"x")
    group["a"].send(b"concurrent with x, and then lost by a")
    group.arrive("b", "a")
    group.arrive("b", "c")
    take(group["c"])
    group["c"].mark_durable(dict(group["c"].vector))
    group["c"].tick()
    group.arrive("c", "b")
    empty = EngineState(vector={incarnation("a"): 0, incarnation("b"): 0, incarnation("c"): 0})
    lost_on_the_way_to_b = group.drop("a", "b")
    assert any(is_message(content) for content in lost_on_the_way_to_b)
    in_flight_to_c = list(group.flights["a", "c"])
    a = group.restart("a", empty)
    group.link("a", "b")
    group["b"].mark_durable(dict(group["b"].vector))
    a.receive(incarnation("b"), message("b", 1, payload=b"x"))
    take(a)
    a.mark_durable(dict(a.vector))
    a.tick()
    group.arrive("a", "b")
    group["b"].tick()
    assert stable(group["b"]) == []
    for content in in_flight_to_c:
        group["c"].receive(incarnation("a"), content)
    assert len(take(group["c"])) == 1
    group.link("a", "c")
    group.settle()
    assert all(group[name].vector[incarnation("a")] == 1 for name in "abc")


def test_peer_that_lost_acknowledged_messages_is_detected():
    group = Group("ab")
    group["a"].send(b"")
    group.settle()
    forgetful = Engine(incarnation("b", 2), "ab")
    a = group["a"]
    assert a.introduce(forgetful.me)
    a.connected(forgetful.me)
    forgetful.introduce(a.me)
    forgetful.connected(a.me)
    before = everything(a)
    (hello,) = forgetful.take_outbox()
    with pytest.raises(RemoteProtocolError, match="lost its state"):
        a.receive(forgetful.me, hello.message)
    assert everything(a) == before


def test_memory_beyond_the_journal_is_adopted_before_any_send():
    """The server beside a gateway lost its last second; the gateway itself did not."""
    group = Group("abc", durable=Durability.DECLARED)
    a = group["a"]
    saved = a.state()
    a.send(b"acknowledged to a client, never synced, never sent")
    a.take_outbox()
    memory = a.state().unstable
    successor = group.restart("a", saved)
    for remembered in memory:
        successor.receive(a.me, remembered)
    group.link("a", "b")
    assert successor.take_outbox() == [], "its vector may not be counted on yet"
    assert [d.payload for d in take(successor)] == [memory[0].payload]
    successor.tick()
    told = [t.message for t in successor.take_outbox()]
    assert told
    assert all(successor.me not in d.vector for d in told if isinstance(d, Digest)), "not durable"
    group.link("a", "c")
    group.settle()
    assert all(group[name].vector[a.me] == 1 for name in "abc")


def test_memory_of_an_ended_incarnation_is_not_adopted_later():
    group = Group("ab")
    group.pump()
    successor = group.restart("a", group["a"].state())
    group.link("a", "b")
    group.pump()
    successor.receive(incarnation("a"), message("a", 1))
    assert not successor.has_deliverable()
    assert successor.counters().stale == 1


def test_thousands_of_fake_incarnations_are_handled_at_once():
    """In a digest, and the newest in the name of another member: it counts; the others are only noted."""
    group = Group("abc")
    group.pump()
    a = group["a"]
    lives = {incarnation("c", life): 1 for life in range(2, 20_000)}
    a.receive(incarnation("b"), Digest(DigestKind.NEWS, {**a.vector, **lives}))
    assert a.members["c"] == incarnation("c", 19_999)
    assert a.counters().superseded == 1
