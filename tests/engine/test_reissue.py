"""An evicted node comes back under a new incarnation and sends again what the group does not have, each once."""

from crdtcast.engine import Fate, GroupEngine, Parked, Standing
from tests.engine.town import Town


def _evict_with_unsent(town: Town, name: str, *payloads: bytes) -> GroupEngine:
    """Cut `name` off, let it send meanwhile, evict it, and let it learn so. Its old engine."""
    others = [other for other in town.engines if other != name]
    town.cut([name], others)
    town.send(name, *payloads)
    town.engines[others[0]].evict(town.id(name))
    town.run()
    town.heal()
    town.run(5)
    engine = town.take_down(name)
    assert engine is not None
    assert engine.standing is Standing.EVICTED
    return engine


def _reissue(town: Town, name: str, parked: Parked, limit: int | None = None) -> Parked:
    """Send again what the group lacks, `limit` operations at most; settle when that was all."""
    engine = town.engines[name]
    assert parked.is_decided(engine)
    left = parked.uncovered(engine)
    for operation in left[:limit]:
        (tag,) = town.send(name, operation.payload)
        parked = parked.reissued(operation, tag.dot)
    if limit is None or len(left) <= limit:
        for incarnation in parked.ended:
            if isinstance(engine.fate(incarnation), int):
                parked = parked.settled(incarnation, engine.settle(incarnation).dot)
    return parked


def test_missing_messages_are_resent_once_in_order() -> None:
    town = Town("abc")
    town.send("c", b"1")
    town.run()
    old = _evict_with_unsent(town, "c", b"2", b"3")
    parked = Parked.of(old.state(), old.me)
    town.join("c", "a", [old.me])
    parked = _reissue(town, "c", parked)
    town.run()
    town.assert_one_group("a", "b", "c")
    assert town.log["b"] == [b"1", b"2", b"3"]
    assert parked.may_be_dropped(town.engines["c"])
    assert not town.engines["a"].tombs


def test_resend_waits_until_the_cut_is_decided() -> None:
    town = Town("abc")
    town.cut("c", "b")
    town.send("c", b"a has this")
    town.run(1)
    town.cut("a", "bc")
    old = town.take_down("c")
    assert old is not None
    parked = Parked.of(old.state(), old.me)
    town.cuts.update([frozenset("ac"), frozenset("ab")])
    town.join("c", "b", [old.me])  # b lacks it, a is out of reach
    town.run(5)
    assert not parked.is_decided(town.engines["c"])
    assert town.engines["c"].fate(old.me) is Fate.MEMBER
    town.heal()
    town.run()
    assert parked.is_decided(town.engines["c"])
    assert parked.uncovered(town.engines["c"]) == ()
    town.assert_one_group("a", "b", "c")
    assert town.log["c"] == [b"a has this"]


def test_crash_during_the_resend_repeats_nothing() -> None:
    town = Town("abc")
    old = _evict_with_unsent(town, "c", b"1", b"2", b"3")
    parked = Parked.of(old.state(), old.me)
    town.join("c", "a", [old.me])
    parked = _reissue(town, "c", parked, limit=1)
    log = town.log["c"]
    successor = town.take_down("c")  # crashes; its journal has the new message and `parked`
    assert successor is not None
    town.run()
    town.bring_back("c", successor, log)
    town.run()
    parked = _reissue(town, "c", parked)
    town.run()
    town.assert_one_group("a", "b", "c")
    assert town.log["a"] == [b"1", b"2", b"3"]


def test_second_successor_compares_everything_again() -> None:
    town = Town("abcd")
    old = _evict_with_unsent(town, "d", b"1", b"2")
    parked = Parked.of(old.state(), old.me)
    town.join("d", "a", [old.me])
    town.run()
    parked = _reissue(town, "d", parked, limit=1)  # b"1" gets out
    town.run()
    town.cut("d", "abc")
    parked = _reissue(town, "d", parked)  # b"2" and the settling do not
    second = town.engines["d"]
    town.send("d", b"3")
    town.engines["a"].evict(second.me)
    town.run()
    town.heal()
    town.run(5)
    assert second.standing is Standing.EVICTED
    town.take_down("d")
    parked = Parked.of(second.state(), second.me, parked)
    town.join("d", "b", [second.me])
    assert [o.payload for o in parked.uncovered(town.engines["d"])] == [b"2", b"3"]
    parked = _reissue(town, "d", parked)
    town.run()
    town.assert_one_group("a", "b", "c", "d")
    assert town.log["c"] == [b"1", b"2", b"3"]
    assert not town.engines["a"].tombs
    assert parked.may_be_dropped(town.engines["d"])


def test_backup_restored_after_settling_resends_nothing() -> None:
    town = Town("abc")
    old = _evict_with_unsent(town, "c", b"1", b"2")
    parked = Parked.of(old.state(), old.me)
    town.join("c", "a", [old.me])
    _reissue(town, "c", parked)
    town.run()
    town.engines["c"].leave()
    town.run()
    town.take_down("c")
    town.run()
    town.join("c", "b", [old.me])  # from a backup of the old state
    assert parked.is_decided(town.engines["c"])
    assert parked.uncovered(town.engines["c"]) == ()
    town.run()
    town.assert_one_group("a", "b", "c")


def test_stranger_drops_its_copy_if_its_contact_never_settles() -> None:
    town = Town("abc")
    town.cut("c", "ab")
    town.engines["a"].evict(town.id("c"))
    town.run()
    town.join("d", "c")  # beyond the cut of c, which nobody there knows yet
    town.send("d", b"1")
    town.run(5)
    town.heal()
    town.run()
    stranger = town.take_down("d")
    town.take_down("c")  # for good: its tomb stays
    assert stranger is not None and stranger.standing is Standing.EVICTED
    parked = Parked.of(stranger.state(), stranger.me)
    engine = town.join("d", "a", [stranger.me])
    (operation,) = parked.uncovered(engine)
    assert not parked.may_be_dropped(engine)
    (tag,) = town.send("d", operation.payload)
    parked = parked.reissued(operation, tag.dot)
    assert not parked.may_be_dropped(engine), "it is not stable"
    town.run()
    assert parked.may_be_dropped(engine)
    town.assert_one_group("a", "b", "d")


def test_incomplete_incarnation_never_settles_and_ends_parking() -> None:
    """Its disk has lost what it had told of: the group does not forget how many of its messages there are."""
    town = Town("abc")
    town.send("c", b"1")
    town.run()
    old = _evict_with_unsent(town, "c", b"2")
    parked = Parked.of(old.state(), old.me, is_complete=False)
    engine = town.join("c", "a", [old.me])
    (operation,) = parked.uncovered(engine)
    (tag,) = town.send("c", operation.payload)
    parked = parked.reissued(operation, tag.dot)
    assert not parked.may_be_dropped(engine), "it is not stable"
    town.run()
    assert parked.may_be_dropped(engine)
    assert {e.fate(old.me) for e in town.engines.values()} == {1}
    town.assert_one_group("a", "b", "c")


def test_leaver_unaware_of_its_membership_resends_nothing() -> None:
    town = Town("abc")
    leaver = town.join("d", "a")
    town.send("d", b"1")
    leaver.leave()
    parked = Parked.of(leaver.state(), leaver.me)
    assert parked.strangers == {leaver.me}
    assert parked.meeting(leaver) is parked, "that it knows itself proves nothing"
    town.run()
    town.take_down("d")
    town.join("d", "b", [leaver.me])
    engine = town.engines["d"]
    parked = parked.meeting(engine)
    assert parked.is_decided(engine)
    town.run()
    assert engine.fate(leaver.me) is Fate.SETTLED, "it is swept and forgotten"
    assert parked.uncovered(engine) == ()
    assert parked.may_be_dropped(engine)
    assert Parked.of(engine.state(), engine.me, parked).strangers == frozenset()
