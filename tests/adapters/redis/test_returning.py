"""What an evicted gateway sends again: so much in one commit as one turn of the loop may take, and noted once."""

import logging
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from crdtcast.adapters.redis.group import reissue as returning_module
from crdtcast.adapters.redis.group.preimages import taken_name
from crdtcast.adapters.redis.group.rebase import Mine, Part, Removal
from crdtcast.adapters.redis.group.reissue import GatewayReissue
from crdtcast.adapters.redis.store import value_pages
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Effect,
    EffectsEvent,
    Inc,
    KillKey,
    KillSlots,
    RedisType,
)
from crdtcast.causality.tags import Dot
from crdtcast.engine import Parked, ParkedOperation, Standing
from tests.adapters.redis.copy_support import FakeServer
from tests.adapters.redis.rebased import rebased

ENDED = "c.1"


class Commits:
    """Stands for the committer: it keeps what the next commit is to do."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.ends: list[Any] = []
        self.turns: deque[Callable[[], None]] = deque()
        self.kicks = 0

    def inside(self, key: bytes, add: object, looks: object = ()) -> None:
        self.keys.append(key)

    def at_its_end(self, add: object) -> None:
        self.ends.append(add)

    def later(self, step: Callable[[], None]) -> None:
        self.turns.append(step)

    def kick(self) -> None:
        self.kicks += 1


def returning(
    messages: list[list[Part]], *, rebased: bool = True
) -> tuple[Commits, GatewayReissue]:
    """What the next commit is to do, when the group has none of these messages."""
    commits = Commits()
    back = GatewayReissue(commits, "g", "c", 15, logging.getLogger("test"))  # type: ignore[arg-type]
    back.parked = Parked(
        tuple(
            ParkedOperation(
                Dot(ENDED, number + 1), 0, Mine(tuple(parts), {}, rebased=rebased).encode()
            )
            for number, parts in enumerate(messages)
        ),
        ended=(ENDED,),
    )
    group = SimpleNamespace(
        standing=Standing.MEMBER, outdated=None, vector={}, stable={}, tombs={}, fate=lambda _: 0
    )
    back.add_work(group)  # type: ignore[arg-type]
    return commits, back


def removal(members: int) -> Removal:
    names = [b"%d" % number for number in range(members)]
    return Removal(b"s", None, None, {RedisType.SET: dict.fromkeys(names, b"")})


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([[Inc(b"k%d" % n, RedisType.STRING, WHOLE, 1) for n in range(4096)]] * 3, 1),
        ([[Inc(b"k%d" % n, RedisType.STRING, WHOLE, 1) for n in range(2000)]] * 3, 2),
        ([[removal(3000)]] * 3, 1),
        ([[removal(9000)]] * 3, 1),
        ([[Inc(b"k", RedisType.STRING, WHOLE, 1)]] * 70, 64),
    ],
)
def test_resend_is_bounded_per_commit(messages: list[list[Part]], sent: int) -> None:
    commits, _ = returning(messages)
    assert len(commits.keys) == sent * (len(messages[0]) + 1)  # each key is looked up, too
    assert len(commits.ends) == 1


def test_comparison_in_many_turns_equals_one_turn() -> None:
    messages = [[Inc(b"k", RedisType.STRING, WHOLE, n), removal(n)] for n in range(1, 60)]
    commits, back = returning(messages, rebased=False)
    turns = 0
    while not commits.kicks:
        assert not commits.ends
        commits.turns.popleft()()
        turns += 1
    assert turns >= len(messages) // 2
    saved: list[object] = []
    (note,) = commits.ends
    note(SimpleNamespace(plan=SimpleNamespace(metadata=lambda *words: saved.append(words))))
    assert len(saved) == 1 and back.parked is not None
    found = [Mine.decode(operation.payload) for operation in back.parked.operations]
    assert found == rebased([Mine(tuple(parts), {}) for parts in messages])[0]


def test_resumed_gateway_discards_an_unfinished_comparison() -> None:
    commits, back = returning([[removal(3)]] * 60, rebased=False)
    back.resume(None)
    commits.turns.popleft()()
    assert not commits.turns and not commits.ends and not commits.kicks


class Connection(FakeServer):
    """To a server that stands in for one. most: bytes of its longest reply."""

    most = 0

    async def call_all(self, commands: list[Any]) -> list[Any]:
        in_bytes = [[w.encode() if isinstance(w, str) else w for w in words] for words in commands]
        replies = [self.call(*words) for words in in_bytes]
        self.most = max([self.most, *map(bytes_of, replies)])
        return replies

    def _exists(self, key: bytes) -> int:
        return int(key in self.dbs[self.db])


def bytes_of(reply: Any) -> int:
    if isinstance(reply, list):
        return sum(map(bytes_of, reply))
    return len(reply) if isinstance(reply, bytes) else 0


@pytest.mark.parametrize(("slots", "size", "is_kept"), [(40, 100, True), (40, 600, False)])
@pytest.mark.parametrize("whole", [True, False])
def test_removed_values_are_read_in_pages_up_to_a_message(
    monkeypatch: pytest.MonkeyPatch, slots: int, size: int, is_kept: bool, whole: bool
) -> None:
    monkeypatch.setattr(returning_module, "MAX_BYTES", 6_000)
    monkeypatch.setattr(value_pages, "PAGE_BYTES", 2_000)
    connection = Connection()
    monkeypatch.setattr(FakeServer, "_memory", lambda self, *_: slots * (size + 100))
    kept = {b"%d" % n: b"x" * size for n in range(slots)}
    dot = Dot(ENDED, 1)
    connection.dbs[15][taken_name(dot, 0)] = b"hash", dict(kept)
    effect: Effect = KillKey(b"h") if whole else KillSlots(b"h", RedisType.HASH, tuple(kept))
    _, back = returning([])
    calling = SimpleNamespace(call=connection.call_all)
    operation = ParkedOperation(dot, 0, b"")
    (found,) = trio.run(back._taken, calling, [(operation, EffectsEvent(0, [effect]))])
    assert found.contents == {0: {RedisType.HASH: kept} if is_kept else None}
    assert connection.most < 3_000
