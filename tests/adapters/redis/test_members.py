"""Gateways that come and go: found, join under load, leave, evict, replace, refill; and what is refused."""

import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from crdtcast.adapters.redis.commit.durability import Mark
from crdtcast.adapters.redis.group.lifecycle import Belonging
from crdtcast.adapters.redis.group.recovery import Durability
from crdtcast.adapters.redis.options import GatewayOptions, GroupOptions
from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store import metadata, value_pages
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.adapters.redis.transfer import key_pages, region_copy
from crdtcast.adapters.redis.transfer.giver import Giver
from crdtcast.adapters.redis.transfer.joiner import Writer
from crdtcast.adapters.redis.transfer.state_messages import Slice
from crdtcast.adapters.redis.types import strings
from crdtcast.exceptions import ConfigurationError, HandshakeError
from crdtcast.ports import free_ports
from crdtcast.transport.options import Address, NodeOptions
from tests.adapters.redis.client_load import Load
from tests.adapters.redis.gateways import Gateways, RunningGateway, error_of, until
from tests.effort import first_seed
from tests.servers import borrowed

pytestmark = pytest.mark.process


def test_regions_join_under_writes_and_leave_again(tmp_path: Path) -> None:
    seed = first_seed()
    with Gateways(tmp_path) as town:
        a = town.start("a")
        with RawClient(a.port) as client:
            client.pipeline([("SADD", f"s{key}", "base") for key in range(1500)])
            client.call("INCRBY", "total", "1000")
        b = town.start("b", "a")
        loads = [Load(a, seed, 1500), Load(b, seed + 1, 1500)]
        c = town.start("c", "b")  # b has joined itself: any member will do
        loads.append(Load(c, seed + 2, 1500))
        until(lambda: loads[2].total > 20)
        total = sum(load.stop() for load in loads)
        assert not any(load.refused for load in loads)
        town.wait_equal("a", "b", "c")
        assert town.call("c", "GET", "total") == b"%d" % (1000 + total)
        assert town.call("c", "GET", "twin") == b"%d" % total
        assert town.members("a") == ["a", "b", "c"]

        assert town.call("c", "INCR", "total") == 1001 + total
        assert town.call("c", "CRDTCAST", "LEAVE") == b"OK"
        c.wait_ended()
        assert c.error is None
        town.wait_equal("a", "b")
        assert town.members("b") == ["a", "b"]
        assert town.call("a", "GET", "total") == b"%d" % (1001 + total)

        # It comes back to what the group has by then.
        town.call("b", "DEL", "total")
        town.start("c", "a")
        town.wait_equal("a", "b", "c")
        assert town.call("c", "GET", "total") is None


def test_unconfirmed_leaver_asks_first_then_joins_again(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("c", "SADD", "s", "1")
        town.wait_equal("a", "b", "c")
        old = town.status("c")["incarnation"]
        assert town.call("c", "CRDTCAST", "LEAVE") == b"OK"
        town.running["c"].wait_ended()
        # As if its time had been up before it heard that the others know.
        directory = town.running["c"].gateway.options.state_dir
        file = LocalFile.read(directory, "c")
        assert file is not None and file.left
        replace(file, left=False).write(directory)
        town.call("a", "SADD", "s", "2")

        town.start("c", "a")
        town.wait_equal("a", "b", "c")
        assert town.status("c")["incarnation"] not in (old, "") and town.members("a") == [
            "a",
            "b",
            "c",
        ]
        assert sorted(town.call("c", "SMEMBERS", "s")) == [b"1", b"2"]


def test_all_regions_restart_at_once_as_the_same_incarnations(tmp_path: Path) -> None:
    with Gateways(tmp_path, own_servers="everysec") as town:
        names = ("a", "b", "c")
        town.start("a")
        town.start("b", "a")
        town.start("c", "a")
        for name in names:
            town.call(name, "INCR", "n")
        before = [town.status(name)["incarnation"] for name in names]
        contact = town.peer_address("a")
        town.wait_equal(*names)
        for name in names:
            town.running[name].stop()
            town.servers[name].kill()
        for name in names:
            town.servers[name].restart()
        town.start("a")
        assert town.peer_address("a") != contact  # so b has to tell where it is, which a must know
        for name in ("b", "c"):
            town.start(name, "a")
        assert [town.status(name)["incarnation"] for name in names] == before
        town.call("b", "INCR", "n")
        town.wait_equal(*names)
        assert town.call("c", "GET", "n") == b"4"


def test_lost_region_is_evicted_replaced_and_its_server_refilled(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("c", "SADD", "s", "1", "2")
        town.wait_equal("a", "b", "c")
        town.running["c"].stop()
        refused = town.call("a", "CRDTCAST", "EVICT", "nobody")
        assert isinstance(refused, ErrorReply) and "name one of" in refused.text
        assert town.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
        town.call("b", "SADD", "s", "3")
        town.wait_equal("a", "b")
        assert town.members("b") == ["a", "b"]

        # b's machine is lost; d takes its place, which two of two could not do without being told.
        town.running["b"].stop()
        d = town.start("d", "a", replaces=("b",))
        town.wait_equal("a", "d")
        assert town.members("d") == ["a", "d"]
        town.call("d", "SADD", "s", "4")
        town.wait_equal("a", "d")

        # d's server loses everything; its gateway's file knows who it was.
        d.stop()
        with RawClient(town.servers["d"].port) as client:
            client.call("FLUSHALL")
        town.start("d", "a")
        town.wait_equal("a", "d")
        assert sorted(town.call("d", "SMEMBERS", "s")) == [b"1", b"2", b"3", b"4"]
        assert town.members("a") == ["a", "d"]


def test_partial_copy_is_copied_again(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.call("a", "SADD", "s", "1")
        with RawClient(town.server("b").port) as client:
            client.pipeline(
                [
                    ("SADD", "half", "x"),
                    ("SET", "s", "of a key"),
                    ("SELECT", "15"),
                    ("SADD", metadata.JOINING.decode(), "", "b.0000000000001aaaa"),
                    ("SADD", "hidden:set:s", "y"),
                ]
            )
        town.start("b", "a")
        town.wait_equal("a", "b")
        assert town.call("b", "EXISTS", "half") == 0
        with RawClient(town.servers["b"].port) as client:
            client.call("SELECT", "15")
            keys = client.call("KEYS", "*")
            assert isinstance(keys, list) and set(keys) == {b"fence", b"state"}


def test_a_copy_goes_on_where_the_link_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    begun: list[Writer] = []
    tell, begin = Belonging._tell_progress, Writer.begin

    def breaks(belonging: Belonging, received: int, total: int) -> None:
        told.append(received)
        tell(belonging, received, total)
        if len(told) in (2, 4):
            assert received < total
            town.call("a", "INCR", "meanwhile")
            belonging.peers.shared.links().up["a"].close("broken")

    async def counted(writer: Writer) -> None:
        begun.append(writer)
        await begin(writer)

    monkeypatch.setattr(region_copy, "_SLICE_KEYS", 200)
    monkeypatch.setattr(Belonging, "_tell_progress", breaks)
    monkeypatch.setattr(Writer, "begin", counted)
    with Gateways(tmp_path) as town:
        town.start("a")
        with town.running["a"].client() as client:
            client.pipeline([("SADD", f"s{key}", "base") for key in range(1500)])
        town.start("b", "a")
        assert len(begun) == 1, "the copy began anew"
        assert told == sorted(told) and told[-1] < 1600
        town.wait_equal("a", "b")
        assert town.call("b", "GET", "meanwhile") == b"2"


def test_copy_slices_stay_small_and_a_changing_text_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 1 << 16
    sizes: list[int] = []
    encode, read = Slice.encode, Giver._read
    changed: list[int] = []

    def measured(slice_: Slice) -> bytes:
        sizes.append(len(encode(slice_)))
        return encode(slice_)

    async def read_page(giver: Giver, commands: list[list[bytes]]) -> list[object]:
        replies = await read(giver, commands)
        if commands[0][:3] == [b"GETRANGE", b"changing", b"%d" % (2 * page)] and not changed:
            changed.append(page)
            await trio.to_thread.run_sync(town.call, "a", "SET", "changing", "y" * 5 * page)
        return replies

    for module in (key_pages, region_copy, strings, value_pages):
        monkeypatch.setattr(module, "PAGE_BYTES", page)
    monkeypatch.setattr(Slice, "encode", measured)
    monkeypatch.setattr(Giver, "_read", read_page)
    with Gateways(tmp_path) as town:
        town.start("a")
        with town.running["a"].client() as client:
            client.call("SET", "long", "x" * (7 * page + 5))
            client.call("SET", "exact", "z" * 2 * page)
            client.call("SET", "changing", "x" * 6 * page)
            client.pipeline([("SET", f"t{n}", "x" * (page // 3)) for n in range(20)])
            client.pipeline([("HSET", f"h{n}", "f", "1", "g", "2") for n in range(20)])
        town.start("b", "a")
        assert changed and max(sizes) < page + 4096
        town.wait_equal("a", "b")
        assert len({json.loads(town.call(n, "CRDTCAST", "VERIFY"))["digest"] for n in "ab"}) == 1
        assert town.call("b", "GET", "long") == b"x" * (7 * page + 5)
        assert town.call("b", "STRLEN", "exact") == 2 * page
        assert town.call("b", "GET", "changing") == b"y" * 5 * page


def test_region_that_cannot_join_is_told_why(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        with RawClient(town.server("b").port) as client:
            client.call("SET", "mine", "1")
        refused = town.refused("b", "a")
        assert isinstance(refused, ConfigurationError) and "holds 1 keys" in str(refused)
        with RawClient(town.server("b").port) as client:
            client.call("FLUSHALL")
        town.start("b", "a")
        # Somebody else of that name, on another machine.
        town.running["b"].stop()
        with Gateways(tmp_path / "elsewhere") as elsewhere:
            elsewhere.running["a"] = town.running["a"]
            refused = elsewhere.refused("b", "a")
        assert isinstance(refused, HandshakeError) and "already has a member called b" in str(
            refused
        )
    with Gateways(tmp_path / "alone") as town:
        town.start("a").stop()
        with RawClient(town.servers["a"].port) as client:
            client.call("FLUSHALL")
        refused = town.refused("a")
        assert isinstance(refused, ConfigurationError) and "has lost its data" in str(refused)


def test_nothing_leaves_before_it_is_synced(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        a = town.start("a")
        b = town.start("b", "a")
        town.wait_equal("a", "b")

        def sync_later() -> None:
            a.gateway.durability.level = Durability.EVERYSEC  # and nobody asks the server

        a.call(sync_later)
        until(lambda: a.gateway.durability.level is Durability.EVERYSEC)
        assert town.call("a", "INCR", "n") == 1
        # b's own write makes the round: a acknowledges nothing, but takes it.
        assert town.call("b", "INCR", "n") == 1
        until(lambda: town.call("a", "GET", "n") == b"2")
        engine = b.gateway.committer.engine
        assert engine is not None
        assert town.call("b", "GET", "n") == b"1" and engine.counters().unstable == 1

        def synced() -> None:
            a.gateway.durability.level = Durability.ALWAYS
            state = a.gateway.committer.state
            assert state is not None
            a.gateway.durability.committed(Mark(a.gateway.committer.commits, state.vector))

        a.call(synced)
        town.wait_equal("a", "b")
        assert town.call("b", "GET", "n") == b"2"


def cut_off(town: Gateways, name: str, *others: str) -> None:
    for other in others:
        assert town.call(name, "CRDTCAST", "CUT", other) == b"OK"
        assert town.call(other, "CRDTCAST", "CUT", name) == b"OK"


def heal(town: Gateways, name: str, *others: str) -> None:
    """The evicted one dials, so it is healed last: who was refused waits long before it dials again."""
    for other in others:
        assert town.call(other, "CRDTCAST", "HEAL", name) == b"OK"
    for other in others:
        assert town.call(name, "CRDTCAST", "HEAL", other) == b"OK"


def parked(town: Gateways, name: str) -> object:
    with RawClient(town.servers[name].port) as client:
        client.call("SELECT", "15")
        return client.call("EXISTS", "parked")


def test_evicted_region_returns_and_its_own_writes_count_once(
    tmp_path: Path,
) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("c", "INCRBY", "n", "100")
        town.call("c", "SADD", "s", "old", "gone")
        town.wait_equal("a", "b", "c")
        first = town.status("c")["incarnation"]
        cut_off(town, "c", "a", "b")
        town.call("c", "INCRBY", "n", "10")
        town.call("c", "SADD", "s", "new")
        town.call("c", "INCR", "fresh")
        town.call("a", "CRDTCAST", "EVICT", "c")
        until(lambda: town.members("b") == ["a", "b"])
        town.call("b", "SREM", "s", "gone")
        town.call("b", "INCR", "n")
        town.wait_equal("a", "b")  # it is settled among them before c is back
        heal(town, "c", "a", "b")
        until(lambda: town.members("a") == ["a", "b", "c"])
        until(lambda: town.call("b", "GET", "fresh") == b"1")
        town.wait_equal("a", "b", "c")
        until(lambda: not parked(town, "c"))
        assert town.call("b", "GET", "n") == b"111"
        assert set(town.call("c", "SMEMBERS", "s")) == {b"old", b"new"}
        assert town.status("c")["incarnation"] > first

        # The same while its gateway is down; and then it dies as soon as it is back.
        cut_off(town, "c", "a", "b")
        town.call("c", "INCRBY", "n", "1000")
        town.running["c"].stop()
        town.call("a", "CRDTCAST", "EVICT", "c")
        until(lambda: town.members("b") == ["a", "b"])
        for other in ("a", "b"):
            town.call(other, "CRDTCAST", "HEAL", "c")
        town.start("c", "a")
        until(lambda: town.members("a") == ["a", "b", "c"])
        town.running["c"].stop()
        town.start("c", "b")
        town.wait_equal("a", "b", "c")
        assert town.call("a", "GET", "n") == b"1111"
        until(lambda: not parked(town, "c"))


def evicted_with(town: Gateways, name: str, *others: str) -> None:
    """The others evict it while it is cut off, and have settled that among themselves."""
    town.call(others[0], "CRDTCAST", "EVICT", name)
    until(lambda: all(town.members(other) == sorted(others) for other in others))


def test_removals_of_an_evicted_region_spare_newer_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("c", "SADD", "s", "1", "2", "3", "4", "5")
        town.call("c", "SADD", "whole", "x", "y")
        town.call("c", "SADD", "grown", "x", "y")
        for key in ("same", "more"):
            town.call("c", "INCRBY", key, "100")
        town.wait_equal("a", "b", "c")
        cut_off(town, "c", "a", "b")
        assert town.call("c", "SREM", "s", "1", "2", "nothing") == 2
        town.call("c", "SADD", "s", "6", "7")
        assert town.call("c", "SREM", "s", "6", "3") == 2  # one of its own, which nobody has
        town.call("c", "SADD", "s", "3")
        assert town.call("c", "DEL", "whole", "grown", "never") == 2
        town.call("c", "INCRBY", "same", "7")  # taken back by its own removal
        town.call("c", "DEL", "same", "more")
        town.call("c", "INCRBY", "same", "5")
        evicted_with(town, "c", "a", "b")
        town.call("b", "SADD", "grown", "z")
        town.call("b", "SREM", "s", "2")
        town.call("b", "INCR", "more")
        town.wait_equal("a", "b")
        # Its gateway is started anew before it hears of it: what it had removed is in its server.
        town.running["c"].stop()
        for other in ("a", "b"):
            town.call(other, "CRDTCAST", "HEAL", "c")
        town.start("c", "a")
        until(lambda: town.members("a") == ["a", "b", "c"])
        until(lambda: not parked(town, "c"))
        town.wait_equal("a", "b", "c")
        for name in ("a", "b", "c"):
            assert set(town.call(name, "SMEMBERS", "s")) == {b"3", b"4", b"5", b"7"}
            assert town.call(name, "EXISTS", "whole", "never") == 0
            assert town.call(name, "SMEMBERS", "grown") == [b"z"]
            assert town.call(name, "GET", "same") == b"5"
            assert town.call(name, "GET", "more") == b"101"
        yields = [
            record.message for record in caplog.records if "is not sent again" in record.message
        ]
        assert len(yields) == 1 and "DEL b'more'" in yields[0]
        with RawClient(town.servers["c"].port) as client:
            client.call("SELECT", "15")
            keys = client.call("KEYS", "*")
            assert isinstance(keys, list) and set(keys) == {b"fence", b"state"}


def test_values_of_an_evicted_region_hold_without_later_writes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateways(tmp_path) as town:
        for name, through in (("a", None), ("b", "a"), ("c", "a")):
            town.start(name, through)
        town.call("a", "MSET", "text", "0", "newer", "0", "gone", "0", "number", "10")
        town.call("a", "HSET", "h", "f", "0", "newer", "0", "counted", "5", "out", "0", "kept", "0")
        town.call("a", "HSET", "whole", "f", "0", "g", "0")
        town.call("a", "SADD", "replaced", "x", "y")
        town.wait_equal("a", "b", "c")
        cut_off(town, "c", "a", "b")
        town.call("c", "SET", "text", "lost")
        town.call("c", "SET", "text", "mine")
        town.call("c", "SET", "fresh", "mine")
        town.call("c", "SET", "newer", "mine")
        town.call("c", "SET", "number", "20")
        town.call("c", "INCRBY", "number", "3")
        town.call("c", "SET", "replaced", "mine")
        town.call("c", "DEL", "gone", "whole")
        town.call("c", "HSET", "h", "f", "mine", "g", "mine", "newer", "mine")
        town.call("c", "HINCRBY", "h", "counted", "7")
        town.call("c", "HDEL", "h", "out", "kept")
        evicted_with(town, "c", "a", "b")
        town.call("b", "MSET", "newer", "theirs")
        town.call("b", "HSET", "h", "newer", "theirs", "kept", "theirs")
        town.call("b", "HINCRBY", "h", "counted", "1")
        town.call("b", "HSET", "whole", "g", "theirs")
        town.call("b", "SADD", "replaced", "z")
        town.wait_equal("a", "b")
        town.running["c"].stop()
        for other in ("a", "b"):
            town.call(other, "CRDTCAST", "HEAL", "c")
        town.start("c", "a")
        until(lambda: town.members("a") == ["a", "b", "c"])
        until(lambda: not parked(town, "c"))
        town.wait_equal("a", "b", "c")
        for name in ("a", "b", "c"):
            keys = "text", "fresh", "newer", "gone", "number", "replaced"
            values = town.call(name, "MGET", *keys)
            assert values == [b"mine", b"mine", b"theirs", None, b"23", b"mine"]
            words = town.call(name, "HGETALL", "h")
            assert dict(zip(words[::2], words[1::2], strict=True)) == {
                b"f": b"mine",
                b"g": b"mine",
                b"newer": b"theirs",
                b"kept": b"theirs",
                b"counted": b"13",
            }
            assert town.call(name, "HGETALL", "whole") == [b"g", b"theirs"]
            # What the value had not seen is kept behind it.
            assert town.status(name)["hidden_keys"] == 1
        yields = [
            record.message for record in caplog.records if "is not sent again" in record.message
        ]
        said = " ".join(yields)
        for part in ("SET b'newer'", "DEL b'whole'", "HSET b'h' b'newer'", "HDEL b'h' b'kept'"):
            assert part in said, yields
        with RawClient(town.servers["c"].port) as client:
            client.call("SELECT", "15")
            keys = client.call("KEYS", "*")
            assert isinstance(keys, list)
            assert set(keys) == {b"fence", b"state", b"hidden:set:replaced"}


def aof_bytes(town: Gateways, name: str) -> int:
    (file,) = (town.servers[name].directory / "appendonlydir").glob("*.incr.aof")
    return file.stat().st_size


def lose_the_end(town: Gateways, name: str, kept: int) -> None:
    """What comes behind these bytes of the append-only file is gone, as if it had never reached the disk."""
    (file,) = (town.servers[name].directory / "appendonlydir").glob("*.incr.aof")
    with file.open("r+b") as stream:
        stream.truncate(kept)


@pytest.mark.parametrize("gateway_dies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_server_that_lost_two_seconds_gets_a_new_incarnation(
    tmp_path: Path, gateway_dies: bool
) -> None:
    """Though the disk had said that they were synced, and the others have a part of them."""
    seed = first_seed()
    with Gateways(tmp_path, own_servers="everysec") as town:
        a = town.start("a")
        b = town.start("b", "a")
        town.start("c", "a")
        town.call("b", "SADD", "kept", "1")
        town.wait_equal("a", "b", "c")
        before = town.status("b")["incarnation"]
        loads = [Load(a, seed, 50), Load(b, seed + 1, 50)]
        until(lambda: loads[1].total > 20)
        kept = aof_bytes(town, "b")
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 2 and loads[1].total > 60)
        acknowledged = loads[1].stop()
        if gateway_dies:
            until(lambda: town.status("b")["quiet"])  # its writes are with the others, and stable
            b.stop()
        town.servers["b"].kill()
        lose_the_end(town, "b", kept)
        town.servers["b"].restart()
        if gateway_dies:
            b = town.start("b", "a")
        until(lambda: town.status("b").get("incarnation", before) > before)
        after = Load(b, seed + 2, 50)
        until(lambda: after.total > 20)
        total = loads[0].stop() + acknowledged + after.stop()
        town.wait_equal("a", "b", "c")
        until(lambda: not parked(town, "b"))
        assert town.members("a") == ["a", "b", "c"]
        assert town.call("c", "MGET", "total", "twin") == [b"%d" % total] * 2
        assert town.call("c", "SMEMBERS", "kept") == [b"1"]
    # Nothing doubled, no dot reused, nothing delivered that was not sent: so the logs of all say.
    assert town.checked is not None and town.checked.counts["messages"] > 100


def test_loss_unknown_to_peers_keeps_the_incarnation(tmp_path: Path) -> None:
    with Gateways(tmp_path, own_servers="everysec") as town:
        town.start("a")
        b = town.start("b", "a")
        town.call("b", "INCR", "n")
        town.wait_equal("a", "b")
        before = town.status("b")["incarnation"]
        with RawClient(town.servers["b"].port) as client:
            client.call("CONFIG", "SET", "appendfsync", "no")  # nothing is synced from here on
        kept = aof_bytes(town, "b")
        for _ in range(50):
            town.call("b", "INCR", "n")
        b.stop()
        town.servers["b"].kill()
        lose_the_end(town, "b", kept)
        town.servers["b"].restart()
        town.start("b", "a")
        for _ in range(10):
            town.call("b", "INCR", "n")
        town.wait_equal("a", "b")
        assert town.status("b")["incarnation"] == before
        assert town.call("a", "GET", "n") == b"11"


def test_a_split_by_force_ends_when_one_side_surrenders(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        town.call("a", "INCR", "n")
        town.wait_equal("a", "b")
        cut_off(town, "a", "b")
        for name, other in (("a", "b"), ("b", "a")):
            assert town.call(name, "CRDTCAST", "EVICT", other, "FORCE") == b"OK"
        for name in ("a", "b"):
            until(lambda name=name: town.members(name) == [name])
            town.call(name, "SADD", "of", name)
        refused = town.call("a", "CRDTCAST", "SURRENDER")
        assert isinstance(refused, ErrorReply) and "no dispute" in refused.text
        heal(town, "b", "a")
        for name in ("a", "b"):
            until(lambda name=name: town.status(name)["standing"] == "disputed")
        assert town.call("b", "CRDTCAST", "SURRENDER") == b"OK"
        until(lambda: town.members("a") == ["a", "b"])
        town.wait_equal("a", "b")
        assert town.call("b", "SMEMBERS", "of") == [b"a"]
        assert town.call("b", "GET", "n") == b"1"


def test_fixed_group_is_converted_to_a_changing_group(tmp_path: Path) -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    with Gateways(tmp_path) as town:

        def fixed(name: str, other: str) -> RunningGateway:
            return RunningGateway(
                GatewayOptions(
                    node=NodeOptions(
                        name=name,
                        group="g",
                        listen=("127.0.0.1", ports[name]),
                        peers={other: ("127.0.0.1", ports[other])},
                    ),
                    listen_clients=("127.0.0.1", 0),
                    server=ServerAddress("127.0.0.1", town.server(name).port),
                    state_dir=tmp_path / f"state-{name}",
                )
            )

        town.running["a"] = fixed("a", "b").wait_ready()
        town.call("a", "SADD", "s", "x", "y")
        town.call("a", "SREM", "s", "y")
        town.call("a", "INCRBY", "n", "5")
        town.running["a"].stop()
        refused = town.refused("a")
        assert isinstance(refused, ConfigurationError) and "that some members may lack" in str(
            refused
        )
        town.running |= {"a": fixed("a", "b"), "b": fixed("b", "a")}
        for running in town.running.values():
            running.wait_ready()
        until(lambda: town.call("b", "GET", "n") == b"5")
        until(lambda: not any(town.status(name)["unstable"] for name in "ab"))
        for running in town.running.values():
            running.stop()

        before = town.start("a")
        assert town.status("a")["members"] == [before.gateway.committer.state.founding]
        refused = town.refused("b", "a")
        assert isinstance(refused, ConfigurationError) and "of fixed members" in str(refused)
        with RawClient(town.servers["b"].port) as client:
            client.call("FLUSHALL")
        town.start("b", "a")
        town.call("b", "INCR", "n")
        town.wait_equal("a", "b")
        assert (town.call("a", "GET", "n"), town.call("b", "SMEMBERS", "s")) == (b"6", [b"x"])
        before.stop()
        town.start("a")
        assert town.call("a", "GET", "n") == b"6"


@pytest.mark.parametrize("taken", ["state directory", "clients' port", "peers' port"])
@pytest.mark.parametrize("members", ["changing", "fixed"])
def test_local_start_error_is_found_before_any_server_write(
    tmp_path: Path, members: str, taken: str
) -> None:
    with borrowed("always") as server, socket.create_server(("127.0.0.1", 0)) as other:
        busy: Address = other.getsockname()
        (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
        good = GatewayOptions(
            node=NodeOptions(
                name="a",
                group="g",
                listen=("127.0.0.1", 0),
                peers=[] if members == "changing" else {"z": None},
            ),
            listen_clients=("127.0.0.1", 0),
            server=ServerAddress("127.0.0.1", server.port),
            state_dir=tmp_path / "state",
            member=GroupOptions(founds=True) if members == "changing" else None,
        )
        bad = {
            "state directory": replace(good, state_dir=tmp_path / "nowhere"),
            "clients' port": replace(good, listen_clients=busy),
            "peers' port": replace(good, node=replace(good.node, listen=busy)),
        }
        error = error_of(RunningGateway(bad[taken]))
        assert isinstance(error, ConfigurationError)
        assert ("--state-dir" if taken == "state directory" else str(busy[1])) in str(error)
        with RawClient(server.port) as direct:
            assert direct.pipeline([("DBSIZE",), ("SELECT", "15"), ("DBSIZE",)]) == [0, b"OK", 0]
        again = RunningGateway(good)
        try:
            again.wait_ready()
        finally:
            again.stop()
