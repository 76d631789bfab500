"""A gateway inside the test's process, and a proxy in front of its server that holds bytes back or cuts."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from crdtcast.adapters.redis.cluster import Region
from crdtcast.adapters.redis.gateway import Gateway
from crdtcast.adapters.redis.options import GatewayOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.adapters.redis.store.effects import READS
from crdtcast.transport.options import Address, NodeOptions

PATIENCE = 30.0


class Running:
    """A gateway in a thread of its own. `error` is what its `run` raised, after `wait_ended`."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.error: BaseException | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self.gateway = Gateway(options, logging.getLogger(f"gateway.{options.node.name}"))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self._token = trio.lowlevel.current_trio_token()
            async with trio.open_nursery() as nursery:
                await nursery.start(self.gateway.run)
                self._ready.set()

        try:
            trio.run(main)
        except BaseException as error:
            self.error = error
        self._ended.set()
        self._ready.set()

    def wait_ready(self) -> "Running":
        """Return when it serves clients; raises what it ended with otherwise."""
        assert self._ready.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self

    def wait_ended(self) -> None:
        assert self._ended.wait(PATIENCE)

    @property
    def port(self) -> int:
        assert self.gateway.address is not None
        return self.gateway.address[1]

    def client(self) -> RawClient:
        return RawClient(self.port, PATIENCE)

    def call(self, function: Callable[[], object]) -> None:
        """Run something in the gateway's thread."""
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def stop(self) -> None:
        if not self._ended.is_set():
            self.call(self.gateway.stop)
        self.wait_ended()
        self._thread.join(PATIENCE)


@contextlib.contextmanager
def gateway(
    directory: Path,
    port: int,
    name: str = "a",
    peers: dict[str, Address | None] | None = None,
    log_dir: Path | None = None,
) -> Iterator[Running]:
    """A gateway that serves, in front of the server at `port`. Without `peers` the other member is never there."""
    running = Running(options(directory, port, name, peers, log_dir))
    try:
        yield running.wait_ready()
    finally:
        running.stop()


def options(
    directory: Path,
    port: int,
    name: str = "a",
    peers: dict[str, Address | None] | None = None,
    log_dir: Path | None = None,
) -> GatewayOptions:
    return GatewayOptions(
        node=NodeOptions(
            name=name,
            group="g",
            listen=("127.0.0.1", 0),
            peers={"z": None} if peers is None else peers,
            level=READS.highest,
            reads=READS,
        ),
        listen_clients=("127.0.0.1", 0),
        server=ServerAddress("127.0.0.1", port),
        state_dir=directory / f"state-{name}",
        log_dir=log_dir,
        admin_commands=True,
    )


def call(region: Region, *words: object) -> Any:
    """One command at a region's gateway."""
    with RawClient(region.gateway.port, PATIENCE) as client:
        return client.call(*map(str, words))


def until(condition: Callable[[], object]) -> None:
    """Ask until the answer is true, ever less often: no verdict depends on the pause, and an answer may cost much."""
    waiting = threading.Event()
    waited, pause = 0.0, 0.01
    while waited < PATIENCE:
        if condition():
            return
        waiting.wait(pause)
        waited, pause = waited + pause, min(1.5 * pause, 0.1)
    raise AssertionError("did not come true")


@dataclass(eq=False)
class Pair:
    """One connection through the proxy: the gateway's socket and the server's."""

    number: int
    near: socket.socket
    far: socket.socket
    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    detached: bool = False
    """The server is not told that the gateway has gone."""

    def detach(self) -> None:
        """The gateway loses its connection; the server does not notice."""
        self.detached = True
        self.near.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Between gateway and server. `sending(pair, data)` and `receiving(pair, data)` see the bytes before they go on,
    and return what goes on (they may block, or cut the pair)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.pairs: list[Pair] = []
        self.sending: Callable[[Pair, bytes], bytes] = lambda pair, data: data
        self.receiving: Callable[[Pair, bytes], bytes] = lambda pair, data: data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                pair = Pair(len(self.pairs), near, far)
                self.pairs.append(pair)
                for one, other, outward in ((near, far, True), (far, near, False)):
                    threading.Thread(
                        target=self._pump, args=(pair, one, other, outward), daemon=True
                    ).start()

    def _pump(self, pair: Pair, one: socket.socket, other: socket.socket, outward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                hook = self.sending if outward else self.receiving
                data = hook(pair, data)
                (pair.sent if outward else pair.received).extend(data)
                other.sendall(data)
        if not pair.detached:
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR if outward else socket.SHUT_RDWR)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE)
        for pair in self.pairs:
            pair.cut()
            pair.near.close()
            pair.far.close()
