"""Digests of keys, read from a real server: they tell values apart, and no reply is large."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from crdtcast.adapters.redis.compare.key_digests import (
    NOTHING,
    DigestLook,
    look_at_keys,
    value_digest,
)
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import PAGE_BYTES
from tests.servers import borrowed

pytestmark = pytest.mark.process

LARGE = 30_000
"""Members of a set that is read in pages."""


class Reading:
    """Reads of the digests, in rounds. most: members that one round has brought, at the most; most_bytes: of texts."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.most = 0
        self.most_bytes = 0

    async def __call__(self, commands: Sequence[Sequence[bytes]]) -> Sequence[object]:
        replies = self.client.pipeline(commands)
        lists = [r[1] if c[0] == b"SSCAN" else r for c, r in zip(commands, replies, strict=True)]
        members = sum(
            len(reply)
            for command, reply in zip(commands, lists, strict=True)
            if command[0] in (b"SMEMBERS", b"SSCAN") and not isinstance(reply, ErrorReply)
        )
        self.most = max(self.most, members)
        texts = [
            *(reply for reply in replies if isinstance(reply, bytes)),
            *(t for c, r in zip(commands, replies, strict=True) if c[0] == b"MGET" for t in r),  # type: ignore[union-attr]
        ]
        self.most_bytes = max(self.most_bytes, sum(len(text) for text in texts if text))
        return replies

    def looks(self, *keys: bytes) -> list[DigestLook]:
        reading = look_at_keys(keys, self, ExactValues())
        try:
            reading.send(None)
        except StopIteration as ended:
            looks: list[DigestLook] = ended.value
            return looks
        raise AssertionError("it waits for something else than the reads")


@pytest.fixture
def reading() -> Iterator[Reading]:
    with borrowed() as server, RawClient(server.port) as client:
        yield Reading(client)


def of(members: Sequence[bytes]) -> Contents:
    return {RedisType.SET: dict.fromkeys(members, b"")} if members else {}


def add(reading: Reading, key: bytes, members: Sequence[bytes]) -> None:
    for start in range(0, len(members), 5000):
        reading.client.call("SADD", key, *members[start : start + 5000])


@pytest.mark.parametrize("size", [1, LARGE - 1, LARGE, 3 * LARGE])
def test_set_of_any_size_has_the_digest_of_its_value(reading: Reading, size: int) -> None:
    seed = 5
    print("seed", seed)
    members = [b"m%d" % n for n in range(size)]
    add(reading, b"s", members)
    Random(seed).shuffle(members)
    add(reading, b"t", members[:-1])
    (look, other) = reading.looks(b"s", b"t")
    assert look == DigestLook(b"s", value_digest(b"s", of(members)))
    assert other == DigestLook(b"t", value_digest(b"t", of(members[:-1])))
    assert value_digest(b"s", of(members[:-1])) != look.digest != value_digest(b"t", of(members))
    assert value_digest(b"s", {RedisType.STRING: {WHOLE: b"1"}, **of(members)}) != look.digest


def test_no_round_of_reads_brings_more_than_a_bounded_number(reading: Reading) -> None:
    sizes = [LARGE // 3] * 5 + [5 * LARGE] + [LARGE - 1] * 3
    keys = [b"key%d" % n for n in range(len(sizes))]
    for key, size in zip(keys, sizes, strict=True):
        add(reading, key, [b"%d" % n for n in range(size)])
    reading.client.call("RPUSH", "list", "x")
    reading.client.call("SET", "text", "x")
    reading.client.call("SET", "empty", "")
    reading.client.call("SET", "number", "7")
    looks = reading.looks(*keys, b"list", b"text", b"empty", b"number", b"nothing")
    assert [look.key for look in looks] == [
        *keys,
        b"list",
        b"text",
        b"empty",
        b"number",
        b"nothing",
    ]
    assert len({look.digest for look in looks}) == len(looks)
    assert looks[-1].digest == NOTHING
    assert [look.foreign != "" for look in looks[-5:]] == [True] + [False] * 4
    assert reading.most <= LARGE


def test_hash_of_long_values_is_read_a_few_at_a_time(reading: Reading) -> None:
    values = {b"f%d" % n: b"%d" % n * 200_000 for n in range(20)}
    for field, value in values.items():
        reading.client.call("HSET", "h", field, value)
    (look,) = reading.looks(b"h")
    assert look == DigestLook(b"h", value_digest(b"h", {RedisType.HASH: values}))


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES, PAGE_BYTES + 1, 3 * PAGE_BYTES + 7])
def test_text_of_any_length_has_the_digest_of_its_value(reading: Reading, size: int) -> None:
    text = bytes(range(256)) * (size // 256 + 1)
    text = text[:size]
    reading.client.call("SET", "t", text)
    reading.client.call("HSET", "h", "f", text)
    (look, other) = reading.looks(b"t", b"h")
    assert look == DigestLook(b"t", value_digest(b"t", {RedisType.STRING: {WHOLE: text}}))
    assert other == DigestLook(b"h", value_digest(b"h", {RedisType.HASH: {b"f": text}}))


def test_no_round_of_reads_brings_more_than_a_mebibyte_of_texts(reading: Reading) -> None:
    keys = [b"t%d" % n for n in range(6)]
    for key in keys:
        reading.client.call("SET", key, b"x" * (PAGE_BYTES // 2 - 3))
    reading.client.call("SET", "long", b"y" * (3 * PAGE_BYTES))
    assert len({look.digest for look in reading.looks(*keys, b"long")}) == 7
    assert reading.most_bytes <= PAGE_BYTES
