"""Our engine with the measures of all engines (Younes 2023, 8.3.1), for comparisons."""

from benchmarks.baselines.interface import Measures
from benchmarks.baselines.sizes import metadata_bytes
from crdtcast.causality.messages import Message
from crdtcast.engine import Engine

WORD = 64
"""Bits in a word of a bit string."""


class MeasuredEngine(Engine):
    """`Engine` with `CausalEngine.measures`, which reads its private state."""

    def measures(self) -> Measures:
        """Work and metadata. Walks everything that the engine holds."""
        vectors = (self.vector, self.stable, self._acknowledged)
        parts = (self._peers, self._store, self._inbox, self._stability, self._pasts)
        entries = self._stability.entries + self._digests_in * len(self._stability.stable)
        return Measures(
            work={"edge_visits": 0, "queue_scans": 0, "vector_entries": entries},
            metadata_words=sum(2 * len(vector) for vector in vectors) + self._words(),
            metadata_bytes=metadata_bytes(*vectors, *parts),
        )

    def _words(self) -> int:
        words = 2 * len(self._stability.stable)
        for peer in self._peers.values():
            words += 2 * sum(len(row) for row in (peer.told, peer.aside) if row is not None)
            words += peer.covers.bit_length() // WORD + 1
            words += 2 * (len(peer.sent) + len(peer.sent_before))
        for stored in self._store.in_order():
            words += 2 + _message_words(stored.message)  # its place, its tick
        # Of what tags share, the published counts include only the bits.
        for bits in self._pasts.covers.values():
            words += 2 + (bits or 0).bit_length() // WORD + 1
        for message in self._inbox.messages():
            words += 2 + _message_words(message)  # the dot it waits for
        return words


def _message_words(message: Message) -> int:
    return 2 + 2 * len(message.context)
