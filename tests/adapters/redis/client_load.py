"""A client of a gateway that writes all the time."""

import random
import threading
from typing import Protocol

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from tests.adapters.redis.gateways import PATIENCE
from tests.effort import size

PAUSE = size(ci=40, release=20) / 1000
"""Seconds between the batches of a client: a load, not a benchmark."""
OTHERS = size(ci=8, release=15)
"""Writes of a batch besides the transaction."""


class Serving(Protocol):
    """A gateway with clients."""

    @property
    def port(self) -> int: ...


class Load:
    """A client of one gateway that writes until `stop`: sets, removals, deletions, and transactions, which are counted:
    each increments `total` and `twin`.
    """

    def __init__(self, running: Serving, seed: int, keys: int) -> None:
        self.total = 0
        """Increments of `total` that were answered."""
        self.refused: list[str] = []
        self._running = running
        self._random = random.Random(seed)
        self._keys = keys
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _batch(self) -> list[tuple[str, ...]]:
        batch: list[tuple[str, ...]] = [("MULTI",), ("INCR", "total"), ("INCR", "twin"), ("EXEC",)]
        for _ in range(OTHERS):
            key = self._random.randrange(self._keys)
            match self._random.randrange(8):
                case 0:
                    batch.append(("DEL", f"s{key}"))
                case 1 | 2:
                    batch.append(("SREM", f"s{key}", f"m{self._random.randrange(20)}"))
                case 3 | 4:
                    batch.append(("INCR", f"c{key}"))
                case _:
                    batch.append(("SADD", f"s{key}", f"m{self._random.randrange(20)}"))
        return batch

    def _run(self) -> None:
        with RawClient(self._running.port, PATIENCE) as client:
            while not self._stopping.is_set():
                replies = client.pipeline(self._batch())
                self.total += not isinstance(replies[3], ErrorReply)
                self.refused += [r.text for r in replies if isinstance(r, ErrorReply)]
                self._stopping.wait(PAUSE)

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.total
