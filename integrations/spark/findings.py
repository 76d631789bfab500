"""A finding, and its text. This file knows no Spark."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crdtcast.causality.member_id import name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """At `replica` (line `seq` of the log of `incarnation`), about the dot `origin`, `counter`.

    `other_origin`, `other_counter` is the second message, if there is one; `peers` are further replicas, or
    incarnations, that it involves; `number` is a count whose meaning `text` gives.
    """

    check: str
    problem: str
    group: str
    replica: str
    incarnation: str
    seq: int | None = None
    origin: str | None = None
    counter: int | None = None
    other_origin: str | None = None
    other_counter: int | None = None
    object: str | None = None
    peers: tuple[str, ...] = ()
    number: int | None = None

    @property
    def dot(self) -> str:
        """The message that it is about, as text; empty if there is none."""
        return "" if self.counter is None else f"{self.origin}:{self.counter}"

    @property
    def involved(self) -> frozenset[str]:
        """Names of the replicas whose logs it is based on."""
        return frozenset({self.replica, *(name_of(peer) or peer for peer in self.peers)})

    @property
    def text(self) -> str:
        """One sentence for people."""
        template = _TEXTS[self.check, self.problem]
        names = [name_of(peer) or peer for peer in self.peers]
        shown = ", ".join(sorted(set(names))[:5]) + (" …" if len(set(names)) > 5 else "")
        return template.format(
            dot=self.dot,
            other=f"{self.other_origin}:{self.other_counter}",
            peers=shown,
            number=self.number,
            object=self.object,
            replica=self.replica,
            seq=self.seq,
        )

    def as_dict(self) -> dict[str, Any]:
        """The finding for JSON."""
        return {**asdict(self), "peers": list(self.peers), "text": self.text}


def from_row(row: Mapping[str, Any]) -> Finding:
    """A finding from a row of `schema.FINDING`."""
    return Finding(**{**row, "peers": tuple(row["peers"] or ())})


_TEXTS = {
    ("log", "hole"): "the log of {replica} lacks {number} lines before line {seq}",
    ("log", "line twice"): "line {seq} of the log of {replica} occurs more than once",
    ("order", "duplicate"): "{replica} delivered {dot} again",
    (
        "order",
        "not its origin",
    ): "{replica} logged {dot} as its own message, but it is another member's",
    ("order", "never sent"): "{replica} delivered {dot}, but its origin's log never sent it",
    ("order", "rolled back"): (
        "{replica} restarted as the same incarnation with a state from before its delivery of {dot}"
    ),
    (
        "order",
        "missing",
    ): "{replica} never delivered {dot}, but delivered later messages of the same origin",
    ("order", "missing at the end"): "{replica} never delivered {dot} ({number} messages of "
    "that origin are missing at the end of its log)",
    ("order", "out of order"): "{replica} delivered {dot} after {other} of the same origin",
    ("causality", "dependency missing"): "{replica} delivered {dot} without {other}, on which it "
    "depends",
    ("causality", "dependency late"): "{replica} delivered {dot} before {other}, on which it "
    "depends",
    ("causality", "dependency omitted"): (
        "{dot} does not name {other} as a dependency, though {replica} had delivered it "
        "before sending"
    ),
    (
        "stability",
        "not delivered by all",
    ): "{replica} was notified that {dot} is stable, but {peers} never delivered it",
    ("stability", "early"): (
        "{replica} was notified that {dot} is stable before it had delivered {other}, "
        "which is concurrent with it"
    ),
    ("stability", "early, an ended incarnation"): (
        "{replica} was notified that {dot} is stable before it had delivered all concurrent "
        "messages of an ended incarnation of {peers}"
    ),
    ("stability", "twice"): "{replica} was notified again that {dot} is stable",
    (
        "stability",
        "before its delivery",
    ): "{replica} was notified that {dot} is stable before it had delivered it",
    (
        "stability",
        "out of order",
    ): "{replica} was notified that {dot} is stable before {other}, on which it depends",
    ("convergence", "parted"): (
        "{peers}: values of object {object} differ after the same operations (first at line "
        "{seq} of {replica}; number of differing cuts: {number})"
    ),
    ("garbage", "leak"): (
        "{replica} was never notified that {dot} is stable, though it had all that it needed "
        "to know this"
    ),
    ("garbage", "metadata left"): "{replica} keeps {number} entries of metadata although "
    "everything is stable",
}
