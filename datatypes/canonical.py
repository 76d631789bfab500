"""One byte string for each value, on which digests, comparisons and snapshots are based.

It does not depend on insertion order, on the hash seed, or on 1 == 1.0 == True in Python. Every part is prefixed with
its kind and length, so two different values never have the same encoding.
"""

import hashlib
import struct
from decimal import Decimal
from typing import Any


def canonical(value: Any) -> bytes:
    """The encoding of None, bool, int (of any size), float, Decimal, str, bytes, and lists, tuples, sets and dicts of
    them.

    A list and a tuple have the same encoding, and so have a set and a frozenset. Raises TypeError for any other type.
    """
    kind = type(value)
    if kind is str:
        encoded = value.encode()
        return b"s%d:%b" % (len(encoded), encoded)
    if kind is bytes:
        return b"b%d:%b" % (len(value), value)
    if kind is int:
        digits = b"%x" % value
        return b"i%d:%b" % (len(digits), digits)
    if value is None:
        return b"n"
    if kind is bool:
        return b"t" if value else b"f"
    if kind is float:
        return b"d" + struct.pack(">d", value)
    if kind is list or kind is tuple:
        return b"l%d:%b" % (len(value), b"".join(map(canonical, value)))
    if kind is set or kind is frozenset:
        return b"S%d:%b" % (len(value), b"".join(sorted(map(canonical, value))))
    if kind is dict:
        pairs = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return b"m%d:%b" % (len(value), b"".join(key + item for key, item in pairs))
    if kind is Decimal:
        digits = plain(value).encode()
        return b"D%d:%b" % (len(digits), digits)
    raise TypeError(
        f"a {kind.__name__} has no canonical bytes: make values of None, bool, int, float, "
        "Decimal, str, bytes, and lists, tuples, sets and dicts of them"
    )


def plain(number: Decimal) -> str:
    """The unique spelling of a decimal: no exponent, no trailing zeros, no negative zero."""
    if number == 0:
        return "0"
    shown = format(number, "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def rank(value: Any) -> tuple[str, Any]:
    """A total order of values, to break ties and to list them: by kind, and in the natural order within texts, bytes
    and numbers.
    """
    kind = type(value)
    if kind is str or kind is bytes or kind is int or kind is float or kind is bool:
        # Neither of 0.0 and -0.0 is less: their bytes decide.
        return kind.__name__, (value, canonical(value)) if kind is float else value
    return kind.__name__, canonical(value)


def digest_of(type_name: str, value: Any) -> str:
    """128 bits, in hex, of a value of the named type."""
    return hashlib.blake2b(canonical([type_name, value]), digest_size=16).hexdigest()
