"""Programs of different versions in a simulated group: upgrades, downgrades, raises, and what each program reads.

A program reads the format levels from 1 to a highest one. An application sends in the level that is in force at its
engine, so each operation has a level. A program that does not read this level must never get the operation.
"""

from crdtcast.engine.level import Span
from crdtcast.exceptions import LocalProtocolError, OutdatedError
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.machine import Machine, MachinePhase

LATEST = 3
"""The highest level that the latest program reads."""


def check_use(world: BaseWorld, machine: Machine, level: int) -> None:
    """Check that all members have agreed to read a level in which a machine sends. Raises Failure if not."""
    members = machine.running.members
    for other in world.machines.values():
        if other.me not in members or other.ghost:
            continue
        if other.up and other.running.agreed < level:
            raise Failure("used-early", f"{machine.me} sends in level {level} before {other.me}")


def upgrade(world: BaseWorld, name: str, highest: int) -> bool:
    """Replace the program of a machine by a later or an older one. Returns False if the new one refuses the journal."""
    machine = world.machines.get(name)
    if machine is None:
        machine = world.machines[name] = Machine(name)
    reads = Span(1, highest)
    if machine.ghost or machine.reads == reads:
        return False
    if machine.commits:
        try:
            world.engine_type(machine.me, machine.commits[-1].state, reads)
        except OutdatedError:
            world.counts["outdated"] += 1
            return False
    world.counts["upgrades" if highest > machine.reads.highest else "downgrades"] += 1
    machine.reads = reads
    if machine.phase is MachinePhase.OUTSIDE:
        machine.bulk = None  # an older program copies again
        return True
    return not machine.up or crashes.crash(world, machine)


def raise_level(world: BaseWorld, machine: Machine) -> bool:
    """The operator of a machine asks for the greatest level that all members read, as far as they have said."""
    if not machine.active or machine.ghost:
        return False
    engine = machine.running
    try:
        engine.raise_level(engine.raisable)
    except (LocalProtocolError, OutdatedError):
        world.counts["not_raised"] += 1
        return False
    world.counts["raised"] += 1
    return True


def replace_all(world: BaseWorld) -> None:
    """Give every machine the latest program."""
    for name in list(world.machines):
        world.apply(("upgrade", name, LATEST))


def lagging(world: BaseWorld) -> list[Machine]:
    """The members at which the latest level is not in force."""
    return [m for m in world.living() if m.running.level != LATEST]
