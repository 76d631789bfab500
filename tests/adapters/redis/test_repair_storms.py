"""Keys are damaged past their gateways and put right while all regions go on writing them."""

import json
import threading
from pathlib import Path
from random import Random

import pytest

from crdtcast.adapters.redis.compare.comparison import KeyComparison
from crdtcast.adapters.redis.compare.key_journal import KeyJournal
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.causality.tags import Vector
from tests.adapters.redis.gateways import PATIENCE, Gateways, regions, until
from tests.effort import size

pytestmark = pytest.mark.process

STEPS = size(ci=5, release=8)
"""How often something is damaged."""
_PAUSE_SECONDS = size(ci=3, release=0) / 1000
"""Between the writes of a region."""
BASE = {f"base-{number}".encode() for number in range(50)}


class Writer:
    """Adds members of its own to the set `s`, takes some away again, and counts in a key that nobody damages."""

    def __init__(self, town: Gateways, name: str) -> None:
        self.name = name
        self.alive: set[bytes] = set()
        self.unsure: set[bytes] = set()
        """Members of which the last answer does not tell whether they are there."""
        self.total = 0
        self.odd: list[str] = []
        self._port = town.running[name].port
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with RawClient(self._port, PATIENCE) as client:
            number = 0
            while not self._stopping.is_set():
                number += 1
                self._write(client, "SADD", b"%s-%d" % (self.name.encode(), number))
                if number % 3 == 0:
                    self._write(client, "SREM", b"%s-%d" % (self.name.encode(), number - 2))
                reply = client.call("INCR", f"total-{self.name}")
                self.total += reply == self.total + 1
                self._stopping.wait(_PAUSE_SECONDS)

    def _write(self, client: RawClient, verb: str, member: bytes) -> None:
        while isinstance(reply := client.call(verb, "s", member.decode()), ErrorReply):
            if "this write is kept" in reply.text:
                break
            if "try again" not in reply.text:
                self.odd.append(reply.text)
                return
            if self._stopping.wait(0.005):
                self.unsure.add(member)
                return
        (self.alive.add if verb == "SADD" else self.alive.discard)(member)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def damage(town: Gateways, rng: Random) -> None:
    """Something past one gateway that all others could mend."""
    name = rng.choice(town.names)
    match rng.randrange(4):
        case 0:
            town.past(name, "DEL", "s")
        case 1:
            town.past(name, "SREM", "s", *(m.decode() for m in rng.sample(sorted(BASE), 20)))
        case 2:
            if town.past(name, "EXISTS", "s"):
                town.past(name, "RENAME", "s", "elsewhere")
            town.past(name, "DEL", "elsewhere")
        case _:
            town.past(name, "DEL", "s")
            town.past(name, "SET", "s", "text")


def storm(directory: Path, names: tuple[str, ...], seed: int, steps: int) -> list[str]:
    """What is wrong at the end, in words."""
    rng = Random(seed)
    with regions(directory, *names, compare_seconds=0.2) as town:
        town.call(names[0], "SADD", "s", *(member.decode() for member in BASE))
        town.settle()
        writers = [Writer(town, name) for name in names[:2]]
        for _ in range(steps):
            damage(town, rng)
            json.loads(town.call(rng.choice(names), "CRDTCAST", "REPAIR"))
            town.rounds(1)
        for writer in writers:
            writer.stop()
        town.settle()
        for name in names:
            json.loads(town.call(name, "CRDTCAST", "REPAIR"))
        until(lambda: len(town.digests()) == 1)
        until(lambda: town.agree("s"))
        (found,) = set(town.values("s"))
        unsure = set[bytes]().union(*(writer.unsure for writer in writers))
        expected = BASE.union(*(writer.alive for writer in writers))
        wrong = [text for writer in writers for text in writer.odd]
        wrong += [f"lost {member!r}" for member in sorted(expected - found - unsure)]
        wrong += [f"came back: {member!r}" for member in sorted(found - expected - unsure)]
        for writer in writers:
            total = town.call(names[-1], "GET", f"total-{writer.name}")
            if total != b"%d" % writer.total:
                wrong.append(f"{writer.name} counted {writer.total}, the group {total!r}")
        return wrong


@pytest.mark.parametrize(
    "names",
    [("eu", "us"), pytest.param(("eu", "us", "ap"), marks=pytest.mark.slow)],
    ids=len,
)
def test_writes_during_repairs_are_kept_and_removals_stay(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    seed = 5
    print("seed", seed)
    assert storm(tmp_path, names, seed, steps=STEPS) == []


def test_states_taken_without_their_history_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(self: KeyComparison, vector: Vector) -> bool:
        return True

    monkeypatch.setattr(KeyComparison, "_covers", at_once)
    monkeypatch.setattr(KeyJournal, "of", lambda *args: ())
    assert storm(tmp_path, ("eu", "us"), 5, steps=STEPS) != []
