"""A key's digest is what its definition says: a sum of hashes of length-prefixed parts."""

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.compare.digests import key_digest
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType


def by_definition(key: bytes, number: bytes | None, members: set[bytes]) -> str:
    slots = [] if number is None else [(RedisType.STRING, b"", number)]
    slots += [(RedisType.SET, member, b"") for member in members]
    total = 0
    for kind, slot, value in slots:
        parts = (key, str(int(kind)).encode(), slot, value)
        text = b"".join(str(len(part)).encode() + b":" + part for part in parts)
        total += int.from_bytes(blake2b(text, digest_size=16).digest(), "big")
    return f"{total % 2**128:032x}"


@given(st.binary(), st.none() | st.binary(), st.sets(st.binary(), max_size=5))
def test_a_digest_is_the_sum_of_the_hashes_of_its_slots(
    key: bytes, number: bytes | None, members: set[bytes]
) -> None:
    contents: dict[RedisType, dict[bytes, bytes]] = {RedisType.SET: dict.fromkeys(members, b"")}
    if number is not None:
        contents[RedisType.STRING] = {WHOLE: number}
    assert key_digest(key, contents) == by_definition(key, number, members)
