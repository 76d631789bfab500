"""Views in every order of a small scope, and in random schedules of a larger one: nothing is wrong, and each rule is
missed where it is left out.
"""

import pytest

from tests.effort import seeds
from tests.engine.designs.views.exhaustive import (
    Ballot,
    Explored,
    Scope,
    State,
    X,
    explore,
)
from tests.engine.designs.views.rules import BrokenRuleError, Member, World, run, settle

_X_OUT = frozenset((X,))
_NOBODY = frozenset[int]()
_OWNERS = (0, 1, 0)


def scope(
    ballots: int,
    *,
    later: int = 0,
    joins: bool = False,
    crashes: int = 0,
    losses: int = 0,
    without: str = "",
) -> Scope:
    """Ballots of two proposers for X to be out, or for nothing; later ones of the next epoch for 1 to be out."""
    first = tuple(Ballot(0, _OWNERS[at], (_X_OUT, _NOBODY)) for at in range(ballots))
    second = tuple(Ballot(1, _OWNERS[at], (frozenset((1,)),)) for at in range(later))
    return Scope((*first, *second), joins, crashes, losses, without)


def _holds(found: Explored) -> None:
    assert not found.failure, "\n".join((found.failure, *found.trace))
    print(f"{found.states:,} states, {dict(found.fine)}")


SMALL = [
    scope(1, joins=True, crashes=1),
    scope(2),
    scope(1, later=1),
]
LARGE = [
    scope(2, joins=True, crashes=1),
    scope(3),
    scope(1, later=1, joins=True),
    scope(2, later=1),
]


@pytest.mark.parametrize("within", SMALL)
def test_all_orders(within: Scope) -> None:
    _holds(explore(within))


@pytest.mark.slow
@pytest.mark.parametrize("within", LARGE)
def test_all_orders_of_larger_scopes(within: Scope) -> None:
    _holds(explore(within))


@pytest.mark.parametrize(
    "within",
    [
        scope(1, crashes=1, without="a promise is durable with its data"),
        scope(1, joins=True, without="all who go on promise"),
        scope(1, joins=True, without="a joiner inherits a freeze"),
        scope(2, without="a freeze lasts"),
        scope(2, without="what was accepted is adopted"),
        scope(2, without="a promise binds"),
        scope(1, later=1, without="a cut is stated anew"),
    ],
    ids=lambda within: within.without,
)
def test_a_rule_that_is_left_out_is_missed(within: Scope) -> None:
    found = explore(within)
    print(found.failure, *found.trace, sep="\n")
    assert found.failure


def test_a_disk_set_back_harms_nothing_else() -> None:
    """What goes wrong, went wrong by the one whose disk it is: it voted before somebody could tell it."""

    def is_its_own(state: State) -> bool:
        return state.back is not None

    found = explore(scope(1, losses=1), is_its_own)
    _holds(found)


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
def test_a_rule_that_is_left_out_breaks_a_schedule(without: str, seed: int) -> None:
    with pytest.raises(BrokenRuleError):
        run(seed, without)
    run(seed)


@pytest.mark.parametrize("without", ["", "a leaver waits until it has told"])
def test_a_leaver_hands_on_what_only_it_has(without: str) -> None:
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
