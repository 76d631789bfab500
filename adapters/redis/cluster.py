"""A replicated group on this machine: servers and gateways as processes, for the demo and for
tests.

Its rules: nothing is simulated (real servers, real sockets, real signals), and everything listens on
127.0.0.1. If a gateway does not start, the error says why, with the last lines of its log.
"""

import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from crdtcast.adapters.redis.server.embedded import EmbeddedServer, last_lines, start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.child_processes import end_child, start_child
from crdtcast.exceptions import ServerError
from crdtcast.ports import free_ports

READY_TIMEOUT = 60.0
SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 0.1
"""Seconds between two polls of gateways that have to converge. The pause grows, since every answer costs them time that
they need for that."""


PROGRAM = ("-m", "crdtcast")


@dataclass(slots=True)
class GatewayProcess:
    """One `crdtcast redis` as a child process. `arguments` are its command-line words."""

    name: str
    port: int
    peer_port: int
    directory: Path
    arguments: list[str]
    program: tuple[str, ...] = PROGRAM
    """What Python runs; another program stands for another version of crdtcast."""
    process: subprocess.Popen[bytes] | None = None
    incarnation: str = ""
    metrics: str = ""
    """Where it serves probes and metrics, if it does."""

    @property
    def log(self) -> Path:
        """The file with everything that the gateway logs, over all its starts."""
        return self.directory / f"gateway-{self.name}.log"

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def launch(self, extra: Iterable[str] = ()) -> None:
        """Start the process without waiting for it; `extra` words are for this start only."""
        words = [sys.executable, *self.program, "redis", *self.arguments, *extra]
        with open(self.log, "ab") as log:
            self.process = start_child(words, stdout=subprocess.PIPE, stderr=log)

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Return when the gateway serves clients. Raises ServerError with its log if it does not."""
        assert self.process is not None and self.process.stdout is not None
        output = self.process.stdout.fileno()
        deadline = time.monotonic() + timeout
        said = b""
        while b"\n" not in said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                self.kill()
                raise ServerError(
                    f"gateway {self.name} was not ready in {timeout:.0f} s: {last_lines(self.log)}"
                )
            piece = os.read(output, 65536)
            if not piece:
                self.process.wait()
                raise ServerError(self.obituary())
            said += piece
        words = dict(word.partition("=")[::2] for word in said.decode().split())
        self.incarnation = words.get("incarnation", "")
        self.metrics = words.get("metrics", "")

    def obituary(self) -> str:
        """How an ended process ended."""
        code = self.process.poll() if self.process is not None else None
        return f"gateway {self.name} ended with code {code}; its log ends with: " + last_lines(
            self.log
        )

    def stop(self, timeout: float = 15.0) -> bool:
        """Stop the gateway cleanly (SIGTERM). Returns False if that took too long and it was killed."""
        if self.process is None:
            return True
        in_order = end_child(self.process, timeout)
        self.forget_process()
        return in_order

    def kill(self) -> None:
        """Kill the gateway as a crash would (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.forget_process()

    def forget_process(self) -> None:
        """Release the resources of a process that has ended."""
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


class CommandRefusedError(ServerError):
    """A gateway answered an admin command with an error."""


@dataclass(slots=True)
class Region:
    """A server, its gateway, and our connection to that gateway."""

    name: str
    server: EmbeddedServer
    gateway: GatewayProcess
    admin: RawClient | None = None

    def command(self, *words: str) -> str:
        """The reply to `CRDTCAST words…`.

        Raises CommandRefusedError if it is an error, ServerError if none comes.
        """
        try:
            if self.admin is None:
                self.admin = RawClient(self.gateway.port)
            reply = self.admin.call("CRDTCAST", *words)
        except ServerError:
            self.close()  # the gateway may have been restarted: connect again for the next command
            raise
        if isinstance(reply, ErrorReply):
            raise CommandRefusedError(f"gateway {self.name} refuses {words[0]}: {reply.text}")
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    def status(self) -> dict[str, Any]:
        """The reply to `CRDTCAST STATUS`."""
        told = json.loads(self.command("STATUS"))
        assert isinstance(told, dict)
        return told

    def close(self) -> None:
        """Close our connection."""
        if self.admin is not None:
            self.admin.close()
            self.admin = None


class LocalCluster:
    """A group of regions, one for each of `names`.

    Use it as a context manager: it starts the cluster, and stops it at the end.

    directory: where servers, local files and logs are.
    log_directory: where the gateways write event logs; None: they write none.
    cut: whether every link is cut from the start.
    servers: servers to use; the caller stops them. None: starts a server for each region.
    arguments: command-line words for every gateway.
    """

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        group: str,
        log_directory: Path | None = None,
        appendfsync: str = "everysec",
        cut: bool = False,
        servers: Mapping[str, EmbeddedServer] | None = None,
        arguments: Iterable[str] = (),
    ) -> None:
        self.directory = directory
        self.names: tuple[str, ...] = tuple(names)
        self.group = group
        self.log_directory = log_directory
        self.appendfsync = appendfsync
        self.cut_from_start = cut
        self.given_servers = servers
        self.arguments: tuple[str, ...] = tuple(arguments)
        self.regions: dict[str, Region] = {}
        self._sockets: Path | None = None

    def __getitem__(self, name: str) -> Region:
        return self.regions[name]

    def __iter__(self) -> Iterator[Region]:
        return iter(self.regions.values())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the servers and all gateways at once; return when every gateway serves clients."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * len(self.names))
        client_ports = dict(zip(self.names, ports, strict=False))
        peer_ports = dict(zip(self.names, ports[len(self.names) :], strict=True))
        for name in self.names:
            server = self.server_of(name)
            arguments = self.gateway_arguments(name, server, client_ports[name], peer_ports)
            gateway = GatewayProcess(
                name, client_ports[name], peer_ports[name], self.directory, arguments
            )
            self.regions[name] = Region(name, server, gateway)
        for region in self:
            region.gateway.launch()
        for region in self:
            region.gateway.wait_ready()

    def server_of(self, name: str) -> EmbeddedServer:
        """The given server of a region; starts one if none was given."""
        if self.given_servers is not None:
            return self.given_servers[name]
        return start_server(self.directory / f"server-{name}", appendfsync=self.appendfsync)

    def socket_of(self, name: str) -> Path:
        """The admin socket of that region's gateway."""
        if self._sockets is None:  # the path of a socket must be short, and `directory` may be long
            self._sockets = Path(tempfile.mkdtemp(prefix="crdtcast-"))
        return self._sockets / f"{name}.sock"

    def own_arguments(
        self, name: str, server: EmbeddedServer, port: int, peer_port: int
    ) -> list[str]:
        """The part of the command line that does not depend on the other gateways."""
        words = ["--name", name, "--group", self.group, "--server", server.url, "--admin-commands"]
        words += ["--listen-clients", f"127.0.0.1:{port}"]
        words += ["--listen", f"127.0.0.1:{peer_port}"]
        words += ["--admin", str(self.socket_of(name))]
        return [*words, "--state-dir", str(self.directory / f"state-{name}")]

    def gateway_arguments(
        self, name: str, server: EmbeddedServer, port: int, peer_ports: Mapping[str, int]
    ) -> list[str]:
        """The command line of one gateway, after `crdtcast redis`."""
        words = self.own_arguments(name, server, port, peer_ports[name])
        for peer in self.names:
            if peer != name:
                words += ["--peer", f"{peer}=127.0.0.1:{peer_ports[peer]}"]
                words += ["--cut", peer] if self.cut_from_start else []
        if len(self.names) == 1:
            words += ["--found"]  # a fixed member alone is refused: it would replicate nothing
        if self.log_directory is not None:
            words += ["--log-dir", str(self.log_directory)]
        return [*words, *self.arguments]

    def stop(self) -> None:
        """Stop all gateways, then the servers that this cluster started. Harmless if some are down."""
        for region in self:
            region.close()
            if region.gateway.process is not None and region.gateway.running:
                region.gateway.process.terminate()  # so that all gateways stop in parallel
        for region in self:
            region.gateway.stop()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self.given_servers is None:
            for region in self:
                region.server.stop()

    def obituaries(self) -> list[str]:
        """How each gateway ended that exited by itself."""
        gateways = [region.gateway for region in self if region.gateway.process is not None]
        return [gateway.obituary() for gateway in gateways if not gateway.running]

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two regions, at both ends. Skips an end that is down."""
        for here, there in ((one, other), (other, one)):
            if self[here].gateway.running:
                self[here].command("CUT", there)

    def heal(self, one: str, other: str) -> None:
        """Let the link between two regions come back."""
        for here, there in ((one, other), (other, one)):
            if self[here].gateway.running:
                self[here].command("HEAL", there)

    def isolate(self, name: str) -> None:
        """Cut every link of one region."""
        for peer in self.names:
            if peer != name:
                self.cut(name, peer)

    def rejoin(self, name: str) -> None:
        """Heal every link of one region."""
        for peer in self.names:
            if peer != name:
                self.heal(name, peer)

    def wait_equal(self, names: Iterable[str], *, quiet: bool, timeout: float) -> None:
        """Return when the regions have delivered the same messages and, with `quiet`, all are stable.

        Raises ServerError, with the states reached, if that takes longer than `timeout` seconds.
        """
        names = deque(names)
        deadline = time.monotonic() + timeout
        pause = SHORTEST_PAUSE
        while True:
            states: list[dict[str, Any]] = []
            for name in names:
                states.append(self[name].status())
                if not holds_same(states, quiet):
                    break  # each answer costs work: ask this one first the next time, the others after it
            else:
                return
            names.rotate(1 - len(states))
            if time.monotonic() > deadline:
                reached = {name: self[name].status() for name in names}
                raise ServerError(
                    f"regions {', '.join(names)} did not converge in {timeout:.0f} s: "
                    f"{json.dumps(reached)}"
                )
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)


class OpenCluster(LocalCluster):
    """A group whose members come and go: the first of `names` founds it, the others join in order. `add` starts one
    more region; `names` lists all regions that were ever started.
    """

    def start(self) -> None:
        """Start the regions of `names`, one after the other."""
        self.directory.mkdir(parents=True, exist_ok=True)
        names, self.names = self.names, ()
        for name in names:
            self.add(name)

    def add(
        self, name: str, *, through: str | None = None, arguments: Iterable[str] = ()
    ) -> Region:
        """Start one more region and return when it has joined. It joins through another one, by default the first.

        arguments: command-line words for its gateway only.
        """
        region = self.begin(name, through=through, arguments=arguments)
        region.gateway.wait_ready()
        return region

    def begin(
        self,
        name: str,
        *,
        through: str | None = None,
        arguments: Iterable[str] = (),
        program: tuple[str, ...] = PROGRAM,
    ) -> Region:
        """Like `add`, but do not wait for the join. program: see `GatewayProcess`."""
        port, peer_port = free_ports(2)
        server = self.server_of(name)
        words = self.own_arguments(name, server, port, peer_port)
        if self.regions:
            contact = self.regions[through or next(iter(self.regions))].gateway
            words += ["--join", f"127.0.0.1:{contact.peer_port}"]
        else:
            words += ["--found"]
        if self.log_directory is not None:
            words += ["--log-dir", str(self.log_directory)]
        words += [*self.arguments, *arguments]
        gateway = GatewayProcess(name, port, peer_port, self.directory, words, program)
        region = self.regions[name] = Region(name, server, gateway)
        self.names: tuple[str, ...] = (*self.names, name)
        gateway.launch()
        return region


def holds_same(states: Sequence[Mapping[str, Any]], quiet: bool) -> bool:
    """Whether gateways with these states have committed the same messages and, with `quiet`, know that.

    False while a gateway reports no vector, because its server is not ready.
    """
    vectors = [
        {origin: counter for origin, counter in state.get("vector", {}).items() if counter}
        for state in states
    ]
    ready = all("vector" in state and not state["committing"] for state in states)
    equal = all(one == other for one, other in itertools.pairwise(vectors))
    return ready and equal and (not quiet or all(state["quiet"] for state in states))
