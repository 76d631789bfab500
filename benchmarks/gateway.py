"""Throughput and CPU of a gateway beside the plain server, in turn in one run, every reply and the end state checked.

    python benchmarks/gateway.py [--seconds 1.5] [--rounds 3] [--members 3] [--commands 'sadd;set ex'] [--keys 2000000]
        [--everywhere] [--json]

Three regions run on this machine with event logs on; load goes to one of them. Rows: command, pipeline, connections;
columns: operations a second of the plain server and through the gateway, their ratio (median of the rounds), CPU
microseconds per operation of the gateway and of its server, and p50 in milliseconds of one request. All share the
machine's cores with the load generator, so ratios say more than rates. A connection uses one key, which the gateway
knows; with `--keys` so many are shared out among the connections, and hardly one is known when it is used.

A rate counts until the last reply. With `--everywhere` it counts until the servers of all regions hold the last write
of each connection; they are asked past their gateways, again and again from the last reply on.
"""

import argparse
import json
import math
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.server.embedded import start_server

PIPELINES = (1, 16, 64)
CONNECTIONS = (1, 50)
_PATIENCE = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


def text(word: bytes) -> bytes:
    """A reply that is a string."""
    return b"$%d\r\n%b\r\n" % (len(word), word)


@dataclass(frozen=True)
class Load:
    """Commands of one connection, by number from 0, and what is known of their replies beforehand. question, answer: of
    the end state, behind so many commands. Keys are the label's.
    """

    words: Callable[[bytes, int], Sequence[bytes]]
    reply: Callable[[int], bytes]
    question: Callable[[bytes], Sequence[bytes]]
    answer: Callable[[int], bytes]
    before: Sequence[bytes] = ()
    turn: int = 1
    """So many commands behind each other are on one key."""


def _number(n: int) -> bytes:
    return b":%d\r\n" % n


def _ok(n: int) -> bytes:
    return b"+OK\r\n"


def _last(n: int) -> bytes:
    return text(b"%d" % (n - 1))


def _get(label: bytes) -> Sequence[bytes]:
    return b"GET", label


LOADS = {
    "sadd": Load(
        lambda label, n: (b"SADD", label, b"member:%d" % n),
        lambda n: _number(1),
        lambda label: (b"SCARD", label),
        _number,
    ),
    "incr": Load(
        lambda label, n: (b"INCR", label),
        lambda n: _number(n + 1),
        _get,
        lambda n: text(b"%d" % n),
    ),
    "get": Load(
        lambda label, n: (b"GET", label),
        lambda n: text(b"7"),
        _get,
        lambda n: text(b"7"),
        (b"INCRBY", b"7"),
    ),
    "set": Load(lambda label, n: (b"SET", label, b"%d" % n), _ok, _get, _last),
    "set ex": Load(lambda label, n: (b"SET", label, b"%d" % n, b"EX", b"1000"), _ok, _get, _last),
    "set nx": Load(
        lambda label, n: (b"SET", label, b"v", b"NX"),
        lambda n: b"$-1\r\n" if n else _ok(n),
        _get,
        lambda n: text(b"v"),
    ),
    "hset": Load(
        lambda label, n: (b"HSET", label, b"field:%d" % (n % 50), b"%d" % n),
        lambda n: _number(int(n < 50)),
        lambda label: (b"HLEN", label),
        lambda n: _number(min(n, 50)),
    ),
    "hincrby": Load(
        lambda label, n: (b"HINCRBY", label, b"f", b"1"),
        lambda n: _number(n + 1),
        lambda label: (b"HGET", label, b"f"),
        lambda n: text(b"%d" % n),
    ),
    "zadd": Load(
        lambda label, n: (b"ZADD", label, b"%d" % n, b"member:%d" % (n % 50)),
        lambda n: _number(int(n < 50)),
        lambda label: (b"ZCARD", label),
        lambda n: _number(min(n, 50)),
    ),
    "zincrby": Load(
        lambda label, n: (b"ZINCRBY", label, b"1", b"m"),
        lambda n: text(b"%d" % (n + 1)),
        lambda label: (b"ZSCORE", label, b"m"),
        lambda n: text(b"%d" % n),
    ),
    "sadd, spop": Load(
        lambda label, n: (b"SPOP", label) if n % 2 else (b"SADD", label, b"x"),
        lambda n: text(b"x") if n % 2 else _number(1),
        lambda label: (b"SCARD", label),
        lambda n: _number(n % 2),
        turn=2,
    ),
    "hset, hdel": Load(
        lambda label, n: (b"HDEL", label, b"f") if n % 2 else (b"HSET", label, b"f", b"1"),
        lambda n: _number(1),
        lambda label: (b"HLEN", label),
        lambda n: _number(n % 2),
        turn=2,
    ),
    "incr, get": Load(
        lambda label, n: (b"GET", label) if n % 2 else (b"INCR", label),
        lambda n: text(b"%d" % (n // 2 + 1)) if n % 2 else _number(n // 2 + 1),
        _get,
        lambda n: text(b"%d" % ((n + 1) // 2)),
        turn=2,
    ),
}


class Connection:
    """One client: it knows each reply beforehand, byte for byte. keys: over which it goes again and again, in an order
    that has no order.
    """

    def __init__(self, port: int, command: str, label: bytes, pipeline: int, keys: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.load, self.pipeline = LOADS[command], pipeline
        self.label = b"%b:%b" % (command.encode(), label)
        self.keys = keys
        self.step = next(
            step for step in range(keys * 5 // 8 + 1, 2 * keys + 1) if math.gcd(step, keys) == 1
        )
        self.count = 0
        self.expected = b""
        self.received = bytearray()
        self.sent_at = 0.0
        if self.load.before:
            name, *rest = self.load.before
            self.socket.sendall(encode(name, self.label, *rest))
            assert not self.socket.recv(100).startswith(b"-")

    def send(self) -> None:
        load, numbers = self.load, range(self.count, self.count + self.pipeline)
        self.count += self.pipeline
        request = b"".join(encode(*load.words(self.key(n), self.place(n))) for n in numbers)
        self.expected = b"".join(load.reply(self.place(n)) for n in numbers)
        self.sent_at = time.perf_counter()
        self.socket.sendall(request)

    def key(self, n: int) -> bytes:
        """Of the command of this number."""
        if self.keys == 1:
            return self.label
        return b"%b:%d" % (self.label, n // self.load.turn * self.step % self.keys)

    def place(self, n: int) -> int:
        """How many commands were on its key before."""
        turn = self.load.turn
        return n // turn // self.keys * turn + n % turn

    def receive(self) -> bool:
        """Whether the whole reply is here; it must be the expected one."""
        self.received += self.socket.recv(1 << 18)
        if len(self.received) < len(self.expected):
            return False
        assert self.received == self.expected, (self.received[:80], self.expected[:80])
        self.received.clear()
        return True

    def end_state(self) -> None:
        """What the key holds must be what was acknowledged."""
        got, answer = asked(self.socket, self.last_question), self.last_answer
        assert got == answer, (got, answer)

    @property
    def last_question(self) -> bytes:
        """What its last key holds."""
        return encode(*self.load.question(self.key(self.count - 1)))

    @property
    def last_answer(self) -> bytes:
        """To that, when all it has sent is there."""
        return self.load.answer(self.place(self.count - 1) + 1)


def asked(server: socket.socket, question: bytes) -> bytes:
    """A short reply."""
    server.sendall(question)
    return server.recv(1000)


def wait_everywhere(ports: Sequence[int], clients: Sequence[Connection]) -> None:
    """Until each of these servers holds what the clients have written. Raises TimeoutError."""
    until = time.perf_counter() + _PATIENCE
    for port in ports:
        with socket.create_connection(("127.0.0.1", port)) as server:
            for client in clients:
                while asked(server, client.last_question) != client.last_answer:
                    if time.perf_counter() > until:
                        raise TimeoutError(
                            f"the server on port {port} lacks {client.last_question!r}"
                        )
                    time.sleep(0.001)


@dataclass(frozen=True)
class Measured:
    rate: float
    p50_ms: float
    gateway_us: float
    server_us: float
    busy: float
    """CPU time of all processes, load generator and other regions included, over wall time: below the number of cores
    some of them wait, for each other or for other programs.
    """


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(
    port: int,
    command: str,
    pipeline: int,
    connections: int,
    seconds: float,
    label: str,
    keys: int,
    gateway_pid: int | None,
    server_pid: int,
    pids: Sequence[int],
    others: Sequence[int] = (),
) -> Measured:
    """Load for so many seconds; every connection has one pipeline under way. pids: of all processes that work. others:
    ports of the servers that must hold the writes before the time is taken.
    """
    each = max(keys // connections, 1)
    clients = [
        Connection(port, command, f"{label}:{n}".encode(), pipeline, each)
        for n in range(connections)
    ]
    waits: list[float] = []
    operations = 0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        gateway_before = cpu_seconds(gateway_pid) if gateway_pid else 0.0
        server_before = cpu_seconds(server_pid)
        all_before = sum(map(cpu_seconds, pids))
        started = time.perf_counter()
        deadline = started + seconds
        for client in clients:
            client.send()
        under_way = len(clients)
        while under_way:
            for key, _ in selector.select():
                client = key.data
                if not client.receive():
                    continue
                now = time.perf_counter()
                waits.append(now - client.sent_at)
                operations += pipeline
                if now < deadline:
                    client.send()
                else:
                    under_way -= 1
        wait_everywhere(others, clients)
        took = time.perf_counter() - started
        gateway_cpu = cpu_seconds(gateway_pid) - gateway_before if gateway_pid else 0.0
        server_cpu = cpu_seconds(server_pid) - server_before
        all_cpu = sum(map(cpu_seconds, pids)) - all_before
    for client in clients:
        client.end_state()
        client.socket.close()
    return Measured(
        rate=operations / took,
        p50_ms=statistics.median(waits) * 1000,
        gateway_us=gateway_cpu / operations * 1e6,
        server_us=server_cpu / operations * 1e6,
        busy=all_cpu / took,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=3, choices=range(1, 6))
    parser.add_argument("--appendfsync", default="everysec", choices=("always", "everysec", "no"))
    parser.add_argument("--no-log", action="store_true", help="without event logs")
    parser.add_argument(
        "--commands", default="sadd;incr;get", help=f"joined by ;, of: {'; '.join(LOADS)}"
    )
    parser.add_argument("--keys", type=int, default=0, help="0: one for each connection")
    parser.add_argument(
        "--everywhere", action="store_true", help="count until all regions hold the writes"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = "abcde"[: options.members]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        plain = start_server(directory / "plain", appendfsync=options.appendfsync)
        with (
            plain,
            LocalCluster(
                directory,
                names,
                group="bench",
                appendfsync=options.appendfsync,
                log_directory=None if options.no_log else directory / "logs",
            ) as cluster,
        ):
            region = cluster["a"]
            process = region.gateway.process
            assert process is not None
            gateways = [each.gateway.process for each in cluster]
            pids = [os.getpid(), *(each.server.pid for each in cluster)]
            pids += [each.pid for each in gateways if each is not None]
            others = [each.server.port for each in cluster if each is not region]
            for command in options.commands.split(";"):
                for pipeline in PIPELINES:
                    for connections in CONNECTIONS:
                        pairs = []
                        for round_ in range(options.rounds):
                            label = f"{pipeline}:{connections}:{round_}"
                            shape = (
                                *(command, pipeline, connections, options.seconds, label),
                                options.keys,
                            )
                            alone = measure(
                                *(plain.port, *shape, None, plain.pid), [plain.pid, os.getpid()]
                            )
                            through = measure(
                                *(region.gateway.port, *shape, process.pid, region.server.pid),
                                pids,
                                others if options.everywhere else (),
                            )
                            pairs.append((alone, through))
                            cluster.wait_equal(names, quiet=False, timeout=120)
                        rows.append(summary(command, pipeline, connections, pairs))
                        if not options.json:
                            print(line(rows[-1]), flush=True)
            cluster.wait_equal(names, quiet=True, timeout=120)
    print(
        json.dumps({"load": os.getloadavg(), "cores": os.cpu_count(), "rows": rows})
        if options.json
        else f"load average {os.getloadavg()}, {os.cpu_count()} cores"
    )


def summary(
    command: str, pipeline: int, connections: int, pairs: list[tuple[Measured, Measured]]
) -> dict[str, object]:
    return {
        "command": command,
        "pipeline": pipeline,
        "connections": connections,
        "plain": statistics.median(alone.rate for alone, _ in pairs),
        "gateway": statistics.median(through.rate for _, through in pairs),
        "ratio": statistics.median(through.rate / alone.rate for alone, through in pairs),
        "gateway_us": statistics.median(through.gateway_us for _, through in pairs),
        "server_us": statistics.median(through.server_us for _, through in pairs),
        "plain_busy": statistics.median(alone.busy for alone, _ in pairs),
        "busy": statistics.median(through.busy for _, through in pairs),
        "plain_p50_ms": statistics.median(alone.p50_ms for alone, _ in pairs),
        "p50_ms": statistics.median(through.p50_ms for _, through in pairs),
    }


def line(row: dict[str, object]) -> str:
    return (
        "{command:10} pipeline {pipeline:2} connections {connections:2}: plain {plain:8.0f}/s, "
        "gateway {gateway:8.0f}/s, ratio {ratio:.2f}; CPU us/op gateway {gateway_us:5.1f}, server "
        "{server_us:4.1f}; p50 {plain_p50_ms:.2f} -> {p50_ms:.2f} ms; CPU/wall {plain_busy:.2f} -> "
        "{busy:.2f}"
    ).format(**row)


if __name__ == "__main__":
    main()
