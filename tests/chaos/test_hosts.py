"""What a run makes of the ends of processes. The nodes here are `python -c …`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from crdtcast.chaos.disks import ChaosDisk
from crdtcast.chaos.nodes import ChaosHost
from crdtcast.chaos.proxy import ProxyNetwork


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], ChaosHost]:
    return lambda program: ChaosHost(
        "n1",
        ChaosDisk(tmp_path / "n1"),
        ProxyNetwork().place("n1"),
        ("127.0.0.1", 2),
        program=("-c", program),
    )


@pytest.mark.process
def test_unrequested_exit_counts_as_a_crash(host: Callable[[str], ChaosHost]) -> None:
    ends = host("import sys; sys.exit(3)")
    ends.start([])
    trio.run(ends.ended)
    ends.start([])
    assert len(ends.crashes) == 1 and "code 3" in ends.crashes[0]
    ends.end()


@pytest.mark.process
def test_requested_kill_does_not_count_as_a_crash(host: Callable[[str], ChaosHost]) -> None:
    stays = host("import time; time.sleep(600)")
    stays.start([])
    trio.run(stays.kill)
    stays.start([])
    stays.end()
    assert stays.crashes == [] and stays.tracebacks() == []


@pytest.mark.process
def test_traceback_in_the_log_is_reported(host: Callable[[str], ChaosHost]) -> None:
    raises = host("raise ValueError")
    raises.start([])
    trio.run(raises.ended)
    raises.end()
    assert len(raises.tracebacks()) == 1
