"""A group with members that come and go on a network that the test cuts and heals by hand; all else arrives at once.

Applications are lists of payloads. A joiner gets its contact's list with the admission.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

from crdtcast.causality.member_id import name_of, new_incarnation
from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Tag
from crdtcast.engine import GroupEngine, OperationKind, Standing

from .engines import Engines


class Town(Engines[GroupEngine]):
    """Engines and applications by name. A name that comes again gets a fresh incarnation."""

    def __init__(
        self,
        names: Iterable[str],
        witnesses: Iterable[str] = (),
        engine_type: type[GroupEngine] | None = None,
    ) -> None:
        super().__init__()
        self.engine_type = engine_type = engine_type or GroupEngine
        self.passes: Callable[[str, str, object], bool] = lambda sender, receiver, content: True
        """What is not lost without anybody noticing."""
        self.log: dict[str, list[bytes]] = {}
        self.cuts: set[frozenset[str]] = set()
        self._serial = 0
        ids = {name: self.fresh_base(name) for name in names}
        for name, me in ids.items():
            voters = [ids[w] for w in witnesses]
            self.engines[name] = engine_type.found(me, ids.values(), voters)
            self.log[name] = []
        for pair in combinations(ids, 2):
            self._link(*pair)

    def fresh_base(self, name: str) -> str:
        self._serial += 1
        return new_incarnation(name, self._serial, 0)

    # What applications do

    def send(self, name: str, *payloads: bytes) -> list[Tag]:
        tags = [self.engines[name].send(payload) for payload in payloads]
        self.log[name] += payloads
        return tags

    def join(
        self, name: str, contact: str, replaces: Iterable[str] = (), *, witness: bool = False
    ) -> GroupEngine:
        """A process called `name` joins through `contact` and is linked with everybody it is not cut from."""
        base = self.fresh_base(name)
        admission = self.engines[contact].admit(base, replaces=replaces, witness=witness)
        self.take_down(name)
        engine = self.engines[name] = self.engine_type(admission.incarnation, admission.state)
        self.log[name] = list(self.log[contact])
        self.link_all()
        return engine

    def take_down(self, name: str) -> GroupEngine | None:
        """The process is gone; its engine, as it was."""
        self.log.pop(name, None)
        engine = self.engines.pop(name, None)
        for pair in [pair for pair in self.flights if name in pair]:
            del self.flights[pair]
        for other in self.engines.values():
            if engine is not None:
                other.disconnected(engine.me)
        return engine

    def bring_back(self, name: str, engine: GroupEngine, log: Iterable[bytes]) -> None:
        """A process that was taken down goes on as it was, from its intact journal."""
        self.engines[name] = self.engine_type(engine.me, engine.state())
        self.log[name] = list(log)
        self.link_all()

    def restart(self, name: str) -> GroupEngine:
        """A process ends, and goes on as it was: its engine."""
        log = self.log[name]
        engine = self.take_down(name)
        assert engine is not None
        self.bring_back(name, engine, log)
        return self.engines[name]

    # The network

    def is_linked(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.cuts

    def _link(self, a: str, b: str) -> None:
        self.engines[a].connected(self.id(b))
        self.engines[b].connected(self.id(a))

    def link_all(self) -> None:
        for a, b in combinations(self.engines, 2):
            if self.is_linked(a, b):
                self._link(a, b)

    def cut(self, side: Iterable[str], other: Iterable[str]) -> None:
        for a in side:
            for b in other:
                self.cuts.add(frozenset((a, b)))
                self.engines[a].disconnected(self.id(b))
                self.engines[b].disconnected(self.id(a))

    def heal(self) -> None:
        self.cuts.clear()
        self.link_all()

    def run(self, ticks: int = 40) -> None:
        """Let time pass: everything arrives, is taken, and is answered."""
        for _ in range(ticks):
            self.pump()
            self.tick()
        self.pump()

    def post(self, *names: str) -> None:
        """Applications take what they can, and then packets set out."""
        for name in names or list(self.engines):
            self.take(name)
        super().post(*names)

    def take(self, name: str) -> None:
        engine = self.engines[name]
        while (delivery := engine.poll()) is not None:
            if delivery.kind == OperationKind.APPLICATION:
                self.log[name].append(delivery.payload)
                self.delivered(name, delivery)
        while tags := engine.poll_stable():
            self.stable(name, tags)
        engine.take_issued()
        engine.take_decisions()

    def lands(self, a: str, b: str, content: object) -> bool:
        return self.is_linked(a, b) and self.passes(a, b, content)

    def delivered(self, name: str, delivery: Delivery) -> None:
        """For applications that are more than a list of payloads."""

    def stable(self, name: str, tags: Iterable[Tag]) -> None:
        """So is this."""

    def lose_all(self) -> None:
        """What is about to go out is lost."""
        for engine in self.engines.values():
            engine.take_outbox()

    # What must hold

    def names(self, name: str) -> list[str]:
        """Names of the members that `name` knows."""
        return sorted(name_of(member) for member in self.engines[name].members)

    def assert_one_group(self, *names: str) -> None:
        """These, and nobody else, are one quiet group of equal states, and hold nothing of others but tombs."""
        everybody = {self.id(name) for name in names}
        for name in names:
            engine = self.engines[name]
            assert engine.standing is Standing.MEMBER, (name, engine.standing)
            assert set(engine.members) == everybody, name
            assert set(engine.vector) == everybody, name
            assert engine.quiet, (name, engine.counters(), engine.held_back_by())
            assert not engine.ended
            assert {dot.origin for dot in engine.context} <= everybody
            if not engine.members[engine.me].witness:
                assert sorted(self.log[name]) == sorted(self.log[names[0]]), name
