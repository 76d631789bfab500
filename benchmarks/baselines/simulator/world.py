"""A simulated group of `Engine`: `apply` carries out one action, `drain` lets everything settle, the oracle watches.

Actions (members by name):
    send X          X's application broadcasts
    poll X          X's application takes one delivery        stable X   … all its stable notices
    tick X          X's timer                                 sync X     X's journal (see `BaselineHost`)
    net S D n       packet n in flight from S to D arrives    dup S D n  … and stays in flight    drop S D n  is lost
    link A B        a link comes up (handshake)               cut A B    it goes down
    crash X n r     X dies and restarts from its n-th commit; r = 1: it remembers what the journal lost
"""

from collections import Counter
from itertools import combinations

from benchmarks.baselines.simulator.host import BaselineHost
from benchmarks.baselines.simulator.network import BaselineNetwork, Packet
from crdtcast.causality.messages import Transmit
from crdtcast.engine import Durability, Engine
from crdtcast.exceptions import CrdtcastError
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.oracle import Checker, FailureKind, OracleFinding
from crdtcast.simulator.schedule import Action

DRAIN_ROUNDS = 400
SILENT_ROUNDS = 80


class World:
    """Hosts, network and oracle of one run."""

    def __init__(
        self,
        names: tuple[str, ...],
        durability: Durability,
        engine_type: type[Engine] = Engine,
    ) -> None:
        self.names = names
        self.durability = durability
        self.hosts: dict[str, BaselineHost] = {
            name: BaselineHost(name, names, durability, engine_type) for name in names
        }
        self.network: BaselineNetwork = BaselineNetwork(names)
        self.checker: Checker = Checker(
            names, unsynced_sends_survive=durability is Durability.DECLARED
        )
        self.counts: Counter[str] = Counter()
        for a, b in combinations(names, 2):
            self._link(a, b)
        self.counts["links"] = 0

    def apply(self, action: Action) -> bool:
        """Carry out one action. Returns False, without any effect, if it is impossible. Raises Failure if something is
        wrong.
        """
        verb = str(action[0])
        try:
            done = self._do(verb, action[1:])
        except CrdtcastError as error:
            raise Failure(type(error).__name__, f"{action}: {error}") from error
        except Failure:
            raise
        except Exception as error:
            raise Failure(type(error).__name__, f"{action}: {error!r}") from error
        self._check()
        return done

    def _do(self, verb: str, arguments: tuple[str | int, ...]) -> bool:
        if verb in ("net", "dup", "drop"):
            return self._packet(verb, str(arguments[0]), str(arguments[1]), int(arguments[2]))
        a = str(arguments[0])
        if verb == "link":
            return self._link(a, str(arguments[1]))
        if verb == "cut":
            return self._cut(a, str(arguments[1]))
        host = self.hosts[a]
        if verb == "send":
            tag = host.engine.send(b"%d" % self.counts["sent"])
            self.checker.sent(a, tag.dot, tag)
            self.counts["sent"] += 1
        elif verb == "poll":
            delivery = host.engine.poll()
            if delivery is None:
                return False
            self.checker.delivered(a, delivery.tag.dot, delivery.tag)
            self.counts["delivered"] += 1
        elif verb == "stable":
            tags = host.engine.poll_stable()
            for tag in tags:
                self.checker.stable(a, tag.dot, self.names)
            self.counts["stable"] += len(tags)
            return bool(tags)
        elif verb == "tick":
            host.engine.tick()
        elif verb == "sync":
            self._transmit(a, host.sync(self.checker.position(a)))
        elif verb == "crash":
            self._crash(host, int(arguments[1]), recover=bool(arguments[2]))
        else:
            raise ValueError(f"unknown action {verb!r}")
        self._transmit(a, host.release())
        return True

    def _transmit(self, sender: str, effects: list[Transmit]) -> None:
        me = self.hosts[sender].engine.me
        for effect in effects:
            for name, host in self.hosts.items():
                if name != sender and effect.to in (None, host.engine.me):
                    self.network.post(sender, name, Packet(me, host.life, effect.message))

    def _packet(self, verb: str, sender: str, receiver: str, place: int) -> bool:
        packet = self.network.take(sender, receiver, place, keep=verb == "dup")
        if packet is None:
            return False
        if verb != "net":
            self.counts["dropped" if verb == "drop" else "doubled"] += 1
        elif place:
            self.counts["reordered"] += 1
        host = self.hosts[receiver]
        if verb != "drop" and packet.receiver_life == host.life:
            host.engine.receive(packet.sender, packet.content)
            self._transmit(receiver, host.release())
        return True

    def _link(self, a: str, b: str) -> bool:
        if self.network.linked(a, b):
            return False
        first, second = self.hosts[a].engine, self.hosts[b].engine
        if not (first.introduce(second.me) and second.introduce(first.me)):
            raise Failure("handshake", f"{first.me} and {second.me} refuse each other")
        self.network.set_link(a, b, True)
        self.counts["links"] += 1
        first.connected(second.me)
        second.connected(first.me)
        self._transmit(a, self.hosts[a].release())
        self._transmit(b, self.hosts[b].release())
        return True

    def _cut(self, a: str, b: str) -> bool:
        if not self.network.linked(a, b):
            return False
        self.network.set_link(a, b, False)
        self.counts["cuts"] += 1
        self.hosts[a].engine.disconnected(self.hosts[b].engine.me)
        self.hosts[b].engine.disconnected(self.hosts[a].engine.me)
        return True

    def _crash(self, host: BaselineHost, which: int, *, recover: bool) -> None:
        for name in self.names:
            if name != host.name:
                self._cut(host.name, name)
        self.network.forget(host.name)
        before = host.engine.me
        position = self.checker.position(host.name)
        goes_back_to = host.crash(which, position, recover=recover)
        self.checker.rolled_back(host.name, goes_back_to)
        self.counts["restarts"] += 1
        self.counts["new_incarnations"] += host.engine.me != before
        self.counts["events_lost"] += position - goes_back_to
        unstable = [message.dot for message in host.engine.state().unstable]
        for first, second in combinations(unstable, 2):
            tags = host.engine.tag(first), host.engine.tag(second)
            if (tags[0] < tags[1]) != self.checker.before(first, second):
                raise Failure("tag", f"after a restart {first} and {second} compare wrongly")

    def _check(self) -> None:
        if self.checker.findings:
            finding = self.checker.findings[0]
            raise Failure(finding.kind.value, str(finding))

    # Settling

    def drain(self) -> None:
        """Let all links work: everything must arrive, become stable, and fall silent. Raises Failure if not."""
        for pair in combinations(self.names, 2):
            self.apply(("link", *pair))
        for _ in range(DRAIN_ROUNDS):
            self._round()
            if all(host.engine.quiet for host in self.hosts.values()) and not self._traffic():
                break
        findings = self.checker.finish()
        if findings:
            raise Failure(findings[0].kind.value, _all(findings))
        for name, host in self.hosts.items():
            if not host.engine.quiet:
                raise Failure("not-quiet", f"{name} never falls quiet: {host.engine.counters()}")
            if host.engine.held_back_by():
                raise Failure("not-quiet", f"{name} waits for {host.engine.held_back_by()}")
        self._silence()

    def _round(self) -> None:
        while True:
            for name in self.names:
                self._settle(name)
            busy = self.network.busy
            if not busy:
                break
            for pair in busy:
                while self.network.flights[pair]:
                    self.apply(("net", *pair, 0))
        for name in self.names:
            self.apply(("tick", name))

    def _settle(self, name: str) -> None:
        while self.apply(("poll", name)):
            pass
        while self.apply(("stable", name)):
            pass
        self.apply(("sync", name))
        host = self.hosts[name]
        host.settle()
        self._transmit(name, host.release())

    def _traffic(self) -> bool:
        return bool(self.network.busy) or any(host.held for host in self.hosts.values())

    def _silence(self) -> None:
        for _ in range(SILENT_ROUNDS):
            for name in self.names:
                self.apply(("tick", name))
                self._settle(name)
            if self._traffic():
                pair = self.network.busy[0]
                content = self.network.flights[pair][0].content
                raise Failure("noise", f"{pair} still talk when all is stable: {content}")

    def totals(self) -> Counter[str]:
        """The counters of the run, and of the engines of all lives."""
        totals = Counter(self.counts)
        for host in self.hosts.values():
            for counters in (*host.ended_counters, host.engine.counters()):
                for field in ENGINE_TOTALS:
                    totals[field] += getattr(counters, field)
        return totals


ENGINE_TOTALS = (
    "duplicates",
    "stale",
    "repairs",
    "digests_out",
    "asks",
    "held_digests",
    "superseded",
    "purged",
)


def _all(findings: list[OracleFinding]) -> str:
    shown = [str(finding) for finding in findings[:6]]
    return "; ".join(shown) + (f"; and {len(findings) - 6} more" if len(findings) > 6 else "")


__all__ = ["ENGINE_TOTALS", "Failure", "FailureKind", "World"]
