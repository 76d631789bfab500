"""Gateways inside the test's process, with real servers, in a group whose members come and go."""

import json
import random
import threading
from pathlib import Path
from typing import Any, Protocol

from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.eventlog.check import Checked, check_logs
from crdtcast.transport.options import Address, NodeOptions
from tests import servers
from tests.adapters.redis.regression_support import PATIENCE, Running, until
from tests.effort import size


def error_of(running: Running) -> BaseException:
    """What a gateway has ended with, or ends with soon."""
    running.wait_ended()
    error = running.error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is not None
    return error


class Town:
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
        self.running: dict[str, Running] = {}
        self.checked: Checked | None = None

    def __enter__(self) -> "Town":
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
        if error is None and any(logs.glob("*")):
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
        level: int | None = None,
    ) -> Running:
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
            ),
            admin_commands=True,
        )
        self.running[name] = Running(options)
        return self.running[name]

    def start(
        self, name: str, through: str | tuple[str, ...] | None = None, **options: Any
    ) -> Running:
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

    def wait_equal(self, *names: str) -> None:
        """Return when all of them have the same, and it is stable; then their keys are equal, too."""

        def settled() -> bool:
            states = [self.status(name) for name in names]
            same = all(state["vector"] == states[0]["vector"] for state in states)
            return same and all(state["quiet"] for state in states)

        until(settled)
        told = [json.loads(self.call(name, "CRDTCAST", "VERIFY")) for name in names]
        assert len({(each["keys"], each["digest"]) for each in told}) == 1, told
        assert all(self.status(name)["changed_past_the_gateway"] == 0 for name in names)


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
