"""A client beside what is measured: how long its commands take meanwhile."""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Self

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient

_PATIENCE = 600.0


class Beside:
    """Sends one command after the other, and pauses for so many seconds between them. took: seconds of each."""

    def __init__(self, port: int, commands: Iterator[Sequence[str]], pause: float) -> None:
        self.took: list[float] = []
        self._commands, self._pause = commands, pause
        self._client = RawClient(port, _PATIENCE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            words = next(self._commands)
            began = time.perf_counter()
            reply = self._client.call(*words)
            self.took.append(time.perf_counter() - began)
            assert not isinstance(reply, ErrorReply), reply
            if self._pause:
                self._stopping.wait(self._pause)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._client.close()

    @property
    def longest(self) -> float:
        """Seconds of the slowest one."""
        return max(self.took, default=0.0)

    def centile(self, share: float) -> float:
        """So many of them took no longer than this, in milliseconds."""
        return 1000 * statistics.quantiles(self.took, n=1000)[int(1000 * share) - 1]
