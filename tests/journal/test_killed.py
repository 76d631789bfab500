"""Real processes, SIGKILL at random points, and what is left of them."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.eventlog.check.check import check_logs
from crdtcast.ports import free_ports
from tests.effort import first_seed, seeds

NAMES = "abc"
MOST = 60


class Workers:
    """Three processes on this machine; `kept` is what any of them has said to be durable."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.kept: set[str] = set()
        self.incarnations: dict[str, set[str]] = {name: set() for name in NAMES}
        self.starts = 0

    def start(self, name: str) -> None:
        self.starts += 1
        contact = "" if name == "a" else str(self.ports["a"])
        command = [sys.executable, "-m", "tests.journal.worker", name, str(self.directory)]
        with open(self.directory / f"{name}.err", "a") as errors:
            self.running[name] = subprocess.Popen(
                [*command, str(self.ports[name]), contact, str(MOST)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def line(self, name: str) -> str:
        """The next line of one of them."""
        output = self.running[name].stdout
        assert output is not None
        line = output.readline().strip()
        errors = (self.directory / f"{name}.err").read_text()
        assert line, f"{name} has ended:\n{errors[-3000:]}"
        verb, _, rest = line.partition(" ")
        if verb == "kept":
            assert rest not in self.kept, f"{rest} was sent twice: one of the two was lost"
            self.kept.add(rest)
        elif verb == "up":
            self.incarnations[name].add(rest)
        return line

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        output, _ = process.communicate()
        for line in output.splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "kept":
                self.kept.add(rest)

    def tell(self, name: str, line: str) -> None:
        asked = self.running[name].stdin
        assert asked is not None
        asked.write(f"{line}\n")
        asked.flush()

    def states(self) -> dict[str, list[str]]:
        for name in NAMES:
            self.tell(name, "stop")
        sent = 0
        for name in NAMES:
            while not (line := self.line(name)).startswith("idle"):
                pass
            sent += int(line.removeprefix("idle"))
        for name in NAMES:
            self.tell(name, str(sent))
        states = {}
        for name in NAMES:
            while not (line := self.line(name)).startswith("["):
                pass
            states[name] = json.loads(line)
        return states

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


def run(directory: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    workers = Workers(directory)
    try:
        for name in NAMES:
            workers.start(name)
            workers.line(name)
        for _ in range(kills):
            name = chance.choice(NAMES)
            for _ in range(chance.choice((0, 1, 3, 10, 30))):
                workers.line(name)
            victims = NAMES if chance.random() < 0.15 else name
            for victim in victims:
                workers.kill(victim)
            for victim in victims:
                workers.start(victim)
        states = workers.states()
    finally:
        workers.end()
    assert states["a"] == states["b"] == states["c"]
    assert len(set(states["a"])) == len(states["a"])
    assert workers.kept <= set(states["a"])
    # Nothing was evicted, and all journals are whole, so all have gone on as what they were.
    assert {name: len(ids) for name, ids in workers.incarnations.items()} == dict.fromkeys(NAMES, 1)
    checked = check_logs([directory / "logs"])
    assert checked.violations == () and checked.counts["events"] > len(states["a"])


@pytest.mark.process
@pytest.mark.parametrize("seed", seeds(1, first=1))
def test_killed_members_go_on_and_nothing_is_lost_or_doubled(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, kills=3)


@pytest.mark.slow
@pytest.mark.process
def test_killed_members_go_on_many_times(tmp_path: Path) -> None:
    run(tmp_path, first_seed(), kills=40)
