"""Tagged causal delivery with vectors, the stability matrix and a delay queue.

G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for Geo-Replicated Services*, 2023, Algorithms 2, 3
(without stability), 6 and 7 (with), repaired: docs/baselines.md, *Vectors*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.baselines.matrix import StabilityMatrix
from benchmarks.baselines.ordering import DelayQueueEngine, M
from benchmarks.baselines.positions import VectorView
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class VectorMessage:
    """One broadcast.

    vector: what its sender's application had sent or delivered, this message included.
    """

    dot: Dot
    vector: tuple[int, ...]
    payload: bytes

    def wire_fields(self) -> list[Any]:
        """The fields on the wire; the counter of the dot is in the vector."""
        return [0, self.dot.origin, self.payload, list(self.vector)]


@dataclass(frozen=True, slots=True)
class VectorNotice:
    """What its sender's application has sent or delivered, sent without a message."""

    vector: tuple[int, ...]

    def wire_fields(self) -> list[Any]:
        """What has to travel; the link says who sent it."""
        return [1, list(self.vector)]


class MatrixEngine(DelayQueueEngine[M]):
    """Stability from the vectors that the other members' applications had when they last sent or ticked."""

    matrix_type: ClassVar[type[StabilityMatrix]] = StabilityMatrix

    def __init__(self, me: str, members: Sequence[str], *, stability: bool = True) -> None:
        super().__init__(me, members, stability=stability)
        self._matrix = self.matrix_type(self._own, self._size)
        self._early: dict[int, tuple[int, ...]] = {}  # position -> a vector that waits for messages
        self._untold = False

    def _application_vector(self, message: M) -> tuple[int, ...]:
        """What the sender's application had sent or delivered, this message included."""
        return message.vector

    def _tag(self, position: int, message: M) -> Tag:
        vector = self._application_vector(message)
        return Tag(message.dot, (), VectorView(self._positions, vector, position))

    def tick(self) -> None:
        """The timer: send the own vector, unless the last message or notice had the same."""
        if self._untold:
            self._untold = False
            self._outbox.append(Transmit(None, VectorNotice(tuple(self._delivered))))

    def _owes(self) -> bool:
        return self._untold

    def _note_sent(self, message: M, tag: Tag) -> None:
        self._unstable.remember(tag)
        self._untold = False

    def _note_delivered(self, position: int, message: M, tag: Tag) -> None:
        self._unstable.remember(tag)
        self._untold = True
        row = self._application_vector(message)
        early = self._early.get(position)
        if early is not None and early[position] <= row[position]:
            row = max(row, self._early.pop(position))
        self._adopt(position, row)

    def _receive_control(self, position: int, message: Any) -> None:
        """A vector counts when all that its sender had sent before it is delivered here.

        Otherwise a concurrent message that its sender had sent before could be delivered after the stable notice. All
        vectors of one member are comparable, so the greatest tuple is the newest.
        """
        if type(message) is not VectorNotice or len(message.vector) != self._size:
            raise RemoteProtocolError(
                f"{self._positions.members[position]} sent {message!r}, which is not a message or "
                "vector"
            )
        if not self._stability:
            return
        vector = message.vector
        if vector[position] > self._delivered[position]:
            self._early[position] = max(vector, self._early.get(position, vector))
        elif vector > self._matrix.row(position):
            self._adopt(position, vector)

    def _adopt(self, position: int, row: tuple[int, ...]) -> None:
        rose = self._matrix.adopt(position, row)
        if rose:
            self._unstable.release(rose)

    def _stability_words(self) -> int:
        return self._matrix.words() + (1 + self._size) * len(self._early)

    def _stability_entries(self) -> int:
        return self._matrix.entries

    def _stability_structures(self) -> list[object]:
        return [self._matrix, self._early]


class VectorEngine(MatrixEngine[VectorMessage]):
    """The thesis's optimised engine: one vector, the application's, serves for order, tags and acknowledgements."""

    message_type = VectorMessage

    def _stamp(self, dot: Dot, payload: bytes) -> VectorMessage:
        return VectorMessage(dot, tuple(self._delivered), payload)
