"""What must hold after a group has settled, from the definitions. Raises Failure for the first violation."""

from itertools import combinations

from crdtcast.causality.member_id import name_of
from crdtcast.engine.membership import Standing
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group.drain import Drain
from crdtcast.simulator.group.machine import Machine
from crdtcast.simulator.group.upgrades import LATEST
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.oracle import OracleFinding

LAST_WORDS = 4
"""Rounds in which members may still send news of what they forgot last."""

SILENT_ROUNDS = 40


def drain_and_judge(world: GroupWorld) -> None:
    """Let everything settle, then judge. Raises Failure if something is wrong."""
    drain = world.new_drain()
    drain.run()
    living = world.living()
    names = [machine.name for machine in living]
    world.lanes.settle(pair for pair in combinations(names, 2) if world.wires.connected(*pair))
    _no_two_groups(living)
    if not any(m.active and not m.witness for m in living):
        # A member that knows of its eviction comes back under another id, and no member has a link with this one.
        there = {m.me for m in living if m.running.standing is not Standing.EVICTED}
        for machine in living:
            if machine.running.standing is Standing.LEAVING and (
                waits_for := there.intersection(machine.running.waits_for())
            ):
                raise Failure("leave-hang", f"{machine.me} waits for {waits_for}, which are there")
        if world.may_end:
            return  # no member is left to judge
        raise Failure("all-ended", "no member is left that holds data")
    _everybody_is_where_it_should_be(world, drain, living)
    _one_group(living)
    findings = world.checker.finish([m.me for m in living])
    if findings:
        raise Failure(findings[0].kind.value, _all(findings))
    _one_past(living)
    _applications(world, living)
    _levels(living)
    _ghosts(world, drain)
    living = world.living()
    _everybody_is_where_it_should_be(world, drain, living)
    _one_group(living)
    for machine in living:
        _shrunk(world, machine)
    _silence(world, drain)
    for machine in living:
        _restarts(world, machine)
    if world.all_honest:
        _nobody_blamed(world, living)


def _nobody_blamed(world: GroupWorld, living: list[Machine]) -> None:
    """Honest members make no claims that others refuse. After an operator's override two sides may disagree."""
    for machine in living:
        for who, blame in machine.running.blamed.items():
            if who in world.set_back:
                continue
            raise Failure("blamed", f"{machine.me} blames {who}: {blame.text}")
        for text in machine.running.blames.take_doubts().values():
            if not world.by_word and not world.counts["voted_twice"]:
                raise Failure("doubted", f"{machine.me} takes for wrong: {text}")


def _everybody_is_where_it_should_be(
    world: GroupWorld, drain: Drain, living: list[Machine]
) -> None:
    for machine in world.machines.values():
        if machine.up and machine.ghost:
            raise Failure(
                "ghost-untold", f"{machine.me} dials, and no member tells it that it is removed"
            )
        if drain.wants_in(machine):
            raise Failure("join-stuck", f"{machine.name} asks in vain, at {machine.asked} last")
    for machine in living:
        standing = machine.running.standing
        if standing is Standing.LEAVING:
            raise Failure("leave-hang", f"{machine.me} cannot leave")
        if standing is Standing.EVICTED:
            raise Failure("return-stuck", f"{machine.me} was evicted and cannot come back")
        if standing in (Standing.DISPUTED, Standing.SPLIT):
            raise Failure("disputed", f"{machine.me} is in dispute")
    for machine in living:
        if machine.running.victims:
            raise Failure(
                "evict-stuck",
                f"{machine.me} never ends {sorted(machine.running.victims)};"
                f" members {sorted(machine.running.members)}",
            )
        if machine.parked:
            raise Failure("reissue-stuck", f"{machine.me} still holds {machine.parked}")


def _no_two_groups(living: list[Machine]) -> None:
    """This must hold in any case: the network is whole, and the operator has acted."""
    active = [machine for machine in living if machine.active]
    for place, machine in enumerate(active):
        for other in active[place + 1 :]:
            if machine.me not in other.running.members and other.me not in machine.running.members:
                raise Failure("split", f"{machine.me} and {other.me} are members of two groups")


def _one_group(living: list[Machine]) -> None:
    names = {m.me for m in living}
    views = {m.me: m.running.view for m in living}
    if len(set(views.values())) > 1 or any(view.voters != names for view in views.values()):
        raise Failure("views", f"members of different views, or without a vote: {views}")
    for machine in living:
        members = machine.running.members.keys()
        if members != names:
            raise Failure(
                "split",
                f"{machine.me}: strangers {sorted(members - names)}, missing {sorted(names - members)}",
            )


def _one_past(living: list[Machine]) -> None:
    """All members have delivered the same."""
    first = living[0]
    for machine in living:
        vector, other = first.running.vector, machine.running.vector
        if vector != other:
            raise Failure("vectors", f"{first.me} has {vector}, and {machine.me} {other}")


def _applications(world: GroupWorld, living: list[Machine]) -> None:
    for machine in living:
        if machine.doubles:
            raise Failure("payload-twice", machine.doubles[0])
    states = {m.name: m.application.applied for m in living if not m.witness}
    dead = [name for name, machine in world.machines.items() if machine.lost]
    wrong = world.ledger.wrong({name: list(state) for name, state in states.items()}, dead)
    if wrong:
        raise Failure(*wrong)
    for machine in living:
        application = machine.application
        if wrongly := world.ledger.wrongly_removed(application.applied, application.removed):
            text = ", ".join(sorted(payload.decode() for payload in wrongly))
            raise Failure("removal", f"at {machine.me} removals mean something else for {text}")


def _levels(living: list[Machine]) -> None:
    levels = {m.me: m.running.level for m in living}
    if len(set(levels.values())) > 1:
        raise Failure("level", f"members use different format levels: {levels}")
    if all(m.reads.highest == LATEST for m in living) and set(levels.values()) != {LATEST}:
        raise Failure(
            "level", f"all read format level {LATEST}, and it never came into force: {levels}"
        )


def _ghosts(world: GroupWorld, drain: Drain) -> None:
    """Copies of all former processes dial long after. Members notify them of their end; nothing else changes."""
    for machine in list(world.machines.values()):
        for which in range(len(machine.former)):
            world.apply(("ghost", machine.name, which))
    drain.run()
    for machine in world.machines.values():
        if machine.up and machine.ghost:
            raise Failure(
                "ghost-untold", f"{machine.me} dials, and no member tells it that it is removed"
            )


def _shrunk(world: GroupWorld, machine: Machine) -> None:
    engine = machine.running
    if not engine.quiet:
        raise Failure("not-quiet", f"{machine.me} never falls quiet: {engine.counters()}")
    members = set(engine.members)
    state = engine.state()
    for what, keys in (
        ("vector", set(state.vector)),
        ("stable", set(state.stable)),
        ("context", {dot.origin for dot in state.context}),
        ("ended", set(engine.ended)),
        ("swept", set(state.swept)),
        ("early", set(state.early)),
        ("frozen", set(state.frozen)),
        ("cuts", set(state.cuts)),
        ("voters", set(state.view.voters)),
    ):
        if keys - members:
            raise Failure("metadata", f"{machine.me} keeps in {what}: {sorted(keys - members)}")
    back = {m.name for m in world.living()}
    kept = sorted(x for x in engine.tombs if name_of(x) in back)
    if kept:
        raise Failure("metadata", f"{machine.me} keeps tombs of those who are back: {kept}")


def _silence(world: GroupWorld, drain: Drain) -> None:
    for _ in range(LAST_WORDS):
        for machine in world.living():
            world.apply(("tick", machine.name))
        drain.exchange()
    for _ in range(SILENT_ROUNDS):
        for machine in world.living():
            world.apply(("tick", machine.name))
            world.apply(("sync", machine.name))
        if world.wires.flights:
            pair, parcels = next(iter(world.wires.flights.items()))
            raise Failure("noise", f"{pair} still talk when all is stable: {parcels[0].content}")


def _restarts(world: GroupWorld, machine: Machine) -> None:
    state = machine.running.state()
    again = world.engine_type(machine.me, state, machine.reads).state()
    if again != state:
        raise Failure("restart", f"{machine.me} saved {state} and comes back as {again}")


def _all(findings: list[OracleFinding]) -> str:
    shown = [str(finding) for finding in findings[:6]]
    return "; ".join(shown) + (f"; and {len(findings) - 6} more" if len(findings) > 6 else "")
