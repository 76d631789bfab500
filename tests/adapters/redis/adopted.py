"""Databases for the tests of adoption: written directly to a server, read from it, and taken over step by step."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from crdtcast.adapters.redis.adoption import index_making
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.deadlines import adopted as adopted_index
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex
from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store.databases import name_of
from tests.adapters.redis.gateways import Gateways, RunningGateway, until

Contents = Mapping[int, Sequence[Sequence[Any]]]
"""Commands by database."""
CLIENTS = range(15)
_READS: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",),
    b"set": ("SMEMBERS",),
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    b"list": ("LRANGE", "0", "-1"),
}


def fill(port: int, contents: Contents) -> None:
    """Write directly to a server."""
    with RawClient(port) as direct:
        for db, commands in contents.items():
            direct.call("SELECT", str(db))
            for reply in direct.pipeline(commands):
                assert not isinstance(reply, ErrorReply), reply


def dump(port: int) -> dict[bytes, tuple[object, int]]:
    """All values of a server, with their deadlines, by name."""
    found: dict[bytes, tuple[object, int]] = {}
    with RawClient(port) as direct:
        for db in CLIENTS:
            direct.call("SELECT", str(db))
            keys = direct.call("KEYS", "*")
            kinds = direct.pipeline([("TYPE", key) for key in keys])
            reads = [_READS[kind] for kind in kinds]
            values = direct.pipeline(
                [(verb, key, *rest) for key, (verb, *rest) in zip(keys, reads, strict=True)]
            )
            until = direct.pipeline([("PEXPIRETIME", key) for key in keys])
            for key, kind, value, at in zip(keys, kinds, values, until, strict=True):
                if kind == b"set":
                    value = sorted(value)
                elif kind == b"hash":
                    value = sorted(zip(value[::2], value[1::2], strict=True))
                found[name_of(db, key)] = value, at
    return found


def entries(port: int) -> dict[bytes, list[int]]:
    """The seconds under which the index of deadlines has each name."""
    found: dict[bytes, list[int]] = {}
    with RawClient(port) as direct:
        direct.call("SELECT", "15")
        buckets = direct.call("KEYS", "due:*")
        names = direct.pipeline([("HKEYS", bucket) for bucket in buckets])
        for bucket, some in zip(buckets, names, strict=True):
            for name in some:
                found.setdefault(name, []).append(int(bucket[4:]))
    return found


def check_index(port: int) -> None:
    """Each key with a deadline has the entry of that deadline."""
    index = entries(port)
    for name, (_, at) in dump(port).items():
        if at >= 0:
            assert at // 1000 in index.get(name, ()), (name, at, index.get(name))


def wait_adopted(town: Gateways, name: str) -> None:
    """Return when the index is made."""
    until(lambda: town.status(name)["adopting"] is None)


class HeldIndex:
    """Lets the index be made one step at a time."""

    def __init__(self) -> None:
        self._turns = trio.Semaphore(0)
        self.steps = 0

    async def turn(self) -> None:
        await self._turns.acquire()

    def step(self, running: RunningGateway) -> None:
        """Let one step be made, and return when it is."""
        before = self.steps
        running.call(self._turns.release)
        until(lambda: self.steps > before)

    def release(self, running: RunningGateway) -> None:
        """Let all other steps be made."""
        running.call(lambda: [self._turns.release() for _ in range(10_000)])


@contextmanager
def held_index(monkeypatch: pytest.MonkeyPatch, at_once: int = 1) -> Iterator[HeldIndex]:
    """Within the block gateways that take over a database wait before each step of so many keys."""
    held, step = HeldIndex(), index_making._step

    async def wait_first(adopted: AdoptedIndex, committer: Committer) -> object:
        await held.turn()
        reply = await step(adopted, committer)
        held.steps += 1
        return reply

    with monkeypatch.context() as patched:
        patched.setattr(index_making, "_step", wait_first)
        patched.setattr(adopted_index, "AT_ONCE", at_once)
        yield held


def evals(server: EmbeddedServer) -> int:
    """How many scripts the server has executed since its statistics were reset."""
    with RawClient(server.port) as direct:
        told: bytes = direct.call("INFO", "commandstats")
    for line in told.splitlines():
        if line.startswith(b"cmdstat_eval:calls="):
            return int(line.split(b"=")[1].split(b",")[0])
    return 0
