"""What a comparison of keys has to know of their history: read a piece at a time, in order."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio

from crdtcast.adapters.redis.compare.key_journal import KeyJournal
from crdtcast.adapters.redis.store.effects import WHOLE, EffectsEvent, Inc, RedisType, encode
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag

MESSAGES, EFFECTS = 20, 4096


class Unstable:
    """Stands for an engine: a member is away, so nothing that was written is stable."""

    def __init__(self) -> None:
        names = [b"k%d" % number for number in range(EFFECTS)]
        self.messages = [
            Message(
                Dot("a", counter),
                (),
                encode(0, [Inc(n, RedisType.STRING, WHOLE, counter) for n in names]),
            )
            for counter in range(1, MESSAGES + 1)
        ]

    def state(self) -> Any:
        return SimpleNamespace(unstable=self.messages)

    def tag(self, dot: Dot) -> Tag:
        return Tag(dot, (), {"a": dot.counter - 1})


async def read_beside(journal: KeyJournal, other: Callable[[], object]) -> None:
    """Read it, and call `other` in each turn of the loop meanwhile."""

    async def turns() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            other()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns)
        await journal.read()
        nursery.cancel_scope.cancel()


def test_other_tasks_run_while_unstable_messages_are_read() -> None:
    turns: list[None] = []
    journal = KeyJournal([b"k7"], Unstable())  # type: ignore[arg-type]
    trio.run(read_beside, journal, lambda: turns.append(None))
    assert len(turns) >= MESSAGES // 2


def test_commit_during_the_read_comes_after_unstable_messages() -> None:
    unstable = Unstable()
    journal = KeyJournal([b"k7"], unstable)  # type: ignore[arg-type]
    added = [Inc(b"k7", RedisType.STRING, WHOLE, 100)]
    event = EffectsEvent(0, added)
    sent = [(unstable.tag(Dot("a", counter)), b"", event) for counter in (MESSAGES, MESSAGES + 1)]

    def commit() -> None:
        journal.committed(SimpleNamespace(derived=None, deliveries=[], sent=sent))  # type: ignore[arg-type]

    trio.run(read_beside, journal, commit)
    # Of these two, the first was prepared before the journal was made, so that one is known already.
    found = [(later.tag.dot.counter, later.effect.delta) for later in journal.of(b"k7")]  # type: ignore[union-attr]
    assert found == [*((number, number) for number in range(1, MESSAGES + 1)), (MESSAGES + 1, 100)]
