"""Lines of JSON between a benchmark and the processes that it measures: an order a line, an answer a line."""

import json
import os
import subprocess
import sys
from typing import Any

import trio


class Orders:
    """What the benchmark asks of this process."""

    def __init__(self) -> None:
        self._stream = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        self._buffer = b""

    async def next(self) -> dict[str, Any] | None:
        """The next one; None when there are no more."""
        while b"\n" not in self._buffer:
            piece = await self._stream.receive_some(65536)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        order: dict[str, Any] = json.loads(line)
        return order


def answer(**fields: Any) -> None:
    """Say how it went."""
    print(json.dumps(fields), flush=True)


class Child:
    """A process of `module`, called `name`."""

    def __init__(self, module: str, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--child", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, **fields: Any) -> None:
        """Give an order."""
        stream = self._process.stdin
        assert stream is not None
        stream.write(json.dumps(fields) + "\n")
        stream.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for an answer. SystemExit: the process has ended."""
        stream = self._process.stdout
        assert stream is not None
        line = stream.readline()
        if not line:
            raise SystemExit(f"node {self.name} has ended: see its error above")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def ask(self, **fields: Any) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        self.tell(**fields)
        return self.hear()

    def end(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
