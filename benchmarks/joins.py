"""What a join of large keys costs the member that gives them, while it is written to.

    python -m benchmarks.joins [--keys 20] [--megabytes 10] [--member 100]

So many sets, hashes and texts in turn, each of so many megabytes, with members (or values) of so many bytes. Meanwhile
one client increments a number every 5 ms, and another one adds to a large set, removes from it, and writes a field of a
large hash, without a pause. For the join: seconds; memory of both gateways before it and at its peak; the slowest
increment, and the slowest write of the other client, against those of two seconds before the join; how often a large
key was written. In the end both members' digests must be equal. All processes and this one share the cores: give
the load with the figures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.beside import Beside
from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient

_AT_ONCE = 100_000
"""Bytes of a command that fills."""
_PATIENCE = 600.0


def memory(cluster: OpenCluster, name: str, what: str = "VmRSS") -> float:
    """Megabytes of a gateway; VmHWM is the most that it had."""
    process = cluster[name].gateway.process
    assert process is not None
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(what))


def fill(client: RawClient, number: int, size: int, member: int) -> None:
    """One key of so many bytes."""
    if number % 3 == 2:
        client.call("SET", f"text{number}", "x" * min(size, 8_000_000))
        return
    step = max(_AT_ONCE // member, 1)
    for start in range(0, max(size // member, 1), step):
        slots = [f"{n:0{min(member, 10)}}" for n in range(start, start + step)]
        if number % 3 == 0:
            reply = client.call("SADD", f"set{number}", *(s.ljust(member, "x") for s in slots))
        else:
            pairs = (word for s in slots for word in (s, "v" * member))
            reply = client.call("HSET", f"hash{number}", *pairs)
        assert not isinstance(reply, ErrorReply), reply


def writes(member: int) -> Iterator[tuple[str, ...]]:
    for number in itertools.count():
        name = f"new-{number}".ljust(member, "y")
        yield "SADD", "set0", name
        yield "HSET", "hash1", f"{number % 1000:010}", f"w{number}"
        if number % 2:
            yield "SREM", "set0", name


def measured(cluster: OpenCluster, member: int, work: Callable[[], object]) -> tuple[float, ...]:
    """Seconds of this, the slowest increment and the slowest write meanwhile, and how many of these there were."""
    port = cluster["a"].gateway.port
    numbers = itertools.repeat(("INCR", "ping"))
    with Beside(port, numbers, 0.005) as pinger, Beside(port, writes(member), 0) as writer:
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
    return took, pinger.longest, writer.longest, len(writer.took)


def main() -> None:
    """Fill, join, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--member", type=int, default=100, help="bytes of a member or a value")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        OpenCluster(Path(directory), ["a"], group="joins") as cluster,
    ):
        with RawClient(cluster["a"].gateway.port, _PATIENCE) as client:
            for number in range(options.keys):
                fill(client, number, int(options.megabytes * 1e6), options.member)
        cluster.wait_equal(["a"], quiet=True, timeout=_PATIENCE)
        print(f"load {os.getloadavg()[0]:.2f}; giver {memory(cluster, 'a'):.0f} MB before")
        before = measured(cluster, options.member, lambda: time.sleep(2))
        print(f"before the join: slowest increment {before[1]:.3f} s, write {before[2]:.3f} s")
        Path(f"/proc/{_pid(cluster)}/clear_refs").write_text("5")  # the peak begins here
        took, *slowest, count = measured(cluster, options.member, lambda: cluster.add("b"))
        print(
            f"join {took:.1f} s; peak of giver {memory(cluster, 'a', 'VmHWM'):.0f} MB, joiner "
            f"{memory(cluster, 'b', 'VmHWM'):.0f} MB; slowest increment {slowest[0]:.3f} s, write of a large key "
            f"{slowest[1]:.3f} s, of {count:,.0f}"
        )
        cluster.wait_equal("ab", quiet=True, timeout=_PATIENCE)
        told = {json.loads(cluster[name].command("VERIFY"))["digest"] for name in "ab"}
        print("equal" if len(told) == 1 else "DIFFERENT")


def _pid(cluster: OpenCluster) -> int:
    process = cluster["a"].gateway.process
    assert process is not None
    return process.pid


if __name__ == "__main__":
    main()
