"""A simulated group of a published engine (`benchmarks.baselines`): links reorder and duplicate, but lose nothing.

Actions are those of `benchmarks.baselines.simulator.world` that fit: send, poll, stable, tick, net and dup.
"""

from collections import Counter
from collections.abc import Callable
from itertools import permutations

from benchmarks.baselines.interface import CausalEngine
from benchmarks.baselines.simulator.network import BaselineNetwork, Packet
from crdtcast.exceptions import CrdtcastError
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.oracle import Checker
from crdtcast.simulator.schedule import Action

FITTING = ("duplicate", "reorder")
"""The faults that the published algorithms are made for."""

_PATIENCE = 8
"""Rounds of settling without a delivery or a notice after which a group is at rest."""


class BaselineWorld:
    """Engines, network and oracle of one run. A member's name is also its incarnation."""

    def __init__(
        self, names: tuple[str, ...], make: Callable[[str, tuple[str, ...]], CausalEngine]
    ) -> None:
        self.names = names
        self.engines: dict[str, CausalEngine] = {name: make(name, names) for name in names}
        self.network: BaselineNetwork = BaselineNetwork(names)
        self.checker: Checker = Checker(names)
        self.counts: Counter[str] = Counter()
        for a, b in permutations(names, 2):
            self.network.set_link(a, b, True)
            self.engines[a].connected(b)

    def apply(self, action: Action) -> bool:
        """Carry out one action. Returns False, without any effect, if it is impossible. Raises Failure if something is
        wrong.
        """
        try:
            done = self._do(str(action[0]), str(action[1]), action[2:])
        except CrdtcastError as error:
            raise Failure(type(error).__name__, f"{action}: {error}") from error
        except Exception as error:
            raise Failure(type(error).__name__, f"{action}: {error!r}") from error
        if self.checker.findings:
            finding = self.checker.findings[0]
            raise Failure(finding.kind.value, str(finding))
        return done

    def _do(self, verb: str, name: str, place: tuple[str | int, ...]) -> bool:
        engine = self.engines[name]
        if verb in ("net", "dup"):
            name, done = self._packet(name, str(place[0]), int(place[1]), keep=verb == "dup")
            engine = self.engines[name]
        elif verb == "send":
            tag = engine.send(b"%d" % self.counts["sent"])
            self.checker.sent(name, tag.dot, tag)
            self.counts["sent"] += 1
            done = True
        elif verb == "poll":
            delivery = engine.poll()
            done = delivery is not None
            if delivery is not None:
                self.checker.delivered(name, delivery.tag.dot, delivery.tag)
                self.counts["delivered"] += 1
        elif verb == "stable":
            tags = engine.poll_stable()
            for tag in tags:
                self.checker.stable(name, tag.dot)
            self.counts["stable"] += len(tags)
            done = bool(tags)
        elif verb == "tick":
            engine.tick()
            done = True
        else:
            return False  # the published algorithms have no journals, crashes or cuts
        for effect in engine.take_outbox():
            for other in self.names if effect.to is None else (effect.to,):
                if other != name:
                    self.network.post(name, other, Packet(name, 1, effect.message))
        return done

    def _packet(self, sender: str, receiver: str, place: int, *, keep: bool) -> tuple[str, bool]:
        packet = self.network.take(sender, receiver, place, keep=keep)
        if packet is None:
            return receiver, False
        self.counts["doubled"] += keep
        self.counts["reordered"] += bool(place) and not keep
        self.engines[receiver].receive(sender, packet.content)
        return receiver, True

    def drain(self) -> None:
        """Let everything arrive and be taken, until nothing more happens; then judge. Raises Failure."""
        idle = 0
        while idle < _PATIENCE:
            before = self.counts["delivered"] + self.counts["stable"]
            for name in self.names:
                self.apply(("tick", name))
            self._exchange()
            idle = 0 if self.counts["delivered"] + self.counts["stable"] > before else idle + 1
        if findings := self.checker.finish():
            raise Failure(findings[0].kind.value, "; ".join(map(str, findings[:6])))
        for name, engine in self.engines.items():
            if not engine.quiet:
                raise Failure("not-quiet", f"{name} never falls quiet")

    def _exchange(self) -> None:
        while True:
            for name in self.names:
                while self.apply(("poll", name)) or self.apply(("stable", name)):
                    pass
            if not self.network.busy:
                return
            for pair in self.network.busy:
                while self.apply(("net", *pair, 0)):
                    pass

    def totals(self) -> Counter[str]:
        """The counters of the run, and the engines' work."""
        totals = Counter(self.counts)
        for engine in self.engines.values():
            totals.update(engine.measures().work)
        return totals
