"""A simulated group whose members come and go: `apply` carries out one action, the oracle watches.

Actions (machines by name; a new name is a machine outside of the group):
    send X       X's application broadcasts            poll X       … takes one delivery      stable X  … all notices
    tick X       X's timer                             sync X       X's journal; what was held leaves
    net S D n    packet n in flight from S to D arrives             dup S D n  … and stays     drop S D n  is lost
    link A B     the network between them works, and they connect   cut A B    it fails, and both notice
    mute A B     what A sends to B is lost, and neither notices
    crash X      X continues from its last sync        torn X n     n syncs are lost too: X must join again
    die X        X dies                                revive X     … and comes back
    restore X n  X's disk is a backup of its n-th former life: it must join again
    backup X     a snapshot of X's disk is taken
    setback X n  X continues from an older state of its disk as the same incarnation, and does not notice
    copy N C     N fetches a copy of C's application   join N C     N asks C to let it in (again, or elsewhere)
    replace N X C   … by an operator's command: N replaces X
    leave X      evict E X    force E X                E's operator evicts X (a machine, or an incarnation)
    withdraw E                                         … and withdraws all that is not decided yet
    surrender X  X's operator gives its side up        reissue X    X sends one operation of its former life again
    ghost X n    a copy of X's n-th former process starts, long after
    upgrade X n  X gets the program that reads the format levels up to n, an older or a later one
    whisper X n  X whispers on topic n
    hear S D n   whisper n in flight from S to D arrives            rehear S D n … and stays  mishear S D n  is lost
    raise X      X's operator raises the group's format level to the highest that all members read
    calm n       for n rounds everything works, and the operator lets in machines that are outside

A group that its machines found first has more actions: see `crdtcast.simulator.founding`.
"""

from collections.abc import Callable

from crdtcast.causality.messages import Ended
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import Standing
from crdtcast.engine.operations import OperationKind
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
)
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.drain import Drain
from crdtcast.simulator.group.machine import Letter, Machine, MachinePhase
from crdtcast.simulator.group.network import Parcel
from crdtcast.simulator.schedule import Action


class GroupWorld(BaseWorld):
    """One run, by actions."""

    def new_drain(self) -> Drain:
        """What lets this group settle."""
        return Drain(self)

    # Actions

    def apply(self, action: Action) -> bool:
        """Carry out one action. Returns False, without any effect, if it is impossible. Raises Failure if something is
        wrong.
        """
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
            self.new_drain().calm(int(arguments[0]))
            return True
        words = [str(argument) for argument in arguments]
        if verb in ("net", "dup", "drop"):
            return self._packet(verb, words[0], words[1], int(arguments[2]))
        if verb in ("hear", "rehear", "mishear"):
            return self.lanes.carry(verb, words[0], words[1], int(arguments[2]))
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
        if verb == "whisper":
            return self.lanes.whisper(machine.name, machine.number, int(arguments[1]))
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
                self.lanes.tick(machine.name)
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
        if delivery.kind == OperationKind.APPLICATION and not machine.witness:
            self.deliver(machine, delivery.payload, delivery.tag)
        return True

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
        machine.phase = MachinePhase.LEFT
        self.counts["left"] += 1

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
            return False  # no operator evicts the last one that holds data
        given_up = self._given_up_by(machine) if force else set()
        done = self._asks(lambda: engine.evict(incarnation, force=force))
        if done:
            self.ledger.loose |= given_up
        self.counts["forced" if force else "evict_asked"] += done
        return done

    def _given_up_by(self, machine: Machine) -> set[bytes]:
        """What is lost if an operator makes the side of this machine the group by force: operations of members that
        have left, which this side lacks. They had passed them on to members that no member was about to evict.
        """
        living, mine = self.living(), machine.application.applied
        victims = set().union(*(m.running.victims for m in living))
        sound = [m.application.applied for m in living if m.active and m.me not in victims]
        sends_again = {m.me for m in self.machines.values() if m.phase is not MachinePhase.LEFT}
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
        """Whether the engine does what an operator asks for; it may refuse."""
        try:
            ask()
        except LocalProtocolError:
            self.counts["refused"] += 1
            return False
        return True

    def _one_view(self, engine: GroupEngine) -> None:
        """An epoch has one view at all members that save theirs; only an operator's override may lead to two."""
        view = engine.view
        known = self.views.setdefault(view.epoch, view.name)
        if known != view.name and not self.by_word and not self.counts["voted_twice"]:
            raise Failure(
                "two-views", f"{engine.me} is in another view of epoch {view.epoch} than others"
            )

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
                    # The link closes after this frame. The peer may dial again, and gets the frame again.
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
                if machine.ghost:  # a copy, older than what others have of it
                    crashes.lay_to_rest(self, machine)
                elif machine.me in self.set_back:
                    crashes.rolled_back(self, machine)
                else:
                    raise
                return True
            except RemoteProtocolError:
                if parcel.sender not in self.set_back:
                    raise
                # The sender has lost what it had sent, and does not know it yet. The link closes; it dials again.
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


_OF_ONE = frozenset({"poll", "stable", "tick", "sync", "send", "reissue"})
