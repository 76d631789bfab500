"""A join copies large keys in pages while clients write them; the giver or the joiner may die at any page."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import GatewayProcess, OpenCluster, Region
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.transfer.state_messages import Ending, Slice
from crdtcast.adapters.redis.types.native import PAGE_BYTES
from tests.adapters.redis.client_load import Serving
from tests.adapters.redis.gateways import PATIENCE, Gateways
from tests.adapters.redis.test_crashes import append_only_file, lose_the_end_of_the_file
from tests.effort import size

pytestmark = pytest.mark.process

SLOTS = size(ci=6_000, release=30_000)
LONG = "x" * 90
FIELDS = 6
STRANGE = b"\xffhash"
"""Of another database, or not: no key that is its own name."""


def fill(client: RawClient, hash_: str | bytes = "hash") -> None:
    """A set, a hash, a hash of few long values, and a text: each of several pages."""
    for start in range(0, SLOTS, 1000):
        slots = [f"{n:06}" for n in range(start, start + 1000)]
        client.call("SADD", "set", *(slot + LONG for slot in slots))
        client.call("HSET", hash_, *(word for slot in slots for word in (slot, LONG)))
    for number in range(FIELDS):
        client.call("HSET", "few", f"f{number}", f"{number}" * (PAGE_BYTES * 3 // 2))
    client.call("SET", "text", "y" * (3 * PAGE_BYTES + 5))
    client.call("SADD", "small", "x")


_PAUSE_SECONDS = size(ci=10, release=0) / 1000
"""Between two writes of a `HotWriter`, so that it leaves the processor to those who copy."""


class HotWriter:
    """Writes the large keys all the time, and knows what of it has to be there: what was answered."""

    def __init__(self, serving: Serving, db: int = 0, hash_: str | bytes = "hash") -> None:
        self.members: dict[str, bool] = {}
        self.fields: dict[str, str] = {}
        self.counted = 0
        self._serving = serving
        self._db, self._hash = db, hash_
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _commands(self) -> Iterator[tuple[str | bytes, ...]]:
        number = 0
        while True:
            number += 1
            yield "SADD", "set", f"new-{number}"
            yield "SREM", "set", f"{number % SLOTS:06}{LONG}"
            yield "HSET", self._hash, f"{number % 500:06}", f"new-{number}"
            yield "HDEL", self._hash, f"{1000 + number % SLOTS:06}"
            yield "HSET", "few", "f0", f"{number}"
            yield "HINCRBY", "few", "n", "1"

    def _run(self) -> None:
        commands = self._commands()
        with RawClient(self._serving.port, PATIENCE) as client:
            client.call("SELECT", f"{self._db}")
            while not self._stopping.is_set():
                words = next(commands)
                reply = client.call(*words)
                assert not isinstance(reply, ErrorReply), reply
                match words:
                    case ("SADD" | "SREM", _, str(member)):
                        self.members[member] = words[0] == "SADD"
                    case ("HINCRBY", *_):
                        self.counted += 1
                    case ("HSET" | "HDEL", key, str(field), *value) if key == self._hash:
                        self.fields[field] = str(value[0]) if value else ""
                self._stopping.wait(_PAUSE_SECONDS)

    def stop(self) -> int:
        """How many increments there are."""
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.counted

    def check(self, port: int) -> None:
        """All that was answered is there, and nothing that was removed."""
        with RawClient(port, PATIENCE) as client:
            client.call("SELECT", f"{self._db}")
            members = list(self.members)
            told: Any = client.call("SMISMEMBER", "set", *members)
            assert told == [int(self.members[member]) for member in members]
            fields = list(self.fields)
            values: Any = client.call("HMGET", self._hash, *fields)
            assert [(value or b"").decode() for value in values] == list(self.fields.values())
            assert client.call("HGET", "few", "n") == b"%d" % self.counted


@pytest.mark.parametrize(
    ("db", "hash_"),
    [
        (0, "hash"),
        (3, STRANGE),
        pytest.param(3, "hash", marks=pytest.mark.slow),
        pytest.param(0, STRANGE, marks=pytest.mark.slow),
    ],
)
def test_large_keys_are_copied_in_pages_under_constant_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: int, hash_: str | bytes
) -> None:
    sizes: list[int] = []
    for kind in (Slice, Ending):
        encode = kind.encode

        def measured(part: Any, encode: Any = encode) -> bytes:
            raw: bytes = encode(part)
            sizes.append(len(raw))
            return raw

        monkeypatch.setattr(kind, "encode", measured)
    with Gateways(tmp_path) as town:
        town.start("a")
        with town.running["a"].client() as client:
            client.call("SELECT", f"{db}")
            fill(client, hash_)
            client.call("PEXPIRE", hash_, "1000000")
        writer = HotWriter(town.running["a"], db, hash_)
        town.start("b", "a")
        writer.stop()
        town.wait_equal("a", "b")
        # A long value is a page of its own, beside a few short ones.
        assert len(sizes) > 10 and max(sizes) < 2 * PAGE_BYTES
        for name in "ab":
            writer.check(town.running[name].port)
            with town.running[name].client() as client:
                client.call("SELECT", f"{db}")
                assert client.call("STRLEN", "text") == 3 * PAGE_BYTES + 5
                assert client.call("HLEN", "few") == FIELDS + 1
                left = client.call("PTTL", hash_)
                assert isinstance(left, int) and left > 900_000


def test_large_key_replaced_constantly_is_copied(tmp_path: Path) -> None:
    stopping = threading.Event()

    def replace(port: int) -> None:
        number = 0
        with RawClient(port, PATIENCE) as client:
            while not stopping.is_set():
                number += 1
                client.call("SET", "restless", f"{number}" + "x" * 2 * PAGE_BYTES)
                client.call("SUNIONSTORE", "again", "set")
                client.call("RENAME", "again", "copied")

    with Gateways(tmp_path) as town:
        town.start("a")
        with town.running["a"].client() as client:
            slots = [f"{n:06}" for n in range(SLOTS // 2)]
            for start in range(0, len(slots), 1000):
                client.call("SADD", "set", *(s + LONG for s in slots[start : start + 1000]))
        thread = threading.Thread(target=replace, args=(town.running["a"].port,))
        thread.start()
        town.start("b", "a")
        stopping.set()
        thread.join()
        town.wait_equal("a", "b")
        assert town.call("b", "SCARD", "copied") == len(slots)


def launch(gateway: GatewayProcess, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRDTCAST_CRASH_AT", point)
    gateway.launch()
    monkeypatch.delenv("CRDTCAST_CRASH_AT")


def died(region: Region) -> None:
    process = region.gateway.process
    assert process is not None
    assert process.wait(60) == -9, region.gateway.obituary()
    region.gateway.forget_process()
    region.close()


@pytest.mark.parametrize(
    ("who", "loses"),
    [
        pytest.param("giver", True, id="giver-last-second-lost"),
        pytest.param("joiner", False, id="joiner-synced"),
        pytest.param("giver", False, id="giver-synced", marks=pytest.mark.slow),
        pytest.param("joiner", True, id="joiner-last-second-lost", marks=pytest.mark.slow),
    ],
)
def test_crash_at_a_page_of_a_copy_leaves_no_partial_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, loses: bool
) -> None:
    """With its server, which may come back without its last second."""
    with OpenCluster(
        tmp_path, "ab", group="g", appendfsync="everysec", log_directory=tmp_path / "logs"
    ) as cluster:
        a, b = cluster["a"], cluster["b"]
        with RawClient(a.gateway.port, PATIENCE) as client:
            fill(client)
        cluster.wait_equal("ab", quiet=True, timeout=60)
        writer = HotWriter(a.gateway)
        if who == "giver":
            b.close()
            b.gateway.stop()
            launch(b.gateway, "copy-page-read:3", monkeypatch)
            b.gateway.wait_ready()
            joiner = cluster.begin("c", through="b")
            dead = b
        else:
            monkeypatch.setenv("CRDTCAST_CRASH_AT", "copy-page-written:3")
            joiner = cluster.begin("c", through="b")
            monkeypatch.delenv("CRDTCAST_CRASH_AT")
            dead = joiner
        died(dead)
        if loses:
            dead.server.kill()
            synced = append_only_file(dead).stat().st_size // 2
            lose_the_end_of_the_file(dead, synced)
            dead.server.restart()
        dead.gateway.launch()
        dead.gateway.wait_ready()
        if dead is not joiner:
            joiner.gateway.wait_ready()
        writer.stop()
        cluster.wait_equal("abc", quiet=True, timeout=60)
        told = {json.loads(cluster[name].command("VERIFY"))["digest"] for name in "abc"}
        assert len(told) == 1
        for name in "abc":
            writer.check(cluster[name].gateway.port)
            assert not cluster[name].status()["changed_past_the_gateway"]
