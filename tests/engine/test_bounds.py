"""What is held shrinks back, and nothing depends on how long a chain or a queue is."""

import sys

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, Standing
from tests.effort import size
from tests.engine.town import Town


def _held_bytes(engine: GroupEngine) -> int:
    """Everything reachable from an engine; classes, functions and small shared values aside."""
    seen: set[int] = set()
    total = 0
    work: list[object] = [engine]
    while work:
        thing = work.pop()
        if id(thing) in seen or isinstance(thing, (type, int, str, type(None))) or callable(thing):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, dict):
            work += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set, frozenset)) or hasattr(thing, "popleft"):
            work += thing  # type: ignore[operator]
        for slot in [s for c in type(thing).__mro__ for s in getattr(c, "__slots__", ())]:
            work.append(getattr(thing, slot, None))
        work.append(getattr(thing, "__dict__", None))
    return total


def test_group_holds_no_more_after_many_changes_than_a_fresh_one() -> None:
    """300 changes of members; in a release 1,000."""
    last = size(ci=150, release=500)
    town = Town("ab")
    town.join("n0", "a")
    for k in range(1, last + 1):
        town.run(8)
        town.join(f"n{k}", ("a", "b", f"n{k - 1}")[k % 3])
        for name in ("a", f"n{k}", f"n{k - 1}"):
            town.send(name, b"%d" % k)
        town.engines[f"n{k - 1}"].leave()
        town.run(12)
        assert town.engines[f"n{k - 1}"].standing is Standing.LEFT, k
        town.take_down(f"n{k - 1}")
    town.run(60)
    town.assert_one_group("a", "b", f"n{last}")
    fresh = Town("ab")
    fresh.join("n", "a")
    fresh.send("n", b"x")
    fresh.run(60)
    held, expected = _held_bytes(town.engines["a"]), _held_bytes(fresh.engines["a"])
    print(f"after {2 * last:,} changes {held} bytes, fresh {expected}")
    assert held < 1.3 * expected  # dictionaries that were larger once keep some room
    for name in ("a", "b", f"n{last}"):
        town.send(name, b"still sends")
    town.run()
    assert town.log["b"].count(b"still sends") == 3


def test_promise_reports_a_long_chain_of_a_victim() -> None:
    town = Town("abc")
    town.cut("c", "ab")
    victim, reporter = town.id("c"), town.engines["b"]
    messages = []
    for _ in range(5_000):
        tag = town.engines["c"].send(b"")
        messages.append(Message(tag.dot, tag.context, b""))
    for message in messages:
        reporter.receive(victim, message)
        assert reporter.poll() is not None
    town.engines["a"].evict(victim)
    town.run(30)
    assert victim not in town.engines["a"].members
    assert town.engines["a"].tombs[victim].counter == 5_000
    assert not town.engines["a"].state().unstable


def test_stability_held_back_in_128_members_comes_in_slices() -> None:
    ids = [new_incarnation(f"n{k}", 1, 0) for k in range(128)]
    engine = GroupEngine.found(ids[0], ids)
    for other in ids[1:]:
        engine.connected(other)
    for n in range(1, 101):
        for origin in ids[1:]:
            engine.receive(origin, Message(Dot(origin, n), (), b""))
            assert engine.poll() is not None
    full = dict(engine.vector)
    for other in ids[1:]:
        assert not engine.has_stable()
        engine.receive(other, Digest(DigestKind.NEWS, full))
    engine.tick()
    slices = []
    while tags := engine.poll_stable(1000):
        slices.append(len(tags))
    assert sum(slices) == 12_700
    assert max(slices) == 1000
    assert engine.quiet
