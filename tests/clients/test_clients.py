"""Clients as they are, against two regions: redis-py, redis-cli, ioredis, node-redis. What they write at one region
they read at the other.
"""

import asyncio
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.adapters.redis.gateways import until
from tests.clients import node_packages
from tests.clients.regions import TwoRegions

pytestmark = pytest.mark.process


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(regions: TwoRegions, protocol: int) -> None:
    at = {"protocol": protocol, "decode_responses": True}
    name = f"py{protocol}"
    with (
        redis.Redis(port=regions.here, **at) as here,
        redis.Redis(port=regions.there, **at) as there,
    ):
        assert here.set(name, "text") is True
        assert here.hset(f"{name}:hash", mapping={"name": "Ada", "visits": 1}) == 2
        assert here.hincrby(f"{name}:hash", "visits", 2) == 3
        assert here.sadd(f"{name}:set", "x", "y") == 2
        regions.settle()
        assert there.get(name) == "text"
        assert there.hgetall(f"{name}:hash") == {"name": "Ada", "visits": "3"}
        assert there.smembers(f"{name}:set") == {"x", "y"}
        assert there.set(name, "other", nx=True) is None, "it has seen that the key is there"
        with pytest.raises(redis.ResponseError, match="command 'LPUSH' is not replicated"):
            here.lpush(name, "x")


def test_a_pool_of_connections_counts_exactly(regions: TwoRegions) -> None:
    pools = [
        redis.BlockingConnectionPool(port=port, max_connections=3)
        for port in (regions.here, regions.there)
    ]
    clients = [redis.Redis(connection_pool=pool) for pool in pools]

    def count(number: int) -> None:
        clients[number % 2].incr("pool:n")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(200)))
    regions.settle()
    assert [client.get("pool:n") for client in clients] == [b"200", b"200"]
    for client in clients:
        client.close()
    for pool in pools:
        pool.disconnect()


def test_pipeline_is_atomic_and_watch_is_exact_in_a_region(
    regions: TwoRegions,
) -> None:
    with redis.Redis(port=regions.here) as here, redis.Redis(port=regions.there) as there:
        with here.pipeline() as pipe:  # MULTI and EXEC, by default
            pipe.set("pipe:a", "1").incr("pipe:a").hset("pipe:h", "f", "v").get("pipe:a")
            assert pipe.execute() == [True, 2, 1, b"2"]

        def add_one(pipe: Any) -> None:
            number = int(pipe.get("pipe:n") or 0)
            pipe.multi()
            pipe.set("pipe:n", number + 1)

        def add_ten(_: int) -> None:
            for _ in range(10):
                here.transaction(add_one, "pipe:n")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add_ten, range(4)))
        assert here.get("pipe:n") == b"40", "no update is lost"
        regions.settle()
        assert there.get("pipe:n") == b"40"
        with here.pipeline() as pipe:
            pipe.watch("pipe:n")
            there.set("pipe:n", "100")
            regions.settle()
            pipe.multi()
            pipe.set("pipe:n", "0")
            with pytest.raises(redis.WatchError):
                pipe.execute()
        assert here.get("pipe:n") == b"100"


def test_watch_does_not_lock_across_a_partition(regions: TwoRegions) -> None:
    with redis.Redis(port=regions.here) as here, redis.Redis(port=regions.there) as there:
        here.set("cut:n", "0")
        regions.settle()
        regions.cut()
        for client in (here, there):
            with client.pipeline() as pipe:
                pipe.watch("cut:n")
                pipe.multi()
                pipe.incr("cut:n")
                assert pipe.execute() == [1], "neither has heard of the other"
        regions.heal()
        assert here.get("cut:n") == there.get("cut:n") == b"2", "both count"


def test_redis_py_asyncio(regions: TwoRegions) -> None:
    async def use() -> list[Any]:
        async with (
            redis.asyncio.Redis(port=regions.here) as here,
            redis.asyncio.Redis(port=regions.there) as there,
        ):
            await asyncio.gather(*(client.incr("async:n") for client in (here, there) * 50))
            async with here.pipeline() as pipe:
                await pipe.set("async:text", "a").sadd("async:set", "x").execute()
            async with here.pubsub() as messages:
                await messages.subscribe("async:news")
                await messages.get_message(timeout=10)
                assert await here.publish("async:news", "hello") == 1
                message = await messages.get_message(timeout=10)
                assert message is not None and message["data"] == b"hello"
            await asyncio.to_thread(regions.settle)
            return list(await there.mget("async:n", "async:text"))

    assert asyncio.run(use()) == [b"100", b"a"]


def test_redis_cli(regions: TwoRegions) -> None:
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if cli is None:
        pytest.skip("neither redis-cli nor valkey-cli is installed: apt-get install redis-tools")
    script = "MULTI\nSET cli:text 'two words'\nHSET cli:hash f 1\nINCRBY cli:n 5\nEXEC\n"
    here = run(cli, "--no-raw", "-p", str(regions.here), text=script).splitlines()
    assert here[:5] == ["OK", *["QUEUED"] * 3, "1) OK"]
    regions.settle()
    there = run(
        cli, "-3", "--no-raw", "-p", str(regions.there), text="GET cli:text\nHGETALL cli:hash\n"
    )
    assert there.splitlines() == ['"two words"', '1# "f" => "1"']


@pytest.mark.parametrize("protocol", ["ioredis", "node_redis"])
def test_clients_of_node(regions: TwoRegions, protocol: str) -> None:
    told, name = (
        run_node(regions, f"{protocol}.js"),
        {"ioredis": "io", "node_redis": "nr"}[protocol],
    )
    assert "command 'LPUSH' is not replicated" in told["refused"]
    assert told["message"] == [f"{name}:news", "hello"]
    if protocol == "ioredis":
        assert told["pipeline"] == [[None, "OK"], [None, 1], [None, 2]]
        assert told["multi"] == [[None, 1], [None, 5], [None, "5"]]
        assert told["there"] == ["a", {"f": "1"}, ["x", "y"]]
        assert told["watched"] is None
        assert told["keys"] == ["io:hash", "io:n", "io:set", "io:text"]
        assert told["nx"] == ["OK", None]
    else:
        assert told["pipeline"] == ["OK", 2, 2]
        assert told["multi"] == [1, 5, "5"]
        assert told["there"] == ["a", {"f": "1", "g": "2"}, ["x", "y"]]
        assert told["watched"] is True


def run_node(regions: TwoRegions, script: str) -> dict[str, Any]:
    """What a script prints."""
    try:
        modules = node_packages.installed()
    except node_packages.NotAvailableError as error:
        if os.environ.get("CI") and shutil.which("npm"):
            raise
        pytest.skip(str(error))
    path = str(Path(__file__).with_name(script))
    printed = run("node", path, str(regions.here), str(regions.there), NODE_PATH=str(modules))
    told = json.loads(printed.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def run(*words: str, text: str = "", **variables: str) -> str:
    """A program's output."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_database_in_the_url_is_the_same_in_all_regions(regions: TwoRegions) -> None:
    """Its number alone tells two clients' keys apart; a pool, and a pipeline, keep it."""

    async def write() -> None:
        url = f"redis://127.0.0.1:{regions.here}/4"
        async with redis.asyncio.Redis.from_url(url) as client:
            async with client.pipeline() as pipe:
                assert await pipe.incr("in-db").set("in-db:text", "four").execute() == [1, True]
            assert await client.move("in-db:text", 5)

    with (
        redis.Redis(port=regions.here, db=3) as here,
        redis.Redis(port=regions.there, db=3, protocol=3) as there,
        redis.Redis.from_url(f"redis://127.0.0.1:{regions.there}/4") as fourth,
        redis.Redis(port=regions.there) as none,
    ):
        assert here.set("in-db", "3") is True
        assert here.copy("in-db", "in-db:copy", destination_db=5)
        asyncio.run(write())
        regions.settle()
        assert there.get("in-db") == b"3"
        assert fourth.get("in-db") == b"1"
        assert none.exists("in-db", "in-db:text") == 0
        none.select(5)
        assert none.mget("in-db:copy", "in-db:text") == [b"3", b"four"]
        until(lambda: {"db3", "db4", "db5"} <= none.info("keyspace").keys())  # it is a second old
        assert "db15" not in none.info("keyspace")
        assert "5" in {each["db"] for each in none.client_list()}
        with pytest.raises(redis.ResponseError, match="gateway's own metadata"):
            none.select(15)
        with pytest.raises(redis.ResponseError, match="DB index is out of range"):
            here.select(16)
