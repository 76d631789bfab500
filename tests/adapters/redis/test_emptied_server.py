"""A server that was emptied past its gateway is filled from the group; one that takes no writes still answers reads."""

import contextlib
import logging
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from crdtcast.adapters.redis.embedded import start_server
from crdtcast.adapters.redis.rawclient import ErrorReply, RawClient
from tests.adapters.redis.member_support import Town
from tests.adapters.redis.regression_support import gateway, until

pytestmark = pytest.mark.process

EMPTYINGS: dict[str, list[list[str]]] = {
    "everything": [["FLUSHALL"]],
    "our metadata alone": [["SELECT", "15"], ["FLUSHDB"]],
    "the fence alone": [["SELECT", "15"], ["DEL", "fence"]],
    "the fence, set back": [["SELECT", "15"], ["SET", "fence", "1"]],
    "the state and the fence": [["SELECT", "15"], ["DEL", "state", "fence"]],
}


def at_server(town: Town, name: str, commands: list[list[str]]) -> None:
    with RawClient(town.server(name).port) as client:
        for reply in client.pipeline(commands):
            assert not isinstance(reply, ErrorReply)


def written(town: Town, name: str, *words: str) -> None:
    """Write until it is taken: whoever is told that nothing was written tries again."""
    until(lambda: not isinstance(town.call(name, *words), ErrorReply))


@pytest.mark.parametrize("emptying", EMPTYINGS.values(), ids=EMPTYINGS)
@pytest.mark.parametrize("emptied", ["a", "b"], ids=["founder", "joiner"])
def test_an_emptied_server_of_a_running_gateway_is_filled_again(
    tmp_path: Path, emptied: str, emptying: list[list[str]]
) -> None:
    with Town(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "SADD", "s", "1")
        town.call("b", "SADD", "s", "2")
        town.wait_equal("a", "b")
        at_server(town, emptied, emptying)
        written(town, emptied, "SADD", "s", "3")
        written(town, "a" if emptied == "b" else "b", "INCR", "n")
        town.wait_equal("a", "b")
        for name in "ab":
            assert sorted(town.call(name, "SMEMBERS", "s")) == [b"1", b"2", b"3"]
            assert town.call(name, "GET", "n") == b"1"


def test_a_founder_whose_server_is_found_empty_starts_again(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        a = town.start("a")
        town.start("b", "a")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        a.stop()
        at_server(town, "a", [["FLUSHALL"]])
        town.start("a")  # as a founder, as always
        town.wait_equal("a", "b")
        assert town.call("a", "INCR", "n") == 2
        assert town.members("b") == ["a", "b"]


def test_increments_while_the_server_is_emptied_count_once(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        answered: list[int] = []
        unsure: list[str] = []
        stop = threading.Event()

        def write() -> None:
            with RawClient(town.running["a"].port) as client:
                while not stop.is_set():
                    reply = client.call("INCR", "n")
                    if isinstance(reply, int):
                        answered.append(reply)
                    elif "read, when it is back" in str(reply):
                        unsure.append(str(reply))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                before = len(answered)
                until(lambda before=before: len(answered) > before + 50)
                at_server(town, "a", [["FLUSHALL"]])
            before = len(answered)
            until(lambda: len(answered) > before + 50)
        finally:
            stop.set()
            writer.join()
        town.wait_equal("a", "b")
        value = int(town.call("b", "GET", "n"))
        assert len(answered) + 1 <= value <= len(answered) + 1 + len(unsure)


def test_a_lone_member_goes_on_with_an_emptied_server(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        town.start("a")
        town.call("a", "SADD", "s", "1")
        at_server(town, "a", [["FLUSHALL"]])
        written(town, "a", "SADD", "t", "1")
        assert (town.call("a", "EXISTS", "s"), town.call("a", "EXISTS", "t")) == (0, 1)
        town.start("b", "a")
        town.wait_equal("a", "b")


def test_fixed_members_tell_the_true_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        start_server(tmp_path / "server") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
        RawClient(server.port) as direct,
        caplog.at_level(logging.ERROR),
    ):
        assert client.call("INCR", "n") == 1
        direct.call("FLUSHALL")
        until(lambda: "removed past the gateway" in str(client.call("INCR", "n")))
        assert running.error is None
        assert "another gateway" not in caplog.text
        assert "the server has lost its data" in caplog.text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("read", [("GET", "n"), ("SMEMBERS", "s"), ("STRLEN", "n")])
def test_reads_are_answered_while_the_disk_is_full(
    tmp_path: Path, small_disk: Path, read: tuple[str, ...]
) -> None:
    with (
        start_server(small_disk, appendfsync="everysec") as server,
        gateway(tmp_path, server.port) as running,
        running.client() as client,
    ):
        assert client.call("INCR", "n") == 1
        assert client.call("SADD", "s", "1") == 1
        expected = client.call(*read)
        ballast = small_disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            fill(file)
        until(lambda: isinstance(client.call("SADD", "t", "x" * 5000), ErrorReply))
        for _ in range(20):
            answers = client.pipeline([read, ("SADD", "t", "x" * 5000), read])
            assert isinstance(answers[1], ErrorReply)
            assert answers[0] == answers[2] == expected, answers
        ballast.unlink()
        until(lambda: client.call("INCR", "n") == 2)


def fill(file: BinaryIO) -> None:
    """Write until not one byte more has room."""
    for size in (1 << 16, 1 << 10, 1):
        with contextlib.suppress(OSError):
            while True:
                file.write(b"x" * size)
