"""A simulated group whose members come and go: `apply` carries out one action, the oracle watches.

Actions (machines by name; a name that is new is a machine outside of the group):
    send X       X's application broadcasts            poll X       … takes one delivery      stable X  … all notices
    tick X       X's timer                             sync X       X's journal; what was held leaves
    net S D n    packet n in flight from S to D arrives             dup S D n  … and stays     drop S D n  is lost
    link A B     the network between them works, and they connect   cut A B    it fails, and both notice
    mute A B     what A sends to B is lost, and nobody notices
    crash X      X goes on from its last sync          torn X n     n syncs are lost too: X must join again
    die X        X is gone for good                    revive X     … or not
    restore X n  X's disk is a backup of its n-th former life: it must join again
    backup X     a snapshot of X's disk is taken
    setback X n  X goes on from an older state of its disk as the same incarnation: nobody tells it
    copy N C     N fetches a copy of C's application   join N C     N asks C to let it in (again, or elsewhere)
    replace N X C   … as the operator's word: N replaces X
    leave X      evict E X    force E X                E's operator evicts X (a machine, or an incarnation)
    withdraw E                                         … and takes back all that is not done yet
    surrender X  X's operator gives its side up        reissue X    X sends one operation of its former life again
    ghost X n    a copy of X's n-th former process is started, long after
    upgrade X n  X gets the program that reads the format levels up to n, an older or a later one
    raise X      X's operator raises the group's format level as far as all members have said to read
    calm n       for n rounds everything works, and the operator lets those in who are outside

A group that its machines found first has more: see `crdtcast.simulator.group.founding`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import ClassVar

from crdtcast.causality.messages import Ended
from crdtcast.causality.tags import Dot, Tag, Vector, covers
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import Fate, Standing
from crdtcast.engine.operations import How, Kind
from crdtcast.engine.reissue import Parked, ParkedOperation
from crdtcast.engine.views import NO_BALLOT
from crdtcast.exceptions import (
    CrdtcastError,
    LocalProtocolError,
    RemoteProtocolError,
    RolledBackError,
)
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes, entry, upgrades
from crdtcast.simulator.group.application import (
    is_removal,
    operation_name,
    with_meaning,
    without_meaning,
)
from crdtcast.simulator.group.drain import Drain
from crdtcast.simulator.group.ledger import Ledger
from crdtcast.simulator.group.machine import Letter, Machine, Phase
from crdtcast.simulator.group.network import Parcel, Wires
from crdtcast.simulator.group.observer import Observer
from crdtcast.simulator.group.upgrades import Formats
from crdtcast.simulator.oracle import Checker, Snapshot
from crdtcast.simulator.schedule import Action


class GroupWorld:
    """Machines, network and oracle of one run.

    founders: names of the machines that found the group; those in `witnesses` as witnesses.
    """

    drain_type: ClassVar[type[Drain]] = Drain
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
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer or Observer()
        self.founders = founders
        self.engine_type = engine_type
        self.machines = {name: Machine(name, name in witnesses) for name in founders}
        self.wires = Wires()
        self.ledger = Ledger()
        self.formats = Formats()
        self.counts: Counter[str] = Counter()
        self.set_back: set[str] = set()
        """Incarnations that have gone on from an older state of their disk."""
        self.views: dict[int, str] = {}
        """The name of the view of each epoch."""
        self.settling = False
        """Whether the run is over but for what follows from it: see `crdtcast.simulator.group.drain`."""
        self.checker = Checker(())
        self.begin()

    def begin(self) -> None:
        """All founders are members, and know each other."""
        bases = {name: machine.new_base() for name, machine in self.machines.items()}
        voters = [bases[name] for name, machine in self.machines.items() if machine.witness]
        for name, machine in self.machines.items():
            engine = self.engine_type.found(bases[name], list(bases.values()), voters)
            machine.start(engine, machine.application)
            machine.save(0, 0)
            self.checker.joined_from(machine.me, Snapshot())
            self.observer.started(machine)
            self.observer.synced(machine)
        for name in self.founders:
            self.connect_all(name)

    # Actions

    def apply(self, action: Action) -> bool:
        """Carry out one action. False: it was impossible, and nothing has happened. Raises Failure."""
        try:
            done = self._do(str(action[0]), action[1:])
        except Failure:
            raise
        except CrdtcastError as error:
            raise Failure(type(error).__name__, f"{action}: {error}") from error
        except Exception as error:
            raise Failure(type(error).__name__, f"{action}: {error!r}") from error
        if self.checker.findings:
            finding = self.checker.findings[0]
            raise Failure(finding.kind.value, str(finding))
        return done

    def _do(self, verb: str, arguments: tuple[str | int, ...]) -> bool:
        if verb in _OF_ONE:
            machine = self.machines.get(str(arguments[0]))
            if machine is None or not machine.up or not self._own(verb, machine, ""):
                return False
            if machine.up:
                self.after(machine)
            return True
        if verb == "calm":
            self.drain_type(self).calm(int(arguments[0]))
            return True
        words = [str(argument) for argument in arguments]
        if verb in ("net", "dup", "drop"):
            return self._packet(verb, words[0], words[1], int(arguments[2]))
        if verb in ("link", "cut", "mute"):
            return self._wire(verb, words[0], words[1])
        if verb == "join":
            return entry.join(self, words[0], words[1])
        if verb == "copy":
            return entry.copy(self, words[0], words[1])
        if verb == "replace":
            return entry.replace(self, *words)
        if verb == "upgrade":
            return upgrades.upgrade(self, words[0], int(arguments[1]))
        machine = self.machines.get(words[0])
        if machine is None:
            return False
        if verb == "ghost":
            return crashes.ghost(self, machine, int(arguments[1]))
        if verb == "revive":
            return crashes.revive(self, machine)
        if not machine.up:
            return False
        if verb == "crash":
            return crashes.crash(self, machine)
        if verb == "torn":
            return crashes.torn(self, machine, int(arguments[1]))
        if verb == "restore":
            return crashes.restore(self, machine, int(arguments[1]))
        if verb == "backup":
            return crashes.back_up(self, machine)
        if verb == "setback":
            return crashes.set_back(self, machine, int(arguments[1]))
        if verb == "die":
            return crashes.die(self, machine)
        done = self._own(verb, machine, words[1] if len(words) > 1 else "")
        if done and machine.up:
            self.after(machine)
        return done

    def _own(self, verb: str, machine: Machine, victim: str) -> bool:
        engine = machine.running
        match verb:
            case "poll":
                return self._poll(machine)
            case "stable":
                return self._stable(machine)
            case "tick":
                engine.tick()
                return True
            case "sync":
                return self._sync(machine)
            case "send":
                return self._send(machine)
            case "reissue":
                return crashes.reissue(self, machine)
            case "leave":
                if not machine.active or machine.ghost or machine.parked is not None:
                    return False
                return self._asks(engine.leave)
            case "raise":
                return upgrades.raise_level(self, machine)
            case "withdraw":
                if not machine.active or not engine.wants.victims:
                    return False
                engine.withdraw()
                self.counts["withdrawn"] += 1
                return True
            case "evict" | "force":
                return self._evict(machine, victim, force=verb == "force")
            case "surrender":
                if engine.standing not in (Standing.DISPUTED, Standing.SPLIT):
                    return False
                engine.surrender()
                return True
        raise ValueError(f"unknown action {verb!r}")

    def _send(self, machine: Machine) -> bool:
        if not machine.active or machine.ghost or machine.witness or self.is_outdated(machine):
            return False
        payload = operation_name(self.counts["sent"], machine.name)
        if is_removal(payload):
            self.ledger.seen[payload] = frozenset(machine.application.applied)
        level = machine.running.level
        upgrades.check_use(self, machine, level)
        self.formats.sent(payload, level)
        tag = machine.running.send(payload)
        self.counts["sent"] += 1
        self.sent(machine, tag)
        self.ledger.issue(machine.name, payload)
        self.deliver(machine, payload, tag)
        return True

    def _poll(self, machine: Machine) -> bool:
        if self.is_outdated(machine):
            return False
        delivery = machine.running.poll()
        if delivery is None:
            return False
        dot = delivery.tag.dot
        self.counts["delivered"] += 1
        if machine.ghost:
            return True
        self.checker.delivered(machine.me, dot, delivery.tag)
        self.observer.delivered(machine, delivery)
        if delivery.kind == Kind.APPLICATION and not machine.witness:
            self.deliver(machine, delivery.payload, delivery.tag)
        return True

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
        return upgrades.may_copy(host, machine)

    def noted(self, parked: Parked, operation: ParkedOperation, dot: Dot) -> Parked:
        """An operation goes out again, which is noted before it leaves."""
        return parked.reissued(operation, dot)

    def instead_of(self, payload: bytes) -> bytes:
        """What is sent again in the place of an operation so that it means what it meant: three-way comparison."""
        seen = self.ledger.seen.get(payload)
        return payload if seen is None else with_meaning(payload, seen)

    def _stable(self, machine: Machine) -> bool:
        tags = machine.running.poll_stable()
        self.counts["stable"] += len(tags)
        if not machine.ghost:
            members = machine.running.members.keys() - self.set_back
            for tag in tags:
                self.checker.stable(machine.me, tag.dot, members)
                self.observer.stable(machine, tag)
        return bool(tags)

    def _sync(self, machine: Machine) -> bool:
        if not machine.ghost:
            self._one_view(machine.running)
            issued = self.ledger.synced(machine.name)
            if self.saves_to_the_end or not (self.settling and machine.commits):
                machine.save(self.checker.position(machine.me), issued)
            self.observer.synced(machine)
        machine.hold(machine.running.take_outbox())
        released, machine.held = machine.held, []
        for to, content in released:
            self._transmit(machine, to, content)
        if machine.ghost:
            if machine.running.standing in (Standing.LEFT, Standing.EVICTED):
                crashes.lay_to_rest(self, machine)
        elif machine.running.standing is Standing.LEFT:
            self._has_left(machine)
        return True

    def _has_left(self, machine: Machine) -> None:
        self.lose_if_last(machine)
        self.end_process(machine, cleanly=True)
        machine.retire(())
        machine.phase = Phase.LEFT
        self.counts["left"] += 1

    def lose_if_last(self, machine: Machine) -> None:
        """This process ends for good. If no other member of its group has saved a state, it is gone: who goes on
        was cut off from that group.
        """
        fate = machine.running.fate
        others = (m for m in self.machines.values() if m is not machine and not m.ghost)
        if all(fate(m.me) is not Fate.MEMBER for m in others if m.commits):
            self.ledger.loose.update(machine.application.applied)

    def _evict(self, machine: Machine, victim: str, *, force: bool) -> bool:
        target = self.machines.get(victim)
        incarnation = victim if target is None else target.me
        engine = machine.running
        if not machine.active or machine.ghost or incarnation not in engine.evictable:
            return False
        if incarnation == machine.me or (incarnation in engine.victims and not force):
            return False
        holders = [m for m in engine.members.values() if not m.witness]
        if not force and all(m.incarnation in {incarnation, *engine.victims} for m in holders):
            return False  # no operator takes the last one that holds data
        given_up = self._given_up_by(machine) if force else set()
        done = self._asks(lambda: engine.evict(incarnation, force=force))
        if done:
            self.ledger.loose |= given_up
        self.counts["forced" if force else "evict_asked"] += done
        return done

    def _given_up_by(self, machine: Machine) -> set[bytes]:
        """What is lost if by an operator's word the side of this machine is the group: what it lacks of those who have
        left, though they had left that in good hands, with members that nobody was about to evict.
        """
        living, mine = self.living(), machine.application.applied
        victims = set().union(*(m.running.victims for m in living))
        sound = [m.application.applied for m in living if m.active and m.me not in victims]
        sends_again = {m.me for m in self.machines.values() if m.phase is not Phase.LEFT}
        parked = {
            o.payload for m in self.machines.values() if m.parked for o in m.parked.operations
        }
        return {
            payload
            for applied in sound
            for payload, dot in applied.items()
            if payload not in mine and payload not in parked and dot.origin not in sends_again
        }

    def _asks(self, ask: Callable[[], object]) -> bool:
        """Whether the engine does what an operator asks for, which it may refuse."""
        try:
            ask()
        except LocalProtocolError:
            self.counts["refused"] += 1
            return False
        return True

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

    def _one_view(self, engine: GroupEngine) -> None:
        """An epoch has one view for all who save theirs; only an operator's word may make two of it."""
        view = engine.view
        known = self.views.setdefault(view.epoch, view.name)
        if known != view.name and not self.by_word and not self.counts["voted_twice"]:
            raise Failure(
                "two-views", f"{engine.me} is in another view of epoch {view.epoch} than others"
            )

    def is_outdated(self, machine: Machine) -> bool:
        """Whether its disk was set back, and somebody who lives could prove it. Its application writes and takes
        nothing then, and nobody asks it to be let in: what it would send has been sent already, and was something else;
        what it would acknowledge would be stable for others before what it has lost, which may still come.
        """
        if machine.me not in self.set_back:
            return False
        engine = machine.running
        serial = engine.views_told().has[machine.me]
        others = [m.running for m in self.living() if m is not machine]
        return any(
            other.views_told().has.get(machine.me, 0) > serial
            or other.proof_of_loss(machine.me, engine.vector) is not None
            for other in others
        )

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

    def _transmit(self, machine: Machine, to: str | None, content: object) -> None:
        if isinstance(content, Letter):
            assert to is not None
            receiver = self.machines[to]
            self.wires.post(machine.name, to, Parcel(machine.me, receiver.number, content))
            return
        for name in self.wires.peers(machine.name):
            receiver = self.machines[name]
            if to in (None, receiver.me):
                parcel = Parcel(machine.me, receiver.number, content)
                self.counts["muted"] += not self.wires.post(machine.name, name, parcel)
                if isinstance(content, Ended):
                    # It is told, and then the link is closed; it may dial again, and is told again.
                    self.disconnect(machine.name, name)

    def _packet(self, verb: str, sender: str, receiver: str, place: int) -> bool:
        parcel = self.wires.take(sender, receiver, place, keep=verb == "dup")
        if parcel is None:
            return False
        if verb != "net":
            self.counts["dropped" if verb == "drop" else "doubled"] += 1
        elif place:
            self.counts["reordered"] += 1
        machine = self.machines[receiver]
        if verb == "drop" or parcel.process != machine.number:
            return True
        if isinstance(parcel.content, Letter):
            entry.install(self, machine, parcel.content)
        elif machine.up:
            try:
                machine.running.receive(parcel.sender, parcel.content)
            except RolledBackError:
                if machine.ghost:  # a copy that is older than what others have
                    crashes.lay_to_rest(self, machine)
                elif machine.me in self.set_back:
                    crashes.rolled_back(self, machine)
                else:
                    raise
                return True
            except RemoteProtocolError:
                if parcel.sender not in self.set_back:
                    raise
                # It has lost what it had said, and does not know it yet. The link is closed; it dials again.
                self.disconnect(sender, receiver)
                return True
            self.after(machine)
        return True

    # Links

    def _wire(self, verb: str, a: str, b: str) -> bool:
        if a == b or a not in self.machines or b not in self.machines:
            return False
        if verb == "mute":
            done = self.wires.block(a, b)
            self.counts["mutes"] += done
        elif verb == "cut":
            there, back = self.wires.block(a, b), self.wires.block(b, a)
            done = self.disconnect(a, b) or there or back
            self.counts["cuts"] += done
        else:
            done = self.wires.unblock(a, b)
            done = self.connect(a, b) or done
            self.counts["links"] += done
        return done

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


_OF_ONE = frozenset({"poll", "stable", "tick", "sync", "send", "reissue"})

GAUGES = frozenset(
    {"sent", "delivered", "stable", "pending", "unstable", "store_bytes", "pending_bytes"}
)


def _totals(engine: GroupEngine) -> dict[str, int]:
    counters = asdict(engine.counters())
    return {name: n for name, n in counters.items() if name not in GAUGES}
