"""Every rule for members that come and go is needed: an engine, or a runtime, without it is caught, by seeds from 0 on.

The table in docs/simulator.md is from `SLOWLY` and `CAUGHT`, and from `CONVENIENCES`.
"""

import re
from pathlib import Path

import pytest

from crdtcast.engine.group import GroupEngine
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.group_mutants import MUTANTS
from crdtcast.simulator.group_world import GroupWorld
from crdtcast.simulator.member import Phase
from crdtcast.simulator.world_mutants import WORLD_MUTANTS

from .search import likely_first
from .written import actions, play

# The campaign, and the first seed of it that catches it.
CAUGHT = {
    "eager-adoption": ("join+leave", 0),
    "no-asking": ("restart", 0),
    "no-context": ("two-evictions", 0),
    "selfish-repair": ("two-evictions", 0),
    "no-vouching": ("two-evictions", 13),
    "no-freezing": ("two-evictions", 0),
    "one-at-a-time": ("two-evictions", 0),
    "all-at-once": ("everything", 10),
    "replaced-count": ("restart", 3),
    "leaves-at-once": ("join+leave", 32),
    "drops-unswept": ("join+leave", 0),
    "silent-sweeps": ("everything", 12),
    "light-digests": ("everything", 4),
    "takes-ghosts": ("join+leave", 1),
    "orphans-stay": ("two-evictions", 0),
    "undecided": ("restart", 0),
    "starts-silent": ("everything", 9),
    "joiners-vote": ("regions", 3),
    "any-contact": ("regions", 3),
    "sends-unsynced": ("restart", 0),
    "sends-all-again": ("restart", 0),
    "sends-the-same-again": ("return", 11),
    "notes-unsaved": ("return", 54),
    "difference-of-store": ("copies", 3),
    "uses-at-delivery": ("levels", 4),
    "any-program": ("levels", 57),
    "follows-blindly": ("levels", 11),
    "goes-back": ("levels", 23),
    "copies-to-any": ("levels", 57),
    "trusts-cuts": ("hostile", 63),
    "trusts-reports": ("hostile", 7),
    "trusts-raises": ("hostile", 44),
    "trusts-ends": ("hostile", 0),
    "trusts-memories": ("hostile", 1),
    "keeps-all": ("hostile", 34),
    "counts-to-numbers": ("hostile", 198),
    "lets-errors-through": ("hostile", 3),
    "blames-nobody": ("hostile", 1),
}

# Rarer, or long: their runs stand still for a while.
SLOWLY = {
    "no-majority": ("force", 18),
    "incomplete-rows": ("force", 31),
    "no-tombs": ("force", 20),
}

# Found seldom by chance: founders and actions that show it.
BY_HAND = {
    # b reports on both, on a first: who has its report on c knows that a, too, is to be evicted.
    "victims-conclude": ("abc", "evict b a / evict b c"),
    # d is let in beyond the cut of c, leaves, and is told its end when nobody knows c any more.
    "believes-any-end": (
        "abc",
        "evict b c / leave a / join d c / sync c / dup c d 0 / send d / leave d",
    ),
    # d counts on c, which leaves, too, and has taken d's operation after its own leave; e, not met by d, goes on.
    "counts-on-leavers": (
        "abcd",
        "leave a / leave b / send d / send c / join e c / leave d / sync c / net c e 0 / leave c / net c d 0"
        " / drop c d 0 / evict e d",
    ),
    # b leaves, and cannot meet e, whom a victim has let in; whom e lets in it has no say on.
    "leavers-tell-ends": (
        "abcd",
        "evict b d / sync c / evict a c / join f b / leave b / leave a / join g c / join e d",
    ),
}

# Nothing wrong comes of their absence: why is in docs/simulator.md.
CONVENIENCES = (
    "nothing-inherited",
    "blank-rows",
    "waits-for-the-ended",
    "leaves-with-foreign",
    "forgets-during-evictions",
    "victims-sweep",
)


def catches(mutant, name, known):
    members = range(3, 7)
    return any(
        run_group_seed(seed, CAMPAIGNS[name], members, engine=mutant).kind
        for seed in likely_first(known)
    )


@pytest.mark.parametrize("mutant", CAUGHT)
def test_a_campaign_catches(mutant: str):
    assert catches(mutant, *CAUGHT[mutant])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SLOWLY)
def test_a_long_campaign_catches(mutant: str):
    assert catches(mutant, *SLOWLY[mutant])


@pytest.mark.parametrize("mutant", BY_HAND)
def test_a_schedule_catches(mutant: str):
    founders, text = BY_HAND[mutant]
    assert play(founders, text).kind is None
    assert play(founders, text, engine=mutant).kind is not None


def test_each_mutant_is_caught_or_a_convenience():
    assert sorted({*CAUGHT, *SLOWLY, *BY_HAND, *CONVENIENCES}) == sorted([*MUTANTS, *WORLD_MUTANTS])


def test_the_table_tells_campaign_and_seed_of_each_mutant():
    page = Path(__file__).parents[2] / "docs" / "simulator.md"
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| `([a-z+-]+)` \| (\d+) \|", page.read_text(), re.M)
    assert {name: (campaign, int(seed)) for name, campaign, seed in rows} == CAUGHT | SLOWLY


def both(mutant: str) -> tuple[type[GroupEngine], type[GroupEngine]]:
    return GroupEngine, MUTANTS[mutant]


def after(engine: type[GroupEngine], founders: str, text: str) -> GroupWorld:
    """A group after these actions."""
    world = GroupWorld(tuple(founders), engine_type=engine)
    for action in actions(text):
        assert world.apply(action), action
    return world


def go_on(world: GroupWorld, rounds: int, silent: str = "") -> None:
    """Rounds in which everything arrives and is taken, but nobody hears of one that is silent, nor it of others."""
    for _ in range(rounds):
        up = [name for name, m in world.machines.items() if m.up and name != silent]
        for name in up:
            world.apply(("tick", name))
        for pair in world.wires.busy:
            while pair in world.wires.flights and silent not in pair:
                world.apply(("net", *pair, 0))
        for name in up:
            while world.apply(("poll", name)):
                pass
            world.apply(("sync", name))


def test_a_joiner_that_never_starts_holds_no_eviction_up_since_it_inherits_a_report():
    text = "die c / evict a c / join d a / sync a"
    ours, without = (after(engine, "abce", text) for engine in both("nothing-inherited"))
    go_on(ours, 10, silent="d")
    go_on(without, 10, silent="d")
    assert not ours.machines["b"].running.victims
    assert without.machines["b"].running.victims == {without.machines["c"].me}


def test_a_joiner_that_never_starts_is_known_to_all_by_the_row_of_its_contact():
    ours, without = (after(engine, "abc", "join d a / sync a") for engine in both("blank-rows"))
    go_on(ours, 10, silent="d")
    go_on(without, 10, silent="d")
    engine = ours.machines["b"].running
    assert engine.established == engine.members.keys()
    assert len(without.machines["b"].running.established) == 3


def test_a_leaver_does_not_wait_for_one_that_has_ended_while_another_is_silent():
    # It takes no messages any more when d is evicted; and nobody forgets it while e says nothing.
    text = "die d / leave a / sync a / " + "tick a / " * 21 + "evict b d"
    phases = []
    for engine in both("waits-for-the-ended"):
        world = after(engine, "abcde", text)
        go_on(world, 3)
        go_on(world, 40, silent="e")
        phases.append(world.machines["a"].phase)
    assert phases == [Phase.LEFT, Phase.UP]


def test_a_leaver_hands_over_what_a_member_has_sent_it_right_before_its_death():
    text = (
        "leave a / sync a / net a c 0 / net a c 0 / poll c / mute c b / mute c d / send c / sync c"
        " / net c a 0 / net c a 0 / net c a 0 / poll a / die c"
    )
    survives = []
    for engine in both("leaves-with-foreign"):
        world = after(engine, "abcd", text)
        go_on(world, 20)
        survives.append(list(world.machines["b"].application.applied) == [b"c:0"])
    assert survives == [True, False]
