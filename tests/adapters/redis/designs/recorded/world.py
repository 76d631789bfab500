"""Three servers, their gateways and the network between them, and the oracle that hears what clients are told."""

from collections import Counter, deque
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from crdtcast.causality.member_id import base_of, name_of, new_incarnation
from crdtcast.causality.messages import Message, Transmit
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Engine, EngineState, GroupEngine, GroupState, Standing
from crdtcast.exceptions import CrdtcastError, NotReadyError
from tests.adapters.redis.designs.recorded.commands import Reply
from tests.adapters.redis.designs.recorded.commit import Request
from tests.adapters.redis.designs.recorded.effects import Values
from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.gateway import Gateway, park
from tests.adapters.redis.designs.recorded.server import Answer, Exec, Image, Record, Server, Stored

NAMES: Final = ("a", "b", "c")


class Failure(Exception):
    """Something that must not be."""


@dataclass(frozen=True, slots=True)
class Setting:
    """fixed: a group with fixed names, else one whose members come and go. always: appendfsync. early: derived messages
    leave before they are stored.
    """

    fixed: bool
    always: bool
    early: bool


@dataclass(frozen=True, slots=True)
class Packet:
    """On its way to one process."""

    sender: str
    receiver: Gateway
    content: object


class World:
    """Everything, and what may happen to it: each public method named in `schedule` is one step."""

    def __init__(self, setting: Setting, random: Random, faults: frozenset[Fault]) -> None:
        self.setting, self.random, self.faults = setting, random, faults
        self.fixed, self.early = setting.fixed, setting.early
        self.names: tuple[str, ...] = NAMES
        self.counts: Counter[str] = Counter()
        self.flights: dict[tuple[str, str], deque[Packet]] = {}
        self.zombies: list[Gateway] = []
        self.limbo: list[tuple[Server, Exec]] = []
        self.left: set[str] = set()
        self.told: dict[Dot, Message] = {}
        self.known: dict[Dot, Message] = {}
        """All messages that a server has stored; of those that have not left the last one under a dot."""
        self.cuts: dict[str, int] = {}
        self.replies: dict[int, list[tuple[Reply, ...]]] = {}
        self.denied: set[int] = set()
        self.has_yielded: set[int] = set()
        self.remembered: dict[str, set[int]] = {name: set() for name in NAMES}
        """Answered requests whose gateways have outlived their servers since."""
        self.asked: dict[int, str] = {}
        self.now = 0
        self._lives = 1
        self.servers = {n: Server(n, setting.always, random, faults) for n in NAMES}
        founders = [new_incarnation(name, 1, 0) for name in NAMES]
        self.torn: set[str] = set()
        """Names whose servers have died since the gateway there began."""
        self.torn_away: set[int] = set()
        """Requests whose commits a server has lost that had promised not to."""
        for name, me in zip(NAMES, founders, strict=True):
            state = EngineState(vector={me: 0})
            if not setting.fixed:
                state = GroupEngine.found(me, founders).state()
            server = self.servers[name]
            server.write(Image(stored=Stored(me, state, random.randrange(5), 0)))
            server.sync()
            server.archive.clear()
        self.gateways: dict[str, Gateway | None] = dict.fromkeys(NAMES)
        for name in NAMES:
            self.start(name)

    # What gateways need

    def fresh(self, name: str, previous: str) -> str:
        """The id of a new life."""
        self._lives += 1
        return new_incarnation(name, self._lives, 0, previous)

    def answered(self, request: Request, replies: tuple[Reply, ...]) -> None:
        """A client has got its answer."""
        self.replies.setdefault(request.number, []).append(replies)

    def not_written(self, request: Request) -> None:
        """A client was told that nothing was written."""
        self.denied.add(request.number)

    def yielded(self, request: int) -> None:
        """A write of a former life gave way, and that was reported."""
        self.has_yielded.add(request)

    def derived(self, record: Record, tag: Tag) -> None:
        """A message was derived from a record."""
        self.counts["derived"] += 1
        if (tag.dot, set(tag.context)) != (record.dot, set(record.context)):
            said = f"{record.dot} after {record.context}"
            raise Failure(f"derived as {tag.dot} after {tag.context}, and recorded as {said}")

    def leaves(self, gateway: Gateway, outbox: list[Transmit]) -> None:
        """A gateway's process sends."""
        sender, living = gateway.engine.me, self.living()
        linked = [other for other in gateway.linked if other in living]
        for to, content in outbox:
            if isinstance(content, Message):
                known = self.told.setdefault(content.dot, content)
                self.known[content.dot] = content
                if known != content:
                    raise Failure(f"{content.dot} is two messages: {known} and {content}")
            for other in linked:
                if to in (None, other.engine.me):
                    pair = gateway.server.name, other.server.name
                    self.flights.setdefault(pair, deque()).append(Packet(sender, other, content))

    def living(self) -> list[Gateway]:
        """The gateways that run beside their servers."""
        return [gateway for gateway in self.gateways.values() if gateway is not None]

    # Processes

    def start(self, name: str) -> bool:
        """A gateway starts beside a server; one that runs there is superseded, and does not know."""
        if name in self.left:
            return False
        former, server = self.gateways[name], self.servers[name]
        self.remembered[name].clear()
        if former is not None:
            self._note_phase("takeover", former)
            self.zombies.append(former)
        self._begin(name, Gateway(self, server, renew=self._must_renew(name)))
        return True

    def _must_renew(self, name: str) -> bool:
        renew = self.fixed and name in self.torn
        self.torn.discard(name)
        return renew

    def _begin(self, name: str, gateway: Gateway) -> None:
        self.gateways[name] = gateway
        assert gateway.server.image.stored is not None
        self._know(gateway.server.image.stored)
        if gateway.parking:
            return
        self._link(gateway)

    def _link(self, gateway: Gateway) -> None:
        me = gateway.engine.me
        for zombie in self.zombies:
            if zombie.server is gateway.server and zombie.engine.me != me:
                zombie.linked = []  # others know of its successor
        gateway.linked = [g for g in self.living() if g is not gateway and not g.parking]
        for other in gateway.linked:
            other.linked = [g for g in other.linked if g.server is not gateway.server] + [gateway]
            engine = other.engine
            if self.fixed:
                gateway.engine.introduce(engine.me)  # type: ignore[union-attr]
                engine.introduce(me)  # type: ignore[union-attr]
            engine.disconnected(me)
            pair = gateway.server.name, other.server.name
            packets = self.flights.get(pair, ())
            self.flights[pair] = deque(p for p in packets if p.sender == me)
            engine.connected(me)
            gateway.engine.connected(engine.me)

    def crash(self, name: str, loses: bool) -> bool:
        """The gateway dies; with its machine, so that the server may lose what was not synced."""
        gateway, server = self.gateways[name], self.servers[name]
        if gateway is None:
            return False
        self._note_phase("crash", gateway)
        self._to_limbo(gateway)
        self.gateways[name] = None
        self.remembered[name].clear()
        if loses:
            self._lose(server, gateway, "loss")
        return True

    def _lose(self, server: Server, gateway: Gateway, what: str) -> None:
        if not self.setting.always:
            self.torn.add(server.name)
        if server.lose(self.random.choice((0, 1, 1, 1, 2, 3))):
            self._note_phase(what, gateway)

    def breaks(self, name: str) -> bool:
        """The connection to the server breaks. What was on its way to it may still be carried out."""
        gateway = self.gateways[name]
        if gateway is None or gateway.parking:
            return False
        self._note_phase("break", gateway)
        self._to_limbo(gateway)
        self._reconnect(name, gateway)
        return True

    def server_dies(self, name: str) -> bool:
        """The server dies and may lose what was not synced; its gateway lives, and remembers."""
        gateway, server = self.gateways[name], self.servers[name]
        if gateway is None or gateway.parking or gateway.parked is not None or not gateway.can_send:
            return False
        executed = server.image.executed
        self.remembered[name] |= {
            n for n in self.replies if self.asked[n] == name and n in executed
        }
        self._lose(server, gateway, "outlived")
        if self.fixed or not gateway.has_lost():
            self._reconnect(name, gateway)
        else:
            self._park(gateway)
        return True

    def _park(self, gateway: Gateway) -> None:
        """What a gateway remembers of an incarnation that cannot go on; it has to join again."""
        engine, server = gateway.engine, gateway.server
        assert isinstance(engine, GroupEngine)
        self._disconnect(gateway)
        unsure = gateway.commit.unsure if gateway.commit is not None else frozenset()
        parked = park(engine, gateway.parked, gateway.set_aside(), unsure)
        server.write(replace(server.image, record=None, parked=parked))
        self.gateways[server.name] = Gateway(self, server)

    def _reconnect(self, name: str, gateway: Gateway) -> None:
        self._disconnect(gateway)
        gateway.reconnect(renew=self._must_renew(name))
        self._begin(name, gateway)

    def _disconnect(self, gateway: Gateway) -> None:
        for pair, packets in self.flights.items():
            self.flights[pair] = deque(p for p in packets if p.receiver is not gateway)
        for other in (*self.living(), *self.zombies):
            other.linked = [g for g in other.linked if g is not gateway]

    def _to_limbo(self, gateway: Gateway) -> None:
        if gateway.commit is not None and not gateway.commit.executed:
            self.limbo.append((gateway.server, gateway.commit.plan))

    def _note_phase(self, what: str, gateway: Gateway) -> None:
        """Which crash point this is."""
        commit = gateway.commit
        if commit is not None and commit.plan.record is not None:
            phase = "executed, not answered" if commit.executed else "reserved, not sent"
            self.counts[f"{what}: {phase}"] += 1
        if gateway.record is not None:
            self.counts[f"{what}: recorded, not derived"] += 1
        derives = commit is not None and commit.derives
        if derives or any(held.derives and held.outbox for held in gateway.held):
            self.counts[f"{what}: derived, not told"] += 1
        if gateway.unsaved and commit is None:
            self.counts[f"{what}: told, not stored"] += 1

    # One step of one gateway

    def ask(self, name: str, request: Request) -> bool:
        """A client sends a request."""
        gateway = self.gateways[name]
        if gateway is None or gateway.parking or gateway.is_evicted:
            return False
        self.asked[request.number] = name
        gateway.queue.append(request)
        return True

    def gather(self, gateway: Gateway) -> bool:
        """The next commit is put together."""
        done = gateway.gather()
        self._look(gateway)
        return done

    def execute(self, gateway: Gateway) -> bool:
        """A commit reaches its server."""
        commit = gateway.commit
        if commit is None or commit.executed:
            return False
        commit.executed, commit.answer = True, self._carry_out(gateway.server, commit.plan)
        return True

    def _carry_out(self, server: Server, plan: Exec) -> Answer | None:
        answer = server.execute(plan)
        if answer is not None:
            self._know(plan.stored)
        return answer

    def _know(self, stored: Stored) -> None:
        self.known.update({m.dot: m for m in stored.engine.unstable})

    def dies_between(self, name: str) -> bool:
        """The machine dies in the middle of an EXEC, between two segments: nothing of it is in the log."""
        gateway = self.gateways[name]
        if gateway is None or gateway.commit is None or gateway.commit.executed:
            return False
        if len(gateway.commit.plan.segments) < 2:
            return False
        self.counts["crash: between two segments"] += 1
        gateway.commit.executed = True  # nothing of it is on its way any more
        lost = len(gateway.server.images)
        self.crash(name, loses=True)
        if len(gateway.server.images) < lost:
            self.counts["loss: between two segments"] += 1
        return True

    def answer(self, gateway: Gateway) -> bool:
        """The answer to a commit arrives."""
        if gateway.commit is None or not gateway.commit.executed:
            return False
        gateway.answered()
        if not gateway.alive and gateway in self.zombies:
            self.zombies.remove(gateway)
        elif not gateway.alive:
            raise Failure(f"{gateway.engine.me} was superseded by nobody")
        return True

    def run_limbo(self) -> bool:
        """What a broken connection has left is carried out, if the fence lets it."""
        if not self.limbo:
            return False
        server, plan = self.limbo.pop(self.random.randrange(len(self.limbo)))
        self._carry_out(server, plan)
        return True

    def tick(self, gateway: Gateway) -> bool:
        """Its timer."""
        if gateway.parking:
            return False
        gateway.engine.tick()
        self._look(gateway)
        return True

    def _look(self, gateway: Gateway) -> None:
        engine = gateway.engine
        if not isinstance(engine, GroupEngine):
            return
        for incarnation, cut in engine.ended.items():
            self.cuts[incarnation] = cut.counter
        is_done = gateway.commit is None and gateway.record is None
        name = gateway.server.name
        if engine.standing is Standing.LEFT and is_done and self.gateways[name] is gateway:
            self.left.add(name)
            self.gateways[name] = None
            for other in self.living():
                other.engine.disconnected(engine.me)

    def sync(self, name: str) -> bool:
        """The server syncs its log."""
        self.servers[name].sync()
        gateway = self.gateways[name]
        if gateway is not None:
            gateway.release()
        return True

    def net(self, sender: str, receiver: str) -> bool:
        """One packet arrives."""
        packets = self.flights.get((sender, receiver))
        if not packets:
            return False
        packet = packets.popleft()
        gateway = packet.receiver
        if self.gateways[receiver] is not gateway or gateway.parking:
            return True
        engine = gateway.engine
        before = _promised(engine)
        try:
            engine.receive(packet.sender, packet.content)  # type: ignore[arg-type]
        except CrdtcastError as error:
            raise Failure(f"{type(error).__name__} at {engine.me}: {error}") from error
        if engine.reserved is not None and _promised(engine) != before:
            self.counts["promises while reserved"] += 1
        return True

    # Members that come and go

    def leave(self, name: str) -> bool:
        """An operator lets a member leave."""
        gateway = self.gateways[name]
        if self.fixed or gateway is None or not gateway.can_send or gateway.parked is not None:
            return False
        gateway.wants_leave = True
        gateway.operate()
        if Fault.LEAVES_AT_ONCE in self.faults and gateway.wants_leave:
            engine = gateway.engine
            assert isinstance(engine, GroupEngine)
            reserved, engine._reservation = engine._reservation, None
            engine.leave()
            gateway.wants_leave = False
            engine._reservation = reserved
        self.counts["leave waits"] += gateway.engine.reserved is not None
        return True

    def evict(self, name: str, victim: str) -> bool:
        """The operator of one member evicts another one."""
        gateway = self.gateways[name]
        if self.fixed or gateway is None or not gateway.can_send:
            return False
        engine = gateway.engine
        assert isinstance(engine, GroupEngine)
        incarnation = next((m for m in engine.going_on() if name_of(m) == victim), None)
        if incarnation is not None and incarnation not in engine.victims:
            engine.evict(incarnation)
            self.counts["evicts while reserved"] += engine.reserved is not None
        return True

    def tear(self, name: str) -> bool:
        """A server of a group comes back with less than it had promised: its member has to join again."""
        server, gateway = self.servers[name], self.gateways[name]
        if self.fixed or gateway is None or not server.archive or gateway.parking:
            return False
        if gateway.parked is not None or not gateway.can_send:
            return False
        before = set(server.image.executed)
        server.tear()
        self.torn_away |= before - server.image.executed.keys()
        gateway = Gateway(self, server)
        self.counts["torn"] += 1
        self.counts["torn with a record"] += gateway.record is not None or gateway.unsaved
        self._park(gateway)
        return True

    def rejoin(self, name: str) -> bool:
        """Who was evicted has parked what it has to: it joins again, with the state of a member of one instant."""
        gateway = self.gateways[name]
        if gateway is None or not gateway.parking or gateway.commit is not None:
            return False
        for contact in self.random.sample(self.living(), len(self.living())):
            engine = contact.engine
            if contact is gateway or contact.parking or not contact.can_send or not contact.is_idle:
                continue
            assert isinstance(engine, GroupEngine)
            former = gateway.engine.me
            base = self.fresh(name, former)
            try:
                admission = engine.admit(base, replaces=[base_of(former)])
            except NotReadyError:
                continue
            values = dict(contact.server.image.values)
            self._finish(contact)
            self._install(gateway, admission.incarnation, admission.state, values, contact.clock)
            return True
        return False

    def _finish(self, contact: Gateway) -> None:
        """The join is stored before the letter leaves."""
        while contact.commit is not None or contact.engine.activity != contact.activity:
            if contact.commit is None:
                self.gather(contact)
            self.execute(contact)
            self.answer(contact)
        self.sync(contact.server.name)

    def _install(
        self, gateway: Gateway, me: str, state: GroupState, values: Values, clock: int
    ) -> None:
        server, name = gateway.server, gateway.server.name
        self.counts["rejoined"] += 1
        self._disconnect(gateway)
        stored = Stored(me, state, clock, gateway.number)
        server.write(Image(values, stored, None, gateway.parked, server.image.executed))
        server.sync()
        server.archive.clear()
        for other in self.living():
            other.engine.disconnected(gateway.engine.me)
        self._begin(name, Gateway(self, server))


def _promised(engine: Engine | GroupEngine) -> object:
    record = engine.outline().record if isinstance(engine, GroupEngine) else None
    return None if record is None else record.promised
