"""Looks at slots between a gateway and a peer that is broken, or lies: it ends the comparison, and nothing else."""

from typing import Any

import msgpack
import pytest
import trio

from crdtcast.adapters.redis.compare.slot_looks import SlotLooks
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.exceptions import CrdtcastError, RemoteProtocolError
from tests.adapters.redis.test_keyspace_model import METADATA_DB


def looks(*answers: object) -> SlotLooks:
    """Of a gateway whose server holds a hash of one field, and whose peer answers these, the last one for ever."""
    left = [msgpack.packb(answer) for answer in answers]

    async def ask(peer: str, question: bytes) -> bytes:
        return left.pop(0) if len(left) > 1 else left[0]

    async def read(commands: list[list[bytes]]) -> list[object]:
        replies: dict[bytes, object] = {b"HLEN": 1, b"MEMORY": 64, b"HSCAN": [b"0", [b"f", b"v"]]}
        return [replies.get(words[0]) for words in commands]

    return SlotLooks(lambda: Keyspace(METADATA_DB), ask, read)


async def all_of(found: SlotLooks) -> list[Any]:
    return [each async for each in found.candidates("b", b"k")]


@pytest.mark.parametrize(
    "answers",
    [
        [[[], []]],
        [[[[]]]],
        [[5]],
        [[[]], [b"0", {}]],
        [[[]], [b"7", {}], [b"7", {}]],
        [[[]], [7, {}]],
        [[[]], [None, [1]]],
        [[[]], [None]],
    ],
    ids=str,
)
def test_invalid_answer_ends_the_comparison(answers: list[object]) -> None:
    with pytest.raises(CrdtcastError):
        trio.run(all_of, looks(*answers))


@pytest.mark.parametrize("start", [b"x", b"-1", b"", b"1" * 40])
@pytest.mark.parametrize("type_", [RedisType.STRING, RedisType.HASH, RedisType.SET])
def test_question_for_an_invalid_place_is_refused(start: bytes, type_: RedisType) -> None:
    with pytest.raises(RemoteProtocolError, match="is not a position in a value"):
        trio.run(looks([]).answer, ["slots", b"k", int(type_), start])
