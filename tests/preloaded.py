"""Gateways of the tests are forked from a process that has imported the program already: an import costs as much as
many a test. They are processes of their own all the same, with their own sessions, environments and ends. So are those
of another program in Python, which stands for another version (`GatewayProcess.program`), and operators' commands.

Run as a program this is that process: it takes requests on its standard input, a socket, and ends with it.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from crdtcast.adapters.redis import cluster
from tests import pieces
from tests.servers import AUDIT_EVENT

_LARGEST = 1 << 20
_ROOT = Path(__file__).parents[1]


class Forked:
    """A gateway's process, as `subprocess.Popen` would give it."""

    def __init__(self, pid: int, stdout: IO[bytes], ended: socket.socket) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when there is one. Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("crdtcast redis", timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._ended.settimeout(timeout)
            try:
                said = self._ended.recv(16)
            except (BlockingIOError, TimeoutError):
                return None
            self._ended.close()
            self.returncode = int(said or b"-9")  # nothing: all of it was killed
        return self.returncode

    def __del__(self) -> None:
        self._ended.close()

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and we are told soon
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that has imported the program."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = here
        self._one_by_one = threading.Lock()
        words = [sys.executable, "-m", "tests.preloaded"]
        self._process = subprocess.Popen(words, stdin=there, cwd=_ROOT)
        there.close()

    def fork(self, words: Sequence[str], stderr: int, environment: Mapping[str, str]) -> Forked:
        """Start what `python WORDS` does, `-m crdtcast …` or `FILE …`."""
        # Gateways are started in threads, too, while pytest sets and removes a variable of its own.
        present = ((name, environment.get(name)) for name in list(environment))
        kept = {name: value for name, value in present if value is not None}
        request = json.dumps([list(words), os.getcwd(), kept]).encode()
        read, write = os.pipe()
        ours, theirs = socket.socketpair()
        with theirs, self._one_by_one:
            socket.send_fds(self._socket, [request], [write, stderr, theirs.fileno()])
            pid = int(self._socket.recv(16))
        os.close(write)
        return Forked(pid, os.fdopen(read, "rb", buffering=0), ours)

    def close(self) -> None:
        """End it, and with it what it has forked."""
        self._socket.close()
        self._process.wait()


_nursery: Nursery | None = None
_one_nursery = threading.Lock()
_start_child = cluster.start_child


def start_child(words: Sequence[str], **options: Any) -> Any:
    """In the place of `cluster.start_child`: gateways are forked, all else is started."""
    if words[0] != sys.executable or options.keys() != {"stdout", "stderr"}:
        return _start_child(words, **options)
    return _fork(words[1:], options["stderr"].fileno())


def _fork(words: Sequence[str], stderr: int, environment: Mapping[str, str] = os.environ) -> Forked:
    global _nursery
    sys.audit(AUDIT_EVENT)
    with _one_nursery:
        if _nursery is None:
            _nursery = Nursery()
    return _nursery.fork(words, stderr, environment)


def start(
    words: Sequence[str], stderr: IO[Any], environment: Mapping[str, str]
) -> "Forked | subprocess.Popen[bytes]":
    """Start a command of the program, `crdtcast WORDS`; its standard output is a pipe."""
    words = (*cluster.PROGRAM, *words)
    if sys.platform == "linux":
        return _fork(words, stderr.fileno(), environment)
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=stderr, env=environment
    )


def crdtcast(*words: str, timeout: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """Run a command of the program to its end, and keep what it prints. Raises subprocess.TimeoutExpired."""
    if sys.platform != "linux":
        return subprocess.run(
            [sys.executable, *cluster.PROGRAM, *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    with tempfile.TemporaryFile() as errors:
        child = _fork((*cluster.PROGRAM, *words), errors.fileno())
        with child.stdout:
            printed = child.stdout.read()
        code = child.wait(timeout)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, printed.decode(), errors.read().decode())


def use() -> None:
    """Have `LocalCluster` start its gateways like this."""
    if sys.platform == "linux":
        cluster.start_child = start_child  # type: ignore[assignment]


def close() -> None:
    """End what `use` has begun."""
    if _nursery is not None:
        _nursery.close()


def _serve() -> None:
    """Fork whatever is asked for, tell who has ended, until the socket is closed."""
    import ctypes
    import encodings.idna  # noqa: F401  (each of them would import it when it connects)

    pieces.use()
    import crdtcast.adapters.redis.cli
    import crdtcast.cli
    import crdtcast.service.admin.cli  # noqa: F401

    gc.collect()
    gc.freeze()  # no collection of a child writes to what it shares with us
    requests = socket.socket(fileno=os.dup(0))
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is wake:
                    wake.recv(4096)
                    _tell_ended(running)
                    continue
                request, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 3)
                if not request:
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    return
                stdout, stderr, ended = descriptors
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for number in (signal.SIGCHLD, signal.SIGINT):
                        signal.signal(number, signal.SIG_DFL)
                    ctypes.CDLL(None).prctl(1, 9)  # killed with its parent
                    os.setsid()
                    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                    os.dup2(stdout, 1)
                    os.dup2(stderr, 2)
                    os.closerange(3, 256)
                    _run(*json.loads(request))
                os.close(stdout)
                os.close(stderr)
                running[pid] = socket.socket(fileno=ended)
                requests.send(b"%d" % pid)


def _tell_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as ended:
            ended.send(b"%d" % os.waitstatus_to_exitcode(status))


def _run(words: list[str], directory: str, environment: dict[str, str]) -> None:
    """In the child: become the program, as if Python had just been started with these words."""
    from crdtcast.adapters.redis import crash_points

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    random.seed()
    importlib.reload(crash_points)  # it has read the environment
    is_ours = tuple(words[:2]) == cluster.PROGRAM
    sys.argv = ["crdtcast", *words[2:]] if is_ours else words
    code = 1
    try:
        if is_ours:
            from crdtcast.__main__ import run

            run()
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
