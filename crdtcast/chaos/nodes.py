"""The processes of a run: start, kill, stop, wipe, fill up. One `ChaosHost` is one machine, whatever runs on it."""

import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import trio

from crdtcast.chaos.disks import ChaosDisk
from crdtcast.chaos.proxy import ProxyPlace
from crdtcast.chaos.spaces import Space
from crdtcast.child_processes import tied
from crdtcast.exceptions import CrdtcastError
from crdtcast.service.admin.client import Operator, operator
from crdtcast.transport.options import format_address

READY_SECONDS = 180.0
"""Seconds to start, read the journal and catch up, which may take a minute on a busy machine."""

KEEPALIVE_SECONDS = 0.5
NODE = ("-m", "crdtcast.chaos.child")
REFUSED = 2
"""Exit code of a node that refuses to go on, and says why."""
_CAT = "/bin/cat"


class MisbehavedError(CrdtcastError):
    """A node did not do what it should."""


class LateError(MisbehavedError):
    """A node did not do in time what it should: it, or the machine, is too slow."""


class ChaosHost:
    """A node's machine: its place, the address of its proxy, its disk, its log.

    present: whether its node should be a member.
    program: what Python runs as a node, see `chaos.child`.
    """

    def __init__(
        self,
        name: str,
        disk: ChaosDisk,
        place: ProxyPlace | Space,
        proxy: tuple[str, int],
        program: Sequence[str] = NODE,
    ) -> None:
        self.name = name
        self.place = place
        self.address: str = format_address(proxy)
        self.disk = disk
        self.journal: Path = disk.path / "journal"
        self.events: Path = disk.path / "events"
        self.admin: str = f"{disk.path}.sock"
        self.log: Path = Path(f"{disk.path}.log")
        self._flag = f"{disk.path}.fails"
        self.present = True
        self.skew_ms = 0
        self.lies = 0
        """The seed of its lies; 0 for an honest node."""
        self.starts: int = 0
        self.crashes: list[str] = []
        """Unexpected ends of the process."""
        self.refusals: int = 0
        """Expected ends with exit code `REFUSED` and a line that says what to do."""
        self._program = program
        self._saved = Path()
        self._may_end: set[int] = set()
        self._process: Popen[bytes] | None = None
        self._scribe: Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs (or is stopped)."""
        return self._process is not None and self._process.poll() is None

    def start(self, join: Sequence[str], *, replace: bool = False) -> None:
        """Start the node, after the end of the one before. Without addresses to join it founds the group."""
        self.end()
        settings = {
            "name": self.name,
            "listen": format_address(self.place.address),
            "advertise": self.address,
            "admin": self.admin,
            "journal": str(self.journal),
            "event_logs": str(self.events),
            "keepalive_interval": KEEPALIVE_SECONDS,
            "leave_seconds": 60,
            **({"join": list(join)} if join else {"found": True}),
            **({"replaces": self.name} if replace else {}),
        }
        words = [
            *self.place.words,
            sys.executable,
            *self._program,
            str(self.skew_ms),
            self._flag,
            str(self.lies),
        ]
        # The log goes through a pipe and `cat`, so that its last words survive a full disk of the node.
        self._process = process = Popen(
            tied([*words, json.dumps(settings)]),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        with process.stderr, open(self.log, "ab") as log:
            self._scribe = Popen(tied([_CAT]), stdin=process.stderr, stdout=log)
        self.starts += 1

    def signal(self, number: int) -> None:
        """Send a signal, if the process runs."""
        if self.alive:
            assert self._process is not None
            self._process.send_signal(number)
            if number == signal.SIGKILL:
                self.may_end(-number)
            elif number == signal.SIGTERM:
                self.may_end(0)
                self.may_end(-number)  # it may not handle signals yet

    def may_end(self, code: int) -> None:
        """Do not count an end of the process with that code as a crash from now on."""
        self._may_end.add(code)

    def _look_back(self) -> None:
        """Note how the process has ended, if it has; a crash if that was not expected."""
        code = None if self._process is None else self._process.poll()
        if code is not None and code not in self._may_end:
            self.crashes.append(f"{self.name} ended unexpectedly, with code {code}: see {self.log}")
        if code == REFUSED and code in self._may_end:
            self.refusals += 1
        self._may_end = set()

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self, seconds: float = 90.0) -> None:
        """Wait until the process has ended. Raises LateError if it does not."""
        if self._process is None:
            return
        with trio.move_on_after(seconds) as scope:
            while self._process.poll() is None:  # noqa: ASYNC110
                await trio.sleep(0.02)
        if scope.cancelled_caught:
            raise LateError(f"{self.name} does not stop: see {self.log}")

    def wipe(self) -> None:
        """The disk is lost."""
        shutil.rmtree(self.journal, ignore_errors=True)

    def fill_up(self) -> None:
        """Fill its disk: a node that has something to write ends, or does not start."""
        assert self._process is not None
        if self.alive:
            self.may_end(REFUSED)
            self.disk.fill(self._process.pid)

    def fail_syncs(self) -> None:
        """Make all syncs of its journal fail: it ends at the next one, and does not start again."""
        self.may_end(REFUSED)
        Path(self._flag).touch()

    def mend(self) -> None:
        """Undo `fail_syncs`."""
        Path(self._flag).unlink()

    def save(self) -> None:
        """Keep a copy of its journal. No node runs meanwhile."""
        self._saved = Path(f"{self.disk.path}.kept")
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.journal, self._saved)

    def restore(self) -> None:
        """Replace the journal by the copy: the same bytes in other files. No node runs meanwhile."""
        shutil.rmtree(self.journal)
        shutil.copytree(self._saved, self.journal)

    def yielded(self) -> list[str]:
        """Lines of its log about operations that were not sent again after an eviction."""
        with suppress(FileNotFoundError):
            text = self.log.read_text(errors="replace")
            return [line for line in text.splitlines() if "is not sent again" in line]
        return []

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        """A connection to its admin socket."""
        async with operator(self.admin) as asked:
            yield asked

    async def wait_member(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it is a member again and has caught up. Raises LateError if that takes too long, MisbehavedError
        if the process has ended.
        """
        last = "it has not answered yet"
        with trio.move_on_after(seconds) as scope:
            while True:
                try:
                    async with self.operator() as asked:
                        status = await asked.ask("status")
                    if status["ready"]:
                        return
                    last = f"it is {status['standing']}, {status['pending']} messages wait"
                except CrdtcastError as error:
                    last = str(error)
                if not self.alive:
                    break
                await trio.sleep(0.05)
        kind = LateError if scope.cancelled_caught else MisbehavedError
        raise kind(f"{self.name} did not become a member ({last}): see {self.log}")

    def end(self) -> None:
        """Kill what runs on it."""
        self.signal(signal.SIGKILL)
        for process in (self._process, self._scribe):
            if process is not None:
                process.wait()  # the scribe ends when it has written the rest
        self._look_back()
        self._process = self._scribe = None

    def tracebacks(self) -> list[str]:
        """Lines about programming errors in its log."""
        with suppress(FileNotFoundError):
            if "Traceback (most recent call last)" in self.log.read_text(errors="replace"):
                return [f"{self.name} has printed a traceback: see {self.log}"]
        return []
