"""Python instructions that a gateway needs for a write: a count, free of the machine's noise.

    python -m benchmarks.bytecodes [--writes 400] [--command SADD] [--alone | --other] [--group] [--most 12]
        [--functions]
    python -m benchmarks.bytecodes --record

Two regions are linked, each with an event log; their members are fixed, or, with `--group`, may come and go. The
writer's gateway runs in a thread of its own, whose instructions are counted by opcode tracing. After a warm-up clients
send SADD of one new member (or another write) to known keys, in three patterns; what several clients send reaches the
gateway as one batch. Printed are the instructions for each write, by stage (`benchmarks/stages.py`), and the modules
that have most of them: *own* ones are those of this package and of the methods that are generated for its classes,
*all* includes what Trio and the standard library do. Native code (parsing, packing, system calls) does not count, and
the figures are those of one Python version only.

`--other` also counts those of the other region's gateway, until it has applied and stored these writes: in the same
run, since how many writes it gets at once depends on how fast both are. They share one interpreter, so the writer's
figures are somewhat less exact then.

What becomes stable belongs to the writes that did: counting begins when nothing of the warm-up is left to forget, and
ends when nothing of the writes is. So it does not depend on the moment at which a digest comes.

Tracing makes the program about thirty times as slow, so Trio's clock goes as much slower: else timers and digests would
have a larger share than they have. While clients write it goes by the time that this process has worked, so that
other programs add nothing. `--alone` counts one gateway without others and without an event log: of what is
measured here, its *own* instructions come closest to figures that an earlier program gave for an earlier version
(6,420, 1,336 and 711 for SADD; about 6,300, 1,360 and 765 are counted here for that version).

`bytecodes.json` holds the figures that the test suite allows to rise by a tenth (`tests/test_bytecodes.py`): "own" of
the writer, "other" of the other region, "group" the same where members come and go, "stages" those of SADD by stage.
`--record` writes the file.
"""

import argparse
import json
import math
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import hiredis
import trio

import crdtcast
from benchmarks.stages import by_stage
from crdtcast.adapters.redis.gateway import Gateway
from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.store.effects import READS
from crdtcast.ports import free_ports
from crdtcast.transport.options import Address, NodeOptions

FIGURES = Path(__file__).with_suffix(".json")
"""Command -> pattern -> own instructions for each write, of the Python version under "python"."""
PATTERNS = {"one client": (1, 1), "50 clients": (50, 1), "50 clients, pipeline 16": (50, 16)}
"""Name of a pattern -> number of clients, commands that each sends at once."""
COMMANDS = ("SADD", "INCR", "SET", "HSET", "HINCRBY", "ZADD", "ZINCRBY")
GUARDED = ("SADD", "INCR", "SET", "HSET", "ZADD")
"""Those whose figures are recorded."""
KEYS = 50
WRITES = 400
"""Writes of each pattern that is recorded, and checked by the test suite."""
SLOWER = 30
"""How many times as long everything takes while instructions are counted."""
_PATIENCE = 60.0
_PACKAGE = str(Path(crdtcast.__file__).parent)


class Counted:
    """Instructions of the threads that called `count_here`, by file, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.by_code: Counter[tuple[str, str]] = Counter()

    def count_here(self) -> None:
        """Count this thread's instructions from the next call of a function on."""
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        place = frame.f_code.co_filename, frame.f_code.co_name
        by_code = self.by_code

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode" and self.on:
                by_code[place] += 1
            return count

        return count


class SlowClock(trio.abc.Clock):
    """Trio's time, as much slower as tracing makes the program: else timers take a larger share than they have."""

    def __init__(self) -> None:
        self._since = time.perf_counter, time.perf_counter(), time.perf_counter()
        self._slower = SLOWER

    def start_clock(self) -> None:
        """Nothing to do."""

    def go_by(self, source: Callable[[], float], slower: int = SLOWER) -> None:
        """From here on it advances as this one does, divided by so much. By the time of this process's work, for one,
        what else the machine does lets no timer fire; but without work none fires at all.
        """
        now = self.current_time()
        self._since, self._slower = (source, source(), now), slower

    def current_time(self) -> float:
        source, then, at = self._since
        return at + (source() - then) / self._slower

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return (deadline - self.current_time()) * self._slower


class Running:
    """A gateway in a thread of its own, its instructions counted if there is a counter."""

    def __init__(self, options: GatewayOptions, counted: Counted | None = None) -> None:
        self.gateway = Gateway(options)
        self.clock = SlowClock()
        self._counted = counted
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self._ready.wait(_PATIENCE):
            raise TimeoutError("the gateway does not start")

    def _run(self) -> None:
        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            async with trio.open_nursery() as nursery:
                await nursery.start(self.gateway.run)
                self._ready.set()

        if self._counted is not None:
            self._counted.count_here()
        trio.run(main, clock=self.clock)

    @property
    def port(self) -> int:
        assert self.gateway.address is not None
        return self.gateway.address[1]

    @contextmanager
    def held(self) -> Iterator[None]:
        """The gateway does nothing meanwhile: what clients send comes to it as one batch."""
        assert self._token is not None
        stands, go_on = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            go_on.wait(_PATIENCE)

        self._token.run_sync_soon(stand)
        stands.wait(_PATIENCE)
        try:
            yield
        finally:
            go_on.set()

    def stop(self) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self.gateway.stop)
        self._thread.join(_PATIENCE)


def options(
    name: str,
    other: str,
    server: int,
    peer: int,
    peer_of: int,
    directory: Path,
    *,
    alone: bool,
    grouped: bool,
) -> GatewayOptions:
    """Of one of two gateways with an event log, as in production; or of a lone one.

    grouped: members may come and go, and the second one joins the first; otherwise they are fixed.
    """
    knows = not (alone or (grouped and name < other))
    peers: dict[str, Address | None] = {other: ("127.0.0.1", peer_of)} if knows else {}
    level = None if grouped else READS.highest
    return GatewayOptions(
        node=NodeOptions(
            name=name, listen=("127.0.0.1", peer), peers=peers, level=level, reads=READS
        ),
        member=GroupOptions(founds=name < other) if grouped else None,
        listen_clients=("127.0.0.1", 0),
        server=ServerAddress("127.0.0.1", server),
        state_dir=directory / f"state-{name}",
        log_dir=None if alone else directory / "logs",
    )


@contextmanager
def regions(
    counted: Counted,
    *,
    alone: bool = False,
    grouped: bool = False,
    elsewhere: Counted | None = None,
) -> Iterator[list[Running]]:
    """The gateways of two linked regions, the first one counted, or a lone one. elsewhere: counts the second one."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here, there = free_ports(2)
        running: list[Running] = []
        for name, other, peer, peer_of in (("a", "b", here, there), ("b", "a", there, here)):
            # Nothing waits for a disk: how often that is asked for would follow the real clock.
            server = stack.enter_context(start_server(directory / name, appendfsync="no"))
            chosen = options(
                *(name, other, server.port, peer, peer_of, directory), alone=alone, grouped=grouped
            )
            running.append(Running(chosen, elsewhere if running else counted))
            stack.callback(running[-1].stop)
            # Digests of keys that have been quiet for a while come by the real clock, too.
            running[-1].gateway.recorder._quiet = math.inf
            if alone:
                break
        yield running


class Client:
    """One connection that sends a batch of new writes, and knows each reply beforehand."""

    def __init__(self, port: int, number: int, command: str, pipeline: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number, self._command, self._pipeline = number, command, pipeline
        self._sent = 0

    def send(self) -> None:
        words: list[bytes] = []
        for _ in range(self._pipeline):
            self._sent += 1
            key = b"%b:%d" % (self._command.encode(), self._number % KEYS)
            member = b"%d:%d" % (self._number, self._sent)
            behind: tuple[bytes, ...] = (member,)
            match self._command:
                case "INCR":
                    behind = ()
                case "HSET":
                    behind = member, b"value"
                case "ZADD":
                    behind = b"%d" % self._sent, member
                case "ZINCRBY":
                    behind = b"1", b"%d" % self._number
                case "HINCRBY":
                    behind = b"%d" % self._number, b"1"
            words.append(hiredis.pack_command((self._command, key, *behind)))
        self.socket.sendall(b"".join(words))

    def receive(self) -> None:
        """Wait for the replies; each is an integer, OK of a SET, or a score."""
        received, lines = b"", 2 if self._command == "ZINCRBY" else 1
        while received.count(b"\r\n") < lines * self._pipeline:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise ConnectionError("the gateway hung up")
            received += chunk
        sign = {"SET": b"+OK", "ZINCRBY": b"$"}.get(self._command, b":")
        if received.count(sign) != self._pipeline:
            raise AssertionError(f"not as expected: {received!r:.200}")


@dataclass(frozen=True)
class Result:
    """What one pattern took in one region. by_code: instructions by file and function, of all its writes."""

    pattern: str
    writes: int
    by_code: Counter[tuple[str, str]]
    other: "Result | None" = None
    """The same of the other region."""

    @property
    def own(self) -> float:
        """For each write, in the project's own code: what the limits are for."""
        return sum(n for (file, _), n in self.by_code.items() if _is_ours(file)) / self.writes

    @property
    def all(self) -> float:
        """For each write, with what Trio and the standard library do for it."""
        counted = sum(n for (file, _), n in self.by_code.items() if file != __file__)
        return counted / self.writes

    @property
    def stages(self) -> dict[str, float]:
        """`own` by stage."""
        own = {place: n for place, n in self.by_code.items() if _is_ours(place[0])}
        return by_stage(own, self.writes)

    def most(self, number: int, *, functions: bool) -> list[tuple[float, str]]:
        """The modules, or functions, that have most of them, for each write."""
        found: Counter[str] = Counter()
        for (file, function), count in self.by_code.items():
            found[f"{_module(file)} {function}" if functions else _module(file)] += count
        return [(count / self.writes, name) for name, count in found.most_common(number)]


def _is_ours(file: str) -> bool:
    """Below the package, or generated for one of its classes (`__init__` of dataclasses and the like)."""
    return file.startswith(_PACKAGE) or file == "<string>"


def _module(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


def _wait_for_rest(regions: list[Running]) -> None:
    """Until all have the same, and nothing of it is left to be forgotten as stable."""
    until = time.monotonic() + _PATIENCE
    while not all(_rests(region) for region in regions) or not _are_equal(regions):
        if time.monotonic() > until:
            raise TimeoutError("the regions do not come to rest")
        time.sleep(0.01)


def _rests(region: Running) -> bool:
    """Whether the region's server holds the metadata of a quiet group only."""
    committer, recorder = region.gateway.committer, region.gateway.recorder
    engine, state = committer.engine, committer.state
    assert engine is not None and state is not None
    return (
        engine.quiet
        and state.stable == engine.stable
        and not committer.working
        and not recorder.has_forgettable
    )


def _are_equal(regions: list[Running]) -> bool:
    states = [region.gateway.committer.state for region in regions]
    return all(state is not None and state.vector == states[0].vector for state in states)


def measure(
    counts: list[Counted], regions: list[Running], command: str, pattern: str, writes: int
) -> Result:
    """Count one pattern: as many writes again as warm-up come first. counts: of the first regions."""
    number, pipeline = PATTERNS[pattern]
    running = regions[0]
    clients = [Client(running.port, n, command, pipeline) for n in range(number)]
    rounds = max(2, writes // (number * pipeline))
    try:
        for counting in (False, True):
            for counted in counts:
                counted.by_code.clear()
                counted.on = counting
            for region in regions:
                region.clock.go_by(time.process_time)
            for _ in range(rounds):
                with running.held() if number > 1 else nullcontext():
                    for client in clients:
                        client.send()
                for client in clients:
                    client.receive()
            for region in regions:
                region.clock.go_by(time.perf_counter, SLOWER // 3)
            _wait_for_rest(regions)
            for counted in counts:
                counted.on = False
    finally:
        for region in regions:
            region.clock.go_by(time.perf_counter)
        for client in clients:
            client.socket.close()
    sent = rounds * number * pipeline
    others = [Result(pattern, sent, Counter(counted.by_code)) for counted in counts[1:]]
    return Result(pattern, sent, Counter(counts[0].by_code), *others)


def measured(
    command: str,
    writes: int,
    *,
    alone: bool = False,
    other: bool = False,
    grouped: bool = False,
    patterns: Iterable[str] = PATTERNS,
) -> list[Result]:
    """All patterns, or these. other: count the other region, too."""
    counts = [Counted(), Counted()] if other else [Counted()]
    elsewhere = counts[1] if other else None
    with regions(counts[0], alone=alone, grouped=grouped, elsewhere=elsewhere) as running:
        return [measure(counts, running, command, pattern, writes) for pattern in patterns]


def recorded() -> dict[str, Any]:
    """What `bytecodes.json` holds, as of now: the least counts of a few tries."""
    told: dict[str, Any] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for grouped, commands in ((False, GUARDED), (True, GUARDED[:1])):
        own: dict[str, dict[str, int]] = {}
        other: dict[str, dict[str, int]] = {}
        for command in commands:
            tries = [measured(command, WRITES, other=True, grouped=grouped) for _ in range(5)]
            best = [min(same, key=lambda r: r.own) for same in zip(*tries, strict=True)]
            own[command] = {r.pattern: round(r.own) for r in best}
            others = [[r.other for r in same if r.other] for same in zip(*tries, strict=True)]
            other[command] = {s[0].pattern: round(min(r.own for r in s)) for s in others}
            if command == "SADD":
                stages = {r.pattern: {s: round(n) for s, n in r.stages.items()} for r in best}
        if grouped:
            told["group"] = {"own": own, "other": other, "stages": stages}
        else:
            told |= {"own": own, "other": other, "stages": stages}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writes", type=int, default=1600, help="writes of each pattern")
    parser.add_argument("--command", choices=COMMANDS, default="SADD")
    parser.add_argument("--most", type=int, default=12, help="modules that are listed")
    parser.add_argument("--functions", action="store_true", help="list functions, not modules")
    parser.add_argument("--alone", action="store_true", help="no other region, no event log")
    parser.add_argument("--other", action="store_true", help="count the other region, too")
    parser.add_argument("--group", action="store_true", help="members may come and go")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help=f"write {FIGURES.name}")
    given = parser.parse_args()
    if given.record:
        FIGURES.write_text(json.dumps(recorded(), indent=2) + "\n")
        return
    if given.alone and given.other:
        parser.error("--alone has no other region")
    results = measured(
        *(given.command, given.writes),
        alone=given.alone,
        other=given.other,
        grouped=given.group,
    )
    named = [
        (name, result)
        for r in results
        for name, result in ((r.pattern, r), (f"{r.pattern}, other region", r.other))
        if result is not None
    ]
    if given.json:
        figures = {name: {"own": round(r.own), "all": round(r.all)} for name, r in named}
        print(json.dumps({"python": sys.version.split()[0], **figures}))
        return
    print(f"Python {sys.version.split()[0]}, {given.command}, instructions for each write")
    for name, result in named:
        print(f"\n{name}: own {result.own:,.0f}, all {result.all:,.0f}")
        print(", ".join(f"{stage} {count:,.0f}" for stage, count in result.stages.items()))
        for count, place in result.most(given.most, functions=given.functions):
            print(f"  {count:8,.1f}  {place}")


if __name__ == "__main__":
    main()
