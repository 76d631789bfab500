"""The interface of causal broadcast engines: ours, the literature's in `benchmarks.baselines`, and your own.

A runtime gives it messages and ticks, lets its application take deliveries and notices, and sends what
`take_outbox` returns. The experiments use only this interface.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from crdtcast.causality.messages import Delivery, Transmit
from crdtcast.causality.tags import Tag, Vector


@dataclass(frozen=True, slots=True)
class Measures:
    """What an engine has done and what it holds, for comparisons.

    work: running totals by name, such as `edge_visits` or `queue_scans`.
    metadata_words: words held now, as the thesis counts (one each for an identifier, counter, edge, word of bits).
    metadata_bytes: bytes held now, in real memory, without payloads.
    """

    work: Mapping[str, int]
    metadata_words: int
    metadata_bytes: int


class CausalEngine(Protocol):
    """One member as a state machine: tcbroadcast, tcdeliver, tcstable, and input from the network."""

    me: str

    @property
    def delivered(self) -> Vector:
        """Origin -> highest counter delivered here."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether nothing waits and nothing is unstable at this member."""
        ...

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up."""
        ...

    def disconnected(self, peer: str) -> None:
        """The link with this peer is down; what was sent on it may be lost."""
        ...

    def send(self, payload: bytes) -> Tag:
        """tcbroadcast."""
        ...

    def receive(self, sender: str, message: Any) -> None:
        """Take what `sender` sent."""
        ...

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member."""
        ...

    def has_stable(self) -> bool:
        """Whether `poll_stable` would return a tag."""
        ...

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        """tcstable: tags that have become stable, each once, in an order that respects causality."""
        ...

    def tick(self) -> None:
        """The timer."""
        ...

    def take_outbox(self) -> list[Transmit]:
        """The effects since the last call, in order."""
        ...

    def measures(self) -> Measures:
        """Work and metadata, for comparisons. May walk everything that the engine holds."""
        ...
