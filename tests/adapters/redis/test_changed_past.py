"""Native state that was changed past the gateways: found within a round, put right or refused, never silent."""

import json
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.adapters.redis.commit.divided_removal import MOST_KEYS
from crdtcast.adapters.redis.compare import comparison
from crdtcast.adapters.redis.compare.comparison import KeyComparison
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.exceptions import NotReadyError
from tests.adapters.redis.gateways import PATIENCE, ROUND_SECONDS, Gateways, regions, until
from tests.effort import EFFORT

pytestmark = pytest.mark.process


@pytest.mark.parametrize("compare_seconds", [ROUND_SECONDS, 600.0], ids=["round", "first use"])
def test_number_put_before_incr_is_refused_by_name(tmp_path: Path, compare_seconds: float) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=compare_seconds) as town:
        # The next round of a period of ten minutes comes after this test.
        until(lambda: all(town.status(name)["compared"]["rounds"] for name in town.names))
        town.past("eu", "SET", "fresh", "41")
        town.call("eu", "INCR", "fresh")
        until(lambda: "fresh" in town.status("eu")["differing"]["first"] or town.agree("fresh"))
        until(
            lambda: (
                town.agree("fresh", b"42")
                or all(
                    isinstance(v, ErrorReply) and "key b'fresh'" in v.text
                    for v in town.values("fresh")
                )
            )
        )
        assert town.status("eu")["changed_past_the_gateway"] >= 1


SEEN = frozenset({b"x", b"y"})
THREE = ("FLUSHDB", "RENAME", "SREM")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["DEL", "n"], {"n": [b"5"]}),
        (["DEL", "s"], {"s": [SEEN]}),
        (["FLUSHDB"], {"n": [b"5"], "s": [SEEN], "other": [b"1"]}),
        (["RENAME", "n", "m"], {"n": [b"5"]}),
        (["SADD", "s", "z"], {"s": [SEEN, SEEN | {b"z"}]}),
        (["SREM", "s", "x"], {"s": [SEEN]}),
        (["SET", "s", "text"], {"s": [SEEN]}),
        (["SET", "n", "text"], {"n": [b"5"]}),
        (["SET", "unknown", "7"], {"unknown": [b"7", None]}),
    ],
    ids=" ".join,
)
def test_direct_change_in_the_server_is_repaired(
    tmp_path: Path, words: list[str], expected: dict[str, list[Any]]
) -> None:
    """A removal, a flushed database and a renamed key in three regions, where two agree; the others in two."""
    names = ("eu", "us", "ap")[: 3 if words[0] in THREE or EFFORT.runs_slow else 2]
    with regions(tmp_path, *names) as town:
        town.call("us", "INCRBY", "n", "5")
        town.call("us", "SADD", "s", "x", "y")
        town.call("us", "INCR", "other")
        town.settle()
        town.past("eu", *words)
        for key, values in expected.items():
            until(lambda key=key, values=values: town.agree(key, *values))
        until(lambda: len(town.digests()) == 1)
        town.rounds()
        assert all(town.status(name)["differing"]["keys"] == 0 for name in names)
        assert sum(town.status(name)["changed_past_the_gateway"] for name in names) >= 1


def test_two_different_numbers_are_refused_until_repaired(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.past("eu", "SET", "n", "8")
        until(lambda: all(isinstance(value, ErrorReply) for value in town.values("n")))
        for words in (["INCR", "n"], ["GET", "n"], ["DEL", "n"], ["MGET", "m", "n"]):
            reply = town.call("us", *words)
            assert isinstance(reply, ErrorReply)
            assert "key b'n'" in reply.text and "crdtcast repair n --from NAME" in reply.text
        town.rounds()
        status = town.status("us")
        assert status["differing"] == {"keys": 1, "first": ["n"]}
        assert status["compared"]["found"] == {"disputed": 1}
        asked = town.call("eu", "CRDTCAST", "REPAIR", "n")
        assert isinstance(asked, ErrorReply) and "no majority" in asked.text
        town.call("eu", "CRDTCAST", "REPAIR", "n", "FROM", "us")
        until(lambda: town.agree("n", b"5"))
        assert town.call("us", "INCR", "n") == 6
        until(lambda: town.agree("n", b"6"))


def test_three_different_numbers_are_settled_from_one_member(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", "ap") as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.past("eu", "SET", "n", "8")
        town.past("us", "SET", "n", "9")
        until(lambda: len(set(town.values("n"))) == 1)
        if not town.agree("n"):  # a gateway may have mended the first before it met the second
            town.call("us", "CRDTCAST", "REPAIR", "n", "FROM", "ap")
        until(lambda: town.agree("n", b"5"))


def test_key_repaired_elsewhere_no_longer_counts_as_differing(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("eu", "SADD", "s", "x")
        town.settle()
        town.past("us", "DEL", "s")
        town.call("eu", "CRDTCAST", "REPAIR")
        assert town.status("eu")["differing"] == {"keys": 1, "first": ["s"]}
        until(lambda: town.agree("s"))
        town.call("eu", "CRDTCAST", "REPAIR")
        assert town.status("eu")["differing"]["keys"] == 0


def test_value_written_by_no_gateway_is_not_adopted(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("eu", "SADD", "s", "x")
        town.settle()
        town.past("eu", "DEL", "s")
        town.past("eu", "RPUSH", "s", "y")
        asked = town.call("us", "CRDTCAST", "REPAIR", "s", "FROM", "eu")
        assert (
            isinstance(asked, ErrorReply)
            and "eu holds a value that no gateway has written" in asked.text
        )
        assert town.call("us", "SMEMBERS", "s") == [b"x"]
        asked = town.call("us", "CRDTCAST", "REPAIR", "s", "FROM", "nowhere")
        assert isinstance(asked, ErrorReply) and "no linked member is called" in asked.text


def test_disputed_key_stays_refused_after_a_restart(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.past("eu", "SET", "n", "8")
        until(lambda: all(isinstance(value, ErrorReply) for value in town.values("n")))
        town.running["eu"].stop()
        town.start("eu", "us")
        assert isinstance(town.call("eu", "GET", "n"), ErrorReply)
        # A removal that is divided is refused whole, however late the key comes in it.
        town.call("eu", "INCR", "first")
        names = ["first", *(f"no-{number}" for number in range(MOST_KEYS)), "n"]
        assert isinstance(town.call("eu", "DEL", *names), ErrorReply)
        assert town.call("eu", "GET", "first") == b"1"
        town.call("us", "CRDTCAST", "REPAIR", "n", "FROM", "eu")
        until(lambda: town.agree("n", b"8"))


SETTLED_BY = {
    "round": [],
    "repair of the key at the refusing member": ["eu", "n"],
    "repair of all keys at another member": ["us"],
    "repair from the refusing member": ["us", "n", "FROM", "eu"],
}


@pytest.mark.parametrize("words", SETTLED_BY.values(), ids=SETTLED_BY)
def test_disputed_key_that_is_equal_again_is_settled(tmp_path: Path, words: list[str]) -> None:
    """The value is set back directly, and a member that refuses the key is restarted meanwhile."""
    with regions(tmp_path, "eu", "us", compare_seconds=0 if words else ROUND_SECONDS) as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.past("us", "SET", "n", "77")
        if words:
            town.call("us", "CRDTCAST", "REPAIR")
        until(lambda: all(isinstance(value, ErrorReply) for value in town.values("n")))
        town.running["eu"].stop()
        town.past("us", "SET", "n", "5")
        town.start("eu", "us")
        if words:
            for name in town.names:
                shown = verify(town, name)["different"][b"n"].values
                assert all("still refused" in shown[each] for each in town.names), shown
            name, *rest = words
            reply = town.call(name, "CRDTCAST", "REPAIR", *rest)
            assert not isinstance(reply, ErrorReply), reply
        until(lambda: town.agree("n", b"5"))
        assert town.call("eu", "INCR", "n") == 6
        assert not words or not verify(town, "us")["different"]


def verify(town: Gateways, name: str) -> dict[str, Any]:
    """What the gateway answers to `crdtcast verify`."""
    until(lambda: town.running[name].gateway.linked())
    found: list[dict[str, Any]] = []

    async def work() -> None:
        found.append(await town.running[name].gateway.rounds.verify())

    gateway = town.running[name]
    gateway.call(lambda: gateway.gateway.spawn(work))
    until(lambda: found)
    return found[0]


def test_type_that_is_not_replicated_is_named_and_kept(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "INCR", "n")
        town.settle()
        town.past("eu", "RPUSH", "list", "x")
        until(lambda: "list" in town.status("eu")["not_replicated"]["first"])
        assert town.past("eu", "LRANGE", "list", "0", "-1") == [b"x"]
        town.rounds()
        assert town.status("eu")["put_right"] == 0


def test_unreplicated_keys_have_the_same_counts_in_every_report(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("us", "INCR", "n")
        town.call("us", "SADD", "s", "x")
        town.settle()
        town.past("eu", "XADD", "stream", "1", "f", "x")
        town.past("eu", "RPUSH", "list", "x")
        town.past("us", "RPUSH", "other", "x")
        for key in ("stream", "both"):
            town.past("us", "XADD", key, "2", "f", "x")
        town.past("eu", "XADD", "both", "2", "f", "x")
        expected = {
            "eu": {"stream": 2, "list": 1},
            "us": {"stream": 2, "list": 1},
        }
        for name in town.names:
            told = json.loads(town.call(name, "CRDTCAST", "REPAIR"))
            assert (told["found"], told["left"]) == ({}, [])
            assert told["not_replicated"] == expected
            assert town.status(name)["not_replicated"]["keys"] == expected[name]
            verified = json.loads(town.call(name, "CRDTCAST", "VERIFY"))
            assert verified["not_replicated"] == expected[name]
        assert set(town.status("us")["not_replicated"]["first"]) == {"stream", "both", "other"}


def test_long_texts_are_examined_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[int] = []
    examine = KeyComparison._examine_whole

    async def counted(self: KeyComparison, keys: Any, **options: Any) -> Any:
        examined.append(len(keys))
        return await examine(self, keys, **options)

    monkeypatch.setattr(comparison, "PAGE_BYTES", 2500)
    monkeypatch.setattr(KeyComparison, "_examine_whole", counted)
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        for n in range(5):
            town.call("us", "SET", f"t{n}", f"{n}" * 1000)
        town.call("us", "SET", "long", "x" * 4000)
        town.settle()
        for key in (*(f"t{n}" for n in range(5)), "long"):
            town.past("eu", "SET", key, "other" * 200)
        town.call("eu", "CRDTCAST", "REPAIR", "FROM", "us")
        assert max(examined) == 2 and sum(examined) >= 6
        assert town.past("eu", "GET", "long") == b"x" * 4000
        assert len(town.digests()) == 1


def test_deadline_changed_in_the_server_is_repaired(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("us", "SET", "k", "5", "EX", "1000")
        town.call("us", "SADD", "s", "x")
        town.settle()
        until_ = town.past("us", "PEXPIRETIME", "k")
        town.past("eu", "PERSIST", "k")
        town.past("eu", "EXPIRE", "s", "1000")
        told = json.loads(town.call("eu", "CRDTCAST", "REPAIR"))
        assert told["found"]["put right here"] == 1
        until(lambda: town.past("eu", "PEXPIRETIME", "k") == until_)
        until(lambda: town.past("us", "PEXPIRETIME", "s") == town.past("eu", "PEXPIRETIME", "s"))


def test_key_whose_deadline_is_near_is_left_alone(tmp_path: Path) -> None:
    """One server may have dropped it already, and another not."""
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        town.call("us", "SADD", "s", "x")
        town.settle()
        town.past("eu", "PEXPIRE", "s", "1200")
        told = json.loads(town.call("us", "CRDTCAST", "REPAIR"))
        assert told["found"] in ({}, {"equal": 1}) and not told["left"]


def test_list_in_the_place_of_a_set_is_kept_aside(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "SADD", "s", "x", "y")
        town.settle()
        town.past("eu", "DEL", "s")
        town.past("eu", "RPUSH", "s", "mine")
        until(lambda: town.agree("s", SEEN))
        with RawClient(town.servers["eu"].port, PATIENCE) as client:
            client.call("SELECT", "15")
            assert client.call("LRANGE", "foreign:s", "0", "-1") == [b"mine"]
            client.call("DEL", "foreign:s")


def test_flushed_region_is_repaired_on_request(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        with RawClient(town.running["us"].port, PATIENCE) as client:
            client.pipeline([("SADD", f"s{n}", "x", f"{n}") for n in range(1500)])
            client.pipeline([("INCRBY", f"n{n}", f"{n}") for n in range(300)])
        town.settle()
        town.past("eu", "FLUSHDB")
        assert len(town.digests()) == 2
        told = json.loads(town.call("eu", "CRDTCAST", "REPAIR"))
        assert told["found"] == {"put right here": 1800} and not told["left"]
        assert len(town.digests()) == 1
        again = json.loads(town.call("eu", "CRDTCAST", "REPAIR"))
        nothing: dict[str, Any] = {"eu": {}, "us": {}}
        assert again == {"keys": 1800, "found": {}, "left": [], "not_replicated": nothing}


def test_fixed_members_find_and_repair_direct_changes(tmp_path: Path) -> None:
    with LocalCluster(
        tmp_path, ("a", "b", "c"), group="g", arguments=("--compare-seconds", "0.3")
    ) as cluster:
        a = cluster["a"]
        with RawClient(a.gateway.port, PATIENCE) as client:
            client.call("SADD", "s", "x", "y")
            client.call("INCRBY", "n", "5")
            cluster.wait_equal(cluster.names, quiet=True, timeout=60)
            with RawClient(cluster["b"].server.port, PATIENCE) as server:
                server.call("FLUSHDB")
                until(lambda: server.call("GET", "n") == b"5")
                until(lambda: server.call("SCARD", "s") == 2)
                server.call("SET", "n", "8")
                until(lambda: server.call("GET", "n") == b"5")
            until(lambda: cluster["b"].status()["put_right"] >= 3)
            told = json.loads(client.call("CRDTCAST", "REPAIR"))
            assert told["keys"] == 2 and told["left"] == []


def test_failed_page_does_not_stop_the_comparison_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = KeyComparison.answer

    async def fails(self: KeyComparison, question: bytes) -> bytes:
        if b"page" in question and b"bad" in question:
            raise NotReadyError("planted")
        return await answer(self, question)

    monkeypatch.setattr(KeyComparison, "answer", fails)
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "INCR", "bad")
        with RawClient(town.running["eu"].port, PATIENCE) as client:
            client.pipeline([("INCR", f"n{number}") for number in range(3000)])
        town.settle()
        town.rounds(1)
        until(lambda: 0 < town.status("eu")["compared"]["left_out"] < 1500)
        town.past("us", "DEL", *(f"n{number}" for number in range(0, 3000, 30)))
        until(lambda: town.past("us", "DBSIZE") > 2930)


def test_number_waits_while_a_member_that_decides_is_away(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", "ap") as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.running["ap"].stop()
        town.past("eu", "SET", "n", "8")
        until(lambda: "n" in town.status("us")["differing"]["first"])
        until(lambda: "waits for a member that is away" in town.status("us")["compared"]["found"])
        assert [town.call("eu", "GET", "n"), town.call("us", "GET", "n")] == [b"8", b"5"]
        assert town.status("us")["changed_past_the_gateway"] == 1
        town.start("ap", "us")
        until(lambda: town.agree("n", b"5"))


def test_full_server_repairs_nothing(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", "ap", compare_seconds=0, own_servers="always") as town:
        town.call("us", "SADD", "s", "x", "y")
        town.settle()
        with RawClient(town.servers["eu"].port, PATIENCE) as server:
            server.call("SELECT", "9")
            server.call("SET", "ballast", "x" * (20 << 20))

            def is_full() -> bool:
                info = server.call("INFO", "memory")
                assert isinstance(info, bytes)
                used = int(info.split(b"used_memory:")[1].split()[0])  # buffers included, which go
                server.call("CONFIG", "SET", "maxmemory", str(int(used * 1.03)))
                return "remove data" in str(town.call("eu", "INCR", "n"))

            until(is_full)
            town.past("eu", "DEL", "s")
            asked = town.call("eu", "CRDTCAST", "REPAIR", "s")
            assert isinstance(asked, ErrorReply) and "has no room" in asked.text
            assert town.past("eu", "EXISTS", "s") == 0
            assert town.status("eu")["put_right"] == 0
            assert town.status("eu")["differing"]["first"] == ["s"]
            server.call("CONFIG", "SET", "maxmemory", "0")
        until(lambda: not isinstance(town.call("eu", "INCR", "n"), ErrorReply))
        town.call("eu", "CRDTCAST", "REPAIR", "s")
        until(lambda: town.agree("s", SEEN))


def test_keys_of_first_use_are_compared_at_most_200_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    page = KeyComparison.page

    async def counted(self: KeyComparison, peer: str, looks: Any) -> list[bytes]:
        compared.append(len(looks))
        return await page(self, peer, looks)

    with regions(tmp_path, "eu", "us", compare_seconds=600) as town:
        keys = [f"n{number}" for number in range(600)]
        with RawClient(town.running["us"].port, PATIENCE) as client:
            client.pipeline([("INCR", key) for key in keys])
        town.settle()
        town.running["eu"].stop()
        town.start("eu", "us")  # so that it has to look up what these keys are
        until(lambda: all(town.status(name)["compared"]["rounds"] for name in town.names))
        monkeypatch.setattr(KeyComparison, "page", counted)
        with RawClient(town.running["eu"].port, PATIENCE) as client:
            client.pipeline([("INCR", key) for key in keys])
        until(lambda: compared)
        assert max(compared) == 200


def test_lone_member_keeps_an_overwritten_key_on_request(tmp_path: Path) -> None:
    with regions(tmp_path, "eu") as town:
        town.call("eu", "SADD", "s", "x")
        town.settle()  # what is stable is in the server only
        town.past("eu", "SET", "s", "text")
        town.call("eu", "SADD", "s", "y")
        assert isinstance(town.call("eu", "SMEMBERS", "s"), ErrorReply)
        asked = town.call("eu", "CRDTCAST", "REPAIR", "s")
        assert isinstance(asked, ErrorReply) and "no other member is linked" in asked.text
        town.call("eu", "CRDTCAST", "REPAIR", "s", "FROM", "eu")
        # The write that met the text is kept, as its answer says; what was overwritten is nowhere.
        assert town.call("eu", "SMEMBERS", "s") == [b"y"]
        town.start("us", "eu")
        assert town.call("us", "SMEMBERS", "s") == [b"y"]


def test_disputed_key_does_not_keep_an_evicted_member_out(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("eu", "INCRBY", "n", "5")
        town.settle()
        town.past("eu", "SET", "n", "8")
        until(lambda: all(isinstance(value, ErrorReply) for value in town.values("n")))
        town.running["us"].stop()
        town.call("eu", "CRDTCAST", "EVICT", "us", "FORCE")
        until(lambda: town.members("eu") == ["eu"])
        town.start("us", "eu")
        until(lambda: town.agree("n", b"8"))


def test_key_of_a_large_set_comes_in_pages(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us", compare_seconds=0) as town:
        members = [f"{n:04}" + "x" * 2000 for n in range(2000)]
        with RawClient(town.running["us"].port, PATIENCE) as client:
            client.pipeline([("SADD", "s", *members[n : n + 100]) for n in range(0, 2000, 100)])
        town.settle()
        town.past("eu", "DEL", "s")
        json.loads(town.call("eu", "CRDTCAST", "REPAIR", "s"))
        assert town.past("eu", "SCARD", "s") == 2000
        assert len(town.digests()) == 1


def test_hidden_set_is_repaired_with_its_number(tmp_path: Path) -> None:
    with regions(tmp_path, "eu", "us") as town:
        town.call("us", "CRDTCAST", "CUT", "eu")
        town.call("eu", "CRDTCAST", "CUT", "us")
        town.call("eu", "SADD", "k", "x")
        town.call("us", "INCR", "k")
        town.call("us", "CRDTCAST", "HEAL", "eu")
        town.call("eu", "CRDTCAST", "HEAL", "us")
        town.settle()
        until(lambda: len(town.digests()) == 1)
        town.past("eu", "DEL", "k")
        until(lambda: town.agree("k", b"1"))
        until(lambda: town.status("eu")["hidden_keys"] == 1)
        with RawClient(town.servers["eu"].port, PATIENCE) as client:
            client.call("SELECT", "15")
            assert client.call("SMEMBERS", "hidden:set:k") == [b"x"]
