"""Runs: one seed, one schedule, many seeds; with what they counted and, if one fails, the schedule that replays it."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crdtcast.baselines.simulator.mutants import MUTANTS
from crdtcast.baselines.simulator.published_world import BASELINES, BaselineWorld
from crdtcast.baselines.simulator.scheduler import actions
from crdtcast.baselines.simulator.world import World
from crdtcast.engine import Durability, Engine
from crdtcast.engine.founding import FoundingRound
from crdtcast.engine.group import GroupEngine
from crdtcast.simulator.campaigns import NAMES, Campaign
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.founding import FoundingScheduler, FoundingWorld
from crdtcast.simulator.group.logs import GroupLogs
from crdtcast.simulator.group.mutants import FOUNDING_MUTANTS, WORLD_MUTANTS
from crdtcast.simulator.group.mutants import MUTANTS as GROUP_MUTANTS
from crdtcast.simulator.group.observer import RunObserver
from crdtcast.simulator.group.scheduler import GroupScheduler
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.hostile.scheduler import HostileScheduler
from crdtcast.simulator.hostile.world import HostileWorld
from crdtcast.simulator.schedule import Action, Schedule


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run: its schedule, what it counted, and what was wrong (`kind` and text), if anything."""

    schedule: Schedule
    counts: Counter[str]
    kind: str | None = None
    failure: str | None = None


def engine_type(name: str | None) -> type[Engine]:
    """The real engine, or the mutant of that name."""
    return Engine if name is None else MUTANTS[name]


def group_engine_type(name: str | None) -> type[GroupEngine]:
    """The real engine of groups whose members come and go, or the mutant of that name."""
    return GroupEngine if name is None else GROUP_MUTANTS[name]


def group_world(
    founders: tuple[str, ...],
    witnesses: tuple[str, ...],
    name: str | None,
    observer: RunObserver | None = None,
    hostile: str | None = None,
    *,
    founding: bool = False,
) -> GroupWorld:
    """A group whose members come and go: the real one, or with the engine, the runtime or the founding that `name`
    breaks.
    """
    if founding:
        round_type = FOUNDING_MUTANTS.get(name or "", FoundingRound)
        engine = group_engine_type(None if name in FOUNDING_MUTANTS else name)
        return FoundingWorld(founders, witnesses, engine, observer, round_type)
    if hostile is not None:
        return HostileWorld(founders, hostile, group_engine_type(name), observer)
    if name in WORLD_MUTANTS:
        return WORLD_MUTANTS[name](founders, witnesses, observer=observer)
    return GroupWorld(founders, witnesses, group_engine_type(name), observer)


def engine_names(*, dynamic: bool, campaign: Campaign) -> tuple[str, ...]:
    """Names of the broken engines that this campaign can catch."""
    if not dynamic:
        return tuple(sorted(MUTANTS))
    if campaign.founding:
        return tuple(sorted({*GROUP_MUTANTS, *FOUNDING_MUTANTS}))
    return tuple(sorted({*GROUP_MUTANTS, *(() if campaign.hostile else WORLD_MUTANTS)}))


def run_schedule(schedule: Schedule, logs: Path | None = None) -> Outcome:
    """Replay a schedule, then let everything settle. `logs`: directory for event logs (dynamic groups only)."""
    if schedule.engine in BASELINES:
        published = BaselineWorld(schedule.members, schedule.engine)
        return _run(published, schedule, iter(schedule.actions))
    if not schedule.dynamic:
        world = World(schedule.members, schedule.durability, engine_type(schedule.engine))
        return _run(world, schedule, iter(schedule.actions))
    observer = None if logs is None else GroupLogs(logs)
    group = group_world(
        schedule.members,
        schedule.witnesses,
        schedule.engine,
        observer,
        schedule.hostile,
        founding=schedule.founding,
    )
    outcome = _run(group, schedule, iter(schedule.actions))
    if observer is not None:
        observer.close()
    return outcome


def run_seed(seed: int, members: int, faults: Faults, *, engine: str | None = None) -> Outcome:
    """One random run. In half of them journals declare durability later."""
    chance = random.Random(seed)
    names = NAMES[:members]
    if engine in BASELINES:
        published = BaselineWorld(names, engine)
        schedule = Schedule(names, Durability.IMMEDIATE, (), seed, engine)
        return _run(published, schedule, actions(chance, published, faults))
    durability = chance.choice((Durability.IMMEDIATE, Durability.DECLARED))
    world = World(names, durability, engine_type(engine))
    schedule = Schedule(names, durability, (), seed, engine)
    return _run(world, schedule, actions(chance, world, faults))


def run_group_seed(
    seed: int,
    campaign: Campaign,
    members: range,
    *,
    engine: str | None = None,
    logs: Path | None = None,
) -> Outcome:
    """One random run of a campaign, in a group whose members come and go. `logs`: directory for event logs."""
    chance = random.Random(seed)
    founders, witnesses = campaign.found(chance, members)
    observer = None if logs is None else GroupLogs(logs)
    hostile = chance.choice(founders) if campaign.hostile else None
    world = group_world(founders, witnesses, engine, observer, hostile, founding=campaign.founding)
    schedule = Schedule(
        founders,
        Durability.IMMEDIATE,
        (),
        seed,
        engine,
        dynamic=True,
        witnesses=witnesses,
        hostile=hostile,
        founding=campaign.founding,
    )
    outcome = _run(world, schedule, _scheduler(chance, world, campaign).actions())
    if observer is not None:
        observer.close()
    return outcome


def _scheduler(chance: random.Random, world: GroupWorld, campaign: Campaign) -> GroupScheduler:
    if isinstance(world, HostileWorld):
        return HostileScheduler(chance, world, campaign)
    if isinstance(world, FoundingWorld):
        return FoundingScheduler(chance, world, campaign)
    return GroupScheduler(chance, world, campaign)


def _run(
    world: World | GroupWorld | BaselineWorld, schedule: Schedule, steps: Iterator[Action]
) -> Outcome:
    taken: list[Action] = []
    try:
        for action in steps:
            taken.append(action)
            if not world.apply(action):
                taken.pop()
        if isinstance(world, HostileWorld):
            world.judge()
        elif isinstance(world, GroupWorld):
            drain_and_judge(world)
        else:
            world.drain()
    except Failure as failure:
        done = schedule.with_actions(taken)
        return Outcome(done, world.totals(), failure.kind, f"{failure.kind}: {failure}")
    return Outcome(schedule.with_actions(taken), world.totals())


def run_seeds(
    seeds: Iterable[int], members: int, faults: Faults, *, engine: str | None = None
) -> Iterator[Outcome]:
    """One run a seed, as they finish."""
    for seed in seeds:
        yield run_seed(seed, members, faults, engine=engine)
