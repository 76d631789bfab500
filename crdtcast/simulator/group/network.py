"""The network of a simulated group: packets in flight between hosts, blocked directions, and connections.

A packet belongs to a link between two processes, as on TCP: a restarted process never gets it. A blocked direction
loses what is sent, while both sides take the link for alive. Both sides notice a cut.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something in flight from the process of incarnation `sender` to process number `process` of a host."""

    sender: str
    process: int
    content: Any


class Wires:
    """Packets by ordered pair of host names. All orders are those of insertion, so that runs repeat."""

    def __init__(self) -> None:
        self.flights: dict[tuple[str, str], list[Parcel]] = {}
        self._blocked: dict[tuple[str, str], None] = {}
        self._connected: dict[tuple[str, str], None] = {}

    @property
    def busy(self) -> list[tuple[str, str]]:
        """Pairs with something in flight."""
        return list(self.flights)

    @property
    def blocked(self) -> list[tuple[str, str]]:
        """Blocked directions."""
        return list(self._blocked)

    def open(self, a: str, b: str) -> bool:
        """Whether packets get through in both directions."""
        return (a, b) not in self._blocked and (b, a) not in self._blocked

    def block(self, a: str, b: str) -> bool:
        """Lose packets from a to b from now on. Returns False if that direction was blocked already."""
        if (a, b) in self._blocked:
            return False
        self._blocked[a, b] = None
        return True

    def unblock(self, a: str, b: str) -> bool:
        """Make both directions work. Returns False if they did already."""
        there = (a, b) in self._blocked
        back = (b, a) in self._blocked
        self._blocked.pop((a, b), None)
        self._blocked.pop((b, a), None)
        return there or back

    def connected(self, a: str, b: str) -> bool:
        """Whether their processes have a link."""
        return ((a, b) if a < b else (b, a)) in self._connected

    def connect(self, a: str, b: str) -> None:
        """Link their processes."""
        self._connected[(a, b) if a < b else (b, a)] = None

    def disconnect(self, a: str, b: str) -> bool:
        """Remove the link; packets in flight stay in flight. Returns False if there was no link."""
        key = (a, b) if a < b else (b, a)
        if key not in self._connected:
            return False
        del self._connected[key]
        return True

    def peers(self, a: str) -> list[str]:
        """Hosts that a has a link with, sorted."""
        return sorted(y if x == a else x for x, y in self._connected if a in (x, y))

    def post(self, a: str, b: str, parcel: Parcel) -> bool:
        """Put a packet on its way. Returns False if it is lost, since that direction is blocked."""
        if (a, b) in self._blocked:
            return False
        self.flights.setdefault((a, b), []).append(parcel)
        return True

    def take(self, a: str, b: str, place: int, *, keep: bool = False) -> Parcel | None:
        """Remove (or copy) the packet at this place in the order of sending; None if there is none at that place."""
        flight = self.flights.get((a, b), [])
        if not 0 <= place < len(flight):
            return None
        if keep:
            return flight[place]
        parcel = flight.pop(place)
        if not flight:
            del self.flights[a, b]
        return parcel

    def forget(self, receiver: str) -> None:
        """The receiver has died: packets on their way to it are lost."""
        for pair in [pair for pair in self.flights if pair[1] == receiver]:
            del self.flights[pair]

    def lose(self, sender: str) -> None:
        """The sender has died: its packets in flight are lost, too."""
        for pair in [pair for pair in self.flights if pair[0] == sender]:
            del self.flights[pair]
