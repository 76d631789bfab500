"""Causal delivery, pulled: order, exactly once, contexts and tags."""

import itertools

import pytest

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import LocalProtocolError

from .group import Group, dot, incarnation, is_message, message, stable, take


def payloads(deliveries):
    return [delivery.payload for delivery in deliveries]


def test_message_waits_for_its_dependencies():
    group = Group("abc")
    group["a"].send(b"question")
    group.arrive("a", "b", is_message)
    take(group["b"])
    group["b"].send(b"answer")
    group.arrive("b", "c", is_message)
    assert group["c"].poll() is None
    assert group["c"].counters().pending == 1
    group.arrive("a", "c", is_message)
    assert payloads(take(group["c"])) == [b"question", b"answer"]
    assert group["c"].counters().pending == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_arrival_order_gives_causal_delivery(order):
    group = Group("ab")
    messages = [message("a", 1), message("a", 2, dot("a", 1))]
    messages += [message("a", n, dot("a", n - 1)) for n in (3, 4)]
    for place in order:
        group["b"].receive(incarnation("a"), messages[place])
        group["b"].receive(incarnation("a"), messages[place])
    assert [d.tag.dot.counter for d in take(group["b"])] == [1, 2, 3, 4]
    assert group["b"].counters().duplicates == 4
    assert group["b"].poll() is None


def test_message_counts_as_delivered_once_taken():
    """What has only arrived is in no context and in no tag's past: it did not happen before."""
    group = Group("ab")
    group["a"].send(b"1")
    group.arrive("a", "b", is_message)
    early = group["b"].send(b"not an answer")
    assert early.context == ()
    (delivery,) = take(group["b"])
    assert early.concurrent(delivery.tag)
    late = group["b"].send(b"an answer")
    assert delivery.tag < late
    assert early < late


def test_duplicate_of_a_ready_message_is_dropped_when_taken():
    group = Group("ab")
    group["b"].receive(incarnation("a"), message("a", 1))
    group["b"].receive(incarnation("a"), message("a", 1))
    assert len(take(group["b"])) == 1
    assert not group["b"].has_deliverable()
    assert group["b"].counters().duplicates == 1


def test_the_context_is_the_set_of_maximal_delivered_dots():
    group = Group("abc")
    a1 = group["a"].send(b"")
    b1 = group["b"].send(b"")
    group.pump()
    take(group["c"])
    assert set(group["c"].context) == {a1.dot, b1.dot}
    c1 = group["c"].send(b"")
    assert set(c1.context) == {a1.dot, b1.dot}
    assert group["c"].context == (c1.dot,)
    group.pump()
    (at_a, c1_at_a) = take(group["a"])
    assert at_a.tag == b1
    assert c1_at_a.tag.context == c1.context
    assert group["a"].context == (c1.dot,)


def test_tags_answer_exactly():
    group = Group("abc")
    a1 = group["a"].send(b"")
    group.pump()
    take(group["b"])
    b1 = group["b"].send(b"")
    c1 = group["c"].send(b"")
    group.pump()
    at_a = {delivery.tag.dot: delivery.tag for delivery in take(group["a"])}
    assert a1 < at_a[b1.dot]
    assert not at_a[b1.dot] < a1
    assert a1.concurrent(at_a[c1.dot])
    assert at_a[c1.dot].concurrent(at_a[b1.dot])
    assert not a1.concurrent(a1)


def test_stable_message_is_in_the_past_of_every_later_one():
    group = Group("abc")
    a1 = group["a"].send(b"")
    group.settle()
    b1 = group["b"].send(b"")
    group.pump()
    (delivery,) = take(group["c"])
    assert delivery.tag == b1
    assert a1 < delivery.tag
    assert dict(delivery.tag.past)[a1.dot.origin] == 1


def test_message_of_unknown_kind_is_delivered_and_kept():
    group = Group("ab")
    strange = Message(dot("a", 1), (), b"opaque", kind=77)
    group["b"].receive(incarnation("a"), strange)
    (delivery,) = take(group["b"])
    assert (delivery.kind, delivery.payload) == (77, b"opaque")
    assert group["b"].state().unstable == (strange,)


def test_a_chain_of_20_000_dependencies_does_not_recurse():
    """Arriving backwards, all wait under one another; then the first one frees them all."""
    length = 20_000
    group = Group("abc")
    origins = [incarnation("a"), incarnation("b")]
    # a and b answer each other: every message depends on the one before, and on its sender's own last.
    chain, last = [], None
    for n in range(length):
        this = Dot(origins[n % 2], n // 2 + 1)
        chain.append(Message(this, () if last is None else (last,), b""))
        last = this
    receive = group["c"].receive
    for sent in reversed(chain):
        receive(origins[0], sent)
    assert group["c"].counters().pending == length
    delivered = 0
    while (delivery := group["c"].poll()) is not None:
        assert delivery.tag.dot == chain[delivered].dot
        delivered += 1
    assert delivered == length
    assert group["c"].context == (chain[-1].dot,)


def test_explicit_causality_depends_only_on_named_tags():
    group = Group("ab")
    group["b"].send(b"1")
    group["b"].send(b"2")
    group.arrive("b", "a", is_message)
    one, two = (delivery.tag for delivery in take(group["a"]))
    reply = group["a"].send(b"re 1", after=[one])
    assert one < reply
    assert two.concurrent(reply)
    following = group["a"].send(b"after all")
    assert two < following
    assert reply < following
    group.pump()
    tags = [delivery.tag for delivery in take(group["b"])]
    assert tags == [reply, following]
    assert dict(tags[0].past)[one.dot.origin] == 1
    group.settle()


def test_explicit_causality_includes_acknowledged_messages():
    """Others may have taken our digest for a promise: nothing concurrent with it comes from us any more."""
    group = Group("ab")
    group["b"].send(b"1")
    group.arrive("b", "a", is_message)
    take(group["a"])
    group["a"].tick()  # acknowledges b's message
    tag = group["a"].send(b"", after=[])
    assert dot("b", 1) in tag.context


def test_silent_member_acknowledges_nothing_before_it_sends():
    group = Group("ab")
    seen = group["b"].send(b"1")
    group.arrive("b", "a", is_message)
    take(group["a"])
    group["a"].silent = True
    for _ in range(20):
        group["a"].tick()
    tag = group["a"].send(b"2", after=[])
    assert tag.concurrent(seen)
    assert not group["a"].has_stable()
    assert [out.message for out in group["a"].take_outbox()] == [
        Message(tag.dot, tag.context, b"2")
    ]
    group["a"].silent = False
    group["a"].tick()
    assert any(not isinstance(out.message, Message) for out in group["a"].take_outbox())


def test_explicit_causality_needs_delivered_tags():
    group = Group("ab")
    strange = group["b"].send(b"")
    before = group["a"].state()
    with pytest.raises(LocalProtocolError, match="has not delivered it"):
        group["a"].send(b"", after=[strange])
    assert group["a"].state() == before


def test_a_tag_can_be_asked_for_while_its_message_is_unstable():
    group = Group("ab")
    tag = group["a"].send(b"")
    assert group["a"].tag(tag.dot) == tag
    with pytest.raises(LocalProtocolError):
        group["b"].tag(tag.dot)
    group.settle()
    with pytest.raises(LocalProtocolError):
        group["a"].tag(tag.dot)


def test_a_group_of_one_is_stable_at_once():
    group = Group("a")
    tag = group["a"].send(b"")
    assert stable(group["a"]) == [tag.dot]
    assert group["a"].quiet
    assert not group["a"].held_back_by()
