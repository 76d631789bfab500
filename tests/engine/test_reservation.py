"""A dot that is taken before its message is made: what waits for it, and that it is that very message."""

import pytest

from crdtcast.causality.messages import DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import EndedError, LocalProtocolError, NotReadyError
from tests.engine.group import Group
from tests.engine.town import Town


def test_what_arrives_meanwhile_waits_and_is_no_part_of_its_past() -> None:
    group = Group("ab")
    dot = group["a"].reserve()
    group["b"].send(b"concurrent")
    group.pump()
    assert not group["a"].has_deliverable() and group["a"].poll() is None
    tag = group["a"].use(b"mine")
    assert tag.dot == dot and not tag.context
    delivery = group["a"].poll()
    assert delivery is not None and delivery.payload == b"concurrent"


def test_digests_go_out_meanwhile() -> None:
    group = Group("ab")
    group["a"].reserve()
    group["b"].send(b"")
    group.pump()
    group["a"].connected(group["b"].me)
    sent = [effect.message for effect in group["a"].take_outbox()]
    assert [type(message) is Message for message in sent] == [False]
    assert sent[0].kind is DigestKind.NEWS


def test_given_back_it_is_the_next_message_that_is_sent() -> None:
    engine = Group("ab")["a"]
    dot = engine.reserve()
    engine.give_back()
    assert engine.send(b"").dot == dot


def test_what_was_not_reserved_is_not_used() -> None:
    engine = Group("ab")["a"]
    with pytest.raises(LocalProtocolError):
        engine.use(b"")
    engine.reserve()
    with pytest.raises(NotReadyError):
        engine.reserve()


def test_a_context_of_other_messages_is_refused_and_another_order_is_kept() -> None:
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


def test_members_change_behind_it() -> None:
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


def test_a_sweep_waits_for_it() -> None:
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


def test_an_incarnation_that_has_ended_meanwhile_does_not_use_it() -> None:
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
