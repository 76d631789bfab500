"""Programs of different versions in a simulated group: upgrades, the way back, raises, and who can read what.

A program reads the format levels from 1 to some highest one. An application sends in the level that its engine says is
in force, so each operation has a level: a program that does not read it must never be given the operation.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crdtcast.engine.level import Span
from crdtcast.exceptions import HandshakeError, LocalProtocolError, OutdatedError
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes
from crdtcast.simulator.group.application import without_meaning
from crdtcast.simulator.group.machine import Machine, Phase

if TYPE_CHECKING:
    from crdtcast.simulator.group.world import GroupWorld

LATEST = 3
"""What the latest program reads."""


class Formats:
    """The level of each operation that was sent, for the oracle."""

    def __init__(self) -> None:
        self._levels: dict[bytes, int] = {}

    def sent(self, operation: bytes, level: int) -> None:
        """An operation was sent in this level."""
        self._levels[operation] = level

    def level(self, payload: bytes) -> int:
        """Of an operation, also of one that is sent again."""
        return self._levels.get(without_meaning(payload)[0], 1)

    def check(self, machine: Machine, payloads: Iterable[bytes]) -> None:
        """Raises Failure if the program of a machine cannot read what its application is given."""
        for payload in payloads:
            if self.level(payload) not in machine.reads:
                raise Failure(
                    "unreadable",
                    f"{machine.name} reads {machine.reads}, and is given {payload.decode()} of level"
                    f" {self.level(payload)}",
                )


def check_use(world: "GroupWorld", machine: Machine, level: int) -> None:
    """Raises Failure if a machine sends in a level although a member has not agreed to read it."""
    members = machine.running.members
    for other in world.machines.values():
        if other.me not in members or other.ghost:
            continue
        if other.up and other.running.agreed < level:
            raise Failure("used-early", f"{machine.me} sends in level {level} before {other.me}")


def upgrade(world: "GroupWorld", name: str, highest: int) -> bool:
    """The program of a machine is replaced by a later or an older one. False: the new one refuses what it finds."""
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
    if machine.phase is Phase.OUTSIDE:
        machine.bulk = None  # an older program begins again
        return True
    return not machine.up or crashes.crash(world, machine)


def raise_level(world: "GroupWorld", machine: Machine) -> bool:
    """The operator of a machine asks for the greatest level that all members have said to read."""
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


def may_copy(host: Machine, machine: Machine) -> bool:
    """Whether the program of a machine reads what that host would give it."""
    try:
        host.running.check_reader(machine.name, machine.reads)
    except HandshakeError:
        return False
    return True


def replace_all(world: "GroupWorld") -> None:
    """Every machine gets the latest program."""
    for name in list(world.machines):
        world.apply(("upgrade", name, LATEST))


def lagging(world: "GroupWorld") -> list[Machine]:
    """The members at which the latest level is not in force."""
    return [m for m in world.living() if m.running.level != LATEST]
