"""What our engines hold and have done, in the measures that all engines are compared by (Younes 2023, 8.3.1)."""

from collections.abc import Iterable, Mapping

from crdtcast.causality.messages import Message
from crdtcast.engine.causal_past import Pasts
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.interface import Measures
from crdtcast.engine.peer import Peer
from crdtcast.engine.stability import Stability
from crdtcast.engine.store import Store

WORD = 64
"""Bits in a word of a bit string."""


def measure(
    vectors: Iterable[Mapping[str, object]],
    peers: Mapping[str, Peer],
    store: Store,
    inbox: Inbox,
    stability: Stability,
    pasts: Pasts,
    digests: int,
) -> Measures:
    """The measures of one engine, from its parts.

    vectors: all of its vectors and its context. pasts: what tags share; of it, the published counts
    know the bits only. digests: how many it has received.
    """
    # Only comparisons need it, and the literature's engines are made of parts of this package.
    from crdtcast.baselines.sizes import metadata_bytes

    vectors = list(vectors)
    words = sum(2 * len(vector) for vector in (*vectors, stability.stable))
    for peer in peers.values():
        words += 2 * sum(len(row) for row in (peer.told, peer.aside) if row is not None)
        words += peer.covers.bit_length() // WORD + 1 + 2 * (len(peer.sent) + len(peer.sent_before))
    for stored in store.in_order():
        words += 2 + _message_words(stored.message)  # its place, its tick
    for bits in pasts.covers.values():
        words += 2 + (bits or 0).bit_length() // WORD + 1
    for message in inbox.messages():
        words += 2 + _message_words(message)  # the dot it waits for
    entries = stability.entries + digests * len(stability.stable)
    return Measures(
        work={"edge_visits": 0, "queue_scans": 0, "vector_entries": entries},
        metadata_words=words,
        metadata_bytes=metadata_bytes(*vectors, peers, store, inbox, stability, pasts),
    )


def _message_words(message: Message) -> int:
    return 2 + 2 * len(message.context)
