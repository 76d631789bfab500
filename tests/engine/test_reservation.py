"""A dot that is taken before its message is made: what waits for it, and that it is that very message."""

import pytest

from crdtcast.causality.messages import DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import EndedError, LocalProtocolError, NotReadyError
from tests.engine.group import Group
from tests.engine.town import Town


def test_arrivals_wait_and_stay_out_of_a_reserved_dots_past() -> None:
    group = Group("ab")
    dot = group["a"].reserve()
    group["b"].send(b"concurrent")
    group.pump()
    assert not group["a"].has_deliverable() and group["a"].poll() is None
    tag = group["a"].use(b"mine")
    assert tag.dot == dot and not tag.context
    delivery = group["a"].poll()
    assert delivery is not None and delivery.payload == b"concurrent"


def test_digests_are_sent_while_a_dot_is_reserved() -> None:
    group = Group("ab")
    group["a"].reserve()
    group["b"].send(b"")
    group.pump()
    group["a"].connected(group["b"].me)
    sent = [effect.message for effect in group["a"].take_outbox()]
    assert [type(message) is Message for message in sent] == [False]
    assert sent[0].kind is DigestKind.NEWS


def test_returned_dot_is_used_by_the_next_message() -> None:
    engine = Group("ab")["a"]
    dot = engine.reserve()
    engine.give_back()
    assert engine.send(b"").dot == dot


def test_use_without_a_reservation_is_refused() -> None:
    engine = Group("ab")["a"]
    with pytest.raises(LocalProtocolError):
        engine.use(b"")
    engine.reserve()
    with pytest.raises(NotReadyError):
        engine.reserve()


def test_reserve_checks_the_context_and_keeps_its_order() -> None:
    town = Town("abc")
    town.cut("b", "c")
    town.send("b", b"1")
    town.send("c", b"2")
    town.run()
    engine = town.engines["a"]
    others = engine.context
    assert len(others) == 2
    again = GroupEngine(engine.me, engine.state())
    with pytest.raises(LocalProtocolError):
        again.reserve((Dot(town.id("b"), 2),))
    again.reserve(others[::-1])
    assert again.use(b"").context == others[::-1]


def test_membership_changes_wait_for_a_reserved_dot() -> None:
    town = Town("abc")
    engine = town.engines["a"]
    engine.reserve()
    for issue in (
        engine.leave,
        lambda: engine.admit(town.fresh_base("d")),
    ):
        with pytest.raises(NotReadyError):
            issue()
    engine.use(b"first")
    town.log["a"].append(b"first")
    engine.leave()
    town.run()
    assert engine.standing is Standing.LEFT
    assert town.log["b"] == [b"first"]


def test_sweep_waits_for_a_reserved_dot() -> None:
    town = Town("abc")
    town.engines["c"].leave()
    town.engines["a"].reserve()
    town.engines["b"].reserve()
    town.run()
    assert town.engines["a"].vector[town.id("a")] == 0
    town.engines["a"].give_back()
    town.engines["b"].use(b"after all")
    town.log["b"].append(b"after all")
    town.run()
    town.take_down("c")
    town.assert_one_group("a", "b")


def test_ended_incarnation_does_not_use_its_reserved_dot() -> None:
    town = Town("abc")
    engine = town.engines["c"]
    dot = engine.reserve()
    town.cut("c", "ab")
    town.engines["a"].evict(engine.me)
    town.run()
    town.heal()
    town.run()
    assert engine.standing is Standing.EVICTED
    with pytest.raises(EndedError):
        engine.use(b"")
    assert engine.reserved is not None and engine.reserved.dot == dot
