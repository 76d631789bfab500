"""Every rule for members that come and go is needed: an engine, or a runtime, without it is caught, by seeds from 0 on.

The table in docs/simulator.md is from `SLOWLY` and `CAUGHT`, and from `CONVENIENCES`.
"""

import re
from pathlib import Path

import pytest

from crdtcast.engine.group import GroupEngine
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.group.world import GroupWorld
from tests.engine.test_founding import NEEDED as FOUND
from tests.engine.test_one_liar import NEEDED
from tests.simulator.mutants import FOUNDING_MUTANTS, MUTANTS, WORLD_MUTANTS, engine_name

from .search import likely_first
from .written import actions

# The campaign, and the first seed of it that catches it.
CAUGHT = {
    "EagerAdoption": ("join+leave", 9),
    "NoAsking": ("join+leave", 9),
    "NoContext": ("join+leave", 4),
    "SelfishRepair": ("join+leave", 12),
    "NoMajority": ("contested", 228),
    "AQuorumIsEnough": ("contested", 41),
    "RowsGoAtOnce": ("join+leave", 12),
    "NobodyVotes": ("join+leave", 0),
    "LeavesNoVote": ("exodus", 14),
    "WaitsForEver": ("everything", 33),
    "ReplacedCount": ("join+leave", 10),
    "DropsUnswept": ("join+leave", 4),
    "IncompleteRows": ("two-evictions", 21),
    "LightDigests": ("everything", 27),
    "TakesGhosts": ("two-evictions", 47),
    "Undecided": ("two-evictions", 62),
    "SendsUnsynced": ("two-evictions", 3),
    "SendsAllAgain": ("two-evictions", 11),
    "SendsTheSameAgain": ("return", 28),
    "NotesUnsaved": ("return", 113),
    "DifferenceOfStore": ("copies", 0),
    "BelievesItsDisk": ("set-back", 23),
    "KeepsWhatWasTold": ("set-back", 137),
    "SpeaksUnheard": ("set-back", 228),
    "AnyProgram": ("levels", 23),
    "GoesBack": ("levels", 48),
    "CopiesToAny": ("levels", 23),
    "TrustsEnds": ("hostile", 0),
    "TrustsMemories": ("hostile", 1),
    "KeepsAll": ("hostile", 3),
    "LetsErrorsThrough": ("hostile", 1),
    "BlamesNobody": ("hostile", 1),
    "KeepsItsId": ("founding", 5),
    "CountsAnyConfirmation": ("founding", 26),
    "ForgetsWhatItConfirmed": ("founding", 0),
    "BeginsUnconfirmed": ("founding", 0),
}

# Rarer, or long: their runs stand still for a while.
SLOWLY = {
    "NoTombs": ("force", 42),
}

# Found seldom by chance: tests/engine/test_consensus.py has a schedule that shows each of them.
BY_HAND = (
    "AdoptsNothing",
    "FirstCutStays",
    "FreezesUnasked",
    "FreshJoiners",
    "GoesUnheard",
    "LeaversTellEnds",
    "LeavesUntold",
    "NoFreezing",
    "OwnMembersOnly",
    "TellsNoDecision",
    "ThawsByBallot",
)

# Lies that the campaign tells too seldom: tests/engine/test_one_liar.py has one that is believed without each of them.
BY_LIE = (
    "AcceptsAnything",
    "ForcedUnasked",
    "KeepsUnborn",
    "StopsAtOneWord",
    "TakesAnyBallot",
    "TakesAnyLevel",
    "TakesOverAnything",
    "TrustsCuts",
    "TrustsFrames",
    "TrustsRecords",
)

# Only two processes of one name miss it: tests/engine/test_founding.py has them.
BY_MODEL = ("TakesLowerIds",)

# Nothing wrong comes of their absence: why is in docs/simulator.md.
CONVENIENCES = ("NewRowsBlank",)


def catches(mutant, name, known):
    members = range(3, 7)
    return any(
        run_group_seed(seed, CAMPAIGNS[name], members, engine=engine_name(mutant)).kind
        for seed in likely_first(known)
    )


@pytest.mark.parametrize("mutant", CAUGHT)
def test_a_campaign_catches(mutant: str):
    assert catches(mutant, *CAUGHT[mutant])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SLOWLY)
def test_a_long_campaign_catches(mutant: str):
    assert catches(mutant, *SLOWLY[mutant])


@pytest.mark.slow
def test_the_seed_that_is_noted_catches():
    """Else `catches` looks for another one, which takes seconds: note that one here and in docs/simulator.md."""
    stale = [
        mutant
        for mutant, (name, seed) in {**CAUGHT, **SLOWLY}.items()
        if not run_group_seed(seed, CAMPAIGNS[name], range(3, 7), engine=engine_name(mutant)).kind
    ]
    assert stale == []


def test_each_mutant_is_caught_or_a_convenience():
    assert sorted({*CAUGHT, *SLOWLY, *BY_HAND, *BY_LIE, *BY_MODEL, *CONVENIENCES}) == sorted(
        [*MUTANTS, *WORLD_MUTANTS, *FOUNDING_MUTANTS]
    )


def test_each_mutant_by_hand_has_its_schedule():
    page = Path(__file__).parents[1] / "engine" / "test_consensus.py"
    assert sorted(re.findall(r'\[OURS, "(\w+)"\]', page.read_text())) == sorted(BY_HAND)


def test_each_mutant_by_lie_has_its_test():
    assert sorted(NEEDED) == sorted(BY_LIE)


def test_each_mutant_by_model_has_its_run():
    assert set(BY_MODEL) <= FOUND.keys()


def test_table_names_campaign_and_seed_of_each_mutant():
    page = Path(__file__).parents[2] / "docs" / "simulator.md"
    rows = re.findall(r"^\| `(\w+)` \|.*\| `([a-z+-]+)` \| (\d+) \|", page.read_text(), re.M)
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


def test_joiner_that_never_starts_is_known_by_its_contacts_row():
    ours, without = (after(engine, "abc", "join d a / sync a") for engine in both("NewRowsBlank"))
    go_on(ours, 10, silent="d")
    go_on(without, 10, silent="d")
    engine = ours.machines["b"].running
    assert engine.established == engine.members.keys()
    assert len(without.machines["b"].running.established) == 3
