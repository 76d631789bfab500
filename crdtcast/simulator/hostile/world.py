"""A simulated group with one hostile member: its frames to the others are mutated, and the others are judged.

Its process is a real engine that takes part, so that it knows enough to lie. Its additional frames come from
`crdtcast.simulator.hostile.mutation`. Actions, in addition to those of `crdtcast.simulator.group.world`:

    issue X n        X sends a message to all, with a mutated operation, payload or context
    frame X Y n      X sends an invented frame to Y: of views, a digest, an end, a stranger's message, a join request, …
    twist X Y p n    packet p in flight from X to Y is mutated if it is a digest or of views; else it is sent twice, or
                     seldom gets another payload
    flood X Y n      X sends very many frames to Y
    letter X n       X lets in a joiner, and lies to it: the joiner may fail only by a refusal

n is the seed of the mutation. Judged: every error blames the sender, no call is endless, nothing grows without bound,
and the honest members are judged as in any other run. A run is *void*, and judged only for crashes, hangs and memory,
if one of these happens:

- honest members got different payloads under one dot of the hostile member;
- an honest member got a message, a record or a decision in another member's name;
- the hostile member makes all honest members believe that they have ended or were set back;
- it has all of them evicted, which any member may ask for.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from crdtcast.causality.member_id import joined_id
from crdtcast.causality.messages import Digest, Ended, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import MemberInfo, Standing
from crdtcast.engine.operations import Join, decode
from crdtcast.engine.views import Record, Views
from crdtcast.exceptions import (
    ConfigurationError,
    CrdtcastError,
    LocalProtocolError,
    OutdatedError,
    RemoteProtocolError,
    RolledBackError,
)
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes
from crdtcast.simulator.group.machine import Machine, MachinePhase
from crdtcast.simulator.group.network import Parcel
from crdtcast.simulator.group.observer import RunObserver
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.hostile.drain import HostileDrain
from crdtcast.simulator.hostile.engine_size import MOST_HELD, elements
from crdtcast.simulator.hostile.honest_oracle import HonestChecker
from crdtcast.simulator.hostile.lying_engine import LyingEngine
from crdtcast.simulator.hostile.mutation import Lore, Mutation
from crdtcast.simulator.hostile.step_limit import limited
from crdtcast.simulator.oracle import FailureKind as Wrong
from crdtcast.simulator.schedule import Action
from crdtcast.wire import frames
from crdtcast.wire.group_frames import Admit, Grouped
from crdtcast.wire.state import JoinerEntry, pack_entry, unpack_entry

VERBS = frozenset({"issue", "frame", "twist", "flood", "letter"})

STRANGER = "stranger.00000000000010000"
FLOOD = 2 * Inbox.most_bytes // 2**20
"""Number of messages of 1 MiB: twice of what a member keeps."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """The body of a frame that a hostile member sends."""

    body: bytes


class HostileWorld(GroupWorld):
    """A group with one hostile founder.

    engine_type: the class of the honest members' engines.
    """

    may_end = False
    all_honest = False
    saves_to_the_end = True

    def __init__(
        self,
        founders: tuple[str, ...],
        hostile: str,
        engine_type: type[GroupEngine] = GroupEngine,
        observer: RunObserver | None = None,
    ) -> None:
        super().__init__(founders, (), engine_type, observer)
        self.hostile = hostile
        self.void: bool = False
        """Whether the run is void: see the head of this file."""
        self._heard: dict[Dot, Message] = {}  # the first variant of each of the liar's messages
        self._told_of_end: set[str] = set()
        """Incarnations that were notified of their end."""
        # Machine -> its last process that was started from a journal.
        self._from_journal: dict[str, int] = {}
        liar = self.liar
        self.observer.stopped(liar, cleanly=True)
        liar.ghost = True  # it is not judged, and no joiner asks it
        self.checker: HonestChecker = HonestChecker(m.me for m in self.living())
        self.disconnect_all(liar)
        bases = [m.me for m in self.machines.values()]
        liar.start(LyingEngine.found(liar.me, bases), liar.application)
        self.connect_all(hostile)

    @property
    def liar(self) -> Machine:
        """The hostile machine."""
        return self.machines[self.hostile]

    def is_honest(self, incarnation: str) -> bool:
        """Whether this incarnation is, or was, that of an honest machine."""
        return incarnation in self.checker.members

    def new_drain(self) -> HostileDrain:
        """See `GroupWorld`."""
        return HostileDrain(self, self.liar, self.of_the_liar)

    # Actions

    def apply(self, action: Action) -> bool:
        """See `GroupWorld`. In a void run only failures that nothing excuses count."""
        if self.void:
            self.checker.findings.clear()
        try:
            return super().apply(action)
        except Failure as failure:
            if self.excuses(failure):
                self.checker.findings.clear()
                return True
            raise

    def excuses(self, failure: Failure) -> bool:
        """Whether a failure may follow from a lie that no check can detect."""
        if failure.kind == "all-ended":
            believed = self.counts["believed_ends"] or self.counts["rolled_back"]
            if believed or self._all_are_put_out():
                self.become_void()
        return self.void and failure.kind in _OF_THE_ORACLE

    def _all_are_put_out(self) -> bool:
        """Whether a decision has removed all honest members that hold data."""
        honest = [m for m in self.living() if not m.witness]
        return bool(honest) and all(m.me in m.running.cut_short() for m in honest)

    def _do(self, verb: str, arguments: tuple[str | int, ...]) -> bool:
        if verb in VERBS:
            return self._lie(verb, arguments)
        if arguments and arguments[0] == self.hostile and verb not in ("net", "dup", "drop"):
            return self.of_the_liar(lambda: super(HostileWorld, self)._do(verb, arguments))
        if verb == "calm":  # many actions
            return super()._do(verb, arguments)
        with limited(f"{verb} {arguments}", self.engine_type):
            done = super()._do(verb, arguments)
        if done and verb in ("crash", "revive"):
            machine = self.machines[str(arguments[0])]
            self._from_journal[machine.name] = machine.number
        return done

    def of_the_liar(self, act: Callable[[], object]) -> bool:
        """Run what happens in the liar's process, and tolerate errors there. Returns False if it was impossible."""
        try:
            return act() is not False
        except Failure:
            raise
        except Exception:
            if self.liar.up:
                self.disconnect_all(self.liar)
                self.liar.stop(MachinePhase.LEFT)
                self.counts["liar_failed"] += 1
            return True

    def _send(self, machine: Machine) -> bool:
        if machine is not self.liar:
            return super()._send(machine)
        if not machine.active:
            return False
        machine.running.send(b"from the liar:%d" % self.counts["liar_sent"])
        self.counts["liar_sent"] += 1
        return True

    def after(self, machine: Machine) -> None:
        """See `GroupWorld`. A message that shows at its delivery to be a lie also closes the link."""
        super().after(machine)
        if machine.ghost:
            return
        engine = machine.running
        if (
            engine.standing is Standing.EVICTED
            and engine.me in engine.view.voters
            and engine.me not in self._told_of_end
            and not self.by_word
        ):
            raise Failure("cut-off", f"{engine.me} has a vote, and more than a change has left")
        for blamed, text in machine.running.blames.take_late().items():
            if self.is_honest(blamed):
                raise Failure("blamed", f"{machine.me} blames an honest member: {text}")
            if blamed == self.liar.me:
                self._refused(machine, text)
        for doubted, text in machine.running.blames.take_doubts().items():
            self.counts["doubts"] += 1
            if self.is_honest(doubted):
                raise Failure("doubted", f"{machine.me} takes for wrong what is honest: {text}")

    def deliver(self, machine: Machine, payload: bytes, tag: Tag) -> None:
        """See `GroupWorld`. Of other members' operations an application only notes that it has them."""
        if self.is_honest(tag.dot.origin):
            super().deliver(machine, payload, tag)
            return
        name = f"~{tag.dot.origin}:{tag.dot.counter}".encode() + payload.hex().encode()
        if not machine.application.apply(name, tag.dot):
            machine.doubles.append(f"{name.decode()} at {machine.me}")

    # What an honest member takes from the hostile one

    def _packet(self, verb: str, sender: str, receiver: str, place: int) -> bool:
        flight = self.wires.flights.get((sender, receiver), [])
        if place < len(flight) and isinstance(flight[place].content, Ended):
            self._told_of_end.add(self.machines[receiver].me)
        if receiver == self.hostile:
            if (
                place < len(flight)
                and isinstance(flight[place].content, Ended)
                and not self.settling
            ):
                verb = "drop"  # it ignores its end
            return self.of_the_liar(
                lambda: super(HostileWorld, self)._packet(verb, sender, receiver, place)
            )
        if sender != self.hostile or verb == "drop":
            return super()._packet(verb, sender, receiver, place)
        parcel = self.wires.take(sender, receiver, place, keep=verb == "dup")
        if parcel is None:
            return False
        self.counts["doubled"] += verb == "dup"
        self.counts["reordered"] += verb == "net" and place > 0
        machine = self.machines[receiver]
        if parcel.process == machine.number and machine.up:
            self._hear(machine, parcel)
        return True

    def _hear(self, machine: Machine, parcel: Parcel) -> None:
        content = parcel.content
        self.counts["heard"] += 1
        try:
            if isinstance(content, Bytes):
                content = self._decoded(content.body)
            if content is not None:
                with limited(f"{machine.me} takes a {type(content).__name__}", self.engine_type):
                    self._take(machine, parcel.sender, content)
        except RemoteProtocolError as error:
            self._refused(machine, str(error))
        except RolledBackError:
            # It may have lost something: it continues as a new incarnation, which sends again what it has.
            if self._from_journal.get(machine.name) != machine.number:
                raise
            crashes.torn(self, machine, 0)
            self.counts["rolled_back"] += 1
        if machine.up:
            self.after(machine)
            self._bounded(machine)

    def _decoded(self, body: bytes) -> object:
        """The frame in these bytes; None if the codec refuses them. (A link then names the peer itself.)"""
        try:
            frame = frames.decode(body)
        except RemoteProtocolError:
            self.counts["undecodable"] += 1
            return None
        return frame.frame if isinstance(frame, Grouped) else None

    def _take(self, machine: Machine, sender: str, content: Any) -> None:
        engine = machine.running
        if isinstance(content, Admit):
            try:
                engine.admit(
                    content.base,
                    replaces=content.replaces,
                    witness=content.witness,
                    reads=content.reads,
                )
                self.counts["strangers_let_in"] += 1
                self.counts["replaced_by_liar"] += bool(content.replaces)
            except (LocalProtocolError, RemoteProtocolError):
                self.counts["not_admitted"] += 1
        elif isinstance(content, Message | Digest | Ended | Views):
            if isinstance(content, Message):
                self._note(content)
            elif isinstance(content, Ended):
                self._told_of_end.add(machine.me)
            stopped = machine.stopped
            engine.receive(sender, content)
            if isinstance(content, Views):
                self.counts["forced_by_liar"] += any(map(_forces, content.records))
            believed = isinstance(content, Ended) and machine.stopped and not stopped
            self.counts["believed_ends"] += believed

    def _note(self, message: Message) -> None:
        """Note a message of the hostile member. Two variants of one message make the run void."""
        if self.is_honest(message.dot.origin):
            return
        if self._heard.setdefault(message.dot, message) != message:
            self.become_void()

    def become_void(self) -> None:
        """Judge only crashes, hangs and memory for the rest of this run."""
        if not self.void:
            self.void = True
            self.counts["void"] += 1

    def _refused(self, machine: Machine, text: str) -> None:
        """A machine has refused a frame: the text must name the liar, and the link with it closes."""
        if self.liar.me not in text:
            raise Failure(
                "unnamed", f"{machine.me} refuses a frame without the name of its sender: {text}"
            )
        self.counts["refused_frames"] += 1
        self.disconnect(machine.name, self.hostile)

    def _bounded(self, machine: Machine) -> None:
        """Check that what a member holds does not grow with what the liar sends. Raises Failure if it does."""
        engine = machine.running
        for origin, waiting in engine.waiting.items():
            if waiting.bytes > Inbox.most_bytes + 2**21:
                raise Failure("memory", f"{machine.me} keeps {waiting} of {origin}")
        if self.counts["heard"] % 50 == 0:
            held = elements(engine)
            if held > MOST_HELD:
                raise Failure("memory", f"{machine.me} holds {held:,} elements")

    # What the hostile one says

    def _lie(self, verb: str, arguments: tuple[str | int, ...]) -> bool:
        liar = self.machines.get(str(arguments[0]))
        if liar is not self.liar or not liar.up:
            return False
        mutation = Mutation(random.Random(int(arguments[-1])), Lore.of(liar.running))
        if verb == "issue":
            return self.of_the_liar(lambda: self._issue(liar, mutation, int(arguments[-1])))
        if verb == "letter":
            return self._letter(liar, mutation)
        receiver = self.machines.get(str(arguments[1]))
        if receiver is None or receiver is liar or not receiver.up:
            return False
        if verb == "twist":
            return self._twist(liar, receiver, int(arguments[2]), mutation, int(arguments[-1]))
        if not self.wires.connected(liar.name, receiver.name):
            return False
        if verb == "flood":
            return self._flood(liar, receiver, mutation)
        if int(arguments[-1]) % 1500 == 0:
            self.become_void()
            self.counts["stolen"] += 1
            stolen = mutation.in_anothers_name(int(arguments[-1]) // 1500)
            self._say(liar, receiver, mutation.body(stolen))
        else:
            self._say(liar, receiver, mutation.body(mutation.frame(receiver.me)))
        return True

    def _say(self, liar: Machine, receiver: Machine, body: bytes) -> None:
        self.counts["lies"] += 1
        self.wires.post(liar.name, receiver.name, Parcel(liar.me, receiver.number, Bytes(body)))

    def _issue(self, liar: Machine, mutation: Mutation, seed: int) -> bool:
        """Send a false message to all, like any other message."""
        engine = liar.running
        assert isinstance(engine, LyingEngine)
        if not liar.active:
            return False
        kind, payload = mutation.payload()
        context = mutation.context() if seed % 4 == 0 else None
        self._overrules(kind, payload)
        self.counts["lies"] += 1
        engine.lie(kind, payload, context)
        self.after(liar)
        return True

    def _overrules(self, kind: int, payload: bytes) -> None:
        """Count joins that replace others, as an operator's override: what is then lost is not judged."""
        try:
            operation = decode(kind, payload)
        except CrdtcastError:
            return
        self.counts["replaced_by_liar"] += isinstance(operation, Join) and bool(operation.replaces)

    def _twist(
        self, liar: Machine, receiver: Machine, place: int, mutation: Mutation, seed: int
    ) -> bool:
        flight = self.wires.flights.get((liar.name, receiver.name), [])
        if not 0 <= place < len(flight):
            return False
        parcel = flight[place]
        content = parcel.content
        self.counts["twisted"] += 1
        if isinstance(content, Digest | Views):
            changed = (
                mutation.digest(content) if isinstance(content, Digest) else mutation.views(content)
            )
            flight[place] = replace(parcel, content=Bytes(mutation.body(changed)))
        elif isinstance(content, Message) and content.dot.origin == liar.me and seed % 600 == 0:
            flight[place] = replace(parcel, content=replace(content, payload=b"two faces"))
        else:
            flight.append(parcel)
        return True

    def _flood(self, liar: Machine, receiver: Machine, mutation: Mutation) -> bool:
        """Let the receiver take many long messages at once, and check what it holds."""
        self.counts["floods"] += 1
        for number in range(FLOOD):
            parcel = Parcel(liar.me, receiver.number, mutation.big(number))
            self._hear(receiver, parcel)
            if not receiver.up or not self.wires.connected(liar.name, receiver.name):
                break
        return True

    def _letter(self, liar: Machine, mutation: Mutation) -> bool:
        """A false admission is refused, or makes an engine; anything else is a failure."""
        state = liar.running.state()
        incarnation = joined_id(mutation.fake(), liar.me, max(state.counter, 1))
        joined = replace(
            state,
            members=(*state.members, MemberInfo(incarnation)),
            vector={**state.vector, incarnation: 0},
        )
        honest = JoinerEntry(incarnation, liar.me, joined, ())
        self.counts["letters"] += 1
        with limited("a joiner", self.engine_type):
            try:
                entry = unpack_entry(mutation.entry(honest) or pack_entry(honest))
                engine = self.engine_type(entry.incarnation, entry.state)
                for _ in range(3):
                    engine.tick()
                    while engine.poll() is not None:
                        pass
                    engine.poll_stable()
                    engine.take_outbox()
            except (RemoteProtocolError, ConfigurationError):
                self.counts["letters_refused"] += 1
        return True

    # The end

    @property
    def by_word(self) -> bool:
        """Whether an operator has overruled the majority of the members, or the liar in an operator's name."""
        forged = self.counts["forced_by_liar"] or self.counts["replaced_by_liar"]
        return bool(forged) or super().by_word

    def judge(self) -> None:
        """Let everything settle, then judge. Raises Failure if something is wrong."""
        if self.counts["forced_by_liar"]:
            for issued in self.ledger.issued.values():
                self.ledger.loose.update(issued)
        try:
            try:
                drain_and_judge(self)
            except OutdatedError as error:
                raise Failure("outdated", str(error)) from error
            self._hear_a_stranger()
        except Failure as failure:
            if not self.excuses(failure):
                raise

    def _hear_a_stranger(self) -> None:
        """Check that no member believes an unknown peer that it has ended. Raises Failure if one does."""
        living = self.living()
        if len(living) == 1:
            return  # no member is left that could contradict
        for machine in living:
            for cut in (None, 0):
                with suppress(RemoteProtocolError):
                    machine.running.receive(STRANGER, Ended(machine.me, cut))
            if machine.stopped:
                raise Failure("stranger", f"{machine.me} stops since {STRANGER} says so")


def _forces(record: Record) -> bool:
    """Whether a record asks for a change by force: any member may say that its operator wants one."""
    words = [each.word for each in (record.proposal, record.accepted) if each is not None]
    return any(word.forced for word in words)


_OF_THE_ORACLE = frozenset(
    {
        *(kind.value for kind in Wrong),
        *("payload-loss", "payload-differs", "payload-ghost", "payload-twice", "removal", "split"),
        *("join-stuck", "leave-hang", "evict-stuck", "return-stuck", "reissue-stuck", "disputed"),
        *("unrest", "level", "metadata", "noise", "not-quiet", "ghost-untold"),
        *("copy-differs", "restart", "all-ended", "vectors"),
        *("RolledBackError", "RemoteProtocolError", "blamed", "doubted", "cut-off"),
    }
)
"""Kinds of failures of the agreement between members: those that a void run excuses."""
