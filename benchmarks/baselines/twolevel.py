"""Classical two-level tagging: the middleware delivers with its vector, and the application adds a second vector.

This is the "classical end-to-end VV" of Younes 2023 (3.6 and 8.4.1). An application on CBCAST or JGroups has to do this
to know what is concurrent. Repaired: docs/baselines.md, *Two-level*.
"""

from dataclasses import dataclass
from typing import Any

from benchmarks.baselines.vectors import MatrixEngine
from crdtcast.causality.tags import Dot


@dataclass(frozen=True, slots=True)
class TwoLevelMessage:
    """One broadcast. Both vectors include this message.

    vector: what its sender's middleware had ordered for delivery, so it may order too much.
    application_vector: what the sender's application had sent or delivered.
    """

    dot: Dot
    vector: tuple[int, ...]
    application_vector: tuple[int, ...]
    payload: bytes

    def wire_fields(self) -> list[Any]:
        """The fields on the wire. Both vectors go in full, since the middleware knows only its own."""
        return [0, self.dot.origin, self.payload, list(self.vector), list(self.application_vector)]


class TwoLevelEngine(MatrixEngine[TwoLevelMessage]):
    """Both levels of one member: the middleware is ahead of the application, which has its own vector for tags.

    Stability also uses the application's vectors: a middleware may acknowledge what its application has not seen.
    """

    message_type = TwoLevelMessage

    def _stamp(self, dot: Dot, payload: bytes) -> TwoLevelMessage:
        return TwoLevelMessage(dot, tuple(self._ordered), tuple(self._delivered), payload)

    def _fits(self, position: int, message: TwoLevelMessage) -> bool:
        application_vector = message.application_vector
        return (
            super()._fits(position, message)
            and len(application_vector) == self._size
            and application_vector[position] == message.dot.counter
        )

    def _application_vector(self, message: TwoLevelMessage) -> tuple[int, ...]:
        return message.application_vector

    def _message_words(self) -> int:
        return 1 + 2 * self._size
