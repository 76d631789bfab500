"""Large keys that were changed past their gateways are put right slot by slot, in pages, while they are written."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import OpenCluster
from crdtcast.adapters.redis.compare import comparison, slot_looks
from crdtcast.adapters.redis.compare.comparison import KeyComparison
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store import value_pages
from crdtcast.exceptions import ServerError
from tests.adapters.redis.gateways import PATIENCE, Gateways, regions, until
from tests.adapters.redis.test_large_copies import STRANGE, HotWriter, died, launch
from tests.effort import size

pytestmark = pytest.mark.process

SLOTS = size(ci=2_000, release=8_000)
MANY = size(ci=5_000, release=20_000)
"""Slots that are more than a page of a gateway that is a process of its own."""
LONG = "x" * 90
MEMBERS = [f"{n:06}{LONG}" for n in range(MANY)]
PAGE = SLOTS * 12
"""Bytes of a page: the keys have eight of them."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of the gateways in this process are small."""
    for module in (comparison, slot_looks, value_pages):
        monkeypatch.setattr(module, "PAGE_BYTES", PAGE)
    monkeypatch.setattr(slot_looks, "MOST_SLOTS", SLOTS // 16)


def fill(
    port: int,
    slots: int = SLOTS,
    db: int = 0,
    set_: str | bytes = "set",
    hash_: str | bytes = "hash",
) -> None:
    with RawClient(port, PATIENCE) as client:
        client.call("SELECT", f"{db}")
        for start in range(0, slots, 1000):
            some = MEMBERS[start : min(start + 1000, slots)]
            client.call("SADD", set_, *some)
            client.call("HSET", hash_, *(word for m in some for word in (m[:6], m[6:])))
        client.call("HSET", "few", *(word for n in range(4) for word in (f"f{n}", "z" * 2 * PAGE)))


def call_in(db: int, port: int, *words: str | bytes) -> Any:
    """One command in a database."""
    with RawClient(port, PATIENCE) as client:
        client.call("SELECT", f"{db}")
        return client.call(*words)


def repair(town: Gateways, name: str, *words: str) -> Any:
    told = town.call(name, "CRDTCAST", "REPAIR", *words)
    assert not isinstance(told, ErrorReply), told
    return json.loads(told)


@pytest.mark.parametrize(("db", "hash_"), [(0, "hash"), (3, STRANGE)])
def test_lost_large_keys_return_in_pages_under_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: int, hash_: str | bytes
) -> None:
    sizes: list[int] = []
    answer = KeyComparison.answer

    async def measured(self: KeyComparison, question: bytes) -> bytes:
        sizes.extend((len(question), len(answered := await answer(self, question))))
        return answered

    monkeypatch.setattr(KeyComparison, "answer", measured)
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        fill(town.running["us"].port, db=db, hash_=hash_)
        town.settle()
        writer = HotWriter(town.running["us"], db, hash_)
        seen: list[object] = []
        stopping = threading.Event()

        def look() -> None:
            with RawClient(town.running["eu"].port, PATIENCE) as client:
                client.call("SELECT", f"{db}")
                while not stopping.is_set():
                    seen.append(client.call("SCARD", "set"))

        call_in(db, town.servers["eu"].port, "DEL", "set", hash_, "few")
        looking = threading.Thread(target=look)
        looking.start()
        repair(town, "eu")
        stopping.set()
        looking.join()
        writer.stop()
        town.settle()
        assert len(town.digests()) == 1
        for name in town.names:
            writer.check(town.running[name].port)
        assert call_in(db, town.running["eu"].port, "HLEN", "few") == 5
        assert max(sizes) < 4 * PAGE  # a long value, and what a page of slots has besides
        # A reader has seen what was left, was refused, and has seen all: never a half.
        refused = [each for each in seen if isinstance(each, ErrorReply)]
        assert refused and all("is being repaired: try again" in each.text for each in refused)
        cards = [each for each in seen if isinstance(each, int)]
        assert all(each < SLOTS * 3 // 8 or each > SLOTS // 2 for each in cards)


def test_few_wrong_slots_are_repaired_at_once_and_kept_aside(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        fill(town.running["us"].port)
        town.call("us", "PEXPIRE", "hash", "1000000")
        town.settle()
        town.past("eu", "SREM", "set", *MEMBERS[:5])
        town.past("eu", "SADD", "set", "of eu")
        town.past("eu", "HSET", "hash", "000003", "other", "000004", "other")
        town.past("eu", "PERSIST", "hash")
        assert repair(town, "eu", "set")["found"] == {"put right here": 1}
        until(lambda: town.call("us", "SISMEMBER", "set", "of eu") == 1)  # nothing is lost
        assert "use --from" in str(town.call("eu", "CRDTCAST", "REPAIR", "hash"))
        assert "different values" in str(town.call("eu", "HGET", "hash", "000001"))
        repair(town, "eu", "hash", "FROM", "us")
        assert town.call("eu", "HGET", "hash", "000003").decode() == LONG
        assert town.call("eu", "PTTL", "hash") > 900_000
        town.settle()
        assert len(town.digests()) == 1
        with RawClient(town.servers["eu"].port, PATIENCE) as client:
            client.call("SELECT", "15")
            assert (
                client.call("HGETALL", "foreign:hash")
                == [*(b"000003", b"other", b"000004", b"other")]
                or client.call("HLEN", "foreign:hash") == 2
            )


@pytest.mark.parametrize(
    ("db", "key", "damage"),
    [
        (0, "set", "text"),
        (3, "set", "list"),
        (3, "set", "known text"),
        (0, b"\xffset", "known text"),
    ],
)
def test_large_key_that_another_type_has_replaced_is_restored(
    tmp_path: Path, damage: str, db: int, key: str | bytes
) -> None:
    with regions(tmp_path, "eu", "us", "ap", compare_seconds=0.3) as town:
        fill(town.running["us"].port, db=db, set_=key)
        server = town.servers["eu"].port
        town.settle()
        if damage != "known text":
            town.running["eu"].stop()  # so that it does not know what the key is
        call_in(db, server, "DEL", key)
        words = ("RPUSH", key, "x") if damage == "list" else ("SET", key, "text")
        call_in(db, server, *words)
        if damage != "known text":
            town.start("eu", "us")
        else:
            call_in(db, town.running["eu"].port, "SADD", key, MEMBERS[0])
        until(lambda: call_in(db, town.running["eu"].port, "SCARD", key) == SLOTS)
        town.settle()
        until(lambda: len(town.digests()) == 1)


def test_two_members_restore_the_parts_that_each_has_lost(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0.3) as town:
        fill(town.running["us"].port)
        town.settle()
        half = SLOTS // 2
        for start in range(0, half, 1000):
            end = min(start + 1000, half)
            town.past("eu", "SREM", "set", *MEMBERS[start:end])
            town.past("us", "SREM", "set", *MEMBERS[half + start : half + end])
        until(lambda: [town.call(n, "SCARD", "set") for n in town.names] == [SLOTS, SLOTS])
        until(lambda: len(town.digests()) == 1)


def test_incomplete_key_is_withheld_from_a_joiner_until_repaired(
    tmp_path: Path,
) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("us", "SADD", "s", "x", "y")
        town.settle()
        town.running["eu"].stop()
        with RawClient(town.servers["eu"].port, PATIENCE) as client:
            client.pipeline([("SREM", "s", "y"), ("SELECT", "15"), ("SADD", "incomplete", "s")])
        town.running["us"].stop()
        town.start("eu", "us")
        assert "is being repaired" in str(town.call("eu", "SMEMBERS", "s"))
        joining = town.begin("ap", "eu")
        town.start("us", "eu")
        joining.wait_ready()
        until(lambda: town.call("eu", "SCARD", "s") == 2)
        assert town.call("ap", "SCARD", "s") == 2
        town.running["eu"].stop()
        with RawClient(town.servers["eu"].port, PATIENCE) as client:
            client.pipeline([("SELECT", "15"), ("SADD", "incomplete", "s")])
        town.start("eu", "us")
        until(lambda: town.call("eu", "SCARD", "s") == 2)


@pytest.mark.parametrize(
    "with_server",
    [
        pytest.param(False, id="gateway", marks=pytest.mark.slow),
        pytest.param(True, id="gateway-and-server"),
    ],
)
def test_gateway_killed_during_a_large_repair_resumes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_server: bool
) -> None:
    arguments = ("--admin-commands", "--compare-seconds", "0")
    with OpenCluster(
        tmp_path, "ab", group="g", appendfsync="everysec", arguments=arguments
    ) as cluster:
        a, b = cluster["a"], cluster["b"]
        fill(a.gateway.port, MANY)
        cluster.wait_equal("ab", quiet=True, timeout=60)
        writer = HotWriter(a.gateway)
        b.close()
        b.gateway.stop()
        launch(b.gateway, "repair-page-written:3", monkeypatch)
        b.gateway.wait_ready()
        with RawClient(b.server.port, PATIENCE) as client:
            client.call("DEL", "set")
        with pytest.raises((ServerError, OSError)), RawClient(b.gateway.port, PATIENCE) as client:
            while True:  # as long as it is not linked yet
                assert isinstance(client.call("CRDTCAST", "REPAIR", "set"), ErrorReply)
        died(b)
        if with_server:
            b.server.kill()
            b.server.restart()
        b.gateway.launch()
        b.gateway.wait_ready()
        with RawClient(b.gateway.port, PATIENCE) as client:

            def is_whole() -> bool:
                card = client.call("SCARD", "set")
                assert isinstance(card, ErrorReply) or int(str(card)) > MANY // 2
                return not isinstance(card, ErrorReply)

            until(is_whole)
        writer.stop()
        cluster.wait_equal("ab", quiet=True, timeout=60)
        told = {json.loads(cluster[name].command("VERIFY"))["digest"] for name in "ab"}
        assert len(told) == 1
        writer.check(b.gateway.port)
