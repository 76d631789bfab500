"""Comparing what the servers hold with each other, with the exact counts, and counting what is left
of metadata.

Everything is read at the servers' own ports, past the gateways: what is there is what any client
sees.
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
"""What the constant keys of one region may take before the demo calls it growth, in bytes."""


@dataclass(frozen=True, slots=True)
class Content:
    """All that clients can see at one server."""

    counts: Mapping[str, int]
    vocabulary: frozenset[str]
    strays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataLeft:
    """Our own keys at one server, apart from the few every member always has, and those few's size."""

    keys: int
    bytes: int
    constant_keys: int
    constant_bytes: int


def read_content(port: int) -> Content:
    """Read one server completely. Raises redis errors as they come."""
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
    """What one region holds that it should not, and the reverse; a line each."""
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
    """Which regions hold something else than the first, without asking what would be right."""
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
    """Count our keys at a region's server, by MEMORY USAGE."""
    constant = set(region.status()["constant_keys"])
    sizes: dict[bool, list[int]] = {True: [], False: []}
    with redis.Redis(port=region.server.port, db=METADATA_DATABASE) as client:
        for key in client.scan_iter(count=READ_BATCH):
            size = int(client.memory_usage(key, samples=0) or 0)
            sizes[key.decode(errors="replace") in constant].append(size)
    return MetadataLeft(len(sizes[False]), sum(sizes[False]), len(sizes[True]), sum(sizes[True]))


def metadata_beyond(left: Iterable[MetadataLeft]) -> dict[str, int]:
    """Keys and bytes of all regions together, beyond the constant each of them may have."""
    found = list(left)
    beyond = sum(max(0, one.constant_bytes - CONSTANT_BYTES) for one in found)
    return {
        "keys": sum(one.keys for one in found),
        "bytes": sum(one.bytes for one in found) + beyond,
    }
