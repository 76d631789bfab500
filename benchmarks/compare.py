"""What it costs two gateways to compare all their keys once: CPU of both and of their servers, and bytes on the link.

    python benchmarks/compare.py [--keys 100000] [--members 3] [--json]

Half of the keys are numbers, half are sets. Counted is a whole comparison as `crdtcast repair` begins it, without the
pauses of a round in the background; nothing differs. Work is a count, so the machine may be busy.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.server.raw_client import RawClient

_TICKS = os.sysconf("SC_CLK_TCK")
_AT_ONCE = 1000


def cpu(pid: int) -> float:
    """Seconds of CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def sent(region: Region) -> int:
    """Bytes that a gateway has sent to its peers."""
    return sum(link["bytes_sent"] for link in region.status()["links"].values())


def measure(keys: int, members: int) -> dict[str, float]:
    """Costs of comparing so many keys, for each of the gateways."""
    with (
        tempfile.TemporaryDirectory(prefix="crdtcast-") as directory,
        LocalCluster(
            Path(directory), ("a", "b"), group="g", arguments=("--compare-seconds", "0")
        ) as cluster,
    ):
        first = cluster["a"]
        with RawClient(first.gateway.port, 600) as client:
            for start in range(0, keys, _AT_ONCE):
                client.pipeline(
                    [
                        ("INCRBY", f"application:counter:{n:08}", str(n))
                        if n % 2
                        else ("SADD", f"application:set:{n:08}", *map(str, range(members)))
                        for n in range(start, min(keys, start + _AT_ONCE))
                    ]
                )
            cluster.wait_equal(cluster.names, quiet=True, timeout=600)
            before, bytes_before = _cpu(cluster), sum(map(sent, cluster))
            told = json.loads(client.call("CRDTCAST", "REPAIR"))
            after, bytes_after = _cpu(cluster), sum(map(sent, cluster))
        assert told["keys"] == keys and not told["found"], told
    # It goes over the keys of both: each has been the asker once, and once the one that answers.
    return {
        "keys": keys,
        "gateway CPU seconds a million keys": _million(before[0], after[0], keys),
        "server CPU seconds a million keys": _million(before[1], after[1], keys),
        "MB sent a million keys": round((bytes_after - bytes_before) / 2 / keys, 1),
    }


def _cpu(cluster: LocalCluster) -> tuple[float, float]:
    gateways = [region.gateway.process for region in cluster]
    return (
        sum(cpu(process.pid) for process in gateways if process is not None) / 2,
        sum(cpu(region.server.pid) for region in cluster) / 2,
    )


def _million(before: float, after: float, keys: int) -> float:
    return round((after - before) * 1_000_000 / keys, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=3, help="Of each set.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.keys, options.members)
    if options.json:
        print(json.dumps(found))
    else:
        for what, value in found.items():
            print(f"{what}: {value:,}")


if __name__ == "__main__":
    main()
