"""Joining and leaving while everybody sends."""

from collections import deque

import pytest

from crdtcast.causality.member_id import new_incarnation
from crdtcast.engine import Fate, GroupEngine, Standing
from crdtcast.exceptions import EndedError, HandshakeError, NotReadyError
from tests.effort import size
from tests.engine.town import Town


def test_a_joiner_sends_at_once_and_has_all_that_was_before() -> None:
    town = Town("ab")
    town.send("a", b"1")
    town.send("b", b"2")
    town.run()
    town.send("a", b"3")  # under way when the joiner comes
    town.join("c", "b")
    town.send("c", b"4")
    town.send("b", b"5")
    town.run()
    town.assert_one_group("a", "b", "c")
    assert sorted(town.log["c"]) == [b"1", b"2", b"3", b"4", b"5"]


def test_leaver_hands_over_its_messages_and_goes() -> None:
    town = Town("abc")
    town.cut("a", "c")
    town.send("a", b"for c by way of b")
    town.run(3)
    town.engines["b"].leave()
    town.run()
    assert town.engines["b"].standing is Standing.LEFT
    town.take_down("b")
    town.heal()
    town.run()
    town.assert_one_group("a", "c")
    assert town.log["c"] == [b"for c by way of b"]


def test_two_that_leave_at_once_and_the_last_one() -> None:
    town = Town("abc")
    town.engines["a"].leave()
    town.engines["b"].leave()
    town.send("c", b"x")
    town.run(80)
    assert town.engines["a"].standing is Standing.LEFT
    assert town.engines["b"].standing is Standing.LEFT
    town.take_down("a")
    town.take_down("b")
    town.run()
    town.assert_one_group("c")
    town.engines["c"].leave()
    assert town.engines["c"].standing is Standing.LEFT


def test_leaver_can_no_longer_send() -> None:
    town = Town("ab")
    town.engines["a"].leave()
    before = town.engines["a"].state()
    with pytest.raises(EndedError, match="can no longer send"):
        town.engines["a"].send(b"late")
    with pytest.raises(EndedError):
        town.engines["a"].evict(town.id("b"))
    assert town.engines["a"].state() == before


def test_joiner_waits_until_its_new_contact_is_known_to_all() -> None:
    town = Town("ab")
    town.cut("a", "b")
    town.join("c", "a")
    with pytest.raises(NotReadyError, match="just joined"):
        town.engines["c"].admit(town.fresh_base("d"))
    town.heal()
    town.run()
    town.join("d", "c")
    town.run()
    town.assert_one_group("a", "b", "c", "d")


def test_contact_waits_until_it_has_all_that_the_joiner_copied() -> None:
    town = Town("ab")
    town.cut("a", "b")
    town.send("b", b"in the copy")
    base, covered = town.fresh_base("c"), dict(town.engines["b"].vector)
    with pytest.raises(NotReadyError, match="not yet delivered"):
        town.engines["a"].admit(base, covered=covered)
    town.heal()
    town.run()
    admission = town.engines["a"].admit(base, covered=covered)
    assert admission.state.vector[town.id("b")] == 1


def test_repeated_join_request_adds_one_member() -> None:
    town = Town("ab")
    base = town.fresh_base("c")
    first = town.engines["a"].admit(base)
    town.run()
    again = town.engines["a"].admit(base)
    elsewhere = town.engines["b"].admit(base)
    assert first.incarnation == again.incarnation == elsewhere.incarnation
    assert len(town.engines["a"].members) == 3


def test_a_retry_elsewhere_replaces_the_first_attempt() -> None:
    town = Town("abc")
    lost = town.fresh_base("d")
    town.engines["a"].admit(lost)  # the answer never arrives
    town.join("d", "b", [lost])
    town.send("d", b"x")
    town.run(80)
    town.assert_one_group("a", "b", "c", "d")
    with pytest.raises(HandshakeError, match="has ended in this group"):
        town.engines["a"].admit(lost)


def test_the_same_name_twice_is_refused_unless_it_replaces() -> None:
    town = Town("ab")
    before = town.engines["a"].state()
    with pytest.raises(HandshakeError, match="already has a member called b"):
        town.engines["a"].admit(town.fresh_base("b"))
    assert town.engines["a"].state() == before


def test_join_survives_the_death_of_its_contact() -> None:
    town = Town("abc")
    town.cut("a", "bc")
    town.send("a", b"before")
    town.join("d", "a")  # d is linked with all, a with d only
    town.run(5)
    town.take_down("a")
    town.send("d", b"after")
    town.run()
    assert sorted(town.log["c"]) == [b"after", b"before"]
    gone = next(m for m in town.engines["b"].members if m.startswith("a."))
    town.engines["b"].evict(gone)
    town.run()
    town.assert_one_group("b", "c", "d")


def test_context_may_name_an_ended_origin() -> None:
    town = Town("abc")
    town.send("a", b"1")
    town.engines["a"].leave()
    town.run(2)
    assert any(dot.origin == town.id("a") for dot in town.engines["b"].context)
    town.send("b", b"2")  # names a, which has left
    town.join("d", "c")
    town.run()
    town.take_down("a")
    town.send("d", b"3")
    town.run()
    town.assert_one_group("b", "c", "d")


def test_ghost_is_told_its_end_after_hundreds_of_changes() -> None:
    """300 changes; in a release 900."""
    later = size(ci=150, release=450)
    town = Town("abx")
    town.send("x", b"1")
    town.run()
    ghost = town.take_down("x")
    assert ghost is not None
    town.engines["a"].evict(ghost.me)
    town.run()
    town.join("x", "a")
    town.run()
    town.engines["x"].settle(ghost.me)
    town.engines["x"].leave()
    town.run()
    town.take_down("x")
    town.join("n0", "a")
    for k in range(1, later):
        town.run(12)
        town.join(f"n{k}", "a")
        town.engines[f"n{k - 1}"].leave()
        town.run(12)
        assert town.engines[f"n{k - 1}"].standing is Standing.LEFT
        town.take_down(f"n{k - 1}")
    town.run()
    assert town.engines["a"].fate(ghost.me) is Fate.SETTLED
    before = town.engines["a"].state()
    town.engines["x"], town.log["x"] = ghost, []
    ghost.send(b"boo")
    town.link_all()
    town.run()
    assert ghost.standing is Standing.EVICTED
    assert town.engines["a"].state() == before
    town.assert_one_group("a", "b", f"n{later - 1}")


def test_the_last_digest_of_an_idle_group_is_lost() -> None:
    town = Town("abc")
    town.send("a", b"1")
    town.run(2)
    for _ in range(3):
        for engine in town.engines.values():
            engine.tick()
        town.lose_all()
    town.run()
    town.assert_one_group("a", "b", "c")


def test_a_founder_alone_is_a_group() -> None:
    town = Town("a")
    town.send("a", b"1")
    town.join("b", "a")
    town.run()
    town.assert_one_group("a", "b")
    assert isinstance(town.engines["b"], GroupEngine)


def test_joiner_counts_as_heard_before_its_join_is_stable() -> None:
    town = Town("abc")
    town.run()
    town.cut("c", "ab")
    d = town.join("d", "a")
    assert town.engines["a"].unheard == (d.me,)
    town.run()
    for name in "abd":
        assert town.engines[name].unheard == (), name
    town.cut("d", "b")
    e = town.join("e", "a")
    town.cut("e", "bc")
    assert e.me in town.engines["a"].unheard
    e.send(b"forwarded by a")
    town.run()
    for name in "abd":
        assert town.engines[name].unheard == (), name
    assert not town.engines["a"].established & {d.me, e.me}


@pytest.mark.parametrize("delay", [1, 5])
def test_member_leaves_under_constant_writes_over_slow_links(delay: int) -> None:
    """At no instant have the others all that it has, unless it stops to take more."""
    ids = [new_incarnation(name, 1, 0) for name in "abc"]
    engines = {me: GroupEngine.found(me, ids) for me in ids}
    a, b, c = engines.values()
    for engine in engines.values():
        for other in ids:
            if other != engine.me:
                engine.connected(other)
    flights: deque[list[tuple[str, str, object]]] = deque([] for _ in range(delay))
    for number in range(400):
        for engine in (a, b):
            engine.send(b"%d" % number)
        if number == 10:
            c.leave()
        leaving: list[tuple[str, str, object]] = []
        for engine in engines.values():
            while engine.poll() is not None:
                pass
            engine.poll_stable()
            engine.tick()
            for to, content in engine.take_outbox():
                leaving += [
                    (engine.me, x, content) for x in ids if x != engine.me and to in (None, x)
                ]
        flights.append(leaving)
        for sender, receiver, content in flights.popleft():
            engines[receiver].receive(sender, content)  # type: ignore[arg-type]
        if c.standing is Standing.LEFT:
            break
        assert number <= 10 or c.standing is Standing.LEAVING
    assert c.standing is Standing.LEFT
