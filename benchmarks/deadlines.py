"""What deadlines cost: memory, entries that are left over, and the time in which many keys expire.

    python -m benchmarks.deadlines [--keys 1000000] [--renewed 20000] [--burst 100000] [--regions 2]

Keys of 16 bytes with a deadline are written through a gateway: bytes that the gateway's process and its server need for
each, beside a plain server that holds the same keys with the same deadlines. Then the deadlines of some are renewed a
hundred times: entries of the index for each key. Then a burst of keys expires in one second: seconds until all are gone
from every server, the index included, and how long a client's SADD takes meanwhile, beside before. All processes and
this one share the machine's cores: give its load with the figures.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.beside import Beside
from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import RawClient

AT_ONCE = 1_000
RENEWALS = 100
METADATA_DB = "15"
_PAUSE = 0.002


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no process {pid}")


def used(client: RawClient) -> int:
    """Bytes that a server's data needs, by its own account."""
    text = client.call("INFO", "memory")
    assert isinstance(text, bytes)
    return int(text.split(b"used_memory:")[1].split()[0])


def some_at_once(commands: Iterator[Sequence[str]], client: RawClient) -> None:
    """Send them in pipelines."""
    some: list[Sequence[str]] = []
    for command in commands:
        some.append(command)
        if len(some) == AT_ONCE:
            client.pipeline(some)
            some = []
    if some:
        client.pipeline(some)


def until(condition: Callable[[], bool], seconds: float = 600.0) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise TimeoutError("it did not come true")
        time.sleep(0.05)
    return time.monotonic() - began


def entries_of(region: Region) -> int:
    """Of the index in a region's server."""
    with RawClient(region.server.port) as client:
        client.call("SELECT", METADATA_DB)
        seconds = client.call("ZRANGE", "due", "0", "-1")
        assert isinstance(seconds, list)
        return sum(
            int(str(client.call("HLEN", b"due:" + second)))
            for second in seconds
            if isinstance(second, bytes)
        )


def keys_of(region: Region) -> int:
    with RawClient(region.server.port) as client:
        return int(str(client.call("DBSIZE")))


def writes() -> Iterator[Sequence[str]]:
    """New members of one set."""
    for number in itertools.count():
        yield "SADD", "written", str(number)


def memory(cluster: LocalCluster, directory: Path, keys: int) -> None:
    """Keys with deadlines, at a gateway and at a plain server."""
    region = cluster["a"]
    assert region.gateway.process is not None
    until(lambda: all(each.status()["quiet"] for each in cluster))
    before = resident(region.gateway.process.pid)
    at = int(time.time()) + 50_000

    def commands() -> Iterator[Sequence[str]]:
        for key in range(keys):
            yield "SET", f"session:{key:08}", "x", "EXAT", str(at + key % 100_000)

    plain = start_server(directory / "plain", appendfsync="everysec")
    try:
        sizes = []
        for port, server in ((plain.port, plain), (region.gateway.port, region.server)):
            with RawClient(port) as client, RawClient(server.port) as direct:
                empty = used(direct)
                some_at_once(commands(), client)
                until(lambda: all(each.status()["quiet"] for each in cluster))
                sizes.append((used(direct) - empty) / keys)
    finally:
        plain.stop()
    after = resident(region.gateway.process.pid)
    print(
        f"{keys:,} keys with deadlines: the gateway needs {(after - before) / 2**20:.1f} MiB more than empty, its "
        f"server {sizes[1]:.1f} bytes a key, the plain one {sizes[0]:.1f}: {sizes[1] - sizes[0]:.1f} more",
        flush=True,
    )


def renewals(cluster: LocalCluster, keys: int) -> None:
    """The same deadlines, moved again and again."""

    def commands() -> Iterator[Sequence[str]]:
        for renewal in range(RENEWALS):
            for key in range(keys):
                yield "EXPIRE", f"renewed:{key:08}", str(10_000 + renewal)

    before = entries_of(cluster["a"])
    with RawClient(cluster["a"].gateway.port) as client:
        some_at_once((("SET", f"renewed:{key:08}", "x") for key in range(keys)), client)
        some_at_once(commands(), client)
    until(lambda: all(each.status()["quiet"] for each in cluster))
    left = [entries_of(each) - (before if each.name == "a" else 0) for each in cluster]
    print(
        f"{keys:,} keys, each renewed {RENEWALS} times: {left[0] / keys:.2f} entries a key",
        flush=True,
    )


def burst(cluster: LocalCluster, keys: int) -> None:
    """Keys that expire in one second, while a client writes."""
    until(lambda: all(each.status()["quiet"] for each in cluster))
    port = cluster["a"].gateway.port
    others = {region.name: keys_of(region) for region in cluster}
    entries = {region.name: entries_of(region) for region in cluster}
    with Beside(port, writes(), _PAUSE) as writer:
        time.sleep(5)
    quiet = writer.centile(0.5), writer.centile(0.99), writer.centile(0.999)
    at = int(time.time()) + 5 + keys // 10_000
    with RawClient(port) as client:
        some_at_once(
            (("SET", f"burst:{key:08}", "x", "EXAT", str(at)) for key in range(keys)), client
        )
    until(lambda: all(each.status()["quiet"] for each in cluster))
    print(f"{at - time.time():.1f} s before the burst, all are there", flush=True)
    time.sleep(max(at - 0.5 - time.time(), 0))
    with Beside(port, writes(), _PAUSE) as writer:
        until(
            lambda: all(
                keys_of(region) <= others[region.name] + 1
                and entries_of(region) <= entries[region.name]
                for region in cluster
            )
        )
        gone = time.time() - at
    late = writer.centile(0.5), writer.centile(0.99), writer.centile(0.999)
    print(
        f"{keys:,} keys that expire in one second: gone from {len(list(cluster))} regions {gone:.1f} s after it; a "
        f"write takes {late[0]:.1f} / {late[1]:.1f} / {late[2]:.1f} ms (half, 99 %, 99.9 % of them) meanwhile, "
        f"{quiet[0]:.1f} / {quiet[1]:.1f} / {quiet[2]:.1f} before",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--renewed", type=int, default=20_000)
    parser.add_argument("--burst", type=int, default=100_000)
    parser.add_argument("--regions", type=int, default=2)
    options = parser.parse_args()
    names = "abcdefgh"[: options.regions]
    for what in ("burst", "renewed", "keys"):
        if not (number := getattr(options, what)):
            continue
        with (
            tempfile.TemporaryDirectory() as directory,
            LocalCluster(Path(directory), names, group="deadlines") as cluster,
        ):
            match what:
                case "burst":
                    burst(cluster, number)
                case "renewed":
                    renewals(cluster, number)
                case "keys":
                    memory(cluster, Path(directory), number)


if __name__ == "__main__":
    main()
