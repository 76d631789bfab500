"""Engines in one process and a network that the test drives: nothing moves unless the test says so."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from crdtcast.causality.messages import Transmit
from crdtcast.engine import Engine, GroupEngine

E = TypeVar("E", Engine, GroupEngine)
Wanted = Callable[[Any], bool]


class Engines(Generic[E]):
    """Engines by name; packets in flight by ordered pair of names, oldest first."""

    def __init__(self) -> None:
        self.engines: dict[str, E] = {}
        self.flights: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)

    def __getitem__(self, name: str) -> E:
        return self.engines[name]

    def id(self, name: str) -> str:
        return self.engines[name].me

    def is_linked(self, a: str, b: str) -> bool:
        """(For subclasses.) Whether what `a` sends now sets out for `b`."""
        raise NotImplementedError

    @staticmethod
    def change(sender: str, content: Any) -> Any:
        """What becomes of a packet on its way."""
        return content

    def lands(self, a: str, b: str, content: Any) -> bool:
        """(For subclasses.) Whether what arrives is not lost in the end."""
        return True

    def receive(self, a: str, b: str, content: Any) -> None:
        """What has landed is taken."""
        self.engines[b].receive(self.id(a), content)

    def post(self, *names: str) -> None:
        """Put what these engines (by default all) want sent in flight."""
        for name in names or list(self.engines):
            for effect in self.engines[name].take_outbox():
                self.send_off(name, effect)

    def send_off(self, sender: str, effect: Transmit) -> None:
        for name, engine in self.engines.items():
            if name != sender and effect.to in (None, engine.me) and self.is_linked(sender, name):
                self.flights[sender, name].append(effect.message)

    def arrive(self, a: str, b: str, wanted: Wanted | None = None) -> None:
        """Let what is in flight from `a` to `b` (or what is `wanted` of it) arrive."""
        self.post()
        self._arrive(a, b, wanted)

    def _arrive(self, a: str, b: str, wanted: Wanted | None = None) -> None:
        flight = self.flights[a, b]
        for content in list(flight):
            if wanted is None or wanted(content):
                flight.remove(content)
                self.hand_over(a, b, content)

    def hand_over(self, a: str, b: str, content: Any) -> None:
        """It has arrived."""
        content = self.change(a, content)
        if self.lands(a, b, content):
            self.receive(a, b, content)

    def drop(self, a: str, b: str) -> list[Any]:
        """Lose what is in flight from `a` to `b`."""
        self.post()
        lost = list(self.flights[a, b])
        self.flights[a, b].clear()
        return lost

    def pump(self, *names: str) -> None:
        """Let everything arrive (between `names`, if given) until nothing is in flight."""
        while True:
            self.post()
            busy = [
                pair
                for pair, flight in self.flights.items()
                if flight and (not names or set(pair) <= set(names))
            ]
            if not busy:
                return
            for pair in busy:
                self._arrive(*pair)

    def tick(self, *names: str) -> None:
        for name in names or list(self.engines):
            self.engines[name].tick()
