"""Machines, network and oracle of one run of a simulated group, and what follows from each change."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import asdict
from typing import ClassVar

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag, Vector, covers
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import Fate
from crdtcast.engine.operations import How
from crdtcast.engine.reissue import Parked, ParkedOperation
from crdtcast.engine.views import NO_BALLOT
from crdtcast.exceptions import HandshakeError
from crdtcast.simulator.group.application import is_removal, with_meaning, without_meaning
from crdtcast.simulator.group.ledger import Formats, Ledger
from crdtcast.simulator.group.machine import Machine
from crdtcast.simulator.group.network import Wires
from crdtcast.simulator.group.observer import RunObserver
from crdtcast.simulator.group.whispers import WhisperLanes
from crdtcast.simulator.oracle import Checker, OracleSnapshot
from crdtcast.simulator.schedule import Action

_GAUGES = frozenset(
    {"sent", "delivered", "stable", "pending", "unstable", "store_bytes", "pending_bytes"}
)


class BaseWorld(ABC):
    """State of one run, and the steps that its actions share. `crashes`, `entry` and `upgrades` have the steps of one
    kind of action each; `GroupWorld` carries actions out.

    founders: names of the machines that found the group.
    witnesses: the founders that are witnesses.
    """

    may_end: ClassVar[bool] = True
    """Whether a group may end without a member that holds data."""
    all_honest: ClassVar[bool] = True
    """Whether no member lies, so that no member may blame another."""
    saves_to_the_end: ClassVar[bool] = False
    """Whether processes save while the group settles, since they may have to go back to their journal."""

    def __init__(
        self,
        founders: tuple[str, ...],
        witnesses: tuple[str, ...] = (),
        engine_type: type[GroupEngine] = GroupEngine,
        observer: RunObserver | None = None,
    ) -> None:
        self.observer: RunObserver = observer or RunObserver()
        self.founders = founders
        self.engine_type = engine_type
        self.machines: dict[str, Machine] = {
            name: Machine(name, name in witnesses) for name in founders
        }
        self.wires: Wires = Wires()
        self.lanes: WhisperLanes = WhisperLanes()
        self.ledger: Ledger = Ledger()
        self.formats: Formats = Formats()
        self.counts: Counter[str] = Counter()
        self.set_back: set[str] = set()
        """Incarnations that continued from an older state of their disk."""
        self.views: dict[int, str] = {}
        """The name of the view of each epoch."""
        self.settling = False
        """Whether the run is over and the group settles: see `crdtcast.simulator.group.drain`."""
        self.checker: Checker = Checker(())
        self.begin()

    def begin(self) -> None:
        """Start all founders, as members that know each other."""
        bases = {name: machine.new_base() for name, machine in self.machines.items()}
        voters = [bases[name] for name, machine in self.machines.items() if machine.witness]
        for name, machine in self.machines.items():
            engine = self.engine_type.found(bases[name], list(bases.values()), voters)
            machine.start(engine, machine.application)
            machine.save(0, 0)
            self.checker.joined_from(machine.me, OracleSnapshot())
            self.observer.started(machine)
            self.observer.synced(machine)
        for name in self.founders:
            self.connect_all(name)

    @abstractmethod
    def apply(self, action: Action) -> bool:
        """Carry out one action. Returns False, without any effect, if it is impossible. Raises Failure if something is
        wrong.
        """

    # What an application does

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """A machine's engine has sent a message.

        reissues: its first dot, if a former incarnation sent it before.
        """
        self.checker.sent(machine.me, tag.dot, tag)
        if reissues is not None:
            self.checker.reissued(reissues, tag.dot)
        self.observer.sent(machine, tag, reissues)

    def deliver(self, machine: Machine, payload: bytes, tag: Tag) -> None:
        """The application of a machine applies an operation."""
        application, dot = machine.application, tag.dot
        self.formats.check(machine, [payload])
        operation, meant = without_meaning(payload)
        if not application.apply(operation, dot) and operation not in self.ledger.repeatable:
            # This may happen to a member that the group has cut off and that does not know it yet; see `verdict`.
            was = application.applied[operation]
            machine.doubles.append(f"{operation.decode()} at {machine.me}: {was} and {dot}")
        if meant is not None:
            application.removed |= meant
        elif is_removal(operation):
            known, stable = machine.running.vector, machine.running.stable
            # All that is stable, and all of forgotten origins, is before everything that is delivered later.
            application.remove(
                lambda other: (
                    other.origin not in known
                    or covers(stable, other)
                    or (covers(tag.past, other) and other != dot)
                )
            )

    # What a runtime and an application do when a member joins or comes back

    def difference(self, host: Machine, vector: Vector) -> dict[bytes, Dot]:
        """What a joiner needs in addition to its earlier copy: from the state, not from stored messages."""
        return host.application.beyond(vector)

    def to_send_again(self, machine: Machine, parked: Parked) -> tuple[ParkedOperation, ...]:
        """The operations of a former incarnation that the group does not have."""
        return parked.uncovered(machine.running)

    def may_send(self, machine: Machine, payload: bytes) -> bool:
        """Whether the group's level allows an operation of a former incarnation to be sent again."""
        engine = machine.running
        return self.formats.level(payload) <= engine.level

    def may_copy(self, host: Machine, machine: Machine) -> bool:
        """Whether the program of a machine can read a copy from that host."""
        try:
            host.running.check_reader(machine.name, machine.reads)
        except HandshakeError:
            return False
        return True

    def noted(self, parked: Parked, operation: ParkedOperation, dot: Dot) -> Parked:
        """Note that an operation is sent again, before it leaves."""
        return parked.reissued(operation, dot)

    def instead_of(self, payload: bytes) -> bytes:
        """The payload that is sent again for an operation, with its old meaning: three-way comparison."""
        seen = self.ledger.seen.get(payload)
        return payload if seen is None else with_meaning(payload, seen)

    # What follows from an action

    def after(self, machine: Machine) -> None:
        """Tell the oracle what the engine has sent and which members it has ended; hold the outbox."""
        engine = machine.running
        if machine.parked is not None:
            machine.parked = machine.parked.meeting(engine)
        if not machine.ghost:
            self._note_votes(machine)
            for tag in engine.take_issued():
                self.sent(machine, tag)
            self.observer.changed(machine)
            for incarnation, cut in engine.ended.items():
                if machine.told_ended.get(incarnation) != cut.counter:
                    machine.told_ended[incarnation] = cut.counter
                    self.checker.ended(machine.me, incarnation, cut.counter)
                    self.counts["forced_cuts"] += cut.how is How.FORCED
        machine.hold(engine.take_outbox())

    def is_outdated(self, machine: Machine) -> bool:
        """Whether this machine's disk was set back, and a living member could prove it. Then its application sends and
        takes nothing, and no joiner asks it. Otherwise it would send other messages under dots that were used before,
        and what it acknowledges would be stable for others before what it has lost, which may still come.

        Only a member that it knows can prove that it has acknowledged more than it has: it must learn of others first.
        """
        if machine.me not in self.set_back:
            return False
        engine = machine.running
        me, vector = machine.me, engine.vector
        serial = engine.views_told().has[me]
        for other in (m.running for m in self.living() if m is not machine):
            if other.views_told().has.get(me, 0) > serial or other.vector.get(me, 0) > vector[me]:
                return True
            proof = other.proof_of_loss(me, vector)
            if isinstance(proof, Message) or (proof is not None and other.me in engine.members):
                return True
        return False

    def _note_votes(self, machine: Machine) -> None:
        """Note if a machine whose disk was set back votes in an epoch in which it had voted: this vote may differ."""
        lost = machine.lost_votes
        if lost is None or lost.voted:
            return
        own = next(r for r in machine.running.views_told().records if r.member == machine.me)
        if own.serial > lost.serial and own.promised != NO_BALLOT and own.epoch <= lost.until:
            lost.voted = True
            self.counts["voted_twice"] += 1

    @property
    def by_word(self) -> bool:
        """Whether an operator has overruled the majority of the members."""
        return any(self.counts[word] for word in ("forced", "replaced", "replaced_alive"))

    # Links and processes

    def connect(self, a: str, b: str) -> bool:
        """Connect their processes. Returns False if the network between them is down, or they are connected already."""
        first, second = self.machines[a], self.machines[b]
        if not (first.up and second.up and self.wires.open(a, b)) or first.me == second.me:
            return False
        if self.wires.connected(a, b):
            return False
        self.wires.connect(a, b)
        self.lanes.linked((a, first.number), (b, second.number))
        first.running.connected(second.me)
        self.after(first)
        second.running.connected(first.me)
        self.after(second)
        return True

    def connect_all(self, name: str) -> None:
        """A process has started, and dials all others."""
        for other in list(self.machines):
            if other != name:
                self.connect(name, other)

    def disconnect(self, a: str, b: str) -> bool:
        """Take their link down; both notice. Returns False if they had none."""
        if not self.wires.disconnect(a, b):
            return False
        self.lanes.unlinked(a, b)
        first, second = self.machines[a], self.machines[b]
        for machine, other in ((first, second), (second, first)):
            if machine.up:
                machine.running.disconnected(other.me)
        return True

    def disconnect_all(self, machine: Machine) -> None:
        """The process of a machine ends; packets on their way to it are lost."""
        for peer in self.wires.peers(machine.name):
            self.disconnect(machine.name, peer)
        self.wires.forget(machine.name)

    def end_process(self, machine: Machine, *, cleanly: bool = False) -> None:
        """The process of a machine is about to end: keep its counters, take its links down."""
        self.counts.update(_totals(machine.running))
        self.disconnect_all(machine)
        if not machine.ghost:
            self.observer.stopped(machine, cleanly=cleanly)

    def lose_if_last(self, machine: Machine) -> None:
        """This incarnation ends. If no other member of its group has saved a state, what it has applied may be lost:
        the remaining machines were cut off from that group.
        """
        fate = machine.running.fate
        others = (m for m in self.machines.values() if m is not machine and not m.ghost)
        if all(fate(m.me) is not Fate.MEMBER for m in others if m.commits):
            self.ledger.loose.update(machine.application.applied)

    # Looking in

    def living(self) -> list[Machine]:
        """Machines whose process runs and is not a ghost, in order of name."""
        return [m for _, m in sorted(self.machines.items()) if m.up and not m.ghost]

    def totals(self) -> Counter[str]:
        """The counters of the run and of all engines."""
        totals = Counter(self.counts)
        totals.update(self.lanes.counts)
        for machine in self.machines.values():
            if machine.engine is not None:
                totals.update(_totals(machine.engine))
        return totals


def _totals(engine: GroupEngine) -> dict[str, int]:
    counters = asdict(engine.counters())
    return {name: n for name, n in counters.items() if name not in _GAUGES}
