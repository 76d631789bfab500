"""Nodes as real processes, and what they print."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from crdtcast.service.admin.client import operator
from tests import preloaded


class Running:
    """One `crdtcast node` (or what `arguments` begin with), up to its `ready` line."""

    def __init__(self, where: Path, name: str, *arguments: str, command: str = "node") -> None:
        self.name = name
        self.admin = str(where / f"{name}.sock")
        self.log = where / f"{name}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CRDTCAST_")}
        with open(self.log, "w") as log:
            words = [command, "--name", name, "--listen", "127.0.0.1:0", "--admin", self.admin]
            self.process = preloaded.start([*words, *arguments], log, environment)
        self.ready: dict[str, str] = {}

    def wait_ready(self, seconds: float = 60.0) -> "Running":
        """Read its `ready` line."""
        output = self.process.stdout
        assert output is not None
        until = time.monotonic() + seconds
        while not select.select([output], [], [], 0.1)[0]:
            assert time.monotonic() < until and self.process.poll() is None, self.log.read_text()
        word, *pairs = output.readline().decode().split()
        assert word == "ready", self.log.read_text()
        self.ready = dict(pair.split("=", 1) for pair in pairs)
        return self

    @property
    def listen(self) -> str:
        return self.ready["listen"]

    def ask(self, do: str, **more: Any) -> Any:
        """One request at its admin socket."""

        async def once() -> Any:
            with trio.fail_after(60):
                async with operator(self.admin) as node:
                    return await node.ask(do, **more)

        return trio.run(once)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Send the signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def killed_at_the_end(*started: Running) -> Iterator[None]:
    """No process outlives its test."""
    try:
        yield
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()
            if each.process.stdout is not None:
                each.process.stdout.close()
