"""Runs of groups of fixed members, by seed or by schedule: of a published engine, or of `Engine`, ours for such groups.

A schedule names the class of its engine, such as `benchmarks.baselines.cbcast:CbcastEngine`.
`crdtcast.simulator.shrink` shrinks a failing run, with `run_schedule`.
"""

import random
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.baselines.simulator.published_world import BaselineWorld
from benchmarks.baselines.simulator.scheduler import actions
from benchmarks.baselines.simulator.world import World
from crdtcast.engine import Durability, Engine
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.named_class import load_class
from crdtcast.simulator.run import Outcome, carry_out
from crdtcast.simulator.schedule import Schedule

NAMES = tuple("abcdefghijkl")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSchedule(Schedule):
    """One run of a fixed group.

    declares: whether members declare later what is durable. (The published engines have no journals.)
    """

    declares: bool = False


FixedOutcome: TypeAlias = Outcome[FixedSchedule]


def run_schedule(schedule: FixedSchedule) -> FixedOutcome:
    """Replay a schedule, then let everything settle."""
    world = _world(schedule)
    return carry_out(world, schedule, schedule.actions, world.drain)


def run_seed(seed: int, members: int, faults: Faults, *, engine: str | None = None) -> FixedOutcome:
    """One random run.

    engine: `module:Class`; None: `Engine`, whose journals declare durability later in half of the runs.
    """
    chance = random.Random(seed)
    declares = issubclass(_engine(engine), Engine) and chance.choice((False, True))
    schedule = FixedSchedule(members=NAMES[:members], seed=seed, engine=engine, declares=declares)
    world = _world(schedule)
    return carry_out(world, schedule, actions(chance, world, faults), world.drain)


def _engine(name: str | None) -> type[Any]:
    return Engine if name is None else load_class(name)


def _world(schedule: FixedSchedule) -> World | BaselineWorld:
    engine = _engine(schedule.engine)
    if issubclass(engine, Engine):
        durability = Durability.DECLARED if schedule.declares else Durability.IMMEDIATE
        return World(schedule.members, durability, engine)
    return BaselineWorld(schedule.members, engine)
