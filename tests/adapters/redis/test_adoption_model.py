"""Random databases become regions while clients write: after the index and a join both regions hold what a plain server
holds that got the same commands.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crdtcast.adapters.redis.adoption.left_out import LUA_LEFT_OUT, LeftOut
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests import servers
from tests.adapters.redis.adopted import check_index, dump, entries, fill, held_index
from tests.adapters.redis.gateways import Gateways, until
from tests.effort import examples, first_seed

pytestmark = pytest.mark.process

Words = tuple[Any, ...]
DATABASES = (0, 0, 0, 1, 14)
NAMES = [f"k{i}" for i in range(12)] + [b"\xff", b"\xff\x00k"]
STILL = [f"still{i}" for i in range(20)]
"""Keys that no client writes: only the steps can make their entries, in whatever order the server hashes them."""


class Writes:
    """Random commands. All deadlines are absolute: a plain server gets the same commands at another time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._now = int(time.time())

    def key(self) -> Any:
        return self._rng.choice(NAMES)

    def at(self) -> str:
        """A deadline, often in the same second as another one."""
        return str(self._now + 500 + self._rng.choice((0, 0, 1, self._rng.randrange(10**7))))

    def at_ms(self) -> str:
        return f"{self.at()}{self._rng.randrange(1000):03}"

    def number(self) -> str:
        return str(self._rng.randint(-9, 9))

    def member(self) -> str:
        return self._rng.choice("abcde")

    def some(self) -> list[Words]:
        """A value and perhaps a deadline, for a database before it is taken over."""
        key = self.key()
        words: list[Words] = [("DEL", key), self._value(key)]
        if self._rng.random() < 0.7:
            words.append(("PEXPIREAT", key, self.at_ms()))
        return words

    def _value(self, key: Any) -> Words:
        rng, member = self._rng, self.member
        score = rng.choice(("inf", "-inf", "0.1", "-0", "1e300", self.number()))
        return rng.choice(
            (
                ("SET", key, rng.choice(("text", self.number(), "3.0e3", str(2**63 - 1)))),
                ("HSET", key, member(), self.number(), member(), "text"),
                ("SADD", key, member(), member()),
                ("ZADD", key, score, member(), self.number(), member()),
            )
        )

    def one(self) -> list[Words]:
        """A command of a client, or several that belong together."""
        rng, key, other, member = self._rng, self.key(), self.key(), self.member
        choices: tuple[Callable[[], list[Words]], ...] = (
            lambda: [self._value(key)],
            lambda: [("SET", key, self.number(), "PXAT", self.at_ms())],
            lambda: [("SET", key, self.number(), "KEEPTTL")],
            lambda: [("SET", key, "1", "NX", "EXAT", self.at())],
            lambda: [("DEL", key, other)],
            lambda: [("PEXPIREAT", key, self.at_ms(), rng.choice(("NX", "XX", "GT", "LT")))],
            lambda: [("EXPIREAT", key, self.at())],
            lambda: [("EXPIREAT", key, "1")],
            lambda: [("PERSIST", key)],
            lambda: [("GETEX", key, "PXAT", self.at_ms())],
            lambda: [("GETDEL", key)],
            lambda: [("RENAME", key, other)],
            lambda: [("RENAMENX", key, other)],
            lambda: [("COPY", key, other, "REPLACE")],
            lambda: [("MOVE", key, rng.choice(("0", "1", "14")))],
            lambda: [("COPY", key, other, "DB", rng.choice(("1", "14")), "REPLACE")],
            lambda: [("INCRBY", key, self.number())],
            lambda: [("APPEND", key, "1")],
            lambda: [("HINCRBY", key, member(), self.number())],
            lambda: [("HDEL", key, *"abcde")],
            lambda: [("SREM", key, *"abcde")],
            lambda: [("SUNIONSTORE", key, other)],
            lambda: [("ZINCRBY", key, self.number(), member())],
            lambda: [("ZREM", key, *"abcde")],
            lambda: [("ZRANGESTORE", key, other, "0", "-1")],
            lambda: [
                ("MULTI",),
                ("PEXPIREAT", key, self.at_ms()),
                ("SADD", other, member()),
                ("RENAME", other, key),
                ("EXEC",),
            ],
        )
        return rng.choice(choices)()


def is_alike(one: object, other: object) -> bool:
    """Whether two replies are equal; two errors are alike."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(is_alike(a, b) for a, b in zip(one, other, strict=True))
    return one == other or (isinstance(one, ErrorReply) and isinstance(other, ErrorReply))


def run_schedule(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Take over a random database while clients write. Raises AssertionError if a region then differs from a plain
    server.
    """
    rng = Random(seed)
    writes = Writes(rng)
    contents = {db: [w for _ in range(30) for w in writes.some()] for db in set(DATABASES)}
    for commands in contents.values():
        commands += [("SET", key, "1", "PXAT", writes.at_ms()) for key in STILL]
    with ExitStack() as stack:
        plain = stack.enter_context(servers.borrowed("always"))
        held = stack.enter_context(held_index(monkeypatch, at_once=rng.choice((1, 3))))
        town = stack.enter_context(Gateways(directory))
        fill(plain.port, contents)
        fill(town.server("a").port, contents)
        a = town.start("a")
        with a.client() as client, RawClient(plain.port) as reference:
            for turn in range(60):
                db = str(rng.choice(DATABASES))
                commands = [("SELECT", db), *writes.one()]
                got, expected = client.pipeline(commands), reference.pipeline(commands)
                assert is_alike(got, expected), (commands, got, expected)
                if turn % 5 == 0 and town.status("a")["adopting"] is not None:
                    held.step(a)
            held.release(a)
            town.start("b", "a")
            for _ in range(10):
                commands = [("SELECT", str(rng.choice(DATABASES))), *writes.one()]
                got, expected = client.pipeline(commands), reference.pipeline(commands)
                assert is_alike(got, expected), (commands, got, expected)
        town.wait_equal("a", "b")
        ports = [town.server(name).port for name in "ab"]
        expected_dump = dump(plain.port)
        for port in ports:
            assert dump(port) == expected_dump
            check_index(port)
        assert all(len(some) <= 4 for some in entries(ports[0]).values())


@pytest.mark.parametrize("seed", range(first_seed(), first_seed() + examples(4)))
def test_random_database_equals_a_plain_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run_schedule(tmp_path, monkeypatch, seed)


def test_keys_of_the_founder_expire_in_all_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are dropped by its server before a step has come to them; most expire when all regions have them."""
    keys = [f"k{i}" for i in range(40)]
    dropped, left = keys[:20], keys[20:]
    with held_index(monkeypatch) as held, Gateways(tmp_path) as town:
        fill(town.server("a").port, {0: [("SET", key, "1", "EX", "1000") for key in keys]})
        a = town.start("a")
        held.step(a)
        fill(town.server("a").port, {0: [("PEXPIRE", key, "1") for key in dropped]})
        until(lambda: town.past("a", "EXISTS", *dropped) == 0)
        for key in dropped[:5]:
            assert town.call("a", "SADD", key, "new") == 1
            held.step(a)
        assert town.call("a", "INCR", left[0]) == 2
        held.release(a)
        town.start("b", "a")
        town.wait_equal("a", "b")
        found = dump(town.server("b").port)
        assert dump(town.server("a").port) == found
        assert sorted(found) == sorted(key.encode() for key in (*dropped[:5], *left))
        for name in "ab":
            assert town.call(name, "CRDTCAST", "ADVANCE", "1010000") == b"OK"
        until(lambda: all(town.call(name, "DBSIZE") == 5 for name in "ab"))
        town.wait_equal("a", "b")
        assert town.call("b", "SMEMBERS", dropped[0]) == [b"new"]
        until(lambda: town.status("b")["vector"].get(town.status("a")["incarnation"], 0) > 5)


def test_patterns_match_as_the_servers_own(tmp_path: Path) -> None:
    rng = Random(first_seed())
    alphabet = b"ab-]^\\*?[%.\x00\xff"
    with Gateways(tmp_path) as town, RawClient(town.server("a").port) as direct:
        keys = {bytes(rng.choices(alphabet, k=rng.randint(1, 3))) for _ in range(150)}
        direct.pipeline([("SET", key, "1") for key in sorted(keys)])
        script = LUA_LEFT_OUT + (
            b"local found = {} for i, key in ipairs(KEYS) do "
            b"if is_left_out(key, ARGV) then found[#found + 1] = key end end return found"
        )
        for _ in range(examples(300)):
            pattern = bytes(rng.choices(alphabet, k=rng.randint(1, 6)))
            expected = set(direct.call("KEYS", pattern))
            left_out = LeftOut([pattern])
            mine = {key for key in keys if left_out.has(key)} - {
                k for k in keys if k[:1] == b"\xff"
            }
            assert mine == {k for k in expected if k[:1] != b"\xff"}, pattern
            in_lua = direct.call("EVAL", script, str(len(keys)), *sorted(keys), *left_out.lua)
            assert set(in_lua) == expected, (pattern, left_out.lua)
