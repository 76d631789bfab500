"""A group of real gateways and servers, from the outside: replies, merged values, and what goes wrong."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crdtcast.adapters.redis.cluster import LocalCluster, Region
from crdtcast.adapters.redis.store.metadata import CONSTANT_KEYS
from crdtcast.exceptions import ServerError

pytestmark = pytest.mark.process

NAMES = ("a", "b", "c")


def client_of(region: Region, **options: Any) -> redis.Redis:
    return redis.Redis(
        host="127.0.0.1",
        port=region.gateway.port,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        **options,
    )


def server_of(region: Region) -> redis.Redis:
    return redis.Redis(host="127.0.0.1", port=region.server.port, decode_responses=True)


def settle(cluster: LocalCluster) -> None:
    cluster.wait_equal(cluster.names, quiet=True, timeout=60)


def until(condition: Any, timeout: float = 30.0) -> Any:
    """Ask until the answer is true; the pause is short and bounded, and no verdict depends on it."""
    done = threading.Event()
    for _ in range(int(timeout / 0.02)):
        answer = condition()
        if answer:
            return answer
        done.wait(0.02)
    raise AssertionError("did not come true")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("group")
    with LocalCluster(directory, NAMES, group="group", log_directory=directory / "logs") as running:
        yield running


@pytest.fixture
def clients(cluster: LocalCluster) -> Iterator[list[redis.Redis]]:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(client_of(region)) for region in cluster]
        yield made
        for client in made[:1]:
            for key in list(client.scan_iter()):
                client.delete(key)
        settle(cluster)


@contextlib.contextmanager
def apart(cluster: LocalCluster) -> Iterator[None]:
    """Inside, no region hears of another."""
    settle(cluster)
    for name in NAMES:
        cluster.isolate(name)
    yield
    for name in NAMES:
        cluster.rejoin(name)
    settle(cluster)


def test_concurrent_writes_merge(cluster: LocalCluster, clients: list[redis.Redis]) -> None:
    a, b, c = clients
    assert a.sadd("s", "x", "y") == 2
    assert a.incrby("n", 10) == 10
    with apart(cluster):
        assert a.srem("s", "x") == 1
        assert b.sadd("s", "x") == 0  # present already, yet it is intent (H4)
        assert c.sadd("s", "z") == 1
        assert a.delete("n") == 1
        assert b.incrby("n", 5) == 15
        assert c.decr("n") == 9
    for client in clients:
        assert client.smembers("s") == {"x", "y", "z"}
        assert client.get("n") == "4"


def test_region_that_only_receives_writes_its_event_log(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    assert cluster.log_directory is not None
    logs = cluster.log_directory

    def delivered() -> int:
        lines = (line for path in logs.iterdir() for line in path.read_text().splitlines())
        return sum('"replica":"b"' in line and '"kind":"DELIVER"' in line for line in lines)

    before = delivered()
    assert clients[0].sadd("logged", "x") == 1
    until(lambda: delivered() > before)


def test_two_types_under_one_key(cluster: LocalCluster, clients: list[redis.Redis]) -> None:
    a, b, c = clients
    with apart(cluster):
        a.sadd("k", "x")
        b.incr("k")
    for client in clients:
        assert (client.type("k"), client.get("k")) == ("string", "1")
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.sadd("k", "y")
    assert any(region.status()["type_conflicts"] for region in cluster)
    assert c.delete("k") == 1
    settle(cluster)
    for client in clients:
        assert client.exists("k") == 0
    assert b.sadd("k", "fresh") == 1
    settle(cluster)
    for client in clients:
        assert client.smembers("k") == {"fresh"}


def test_hidden_set_unseen_by_a_delete_comes_back(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    a, b, c = clients
    a.incr("k")
    with apart(cluster):
        b.delete("k")
        b.sadd("k", "x")
        c.incr("k")
    for client in clients:
        assert client.get("k") == "1"
    with apart(cluster):
        a.delete("k")
    for client in clients:
        assert client.exists("k") == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_are_native(cluster: LocalCluster, protocol: int) -> None:
    region = cluster["a"]
    with client_of(region, protocol=protocol) as through, server_of(region) as direct:
        assert through.sadd("r:s", "1", "2", "2", "3") == 3
        assert through.srem("r:s", "1", "9") == 1
        assert through.incrby("r:n", 2**63 - 1) == 2**63 - 1
        for operation in (
            lambda c: c.incr("r:n"),
            lambda c: c.incr("r:s"),
            lambda c: c.sadd("r:n", "x"),
            lambda c: c.execute_command("INCRBY", "r:n", "1.5"),
            lambda c: c.execute_command("INCRBY", "r:n", "+5"),
            lambda c: c.execute_command("DECRBY", "r:m", str(-(2**63))),
            lambda c: c.execute_command("SADD", "r:s"),
            lambda c: c.execute_command("NOSUCH", "r:s"),
            lambda c: c.smembers("r:n"),
        ):
            with pytest.raises(redis.ResponseError) as ours:
                operation(through)
            with pytest.raises(redis.ResponseError) as native:
                operation(direct)
            assert str(ours.value) == str(native.value)
        for operation in (
            lambda c: sorted(c.smembers("r:s")),
            lambda c: c.smismember("r:s", ["2", "9"]),
            lambda c: c.type("r:s"),
            lambda c: c.type("r:none"),
            lambda c: c.get("r:n"),
            lambda c: c.get("r:none"),
            lambda c: c.exists("r:n", "r:s", "r:none"),
            lambda c: sorted(c.scan_iter("r:*")),
            lambda c: c.dbsize(),
            lambda c: c.strlen("r:n"),
            lambda c: c.sinter("r:s", "r:s") == {"2", "3"},
            lambda c: c.object("encoding", "r:n"),
            lambda c: c.lrange("r:none", 0, -1),
            lambda c: c.zrange("r:none", 0, -1, withscores=True),
            lambda c: c.hgetall("r:none"),
        ):
            assert operation(through) == operation(direct)
        assert through.delete("r:s", "r:n", "r:none") == 2
        assert through.incr("r:n") == 1
        through.delete("r:n")


def test_a_pipeline_of_everything_is_answered_in_order(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    pipe = clients[0].pipeline(transaction=False)
    expected: list[Any] = []
    for number in range(1, 300):
        pipe.incr("p:n")
        pipe.get("p:n")
        pipe.sadd("p:s", str(number))
        pipe.scard("p:s")
        pipe.strlen("p:n")  # relayed: it waits for what is before it, and all behind waits for it
        pipe.srem("p:s", str(number - 1))
        pipe.exists("p:s", "p:n")
        size = 1 if number == 1 else 2
        expected += [number, str(number), 1, size, len(str(number)), size - 1, 2]
    pipe.delete("p:n", "p:s")
    pipe.incr("p:s")
    expected += [2, 1]
    assert pipe.execute() == expected


def test_refused_commands_change_nothing(cluster: LocalCluster, clients: list[redis.Redis]) -> None:
    client = clients[0]
    for words in (
        ["SETBIT", "k", "1", "1"],
        ["LPUSH", "k", "v"],
        ["XADD", "k", "*", "f", "v"],
    ):
        with pytest.raises(redis.ResponseError, match=f"crdtcast: command '{words[0]}' is not"):
            client.execute_command(*words)
    with pytest.raises(redis.ResponseError, match="at most 8454144"):
        client.sadd("k", "x" * (9 << 20))
    assert client.dbsize() == 0


def test_idle_group_holds_no_metadata_per_element(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    for number in range(200):
        clients[number % 3].sadd("m:s", str(number))
        clients[number % 3].incr(f"m:{number % 7}")
    settle(cluster)
    for region in cluster:
        with redis.Redis(port=region.server.port, db=15) as metadata:
            assert set(metadata.keys()) == CONSTANT_KEYS


def test_a_quiet_group_sends_keep_alives_only(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    clients[0].incr("quiet")
    settle(cluster)

    def sent() -> dict[str, int]:
        links = {region.name: region.status()["links"] for region in cluster}
        return {
            f"{a}{b}": link["bytes_sent"] for a, its in links.items() for b, link in its.items()
        }

    def unchanged() -> bool:
        """Over a second, which is twenty ticks; a keep-alive (6 bytes, every 5 s) may fall into it."""
        before = sent()
        threading.Event().wait(1.0)
        return all(0 <= after - before[link] <= 32 for link, after in sent().items())

    until(unchanged, timeout=0.2)


def test_number_changed_in_the_server_is_repaired(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    a, b, _ = clients
    assert a.incrby("past", 5) == 5
    with server_of(cluster["a"]) as direct:
        direct.set("past", "100")
        assert a.incr("past") == 6
        until(lambda: direct.get("past") == "6")
        direct.delete("past")
        direct.sadd("past", "nonsense")
        assert a.incr("past") == 7
        until(lambda: direct.type("past") == "string" and direct.get("past") == "7")
    settle(cluster)
    assert b.get("past") == "7"
    assert cluster["a"].status()["changed_past_the_gateway"] >= 2
    assert "was changed directly in the server" in cluster["a"].gateway.log.read_text()


def test_set_overwritten_in_the_server_is_restored(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    a = clients[0]
    a.sadd("past:s", *map(str, range(50)))
    settle(cluster)
    with server_of(cluster["a"]) as direct:
        direct.set("past:s", "nonsense")
        with pytest.raises(redis.ResponseError, match="this write is kept and replicated"):
            a.sadd("past:s", "new")

        def whole() -> bool:
            with contextlib.suppress(redis.ResponseError):
                return a.scard("past:s") == 51
            return False

        until(whole)
    settle(cluster)
    for client in clients:
        assert client.smembers("past:s") == {*map(str, range(50)), "new"}
    with redis.Redis(port=cluster["a"].server.port, db=15, decode_responses=True) as metadata:
        assert metadata.get("foreign:past:s") == "nonsense"
        metadata.delete("foreign:past:s")


def test_garbage_at_both_ports_affects_no_other_client(
    cluster: LocalCluster, clients: list[redis.Redis]
) -> None:
    region = cluster["b"]
    for port, garbage in (
        (region.gateway.port, b"*1\r\n$1073741824\r\n"),
        (region.gateway.port, b"\x00\xff" * 500 + b"\r\n"),
        (region.gateway.peer_port, b"\x7f\xff\xff\xff" + b"x" * 100),
        (region.gateway.peer_port, b"GET / HTTP/1.1\r\n\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            link.sendall(garbage)
            link.settimeout(20)
            with contextlib.suppress(ConnectionError):
                while link.recv(65536):
                    pass
    assert clients[1].incr("alive") == 1
    settle(cluster)
    assert clients[0].get("alive") == "1"


def test_writes_continue_after_the_server_was_down(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, NAMES, group="away", appendfsync="always") as cluster:
        with client_of(cluster["a"]) as a, client_of(cluster["b"]) as b:
            assert a.incr("n") == 1
            cluster["a"].server.kill()
            with pytest.raises(redis.ResponseError, match="is lost"):
                a.incr("n")
            assert a.ping()
            assert b.incrby("n", 10) > 0  # the healthy regions go on
            cluster["a"].server.restart()

            def again() -> bool:
                with contextlib.suppress(redis.ResponseError):
                    return bool(a.incr("n"))
                return False

            until(again)
            settle(cluster)
            assert a.get("n") == b.get("n")
        assert "trying again" in cluster["a"].gateway.log.read_text()


def test_a_gateway_starts_before_its_server(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ("a", "b"), group="early") as cluster:
        region = cluster["a"]
        region.gateway.stop()
        region.server.stop()
        region.gateway.launch()
        until(lambda: ": Connection refused; trying" in region.gateway.log.read_text())
        region.server.restart()
        region.gateway.wait_ready()
        with client_of(region) as client:
            assert client.incr("n") == 1


def test_emptied_server_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ("a", "b"), group="wiped") as cluster:
        region = cluster["a"]
        with client_of(region) as client:
            client.incr("n")
        settle(cluster)
        region.gateway.stop()
        with server_of(region) as direct:
            direct.flushall()
        region.gateway.launch()
        with pytest.raises(ServerError, match="has lost its data"):
            region.gateway.wait_ready()
        assert "Traceback" not in region.gateway.log.read_text()


def test_a_server_without_room_refuses_growth_and_takes_removals(tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path, ("a", "b"), group="room") as cluster,
        client_of(cluster["a"]) as a,
        server_of(cluster["a"]) as direct,
    ):
        a.sadd("s", *(f"{number:0>100}" for number in range(20_000)))
        settle(cluster)

        def used() -> int:
            return int(direct.info("memory")["used_memory"])

        def refused() -> bool:
            with contextlib.suppress(redis.OutOfMemoryError):
                a.incr("n")
                return False
            return True

        def full() -> bool:
            direct.config_set("maxmemory", int(used() * 1.04))
            return refused()

        until(full)
        assert a.scard("s") == 20_000
        assert a.delete("s") == 1
        direct.config_set("maxmemory", used() * 4)
        until(lambda: not refused())
        settle(cluster)
        with client_of(cluster["b"]) as b:
            assert (b.exists("s"), b.get("n")) == (0, a.get("n"))


def test_a_full_disk_stops_the_log_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "small"
    logs.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(logs)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        with LocalCluster(tmp_path, ("a", "b"), group="full", log_directory=logs) as cluster:
            with client_of(cluster["a"]) as client:
                for number in range(400):
                    assert client.incr("n") == number + 1
            settle(cluster)
            with client_of(cluster["b"]) as client:
                assert client.get("n") == "400"
            assert "event log" in cluster["a"].gateway.log.read_text()
    finally:
        subprocess.run(["umount", str(logs)], check=True)
