"""The simulated network: packets in flight between lives of members, in the order that the scheduler chooses."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Packet:
    """Something in flight. It belongs to a link between two lives, as on TCP: a restarted receiver never gets it."""

    sender: str
    receiver_life: int
    content: Any


class BaselineNetwork:
    """Packets by ordered pair of names, and which pairs are linked."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.flights: dict[tuple[str, str], list[Packet]] = {
            (a, b): [] for a in names for b in names if a != b
        }
        self._up: dict[tuple[str, str], bool] = dict.fromkeys(self.flights, False)

    def linked(self, a: str, b: str) -> bool:
        """Whether there is a link between the two."""
        return self._up[a, b]

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Bring the link between the two up or down; packets in flight stay in flight."""
        self._up[a, b] = self._up[b, a] = up

    def post(self, a: str, b: str, packet: Packet) -> None:
        """Put a packet on its way, if there is a link."""
        if self._up[a, b]:
            self.flights[a, b].append(packet)

    def take(self, a: str, b: str, place: int, *, keep: bool = False) -> Packet | None:
        """Remove (or copy) the packet at this place in the order of sending; None if there is none at that place."""
        flight = self.flights[a, b]
        if not 0 <= place < len(flight):
            return None
        return flight[place] if keep else flight.pop(place)

    @property
    def busy(self) -> list[tuple[str, str]]:
        """Pairs with something in flight."""
        return [pair for pair, flight in self.flights.items() if flight]

    def forget(self, receiver: str) -> None:
        """The receiver has died: packets on their way to it are lost."""
        for pair, flight in self.flights.items():
            if pair[1] == receiver:
                flight.clear()
