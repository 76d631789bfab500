"""Gateways inside the test's process, in front of real servers: one, or the regions of a group whose members come and
go.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trio

from crdtcast.adapters.redis.cluster import Region
from crdtcast.adapters.redis.gateway import Gateway
from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.effects import READS
from crdtcast.eventlog.check import Checked, check_logs
from crdtcast.transport.options import Address, NodeOptions
from tests import servers

PATIENCE = 30.0
ROUND_SECONDS = 0.3
"""Of comparing gateways, between two rounds over all keys."""


class RunningGateway:
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

    def wait_ready(self) -> "RunningGateway":
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
) -> Iterator[RunningGateway]:
    """A gateway that serves, in front of the server at `port`. Without `peers` the other member is never there."""
    running = RunningGateway(options(directory, port, name, peers, log_dir))
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


def error_of(running: RunningGateway) -> BaseException:
    """What a gateway has ended with, or ends with soon."""
    running.wait_ended()
    error = running.error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is not None
    return error


class Gateways:
    """Regions by name: a server each, and a gateway in front of it. Everything ends with the `with` block, and the
    event logs of all are checked then.

    own_servers: the `appendfsync` of servers that are the town's alone, to be killed and configured; without it they
        are borrowed, with "always". logs: write event logs; where servers are changed past the gateways they rightly
        tell of regions that differ.
    """

    def __init__(
        self,
        directory: Path,
        *,
        own_servers: str | None = None,
        compare_seconds: float = 600.0,
        logs: bool = True,
    ) -> None:
        self.directory = directory
        self._compare_seconds = compare_seconds
        self._logs = logs
        self.own_servers = own_servers
        self.servers: dict[str, EmbeddedServer] = {}
        self.running: dict[str, RunningGateway] = {}
        self.checked: Checked | None = None

    def __enter__(self) -> "Gateways":
        return self

    def __exit__(self, error: type[BaseException] | None, *exc_info: object) -> None:
        for running in self.running.values():
            running.stop()
        for server in self.servers.values():
            if self.own_servers is None:
                servers.give_back(server)
            else:
                server.stop()
        logs = self.directory / "logs"
        if error is None and any(logs.rglob("*.jsonl*")):  # one that leaves at once has none
            self.checked = check_logs([logs])
            assert not self.checked.violations, self.checked.violations

    def server(self, name: str) -> EmbeddedServer:
        if name not in self.servers:
            if self.own_servers is None:
                self.servers[name] = servers.borrow("always")
            else:
                directory = self.directory / f"server-{name}"
                self.servers[name] = start_server(directory, appendfsync=self.own_servers)
        return self.servers[name]

    def begin(
        self,
        name: str,
        through: str | tuple[str, ...] | None = None,
        *,
        replaces: tuple[str, ...] = (),
        port: int | None = None,
        leave_within: float | None = None,
        leave_out: tuple[str, ...] = (),
        leave_out_keys: tuple[str, ...] = (),
        discards_data: bool = False,
        level: int | None = None,
    ) -> RunningGateway:
        """Start a gateway, the founder or one that joins `through` others; it may not be ready yet."""
        some = (through,) if isinstance(through, str) else through or ()
        contacts = [self.peer_address(each) for each in some]
        options = GatewayOptions(
            node=NodeOptions(name=name, group="g", listen=("127.0.0.1", 0), peers=contacts),
            listen_clients=("127.0.0.1", 0),
            server=ServerAddress("127.0.0.1", port or self.server(name).port),
            state_dir=self.directory / f"state-{name}",
            log_dir=self.directory / "logs" if self._logs else None,
            compare_seconds=self._compare_seconds,
            member=GroupOptions(
                founds=through is None,
                level=level,
                replaces=replaces,
                leave_within=leave_within,
                leave_out=leave_out,
                leave_out_keys=leave_out_keys,
                discards_data=discards_data,
            ),
            admin_commands=True,
        )
        self.running[name] = RunningGateway(options)
        return self.running[name]

    def start(
        self, name: str, through: str | tuple[str, ...] | None = None, **options: Any
    ) -> RunningGateway:
        """Start a gateway, and return when it serves clients."""
        return self.begin(name, through, **options).wait_ready()

    def refused(self, name: str, through: str | None = None, **options: Any) -> BaseException:
        """What a gateway ends with that does not start, or does not go on."""
        return error_of(self.begin(name, through, **options))

    def peer_address(self, name: str) -> Address:
        belonging = self.running[name].gateway.belonging
        assert belonging is not None
        return belonging.peers.address

    def call(self, name: str, *words: str) -> Any:
        """One command at one gateway."""
        with RawClient(self.running[name].port, PATIENCE) as client:
            return client.call(*words)

    def status(self, name: str) -> dict[str, Any]:
        told = json.loads(self.call(name, "CRDTCAST", "STATUS"))
        assert isinstance(told, dict)
        return told

    def members(self, name: str) -> list[str]:
        return sorted(m["name"] for m in json.loads(self.call(name, "CRDTCAST", "MEMBERS")))

    @property
    def names(self) -> list[str]:
        """Of all regions, in the order of their first start."""
        return list(self.running)

    def settle(self, *names: str) -> None:
        """Return when all of these (by default all there are) have delivered everything, and it is stable."""

        def settled() -> bool:
            states = [self.status(name) for name in names or self.names]
            same = all(state["vector"] == states[0]["vector"] for state in states)
            return same and all(state["quiet"] for state in states)

        until(settled)

    def wait_equal(self, *names: str) -> None:
        """Return when all of them have the same, and it is stable; then their keys are equal, too."""
        self.settle(*names)
        assert len(self.digests(*names)) == 1
        assert all(self.status(name)["changed_past_the_gateway"] == 0 for name in names)

    def past(self, name: str, *words: str) -> Any:
        """One command at a server, past its gateway."""
        with RawClient(self.servers[name].port, PATIENCE) as client:
            return client.call(*words)

    def sync_each_write(self, name: str, *, whether: bool = True) -> None:
        """Let that server, one of `own_servers`, sync each write at once, or nothing at all. Its gateway goes on to
        wait for each sync.
        """
        setting = "always" if whether else "no"
        with RawClient(self.servers[name].port, PATIENCE) as client:
            # What was written before is synced with the next write.
            client.pipeline(
                [
                    ("CONFIG", "SET", "appendfsync", setting),
                    ("SELECT", "15"),
                    ("SET", metadata.DURABLE, "0"),
                ]
            )

    def written(self, name: str) -> int:
        """How many bytes that server has written to its file, synced or not."""
        return self._append_only_file(name).stat().st_size

    def lose_power(self, name: str, kept: int) -> None:
        """End a gateway and its server, which comes back with so many bytes of its file. The gateway does not."""
        self.running[name].stop()
        server = self.servers[name]
        server.kill()
        with self._append_only_file(name).open("r+b") as stream:
            stream.truncate(kept)
        server.restart()

    def _append_only_file(self, name: str) -> Path:
        (file,) = (self.servers[name].directory / "appendonlydir").glob("*.incr.aof")
        return file

    def rounds(self, count: int = 2) -> None:
        """Return when each gateway has gone over all its keys so often, from now on."""
        before = {name: self.status(name)["compared"]["rounds"] for name in self.names}
        until(
            lambda: all(
                self.status(n)["compared"]["rounds"] >= before[n] + count for n in self.names
            )
        )

    def values(self, key: str) -> list[Any]:
        """What a key is worth at each gateway; an error is a value."""
        found = []
        for name in self.names:
            kind = self.call(name, "TYPE", key)
            match kind:
                case b"set":
                    members = self.call(name, "SMEMBERS", key)
                    found.append(members if isinstance(members, ErrorReply) else frozenset(members))
                case ErrorReply():
                    found.append(kind)
                case _:
                    found.append(self.call(name, "GET", key))
        return found

    def agree(self, key: str, *expected: object) -> bool:
        values = self.values(key)
        if any(isinstance(value, ErrorReply) for value in values):
            return False
        return len(set(values)) == 1 and (not expected or values[0] in expected)

    def digests(self, *names: str) -> set[tuple[int, str]]:
        told = [json.loads(self.call(n, "CRDTCAST", "VERIFY")) for n in names or self.names]
        return {(each["keys"], each["digest"]) for each in told}


@contextlib.contextmanager
def regions(
    directory: Path,
    *names: str,
    compare_seconds: float = ROUND_SECONDS,
    own_servers: str | None = None,
) -> Iterator[Gateways]:
    """Gateways that compare their keys all the time, and whose servers the tests write to."""
    with Gateways(
        directory, compare_seconds=compare_seconds, own_servers=own_servers, logs=False
    ) as town:
        for name in names:
            town.start(name, None if name == names[0] else names[0])
        yield town
