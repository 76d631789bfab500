"""The causal graph of dependency dots: missing predecessors until delivery, missing acknowledgements until stability.

G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for Geo-Replicated Services*, 2023, 4.4 and 5.1.2.
One bit string serves both: before delivery it has bits of the origins of undelivered predecessors, after delivery bits
of members not known to have delivered the message. The published recursions are loops in this module, since a chain of
dependencies may have any length.
"""

import enum
from collections import deque
from collections.abc import Mapping

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector

WORD = 64
"""Bits in a word of a bit string."""


class Stage(enum.Enum):
    """The stage of a message.

    SLOT: only named by other messages so far.
    STABLE: stable, but not yet reported to the application.
    """

    SLOT = enum.auto()
    RECEIVED = enum.auto()
    DELIVERED = enum.auto()
    STABLE = enum.auto()


class Vertex:
    """One message in the graph. `message` is None after delivery; stable messages have no bits."""

    __slots__ = ("bits", "dot", "message", "pred", "stage", "succ")

    def __init__(self, dot: Dot) -> None:
        self.dot: Dot = dot
        self.stage: Stage = Stage.SLOT
        self.bits: int = 0
        self.pred: dict[Dot, Vertex] = {}
        self.succ: list[Vertex] = []
        self.message: Message | None = None


class CausalDag:
    """Vertices by dot. `ripe` has the stable ones that are not reported yet, in an order that respects causality."""

    __slots__ = ("bit_operations", "edge_visits", "ripe", "vertices")

    def __init__(self) -> None:
        self.vertices: dict[Dot, Vertex] = {}
        self.ripe: deque[Vertex] = deque()
        self.edge_visits: int = 0
        self.bit_operations: int = 0

    def insert(self, message: Message, delivered: Vector, bit: Mapping[str, int]) -> Vertex:
        """Add a message, with edges to all predecessors that are not stable and a bit for each undelivered one."""
        vertices = self.vertices
        vertex = vertices.get(message.dot)
        if vertex is None:
            vertex = vertices[message.dot] = Vertex(message.dot)
        bits = 0
        for dot in message.context:
            pred = vertices.get(dot)
            if pred is None:
                if delivered[dot.origin] >= dot.counter:
                    continue  # delivered and gone: stable, or there is no stability
                pred = vertices[dot] = Vertex(dot)
            elif pred.stage is Stage.STABLE:
                continue
            pred.succ.append(vertex)
            vertex.pred[pred.dot] = pred
            if pred.stage is not Stage.DELIVERED:
                bits |= bit[dot.origin]
        self.edge_visits += len(message.context)
        vertex.stage = Stage.RECEIVED
        vertex.message = message
        vertex.bits = bits
        return vertex

    def deliver(self, vertex: Vertex, sender: int, awaited: int) -> list[Vertex]:
        """Mark a vertex delivered. Returns the successors that wait for nothing more.

        sender: the bit of its origin.
        awaited: the bits of members that have to acknowledge it.
        """
        vertex.stage = Stage.DELIVERED
        vertex.message = None
        vertex.bits = awaited
        freed = []
        for successor in vertex.succ:
            bits = successor.bits = successor.bits & ~sender
            if not bits:
                freed.append(successor)
        visits = len(vertex.succ)
        self.edge_visits += visits
        self.bit_operations += visits
        return freed

    def acknowledge(self, vertex: Vertex, mask: int) -> None:
        """The members of `mask` have delivered this delivered message, and so everything before it.

        The walk stops at vertices that they have acknowledged already, since everything before these is acknowledged.
        """
        self.bit_operations += 1
        if not vertex.bits & mask:
            return
        bits = vertex.bits = vertex.bits & ~mask
        if not bits:
            self.stabilise(vertex)
            return
        visits = 0
        unmask = ~mask
        stack = [vertex]
        while stack:
            preds = stack.pop().pred
            visits += len(preds)
            for pred in preds.values():
                bits = pred.bits
                if bits & mask:
                    bits = pred.bits = bits & unmask
                    if bits:
                        stack.append(pred)
                    else:
                        self.stabilise(pred)
        self.edge_visits += visits
        self.bit_operations += visits

    def stabilise(self, vertex: Vertex) -> None:
        """Mark this vertex stable, after everything before it."""
        stack = [vertex]
        while stack:
            vertex = stack[-1]
            if vertex.stage is Stage.STABLE:
                stack.pop()
                continue
            before = [pred for pred in vertex.pred.values() if pred.stage is not Stage.STABLE]
            self.edge_visits += len(vertex.pred)
            if before:
                stack.extend(before)
            else:
                stack.pop()
                vertex.stage = Stage.STABLE
                vertex.bits = 0
                self.ripe.append(vertex)

    def open_position(self, position: int) -> None:
        """Insert a bit in every string for a new member at this position. It is set for delivered messages, which await
        the member.
        """
        low = (1 << position) - 1
        for vertex in self._with_bits():
            high = vertex.bits >> position << 1 | (vertex.stage is Stage.DELIVERED)
            vertex.bits = high << position | vertex.bits & low

    def close_position(self, position: int) -> None:
        """Remove the bit of the member at this position from every string. Call `settle` afterwards."""
        low = (1 << position) - 1
        for vertex in self._with_bits():
            vertex.bits = vertex.bits >> position + 1 << position | vertex.bits & low

    def _with_bits(self) -> list[Vertex]:
        found = [
            vertex
            for vertex in self.vertices.values()
            if vertex.stage is Stage.DELIVERED or vertex.stage is Stage.RECEIVED
        ]
        self.bit_operations += len(found)
        return found

    def settle(self) -> None:
        """Stabilise what no member has to acknowledge any more, after bits were removed without an acknowledgement."""
        for vertex in self._with_bits():
            if vertex.stage is Stage.DELIVERED and not vertex.bits:
                self.stabilise(vertex)

    def delete(self, vertex: Vertex) -> None:
        """Remove a vertex that is not needed any more."""
        del self.vertices[vertex.dot]
        dot = vertex.dot
        for successor in vertex.succ:
            successor.pred.pop(dot, None)
        self.edge_visits += len(vertex.succ)

    def words(self, members: int) -> int:
        """The thesis's count (8.3.1.1): dot 2, stage 1, bit string 1 for each 64 members, each edge 2 at both ends."""
        bits = -(-members // WORD)
        return sum(3 + bits + 2 * len(v.pred) + 2 * len(v.succ) for v in self.vertices.values())
