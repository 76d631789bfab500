"""The simulated application: which operations are applied, and under which dots. A joiner gets a copy of it.

A payload names one operation uniquely, so it is visible if one is applied twice, or lost. Some are *removals*: of
everything that their sender has seen, and nothing else. What a joiner needs in addition to an earlier copy is computed
from the state, never from a store of messages (docs/protocol.md).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.causality.tags import Dot, Vector


@dataclass(frozen=True, slots=True)
class ApplicationCopy:
    """The state of a member's application at one instant, that of `vector`."""

    applied: dict[bytes, Dot]
    vector: Vector


def operation_name(number: int, sender: str) -> bytes:
    """The payload of the operation with that number in a run; every fourth is a removal."""
    return b"%s:%d%s" % (sender.encode(), number, b"!" if number % 4 == 3 else b"")


def is_removal(payload: bytes) -> bool:
    """Whether this operation removes what its sender had seen."""
    return payload.endswith(b"!")


def with_meaning(payload: bytes, seen: Iterable[bytes]) -> bytes:
    """A removal that is sent again. It lists what it removes, since its new place in causal history covers more."""
    return payload + b"=" + b",".join(sorted(seen))


def without_meaning(payload: bytes) -> tuple[bytes, frozenset[bytes] | None]:
    """The operation, and the list of a removal that was sent again (else None)."""
    operation, sign, listed = payload.partition(b"=")
    return operation, frozenset(filter(None, listed.split(b","))) if sign else None


@dataclass(slots=True)
class SimulatedApplication:
    """All applied operations, by payload with their dot; and those that were removed."""

    applied: dict[bytes, Dot] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)

    def apply(self, payload: bytes, dot: Dot) -> bool:
        """Apply an operation. Returns False if it is applied already, which must not happen."""
        if payload in self.applied:
            return False
        self.applied[payload] = dot
        return True

    def remove(self, is_before: Callable[[Dot], bool]) -> None:
        """Apply a removal: remove the operations that happened before it."""
        self.removed.update(p for p, dot in self.applied.items() if is_before(dot))

    def copy(self) -> "SimulatedApplication":
        """The same state, independent of this one."""
        return SimulatedApplication(dict(self.applied), set(self.removed))

    def beyond(self, vector: Vector) -> dict[bytes, Dot]:
        """What a copy at `vector` lacks. An origin that the vector does not name had ended there, or not yet joined."""
        bases = {base_of(origin): counter for origin, counter in vector.items()}
        complete: dict[str, bool] = {}
        lacking = {}
        for payload, dot in self.applied.items():
            known = vector.get(dot.origin)
            if known is None:
                if dot.origin not in complete:
                    complete[dot.origin] = _was_past(dot.origin, bases)
                if complete[dot.origin]:
                    continue
            if dot.counter > (known or 0):
                lacking[payload] = dot
        return lacking


def _was_past(origin: str, bases: dict[str, int]) -> bool:
    """Whether an id that these counters do not name had ended already, rather than not yet joined.

    If they do not name its contact either, this is unknown, since the contact may have joined later. Then returns
    False, so that its operations are sent.
    """
    contact = joined_by(origin)
    return contact is None or bases.get(contact[0], 0) >= contact[1]
