"""What is done by policy: evictions, by a majority, of those silent for long enough; raises of the level."""

from collections.abc import Sequence

import pytest
import trio

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, GroupState, MemberInfo, Span, Standing
from crdtcast.engine.failure_detector import Suspect
from crdtcast.engine.views import View
from crdtcast.exceptions import LocalProtocolError
from crdtcast.service.level_policy import RaisePolicy
from crdtcast.service.policy import level_to_raise, to_evict, why_not_evicted
from crdtcast.service.run import evict_the_silent
from crdtcast.testing import eventually, simulated
from tests.engine.town import Town
from tests.node.group_support import members_are, world

AFTER = 60.0


def silent(**seconds: float) -> dict[str, Suspect]:
    return {name: Suspect(9.0, s - 12, s) for name, s in seconds.items()}


@pytest.mark.parametrize(
    ("suspects", "asks"),
    [
        (silent(), {}),
        (silent(c=59.0), {}),
        (silent(c=60.0), {"a": "c"}),
        (silent(a=61.0), {"b": "a"}),
        (silent(b=61.0, c=61.0), {}),
        (silent(b=61.0, c=13.0), {}),
    ],
)
def test_member_of_a_majority_requests_eviction_of_the_silent(
    suspects: dict[str, Suspect], asks: dict[str, str]
) -> None:
    town = Town("abc")
    town.run()
    for name, engine in town.engines.items():
        if name not in suspects:
            expected = [town.id(asks[name])] if name in asks else []
            assert to_evict(engine, suspects, AFTER) == expected, name


@pytest.mark.parametrize(
    ("members", "dead", "joiners", "can_be"),
    [
        ("abc", "c", "", True),
        ("abcd", "cd", "", False),
        ("abcde", "de", "", True),
        ("abcde", "cde", "", False),
        ("ab", "b", "", False),
    ]
    + [("abc", joiners, joiners, True) for joiners in ("p", "pq", "pqr", "pqrs")],
)
def test_remedy_printed_by_a_waiting_eviction_completes_it(
    members: str, dead: str, joiners: str, can_be: bool
) -> None:
    town = Town(members)
    town.run()
    for name in joiners:
        town.join(name, "a")
        if name < "r":
            town.run(3)  # it was heard
    for name in dead:
        town.take_down(name)
    town.run()
    a = town.engines["a"]
    at_a = {name_of(me): me for me in a.members}
    a.evict(at_a[dead[0]])
    town.run()
    if dead[0] in town.names("a"):
        said = why_not_evicted(a, [at_a[dead[0]]], set(dead), in_a_row)
        assert f"`crdtcast evict --withdraw {dead[0]}`" in said
        named = said.partition("in one change: `crdtcast evict ")[2].partition("`")[0].split()
        assert set(named) <= set(dead), said
        a.evict(*(at_a[name] for name in named))
        town.run()
    if can_be:
        assert town.names("a") == sorted(town.engines)
        return
    assert dead[0] in town.names("a")
    said = why_not_evicted(a, sorted(a.wants.victims), set(dead), in_a_row)
    assert "it needs a majority of the voters" in said
    assert "`--force` evicts without" in said
    a.evict(*(at_a[name] for name in dead), force=True)
    town.run()
    assert town.names("a") == sorted(town.engines)


@pytest.mark.parametrize("asked_before", [False, True])
def test_waiting_forced_eviction_names_both_dead_members(asked_before: bool) -> None:
    town = Town("abc")
    town.run()
    a, b, c = (town.id(name) for name in "abc")
    town.take_down("b")
    town.take_down("c")
    engine = town.engines["a"]
    if asked_before:
        engine.evict(b, c)
    town.run()
    engine.evict(b, force=True)
    town.run()
    said = why_not_evicted(engine, [b], {"b", "c"}, in_a_row)
    assert "in one change: `crdtcast evict b c --force`" in said
    engine.evict(b, c, force=True)
    town.run()
    assert list(engine.members) == [a]


def in_a_row(incarnations: Sequence[str]) -> str:
    return ", ".join(map(name_of, incarnations))


def test_witness_counts_but_never_requests_an_eviction() -> None:
    town = Town("zw", witnesses="w")
    town.run()
    assert to_evict(town.engines["w"], silent(z=99.0), AFTER) == []
    town = Town("bcw", witnesses="w")
    town.run()
    assert to_evict(town.engines["b"], silent(c=99.0), AFTER) == [town.id("c")]
    assert to_evict(town.engines["w"], silent(c=99.0), AFTER) == []
    town.engines["b"].evict(town.id("c"))
    assert to_evict(town.engines["b"], silent(c=99.0), AFTER) == []


def test_two_members_never_evict_each_other() -> None:
    town = Town("ab")
    town.run()
    assert to_evict(town.engines["a"], silent(b=1e6), AFTER) == []
    assert to_evict(town.engines["b"], silent(a=1e6), AFTER) == []


@simulated
async def test_a_dead_region_is_cut_off_after_that_time_and_not_before() -> None:
    async with world("a", "b", "c") as group, trio.open_nursery() as nursery:
        a, b, c = group.up.values()
        for host in (a, b, c):
            nursery.start_soon(evict_the_silent, host.member, AFTER)
        group.network.cut("c")
        began = trio.current_time()
        for host in (a, b):
            await members_are(host.member, "a", "b")
        assert AFTER <= trio.current_time() - began <= AFTER + 10
        await trio.sleep(2 * AFTER)
        assert set(c.member.members) == {"a", "b", "c"}, "a minority evicts nobody"
        group.network.heal()
        for host in (a, b, c):
            await members_are(host.member, "a", "b", "c")
        nursery.cancel_scope.cancel()


@simulated
async def test_member_heard_again_before_the_decision_is_not_evicted() -> None:
    """b and c are silent, but c for less long: what is asked for b waits for c. Then b is back, and after that c."""
    async with world("a", "b", "c", "d", "e") as group, trio.open_nursery() as nursery:
        a = group.up["a"].member
        nursery.start_soon(evict_the_silent, a, AFTER)
        before = a.engine.view
        group.network.cut("b")
        await trio.sleep(AFTER - 20)
        group.network.cut("b", "c")
        await eventually(lambda: bool(a.engine.wants.victims))
        assert [name_of(who) for who in a.engine.waits_for()] == ["c"]
        group.network.heal()
        group.network.cut("c")
        await eventually(lambda: not a.engine.wants)
        group.network.heal()
        await trio.sleep(2 * AFTER)
        assert a.engine.view == before
        nursery.cancel_scope.cancel()


def reading(me: str, *, witness: str = "", **highest: int) -> GroupEngine:
    """The engine of one of these members, whose programs read the levels up to so much."""
    members = tuple(
        MemberInfo(f"{name}.1", name == witness, Span(1, level)) for name, level in highest.items()
    )
    vector = {member.incarnation: 0 for member in members}
    state = GroupState(vector=vector, members=members, view=View.first(vector, 1))
    return GroupEngine(f"{me}.1", state, Span(1, highest[me]))


def test_first_member_raises_the_level_after_all_read_it_a_while() -> None:
    policy = RaisePolicy(10.0)
    a = reading("a", a=3, b=2)
    assert [policy.look(a, now) for now in (100.0, 109.9)] == [None, None]
    assert policy.look(a, 110.0) == 2
    a.raise_level(2)
    assert policy.look(a, 200.0) is None, "it is asked for already"
    other = RaisePolicy(10.0)
    b = reading("b", a=3, b=2)
    assert [other.look(b, now) for now in (0.0, 99.0)] == [None, None]


def test_witness_never_raises_and_a_downgrade_restarts_the_wait() -> None:
    witnessed = RaisePolicy(0.0)
    assert witnessed.look(reading("a", witness="a", a=2, b=2), 0.0) is None
    policy = RaisePolicy(10.0)
    assert policy.look(reading("a", a=2, b=2), 0.0) is None
    assert policy.look(reading("a", a=2, b=1), 5.0) is None
    assert policy.look(reading("a", a=2, b=2), 12.0) is None
    assert policy.look(reading("a", a=2, b=2), 22.0) == 2


def test_member_that_leaves_raises_nothing() -> None:
    engine = reading("a", a=2, b=2)
    engine.leave()
    assert engine.standing is Standing.LEAVING
    assert RaisePolicy(0.0).look(engine, 0.0) is None
    assert reading("a", a=2).raisable == 2


@pytest.mark.parametrize(
    ("highest", "said"),
    [
        ({"a": 2, "b": 1, "c": 1}, "upgrade b, c first"),
        ({"a": 1, "b": 2}, "nothing to raise: the group's format level is 1"),
    ],
)
def test_refused_raise_names_the_members_to_upgrade(highest: dict[str, int], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        level_to_raise(reading("a", **highest))
