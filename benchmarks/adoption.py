"""What it costs to take over a database: time until clients are served, the index of deadlines, and the first join.

    python -m benchmarks.adoption [--keys 1000000]

A plain server is filled with texts, numbers, sets, hashes and sorted sets in three databases, each key with a deadline.
Then a gateway founds a group with it: seconds until it is ready, beside the server's own processor time for counting;
seconds until the index is whole, the server's processor time for it, and how long a client's SADD takes meanwhile,
beside before; seconds until a second region has joined. At the end every value and every deadline of both servers is
compared, and every entry of both indexes. All processes and this one share the machine's cores: give its load with the
figures.
"""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from crdtcast.adapters.redis.cluster import OpenCluster, Region
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient

AT_ONCE = 2_000
DATABASES = ("0", "3", "14")
METADATA_DB = "15"
READS = (
    ("GET", ()),
    ("GET", ()),
    ("SMEMBERS", ()),
    ("HGETALL", ()),
    ("ZRANGE", ("0", "-1", "WITHSCORES")),
)
"""How keys are read, by their number modulo 5."""


def value(number: int) -> Sequence[str]:
    """The command that writes a key."""
    key, text = f"key:{number:08}", str(number)
    match number % 5:
        case 0:
            return "SET", key, "text " + text
        case 1:
            return "SET", key, text
        case 2:
            return "SADD", key, text, "b"
        case 3:
            return "HSET", key, "f", text, "g", "x"
    return "ZADD", key, text, "a", "0.1", "b"


def database_of(number: int) -> str:
    """Most keys are in database 0."""
    return DATABASES[number % 10 // 8 + (number % 10 == 9)]


def fill(port: int, keys: int) -> None:
    """Write the keys of all databases, each with a deadline."""
    begin = int(time.time()) + 20_000
    with RawClient(port) as client:
        for db in DATABASES:
            client.call("SELECT", db)
            numbers = (number for number in range(keys) if database_of(number) == db)
            commands: Iterator[Sequence[str]] = itertools.chain.from_iterable(
                (value(number), ("EXPIREAT", f"key:{number:08}", str(begin + number % 50_000)))
                for number in numbers
            )
            while some := list(itertools.islice(commands, AT_ONCE)):
                client.pipeline(some)


def cpu(server: EmbeddedServer) -> float:
    """Seconds of processor time of the server so far."""
    with RawClient(server.port) as client:
        told = client.call("INFO", "cpu")
    assert isinstance(told, bytes)
    fields = dict(line.split(b":") for line in told.split(b"\r\n") if b":" in line)
    return float(fields[b"used_cpu_sys"]) + float(fields[b"used_cpu_user"])


def cpu_of(region: Region) -> float:
    """Seconds of processor time of a gateway so far."""
    assert region.gateway.process is not None
    fields = Path(f"/proc/{region.gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waits(client: RawClient, count: int) -> list[float]:
    """Seconds of a client's writes, one after the other."""
    found = []
    for number in range(count):
        began = time.perf_counter()
        client.call("SADD", "written", str(number))
        found.append(time.perf_counter() - began)
    return found


def shown(found: Sequence[float]) -> str:
    """Median and the slowest of a hundred, in milliseconds."""
    ordered = sorted(found)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"median {middle * 1000:.1f} ms, one of a hundred {late * 1000:.1f} ms"


def contents(server: EmbeddedServer, keys: int) -> Iterator[tuple[str, object]]:
    """Values, deadlines, and entries of the index, key by key."""
    with RawClient(server.port) as client, RawClient(server.port) as index:
        index.call("SELECT", METADATA_DB)
        for place, db in enumerate(DATABASES):
            client.call("SELECT", db)
            numbers = (number for number in range(keys) if database_of(number) == db)
            while some := list(itertools.islice(numbers, AT_ONCE)):
                names = [f"key:{number:08}" for number in some]
                verbs = [READS[number % 5] for number in some]
                reads = [(verb, k, *rest) for k, (verb, rest) in zip(names, verbs, strict=True)]
                found = client.pipeline(reads)
                until = client.pipeline([("PEXPIRETIME", name) for name in names])
                prefix = b"" if place == 0 else b"\xff" + bytes((int(db),))
                entries = index.pipeline(
                    [
                        ("HEXISTS", f"due:{int(str(at)) // 1000}", prefix + name.encode())
                        for name, at in zip(names, until, strict=True)
                    ]
                )
                for name, worth, at, entry in zip(names, found, until, entries, strict=True):
                    assert entry == 1, f"{name} of database {db} is not in the index"
                    order = sorted(worth) if isinstance(worth, list) else worth
                    yield name, (order, at)


def equal(one: Region, other: Region, keys: int) -> int:
    """The number of keys; raises AssertionError if one of them differs."""
    count = 0
    both = zip(contents(one.server, keys), contents(other.server, keys), strict=True)
    for mine, theirs in both:
        assert mine == theirs and mine[1][1] > 0, (mine, theirs)
        count += 1
    return count


def take_over(directory: Path, keys: int) -> None:
    with (
        start_server(directory / "server-a") as server,
        start_server(directory / "server-b") as other,
    ):
        fill(server.port, keys)
        cluster = OpenCluster(
            directory, ("a", "b"), group="taken", servers={"a": server, "b": other}
        )
        cluster.names = ()
        try:
            began, spent = time.monotonic(), cpu(server)
            a = cluster.begin("a")
            a.gateway.wait_ready()
            ready, counted = time.monotonic() - began, cpu(server) - spent
            print(
                f"{keys:,} keys with deadlines: ready after {ready:.1f} s; processor time of the server "
                f"{counted:.1f} s, of the gateway {cpu_of(a):.1f} s, the start of its program included",
                flush=True,
            )
            during: list[float] = []
            with RawClient(a.gateway.port) as client:
                while a.status()["adopting"] is not None:
                    during += waits(client, 50)
                made, used = time.monotonic() - began, cpu(server) - spent
                after = waits(client, 1_000)
            print(
                f"index whole after {made:.1f} s, {used:.1f} s of the server; {len(during):,} writes of a client "
                f"meanwhile: {shown(during) if during else 'none'}; then: {shown(after)}",
                flush=True,
            )
            began = time.monotonic()
            b = cluster.begin("b")
            b.gateway.wait_ready(timeout=3_600)
            print(f"second region joined after {time.monotonic() - began:.1f} s", flush=True)
            cluster.wait_equal(("a", "b"), quiet=True, timeout=120)
            print(f"equal: {equal(a, b, keys):,} keys, deadlines and entries", flush=True)
        finally:
            cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        take_over(Path(directory), options.keys)


if __name__ == "__main__":
    main()
