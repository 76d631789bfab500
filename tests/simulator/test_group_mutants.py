"""Every rule for members that come and go is needed: an engine without it is caught, by seeds from 0 on."""

import pytest

from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.group_mutants import MUTANTS

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
    "leaves-at-once": ("join+leave", 20),
    "drops-unswept": ("join+leave", 10),
    "silent-sweeps": ("everything", 60),
    "light-digests": ("everything", 30),
    "takes-ghosts": ("join+leave", 20),
    "orphans-stay": ("two-evictions", 10),
    "undecided": ("restart", 10),
    "starts-silent": ("everything", 30),
}

# Rarer, or long: their runs stand still for a while.
SLOWLY = {
    "joiners-vote": ("everything", 500),
    "no-majority": ("force", 500),
    "any-contact": ("everything", 500),
    "incomplete-rows": ("force", 500),
    "no-tombs": ("force", 500),
}


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


def test_those_that_are_caught_exist():
    assert {*CAUGHT, *SLOWLY} <= set(MUTANTS)
