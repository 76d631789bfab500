"""Graph-based tagged causal delivery with dots, bit strings and phantoms, for a fixed group over reliable links.

G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for Geo-Replicated Services*, 2023: Algorithms 10 and
11 with stability, 4 and 5 without; repaired as docs/baselines.md lists. The printed client and middleware have two
notions of delivered; this engine has one: what `poll` has returned.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.baselines.dag import CausalDag, Stage, Vertex
from benchmarks.baselines.interface import Measures
from benchmarks.baselines.sizes import metadata_bytes
from crdtcast.causality.messages import Delivery, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.engine.causal_past import Past, Pasts
from crdtcast.engine.store import Store
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Phantom:
    """What its sender has delivered, sent without a message (5.4): its next dot, and its reduced context."""

    dot: Dot
    context: tuple[Dot, ...]

    def wire_fields(self) -> list[Any]:
        """The fields on the wire."""
        return [1, *self.dot, [list(dot) for dot in self.context]]


class GraphEngine:
    """One member. Links may reorder and duplicate messages, but must not lose them; they are taken to be always up.

    me: own id.
    members: ids of all members, the own one included.
    stability: whether to determine stability; if not, a message is dropped from the graph when it is delivered.
    Raises ConfigurationError if `me` is not one of the members, or a member is given twice.
    """

    dag_type: type[CausalDag] = CausalDag

    def __init__(self, me: str, members: Sequence[str], *, stability: bool = True) -> None:
        if me not in members or len(set(members)) < len(members):
            raise ConfigurationError(
                f"{me} must be one of the members, each given once: {', '.join(members)}"
            )
        self.me = me
        self._stability = stability
        self.vector: dict[str, int] = dict.fromkeys(sorted(members), 0)
        self._bit: dict[str, int] = {}
        self._everyone = 0
        self._set_positions(self.vector)
        self._dag = self.dag_type()
        self._ready: deque[Vertex] = deque()
        self._context: dict[str, Dot] = {}
        self._outbox: list[Transmit] = []
        self._news = False
        self._early: dict[Dot, dict[Dot, None]] = {}
        """Phantoms that arrived before a message that was sent earlier: that message -> the dots that they name."""
        self._owed: dict[Dot, dict[str, None]] = {}
        """Dot that is not delivered here yet -> members whose phantoms name it."""
        self._tags = Store()
        self._floor: dict[str, int] = {}
        self._pasts = Pasts(self._tags, self._floor)

    def _set_positions(self, members: Sequence[str] | Vector) -> None:
        """Set the bit of each member by its position in the order of ids (4.4.3)."""
        self._bit = {member: 1 << place for place, member in enumerate(sorted(members))}
        self._everyone = (1 << len(self._bit)) - 1

    # Links and the timer

    def connected(self, peer: str) -> None:
        """Nothing to do: links are taken to be always up."""

    def disconnected(self, peer: str) -> None:
        """Nothing to do: this engine repairs no loss."""

    def tick(self) -> None:
        """Broadcast a phantom, if this member has delivered something since its last message or phantom."""
        if self._news and self._stability:
            self._news = False
            self._send_phantom(self._phantom())

    def _phantom(self) -> Phantom:
        return Phantom(self._next_dot(), tuple(self._context.values()))

    def _send_phantom(self, phantom: Phantom) -> None:
        self._broadcast(phantom)

    def _broadcast(self, message: Message | Phantom) -> None:
        self._outbox.append(Transmit(None, message))

    def take_outbox(self) -> list[Transmit]:
        """The effects since the last call, in order."""
        outbox, self._outbox = self._outbox, []
        return outbox

    # Sending

    def _next_dot(self) -> Dot:
        return Dot(self.me, self.vector[self.me] + 1)

    def send(self, payload: bytes) -> Tag:
        """tcbroadcast."""
        return self._send(payload, 0)

    def _send(self, payload: bytes, kind: int) -> Tag:
        message = Message(self._next_dot(), tuple(self._context.values()), payload, kind)
        self._broadcast(message)
        vertex = self._dag.insert(message, self.vector, self._bit)
        tag = self._remember(message, self._pasts.everything(), self._pasts.full)
        self._deliver(vertex, message)
        self._news = False  # the message has all news
        return tag

    # Receiving

    def receive(self, sender: str, message: Any) -> None:
        """Take a message or a phantom. Raises RemoteProtocolError, with the state unchanged, if an id is unknown."""
        if type(message) is Message:
            self._receive_message(sender, message)
        elif type(message) is Phantom:
            self._receive_phantom(sender, message)
        else:
            raise RemoteProtocolError(
                f"{sender} sent {message!r}, which is not a message or phantom"
            )

    def _check(self, sender: str, message: Message | Phantom) -> None:
        vector = self.vector
        if message.dot.origin not in vector:
            raise RemoteProtocolError(f"{sender} sent {message.dot}, whose origin is not a member")
        for dot in message.context:
            if dot.origin not in vector:
                raise RemoteProtocolError(
                    f"{sender} sent {message.dot}, which depends on {dot}, whose origin is not a "
                    "member"
                )

    def _receive_message(self, sender: str, message: Message) -> None:
        self._check(sender, message)
        dot = message.dot
        if dot.counter <= self.vector[dot.origin]:
            return
        known = self._dag.vertices.get(dot)
        if known is not None and known.stage is not Stage.SLOT:
            return
        self._receive_new(message)

    def _receive_new(self, message: Message) -> None:
        dag, dot = self._dag, message.dot
        vertex = dag.insert(message, self.vector, self._bit)
        if not vertex.bits:
            self._ready.append(vertex)
        elif self._stability and dot.counter == self.vector[dot.origin] + 1:
            # It has to wait. Already now it tells that its sender has delivered what it depends on.
            mask = self._bit[dot.origin]
            for pred in vertex.pred.values():
                if pred.stage is Stage.DELIVERED:
                    dag.acknowledge(pred, mask)

    def _receive_phantom(self, sender: str, phantom: Phantom) -> None:
        self._check(sender, phantom)
        if not self._stability:
            return
        origin, counter = phantom.dot
        delivered = self.vector.get(origin, -1)  # nothing of it counts before its join
        if counter > delivered + 1:
            early = self._early.setdefault(Dot(origin, counter - 1), {})
            early.update(dict.fromkeys(phantom.context))
        elif counter == delivered + 1:
            self._take_phantom(origin, phantom.context)
        # An earlier phantom tells less than the messages of its sender that were delivered since.

    def _take_phantom(self, member: str, context: Sequence[Dot] | dict[Dot, None]) -> None:
        """Note that `member` has delivered these dots. All that it had sent before is delivered here."""
        vertices, vector = self._dag.vertices, self.vector
        mask = self._bit.get(member, 0)  # none: it has left
        if not mask:
            return
        for dot in context:
            if vector.get(dot.origin, 0) < dot.counter:
                self._owed.setdefault(dot, {})[member] = None
            elif (vertex := vertices.get(dot)) is not None:
                self._dag.acknowledge(vertex, mask)

    # Delivery and stability

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member."""
        if not self._ready:
            return None
        vertex = self._ready.popleft()
        message = vertex.message
        assert message is not None, "a vertex keeps its message until it is delivered"
        tag = self._remember(message, *self._past_of(message.context))
        self._deliver(vertex, message)
        self._news = True
        return Delivery(message.payload, tag, message.kind)

    def _past_of(self, context: tuple[Dot, ...]) -> tuple[Past, int | None]:
        return self._pasts.of(context, self._pasts.known(context), self._floor)

    def _remember(self, message: Message, past: Past, known: int | None) -> Tag:
        """Keep what the tags of later messages need: the published tags have only the context."""
        tag = Tag(message.dot, message.context, past)
        if not self._stability:
            message = Message(message.dot, message.context, b"")
        self._pasts.record(self._tags.add(message, tag, 0), known)
        if self._pasts.overfull:
            self._pasts.move(self._floor)
        return tag

    def _deliver(self, vertex: Vertex, message: Message) -> None:
        """Note the delivery. The sender, like this member, has acknowledged all that the message depends on."""
        dot = vertex.dot
        self.vector[dot.origin] = dot.counter
        self._advance_context(dot, message.context)
        freed = self._dag.deliver(vertex, self._bit[dot.origin], self._everyone)
        if self._stability:
            self._await_acknowledgements(vertex, message)
        else:
            self._dag.delete(vertex)
        self._ready.extend(freed)
        if self._owed and (members := self._owed.pop(dot, None)) is not None:
            for member in members:
                self._dag.acknowledge(vertex, self._bit.get(member, 0))
        self._take_early(dot)

    def _take_early(self, dot: Dot) -> None:
        """Take the phantoms that waited for this dot."""
        if self._early and (context := self._early.pop(dot, None)) is not None:
            self._take_phantom(dot.origin, context)

    def _advance_context(self, dot: Dot, context: tuple[Dot, ...]) -> None:
        """Update the maximal delivered dots: this one replaces those that it depends on."""
        maximal = self._context
        for depended in context:
            if maximal.get(depended.origin) == depended:
                del maximal[depended.origin]
        maximal[dot.origin] = dot

    def _await_acknowledgements(self, vertex: Vertex, message: Message) -> None:
        self._dag.acknowledge(vertex, self._bit[self.me] | self._bit[message.dot.origin])

    def has_stable(self) -> bool:
        """Whether `poll_stable` would return a tag."""
        return bool(self._dag.ripe)

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        """tcstable: tags that have become stable. Their vertices leave the graph as this returns."""
        dag, store = self._dag, self._tags
        tags: list[Tag] = []
        floor = self._floor.copy()
        while dag.ripe and len(tags) < limit:
            vertex = dag.ripe.popleft()
            dag.delete(vertex)
            stored = store.get(*vertex.dot)
            assert stored is not None, "a delivered message is remembered until it is stable"
            store.remove((stored,))
            self._pasts.mark_stable(stored.sequence)
            floor[vertex.dot.origin] = vertex.dot.counter
            tags.append(stored.tag)
        if tags:
            self._floor = floor
        return tags

    # Looking in

    @property
    def delivered(self) -> Vector:
        """Origin -> highest counter delivered here."""
        return self.vector

    @property
    def context(self) -> tuple[Dot, ...]:
        """The reduced context that the next message will carry."""
        return tuple(self._context.values())

    @property
    def quiet(self) -> bool:
        """Nothing waits here and nothing is unstable."""
        return not self._dag.vertices and not self._early

    def measures(self) -> Measures:
        """Words of the graph, by the thesis's count; bytes also of the vector, contexts and waiting phantoms.

        What exact pasts of tags need (see `engine.causal_past`) does not count: the published tags have none.
        """
        dag = self._dag
        return Measures(
            work={
                "edge_visits": dag.edge_visits,
                "bit_operations": dag.bit_operations,
                "queue_scans": 0,
                "vector_entries": 0,
            },
            metadata_words=dag.words(len(self._bit)),
            metadata_bytes=metadata_bytes(
                dag.vertices, self.vector, self._bit, self._context, self._early, self._owed
            ),
        )
