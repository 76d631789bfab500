"""Embedded servers: they answer when started, keep what they should, and end when told or
orphaned.
"""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from crdtcast.adapters.redis.server.embedded import find_binary, start_server
from crdtcast.exceptions import ConfigurationError, ServerError

pytestmark = pytest.mark.process


def test_data_survives_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    with start_server(tmp_path, appendfsync="always") as server:
        port = server.port
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
        server.kill()
        server.restart()
        assert server.port == port
        with redis.Redis.from_url(server.url) as client:
            assert client.get("k") == b"v"
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_pure_cache_keeps_nothing(tmp_path: Path) -> None:
    with start_server(tmp_path, appendfsync="no") as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
        server.stop()
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("k") is None


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="nonsense"):
        start_server(tmp_path, options=["--nonsense", "1"])


def test_a_taken_port_is_not_mistaken_for_our_server(tmp_path: Path) -> None:
    with (
        start_server(tmp_path / "first", appendfsync="no") as first,
        pytest.raises(ServerError, match="in use"),
    ):
        start_server(tmp_path / "second", appendfsync="no", port=first.port)


def test_a_binary_named_but_absent_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="CRDTCAST_SERVER_BINARY"):
        find_binary({"CRDTCAST_SERVER_BINARY": "/no/such/server"})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_the_server_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from crdtcast.adapters.redis.server.embedded import start_server\n"
        "server = start_server(sys.argv[1]); print(server.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    pid = int(parent.stdout.readline())
    # A descriptor for the process makes its end something to wait for.
    watched = os.pidfd_open(pid)
    try:
        parent.kill()
        parent.wait()
        assert select.select([watched], [], [], 10)[0], "the server outlived its parent"
    finally:
        os.close(watched)
        parent.stdin.close()
        parent.stdout.close()
        if Path(f"/proc/{pid}/exe").exists():
            os.kill(pid, signal.SIGKILL)
