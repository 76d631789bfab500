"""A group of real engines in one process whose members come and go at random, each with its event
log: over a network that loses, reorders and is cut.
"""

import random
from itertools import count
from pathlib import Path

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Digest, Ended, Message, Transmit
from crdtcast.engine import GroupEngine, Parked, Standing
from crdtcast.engine.views import Views
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog, Rotation
from crdtcast.exceptions import HandshakeError, NotReadyError

Content = Message | Digest | Ended | Views


class Villager:
    """One process: its engine, its log, and what it has to send again of its earlier life."""

    def __init__(
        self, name: str, engine: GroupEngine, log: EventLog, parked: Parked | None = None
    ) -> None:
        self.name = name
        self.engine = engine
        self.log = log
        self.told = GroupLog(engine, log)
        self.parked = parked
        self.told.start()

    def note(self) -> None:
        self.told.issued(self.engine.take_issued())


class Village:
    """Everything is drawn from one seed. `counts` says what has happened."""

    def __init__(self, directory: Path, seed: int, size: int = 4, prefix: str = "") -> None:
        self.counts = {"joins": 0, "leaves": 0, "evictions": 0, "returns": 0, "reissues": 0}
        self._directory = directory
        self._draw = random.Random(seed)
        self._clock = count(1_700_000_000_000_000, 37)
        self._serial = count(1)
        self._flights: list[tuple[str, str, Content]] = []
        self._cut: set[str] = set()
        names = [prefix + letter for letter in "abcdefgh"[:size]]
        ids = {name: self._base(name) for name in names}
        self.living = {
            name: self._open(name, GroupEngine.found(me, ids.values())) for name, me in ids.items()
        }
        self._fresh = (f"{prefix}m{number}" for number in count(1))
        self._link_all()

    def _base(self, name: str) -> str:
        return new_incarnation(name, next(self._serial), 0)

    def _open(self, name: str, engine: GroupEngine, parked: Parked | None = None) -> Villager:
        log = EventLog(
            self._directory,
            group="village",
            replica=name,
            incarnation=engine.me,
            clock_us=self._clock.__next__,
            rotation=Rotation(size=4000),
        )
        return Villager(name, engine, log, parked)

    # --- what may happen ------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        for _ in range(steps):
            one = self._draw.choice(list(self.living.values()))
            dice = self._draw.random()
            if dice < 0.25:
                self._send(one)
            elif dice < 0.45:
                one.engine.tick()
                one.note()
            elif dice < 0.97:
                self._arrive(self._draw.randint(0, 15))
                self._take(one, self._draw.randint(1, 4))
            elif dice < 0.975:
                self._cut = {one.name} if self._draw.random() < 0.5 else set()
                self._link_all()
            elif len(self.living) < 6 and dice < 0.982:
                self._join(one)
            elif len(self.living) > 3 and dice < 0.988:
                self._leave(one)
            elif len(self.living) > 3 and dice < 0.996:
                self._lose(one)
            self._hand_out()

    def _send(self, one: Villager) -> None:
        if one.engine.standing is Standing.MEMBER:
            one.told.sent(one.engine.send(b"x"))

    def _take(self, one: Villager, most: int) -> None:
        for _ in range(most):
            delivery = one.engine.poll()
            if delivery is None:
                break
            one.told.polled(delivery, one.engine.take_issued())
        if one.engine.standing is Standing.MEMBER:
            one.told.stable(one.engine.poll_stable(self._draw.randint(1, 50)))

    def _join(self, contact: Villager, name: str = "", parked: Parked | None = None) -> bool:
        new = name or next(self._fresh)
        try:
            admission = contact.engine.admit(
                self._base(new), replaces=parked.ended if parked is not None else ()
            )
        except (NotReadyError, HandshakeError):
            return False
        contact.note()
        engine = GroupEngine(admission.incarnation, admission.state)
        self.living[new] = self._open(new, engine, parked)
        self.counts["joins"] += 1
        self._link_all()
        return True

    def _is_calm(self) -> bool:
        """Whether all know exactly those who live: so that a majority is never lost."""
        ids = {one.engine.me for one in self.living.values()}
        return all(
            one.engine.members.keys() == ids == one.engine.established and not one.parked
            for one in self.living.values()
        )

    def _leave(self, one: Villager) -> None:
        if self._is_calm():
            one.engine.leave()
            one.note()
            self.counts["leaves"] += 1

    def _lose(self, one: Villager) -> None:
        """Its process dies. It comes back under a new id, or is evicted for good."""
        if not self._is_calm():
            return
        others = [other for other in self.living.values() if other is not one]
        one.log.close()
        parked = Parked.of(one.engine.state(), one.engine.me, one.parked)
        self._gone(one)
        contact = self._draw.choice(others)
        if self._draw.random() < 0.6 and self._join(contact, one.name, parked):
            self.counts["returns"] += 1
        elif one.engine.me in contact.engine.members:
            contact.engine.evict(one.engine.me)
            contact.note()
            self.counts["evictions"] += 1

    def _gone(self, one: Villager) -> None:
        del self.living[one.name]
        self._flights = [f for f in self._flights if one.name not in f[:2]]
        for other in self.living.values():
            other.engine.disconnected(one.engine.me)

    def _send_again(self, one: Villager) -> None:
        parked = one.parked
        if parked is None or not parked.is_decided(one.engine):
            return
        for operation in parked.uncovered(one.engine):
            tag = one.engine.send(operation.payload)
            one.told.sent(tag, reissues=operation.dot)
            one.parked = parked = parked.reissued(operation, tag.dot)
            self.counts["reissues"] += 1
        for ended in parked.ended:
            if ended in one.engine.tombs:
                one.engine.settle(ended)
                one.note()
        one.parked = None

    # --- the network ----------------------------------------------------------------------------

    def _linked(self, a: str, b: str) -> bool:
        return a in self.living and b in self.living and not {a, b} & self._cut

    def _link_all(self) -> None:
        for a in self.living.values():
            for b in self.living.values():
                if a is not b:
                    call = a.engine.connected if self._linked(a.name, b.name) else None
                    (call or a.engine.disconnected)(b.engine.me)

    def _arrive(self, most: int, loss: float = 0.1) -> None:
        self._draw.shuffle(self._flights)
        for _ in range(min(len(self._flights), most)):
            sender, receiver, content = self._flights.pop()
            if self._linked(sender, receiver) and self._draw.random() >= loss:
                villager = self.living[receiver]
                villager.engine.receive(self.living[sender].engine.me, content)
                villager.note()

    def _hand_out(self) -> None:
        for one in list(self.living.values()):
            one.log.flush()
            for effect in one.engine.take_outbox():
                self._post(one.name, effect)
            if one.engine.standing in (Standing.LEFT, Standing.EVICTED):
                one.log.close()
                self._gone(one)
            elif one.engine.standing is Standing.MEMBER:
                self._send_again(one)

    def _post(self, sender: str, effect: Transmit) -> None:
        for name, one in self.living.items():
            if name != sender and effect.to in (None, one.engine.me) and self._linked(sender, name):
                self._flights.append((sender, name, effect.message))

    # --- the end --------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        self._cut = set()
        self._link_all()
        for _ in range(60):
            while self._flights:
                self._arrive(len(self._flights), loss=0)
                for one in list(self.living.values()):
                    self._take(one, 1000)
                self._hand_out()
            for one in list(self.living.values()):
                one.engine.tick()
                one.note()
            self._hand_out()
        for one in self.living.values():
            while tags := one.engine.poll_stable():
                one.told.stable(tags)
            one.log.stop(one.engine.counters().unstable)
