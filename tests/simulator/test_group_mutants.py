"""Every rule for members that come and go is needed: an engine, or a runtime, without it is caught, by seeds from 0 on.

The table in docs/simulator.md is from `SLOWLY` and `CAUGHT`, and from `CONVENIENCES`.
"""

import pytest

from crdtcast.engine.group import GroupEngine
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.group_mutants import MUTANTS
from crdtcast.simulator.group_world import GroupWorld
from crdtcast.simulator.world_mutants import WORLD_MUTANTS

# The campaign, and at most so many of its seeds: about three times what it took when this was written.
CAUGHT = {
    "eager-adoption": ("join+leave", 10),
    "no-asking": ("restart", 10),
    "no-context": ("two-evictions", 10),
    "selfish-repair": ("two-evictions", 10),
    "no-vouching": ("two-evictions", 45),
    "no-freezing": ("two-evictions", 10),
    "one-at-a-time": ("two-evictions", 10),
    "all-at-once": ("everything", 40),
    "replaced-count": ("restart", 20),
    "leaves-at-once": ("join+leave", 60),
    "drops-unswept": ("join+leave", 10),
    "silent-sweeps": ("everything", 60),
    "light-digests": ("everything", 30),
    "takes-ghosts": ("join+leave", 20),
    "orphans-stay": ("two-evictions", 10),
    "undecided": ("restart", 10),
    "starts-silent": ("everything", 30),
    "joiners-vote": ("regions", 15),
    "any-contact": ("regions", 15),
    "sends-unsynced": ("restart", 10),
    "sends-all-again": ("restart", 10),
    "sends-the-same-again": ("return", 40),
    "notes-unsaved": ("return", 170),
}

# Rarer, or long: their runs stand still for a while.
SLOWLY = {
    "no-majority": ("force", 500),
    "incomplete-rows": ("force", 500),
    "no-tombs": ("force", 500),
    "leaves-with-foreign": ("exodus", 500),
    "difference-of-store": ("everything", 500),
}

# Nothing wrong comes of their absence: why is in docs/simulator.md.
CONVENIENCES = (
    "nothing-inherited",
    "blank-rows",
    "waits-for-the-ended",
    "forgets-during-evictions",
    "victims-sweep",
)


def catches(mutant, name, seeds):
    members = range(3, 7)
    return any(
        run_group_seed(seed, CAMPAIGNS[name], members, engine=mutant).kind for seed in range(seeds)
    )


@pytest.mark.parametrize("mutant", CAUGHT)
def test_a_campaign_catches(mutant: str):
    assert catches(mutant, *CAUGHT[mutant])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SLOWLY)
def test_a_long_campaign_catches(mutant: str):
    assert catches(mutant, *SLOWLY[mutant])


def test_each_mutant_is_caught_or_a_convenience():
    assert sorted([*CAUGHT, *SLOWLY, *CONVENIENCES]) == sorted([*MUTANTS, *WORLD_MUTANTS])


def after(engine: type[GroupEngine], founders: str, *actions: tuple[str, ...]) -> GroupWorld:
    """A group after these actions and ten rounds in which everything arrives but what is sent to d."""
    world = GroupWorld(tuple(founders), engine_type=engine)
    for action in actions:
        assert world.apply(action), action
    for _ in range(10):
        up = [name for name, machine in world.machines.items() if machine.up]
        for name in up:
            world.apply(("tick", name))
        for pair in world.wires.busy:
            while pair in world.wires.flights and pair[1] != "d":
                world.apply(("net", *pair, 0))
        for name in up:
            while world.apply(("poll", name)):
                pass
            world.apply(("sync", name))
    return world


def test_a_joiner_that_never_starts_holds_no_eviction_up_since_it_inherits_a_report():
    actions = ("die", "c"), ("evict", "a", "c"), ("join", "d", "a"), ("sync", "a")
    ours = after(GroupEngine, "abce", *actions)
    assert not ours.machines["b"].running.victims
    without = after(MUTANTS["nothing-inherited"], "abce", *actions)
    assert without.machines["b"].running.victims == {without.machines["c"].me}


def test_a_joiner_that_never_starts_is_known_to_all_by_the_row_of_its_contact():
    actions = ("join", "d", "a"), ("sync", "a")
    ours = after(GroupEngine, "abc", *actions).machines["b"].running
    assert ours.established == ours.members.keys()
    without = after(MUTANTS["blank-rows"], "abc", *actions).machines["b"].running
    assert len(without.established) == 3
