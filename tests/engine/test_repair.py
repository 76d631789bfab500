"""Repair: whatever is lost arrives in the end, from anybody who has it, and hardly anything is sent twice."""

from itertools import pairwise, permutations, product

import pytest

from crdtcast.causality.messages import DigestKind
from crdtcast.engine.peer import HOLD_MIN
from crdtcast.engine.repair import BATCH_BYTES, BATCH_MESSAGES

from .group import Group, digest, dot, incarnation, is_message, take


def messages(contents):
    return [content for content in contents if is_message(content)]


def test_a_lost_message_is_repaired_by_its_origin():
    group = Group("ab")
    group.pump()
    group["a"].send(b"lost")
    assert len(messages(group.drop("a", "b"))) == 1
    group.settle()
    assert group["b"].vector[incarnation("a")] == 1
    assert group["a"].counters().repairs >= 1


def test_lost_message_is_repaired_by_others_if_origin_is_away():
    group = Group("abc")
    group["a"].send(b"only b gets it")
    group.arrive("a", "b", is_message)
    take(group["b"])
    group.cut("a", "c")
    group.cut("a", "b")
    group.flights["a", "c"].clear()
    for _ in range(10):
        group.tick("b", "c")
        group.pump("b", "c")
    assert [d.payload for d in take(group["c"])] == [b"only b gets it"]


def test_unlinked_members_reach_each_other_through_a_third():
    """Stability waits for the link, as digests come from their sender only; deliveries do not."""
    group = Group("abc")
    group.cut("a", "b")
    group["a"].send(b"by way of c")
    for _ in range(10):
        group.tick()
        group.pump()
        for name in "bc":
            take(group[name])
    assert group["b"].vector[incarnation("a")] == 1
    assert group["a"].held_back_by() == ["b"]
    group.link("a", "b")
    group.settle()


def test_new_link_repairs_missing_messages_at_once():
    """No tick passes: the vectors that both tell when a link comes up are enough."""
    group = Group("ab")
    group.pump()
    group.cut("a", "b")
    for n in range(5):
        group["a"].send(b"%d" % n)
    group.post()
    group.link("a", "b")
    group.pump()
    assert [d.payload for d in take(group["b"])] == [b"0", b"1", b"2", b"3", b"4"]
    assert group["a"].counters().repairs == 5


def test_message_in_flight_is_not_resent():
    group = Group("abc")
    group.pump()
    for _ in range(30):
        # A digest that was on its way while the message was sent never repairs it.
        group["b"].send(b"")
        group["a"].send(b"")
        group.tick("a", "b", "c")
        group.pump()
        for name in "abc":
            take(group[name])
    assert sum(group[name].counters().repairs for name in "abc") == 0
    assert sum(group[name].counters().asks for name in "abc") == 0


def test_lost_message_is_resent_after_some_ticks_with_backoff():
    group = Group("ab")
    group.pump()
    group["a"].send(b"")
    group.drop("a", "b")
    sent = []
    for tick in range(60):
        group["a"].tick()
        group["a"].receive(incarnation("b"), digest(DigestKind.REPLY, a=0, b=0))
        sent += [tick + 1] * len(messages(group.drop("a", "b")))
    assert sent[0] == HOLD_MIN
    gaps = [b - a for a, b in pairwise(sent)]
    assert gaps == sorted(gaps)
    assert 3 <= len(sent) <= 8


def test_repair_timeout_adapts_to_the_round_trip_time():
    """Five ticks there and back are no loss, once that is known."""
    group = Group("ab")
    group.pump()
    a, b = group["a"], group["b"]
    repairs = []
    for _ in range(40):
        a.send(b"")
        vector = dict(b.vector)
        b_before = group.drop("a", "b")
        for _ in range(5):
            a.tick()
            a.receive(b.me, digest(DigestKind.NEWS, a=vector[a.me], b=0))
        for content in [*b_before, *group.drop("a", "b")]:
            b.receive(a.me, content)
        take(b)
        a.receive(b.me, digest(DigestKind.NEWS, a=b.vector[a.me], b=0))
        a.poll_stable()
        repairs.append(a.counters().repairs)
    assert repairs[-1] == repairs[5]


def test_only_the_missing_ones_are_repaired_and_in_causal_order():
    group = Group("abc")
    group.pump()
    for n in range(9):
        name = "ab"[n % 2]
        group[name].send(b"%d" % n)
        group.pump("a", "b")
        take(group["a"])
        take(group["b"])
    group.drop("b", "c")
    lost = messages(group.drop("a", "c"))
    group["c"].receive(incarnation("a"), lost[0])
    take(group["c"])
    group.cut("b", "c")
    group.cut("a", "b")
    group.cut("a", "c")
    group.link("a", "c")
    group.arrive("c", "a")
    repaired = messages(group.drop("a", "c"))
    assert [m.payload for m in repaired] == [b"%d" % n for n in range(1, 9)]


@pytest.mark.parametrize("size", [0, BATCH_BYTES // 10 + 1])
def test_large_backlog_goes_out_in_acknowledged_batches(size):
    group = Group("ab")
    group.pump()
    group.cut("a", "b")
    count = 3 * BATCH_MESSAGES if not size else 40
    for _ in range(count):
        group["a"].send(bytes(size))
    group["a"].take_outbox()
    group.link("a", "b")
    batches = []
    while True:
        group.arrive("b", "a")
        batch = messages(group.drop("a", "b"))
        if not batch:
            break
        batches.append(len(batch))
        for content in batch:
            group["b"].receive(incarnation("a"), content)
        take(group["b"])
        group.tick("b")
    assert sum(batches) == count, "nothing twice"
    assert max(batches) == (10 if size else BATCH_MESSAGES)


def c_is_back(senders, missed):
    """a, b and c, after c was away while each of the senders sent so many messages, which a and b have."""
    group = Group("abc")
    group.pump()
    for name in "ab":
        group.cut(name, "c")
    for _ in range(missed // 10):
        for name in senders:
            for _ in range(10):
                group[name].send(b"")
        group.pump("a", "b")
        for name in "ab":
            take(group[name])
    for name in "ab":
        group.link(name, "c")
    return group


@pytest.mark.parametrize("b_goes_away", [False, True])
def test_repair_is_left_to_an_origin_that_is_sending(b_goes_away):
    """Who comes back after long gets it from all who have it, but each of them sends its own."""
    missed = 2000
    group = c_is_back("ab", missed)
    sent_by_a = []
    for round_ in range(2000):
        if round_ == 40 and b_goes_away:
            group.cut("b", "c")
            group.flights["b", "c"].clear()
        group.tick("a", "b")
        if round_ % 4 == 0:
            group.tick("c")
        group.arrive("c", "a")
        group.arrive("c", "b")
        group.pump("a", "b")
        for name in "ab":
            flight = group.flights[name, "c"]
            for _ in range(min(20, len(flight))):
                content = flight.popleft()
                group["c"].receive(incarnation(name), content)
                if name == "a" and is_message(content):
                    sent_by_a.append(content.dot)
        for name in "abc":
            take(group[name])
        if sum(group["c"].vector.values()) == 2 * missed:
            break
    assert sum(group["c"].vector.values()) == 2 * missed
    sent_by_a += [content.dot for content in group.flights["a", "c"] if is_message(content)]
    of_b = sum(origin == incarnation("b") for origin, _ in sent_by_a)
    if b_goes_away:
        assert of_b >= missed / 2
    else:
        assert of_b == 0


def test_slow_origin_is_helped_by_other_members():
    """A link of one message a tick does not count as getting it, while somebody else has a fast one."""
    missed = 4000
    group = c_is_back("b", missed)
    rounds = 0
    while group["c"].vector.get(incarnation("b"), 0) < missed:
        rounds += 1
        assert rounds < 200
        group.tick("a", "b", "c")
        for sender, receiver in (*permutations("ab", 2), *product("c", "ab"), ("a", "c")):
            group.arrive(sender, receiver)
        flight = group.flights["b", "c"]
        if flight:
            group["c"].receive(incarnation("b"), flight.popleft())
        for name in "abc":
            take(group[name])


def test_packet_lost_inside_a_backlog_is_repaired():
    group = Group("ab")
    group.pump()
    group.cut("a", "b")
    for n in range(20):
        group["a"].send(b"%d" % n)
    group["a"].take_outbox()
    group.link("a", "b")
    group.arrive("b", "a")
    batch = messages(group.drop("a", "b"))
    for content in batch[:7] + batch[8:]:
        group["b"].receive(incarnation("a"), content)
    assert len(take(group["b"])) == 7
    group.settle()
    assert group["b"].vector[incarnation("a")] == 20
    assert group["b"].counters().duplicates <= 13


def test_delivered_message_is_repaired_after_its_origin_ended():
    group = Group("abc")
    group["a"].send(b"last words")
    group.arrive("a", "b", is_message)
    take(group["b"])
    group.drop("a", "c")
    state = group["a"].state()
    group.restart("a", state)
    group.link("b", "a")
    group.link("c", "a")
    group.settle()
    assert group["c"].vector[dot("a", 1).origin] == 1
