"""A restored backup, or a copy of a server, does not continue under the identity that its metadata names."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crdtcast.adapters.redis.group import lifecycle
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.adapters.redis.adopted import dump
from tests.adapters.redis.gateways import Gateways, error_of, until

pytestmark = pytest.mark.process


@contextmanager
def copy_of(server: EmbeddedServer, directory: Path) -> Iterator[EmbeddedServer]:
    """Another server with a snapshot of this one's data."""
    directory.mkdir()
    with RawClient(server.port) as client:
        assert client.call("SAVE") == b"OK"
    shutil.copy(server.directory / "dump.rdb", directory)
    with start_server(directory, options=("--appendonly", "no")) as copied:
        with RawClient(copied.port) as client:
            for name, value in (("appendonly", "yes"), ("appendfsync", "always")):
                assert client.call("CONFIG", "SET", name, value) == b"OK"
            until(lambda: not writes_first_file(client))  # until then it does not stop
        yield copied


def writes_first_file(client: RawClient) -> bool:
    """Whether the server has not written its first append-only file completely."""
    told = client.call("INFO", "persistence")
    assert isinstance(told, bytes)
    words = (b"aof_rewrite_in_progress:1", b"aof_rewrite_scheduled:1")
    return any(word in told for word in words)


def copy_state(directory: Path, name: str) -> Path:
    """A copy of a gateway's local files, kept aside."""
    return Path(shutil.copytree(directory / f"state-{name}", directory / f"copy-of-{name}"))


def use_state(copied: Path, directory: Path, name: str) -> None:
    """Let the next gateway of that name start with these local files."""
    shutil.rmtree(directory / f"state-{name}", ignore_errors=True)
    shutil.copytree(copied, directory / f"state-{name}")


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateways]:
    """Two members that have the same, and know that."""
    monkeypatch.setattr(lifecycle, "_RIVAL_SECONDS", 0.2)
    monkeypatch.setattr(lifecycle, "_ASK_AGAIN_SECONDS", 0.05)
    with Gateways(tmp_path, logs=False) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "SET", "k", "1")
        town.wait_equal("a", "b")
        yield town


def test_copy_without_the_local_file_is_refused(town: Gateways, tmp_path: Path) -> None:
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        original = town.running.pop("a")
        try:
            shutil.move(tmp_path / "state-a", tmp_path / "state-of-the-original")
            for through in (None, "b"):
                error = str(town.refused("a", through, port=copied.port))
                assert "may lack data" in error
            error = str(town.refused("c", "b", port=copied.port))
            assert "the server of node 'a'" in error
        finally:
            original.stop()


def test_copy_with_the_local_file_is_refused(town: Gateways, tmp_path: Path) -> None:
    """As when a whole machine is cloned."""
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        original = town.running.pop("a")
        try:
            error = str(town.refused("a", "b", port=copied.port))
            assert "another running gateway has the identity" in error
            assert town.status("b")["links"]["a"]["state"] == "up"
            with original.client() as client:
                assert client.call("INCR", "k") == 2
            until(lambda: town.call("b", "GET", "k") == b"2")
        finally:
            original.stop()


def test_original_that_was_cut_off_ends_when_its_copy_is_linked(
    town: Gateways, tmp_path: Path
) -> None:
    original = town.running["a"]
    town.call("a", "CRDTCAST", "CUT", "b")
    town.call("b", "CRDTCAST", "CUT", "a")
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        town.call("b", "CRDTCAST", "HEAL", "a")
        town.start("a", "b", port=copied.port)
        until(lambda: town.status("b")["links"]["a"]["state"] == "up")
        with original.client() as client:
            client.call("CRDTCAST", "HEAL", "b")
        assert "another running gateway has the identity" in str(error_of(original))
        town.call("a", "INCR", "k")
        town.settle("a", "b")
        town.running["a"].stop()


def test_older_backup_joins_as_another_incarnation(town: Gateways, tmp_path: Path) -> None:
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        for _ in range(5):
            town.call("a", "INCR", "k")
        town.wait_equal("a", "b")
        before = town.status("a")["incarnation"]
        town.running["a"].stop()
        town.start("a", "b", port=copied.port)
        until(lambda: town.call("a", "INCR", "k") == 7)  # its first write
        assert town.status("a")["incarnation"] > before
        town.settle("a", "b")
        assert dump(copied.port) == dump(town.server("b").port)
        town.running["a"].stop()


def test_older_machine_joins_as_another_incarnation(town: Gateways, tmp_path: Path) -> None:
    """Its local files are as old as its server: only the other members know more."""
    state = copy_state(tmp_path, "a")
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        for _ in range(5):
            town.call("a", "INCR", "k")
        town.wait_equal("a", "b")
        before = town.status("a")["incarnation"]
        town.running["a"].stop()
        use_state(state, tmp_path, "a")
        town.start("a", "b", port=copied.port)
        until(lambda: town.call("a", "INCR", "k") == 7)  # its first write
        assert town.status("a")["incarnation"] > before
        town.settle("a", "b")
        assert dump(copied.port) == dump(town.server("b").port)
        town.running["a"].stop()


def test_copy_that_is_handed_back_is_a_database_like_any_other(
    town: Gateways, tmp_path: Path
) -> None:
    with copy_of(town.server("a"), tmp_path / "copied") as copied:
        with RawClient(copied.port) as direct:
            direct.call("SELECT", "15")
            assert direct.call("FLUSHDB") == b"OK"
        with Gateways(tmp_path / "elsewhere", logs=False) as other:
            other.start("a", port=copied.port)
            assert other.call("a", "INCR", "k") == 2
        assert town.call("b", "GET", "k") == b"1"
