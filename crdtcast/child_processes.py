"""Child processes that do not outlive their parent, and that Ctrl-C in a terminal does not reach.

The rule: the code that starts a child ends it by its process id; the tie is for a parent that was killed.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

TIE = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL: kept over exec
    "if os.getppid() != int(sys.argv[1]): sys.exit(1)\n"  # the parent ended before the line above
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def tied(words: Sequence[str]) -> list[str]:
    """The command line that runs `words` such that Linux ends it together with this process.

    A small Python program arranges that, then becomes the program `words[0]` (an absolute path), under the same process
    id. Linux ties a child to the *thread* that started it. So the words stay as they are in a thread that may end
    before the process (any but the main one), and on other systems.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return list(words)
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), *words]


def start_child(
    words: Sequence[str],
    *,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `words` tied to this process, without input, in a new session. `words[0]` is an absolute path."""
    return subprocess.Popen(
        tied(words),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=None if environment is None else dict(environment),
        cwd=directory,
        start_new_session=True,
    )


def end_child(child: subprocess.Popen[bytes], timeout: float) -> bool:
    """Ask `child` to end (SIGTERM), and kill it after `timeout` seconds. Returns whether it ended
    by itself.
    """
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True
