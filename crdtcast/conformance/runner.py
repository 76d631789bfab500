"""Plays one scenario on real gateways and servers.

Every link is cut from the start and opens only during `sync`, so nothing is delivered in between. No step waits for a
clock: `CRDTCAST ADVANCE` moves time.
"""

import enum
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from crdtcast.adapters.redis.cluster import (
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    CommandRefusedError,
    LocalCluster,
    OpenCluster,
)
from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient, Reply
from crdtcast.conformance.matchers import comparable, matches, show
from crdtcast.conformance.probes import (
    METADATA_DATABASE,
    Seen,
    UnknownProbeError,
    read_probe,
)
from crdtcast.conformance.scenario import UNSET, Expectation, Scenario, ScenarioStep
from crdtcast.conformance.stage import Stage, empty
from crdtcast.exceptions import ServerError

CLOCK_TICK = 1_000_000
"""Nanoseconds in a tick of the gateways' clocks."""
REFUSED = re.compile(r"ERR crdtcast: command '.*' is not replicated")


class ScenarioOutcome(enum.Enum):
    """How a scenario ended."""

    PASSED = "pass"
    FAILED = "FAIL"
    UNSUPPORTED = "not supported yet"


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario's outcome; `detail` is the difference, or what is not supported."""

    scenario: Scenario
    outcome: ScenarioOutcome
    detail: str
    seconds: float


class NotSupportedError(Exception):
    """The gateway does not support this yet."""


class DifferenceError(Exception):
    """A result differs from what was expected."""


def run_scenario(scenario: Scenario, stage: Stage, timeout: float) -> ScenarioResult:
    """Play `scenario` on new gateways, or on those of a scenario before it, whose data is removed.

    timeout: limit, in seconds, of each reply and each exchange.
    """
    began = time.monotonic()
    outcome, detail = ScenarioOutcome.PASSED, ""
    try:
        with stage.group(scenario) as cluster, told_who_ended(cluster):
            with Play(cluster, timeout) as play:
                play.begin()
                play.run(scenario)
            if scenario.leaves_the_group:
                with Play(cluster, timeout) as play:
                    play.clear()
    except NotSupportedError as reason:
        outcome, detail = ScenarioOutcome.UNSUPPORTED, str(reason)
    except (DifferenceError, ServerError, ValueError) as difference:
        outcome, detail = ScenarioOutcome.FAILED, str(difference)
    return ScenarioResult(scenario, outcome, detail, time.monotonic() - began)


@contextmanager
def told_who_ended(cluster: LocalCluster) -> Iterator[None]:
    """Have a difference name the gateways that ended by themselves."""
    try:
        yield
    except (ServerError, DifferenceError) as difference:
        raise DifferenceError("; ".join([str(difference), *cluster.obituaries()])) from None


@dataclass(slots=True)
class Play:
    """The state of a scenario that is being played."""

    cluster: LocalCluster
    timeout: float
    clients: dict[str, RawClient] = field(default_factory=dict)
    latencies: dict[str, list[float]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    sides: tuple[tuple[str, ...], ...] = ()
    missed: dict[str, float] = field(default_factory=dict)
    """Seconds of scenario time that passed while a replica was down."""
    spoke: int = 0
    """The tick of the wall clock when the last command was answered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close all connections."""
        for client in self.clients.values():
            client.close()

    def begin(self) -> None:
        """Cut every link. Joining members need theirs first."""
        if isinstance(self.cluster, OpenCluster):
            self.sync(None)

    def clear(self) -> None:
        """Remove all data of a group that has all of its members, for the next scenario."""
        pairs = list(self.open_pairs(None))
        for one, other in pairs:
            self.cluster.heal(one, other)
        self.wait_together(self.cluster.names, quiet=False)
        self.call(self.cluster.names[0], (b"FLUSHALL",))
        self.wait_together(self.cluster.names)
        self.cut(pairs)
        for region in self.cluster:
            left = keys_of(region.server)
            if left:
                raise DifferenceError(f"FLUSHALL leaves keys at {region.name}: {left}")

    def run(self, scenario: Scenario) -> None:
        """All steps, then all expectations. Raises NotSupportedError or DifferenceError."""
        for number, step in enumerate(scenario.steps, 1):
            self.do(step, f"step {number}")
        for name, expectations in scenario.expect.items():
            replicas = self.live() if name == "all" else [name]
            for expectation in expectations:
                self.expect(expectation, replicas)

    def live(self) -> list[str]:
        """The replicas that run."""
        return [name for name in self.cluster.names if name not in self.down]

    def do(self, step: ScenarioStep, where: str) -> None:
        """Do one step."""
        match step.kind:
            case "cmd":
                self.command(step, where)
            case "tx":
                self.transaction(step, where)
            case "sync":
                self.sync(step.groups[0] if step.groups else None)
            case "gc":
                self.sync(None)
            case "partition":
                self.sides = step.groups
            case "heal":
                self.sides = ()
            case "advance":
                for name in self.down:
                    self.missed[name] = self.missed.get(name, 0.0) + step.seconds
                for name in self.live():
                    self.move_clock(name, "ADVANCE", step.seconds)
            case "clock":
                self.move_clock(step.at, "SKEW", step.seconds)
            case "stop":
                self.stop(step.at)
            case "start":
                self.start(step.at)
            case "crash":
                self.hang_up(step.at)
                self.cluster[step.at].gateway.kill()
                self.launch(step.at)
            case "wipe":
                self.wipe(step.at)
            case "forget":
                self.forget(step.at)
            case "add":
                self.add(step.at)
            case _:
                raise NotSupportedError(f"{where}: {step.kind} {step.at or step.text}")

    # Commands and replies

    def client(self, name: str) -> RawClient:
        """Our connection to a replica's gateway."""
        if name in self.down:
            raise DifferenceError(f"the scenario uses {name}, which it has stopped")
        if name not in self.clients:
            self.clients[name] = RawClient(self.cluster[name].gateway.port, self.timeout)
        return self.clients[name]

    def call(self, name: str, words: tuple[bytes, ...]) -> Reply:
        """One command at one replica, timed, in a later clock tick than the one before, as the format promises."""
        client = self.client(name)
        while time.time_ns() // CLOCK_TICK == self.spoke:
            time.sleep(SHORTEST_PAUSE / 10)
        began = time.monotonic()
        reply = client.call(*words)
        self.spoke = time.time_ns() // CLOCK_TICK  # its timestamp is at most this tick
        self.latencies.setdefault(name, []).append(time.monotonic() - began)
        return reply

    def command(self, step: ScenarioStep, where: str) -> None:
        """A command, as often as asked; every reply must be as expected."""
        (words,) = step.commands
        for _ in range(step.times):
            reply = self.call(step.at, words)
            check(step.reply, reply, f"{where}, {spell(words)} at {step.at}")

    def transaction(self, step: ScenarioStep, where: str) -> None:
        """MULTI, the commands, EXEC."""
        for _ in range(step.times):
            for words in ((b"MULTI",), *step.commands):
                check(UNSET, self.call(step.at, words), f"{where}, {spell(words)} at {step.at}")
            reply = self.call(step.at, (b"EXEC",))
            check(step.reply, reply, f"{where}, EXEC at {step.at}")

    def expect(self, expectation: Expectation, replicas: Iterable[str]) -> None:
        """Check an expectation at each of the replicas, and that they agree if it says so."""
        replies: dict[str, Reply] = {}
        what = expectation.probe or spell(expectation.command)
        for name in replicas:
            if expectation.probe:
                seen = Seen(self.latencies.get(name, []), self.apart(name))
                try:
                    replies[name] = read_probe(expectation.probe, self.cluster[name], seen)
                except UnknownProbeError as unknown:
                    raise NotSupportedError(f"probe {unknown}") from unknown
            else:
                replies[name] = self.call(name, expectation.command)
            check(expectation.reply, replies[name], f"at the end, {what} at {name}")
        if expectation.same:
            compared = [comparable(expectation.command, reply) for reply in replies.values()]
            if any(one != other for one, other in itertools.pairwise(compared)):
                told = ", ".join(f"{name}: {show(reply)}" for name, reply in replies.items())
                raise DifferenceError(f"at the end, {what}: not the same everywhere ({told})")

    # Links, processes, clocks

    def apart(self, name: str) -> set[str]:
        """The replicas from which this one is partitioned."""
        if not self.sides:
            return set()
        return set(self.live()) - {name}.union(*(side for side in self.sides if name in side))

    def open_pairs(self, group: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
        """The links that are open in this exchange."""
        for one, other in itertools.combinations(self.live(), 2):
            if other not in self.apart(one) and (
                group is None or (one in group and other in group)
            ):
                yield one, other

    def sync(self, group: tuple[str, ...] | None) -> None:
        """Open the links, wait until all connected replicas have the same, cut the links again."""
        pairs = list(self.open_pairs(group))
        for one, other in pairs:
            self.cluster.heal(one, other)
        for part in connected(self.cluster.names, pairs):
            # Only the whole group can acknowledge; a part of it is done when its members have the same.
            self.wait_together(part, quiet=len(part) == len(self.cluster.names))
        self.cut(pairs)

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Cut these links."""
        for one, other in pairs:
            self.cluster.cut(one, other)

    # Members that come and go

    def wait_together(self, names: Sequence[str], *, quiet: bool = True) -> None:
        """Wait until all of them are members everywhere and have the same; with `quiet`, until that is stable, too."""
        if isinstance(self.cluster, OpenCluster):
            self.wait_members(names, lambda members: set(names) <= members)
        self.cluster.wait_equal(names, quiet=quiet, timeout=self.timeout)

    def wait_members(self, names: Iterable[str], hold: Callable[[set[str]], bool]) -> None:
        """Wait until `hold` is true of the members that each of `names` reports."""
        waiting, deadline = list(names), time.monotonic() + self.timeout
        pause = SHORTEST_PAUSE
        while waiting:
            try:
                told = json.loads(self.cluster[waiting[0]].command("MEMBERS"))
            except CommandRefusedError:  # it is rejoining
                told = []
            if hold({member["name"] for member in told}):
                waiting.pop(0)
            elif time.monotonic() > deadline:
                raise DifferenceError(f"at {waiting[0]} the members are still {told}")
            else:
                time.sleep(pause)
                pause = min(1.5 * pause, LONGEST_PAUSE)

    def forget(self, name: str) -> None:
        """Evict a replica, which learns of it only in its next exchange with another one."""
        rest = [other for other in self.live() if other != name]
        pairs = list(itertools.combinations(rest, 2))
        for one, other in pairs:
            self.cluster.heal(one, other)
        force = [] if 2 * len(rest) > len(self.cluster.names) else ["FORCE"]
        self.cluster[rest[0]].command("EVICT", name, *force)
        self.wait_members(rest, lambda members: name not in members)
        self.cluster.wait_equal(rest, quiet=True, timeout=self.timeout)
        self.cut(pairs)

    def add(self, name: str) -> None:
        """Have one more replica join; all links of the others are open meanwhile."""
        assert isinstance(self.cluster, OpenCluster)
        pairs = list(itertools.combinations(self.live(), 2))
        for one, other in pairs:
            self.cluster.heal(one, other)
        self.cluster.add(name)
        self.wait_together(self.live())
        self.cut(itertools.combinations(self.live(), 2))

    def move_clock(self, name: str, word: str, seconds: float) -> None:
        """Move one replica's clock. word: ADVANCE moves deadlines with it, SKEW does not."""
        try:
            self.cluster[name].command(word, str(round(seconds * 1000)))
        except CommandRefusedError as refused:
            raise NotSupportedError(str(refused)) from refused

    def hang_up(self, name: str) -> None:
        """Close our connection to a gateway that is about to end."""
        client = self.clients.pop(name, None)
        if client is not None:
            client.close()
        self.cluster[name].close()

    def launch(self, name: str) -> None:
        """Start a gateway again; its links are cut."""
        self.cluster[name].gateway.launch()
        self.cluster[name].gateway.wait_ready(self.timeout)

    def stop(self, name: str) -> None:
        """Stop the gateway, then the server."""
        self.hang_up(name)
        if not self.cluster[name].gateway.stop(self.timeout):
            raise DifferenceError(f"gateway {name} did not stop within {self.timeout:.0f} s")
        self.cluster[name].server.stop()
        self.down.add(name)

    def start(self, name: str) -> None:
        """Start server and gateway again, with the data on disk. The time meanwhile passed for them, too."""
        self.cluster[name].server.restart()
        self.launch(name)
        if name in self.missed:
            self.move_clock(name, "ADVANCE", self.missed.pop(name))
        self.down.discard(name)

    def wipe(self, name: str) -> None:
        """Delete the server's data; the gateway's local file stays."""
        self.hang_up(name)
        region = self.cluster[name]
        region.gateway.stop(self.timeout)
        empty(region.server)
        try:
            self.launch(name)
        except ServerError as error:
            raise NotSupportedError(f"continuing after the loss of a server: {error}") from error


def keys_of(server: EmbeddedServer) -> str:
    """What `INFO keyspace` tells of the databases of clients; nothing if they are empty."""
    with RawClient(server.port) as client:
        told = client.call("INFO", "keyspace")
    assert isinstance(told, bytes)
    lines = [line for line in told.decode().split() if line.startswith("db")]
    return " ".join(line for line in lines if not line.startswith(f"db{METADATA_DATABASE}:"))


def connected(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """The connected parts of the graph with more than one node."""
    part = {name: frozenset((name,)) for name in names}
    for one, other in pairs:
        union = part[one] | part[other]
        part.update(dict.fromkeys(union, union))
    for members in dict.fromkeys(part.values()):
        if len(members) > 1:
            yield tuple(sorted(members))


def check(expected: object, reply: Reply, where: str) -> None:
    """Raises DifferenceError unless `reply` fits, or NotSupportedError if our gateway refused the command."""
    refused = isinstance(reply, ErrorReply) and REFUSED.match(reply.text)
    if expected is UNSET:
        if refused:
            raise NotSupportedError(f"{where}: {show(reply)}")
        return
    if not matches(expected, reply):
        if refused:
            raise NotSupportedError(f"{where}: {show(reply)}")
        raise DifferenceError(f"{where}: expected {expected!r}, got {show(reply)}")


def spell(words: tuple[bytes, ...]) -> str:
    """A command for people."""
    shown = [word.decode(errors="backslashreplace") for word in words[:8]]
    shown = [word if len(word) <= 40 else f"{word[:40]}…" for word in shown]
    return " ".join(shown) + (" …" if len(words) > 8 else "")
