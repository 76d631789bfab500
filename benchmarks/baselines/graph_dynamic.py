"""Graph-based tagged causal delivery with members that come and go, over reliable links and without any crash.

G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for Geo-Replicated Services*, 2023: chapter 6,
Algorithms 12 and 13; repaired as docs/baselines.md lists. A crash of a member stops stability permanently; a crash of a
contact during a join also stops the joiner. No other member can send what the crashed one would have sent.
"""

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.baselines.dag import Stage, Vertex
from benchmarks.baselines.graph import GraphEngine, Phantom
from crdtcast.causality.messages import Delivery, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.engine.causal_past import Pasts
from crdtcast.exceptions import ConfigurationError, LocalProtocolError, RemoteProtocolError


class GraphOperation(enum.IntEnum):
    """Kinds of messages that change the group. The payload of a JOIN is the id of the joiner."""

    JOIN = 1
    LEAVE = 2


class GraphStanding(enum.Enum):
    """The progress of a member's join or leave. A member in JOINING delivers already; it may send when it is ACTIVE."""

    OUTSIDE = enum.auto()
    ASKING = enum.auto()
    JOINING = enum.auto()
    ACTIVE = enum.auto()
    LEAVING = enum.auto()
    LEFT = enum.auto()


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Asks a contact to let `joiner` in."""

    joiner: str

    def wire_fields(self) -> list[Any]:
        """The fields on the wire."""
        return [2, self.joiner]


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The sender leaves, or is not a member, so it lets no joiner in: ask one of the `members`."""

    members: tuple[str, ...]

    def wire_fields(self) -> list[Any]:
        """The fields on the wire."""
        return [3, list(self.members)]


@dataclass(frozen=True, slots=True)
class GraphSnapshot:
    """The state of a contact at the instant at which it has let a joiner in.

    unstable: delivered messages in order of delivery, each with its bit string over `members`, the joiner included.
    """

    entry: Dot
    members: tuple[str, ...]
    vector: Vector
    context: tuple[Dot, ...]
    unstable: tuple[tuple[Message, int], ...]
    application: bytes

    def wire_fields(self) -> list[Any]:
        """The fields on the wire."""
        unstable = [
            [*m.dot, [list(dot) for dot in m.context], m.payload, m.kind, _string(bits)]
            for m, bits in self.unstable
        ]
        vector = [[origin, counter] for origin, counter in self.vector.items()]
        context = [list(dot) for dot in self.context]
        members = list(self.members)
        return [4, list(self.entry), members, vector, context, unstable, self.application]


def _string(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class DynamicGraphEngine(GraphEngine):
    """One member of a group that changes. Ids are never used again.

    members: ids of the founders; a member that is not one of them is outside until it has joined.
    stability: must be True, since joins and leaves need it.
    application: returns the state for a joiner, at the instant of its join; the joiner has it in `application_state`.
    Raises ConfigurationError without stability.
    """

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        *,
        stability: bool = True,
        application: Callable[[], bytes] = bytes,
    ) -> None:
        if not stability:
            raise ConfigurationError("joins and leaves need stability: use GraphEngine without it")
        founder = me in members
        super().__init__(me, members if founder else [me])
        self._standing = GraphStanding.ACTIVE if founder else GraphStanding.OUTSIDE
        self._application = application
        self.application_state: bytes = b""
        self.entry: Dot | None = None
        """The dot of the join operation that let this member in."""
        self._own_join: Vertex | None = None
        self._own_leave: Vertex | None = None
        self._contact = ""
        self._asked: set[str] = set()
        self._too_early: list[tuple[str, Any]] = []
        self._requests: deque[str] = deque()
        self._joiners: dict[str, Vertex] = {}
        """Joiner that this member has let in and still forwards to -> its join operation."""

    @property
    def members(self) -> tuple[str, ...]:
        """The members that this member knows, itself included."""
        return tuple(self._bit)

    @property
    def standing(self) -> GraphStanding:
        """A join or leave is complete when its operation is stable at the member that joins or leaves."""
        if self._standing is GraphStanding.JOINING and _is_stable(self._own_join):
            self._standing = GraphStanding.ACTIVE
        elif self._standing is GraphStanding.LEAVING and _is_stable(self._own_leave):
            self._standing = GraphStanding.LEFT
        return self._standing

    def _broadcast(self, message: Message | Phantom) -> None:
        for member in self._bit:
            if member != self.me:
                self._outbox.append(Transmit(member, message))

    def tick(self) -> None:
        """Broadcast a phantom if there is news. A leaver sends none, since no member would need it."""
        if self.standing in (GraphStanding.JOINING, GraphStanding.ACTIVE):
            super().tick()

    def send(self, payload: bytes) -> Tag:
        """tcbroadcast. Raises LocalProtocolError if the join is not stable here yet, or after `leave`."""
        if self.standing is not GraphStanding.ACTIVE:
            raise LocalProtocolError(
                f"{self.me} is {self._standing.name.lower()}: only an active member may send"
            )
        return super().send(payload)

    # Joining

    def join(self, contact: str) -> None:
        """Ask a member to be let in. If it refuses, ask those that it names; after the last refusal OUTSIDE again.

        Raises LocalProtocolError if this member is not outside.
        """
        if self._standing is not GraphStanding.OUTSIDE:
            raise LocalProtocolError(
                f"{self.me} is {self.standing.name.lower()}: use a new id to join again"
            )
        self._standing = GraphStanding.ASKING
        self._ask(contact)

    def _ask(self, contact: str) -> None:
        self._contact = contact
        self._asked.add(contact)
        self._outbox.append(Transmit(contact, JoinRequest(self.me)))

    def _refused(self, sender: str, refusal: JoinRefused) -> None:
        if self._standing is not GraphStanding.ASKING or sender != self._contact:
            return
        for member in refusal.members:
            if member not in self._asked:
                self._ask(member)
                return
        self._standing = GraphStanding.OUTSIDE
        self._asked.clear()
        self._refuse_all()

    def _requested(self, joiner: str) -> None:
        if self.standing in (GraphStanding.OUTSIDE, GraphStanding.LEAVING, GraphStanding.LEFT):
            self._refuse(joiner)
        elif joiner not in self.vector and joiner not in self._requests:
            self._requests.append(joiner)

    def _refuse(self, joiner: str) -> None:
        others = tuple(member for member in self._bit if member != self.me)
        self._outbox.append(Transmit(joiner, JoinRefused(others)))

    def _refuse_all(self) -> None:
        while self._requests:
            self._refuse(self._requests.popleft())

    def poll(self) -> Delivery | None:
        """tcdeliver. A join that this member issues is a `local` delivery, after what was delivered before."""
        if self._requests and self.standing is GraphStanding.ACTIVE:
            return self._admit(self._requests.popleft())
        return super().poll()

    def _admit(self, joiner: str) -> Delivery:
        """Let a joiner in: send the operation to the others, and to the joiner a snapshot and undelivered messages."""
        pending = [v for v in self._dag.vertices.values() if v.stage is Stage.RECEIVED]
        tag = self._send(joiner.encode(), GraphOperation.JOIN)
        self._joiners[joiner] = self._dag.vertices[tag.dot]
        self._outbox.append(Transmit(joiner, self._snapshot(tag.dot)))
        for vertex in pending:
            if vertex.message is not None:
                self._forward(vertex.message, joiner)
        return Delivery(joiner.encode(), tag, GraphOperation.JOIN, local=True)

    def _snapshot(self, entry: Dot) -> GraphSnapshot:
        vertices = self._dag.vertices
        return GraphSnapshot(
            entry,
            self.members,
            dict(self.vector),
            tuple(self._context.values()),
            tuple((s.message, vertices[s.message.dot].bits) for s in self._tags.in_order()),
            self._application(),
        )

    def _forward(self, message: Message, joiner: str) -> None:
        """Forward a message with its whole context, since what is stable here may not be stable at the joiner."""
        if message.dot.origin != joiner:
            self._outbox.append(Transmit(joiner, message))

    def _install(self, snapshot: GraphSnapshot) -> None:
        if self._standing not in (GraphStanding.OUTSIDE, GraphStanding.ASKING):
            return
        self._standing = GraphStanding.JOINING
        self.entry = snapshot.entry
        self.application_state = snapshot.application
        self.vector: dict[str, int] = dict(snapshot.vector)
        self._set_positions(snapshot.members)
        self._context = {dot.origin: dot for dot in snapshot.context}
        self._floor = floor = dict(snapshot.vector)
        for message, _ in snapshot.unstable:
            floor[message.dot.origin] -= 1
        self._pasts = Pasts(self._tags, floor)
        for message, bits in snapshot.unstable:
            vertex = self._dag.insert(message, self.vector, self._bit)
            self._dag.deliver(vertex, 0, bits)
            self._remember(message, *self._past_of(message.context))
        self._own_join = self._dag.vertices[snapshot.entry]
        self._settle_copied()
        self._news = True
        early, self._too_early = self._too_early, []
        for sender, content in early:
            self.receive(sender, content)

    def _settle_copied(self) -> None:
        """Mark as stable what was stable at the contact, but not yet reported to its application."""
        self._dag.settle()

    # Leaving

    def leave(self) -> Tag:
        """Issue the last message of this member. It may stop when its `standing` is LEFT and its outbox is empty.

        Raises LocalProtocolError if this member is not active.
        """
        if self.standing is not GraphStanding.ACTIVE:
            raise LocalProtocolError(
                f"{self.me} is {self._standing.name.lower()}: only an active member can leave"
            )
        self._refuse_all()
        self._standing = GraphStanding.LEAVING
        return self._send(b"", GraphOperation.LEAVE)

    # Receiving

    def receive(self, sender: str, message: Any) -> None:
        """Take what a peer sent. Raises RemoteProtocolError, with the state unchanged, if it names an unknown id."""
        if type(message) is JoinRequest:
            self._requested(message.joiner)
        elif type(message) is JoinRefused:
            self._refused(sender, message)
        elif type(message) is GraphSnapshot:
            self._install(message)
        elif self._standing in (GraphStanding.OUTSIDE, GraphStanding.ASKING):
            self._too_early.append((sender, message))
        elif self.standing is not GraphStanding.LEFT:
            super().receive(sender, message)

    def _check(self, sender: str, message: Message | Phantom) -> None:
        """A phantom may come from, or name, a member whose join has not arrived yet; a message may not."""
        if type(message) is Phantom:
            return
        origins, vector = self._bit, self.vector
        for dot in (message.dot, *message.context):
            if dot.origin not in origins and dot.counter > vector.get(dot.origin, 0):
                raise RemoteProtocolError(
                    f"{sender} sent {message.dot}, and {dot.origin} is not a member here"
                )

    def _receive_new(self, message: Message) -> None:
        super()._receive_new(message)
        for joiner, operation in list(self._joiners.items()):
            if operation.stage is Stage.STABLE:
                del self._joiners[joiner]  # all members send to it by now
            else:
                self._forward(message, joiner)

    # Membership operations

    def _deliver(self, vertex: Vertex, message: Message) -> None:
        if message.kind == GraphOperation.JOIN:
            self._add(message.payload.decode())
        super()._deliver(vertex, message)
        if message.kind == GraphOperation.JOIN:
            self._take_early(Dot(message.payload.decode(), 0))
        elif message.kind == GraphOperation.LEAVE:
            self._deliver_leave(vertex)

    def _await_acknowledgements(self, vertex: Vertex, message: Message) -> None:
        super()._await_acknowledgements(vertex, message)
        if message.kind == GraphOperation.JOIN:
            # All that the joiner will send comes after this.
            self._dag.acknowledge(vertex, self._bit[message.payload.decode()])

    def _deliver_leave(self, vertex: Vertex) -> None:
        leaver = vertex.dot.origin
        if leaver == self.me:
            self._own_leave = vertex
            return
        if self.standing in (GraphStanding.JOINING, GraphStanding.ACTIVE):
            # It acknowledges the leave, after everything that was sent to the leaver before.
            self._outbox.append(Transmit(leaver, self._phantom()))
        self._remove(leaver)

    def _add(self, joiner: str) -> None:
        if joiner in self._bit:
            return
        self.vector[joiner] = 0
        self._set_positions([*self._bit, joiner])
        self._dag.open_position(self._position(joiner))

    def _remove(self, leaver: str) -> None:
        """Remove a leaver, since nothing more can come from it. What waited only for it is stable now."""
        position = self._position(leaver)
        self._set_positions([member for member in self._bit if member != leaver])
        self._dag.close_position(position)
        self._dag.settle()
        self._joiners.pop(leaver, None)

    def _position(self, member: str) -> int:
        return self._bit[member].bit_length() - 1


def _is_stable(operation: Vertex | None) -> bool:
    return operation is not None and operation.stage is Stage.STABLE
