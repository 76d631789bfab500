"""Limits on unauthenticated connections: handshakes under way, and connections from one host. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """A connection that was opened from `host`. give_way: ends its handshake."""

    host: str
    give_way: Callable[[], None]


class ConnectionAdmission:
    """Counts incoming connections. A host that opens connections and sends nothing must not keep others out: of too
    many handshakes the oldest of the host with most of them is ended.
    """

    def __init__(self, max_handshakes: int, max_host_connections: int) -> None:
        self.max_handshakes = max_handshakes
        self.max_host_connections = max_host_connections
        self._connections: Counter[str] = Counter()
        self._greeting: dict[Visit, None] = {}

    def enter(self, visit: Visit) -> bool:
        """A connection has come, and its handshake begins. Returns False if its host has too many."""
        if self._connections[visit.host] >= self.max_host_connections:
            return False
        if len(self._greeting) >= self.max_handshakes:
            self._make_room()
        self._connections[visit.host] += 1
        self._greeting[visit] = None
        return True

    def _make_room(self) -> None:
        crowd = Counter(visit.host for visit in self._greeting)
        largest = max(crowd.values())
        oldest = next(visit for visit in self._greeting if crowd[visit.host] == largest)
        self.greeted(oldest)
        oldest.give_way()

    def greeted(self, visit: Visit) -> None:
        """The handshake is over, successful or not."""
        self._greeting.pop(visit, None)

    def leave(self, visit: Visit) -> None:
        """The connection is closed."""
        self.greeted(visit)
        self._connections[visit.host] -= 1
        if not self._connections[visit.host]:
            del self._connections[visit.host]
