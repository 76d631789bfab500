"""Crashes, torn journals, deaths, ghosts, and the return: operations of a former incarnation are sent again."""

from collections.abc import Iterable

from crdtcast.causality.member_id import name_of
from crdtcast.engine.membership import Fate, Membership
from crdtcast.engine.reissue import Parked
from crdtcast.exceptions import OutdatedError
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.machine import Letter, LostVotes, Machine, MachinePhase


def crash(world: BaseWorld, machine: Machine) -> bool:
    """The process dies and continues, as the same incarnation, from its last sync; if there was none, it is outside."""
    if machine.ghost:
        return False
    world.counts["restarts_returning"] += machine.parked is not None
    _end_process(world, machine)
    world.counts["restarts"] += 1
    if not machine.commits:
        world.checker.rolled_back(machine.me, 0)
        world.checker.forget(machine.me)
        machine.stop(MachinePhase.OUTSIDE)
        return True
    commit = machine.commits[-1]
    position = world.checker.position(machine.me)
    world.counts["events_lost"] += position - commit.position
    world.checker.rolled_back(machine.me, commit.position)
    machine.resumed(commit, world.engine_type)
    world.observer.started(machine)
    world.after(machine)
    return True


def torn(world: BaseWorld, machine: Machine, lost: int) -> bool:
    """The process dies, and its journal lacks the last `lost` syncs: it has to join again, and send again."""
    if machine.ghost or not machine.commits:
        return False
    commit = machine.commits[max(len(machine.commits) - 1 - lost, 0)]
    established = machine.me in machine.running.established
    world.lose_if_last(machine)
    _end_process(world, machine)
    world.counts["torn"] += 1
    world.checker.rolled_back(machine.me, machine.commits[-1].position)
    world.ledger.torn(machine.name, commit.issued)
    if commit is not machine.commits[-1]:
        _may_repeat(world, commit.parked)
    machine.parked = None if machine.witness else Parked.of(commit.state, machine.me, commit.parked)
    before = () if established else machine.replaces
    machine.retire((machine.me, *before))
    return True


def back_up(world: BaseWorld, machine: Machine) -> bool:
    """Take a snapshot of this machine's disk."""
    if machine.ghost or not machine.commits:
        return False
    machine.backup = machine.commits[-1]
    return True


def set_back(world: BaseWorld, machine: Machine, which: int) -> bool:
    """The process dies, and continues as the same incarnation from an older state of its disk: a snapshot, or an
    earlier sync, if the disk has lied about later ones. It does not notice; other members may prove it.
    """
    older = [*machine.commits[:-1], *filter(None, [machine.backup])]
    if (
        machine.ghost
        or not 0 <= which < len(older)
        or not older[which].is_behind(machine.commits[-1])
    ):
        return False
    commit, last = older[which], machine.commits[-1]
    _end_process(world, machine)
    world.wires.lose(machine.name)  # links of its next process come later
    world.counts["set_back"] += 1
    world.checker.rolled_back(machine.me, last.position)
    world.checker.set_back(machine.me, commit.position)
    world.ledger.torn(machine.name, commit.issued)
    world.ledger.loose |= _only_at(world, machine, last.application.applied)
    _may_repeat(world, commit.parked)
    lost, before = LostVotes.between(commit, last), machine.lost_votes
    if before is not None:
        lost.until = max(lost.until, before.until)
    machine.lost_votes = lost
    for other in world.machines.values():
        copied = other.bulk
        if copied is not None and copied.vector.get(machine.me, 0) > commit.state.counter:
            other.bulk = None  # it copies again: its contact would not know all in that copy
    world.set_back.add(machine.me)
    machine.commits = [commit]
    if machine.backup is not commit:
        machine.backup = None
    machine.resumed(commit, world.engine_type)
    world.observer.started(machine)
    world.after(machine)
    return True


def _only_at(world: BaseWorld, machine: Machine, applied: Iterable[bytes]) -> set[bytes]:
    """The operations that no other machine has saved: they may be lost with this machine's disk."""
    saved: set[bytes] = set()
    for other in world.machines.values():
        if other is not machine:
            if other.commits:
                saved |= other.commits[-1].application.applied.keys()
            if other.parked is not None:
                saved |= {operation.payload for operation in other.parked.operations}
    return set(applied) - saved


def rolled_back(world: BaseWorld, machine: Machine) -> None:
    """Another member has proved that this disk was set back: the machine parks what it has, and must join again."""
    engine = machine.running
    world.ledger.synced(machine.name)
    if not machine.witness:
        machine.parked = Parked.of(engine.state(), machine.me, machine.parked)
    world.end_process(machine)
    before = () if machine.me in engine.established else machine.replaces
    machine.retire((machine.me, *before))
    world.counts["rolled_back"] += 1


def restore(world: BaseWorld, machine: Machine, which: int) -> bool:
    """The process dies, and its disk is replaced by a backup of a former incarnation: it joins again in its place.

    The backup does not know the incarnation that has just ended; the operator does, and names it.
    """
    if machine.ghost or machine.witness or not 0 <= which < len(machine.former):
        return False
    incarnation, saved = machine.former[which]
    latest, before = machine.me, machine.replaces
    world.lose_if_last(machine)
    _end_process(world, machine)
    world.counts["restored"] += 1
    last = machine.commits[-1].position if machine.commits else 0
    world.checker.rolled_back(latest, last)
    world.ledger.torn(machine.name, saved.issued)
    if any(incarnation in m.running.tombs for m in world.living()):
        _may_repeat(world, saved.parked)
        _may_repeat(world, Parked.of(saved.state, incarnation))
    machine.parked = Parked.of(saved.state, incarnation, saved.parked)
    machine.retire((incarnation, latest, *before))
    return True


def _may_repeat(world: BaseWorld, parked: Parked | None) -> None:
    """The journal may have lost that these operations were sent again, so they may be sent once more."""
    if parked is not None:
        world.ledger.repeatable.update(operation.payload for operation in parked.operations)


def die(world: BaseWorld, machine: Machine) -> bool:
    """The machine dies and does not come back by itself."""
    if machine.ghost:
        return False
    _end_process(world, machine)
    if machine.commits:
        world.checker.rolled_back(machine.me, machine.commits[-1].position)
    else:
        world.checker.rolled_back(machine.me, 0)
    machine.stop(MachinePhase.DEAD)
    machine.lost = True
    world.counts["deaths"] += 1
    return True


def revive(world: BaseWorld, machine: Machine) -> bool:
    """A dead machine comes back with its journal."""
    if machine.phase is not MachinePhase.DEAD:
        return False
    machine.lost = False
    if machine.commits:
        machine.resumed(machine.commits[-1], world.engine_type)
        world.observer.started(machine)
        world.after(machine)
        world.connect_all(machine.name)
    else:
        if machine.me in world.checker.members:
            world.checker.forget(machine.me)
        machine.phase = MachinePhase.OUTSIDE
    world.counts["revived"] += 1
    return True


def _end_process(world: BaseWorld, machine: Machine) -> None:
    world.end_process(machine)
    world.ledger.crashed(machine.name)


def reissue(world: BaseWorld, machine: Machine) -> bool:
    """One step: send one operation of a former incarnation again, settle that incarnation, or drop what is parked."""
    if machine.ghost or not machine.active or world.is_outdated(machine):
        return False
    parked = machine.parked
    if parked is None:
        return _settle_one(world, machine)
    engine = machine.running
    if not parked.is_decided(engine):
        return False
    again = world.to_send_again(machine, parked)
    if again:
        operation = again[0]
        if not world.may_send(machine, operation.payload):
            return False
        payload = world.instead_of(operation.payload)
        tag = engine.send(payload)
        world.sent(machine, tag, operation.dot)
        machine.parked = world.noted(parked, operation, tag.dot)
        world.deliver(machine, payload, tag)
        world.counts["reissued"] += 1
        return True
    if _settle_one(world, machine):
        return True
    if parked.may_be_dropped(engine):
        machine.parked = None
        return True
    return False


def _settle_one(world: BaseWorld, machine: Machine) -> bool:
    """Settle a former incarnation of this machine: the group has all of its operations, or it had none to save."""
    engine = machine.running
    for incarnation in sorted(engine.tombs):
        if name_of(incarnation) == machine.name:
            tag = engine.settle(incarnation)
            if machine.parked is not None:
                machine.parked = machine.parked.settled(incarnation, tag.dot)
            world.counts["settled"] += 1
            return True
    return False


def ghost(world: BaseWorld, machine: Machine, which: int) -> bool:
    """Start a copy of a process that ended long ago. Impossible while a machine may take it for a member."""
    if not 0 <= which < len(machine.former):
        return False
    incarnation, saved = machine.former[which]
    if not world.living() or _is_member_somewhere(world, incarnation):
        return False
    name = f"{name_of(incarnation)}~{which}"
    double = world.machines.get(name)
    if double is not None and double.up:
        return False
    double = world.machines[name] = Machine(name, ghost=True)
    said = {member.incarnation: member.reads for member in saved.state.members}
    double.reads = said.get(incarnation, machine.reads)
    try:
        engine = world.engine_type(incarnation, saved.state, double.reads)
    except OutdatedError:
        return False  # the new program refuses the old journal
    double.start(engine, double.application)
    world.counts["ghosts_started"] += 1
    world.connect_all(name)
    return True


def _is_member_somewhere(world: BaseWorld, incarnation: str) -> bool:
    """Whether a machine takes it for a member, or may do so again: after a crash, or with a state on its way."""
    machines = [m for m in world.machines.values() if not m.ghost]
    if any(m.up and m.running.fate(incarnation) is Fate.MEMBER for m in machines):
        return True
    if world.settling:  # no machine crashes any more
        return False
    saved = [(m.me, m.commits[-1].state) for m in machines if m.commits]
    sent = [content for m in machines for _, content in m.held]
    sent += [parcel.content for parcels in world.wires.flights.values() for parcel in parcels]
    given = [content.admission for content in sent if isinstance(content, Letter)]
    saved += [(admission.incarnation, admission.state) for admission in given]
    return any(
        Membership(me, state.vector, state).fate(incarnation) is Fate.MEMBER for me, state in saved
    )


def lay_to_rest(world: BaseWorld, double: Machine) -> None:
    """A ghost has learned that it has ended, and stops."""
    world.end_process(double)
    double.stop(MachinePhase.LEFT)
    world.counts["ghosts_told"] += 1
