"""Runs a tutorial as a reader does: saves its files, types its commands in terminals, and waits for what it shows.

A block "python NAME" is a file. In a block "console" a line is one of these:

    $ command         runs to its end; the lines below it are printed
    eu$ command       runs in terminal eu, and goes on; the lines below it are printed
    eu> text          typed there; the lines below it are printed there
    eu: line          is printed in that terminal
    eu^\\              that terminal's process is killed at once

A shown line may be a part of a printed one. The ports that a page shows become free ones, and `pip` is left out: what a
page installs is there already.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crdtcast.ports import free_ports

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
_BLOCK = re.compile(r"^```(\w+)[ ]?(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"(\w*)([$>:]) (.*)|(\w+)\^\\")
_PORT = re.compile(r"\b[78]0\d\d\b")


class Terminal:
    """One process after the other, and what they have printed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._process: subprocess.Popen[str] | None = None
        self._printed = folder / f"{name}.printed"
        self._place = 0  # what is before was shown

    def run(self, command: str) -> None:
        """Start a command; one that runs is ended first, as by Ctrl-C."""
        self.end(signal.SIGINT)
        self.close()
        with self._printed.open("w") as printed:
            self._process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._folder,
                env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                text=True,
                start_new_session=True,
            )
        self._place = 0

    def write(self, line: str) -> None:
        """Type a line."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def expect(self, line: str) -> None:
        """Return when it is printed, after what was expected before."""
        until = time.monotonic() + PATIENCE
        while (found := self._printed.read_text().find(line, self._place)) < 0:
            assert time.monotonic() < until, (
                f"{self._name} does not show {line!r}, but\n{self._printed.read_text()}"
            )
            time.sleep(0.02)
        self._place = found + len(line)

    def end(self, how: signal.Signals) -> None:
        """Signal the process, and return when it has ended."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, how)
            self._process.wait(PATIENCE)

    def close(self) -> None:
        """Kill what runs."""
        self.end(signal.SIGKILL)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def finish(self) -> None:
        """Return when the command has ended by itself."""
        assert self._process is not None
        self._process.wait(PATIENCE)


def run(page: Path, folder: Path) -> None:
    """Do all that the page says. Raises AssertionError for what is not shown."""
    text = page.read_text()
    ports = sorted(set(_PORT.findall(text)))
    for shown, free in zip(ports, free_ports(len(ports)), strict=True):
        text = text.replace(shown, str(free))
    (folder / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as stack:
        terminals: dict[str, Terminal] = {}

        def terminal(name: str) -> Terminal:
            if name not in terminals:
                terminals[name] = stack.enter_context(opened(folder, name or "prompt"))
            return terminals[name]

        save(text, folder)
        for language, _, block in _BLOCK.findall(text):
            if language == "console" and "pip install" not in block:
                current = ""
                for line in block.splitlines():
                    said = _LINE.fullmatch(line)
                    match said.groups() if said else None:
                        case (str(current), "$", command, _):
                            terminal(current).run(command)
                            if not current:
                                terminal(current).finish()
                        case (str(current), ">", typed, _):
                            terminal(current).write(typed)
                        case (str(other), ":", shown, _) if other in terminals:
                            terminal(other).expect(shown)
                        case (_, _, _, str(killed)):
                            terminal(killed).end(signal.SIGQUIT)
                        case _:
                            terminal(current).expect(line)


def save(text: str, folder: Path) -> list[Path]:
    """Save the files of a page."""
    saved = []
    for language, name, block in _BLOCK.findall(text):
        if language == "python" and name:
            saved.append(folder / name)
            saved[-1].write_text(block)
    return saved


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Terminal]:
    """A terminal, whose process is ended at last."""
    terminal = Terminal(folder, name)
    try:
        yield terminal
    finally:
        terminal.close()
