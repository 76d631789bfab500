"""What servers decide by themselves, in regions that come and go: concurrent, cut off, started anew, evicted."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.exceptions import ServerError
from tests.adapters.redis.gateways import PATIENCE, Gateways, until
from tests.adapters.redis.test_members import cut_off, evicted_with, heal, parked
from tests.effort import examples, first_seed

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")
KEYS = ("k", "l", "m", "n")
WORDS = ("x", "y", "7", "12")
COMMANDS = (
    *(
        "SPOP k",
        "SPOP k 2",
        "SADD k w v",
        "SADD k w",
        "SREM k w",
        "SMOVE k k w",
        "SUNIONSTORE k k k",
    ),
    *(
        "SDIFFSTORE k k k",
        "SINTERSTORE k k k",
        "SET k w",
        "SET k w NX",
        "SET k w XX GET",
        "SETNX k w",
    ),
    *("SET k w IFEQ w GET", "GETSET k w", "GETDEL k", "APPEND k w", "SETRANGE k 2 w", "INCR k"),
    *("INCRBY k 9007199254740993", "DECRBY k 7", "HSET k w w v w", "HSETNX k w w", "HDEL k w"),
    *("HINCRBY k w 3", "RENAME k k", "RENAMENX k k", "COPY k k REPLACE", "COPY k k", "DEL k k"),
    *(
        "MSET k w k w",
        "MSETNX k w k v",
        "GET k",
        "SMEMBERS k",
        "HGETALL k",
        "TYPE k",
        "GETDEL none",
    ),
)


def commands(random: Random) -> Iterator[list[str]]:
    """The words of one command, or of one transaction."""
    count = random.choice((1, 1, 2, 5))
    made = []
    for _ in range(count):
        words = random.choice(COMMANDS).split()
        places = {"k": KEYS, "w": WORDS, "v": WORDS}
        made.append([random.choice(places[word]) if word in places else word for word in words])
    if count > 1 and random.random() < 0.5:
        made = [["MULTI"], *made, ["EXEC"]]
    yield from made


class Writer:
    """A client of one region until `stop`, which connects again where its gateway was started anew."""

    def __init__(self, town: Gateways, name: str, seed: int) -> None:
        self.count = 0
        self._town, self._name = town, name
        self._random = Random(f"{seed} {name}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(ServerError, OSError, AssertionError):
                port = self._town.running[self._name].port
                with RawClient(port, PATIENCE) as client:
                    while not self._stopping.is_set():
                        client.pipeline(list(commands(self._random)))
                        self.count += 1
                        self._stopping.wait(0.002)
            self._stopping.wait(0.02)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("seed", range(first_seed(), first_seed() + examples(4)))
def test_regions_that_write_at_once_are_equal_in_the_end(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.wait_equal(*NAMES)
        writers = [Writer(town, name, seed) for name in NAMES]
        for _ in range(8):
            before = [writer.count for writer in writers]
            until(lambda: all(w.count >= n + 25 for w, n in zip(writers, before, strict=True)))  # noqa: B023
            one, *others = random.sample(NAMES, 3)
            match random.choice(("cut", "heal", "restart")):
                case "cut":
                    cut_off(town, one, *others)
                case "heal":
                    heal(town, one, *others)
                case _:
                    for name in NAMES:  # so that they hear of its new address
                        heal(town, name, *(other for other in NAMES if other != name))
                    town.running[one].stop()
                    town.start(one, others[0])
        for writer in writers:
            writer.stop()
        for name in NAMES:
            heal(town, name, *(other for other in NAMES if other != name))
        town.wait_equal(*NAMES)
        for name in NAMES:
            with RawClient(town.servers[name].port) as server:
                server.call("SELECT", "15")
                assert server.call("EXISTS", "record") == 0


def test_decision_of_an_evicted_region_is_resent_once(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("c", "SADD", "s", "1", "2", "3", "4")
        town.call("c", "SADD", "from", "m", "left")
        town.wait_equal(*NAMES)
        cut_off(town, "c", "a", "b")
        popped = town.call("c", "SPOP", "s")
        with RawClient(town.running["c"].port) as client:
            decided = [("GETDEL", "none"), ("INCR", "n"), ("SADD", "s", "5"), ("SPOP", "s")]
            _, one, added, decided_on = client.pipeline(decided)
            assert (one, added) == (1, 1)
        assert town.call("c", "SET", "lock", "c", "NX") == b"OK"
        assert town.call("c", "SMOVE", "from", "to", "m") == 1
        evicted_with(town, "c", "a", "b")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        heal(town, "c", "a", "b")
        until(lambda: town.members("a") == ["a", "b", "c"])
        until(lambda: not parked(town, "c"))
        town.wait_equal(*NAMES)
        for name in NAMES:
            left = {b"1", b"2", b"3", b"4", b"5"} - {popped, decided_on}
            assert set(town.call(name, "SMEMBERS", "s")) == left
            assert town.call(name, "GET", "n") == b"2"
            assert town.call(name, "GET", "lock") == b"c"
            assert town.call(name, "SMEMBERS", "to") == [b"m"]
            assert town.call(name, "SMEMBERS", "from") == [b"left"]


def test_view_changes_wait_for_recorded_commands(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        writer = Writer(town, "b", first_seed())
        town.running["c"].stop()
        for _ in range(5):
            assert town.call("b", "CRDTCAST", "EVICT", "c") == b"OK"
            until(lambda: town.members("a") == town.members("b") == ["a", "b"])
            town.start("c", "b")
            until(lambda: town.members("a") == town.members("b") == ["a", "b", "c"])
            town.running["c"].stop()
        town.start("c", "b")
        assert town.call("b", "CRDTCAST", "LEAVE") == b"OK"
        town.running["b"].wait_ended()
        writer.stop()
        assert town.running["b"].error is None
        town.wait_equal("a", "c")
