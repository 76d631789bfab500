"""What an evicted gateway sends again: so much in one commit as one turn of the loop may take, and noted once."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from crdtcast.adapters.redis.effects import Inc, RedisType
from crdtcast.adapters.redis.rebasing import Mine, Part, Removal, Taken
from crdtcast.adapters.redis.returning import Returning
from crdtcast.engine import Parked, ParkedOperation, Standing
from crdtcast.tags import Dot

ENDED = "c.1"


class Commits:
    """Stands for the committer: it keeps what the next commit is to do."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.ends: list[Any] = []

    def inside(self, key: bytes, add: object) -> None:
        self.keys.append(key)

    def at_its_end(self, add: object) -> None:
        self.ends.append(add)


def returning(messages: list[list[Part]]) -> Commits:
    """What the next commit is to do, when the group has none of these messages."""
    commits = Commits()
    back = Returning(commits, "g", "c", 15, logging.getLogger("test"))  # type: ignore[arg-type]
    back.parked = Parked(
        tuple(
            ParkedOperation(
                Dot(ENDED, number + 1), 0, Mine(tuple(parts), {}, rebased=True).encode()
            )
            for number, parts in enumerate(messages)
        ),
        ended=(ENDED,),
    )
    group = SimpleNamespace(
        standing=Standing.MEMBER, outdated=None, vector={}, stable={}, tombs={}, fate=lambda _: 0
    )
    back.add_work(group)  # type: ignore[arg-type]
    return commits


def removal(members: int) -> Removal:
    return Removal(b"s", None, Taken(None, tuple(b"%d" % number for number in range(members))))


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([[Inc(b"k%d" % n, RedisType.STRING, 1) for n in range(4096)]] * 3, 1),
        ([[Inc(b"k%d" % n, RedisType.STRING, 1) for n in range(2000)]] * 3, 2),
        ([[removal(3000)]] * 3, 1),
        ([[removal(9000)]] * 3, 1),
        ([[Inc(b"k", RedisType.STRING, 1)]] * 70, 64),
    ],
)
def test_so_much_is_sent_again_in_one_commit(messages: list[list[Part]], sent: int) -> None:
    commits = returning(messages)
    assert len(commits.keys) == sent * (len(messages[0]) + 1)  # each key is looked up, too
    assert len(commits.ends) == 1
