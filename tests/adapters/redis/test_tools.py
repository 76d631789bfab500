"""The tools people have: redis-cli and redis-benchmark, unchanged, at a gateway's port."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.server.raw_client import RawClient
from tests.adapters.redis.gateways import until

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
    assert "crdtcast: command 'LPUSH' is not replicated" in run(*cli, "lpush", "k", "v")
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


def fields(text: str) -> dict[str, str]:
    return dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)


def test_info_has_the_fields_of_tools(region: Region) -> None:
    with RawClient(region.gateway.port) as client, RawClient(region.server.port) as direct:

        def info(*sections: str) -> dict[str, str]:
            reply = client.call("INFO", *sections)
            assert isinstance(reply, bytes)
            return fields(reply.decode())

        client.pipeline([("DEL", "info"), ("SADD", "info", "a"), ("PFADD", "info", "b")])
        native = direct.call("DBSIZE")
        # The server's figures are asked for once a second.
        until(lambda: f"keys={native}," in info("keyspace").get("db0", ""))
        shown = info()
        assert shown["role"] == "master"
        assert shown["cluster_enabled"] == "0"
        assert shown["arch_bits"] == "64"
        assert shown["tcp_port"] == str(region.gateway.port)
        assert int(shown["used_memory"]) > 0
        assert "db15" not in shown, "our own metadata is not the clients'"
        assert "executable" not in shown and "config_file" not in shown
        before = int(shown["total_commands_processed"])
        scards = int(part(info("commandstats").get("cmdstat_scard", "calls=0"), "calls"))
        client.pipeline([("SCARD", "info")] * 10)
        assert int(info("stats")["total_commands_processed"]) == before + 10 + 2
        assert not any(name.startswith("cmdstat_") for name in shown)
        stats = info("commandstats")
        assert part(stats["cmdstat_scard"], "calls") == str(scards + 10)
        assert part(stats["cmdstat_pfadd"], "calls") == "0"
        assert int(part(stats["cmdstat_pfadd"], "rejected_calls")) > 0
        until(lambda: float(part(info("commandstats")["cmdstat_sadd"], "usec_per_call")) > 0)


def part(line: str, name: str) -> str:
    return dict(each.split("=") for each in line.split(","))[name]


def test_command_getkeys_of_refused_commands_equals_the_servers(region: Region) -> None:
    commands = (
        "SET k v",
        "EVAL return 2 a b c",
        "ZUNIONSTORE d 2 a b",
        "SORT s STORE d",
        "DEL a b",
        "PING",
        "nonsense a",
    )
    with RawClient(region.gateway.port) as client, RawClient(region.server.port) as direct:
        for command in commands:
            for asked in ("GETKEYS", "GETKEYSANDFLAGS"):
                words = ("COMMAND", asked, *command.split())
                assert client.call(*words) == direct.call(*words), words


def test_redis_cli_reports_on_the_key_space(region: Region) -> None:
    cli = (program("redis-cli", "valkey-cli"), "-p", str(region.gateway.port))
    with RawClient(region.gateway.port) as client:
        client.pipeline([("SADD", "big", *map(str, range(5000))), ("INCRBY", "number", "12345")])
        keys = int(str(client.call("DBSIZE")))
    bigkeys = run(*cli, "--bigkeys")
    assert f"Sampled {keys} keys in the keyspace" in bigkeys
    assert re.search(r"Biggest +set found '\"?big\"?' has 5000 members", bigkeys)
    memkeys = run(*cli, "--memkeys")
    assert re.search(r"Biggest +set found '\"?big\"?' has \d{4,} bytes", memkeys)
    with subprocess.Popen(
        [*cli, "--stat", "-i", "0.02"], stdout=subprocess.PIPE, text=True
    ) as stat:
        assert stat.stdout is not None
        expected = re.compile(rf"{keys} +\d+\.\d+[MK] ")
        rows = [stat.stdout.readline() for _ in range(2)]
        while len(rows) < 500 and not expected.match(rows[-1]):  # a second old at most
            rows.append(stat.stdout.readline())
        stat.kill()
    assert expected.match(rows[-1]), rows
