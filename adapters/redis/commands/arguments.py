"""Arguments as the server reads them."""

from __future__ import annotations

import re

from crdtcast.adapters.redis.keyspace import INT64_MAX, INT64_MIN

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}\Z")


def integer(raw: bytes) -> int | None:
    """A number of 64 bits: no plus sign, no leading zeros, no spaces."""
    if _INTEGER.fullmatch(raw) is None:
        return None
    value = int(raw)
    return value if INT64_MIN <= value <= INT64_MAX else None
