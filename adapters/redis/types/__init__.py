"""The data types that a gateway replicates, one file each."""

from __future__ import annotations

from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.native import NativeType
from crdtcast.adapters.redis.types.sets import Set
from crdtcast.adapters.redis.types.sorted_sets import SortedSet
from crdtcast.adapters.redis.types.strings import String

TYPES: dict[RedisType, type[NativeType]] = {}
BY_NAME: dict[bytes, type[NativeType]] = {}
"""By the name in the reply to TYPE."""


def register(native: type[NativeType]) -> None:
    """Register a type, for copies, comparisons, repair, digests, the log and hidden values."""
    TYPES[native.type] = native
    BY_NAME[native.name] = native


register(String)
register(Hash)
register(SortedSet)
register(Set)
