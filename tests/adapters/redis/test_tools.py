"""The tools people have: redis-cli and redis-benchmark, unchanged, at a gateway's port."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, Region

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    with LocalCluster(tmp_path_factory.mktemp("tools"), ("a", "b"), group="tools") as cluster:
        yield cluster["a"]


def program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(names)} is installed: apt-get install redis-tools")
    return found


def run(*words: str, text: str = "") -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_redis_cli(region: Region, protocol: str) -> None:
    cli = (program("redis-cli", "valkey-cli"), protocol, "-p", str(region.gateway.port))
    assert run(*cli, "sadd", "s", "x", "y") == "2\n"
    assert run(*cli, "--no-raw", "type", "s") == "set\n"
    assert run(*cli, "--no-raw", "incr", "n") == "(integer) 1\n"
    assert "crdtcast: command 'SET' is not replicated" in run(*cli, "set", "k", "v")
    assert set(run(*cli, "--scan").split()) == {"s", "n"}
    assert "redis_version:" in run(*cli, "info")
    script = "sadd s z\nscard s\nsmismember s x nope\ndel s n\nget n\n"
    answers = run(*cli, "--no-raw", text=script).split("\n")
    assert answers[:2] == ["(integer) 1", "(integer) 3"]
    assert answers[4:6] == ["(integer) 2", "(nil)"]


@pytest.mark.parametrize("pipeline", ["1", "16"])
def test_redis_benchmark(region: Region, pipeline: str) -> None:
    benchmark = program("redis-benchmark", "valkey-benchmark")
    words = ("-p", str(region.gateway.port), "-t", "sadd,incr", "-n", "3000", "-c", "20")
    printed = run(benchmark, *words, "-P", pipeline, "--csv")
    rows = [line.split(",")[0] for line in printed.splitlines() if line.startswith('"')]
    assert {'"SADD"', '"INCR"'} <= set(rows)
    assert Path(region.gateway.log).read_text().count("Traceback") == 0
