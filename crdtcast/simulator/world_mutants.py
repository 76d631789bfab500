"""Groups whose runtimes break one rule around the engine each. A campaign that does not catch them is too weak."""

from dataclasses import replace

from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.operations import Kind
from crdtcast.engine.reissue import Parked, ParkedOperation
from crdtcast.simulator.group_world import GroupWorld
from crdtcast.simulator.member import Machine


class SendsUnsynced(GroupWorld):
    """Write-ahead: nothing leaves before the state that knows of it is saved."""

    def after(self, machine: Machine) -> None:
        super().after(machine)
        released, machine.held = machine.held, []
        for to, content in released:
            self._transmit(machine, to, content)


class DifferenceOfStore(GroupWorld):
    """What a joiner's copy lacks is taken from the state: what is stable is in no store of messages any more."""

    def difference(self, host: Machine, vector: Vector) -> dict[bytes, Dot]:
        stored = {
            message.dot
            for message in host.running.state().unstable
            if message.kind == Kind.APPLICATION
        }
        beyond = super().difference(host, vector)
        return {payload: dot for payload, dot in beyond.items() if dot in stored}


class SendsAllAgain(GroupWorld):
    """What the group has of a former life's operations is not sent again."""

    def to_send_again(self, machine: Machine, parked: Parked) -> tuple[ParkedOperation, ...]:
        return tuple(o for o in parked.operations if o.dot not in parked.copies)


class NotesUnsaved(GroupWorld):
    """What goes out again is noted durably, with its new dot, before it leaves: so a crash sends nothing twice."""

    def _sync(self, machine: Machine) -> bool:
        parked = machine.parked
        if parked is not None:
            machine.parked = replace(parked, copies={})
        done = super()._sync(machine)
        machine.parked = parked
        return done


class SendsTheSameAgain(GroupWorld):
    """Three-way comparison: a removal that is sent again means what it meant, not what has been written since."""

    def instead_of(self, payload: bytes) -> bytes:
        return payload


class CopiesToAny(GroupWorld):
    """Only who can read it gets a copy, even before it asks to be let in."""

    def may_copy(self, host: Machine, machine: Machine) -> bool:
        return True


WORLD_MUTANTS: dict[str, type[GroupWorld]] = {
    "sends-unsynced": SendsUnsynced,
    "difference-of-store": DifferenceOfStore,
    "sends-all-again": SendsAllAgain,
    "notes-unsaved": NotesUnsaved,
    "sends-the-same-again": SendsTheSameAgain,
    "copies-to-any": CopiesToAny,
}
