"""Compares the servers' data with each other and with the exact counts, and counts the metadata left.

It reads at the servers' own ports, not through the gateways: any client sees the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from crdtcast.adapters.redis.cluster import Region
from crdtcast.demo.plan import COUNT_PREFIX, VOCABULARY, Expected

METADATA_DATABASE = 15
READ_BATCH = 1000
CONSTANT_BYTES = 4096
"""Bytes that the constant keys of one region may take before the demo reports growth."""


@dataclass(frozen=True, slots=True)
class Content:
    """All that clients can see at one server."""

    counts: Mapping[str, int]
    vocabulary: frozenset[str]
    strays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataLeft:
    """Our own keys at one server, and, counted apart, the few constant ones that every member has."""

    keys: int
    bytes: int
    constant_keys: int
    constant_bytes: int


def read_content(port: int) -> Content:
    """Read one server completely. Errors of redis-py pass through."""
    with redis.Redis(port=port, decode_responses=True) as client:
        names = sorted(client.scan_iter(count=READ_BATCH))
        counters = [name for name in names if name.startswith(COUNT_PREFIX)]
        counts: dict[str, int] = {}
        for start in range(0, len(counters), READ_BATCH):
            part = counters[start : start + READ_BATCH]
            for name, value in zip(part, client.mget(part), strict=True):
                counts[name.removeprefix(COUNT_PREFIX)] = int(value)
        vocabulary = frozenset(client.smembers(VOCABULARY))
        strays = set(names) - set(counters) - {VOCABULARY}
    return Content(counts, vocabulary, tuple(sorted(strays)))


def differences(name: str, found: Content, right: Expected) -> list[str]:
    """What is wrong or missing in one region, a line each."""
    lines = []
    for word in sorted(found.counts.keys() | right.counts.keys()):
        have, want = found.counts.get(word), right.counts.get(word)
        if have != want:
            lines.append(f"{name}: {COUNT_PREFIX}{word} is {have}, but should be {want}")
    for word in sorted(found.vocabulary ^ right.vocabulary):
        where = "should not be" if word in found.vocabulary else "is missing"
        lines.append(f"{name}: {word!r} {where} in {VOCABULARY}")
    lines += [f"{name}: unexpected key {stray!r}" for stray in found.strays]
    return lines


def between_regions(contents: Mapping[str, Content]) -> list[str]:
    """The regions whose data differ from the first one's, whatever would be right."""
    first, *others = contents
    return [
        f"{name} and {first} hold different data"
        for name in others
        if contents[name] != contents[first]
    ]


def digests_differ(digests: Mapping[str, Any]) -> list[str]:
    """Whether the gateways' own digests over all keys agree."""
    return [] if len(set(digests.values())) == 1 else [f"the gateways' digests differ: {digests}"]


def metadata_left(region: Region) -> MetadataLeft:
    """Count our keys at a region's server, and their size by MEMORY USAGE."""
    constant = set(region.status()["constant_keys"])
    sizes: dict[bool, list[int]] = {True: [], False: []}
    with redis.Redis(port=region.server.port, db=METADATA_DATABASE) as client:
        for key in client.scan_iter(count=READ_BATCH):
            size = int(client.memory_usage(key, samples=0) or 0)
            sizes[key.decode(errors="replace") in constant].append(size)
    return MetadataLeft(len(sizes[False]), sum(sizes[False]), len(sizes[True]), sum(sizes[True]))


def metadata_beyond(left: Iterable[MetadataLeft]) -> dict[str, int]:
    """Keys and bytes of all regions together, beyond the constant that each may have."""
    found = list(left)
    beyond = sum(max(0, one.constant_bytes - CONSTANT_BYTES) for one in found)
    return {
        "keys": sum(one.keys for one in found),
        "bytes": sum(one.bytes for one in found) + beyond,
    }
