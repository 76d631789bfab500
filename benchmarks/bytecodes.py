"""Python instructions that a gateway needs for a write: a count, free of the machine's noise.

    python -m benchmarks.bytecodes [--writes 400] [--command SADD] [--modules 12] [--json]

Two regions are linked; the writer's gateway runs in a thread of its own, whose instructions are counted by opcode
tracing. After a warm-up clients send SADD of one new member (or INCR) to known keys, in three patterns; printed are the
instructions of the gateway's thread for each write, and the modules that have most of them. Native code (parsing,
packing, the event loop's system calls) does not count, and the figures are those of one Python version only.
"""

import argparse
import json
import math
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import hiredis
import trio

from crdtcast.adapters.redis.embedded import start_server
from crdtcast.adapters.redis.gateway import Gateway, GatewayOptions
from crdtcast.adapters.redis.server_address import ServerAddress
from crdtcast.node import NodeOptions
from crdtcast.options import Address
from crdtcast.ports import free_ports

PATTERNS = {"one client": (1, 1), "50 clients": (50, 1), "50 clients, pipeline 16": (50, 16)}
"""Name of a pattern -> number of clients, commands that each sends at once."""
KEYS = 50
_PATIENCE = 60.0


class Counted:
    """Instructions of the threads that called `count_here`, by file, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.by_file: Counter[str] = Counter()

    def count_here(self) -> None:
        """Count this thread's instructions from the next call of a function on."""
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        file = frame.f_code.co_filename
        by_file = self.by_file

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode" and self.on:
                by_file[file] += 1
            return count

        return count


class Running:
    """A gateway in a thread of its own, its instructions counted if there is a counter."""

    def __init__(self, options: GatewayOptions, counted: Counted | None = None) -> None:
        self.gateway = Gateway(options)
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
        trio.run(main)

    @property
    def port(self) -> int:
        assert self.gateway.address is not None
        return self.gateway.address[1]

    def stop(self) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self.gateway.stop)
        self._thread.join(_PATIENCE)


def options(
    name: str, other: str, server: int, peer: int, peer_of: int, directory: Path
) -> GatewayOptions:
    """Of one of two gateways in a group of fixed members, with an event log, as in production."""
    peers: dict[str, Address | None] = {other: ("127.0.0.1", peer_of)}
    return GatewayOptions(
        node=NodeOptions(name=name, listen=("127.0.0.1", peer), peers=peers),
        listen=("127.0.0.1", 0),
        server=ServerAddress("127.0.0.1", server),
        state_dir=directory / f"state-{name}",
        log_dir=directory / "logs",
    )


@contextmanager
def two_regions(counted: Counted) -> Iterator[Running]:
    """The gateway of the first of two linked regions, counted."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        here, there = free_ports(2)
        with start_server(directory / "a") as a, start_server(directory / "b") as b:
            running = [
                Running(options("a", "b", a.port, here, there, directory), counted),
                Running(options("b", "a", b.port, there, here, directory)),
            ]
            # Digests of keys that have been quiet for a while come by the clock, which tracing slows down.
            running[0].gateway.recorder._quiet = math.inf
            try:
                yield running[0]
            finally:
                for each in running:
                    each.stop()


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
            if self._command == "INCR":
                words.append(hiredis.pack_command(("INCR", key)))
            else:
                member = b"%d:%d" % (self._number, self._sent)
                words.append(hiredis.pack_command((self._command, key, member)))
        self.socket.sendall(b"".join(words))

    def receive(self) -> None:
        """Wait for the replies; each is an integer."""
        received = b""
        while received.count(b"\r\n") < self._pipeline:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise ConnectionError("the gateway hung up")
            received += chunk
        if received.count(b":") != self._pipeline:
            raise AssertionError(f"not as expected: {received!r:.200}")


@dataclass(frozen=True)
class Result:
    """Instructions for each write, and by file for all of them."""

    pattern: str
    each: float
    by_file: Counter[str]
    writes: int


def measure(counted: Counted, port: int, command: str, pattern: str, writes: int) -> Result:
    """Count one pattern: as many writes again as warm-up come first."""
    number, pipeline = PATTERNS[pattern]
    clients = [Client(port, n, command, pipeline) for n in range(number)]
    rounds = max(1, writes // (number * pipeline))
    try:
        for counting in (False, True):
            counted.by_file.clear()
            counted.on = counting
            for _ in range(rounds):
                for client in clients:
                    client.send()
                for client in clients:
                    client.receive()
            counted.on = False
    finally:
        for client in clients:
            client.socket.close()
    done = rounds * number * pipeline
    return Result(pattern, counted.by_file.total() / done, Counter(counted.by_file), done)


def measured(command: str, writes: int) -> list[Result]:
    """All patterns."""
    counted = Counted()
    with two_regions(counted) as running:
        return [measure(counted, running.port, command, pattern, writes) for pattern in PATTERNS]


def _module(file: str) -> str:
    path = Path(file)
    return "/".join(path.parts[-2:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writes", type=int, default=1600, help="writes of each pattern")
    parser.add_argument("--command", choices=("SADD", "INCR"), default="SADD")
    parser.add_argument("--modules", type=int, default=12, help="modules that are listed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = measured(given.command, given.writes)
    if given.json:
        print(
            json.dumps({"python": sys.version.split()[0], **{r.pattern: r.each for r in results}})
        )
        return
    print(f"Python {sys.version.split()[0]}, {given.command}, instructions for each write")
    for result in results:
        print(f"\n{result.pattern}: {result.each:,.0f}")
        for file, count in result.by_file.most_common(given.modules):
            print(f"  {count / result.writes:8,.1f}  {_module(file)}")


if __name__ == "__main__":
    main()
