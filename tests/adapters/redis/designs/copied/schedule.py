"""Random schedules of three replicas that write while keys are copied between them."""

from collections import Counter, deque
from random import Random
from typing import Final

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import covers
from crdtcast.engine import Engine
from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.copied.replica import Replica
from tests.adapters.redis.designs.recorded.commands import Command
from tests.adapters.redis.designs.recorded.effects import DEADLINE, SET, STRING, Values
from tests.adapters.redis.designs.recorded.history import Pasts, shown, visible
from tests.adapters.redis.designs.recorded.world import Failure

NAMES: Final = ("a", "b", "c")
KEY: Final = "k"
MEMBERS: Final = ("u", "v", "w", "x", "y", "z")
STEPS: Final = 150

WEIGHTS: Final = {
    "write": 16,
    "run": 5,
    "derive": 6,
    "net": 35,
    "deliver": 14,
    "tick": 7,
    "stabilise": 6,
    "ask": 3,
    "give": 7,
    "install": 5,
}


class Town:
    """The replicas and the packets between them."""

    def __init__(self, random: Random, faults: frozenset[CopyFault]) -> None:
        self.random = random
        self.counts: Counter[str] = Counter()
        ids = [new_incarnation(name, 1, 0) for name in NAMES]
        self.replicas = [Replica(Engine(me, NAMES), faults, random.randrange(4)) for me in ids]
        self.flights: dict[tuple[int, int], deque[object]] = {}
        for replica in self.replicas:
            for me in ids:
                if me != replica.engine.me:
                    replica.engine.introduce(me)
                    replica.engine.connected(me)

    def step(self, verb: str) -> bool:
        """One action of one replica. Raises Failure."""
        random = self.random
        replica = random.choice([r for r in self.replicas if _can(r, verb)] or self.replicas)
        match verb:
            case "write" | "run":
                return replica.write(_command(random), random, recorded=verb == "run")
            case "net":
                pairs = [pair for pair, packets in self.flights.items() if packets]
                return bool(pairs) and self._arrive(random.choice(pairs))
            case "tick":
                replica.engine.tick()
                self._send(replica)
                return True
            case "ask":
                giver = random.choice([r for r in self.replicas if r is not replica])
                return replica.ask(KEY, giver, _junk(random))
            case "install":
                return self._install(replica)
        done = bool(getattr(replica, verb)())
        self._send(replica)
        return done

    def _install(self, replica: Replica) -> bool:
        if not replica.install():
            return False
        self.counts["installed"] += 1
        self.check(replica)
        if replica.came_with != replica.had:
            raise Failure(f"{replica.engine.me} had {replica.had}, and got {replica.came_with}")
        return True

    def _send(self, replica: Replica) -> None:
        sender = self.replicas.index(replica)
        for transmit in replica.engine.take_outbox():
            self._post(sender, transmit)

    def _post(self, sender: int, transmit: Transmit) -> None:
        for place, other in enumerate(self.replicas):
            if place != sender and transmit.to in (None, other.engine.me):
                self.flights.setdefault((sender, place), deque()).append(transmit.message)

    def _arrive(self, pair: tuple[int, int]) -> bool:
        sender, receiver = pair
        content = self.flights[pair].popleft()
        self.replicas[receiver].engine.receive(self.replicas[sender].engine.me, content)  # type: ignore[arg-type]
        return True

    def settle(self) -> None:
        """All goes on until nothing happens any more."""
        for _ in range(60):
            for replica in self.replicas:
                replica.derive()
                replica.engine.tick()
                self._send(replica)
            while any(self.flights.values()):
                for pair, packets in self.flights.items():
                    while packets:
                        self._arrive(pair)
                for replica in self.replicas:
                    while replica.deliver():
                        pass
                    self._send(replica)
            for replica in self.replicas:
                while replica.give():
                    pass
                self._install(replica)
                replica.stabilise()
            if all(r.engine.quiet and r.receiving is None for r in self.replicas):
                return
        raise Failure("never quiet")

    def check(self, replica: Replica) -> None:
        """Raises Failure if a replica does not hold what it has delivered."""
        if replica.recorded is not None or replica.receiving is not None:
            return
        sent = [message for other in self.replicas for message in other.messages]
        delivered = [message for message in sent if covers(replica.engine.vector, message.dot)]
        expected = visible(delivered, Pasts(sent))
        if shown(replica.values) != expected:
            raise Failure(
                f"{replica.engine.me} holds {shown(replica.values)}, and {expected} is right"
            )


def run(seed: int, faults: frozenset[CopyFault] = frozenset(), steps: int = STEPS) -> Counter[str]:
    """One schedule. Raises Failure, else what has happened, and how often."""
    random = Random(seed)
    town = Town(random, faults)
    verbs = list(WEIGHTS)
    chances = [WEIGHTS[verb] * random.choice((0.4, 1, 2)) for verb in verbs]
    for verb in random.choices(verbs, chances, k=steps):
        town.counts[verb] += town.step(verb)
    town.settle()
    for replica in town.replicas:
        town.check(replica)
        if not replica.log.is_empty:
            raise Failure(f"{replica.engine.me} has kept {replica.log.atoms}")
        town.counts.update(replica.counts)
    town.counts["schedules"] += 1
    return town.counts


def _can(replica: Replica, verb: str) -> bool:
    """Whether this may be something to do for a replica."""
    match verb:
        case "derive":
            return replica.recorded is not None
        case "give":
            return replica.giving is not None
        case "install":
            return replica.receiving is not None
        case "deliver":
            return replica.engine.has_deliverable()
        case "stabilise":
            return replica.engine.has_stable()
    return True


def _command(random: Random) -> Command:
    name = random.choices(
        ("SADD", "SREM", "SPOP", "SET", "KEEPTTL", "DEL", "INCR", "EXPIRE", "FLUSHALL"),
        (20, 3, 3, 1, 1, 1, 3, 4, 0.5),
    )[0]
    match name:
        case "SADD" | "SREM":
            return Command(name, KEY, random.choice(MEMBERS))
        case "SET" | "KEEPTTL":
            return Command(name, KEY, random.choice(("text", 5)))
        case "EXPIRE":
            return Command(name, KEY, random.randint(1, 100))
        case "FLUSHALL":
            return Command(name, "")
    return Command(name, KEY)


def _junk(random: Random) -> Values:
    """What somebody has left under the key past the gateway."""
    values: Values = {(KEY, SET, member): 1 for member in MEMBERS if random.random() < 0.5}
    if random.random() < 0.3:
        values[(KEY, STRING, "")] = "junk"
    if random.random() < 0.3:
        values[(KEY, DEADLINE, "")] = random.randint(1, 100)
    return values
