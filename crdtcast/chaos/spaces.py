"""Network namespaces: each node is in one, with a link to the proxies. There the kernel loses packets, and a
black-hole route swallows them, so that links are half-open, as after a power failure on the way. It needs Linux, its
tools, and root or the right to create user namespaces.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from crdtcast.child_processes import tied
from crdtcast.exceptions import CrdtcastError

PROXIES = "10.93.0.1"
"""Where the nodes reach the proxies."""

_PORT = 7000
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000  # of unshare(2)
_TOOLS = ("ip", "tc", "nsenter", "unshare")
_NETEM = "tc qdisc add dev {device} root netem loss {percent}%"
_FILTER = (
    "tc qdisc add dev {device} clsact",
    "tc filter add dev {device} egress bpf da bytecode '4,32 0 0 4294963256,37 0 1 {share},6 0 0 0,6 0 0 2'",
)
"""For kernels without netem. Load a random word; if it is above the share, pass the packet (0), else drop it (2)."""


def why_not() -> str:
    """Why namespaces cannot be used; "" if they can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} missing: install iproute2 and util-linux"
    netem, *filtered = (
        line.format(device="probe", percent=9, share=9) for line in (_NETEM, *_FILTER)
    )
    tried = f"""
        set -e
        ip link set lo up
        ip link add probe type veth peer name other
        {netem} 2>/dev/null || {{ {" && ".join(filtered)}; }}
        ip route add blackhole 10.93.1.2/32
    """
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", "--net", *as_user, "sh", "-c", tried]
    done = subprocess.run(words, stdin=DEVNULL, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stderr.strip() or "not permitted").splitlines()[-1]


def enter() -> None:
    """Move into a network namespace with only a loopback, with all threads and processes started from now on. Call it
    only if `why_not` returns "", and before other threads run.

    Raises OSError if that is not permitted.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NET | (_NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _run("ip link set lo up")
    _run(f"ip address add {PROXIES}/32 dev lo")


class Space:
    """The namespace of the `number`-th node, from 1. It exists until `close`, whatever runs in it."""

    def __init__(self, number: int) -> None:
        here, gateway = f"10.93.{number}.2", f"10.93.{number}.1"
        self.address: tuple[str, int] = here, _PORT
        self._device = device = f"node{number}"
        holder = f"{shutil.which('unshare')} --net /bin/sh -c".split()
        self._holder = Popen(
            tied([*holder, "echo; exec sleep infinity"]), stdin=DEVNULL, stdout=PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()  # it is in its namespace
        pid = self._holder.pid
        self.words: list[str] = [f"{shutil.which('nsenter')}", f"--net=/proc/{pid}/ns/net"]
        """Command prefix: it runs the rest of a command line in the namespace."""
        _run(f"ip link add {device} type veth peer name eth0 netns {pid}")
        _run(f"ip address add {gateway}/30 dev {device}")
        _run(f"ip link set {device} up")
        for line in (
            "ip link set lo up",
            f"ip address add {here}/30 dev eth0",
            "ip link set eth0 up",
            f"ip route add default via {gateway}",
        ):
            _run(line, self.words)

    def lose(self, percent: int) -> None:
        """Let the kernel drop that share of the packets of each direction, at random."""
        for device, where in self._ends():
            if not _succeeds(_NETEM.format(device=device, percent=percent), where):
                for line in _FILTER:
                    _run(line.format(device=device, share=2**32 * percent // 100), where)

    def lose_nothing(self) -> None:
        """Undo `lose`."""
        for device, where in self._ends():
            for queue in ("root", "clsact"):
                _succeeds(f"tc qdisc del dev {device} {queue}", where)

    def swallow(self) -> None:
        """Make the routes to it and from it black holes: nothing arrives, and no error is reported."""
        self._holes("add")

    def swallow_nothing(self) -> None:
        """Undo `swallow`."""
        self._holes("del")

    def close(self) -> None:
        """Remove the namespace."""
        self._holder.kill()
        self._holder.wait()

    def _ends(self) -> tuple[tuple[str, Sequence[str]], ...]:
        return (self._device, ()), ("eth0", self.words)

    def _holes(self, do: str) -> None:
        _run(f"ip route {do} blackhole {self.address[0]}/32")
        _run(f"ip route {do} blackhole {PROXIES}/32", self.words)


def _succeeds(line: str, where: Sequence[str]) -> bool:
    return subprocess.run([*where, *line.split()], stdin=DEVNULL, stderr=DEVNULL).returncode == 0


def _run(line: str, where: Sequence[str] = ()) -> None:
    words = [*where, *shlex.split(line)]
    done = subprocess.run(words, stdin=DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise CrdtcastError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
