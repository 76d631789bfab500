"""Clients that write: ordinary redis-py pipelines, a few threads for each region.

Its rule: nothing is sent twice. A reply that is missing or wrong ends the load with an error.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crdtcast.demo.plan import Batch
from crdtcast.exceptions import ServerError


@dataclass(slots=True)
class Stream:
    """Batches for one region, which its threads draw in turns, and the number of operations done."""

    port: int
    batches: Iterator[Batch]
    lock: threading.Lock = field(default_factory=threading.Lock)
    operations: int = 0

    def draw(self) -> Batch | None:
        """The next batch; None when there is none left."""
        with self.lock:
            return next(self.batches, None)

    def done(self, batch: Batch) -> None:
        """Count a batch that was answered in full."""
        with self.lock:
            self.operations += len(batch)


class Load:
    """Writes several streams at the same time, with `connections` connections to each region.

    As a context manager it starts the threads; on exit it waits until they have ended, even if batches are left.
    """

    def __init__(self, streams: Mapping[str, Stream], connections: int) -> None:
        self.streams = streams
        self.stopping: threading.Event = threading.Event()
        self.finished: threading.Event = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = [
            threading.Thread(target=self.write, args=(name,), name=f"load-{name}-{number}")
            for name in streams
            for number in range(connections)
        ]
        self.running: int = len(self.threads)
        self.lock: threading.Lock = threading.Lock()

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    @property
    def operations(self) -> int:
        """Commands answered so far, in all regions."""
        return sum(stream.operations for stream in self.streams.values())

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end. Returns whether all is written; raises the first failure."""
        ended = self.finished.wait(seconds)
        if self.failures:
            raise ServerError(f"a client failed: {self.failures[0]}") from self.failures[0]
        return ended

    def write(self, name: str) -> None:
        """One thread: batches of one region through one connection."""
        stream = self.streams[name]
        try:
            with connect(stream.port) as client:
                while not self.stopping.is_set():
                    batch = stream.draw()
                    if batch is None:
                        break
                    send(client, batch)
                    stream.done(batch)
        except Exception as failure:  # the main thread must learn of any failure
            self.failures.append(failure)
            self.stopping.set()
        finally:
            with self.lock:
                self.running -= 1
                if self.running == 0 or self.failures:
                    self.finished.set()


def connect(port: int) -> "redis.Redis":
    """A client that never sends a command again by itself."""
    return redis.Redis(
        port=port,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=120.0,
        single_connection_client=True,
    )


def send(client: "redis.Redis", batch: Batch) -> None:
    """Send a batch as one pipeline and check every reply: all our commands return a number."""
    with client.pipeline(transaction=False) as pipeline:
        queue: Callable[..., Any] = pipeline.execute_command
        for command in batch:
            queue(*command)
        replies: Sequence[Any] = pipeline.execute()
    for command, reply in zip(batch, replies, strict=True):
        if type(reply) is not int or reply < 0:
            raise ServerError(f"{command[0]} {command[1]} got the reply {reply!r}")
