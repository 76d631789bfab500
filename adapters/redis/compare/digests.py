"""Digest of a key's value: comparable between replicas that have applied the same operations to it.

It covers values only, never tags, logs or stability: the sum modulo 2^128 of a hash over every live slot of every type,
including hidden ones. Sums do not depend on the order of the slots.
"""

from hashlib import blake2b

from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import RedisType

_MODULUS = 1 << 128


def key_digest(key: bytes, contents: Contents) -> str:
    """Digest of a key's contents of all types, visible or hidden, as 32 hex digits."""
    return digest_of(key_sum(key, contents))


def digest_of(total: int) -> str:
    """The digest of a sum, as 32 hex digits."""
    return f"{total % _MODULUS:032x}"


def key_sum(key: bytes, contents: Contents) -> int:
    """The sum over these slots of a key; sums of parts add up."""
    total = 0
    for type_, content in contents.items():
        begun = _begun(key, type_)
        for slot, value in content.items():
            total += _slot_hash(begun, slot, value)
    return total


def _begun(key: bytes, type_: RedisType) -> blake2b:
    """The hash state with which all slots of a key and type begin."""
    kind = b"%d" % type_
    return blake2b(b"%d:%b%d:%b" % (len(key), key, len(kind), kind), digest_size=16)


def _slot_hash(begun: blake2b, slot: bytes, value: bytes) -> int:
    """Hash of one live slot, as an integer below 2^128."""
    digest = begun.copy()
    digest.update(b"%d:%b%d:%b" % (len(slot), slot, len(value), value))
    return int.from_bytes(digest.digest(), "big")


def presence_hash(key: bytes, kind: bytes) -> int:
    """Hash of a key whose type is not replicated: if only one region has the key, the digests must differ."""
    return int.from_bytes(
        blake2b(b"%d:%b%b" % (len(key), key, kind), digest_size=16).digest(), "big"
    )
