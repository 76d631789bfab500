"""Stability: late adoption, the minimum without one's own row, order, slices, silence."""

import pytest

from crdtcast.causality.messages import DigestKind
from crdtcast.engine import Durability, known_deliveries
from crdtcast.exceptions import LocalProtocolError

from .group import (
    Group,
    digest,
    digests,
    dot,
    incarnation,
    is_digest,
    is_message,
    message,
    news,
    stable,
    take,
)


def test_message_is_stable_only_after_all_acknowledge():
    group = Group("abc")
    tag = group["a"].send(b"")
    group.pump("a", "b")
    take(group["b"])
    group.tick("b")
    group.pump("a", "b")
    assert stable(group["a"]) == []
    assert group["a"].held_back_by() == ["c"]
    group.pump()
    take(group["c"])
    group.tick("c")
    group.pump()
    assert stable(group["a"]) == [tag.dot]
    assert stable(group["a"]) == []
    assert group["a"].quiet
    assert group["a"].stable == {incarnation("a"): 1}


def test_member_lacking_a_later_message_does_not_hold_this_one():
    group = Group("abc")
    first = group["a"].send(b"1")
    group.pump("a", "b")
    take(group["b"])
    group.tick("b")
    group.pump("a", "b")
    later = group["a"].send(b"2")
    for missing in (known_deliveries.lacking, known_deliveries.unsettled):
        assert missing(group["a"], first.dot) == [incarnation("c")]
        assert missing(group["a"], later.dot) == [incarnation("b"), incarnation("c")]


def test_digest_counts_once_its_senders_messages_are_delivered():
    """Late adoption. a sends 2 before it delivers b's message, its digest overtakes 2 on the way to c."""
    group = Group("abc")
    group["b"].send(b"b1")
    group["a"].send(b"a1, concurrent with b1")
    group.arrive("b", "a", is_message)
    take(group["a"])
    group["a"].tick()
    group.arrive("b", "c", is_message)
    take(group["c"])
    group["b"].tick()
    group.arrive("a", "c", is_digest)
    group.arrive("b", "c", is_digest)
    assert stable(group["c"]) == []
    assert group["c"].counters().held_digests >= 1
    assert known_deliveries.lacking(group["c"], dot("b", 1)) == []
    assert known_deliveries.unsettled(group["c"], dot("b", 1)) == [incarnation("a")]
    group.arrive("a", "c", is_message)
    (delivery,) = take(group["c"])
    assert delivery.tag.concurrent(group["c"].tag(dot("b", 1)))
    assert stable(group["c"]) == [dot("b", 1)]


def test_only_the_newest_of_the_digests_that_wait_is_kept():
    group = Group("ab")
    b = group["b"]
    b.send(b"")
    b.receive(incarnation("a"), news(a=1, b=0))
    b.receive(incarnation("a"), news(a=2, b=1))
    b.receive(incarnation("a"), news(a=1, b=0))  # late
    b.receive(incarnation("a"), message("a", 1))
    take(b)
    assert stable(b) == []
    b.receive(incarnation("a"), message("a", 2, dot("a", 1)))
    take(b)
    assert stable(b) == [dot("b", 1), dot("a", 1), dot("a", 2)]


def test_an_older_digest_changes_nothing():
    group = Group("ab")
    b = group["b"]
    b.send(b"")
    b.receive(incarnation("a"), news(a=0, b=1))
    b.receive(incarnation("a"), news(a=0, b=0))
    assert stable(b) == [dot("b", 1)]


def test_undelivered_message_is_not_stable_despite_acks():
    """One's own row is the delivered vector, never a stored one."""
    group = Group("abc")
    c = group["c"]
    c.receive(incarnation("a"), message("a", 1))
    c.receive(incarnation("b"), news(a=1, b=0, c=0))
    c.receive(incarnation("a"), news(a=1, b=0, c=0))
    assert stable(c) == []
    take(c)
    c.tick()
    assert stable(c) == [dot("a", 1)]


def test_digest_that_omits_a_member_says_nothing_about_it():
    group = Group("abc", linked=False)
    a = group["a"]
    for name in "bc":
        a.introduce(incarnation(name))
        a.connected(incarnation(name))
    a.send(b"")
    a.receive(incarnation("b"), news(a=1, b=0))
    a.receive(incarnation("c"), news(a=1, b=0, c=0))
    assert stable(a) == []
    a.receive(incarnation("b"), news(a=1, b=0, c=0))
    assert stable(a) == [dot("a", 1)]


def test_nothing_is_stable_before_every_name_has_been_heard_of():
    group = Group("abc", linked=False)
    group.link("a", "b")
    group["a"].send(b"")
    for _ in range(20):
        group.tick("a", "b")
        group.pump()
        take(group["b"])
    assert stable(group["a"]) == []
    assert group["a"].held_back_by() == ["c"]
    group.link("a", "c")
    group.link("b", "c")
    assert all(notices == [dot("a", 1)] for notices in group.settle().values())


def test_notices_come_in_causal_order_and_in_slices():
    group = Group("abc")
    sent = []
    for n in range(30):
        name = "abc"[n % 3]
        sent.append(group[name].send(b""))
        group.pump()
        for other in "abc":
            take(group[other])
    group.tick()
    group.pump()
    group.tick()
    slices = []
    while group["b"].has_stable():
        slices.append(group["b"].poll_stable(7))
    assert [len(s) for s in slices] == [7, 7, 7, 7, 2]
    assert [tag.dot for s in slices for tag in s] == [tag.dot for tag in sent]


def test_stable_group_sends_nothing():
    group = Group("abc")
    for name in "abc":
        group[name].send(b"")
    group.settle()
    group.tick()
    group.pump()
    for _ in range(100):
        group.tick()
        group.post()
        assert not any(group.flights.values())


def test_tick_sends_one_digest_if_there_is_news_else_nothing():
    group = Group("abc")
    group.pump()
    group.tick()
    group.pump()
    group["a"].send(b"")
    group.post()
    for flight in group.flights.values():
        flight.clear()
    group["a"].tick()
    assert group["a"].take_outbox() == []  # the message itself has told most of it
    group["a"].tick()
    assert [t.to for t in group["a"].take_outbox()] == [None]
    group["a"].tick()
    assert group["a"].take_outbox() == []


def test_lost_last_digest_is_requested():
    group = Group("ab")
    group["a"].send(b"")
    group.pump()
    take(group["b"])
    group["b"].tick()
    group.drop("b", "a")
    asked = 0
    for _ in range(30):
        group.tick("a")
        for sent in digests(group.drop("a", "b")):
            asked += sent.kind is DigestKind.ASK
    assert 2 <= asked <= 8  # with back-off
    group["b"].receive(incarnation("a"), digest(DigestKind.ASK, a=1, b=0))
    (reply,) = digests(group.drop("b", "a"))
    assert reply.kind is DigestKind.REPLY
    group["a"].receive(incarnation("b"), reply)
    assert stable(group["a"]) == [dot("a", 1)]


def test_an_ask_is_always_answered_and_a_reply_never_is():
    group = Group("ab")
    group.pump()
    group["a"].receive(incarnation("b"), digest(DigestKind.ASK, a=0, b=0))
    (reply,) = digests(group.drop("a", "b"))
    assert reply.kind is DigestKind.REPLY
    group["a"].receive(incarnation("b"), digest(DigestKind.REPLY, a=0, b=0))
    assert group.drop("a", "b") == []


def test_no_digest_request_goes_over_a_link_that_is_down():
    group = Group("ab")
    group["a"].send(b"")
    group.pump()
    group.cut("a", "b")
    for _ in range(50):
        group["a"].tick()
    assert all(effect.to is None for effect in group["a"].take_outbox())


def test_digests_cover_only_declared_durable_messages():
    group = Group("ab", durable=Durability.DECLARED)
    group["a"].send(b"1")
    group.pump()
    take(group["b"])
    group["b"].tick()
    group.pump()
    group["a"].mark_durable(dict(group["a"].vector))
    group["a"].tick()
    assert stable(group["a"]) == []
    group["b"].mark_durable(dict(group["b"].vector))
    group["b"].tick()
    group.pump()
    assert stable(group["a"]) == [dot("a", 1)]


def test_message_not_durable_locally_is_not_stable_locally():
    """So that what a journal loses is always still stored, here and elsewhere."""
    group = Group("ab", durable=Durability.DECLARED)
    group["a"].send(b"1")
    group.pump()
    take(group["b"])
    group["b"].mark_durable(dict(group["b"].vector))
    group.tick()
    group.pump()
    assert stable(group["a"]) == []
    group["a"].mark_durable(dict(group["a"].vector))
    assert stable(group["a"]) == [dot("a", 1)]


def test_durability_beyond_the_delivered_vector_is_refused():
    group = Group("ab", durable=Durability.DECLARED)
    a = group["a"]
    a.send(b"1")
    first = dict(a.vector)
    a.send(b"2")
    a.mark_durable(dict(a.vector))
    a.mark_durable(first)  # late: changes nothing
    group.pump()
    take(group["b"])
    told = a.state()
    with pytest.raises(LocalProtocolError, match="beyond"):
        a.mark_durable({a.me: 3})
    assert a.state() == told
    with pytest.raises(LocalProtocolError, match="DECLARED"):
        Group("ab")["a"].mark_durable({})
