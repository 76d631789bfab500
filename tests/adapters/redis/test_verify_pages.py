"""VERIFY reads large values in pages, and tells of none of them that was written meanwhile."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast.adapters.redis.compare import verify
from crdtcast.adapters.redis.compare.digests import key_digest
from crdtcast.adapters.redis.ops.recorder import Recorder
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.adapters.redis.store import value_pages
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.types.native import Page
from tests.adapters.redis.gateways import PATIENCE, Gateways, until

pytestmark = pytest.mark.process

FIELDS = [b"%05d" % n for n in range(3_000)]
PAGE = 20_000


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PAGE_BYTES", PAGE)
    monkeypatch.setattr(value_pages, "PAGE_BYTES", PAGE)


def fill(town: Gateways, value: bytes) -> None:
    """All fields of the hash, in one command."""
    with RawClient(town.running["a"].port, PATIENCE) as client:
        client.call("HSET", "hash", *(word for field in FIELDS for word in (field, value)))


def digest_with(value: bytes) -> str:
    return key_digest(b"hash", {RedisType.HASH: dict.fromkeys(FIELDS, value)})


def told_of_the_hash(town: Gateways) -> list[str]:
    lines = [
        json.loads(line)
        for path in (town.directory / "logs").rglob("*.jsonl*")
        for line in path.read_text().splitlines()
    ]
    return [line["digest"] for line in lines if line.get("object") == "hash"]


def wait_told(town: Gateways, digest: str) -> None:
    """A line waits until what it tells of is synced: the next write tells of that."""
    until(lambda: town.call("a", "INCR", "n") and digest in told_of_the_hash(town))


def verify_once(town: Gateways) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(town.call("a", "CRDTCAST", "VERIFY"))
    return found


def test_a_large_value_is_summed_up_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        fill(town, b"before")
        with RawClient(town.running["a"].port, PATIENCE) as client:
            client.call("SADD", "set", *(field + b"x" * 50 for field in FIELDS))
            client.call("PEXPIRE", "set", "1000000")
            client.call("SET", "text", "y" * 5 * PAGE)
            client.call("SADD", "small", "x")
        in_pages = verify_once(town)
        monkeypatch.setattr(verify, "_WALKS", 0)
        assert in_pages == verify_once(town) | {"vector": in_pages["vector"]}
        assert in_pages["keys"] == 3 and in_pages["with_deadlines"]["keys"] == 1
        wait_told(town, digest_with(b"before"))
    assert set(told_of_the_hash(town)) == {digest_with(b"before")}


def writes_at_page(town: Gateways, monkeypatch: pytest.MonkeyPatch, walks: int) -> list[int]:
    """Have the hash written behind the second page of so many walks; returns the pages of each walk."""
    page = ValuePages.page
    pages: list[int] = []
    replies_to = verify.replies_to

    async def then_write(*args: Any) -> list[Any]:
        replies = await replies_to(*args)
        if pages and pages[-1] == 2 and len(pages) <= walks:
            await trio.to_thread.run_sync(fill, town, b"later%d" % len(pages))
        return replies

    def counted(walk: ValuePages) -> Steps[Page | None]:
        if walk.following == b"0":
            pages.append(0)
        pages[-1] += 1
        return (yield from page(walk))

    monkeypatch.setattr(verify, "replies_to", then_write)
    monkeypatch.setattr(ValuePages, "page", counted)
    return pages


@pytest.mark.parametrize("walks", [1, 2])
def test_value_written_during_verify_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walks: int
) -> None:
    """walks: over which it is written; after the last one it is read at once."""
    with Gateways(tmp_path) as town:
        town.start("a")
        fill(town, b"before")
        pages = writes_at_page(town, monkeypatch, walks)
        verify_once(town)
        assert len(pages) == 2 and min(pages) > 2
        wait_told(town, digest_with(b"later%d" % walks))
    possible = {digest_with(b"before"), *(digest_with(b"later%d" % n) for n in (1, 2))}
    assert set(told_of_the_hash(town)) <= possible


def test_unnoticed_write_during_verify_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector_of = Recorder.vector_of
    with Gateways(tmp_path) as town:
        town.start("a")
        fill(town, b"before")
        seen: dict[bytes, Any] = {}
        monkeypatch.setattr(
            Recorder, "vector_of", lambda self, key: seen.setdefault(key, vector_of(self, key))
        )
        writes_at_page(town, monkeypatch, 1)
        verify_once(town)
        right = {digest_with(b"before"), digest_with(b"later1")}
        until(lambda: town.call("a", "INCR", "n") and set(told_of_the_hash(town)) - right)
        town.running["a"].stop()
        shutil.rmtree(town.directory / "logs")  # the check of them finds it, too
