"""How a machine joins a simulated group: an optional copy, a contact, a letter with its state, and asking again.

The contact's letter leaves with the contact's next sync, like all it sends. It may be lost, or arrive twice.
"""

from crdtcast.causality.member_id import base_of
from crdtcast.engine.operations import How
from crdtcast.engine.reissue import Parked
from crdtcast.exceptions import HandshakeError, NotReadyError, OutdatedError
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group.application import ApplicationCopy, SimulatedApplication
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.machine import Letter, Machine, MachinePhase


def join(world: BaseWorld, name: str, contact: str) -> bool:
    """A machine outside asks `contact`: for the first time, again, or after another contact did not answer."""
    machine = world.machines.get(name)
    host = world.machines.get(contact)
    if host is None or not host.active or host.ghost or world.is_outdated(host) or name == contact:
        return False
    if machine is None:
        machine = world.machines[name] = Machine(name)
    if machine.ghost or not world.wires.open(name, contact):
        return False
    if machine.stopped:
        stop(world, machine)
    if machine.phase not in (MachinePhase.OUTSIDE, MachinePhase.LEFT):
        return False
    base, replaces = machine.base, machine.replaces
    elsewhere = base is not None and machine.asked not in (None, contact)
    if elsewhere and all(base_of(member) != base for member in host.running.members):
        # The first contact may have let it in without others knowing: the new base replaces the first one.
        base, replaces = None, (*replaces, *filter(None, [base]))
    return _ask(world, machine, host, base, replaces)


def replace(world: BaseWorld, name: str, old: str, contact: str) -> bool:
    """By an operator's command, a new machine joins and replaces another machine, or an incarnation."""
    host = world.machines.get(contact)
    if (
        host is None
        or not host.active
        or host.ghost
        or world.is_outdated(host)
        or name in world.machines
    ):
        return False
    target = world.machines.get(old)
    if target is not None and target.up:
        return False
    machine = world.machines[name] = Machine(name, reads=host.reads)
    if _ask(world, machine, host, None, (old if target is None else target.me,)):
        world.counts["replaced"] += 1
        return True
    del world.machines[name]
    return False


def _ask(
    world: BaseWorld,
    machine: Machine,
    host: Machine,
    base: str | None,
    replaces: tuple[str, ...],
) -> bool:
    engine = host.running
    asked_as = base or machine.new_base()
    bulk = machine.bulk
    try:
        admission = engine.admit(
            asked_as,
            covered=bulk.vector if bulk else {},
            replaces=replaces,
            witness=machine.witness,
            reads=machine.reads,
        )
    except NotReadyError:
        world.counts["not_ready"] += 1
        return False
    except HandshakeError:
        world.counts["not_admitted"] += 1
        if base is not None and machine.asked == host.name:  # the one that it had let in has ended
            machine.base, machine.asked, machine.replaces = None, None, (*replaces, base)
        return False
    machine.phase = MachinePhase.OUTSIDE
    if machine.base != asked_as:
        # This contact lets it in under this base. Others may only send the state again, once they know of that.
        machine.base, machine.asked, machine.replaces = asked_as, host.name, replaces
    world.after(host)
    known = world.checker.snapshot(host.me)
    applied = world.difference(host, bulk.vector) if bulk else dict(host.application.applied)
    removed = frozenset(host.application.removed)
    letter = Letter(admission, asked_as, applied, removed, known, machine.bulks if bulk else None)
    whole = {**bulk.applied, **applied} if bulk else applied
    if not machine.witness and whole != host.application.applied:
        differs = {p.decode() for p in whole.keys() ^ host.application.applied.keys()}
        raise Failure("copy-differs", f"{machine.name} joins at {host.name}: {sorted(differs)}")
    host.held.append((machine.name, letter))
    world.counts["join_asked"] += 1
    return True


def install(world: BaseWorld, machine: Machine, letter: Letter) -> None:
    """A letter arrives: start the process, unless it runs already or waits for another letter."""
    if machine.phase is not MachinePhase.OUTSIDE or letter.base != machine.base:
        return
    applied, removed = dict(letter.application), set(letter.removed)
    if letter.bulk is not None:
        if machine.bulk is None or machine.bulks != letter.bulk:
            return
        applied = {**machine.bulk.applied, **applied}
    if machine.witness:
        applied, removed = {}, set()
    admission = letter.admission
    try:
        engine = world.engine_type(admission.incarnation, admission.state, machine.reads)
    except OutdatedError:
        world.counts["outdated"] += 1  # it asks again, and its contact refuses
        return
    world.formats.check(machine, applied)
    machine.commits = []
    machine.start(engine, SimulatedApplication(applied, removed))
    world.checker.joined_from(machine.me, letter.known)
    machine.told_ended = dict(letter.known.cuts)
    world.observer.started(machine)
    world.counts["joined"] += 1
    world.counts["bulk_joins"] += letter.bulk is not None
    world.after(machine)
    world.connect_all(machine.name)


def copy(world: BaseWorld, name: str, source: str) -> bool:
    """A machine outside fetches a copy of a member's application, with the vector of that instant."""
    machine = world.machines.get(name)
    host = world.machines.get(source)
    if host is None or not host.active or host.ghost or host.witness or name == source:
        return False
    if machine is None:
        machine = world.machines[name] = Machine(name)
    if machine.phase is not MachinePhase.OUTSIDE or machine.asked is not None or machine.witness:
        return False
    # A member hands out only what is durable, as of its last sync.
    if not host.commits or not world.wires.open(name, source):
        return False
    if not world.may_copy(host, machine):
        world.counts["not_admitted"] += 1
        return False
    saved = host.commits[-1]
    world.formats.check(machine, saved.application.applied)
    machine.bulk = ApplicationCopy(dict(saved.application.applied), dict(saved.state.vector))
    machine.bulks += 1
    return True


def stop(world: BaseWorld, machine: Machine) -> None:
    """A process has learned that it is not a member any more: it parks what it has sent, durably, and ends."""
    engine = machine.running
    world.ledger.synced(machine.name)
    if not machine.witness:
        machine.parked = Parked.of(engine.state(), machine.me, machine.parked)
    world.end_process(machine, cleanly=True)
    # While some members may not know that it has replaced those before it, its successor replaces them again.
    before = () if machine.me in engine.established else machine.replaces
    machine.retire((machine.me, *before))
    world.counts["stopped"] += 1
    forced = any(cut.how is How.FORCED for cut in engine.ended.values())
    if forced or world.counts["disputed"]:
        # The side of a forced eviction gives up: by itself when it hears that it never was a member, or by surrender.
        # What was stable on that side is in no member's store any more.
        world.ledger.loose.update(machine.application.applied)
