"""Checks whether the key of a write holds the right type."""

from __future__ import annotations

from crdtcast.adapters.redis.commands.errors import WRONG_TYPE
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Answerable
from crdtcast.adapters.redis.types.native import NOTHING, Holds, NativeType


def may_hold(batch: LocalBatch, key: bytes, native: type[NativeType]) -> bool:
    """Whether the key, which was looked up, holds this type or nothing."""
    known = batch.keyspace.types[key]
    return known is native.here or known is NOTHING or known is native.perhaps


def refused_for_its_type(batch: LocalBatch, request: Answerable) -> bool:
    """Refuse a write whose key holds another type. Returns False if the server must be asked first: the key may be
    empty.
    """
    known = batch.keyspace.types[request.args[1]]
    if isinstance(known, Holds) and not known.is_sure:
        return False
    batch.plan.answer_with(request, WRONG_TYPE)
    return True
