"""The fate of every operation that an application has issued: the rule "exactly once", over all dots of a payload.

*Acknowledged* means that the journal had the operation when the application got its acknowledgement. Such an operation
must be applied once at every member, whatever happened to its node. Operations that a node has lost (a torn journal, a
death) may survive elsewhere or not, but the same at all members. What was rolled back before a sync never happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group.application import without_meaning
from crdtcast.simulator.group.machine import Machine


@dataclass(slots=True)
class Ledger:
    """Operations by the node that issued them, in the order of issue."""

    issued: dict[str, list[bytes]] = field(default_factory=dict)
    _synced: dict[str, int] = field(default_factory=dict)
    void: set[bytes] = field(default_factory=set)
    loose: set[bytes] = field(default_factory=set)
    repeatable: set[bytes] = field(default_factory=set)
    """Operations that may be applied twice: the journal that knew of the second dot is lost."""
    seen: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    """Removal -> the operations that were applied where it was issued, which are those that it removes."""

    def issue(self, node: str, payload: bytes) -> None:
        """The application at `node` has sent this."""
        self.issued.setdefault(node, []).append(payload)

    def synced(self, node: str) -> int:
        """All that `node` has issued is durable. Returns the number of these operations."""
        self._synced[node] = len(self.issued.get(node, ()))
        return self._synced[node]

    def crashed(self, node: str) -> None:
        """`node` has crashed: what it issued since its last sync never happened."""
        issued = self.issued.get(node, [])
        durable = self._synced.get(node, 0)
        self.void.update(issued[durable:])
        del issued[durable:]

    def torn(self, node: str, position: int) -> None:
        """The journal of `node` has lost the operations after the first `position`, though they were acknowledged."""
        self.crashed(node)
        self.loose.update(self.issued.get(node, [])[position:])

    def wrongly_removed(self, applied: Iterable[bytes], removed: set[bytes]) -> set[bytes]:
        """Operations that are removed although no removal covers them, and those not removed although one does."""
        meant = set().union(*(self.seen.get(payload, ()) for payload in applied))
        return (removed ^ meant) - self.repeatable

    def wrong(
        self, states: dict[str, Iterable[bytes]], dead: Iterable[str]
    ) -> tuple[str, str] | None:
        """(kind, text) of the first error in the final states of the living, or None."""
        sets = {name: set(state) for name, state in states.items()}
        if not sets:
            return None
        union: set[bytes] = set().union(*sets.values())
        for name, state in sets.items():
            if lacking := union - state:
                return "payload-differs", f"{name} lacks {_text(lacking)}, which others have"
            if never := state & self.void:
                return "payload-ghost", f"{name} has {_text(never)}, which never was acknowledged"
        dead = set(dead)
        due = {
            payload
            for node, issued in self.issued.items()
            if node not in dead
            for payload in issued
        } - self.loose
        if lost := due - union:
            return "payload-loss", f"acknowledged, and lost: {_text(lost)}"
        return None


class Formats:
    """The format level of each operation that was sent, for the oracle."""

    def __init__(self) -> None:
        self._levels: dict[bytes, int] = {}

    def sent(self, operation: bytes, level: int) -> None:
        """An operation was sent in this level."""
        self._levels[operation] = level

    def level(self, payload: bytes) -> int:
        """The level of an operation, also of one that is sent again."""
        return self._levels.get(without_meaning(payload)[0], 1)

    def check(self, machine: Machine, payloads: Iterable[bytes]) -> None:
        """Check that the program of a machine can read what its application gets. Raises Failure if it cannot."""
        for payload in payloads:
            if self.level(payload) not in machine.reads:
                raise Failure(
                    "unreadable",
                    f"{machine.name} reads {machine.reads}, and is given {payload.decode()} of level"
                    f" {self.level(payload)}",
                )


def _text(payloads: Iterable[bytes]) -> str:
    return ", ".join(sorted(payload.decode() for payload in payloads))
