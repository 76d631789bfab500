"""Groups of fixed engines, whose packets the test lets arrive by hand."""

from itertools import combinations

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Delivery, Digest, DigestKind, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Durability, Engine, EngineState

from .engines import Engines

Content = Message | Digest


def incarnation(name: str, life: int = 1) -> str:
    return new_incarnation(name, life, 0)


def dot(name: str, counter: int, life: int = 1) -> Dot:
    return Dot(incarnation(name, life), counter)


def message(name: str, counter: int, *context: Dot, payload: bytes = b"") -> Message:
    return Message(dot(name, counter), context, payload)


def news(**counters: int) -> Digest:
    return digest(DigestKind.NEWS, **counters)


def digest(kind: DigestKind, **counters: int) -> Digest:
    return Digest(kind, {incarnation(name): counter for name, counter in counters.items()})


class Group(Engines[Engine]):
    """Fixed members by one-letter names. Deliveries are taken by the test, or when it lets the group `settle`."""

    def __init__(
        self, names: str, *, durable: Durability = Durability.IMMEDIATE, linked: bool = True
    ) -> None:
        super().__init__()
        self.names = list(names)
        self.durable = durable
        self.lives = dict.fromkeys(names, 1)
        self.up: set[tuple[str, str]] = set()
        for name in names:
            self.engines[name] = Engine(incarnation(name), self.names, durable=durable)
        if linked:
            for pair in combinations(names, 2):
                self.link(*pair)

    def is_linked(self, a: str, b: str) -> bool:
        return (a, b) in self.up

    def link(self, a: str, b: str) -> None:
        first, second = self.engines[a], self.engines[b]
        assert first.introduce(second.me)
        assert second.introduce(first.me)
        self.up |= {(a, b), (b, a)}
        first.connected(second.me)
        second.connected(first.me)

    def cut(self, a: str, b: str) -> None:
        self.up -= {(a, b), (b, a)}
        self.engines[a].disconnected(self.engines[b].me)
        self.engines[b].disconnected(self.engines[a].me)

    def restart(self, name: str, state: EngineState, *, same: bool = False) -> Engine:
        for other in self.names:
            if other != name and (name, other) in self.up:
                self.cut(name, other)
        for pair, flight in self.flights.items():
            if name in pair:
                flight.clear()
        if not same:
            self.lives[name] += 1
        me = incarnation(name, self.lives[name])
        engine = Engine(me, self.names, state=state, durable=self.durable)
        self.engines[name] = engine
        return engine

    def settle(self, rounds: int = 200) -> dict[str, list[Dot]]:
        """Ticks, arrivals, deliveries and notices until all is quiet; the stable notices by member."""
        notices: dict[str, list[Dot]] = {name: [] for name in self.names}
        for _ in range(rounds):
            self.pump()
            for name in self.names:
                take(self.engines[name])
                if self.durable is Durability.DECLARED:
                    self.engines[name].mark_durable(dict(self.engines[name].vector))
                notices[name] += stable(self.engines[name])
            self.pump()
            if all(engine.quiet for engine in self.engines.values()):
                return notices
            self.tick()
        raise AssertionError(
            {
                name: (engine.counters(), engine.held_back_by())
                for name, engine in self.engines.items()
            }
        )


def take(engine: Engine) -> list[Delivery]:
    """All that can be delivered now."""
    deliveries = []
    while (delivery := engine.poll()) is not None:
        deliveries.append(delivery)
    return deliveries


def stable(engine: Engine) -> list[Dot]:
    """All that can be reported stable now."""
    tags: list[Tag] = []
    while engine.has_stable():
        tags += engine.poll_stable()
    return [tag.dot for tag in tags]


def digests(contents: list[Content]) -> list[Digest]:
    return [content for content in contents if isinstance(content, Digest)]


def is_message(content: Content) -> bool:
    return isinstance(content, Message)


def is_digest(content: Content) -> bool:
    return isinstance(content, Digest)
