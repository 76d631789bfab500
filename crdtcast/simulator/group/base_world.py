"""Machines, network and oracle of one run of a simulated group: what there is, and what follows when it changes."""

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
from crdtcast.simulator.oracle import Checker, OracleSnapshot
from crdtcast.simulator.schedule import Action

_GAUGES = frozenset(
    {"sent", "delivered", "stable", "pending", "unstable", "store_bytes", "pending_bytes"}
)


class BaseWorld(ABC):
    """State of one run, and the steps that its actions share. `crashes`, `entry` and `upgrades` hold those of one kind
    of action each, and `GroupWorld` carries actions out.

    founders: names of the machines that found the group; those in `witnesses` as witnesses.
    """

    may_end: ClassVar[bool] = True
    """Whether a group may have no member in the end that holds data."""
    all_honest: ClassVar[bool] = True
    """Whether no member lies, so that nothing may be refused."""
    saves_to_the_end: ClassVar[bool] = False
    """Whether a process may have to go back to its journal while the group settles."""

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
        self.ledger: Ledger = Ledger()
        self.formats: Formats = Formats()
        self.counts: Counter[str] = Counter()
        self.set_back: set[str] = set()
        """Incarnations that have gone on from an older state of their disk."""
        self.views: dict[int, str] = {}
        """The name of the view of each epoch."""
        self.settling = False
        """Whether the run is over but for what follows from it: see `crdtcast.simulator.group.drain`."""
        self.checker: Checker = Checker(())
        self.begin()

    def begin(self) -> None:
        """All founders are members, and know each other."""
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
        """Carry out one action. False: it was impossible, and nothing has happened. Raises Failure."""

    # What an application does

    def sent(self, machine: Machine, tag: Tag, reissues: Dot | None = None) -> None:
        """A machine's engine has sent a message; `reissues` if it was sent before, by a former life."""
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
            # That may happen to one that the group has cut off, and that has not been told yet; see `verdict`.
            was = application.applied[operation]
            machine.doubles.append(f"{operation.decode()} at {machine.me}: {was} and {dot}")
        if meant is not None:
            application.removed |= meant
        elif is_removal(operation):
            known, stable = machine.running.vector, machine.running.stable
            # The forgotten, and all that is stable, is before whatever is delivered later.
            application.remove(
                lambda other: (
                    other.origin not in known
                    or covers(stable, other)
                    or (covers(tag.past, other) and other != dot)
                )
            )

    # What a runtime and an application do when a member joins or comes back

    def difference(self, host: Machine, vector: Vector) -> dict[bytes, Dot]:
        """What a joiner needs besides a copy that it has fetched before: from the state, not from what is stored."""
        return host.application.beyond(vector)

    def to_send_again(self, machine: Machine, parked: Parked) -> tuple[ParkedOperation, ...]:
        """Of what a former life has sent, that which the group does not have."""
        return parked.uncovered(machine.running)

    def may_send(self, machine: Machine, payload: bytes) -> bool:
        """Whether the level that an operation of a former life was sent in may be used by now."""
        engine = machine.running
        return self.formats.level(payload) <= engine.level

    def may_copy(self, host: Machine, machine: Machine) -> bool:
        """Whether the program of a machine reads what that host would give it."""
        try:
            host.running.check_reader(machine.name, machine.reads)
        except HandshakeError:
            return False
        return True

    def noted(self, parked: Parked, operation: ParkedOperation, dot: Dot) -> Parked:
        """An operation goes out again, which is noted before it leaves."""
        return parked.reissued(operation, dot)

    def instead_of(self, payload: bytes) -> bytes:
        """What is sent again in the place of an operation so that it means what it meant: three-way comparison."""
        seen = self.ledger.seen.get(payload)
        return payload if seen is None else with_meaning(payload, seen)

    # What follows from an action

    def after(self, machine: Machine) -> None:
        """Tell the oracle what the engine has sent and whom it has ended; hold what is to leave."""
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
        """Whether its disk was set back, and somebody who lives could prove it. Its application writes and takes
        nothing then, and nobody asks it to be let in: what it would send has been sent already, and was something else;
        what it would acknowledge would be stable for others before what it has lost, which may still come.

        That it has told more of others' messages, only one whom it knows can prove: it has to take those first.
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
        """Whether one whose disk was set back has voted again where it had voted before: it may have done otherwise."""
        lost = machine.lost_votes
        if lost is None or lost.voted:
            return
        own = next(r for r in machine.running.views_told().records if r.member == machine.me)
        if own.serial > lost.serial and own.promised != NO_BALLOT and own.epoch <= lost.until:
            lost.voted = True
            self.counts["voted_twice"] += 1

    @property
    def by_word(self) -> bool:
        """Whether an operator has overruled the members' majority."""
        return any(self.counts[word] for word in ("forced", "replaced", "replaced_alive"))

    # Links and processes

    def connect(self, a: str, b: str) -> bool:
        """Their processes connect, if the network between them works. False: they do not, or have already."""
        first, second = self.machines[a], self.machines[b]
        if not (first.up and second.up and self.wires.open(a, b)) or first.me == second.me:
            return False
        if self.wires.connected(a, b):
            return False
        self.wires.connect(a, b)
        first.running.connected(second.me)
        self.after(first)
        second.running.connected(first.me)
        self.after(second)
        return True

    def connect_all(self, name: str) -> None:
        """A process has started, and dials everybody."""
        for other in list(self.machines):
            if other != name:
                self.connect(name, other)

    def disconnect(self, a: str, b: str) -> bool:
        """Their link is gone, and both notice. False: there was none."""
        if not self.wires.disconnect(a, b):
            return False
        first, second = self.machines[a], self.machines[b]
        for machine, other in ((first, second), (second, first)):
            if machine.up:
                machine.running.disconnected(other.me)
        return True

    def disconnect_all(self, machine: Machine) -> None:
        """The process of a machine goes; what was on its way to it is lost."""
        for peer in self.wires.peers(machine.name):
            self.disconnect(machine.name, peer)
        self.wires.forget(machine.name)

    def end_process(self, machine: Machine, *, cleanly: bool = False) -> None:
        """The process of a machine is about to be gone: its counters are kept, its links go down."""
        self.counts.update(_totals(machine.running))
        self.disconnect_all(machine)
        if not machine.ghost:
            self.observer.stopped(machine, cleanly=cleanly)

    def lose_if_last(self, machine: Machine) -> None:
        """This process ends for good. If no other member of its group has saved a state, it is gone: who goes on
        was cut off from that group.
        """
        fate = machine.running.fate
        others = (m for m in self.machines.values() if m is not machine and not m.ghost)
        if all(fate(m.me) is not Fate.MEMBER for m in others if m.commits):
            self.ledger.loose.update(machine.application.applied)

    # Looking in

    def living(self) -> list[Machine]:
        """Machines whose process is up and no ghost, in order of name."""
        return [m for _, m in sorted(self.machines.items()) if m.up and not m.ghost]

    def totals(self) -> Counter[str]:
        """What happened in the run, the counters of all engines included."""
        totals = Counter(self.counts)
        for machine in self.machines.values():
            if machine.engine is not None:
                totals.update(_totals(machine.engine))
        return totals


def _totals(engine: GroupEngine) -> dict[str, int]:
    counters = asdict(engine.counters())
    return {name: n for name, n in counters.items() if name not in _GAUGES}
