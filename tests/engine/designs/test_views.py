"""Views in every order of a small scope, and in random schedules of a larger one: nothing is wrong, and each rule is
missed where it is left out.
"""

import pytest

from tests.effort import seeds
from tests.engine.designs.views.__main__ import explored
from tests.engine.designs.views.equivalence import name, tidied
from tests.engine.designs.views.exhaustive import explore
from tests.engine.designs.views.rules import BrokenRuleError, Member, World, run, settle
from tests.engine.designs.views.scopes import LARGE, RULES, SMALL, Scope
from tests.engine.designs.views.state import History
from tests.engine.designs.views.steps import begin, chosen, steps


@pytest.mark.parametrize("scope", SMALL, ids=str)
def test_all_orders(scope: Scope) -> None:
    assert not explored(scope).failure


@pytest.mark.slow
@pytest.mark.parametrize("scope", LARGE, ids=str)
def test_all_orders_of_larger_scopes(scope: Scope) -> None:
    assert not explored(scope).failure


MISSED = [
    Scope((1,), without="a promise freezes"),
    Scope((1,), without="a promise is durable with its data"),
    Scope((1,), joins=True, without="all who go on promise"),
    Scope((1,), joins=True, without="a joiner inherits a freeze"),
    Scope((2,), without="a majority accepts"),
    Scope((2,), without="a promise binds"),
    Scope((2,), without="what was accepted is adopted"),
    Scope((2,), without="a freeze lasts"),
    Scope((2,), losses=1, without="who was set back is over"),
    Scope((1, 1), without="a cut is stated anew"),
]
MISSED_IN_A_LARGER_SCOPE = Scope((3,), without="the highest ballot counts")


@pytest.mark.parametrize("scope", MISSED, ids=lambda scope: scope.without)
def test_exploration_detects_each_omitted_rule(scope: Scope) -> None:
    assert explored(scope).failure


@pytest.mark.slow
def test_exploration_of_a_larger_scope_detects_its_rule() -> None:
    assert explored(MISSED_IN_A_LARGER_SCOPE).failure


def test_each_rule_is_left_out_once() -> None:
    assert sorted(scope.without for scope in (*MISSED, MISSED_IN_A_LARGER_SCOPE)) == sorted(RULES)


def _decisions(scope: Scope, *, as_one: bool) -> set[History]:
    layer, known, found = [begin(scope)], set[int](), set[History]()
    while layer:
        following = []
        for state in layer:
            for record in filter(None, state.members):
                values = chosen(state, scope.epochs[len(record.history)], record.history, "")
                found.update((*record.history, value) for value in values)
            for _, step in steps(state, scope):
                after = tidied(step, scope) if as_one else step
                key = name(after, scope) if as_one else hash(after)
                if key not in known:
                    known.add(key)
                    following.append(after)
        layer = following
    return found


@pytest.mark.parametrize(
    "scope", [Scope((2,)), Scope((1, 1)), Scope((1,), joins=True, losses=1)], ids=str
)
def test_states_treated_as_equal_reach_the_same_decisions(scope: Scope) -> None:
    assert _decisions(scope, as_one=True) == _decisions(scope, as_one=False)


def test_failing_exploration_reports_its_trace() -> None:
    found = explore(Scope((1,), joins=True, without="a joiner inherits a freeze"))
    assert found.trace == [
        "0 promises ballot 1 for 2 out with 0",
        "0 lets the learner in, at number 0 of X",
        "1 promises ballot 1 for 2 out with 0 so: 2 out, X ends at 0",
        "0 accepts in ballot 1",
        "1 accepts in ballot 1",
    ]
    assert "beyond the cut" in found.failure


@pytest.mark.parametrize("seed", seeds(100))
def test_random_schedules(seed: int) -> None:
    print(dict(run(seed)))


@pytest.mark.parametrize(
    ("without", "seed"),
    [
        ("a freeze lasts", 19),
        ("all who go on promise", 13),
        ("a joiner inherits a freeze", 19),
        ("a row stays until the end", 1436),
    ],
)
def test_random_schedules_detect_each_omitted_rule(without: str, seed: int) -> None:
    with pytest.raises(BrokenRuleError):
        run(seed, without)
    run(seed)


@pytest.mark.parametrize("without", ["", "a leaver waits until it has told"])
def test_leaver_hands_over_messages_that_only_it_has(without: str) -> None:
    world = World(0, without)
    world.found("abc")
    a, b, c = (world.members[name] for name in "abc")
    world.write(c)
    world.exchange(c, a)
    c.is_up = False
    b.prepare({"c"})
    _pass_records(a, b)
    assert b.unfinished() == {"c"}
    a.d.is_leaving = True
    world.go_on(a)
    _pass_records(a, b)
    if without:
        with pytest.raises(BrokenRuleError, match="lost"):
            settle(world)
    else:
        settle(world)
        assert a.has_left


def _pass_records(one: Member, other: Member) -> None:
    """And no messages: the link is slow for them."""
    for _ in range(3):
        other.hear({**one.records, one.name: one.d.record})
        one.hear({**other.records, other.name: other.d.record})
