"""Network namespaces: what the kernel does there. Skipped where nobody may have any."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.chaos import spaces

needed = pytest.mark.skipif(
    bool(spaces.why_not()), reason=f"no network namespaces: {spaces.why_not()}"
)

ECHO = """
import socket
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("0.0.0.0", 7000))
print(flush=True)
while True:
    heard.sendto(*heard.recvfrom(10))
"""

COUNT = f"""
import socket, subprocess, sys
from crdtcast.chaos import spaces

def arrive(number):
    found = 0
    for _ in range(number):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
            asks.settimeout(0.05)
            try:
                asks.sendto(b"x", space.address)
                found += asks.recv(10) == b"x"
            except OSError:
                pass
    return found

spaces.enter()
space = spaces.Space(1)
echo = subprocess.Popen([*space.words, sys.executable, "-c", {ECHO!r}], stdout=subprocess.PIPE)
echo.stdout.readline()
print(arrive(10))
space.lose(30)
print(arrive(60))
space.lose_nothing()
print(arrive(10))
space.swallow()
print(arrive(3))
space.swallow_nothing()
print(arrive(10))
echo.kill()
space.close()
"""


@pytest.mark.process
@needed
def test_packets_are_lost_and_swallowed_until_that_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    before, lossy, between, swallowed, after = map(int, done.stdout.split())
    assert before == between == after == 10 and swallowed == 0
    assert 5 <= lossy <= 55  # both ways: about 29 of 60


@needed
@pytest.mark.slow
def test_half_open_links_are_noticed_and_nothing_is_lost(tmp_path: Path) -> None:
    """Black-hole routes, five seconds each at the most; a link is given up after a second and a half of silence."""
    words = "chaos --network namespaces --faults black-hole --nodes 3 --minutes 0.5 --seed 3"
    done = subprocess.run(
        [sys.executable, "-m", "crdtcast", *words.split(), "--keep", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    figures = json.loads(done.stdout)
    assert done.returncode == 0 and figures["network"] == "namespaces", done.stderr
    assert figures["episodes"]["black-hole"] >= 4
    logs = "".join(log.read_text() for log in tmp_path.glob("*/*.log"))
    assert logs.count("no frame for") >= 4
