"""Runs of groups whose members come and go: one seed of a campaign, or one schedule."""

import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from crdtcast.engine.founding import FoundingRound
from crdtcast.engine.group import GroupEngine
from crdtcast.exceptions import ConfigurationError
from crdtcast.simulator.campaigns import Campaign
from crdtcast.simulator.founding import FoundingScheduler, FoundingWorld
from crdtcast.simulator.group.logs import GroupLogs
from crdtcast.simulator.group.observer import RunObserver
from crdtcast.simulator.group.scheduler import GroupScheduler
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.hostile.scheduler import HostileScheduler
from crdtcast.simulator.hostile.world import HostileWorld
from crdtcast.simulator.named_class import load_class
from crdtcast.simulator.run import Outcome, carry_out
from crdtcast.simulator.schedule import Action, GroupSchedule

GroupOutcome: TypeAlias = Outcome[GroupSchedule]


def group_world(schedule: GroupSchedule, observer: RunObserver | None = None) -> GroupWorld:
    """The group of a schedule before its actions. A class that the schedule names replaces its base class.

    Raises ConfigurationError if there is no such class, or this group cannot use it.
    """
    founders, witnesses = schedule.members, schedule.witnesses
    own = GroupEngine if schedule.engine is None else load_class(schedule.engine)
    if schedule.founding and issubclass(own, FoundingRound):
        return FoundingWorld(founders, witnesses, observer=observer, round_type=own)
    if issubclass(own, GroupWorld) and not schedule.founding and schedule.hostile is None:
        return own(founders, witnesses, observer=observer)
    if not issubclass(own, GroupEngine):
        raise ConfigurationError(
            f"cannot run {schedule.engine!r}: name a subclass of GroupEngine; of FoundingRound, in a campaign that"
            " founds its group; or of GroupWorld, in one that does not, and has no hostile member"
        )
    if schedule.founding:
        return FoundingWorld(founders, witnesses, own, observer)
    if schedule.hostile is not None:
        return HostileWorld(founders, schedule.hostile, own, observer)
    return GroupWorld(founders, witnesses, own, observer)


def run_schedule(schedule: GroupSchedule, logs: Path | None = None) -> GroupOutcome:
    """Replay a schedule, then let everything settle.

    logs: directory for event logs.
    """
    observer = None if logs is None else GroupLogs(logs)
    return _run(group_world(schedule, observer), schedule, schedule.actions, observer)


def run_group_seed(
    seed: int,
    campaign: Campaign,
    members: range,
    *,
    engine: str | None = None,
    logs: Path | None = None,
) -> GroupOutcome:
    """One random run of a campaign.

    engine: see `group_world`.
    logs: directory for event logs.
    """
    chance = random.Random(seed)
    founders, witnesses = campaign.found(chance, members)
    observer = None if logs is None else GroupLogs(logs)
    schedule = GroupSchedule(
        members=founders,
        seed=seed,
        engine=engine,
        witnesses=witnesses,
        hostile=chance.choice(founders) if campaign.hostile else None,
        founding=campaign.founding,
    )
    world = group_world(schedule, observer)
    return _run(world, schedule, _scheduler(chance, world, campaign).actions(), observer)


def _scheduler(chance: random.Random, world: GroupWorld, campaign: Campaign) -> GroupScheduler:
    if isinstance(world, HostileWorld):
        return HostileScheduler(chance, world, campaign)
    if isinstance(world, FoundingWorld):
        return FoundingScheduler(chance, world, campaign)
    return GroupScheduler(chance, world, campaign)


def _run(
    world: GroupWorld,
    schedule: GroupSchedule,
    steps: Iterable[Action],
    observer: GroupLogs | None,
) -> GroupOutcome:
    judge = world.judge if isinstance(world, HostileWorld) else partial(drain_and_judge, world)
    outcome = carry_out(world, schedule, steps, judge)
    if observer is not None:
        observer.close()
    return outcome
