"""A group with members that come and go on a network that the test cuts and heals by hand; all else arrives at once.

Applications are lists of payloads. A joiner gets its contact's list with the admission.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

from crdtcast.causality.member_id import name_of, new_incarnation
from crdtcast.causality.messages import Delivery, Transmit
from crdtcast.causality.tags import Tag
from crdtcast.engine import GroupEngine, OperationKind, Standing


class Town:
    """Engines and applications by name. A name that comes again gets a fresh incarnation."""

    def __init__(
        self,
        names: Iterable[str],
        witnesses: Iterable[str] = (),
        engine_type: type[GroupEngine] | None = None,
    ) -> None:
        self.engine_type = engine_type = engine_type or GroupEngine
        self.passes: Callable[[str, str, object], bool] = lambda sender, receiver, content: True
        """What is not lost without anybody noticing."""
        self.engines: dict[str, GroupEngine] = {}
        self.log: dict[str, list[bytes]] = {}
        self.cuts: set[frozenset[str]] = set()
        self._flights: list[tuple[str, str, object]] = []
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

    def id(self, name: str) -> str:
        return self.engines[name].me

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
        self._flights = [f for f in self._flights if name not in f[:2]]
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

    def _linked(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.cuts

    def _link(self, a: str, b: str) -> None:
        self.engines[a].connected(self.id(b))
        self.engines[b].connected(self.id(a))

    def link_all(self) -> None:
        for a, b in combinations(self.engines, 2):
            if self._linked(a, b):
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
            self._settle()
            for engine in self.engines.values():
                engine.tick()
        self._settle()

    def _settle(self) -> None:
        while True:
            for name, engine in self.engines.items():
                while (delivery := engine.poll()) is not None:
                    if delivery.kind == OperationKind.APPLICATION:
                        self.log[name].append(delivery.payload)
                        self.delivered(name, delivery)
                while tags := engine.poll_stable():
                    self.stable(name, tags)
                engine.take_issued()
                engine.take_decisions()
                for effect in engine.take_outbox():
                    self._post(name, effect)
            if not self._flights:
                return
            flights, self._flights = self._flights, []
            for sender, receiver, content in flights:
                content = self.change(sender, content)
                if self._linked(sender, receiver) and self.passes(sender, receiver, content):
                    self.engines[receiver].receive(self.id(sender), content)  # type: ignore[arg-type]

    @staticmethod
    def change(sender: str, content: object) -> object:
        """What becomes of a packet on its way."""
        return content

    def delivered(self, name: str, delivery: Delivery) -> None:
        """For applications that are more than a list of payloads."""

    def stable(self, name: str, tags: Iterable[Tag]) -> None:
        """So is this."""

    def _post(self, sender: str, effect: Transmit) -> None:
        for name, engine in self.engines.items():
            if name != sender and effect.to in (None, engine.me) and self._linked(sender, name):
                self._flights.append((sender, name, effect.message))

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
