"""Abstract names that scenarios ask for, and where a running gateway answers them.

A probe without an entry in `PROBES` is looked up in `CRDTCAST STATUS`; one that is missing there is not supported yet.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import redis

from crdtcast.adapters.redis.cluster import Region
from crdtcast.adapters.redis.server.raw_client import RawClient, Reply

METADATA_DATABASE = 15


class Seen(NamedTuple):
    """Of a region in the scenario.

    latencies: the seconds that each command took there.
    apart: regions that it is partitioned from. The links with all others count as up, even while the runner cuts them.
    """

    latencies: Sequence[float]
    apart: Collection[str]


class UnknownProbeError(LookupError):
    """No running gateway can answer this probe."""


def read_probe(name: str, region: Region, seen: Seen) -> Reply:
    """The value of the probe `name` at a region, as a reply. Raises UnknownProbeError for an unknown probe."""
    for pattern, read in PROBES.items():
        found = re.fullmatch(pattern, name)
        if found:
            return read(region, seen, *found.groups())
    status = region.status()
    if name not in status:
        raise UnknownProbeError(name)
    return as_reply(status[name])


def as_reply(value: Any) -> Reply:
    """A JSON value as a reply."""
    match value:
        case None | int():
            return value
        case list():
            return [as_reply(item) for item in value]
        case dict():
            return [as_reply(item) for pair in value.items() for item in pair]
    return str(value).encode()


def metadata_entries(region: Region, seen: Seen, key: str) -> Reply:
    """Entries of ours at the server that may concern `key`: unstable messages, hidden values."""
    with redis.Redis(port=region.server.port, db=METADATA_DATABASE) as client:
        unstable = int(client.hlen("store"))
        hidden = [
            name for name in client.scan_iter("hidden:*") if name.endswith(b":" + key.encode())
        ]
    return unstable + len(hidden)


def p99_latency(region: Region, seen: Seen) -> Reply:
    """Milliseconds within which 99 of 100 commands were answered, rounded up."""
    if not seen.latencies:
        return 0
    return int(sorted(seen.latencies)[(len(seen.latencies) * 99 - 1) // 100] * 1000) + 1


def replication_state(region: Region, seen: Seen) -> Reply:
    """Whether all that this region has is known to be everywhere, and all links that the scenario leaves it are up."""
    status = region.status()
    if any(
        status["links"][name]["state"] != "up" for name in seen.apart if name in status["links"]
    ):
        return b"cut-off"
    return b"in-sync" if status["quiet"] else b"behind"


def type_conflicts(region: Region, seen: Seen) -> Reply:
    """Number of keys that hold values of more than one type, one of them visible."""
    return int(region.status()["type_conflicts"])


def not_yet_acknowledged(region: Region, seen: Seen, peer: str) -> Reply:
    """Number of writes of this region that the only other one is not known to have.

    Stability concerns all members together, so in a group of more than two it says nothing about one of them.
    """
    status = region.status()
    if set(status["links"]) != {peer}:
        raise UnknownProbeError(f"ops_not_yet_acked_by_{peer} needs a group of two")
    me = status["incarnation"]
    return int(status["vector"].get(me, 0)) - int(status["stable"].get(me, 0))


def in_every_database(region: Region, seen: Seen, key: str) -> Reply:
    """The databases of the server itself in which `key` is a string: their numbers, each with the value."""
    found: list[Reply] = []
    with RawClient(region.server.port) as client:
        for database in range(METADATA_DATABASE):
            _, value = client.pipeline([("SELECT", str(database)), ("GET", key)])
            found += [] if value is None else [database, value]
    return found


PROBES: Mapping[str, Callable[..., Reply]] = {
    r"GET (\S+) in every numbered db, as a map": in_every_database,
    r"ops_not_yet_acked_by_(.+)": not_yet_acknowledged,
    r"type_conflicts_total": type_conflicts,
    r"metadata_entries_for_key_(.+)": metadata_entries,
    r"p99_command_latency_ms": p99_latency,
    r"replication_state": replication_state,
}
