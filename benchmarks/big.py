"""What one big command, and many clients at once, cost: a gateway, another region and the plain server in one run.

    python -m benchmarks.big [--members 1000000] [--clients 1000] [--appendfsync no]

For each command on a set of so many members, once at a plain server and once through a gateway: seconds until the
reply, CPU seconds of the gateway, of its server, of the other region's gateway and of its server (from /proc, until
it is stable in both), and the longest PING of another client meanwhile, at both gateways. Then so many clients
pipeline 100 INCR each: the longest time to a client's last reply, and whether all replies and the sum are exact. All
processes and this one share the machine's cores: give its load with the figures.
"""

import argparse
import itertools
import os
import selectors
import socket
import tempfile
import time
from pathlib import Path

from benchmarks.beside import Beside
from crdtcast.adapters.redis.cluster import LocalCluster, holds_same
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server

INCREMENTS = 100
_PATIENCE = 600.0
_PAUSE = 0.005
_TICKS = os.sysconf("SC_CLK_TCK")


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pinging(port: int) -> Beside:
    """Another client: PING again and again."""
    return Beside(port, itertools.repeat(("PING",)), _PAUSE)


def exchange(port: int, request: bytes, size: int) -> tuple[float, bytes]:
    """Seconds until `size` bytes of reply were here, and how they begin."""
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as client:
        began = time.perf_counter()
        client.sendall(request)
        received, head = 0, b""
        while received < size:
            piece = client.recv(1 << 20)
            assert piece, "the connection was closed"
            received += len(piece)
            head = (head + piece)[:40]
        assert received == size, (received, size, head)
        return time.perf_counter() - began, head


def until_equal(cluster: LocalCluster) -> None:
    """As `wait_equal`, asking seldom: a question costs CPU, too."""
    while not holds_same([region.status() for region in cluster], quiet=True):
        time.sleep(0.2)


def run(
    name: str, request: bytes, reply: bytes | int, plain: EmbeddedServer, cluster: LocalCluster
) -> None:
    """One command, at the plain server and through the gateway. reply: how it begins, or its size."""
    size = reply if isinstance(reply, int) else len(reply)
    before = cpu_seconds(plain.pid)
    with pinging(plain.port) as alone:
        plain_took, head = exchange(plain.port, request, size)
    plain_cpu = cpu_seconds(plain.pid) - before
    assert isinstance(reply, int) or head == reply[:40], head
    a, b = cluster["a"], cluster["b"]
    assert a.gateway.process is not None and b.gateway.process is not None
    pids = a.gateway.process.pid, a.server.pid, b.gateway.process.pid, b.server.pid
    start = [cpu_seconds(pid) for pid in pids]
    with pinging(a.gateway.port) as near, pinging(b.gateway.port) as far:
        took, head = exchange(a.gateway.port, request, size)
        assert isinstance(reply, int) or head == reply[:40], head
        until_equal(cluster)
    cpu = [cpu_seconds(pid) - was for pid, was in zip(pids, start, strict=True)]
    print(
        f"{name:10} plain {plain_took:5.2f} s, CPU {plain_cpu:5.2f}, PING {alone.longest:5.3f} | "
        f"gateway {took:5.2f} s, CPU gateway {cpu[0]:5.2f} server {cpu[1]:5.2f} other gateway "
        f"{cpu[2]:5.2f} its server {cpu[3]:5.2f}, PING {near.longest:5.3f} there {far.longest:5.3f}",
        flush=True,
    )


def many_clients(port: int, clients: int, key: bytes) -> float:
    """Longest seconds until a client had the last reply of its pipeline; every reply and the sum are checked."""
    request = encode(b"INCR", key) * INCREMENTS
    seen: set[int] = set()
    with selectors.DefaultSelector() as selector:
        texts: dict[socket.socket, bytearray] = {}
        for _ in range(clients):
            client = socket.create_connection(("127.0.0.1", port), _PATIENCE)
            texts[client] = bytearray()
            selector.register(client, selectors.EVENT_READ)
        began = time.perf_counter()
        longest = 0.0
        for client in texts:
            client.sendall(request)
        left = set(texts)
        while left:
            for ready, _ in selector.select():
                client = ready.fileobj
                assert isinstance(client, socket.socket)
                piece = client.recv(1 << 16)
                assert piece, "the connection was closed"
                text = texts[client]
                text += piece
                if text.count(b"\n") == INCREMENTS:
                    longest = max(longest, time.perf_counter() - began)
                    left.discard(client)
                    replies = [int(line[1:]) for line in text.splitlines()]
                    assert replies == sorted(replies)
                    seen.update(replies)
    for client in texts:
        client.close()
    assert seen == set(range(1, clients * INCREMENTS + 1)), "a reply was doubled or lost"
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--appendfsync", default="no", choices=("always", "everysec", "no"))
    options = parser.parse_args()
    count = options.members
    members = [b"%d" % number for number in range(count)]
    size = len(encode(*members))
    half = members[: count // 2]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        plain = start_server(directory / "plain", appendfsync=options.appendfsync)
        with (
            plain,
            LocalCluster(directory, "ab", group="big", appendfsync=options.appendfsync) as cluster,
        ):
            for name, request, reply in (
                ("SADD", encode(b"SADD", b"one", *members), b":%d\r\n" % count),
                ("SMEMBERS", encode(b"SMEMBERS", b"one"), size),
                ("SREM half", encode(b"SREM", b"one", *half), b":%d\r\n" % len(half)),
                ("DEL", encode(b"DEL", b"one"), b":1\r\n"),
            ):
                run(name, request, reply, plain, cluster)
            alone = many_clients(plain.port, options.clients, b"n")
            through = many_clients(cluster["a"].gateway.port, options.clients, b"n")
            print(
                f"{options.clients} clients, {INCREMENTS} INCR each, all answered and exact: longest "
                f"wait plain {alone:.2f} s, gateway {through:.2f} s"
            )
    print(f"load average {os.getloadavg()}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
