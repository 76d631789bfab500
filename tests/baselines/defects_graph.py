"""Engines of the graph family with one rule put back as printed, or left out. What each is for: docs/baselines.md."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.baselines.dag import CausalDag, Stage, Vertex
from benchmarks.baselines.graph import GraphEngine, Phantom
from benchmarks.baselines.graph_dynamic import (
    DynamicGraphEngine,
    GraphOperation,
    GraphSnapshot,
    GraphStanding,
)
from crdtcast.causality.messages import Delivery, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector

# Fixed group (thesis, Algorithms 4, 5, 8 to 11)


class BornAcknowledged(GraphEngine):
    """Algorithm 9, lines 15 to 17 and 40 to 42: own and sender's bit are 0 at birth, and nobody looks at the string."""

    def _await_acknowledgements(self, vertex: Vertex, message: Message) -> None:
        mask = self._bit[message.dot.origin]
        vertex.bits = self._everyone & ~(self._bit[self.me] | mask)
        for pred in vertex.pred.values():
            self._dag.acknowledge(pred, mask)


class ContextIsNextDot(GraphEngine):
    """Algorithm 4, lines 10 and 11: the context is set after the counter, so a message depends on itself."""

    def _advance_context(self, dot: Dot, context: tuple[Dot, ...]) -> None:
        super()._advance_context(dot, context)
        if dot.origin == self.me:
            self._context[self.me] = Dot(self.me, dot.counter + 1)


class FirstDotZero(GraphEngine):
    """Algorithm 4, line 5: the first dot is 0, as is what everybody's vector says before it."""

    _sent = 0

    def _next_dot(self) -> Dot:
        return Dot(self.me, self._sent)

    def send(self, payload: bytes) -> Tag:
        tag = super().send(payload)
        self._sent += 1
        return tag


class LocalPhantom(GraphEngine):
    """Algorithms 10 and 11, line 33: a phantom goes to the member's own middleware, and nowhere else."""

    def _send_phantom(self, phantom: Phantom) -> None:
        self._take_phantom(self.me, phantom.context)


class EarlyPhantomForgotten(GraphEngine):
    """Algorithm 11, lines 50 to 53: a phantom that comes before its sender's last message is dropped."""

    def _receive_phantom(self, sender: str, phantom: Phantom) -> None:
        if phantom.dot.counter == self.vector[phantom.dot.origin] + 1:
            super()._receive_phantom(sender, phantom)


class UndeliveredNotOwed(GraphEngine):
    """Algorithm 11, line 55: what a phantom says of a message that is not delivered here yet is dropped."""

    def _take_phantom(self, member: str, context: Sequence[Dot] | dict[Dot, None]) -> None:
        super()._take_phantom(member, [d for d in context if self.vector[d.origin] >= d.counter])


class EagerPhantom(GraphEngine):
    """A phantom counts at once, although messages that its sender sent before are still on their way."""

    def _receive_phantom(self, sender: str, phantom: Phantom) -> None:
        self._take_phantom(phantom.dot.origin, phantom.context)


class UnboundedComplement(GraphEngine):
    """Algorithms 9 and 11: the complement of a mask has bits for nobody, which nobody clears."""

    def _set_positions(self, members: Sequence[str] | Vector) -> None:
        super()._set_positions(members)
        self._everyone = -1


class _RecordAgainstStage(CausalDag):
    def insert(self, message: Message, delivered: Vector, bit: Mapping[str, int]) -> Vertex:
        vertex = super().insert(message, delivered, bit)
        for pred in vertex.pred:
            vertex.bits |= bit[pred.origin]
        return vertex


class RecordAgainstStage(GraphEngine):
    """Algorithms 9 and 11, line 25: a vertex is compared with a stage, so delivered predecessors are waited for."""

    dag_type = _RecordAgainstStage


class PrunedContext(GraphEngine):
    """Algorithm 5, line 27: the client is given the predecessors that were missing, not the context."""

    def _receive_new(self, message: Message) -> None:
        missing = [dot for dot in message.context if self.vector[dot.origin] < dot.counter]
        super()._receive_new(Message(message.dot, tuple(missing), message.payload, message.kind))


# Dynamic members (thesis, Algorithms 12 and 13): joins


class _Tolerant(dict[str, int]):
    def __missing__(self, member: str) -> int:
        return 0


class _TakesStrangers(DynamicGraphEngine):
    """Nobody looks whom a message is from: of who is no member yet it is kept, of who has left it is taken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._strangers: list[tuple[str, Message]] = []
        super().__init__(*arguments, **options)

    def _set_positions(self, members: Sequence[str] | Vector) -> None:
        super()._set_positions(members)
        self._bit = _Tolerant(self._bit)

    def _check(self, sender: str, message: Message | Phantom) -> None:
        pass

    def _receive_message(self, sender: str, message: Message) -> None:
        origins = {dot.origin for dot in (message.dot, *message.context)}
        if origins <= self.vector.keys():
            super()._receive_message(sender, message)
        else:
            self._strangers.append((sender, message))

    def _deliver(self, vertex: Vertex, message: Message) -> None:
        super()._deliver(vertex, message)
        if message.kind == GraphOperation.JOIN:
            strangers, self._strangers = self._strangers, []
            for sender, waiting in strangers:
                self._receive_message(sender, waiting)


class BitsCopiedWhole(DynamicGraphEngine):
    """Line 19: copied bit strings are taken as they are; one that is empty already is never looked at."""

    def _settle_copied(self) -> None:
        pass


class EarlySend(DynamicGraphEngine):
    """A joiner sends before its join is stable, to members that do not know it."""

    @property
    def standing(self) -> GraphStanding:
        actual = super().standing
        return GraphStanding.ACTIVE if actual is GraphStanding.JOINING else actual


class EarlySendTolerated(EarlySend, _TakesStrangers):
    """The same, and members keep what comes too early. A leaver still misses some of it."""


class EmptyContext(DynamicGraphEngine):
    """Algorithm 12, line 7: a joiner begins with an empty context, so its messages follow nothing."""

    def _install(self, snapshot: GraphSnapshot) -> None:
        super()._install(snapshot)
        self._context.clear()


class PrunedForward(DynamicGraphEngine):
    """Line 24: what is forwarded carries the edges of the contact's graph, which has dropped what is stable there."""

    def _forward(self, message: Message, joiner: str) -> None:
        vertices = self._dag.vertices
        context = [
            dot
            for dot in message.context
            if dot in vertices and vertices[dot].stage is not Stage.STABLE
        ]
        forwarded = Message(message.dot, tuple(context), message.payload, message.kind)
        super()._forward(forwarded, joiner)


class InactiveContact(DynamicGraphEngine):
    """Lines 61 to 63: whoever is asked lets others in, though its own join is not stable."""

    def poll(self) -> Delivery | None:
        if self._requests and self.standing is GraphStanding.JOINING:
            return self._admit(self._requests.popleft())
        return super().poll()


class MuteJoiner(DynamicGraphEngine):
    """Algorithm 12, line 8: a joiner broadcasts nothing until its join is stable, phantoms included."""

    def tick(self) -> None:
        if self.standing is not GraphStanding.JOINING:
            super().tick()


class NoVectorEntry(DynamicGraphEngine):
    """Lines 112 to 120: a joiner gets a bit, but no entry in the vector."""

    def _add(self, joiner: str) -> None:
        super()._add(joiner)
        self.vector.pop(joiner, None)

    def _check(self, sender: str, message: Message | Phantom) -> None:
        pass


class ShiftByPower(DynamicGraphEngine):
    """Line 120: bit strings are shifted by 2 to the power of the position."""

    def _position(self, member: str) -> int:
        return 1 << super()._position(member)


class JoinTwice(DynamicGraphEngine):
    """A joiner asks again, there or elsewhere, and is let in again."""

    def join(self, contact: str) -> None:
        if self._standing is GraphStanding.ASKING:
            self._ask(contact)
        else:
            super().join(contact)

    def _requested(self, joiner: str) -> None:
        # Lines 61 to 63: a member is refused, one that is about to become a member is not.
        if self.standing in (GraphStanding.OUTSIDE, GraphStanding.LEAVING, GraphStanding.LEFT):
            super()._requested(joiner)
        elif joiner not in self._bit:
            self._requests.append(joiner)

    def _broadcast(self, message: Message | Phantom) -> None:
        for member in self._bit:
            joins = type(message) is Message and message.kind == GraphOperation.JOIN
            if member != self.me and not (joins and message.payload.decode() == member):
                self._outbox.append(Transmit(member, message))


class ForwardsNothing(DynamicGraphEngine):
    """Lines 22 to 25 and 54 left out: what members that do not know the joiner have sent never reaches it."""

    def _forward(self, message: Message, joiner: str) -> None:
        pass


# Leaves


class RemovedWhenStable(DynamicGraphEngine):
    """Lines 110 and 111: members drop a leaver when its leave is stable, and owe it no acknowledgement before."""

    def _deliver_leave(self, vertex: Vertex) -> None:
        if vertex.dot.origin == self.me:
            self._own_leave = vertex

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        leavers = [
            vertex.dot.origin
            for vertex in self._dag.ripe
            if self._kind(vertex) == GraphOperation.LEAVE and vertex.dot.origin != self.me
        ]
        tags = super().poll_stable(limit)
        for leaver in leavers:
            if leaver in self._bit:
                self._remove(leaver)
        return tags

    def _kind(self, vertex: Vertex) -> int:
        stored = self._tags.get(*vertex.dot)
        assert stored is not None
        return stored.message.kind


class _WithoutRecheck(DynamicGraphEngine):
    def _remove(self, leaver: str) -> None:
        position = self._position(leaver)
        self._set_positions([member for member in self._bit if member != leaver])
        self._dag.close_position(position)
        self._joiners.pop(leaver, None)


class NoRecheck(_WithoutRecheck):
    """Lines 118 to 120: a leaver's bit goes, and nobody looks whether it was the last one."""


class AsPrinted(RemovedWhenStable, _WithoutRecheck):
    """Both: dropped when stable, and nobody looks then."""


class StopSending(RemovedWhenStable):
    """6.1.2: who delivers a leave sends nothing more to the leaver, which waits for acknowledgements."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._silenced: set[str] = set()

    def _deliver_leave(self, vertex: Vertex) -> None:
        super()._deliver_leave(vertex)
        self._silenced.add(vertex.dot.origin)

    def _broadcast(self, message: Message | Phantom) -> None:
        for member in self._bit:
            if member != self.me and member not in self._silenced:
                self._outbox.append(Transmit(member, message))


class LeaveAsMessage(DynamicGraphEngine):
    """Line 27: a leave is sent as a plain message, so nobody knows it for one."""

    def _send(self, payload: bytes, kind: int) -> Tag:
        return super()._send(payload, 0 if kind == GraphOperation.LEAVE else kind)


class JoinAfterLeave(_TakesStrangers):
    """A member that has issued its leave still lets others in."""

    def _requested(self, joiner: str) -> None:
        if self.standing is GraphStanding.LEAVING and joiner not in self.vector:
            self._requests.append(joiner)
        else:
            super()._requested(joiner)

    def _refuse_all(self) -> None:
        pass

    def poll(self) -> Delivery | None:
        if self._requests and self.standing is GraphStanding.LEAVING:
            return self._admit(self._requests.popleft())
        return super().poll()


class NoLeaveAcknowledgement(DynamicGraphEngine):
    """A leaver is dropped at once, without a word."""

    def _deliver_leave(self, vertex: Vertex) -> None:
        if vertex.dot.origin == self.me:
            self._own_leave = vertex
        else:
            self._remove(vertex.dot.origin)


FIXED: dict[str, type[GraphEngine]] = {
    "born_zero": BornAcknowledged,
    "ctx_next": ContextIsNextDot,
    "dot0": FirstDotZero,
    "phantom_local": LocalPhantom,
    "phantom_forgotten": EarlyPhantomForgotten,
    "phantom_undelivered": UndeliveredNotOwed,
    "phantom_eager": EagerPhantom,
    "complement": UnboundedComplement,
    "record_stage": RecordAgainstStage,
}
"""Flags of the runs of a fixed group."""

DYNAMIC: dict[str, type[DynamicGraphEngine]] = {
    "join-bits-wholesale-FIFO": BitsCopiedWhole,
    "join-bits-not-settled": BitsCopiedWhole,
    "join-early-send": EarlySend,
    "join-early-send-FIFO": EarlySend,
    "join-early-send-refused": EarlySend,
    "join-early-send-tolerated": EarlySendTolerated,
    "join-empty-ctxt": EmptyContext,
    "join-empty-context": EmptyContext,
    "join-fwd-pruned-pred": PrunedForward,
    "join-pruned-forward": PrunedForward,
    "join-inactive-contact": InactiveContact,
    "join-inactive-contact-refused": InactiveContact,
    "join-joiner-mute": MuteJoiner,
    "join-no-V-entry": NoVectorEntry,
    "join-shift-2pos": ShiftByPower,
    "join-twice-two-contacts": JoinTwice,
    "join-no-forwarding": ForwardsNothing,
    "leave-asis-norecheck": AsPrinted,
    "leave-exit-on-stable": RemovedWhenStable,
    "leave-join-after": JoinAfterLeave,
    "leave-no-recheck": NoRecheck,
    "leave-text-stop-sending": StopSending,
    "leave-type-msg": LeaveAsMessage,
    "leave-unacknowledged": NoLeaveAcknowledgement,
}
"""By the name of the run's file."""
