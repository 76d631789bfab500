"""The simulated application: which operations are applied, and under which dots. It is copied when somebody joins.

A payload names one operation for good, so applying it twice, or losing it, shows. Some are *removals*: of everything
that their sender has seen, and nothing else. What a joiner must fetch besides a copy that it got earlier is computed
from the state, never from a store of messages (docs/protocol.md).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.causality.tags import Dot, Vector


@dataclass(frozen=True, slots=True)
class ApplicationCopy:
    """The state of a member's application at one instant, which `vector` covers."""

    applied: dict[bytes, Dot]
    vector: Vector


def operation_name(number: int, sender: str) -> bytes:
    """The payload of the operation of that number in a run; every fourth is a removal."""
    return b"%s:%d%s" % (sender.encode(), number, b"!" if number % 4 == 3 else b"")


def is_removal(payload: bytes) -> bool:
    """Whether it removes what its sender had seen."""
    return payload.endswith(b"!")


def with_meaning(payload: bytes, seen: Iterable[bytes]) -> bytes:
    """A removal that is sent again: it lists what it meant, since its new place in causal history says more."""
    return payload + b"=" + b",".join(sorted(seen))


def without_meaning(payload: bytes) -> tuple[bytes, frozenset[bytes] | None]:
    """The operation, and what it lists if it is a removal that was sent again."""
    operation, sign, listed = payload.partition(b"=")
    return operation, frozenset(filter(None, listed.split(b","))) if sign else None


@dataclass(slots=True)
class SimulatedApplication:
    """All operations: payload -> the dot under which it is applied; and those that were removed again."""

    applied: dict[bytes, Dot] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)

    def apply(self, payload: bytes, dot: Dot) -> bool:
        """Apply an operation. False: it is applied already, which nobody may cause."""
        if payload in self.applied:
            return False
        self.applied[payload] = dot
        return True

    def remove(self, is_before: Callable[[Dot], bool]) -> None:
        """A removal is applied: what happened before it is removed."""
        self.removed.update(p for p, dot in self.applied.items() if is_before(dot))

    def copy(self) -> "SimulatedApplication":
        """The same state, independent of this one."""
        return SimulatedApplication(dict(self.applied), set(self.removed))

    def beyond(self, vector: Vector) -> dict[bytes, Dot]:
        """What a copy taken at `vector` lacks; origins that it does not name were past there, or not yet met."""
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
    """Whether an id that is not named where these counters hold had ended there already, rather than not yet joined.

    If its contact is not named either, nobody can tell: the contact may have joined later. Then it had better be sent.
    """
    contact = joined_by(origin)
    return contact is None or bases.get(contact[0], 0) >= contact[1]
