"""Programs of two versions in one group of gateways: upgrades lose nothing, and what cannot be read is not sent."""

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster, Region
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.settings import GatewaySettings
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.effects import (
    READS,
    KillKey,
    One,
    Opcode,
    RedisType,
    UnreadableError,
    decode,
    encode,
)
from crdtcast.eventlog.check import check_logs
from crdtcast.eventlog.format import EventKind
from crdtcast.exceptions import ConfigurationError, ServerError
from crdtcast.ports import free_ports
from tests.adapters.redis.gateways import until
from tests.log_reader import LogReader
from tests.preloaded import crdtcast

LATER = (str(Path(__file__).with_name("later_program.py")),)
BROKEN = (*LATER, "broken")
TODAY = ("-m", "crdtcast")
NOW = effects.READS.highest
NEXT = NOW + 1
"""The level of the later program."""
AS_BEFORE = ("--format-level", f"{NOW}")
"""The later program begins with the level of the older one."""
TIMEOUT = 60.0
PAUSE = 0.05
"""Seconds between the writes of a client: a load, not a benchmark."""


def restart(region: Region, program: tuple[str, ...], *, wait: bool = True) -> None:
    """Stop a gateway in order, and start another program in its place."""
    region.close()
    region.gateway.stop()
    region.gateway.program = program
    region.gateway.launch()
    if wait:
        region.gateway.wait_ready()


def call(region: Region, *words: str) -> Any:
    with RawClient(region.gateway.port, TIMEOUT) as client:
        return client.call(*words)


def refusal(region: Region, *words: str) -> str:
    """The text of the error that a command is answered with."""
    reply = call(region, *words)
    assert isinstance(reply, ErrorReply), reply
    return str(reply.text)


def format_of(region: Region) -> dict[str, Any]:
    told = region.status()["format"]
    assert isinstance(told, dict)
    return told


def operator(cluster: LocalCluster, name: str, *words: str, code: int = 0) -> str:
    """What `crdtcast …` prints, asked of that gateway."""
    place = str(cluster.socket_of(name))
    ran = crdtcast(*words, "--admin", place)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def ends_with(region: Region) -> str:
    """What a gateway says that does not start."""
    with pytest.raises(ServerError) as caught:
        region.gateway.wait_ready()
    region.gateway.forget_process()
    return str(caught.value)


def verify(cluster: LocalCluster, names: Iterable[str]) -> None:
    """All hold the same, all of it is stable, and their keys are equal."""
    cluster.wait_equal(names, quiet=True, timeout=TIMEOUT)
    told = {name: json.loads(cluster[name].command("VERIFY")) for name in names}
    assert len({(each["keys"], each["digest"]) for each in told.values()}) == 1, told


class Writer:
    """A client of one region that writes until `stop`, and goes on where its gateway is started again.

    total: increments that were answered. unsure: those whose answer never came.
    """

    def __init__(self, region: Region) -> None:
        self.total = self.unsure = 0
        self.later: set[str] = set()
        """Members that SADDLATER has added."""
        self.refused: set[str] = set()
        self._region = region
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        name, number = self._region.name, 0
        while not self._stopping.is_set():
            try:
                with RawClient(self._region.gateway.port, TIMEOUT) as client:
                    while not self._stopping.is_set():
                        number += 1
                        member = f"{name}{number}"
                        self.unsure += 1
                        replies = client.pipeline(
                            [
                                ("INCR", "n"),
                                ("SADD", f"s{number % 7}", member),
                                ("SADDLATER", "later", member),
                                ("SREM", f"s{number % 7}", f"{name}{number - 20}"),
                            ]
                        )
                        self.unsure -= 1
                        self.total += not isinstance(replies[0], ErrorReply)
                        if isinstance(replies[2], ErrorReply):
                            self.refused.add(str(replies[2].text))
                        else:
                            self.later.add(member)
                        self._stopping.wait(PAUSE)
            except (ServerError, OSError):
                self._stopping.wait(0.05)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[OpenCluster]:
    with OpenCluster(tmp_path, "abc", group="g", appendfsync="always") as cluster:
        yield cluster


@pytest.mark.process
def test_rolling_upgrade_under_load_loses_nothing(three: OpenCluster) -> None:
    cluster = three
    writers = [Writer(cluster[name]) for name in "abc"]
    restart(cluster["a"], LATER)
    until(
        lambda: any(f"SADDLATER needs format level {NEXT}" in text for text in writers[0].refused)
    )
    text = next(text for text in writers[0].refused if "SADDLATER needs" in text)
    assert (
        f"upgrade b (reads level {READS}), c (reads level {READS}), then run `crdtcast raise`"
        in text
    )
    assert any("unknown command" in text for text in writers[1].refused)

    cluster["c"].close()
    cluster["c"].gateway.kill()  # away in the middle
    restart(cluster["b"], LATER)
    restart(cluster["b"], LATER)
    later = cluster.begin("d", through="b")
    later.gateway.wait_ready()
    assert f"upgrade or evict c (reads {READS})" in operator(
        cluster, "a", "raise", f"{NEXT}", code=2
    )
    status = operator(cluster, "a", "status")
    assert f"format level {NOW}; some members read {NEXT}: upgrade c, d to use it" in status

    restart(cluster["d"], LATER)
    cluster["c"].gateway.program = LATER
    cluster["c"].gateway.launch()
    cluster["c"].gateway.wait_ready()
    until(lambda: not format_of(cluster["a"])["lacking"])
    assert format_of(cluster["a"])["level"] == NOW
    assert f"the group now uses format level {NEXT}" in operator(cluster, "a", "raise")
    for name in "abcd":
        until(lambda name=name: format_of(cluster[name])["level"] == NEXT)
    until(lambda: all(writer.later for writer in writers))
    for writer in writers:
        writer.stop()

    verify(cluster, "abcd")
    total, unsure = sum(w.total for w in writers), sum(w.unsure for w in writers)
    assert total <= int(call(cluster["d"], "GET", "n")) <= total + unsure
    members = {member.decode() for member in call(cluster["d"], "SMEMBERS", "later")}
    assert set().union(*(writer.later for writer in writers)) <= members

    restart(cluster["b"], TODAY, wait=False)
    said = ends_with(cluster["b"])
    assert f"format level {NEXT}" in said and "this one changed nothing" in said
    old = cluster.begin("e", through="a")
    assert f"the program of e reads level {READS}" in ends_with(old)
    restart(cluster["b"], LATER)
    verify(cluster, "abcd")


@pytest.mark.process
def test_every_member_may_go_back_before_a_raise(three: OpenCluster) -> None:
    cluster = three
    writers = [Writer(cluster[name]) for name in "abc"]
    for program, highest in ((LATER, NEXT), (TODAY, NOW)):
        for name in "abc":
            restart(cluster[name], program)
        until(lambda highest=highest: format_of(cluster["a"])["raisable"] == highest)
    for writer in writers:
        writer.stop()
        assert not writer.later
    verify(cluster, "abc")
    total, unsure = sum(w.total for w in writers), sum(w.unsure for w in writers)
    assert total <= int(call(cluster["a"], "GET", "n")) <= total + unsure


def wants(cluster: LocalCluster, name: str) -> dict[str, Any]:
    """What that member is to bring about, and whom it waits for."""
    told = json.loads(operator(cluster, name, "status", "--json"))["view"]["wanted"]
    return told or {}


@pytest.mark.process
def test_older_program_delays_a_level_raise_and_keeps_writing(three: OpenCluster) -> None:
    cluster = three
    for name in "abc":
        restart(cluster[name], LATER)
    verify(cluster, "abc")
    cluster.isolate("c")
    restart(cluster["c"], TODAY)  # its word does not get through: the others have cut it
    cluster["a"].command("RAISE", f"{NEXT}")
    cluster.rejoin("c")
    until(lambda: format_of(cluster["a"])["lacking"])
    until(lambda: wants(cluster, "a")["waits_for"] == ["c"])
    assert call(cluster["c"], "INCR", "n") == 1
    assert call(cluster["a"], "SADD", "s", "x") == 1
    assert {format_of(region)["level"] for region in cluster} == {NOW}
    said = operator(cluster, "a", "status")
    assert f"REQUESTED by this node: raise the format level to {NEXT}" in said

    restart(cluster["c"], LATER)
    for name in "abc":
        until(lambda name=name: format_of(cluster[name])["level"] == NEXT)
    assert call(cluster["c"], "SADDLATER", "later", "x") == 1
    verify(cluster, "abc")
    assert call(cluster["c"], "GET", "n") == b"1"


@pytest.mark.process
@pytest.mark.parametrize("kind", [OpenCluster, LocalCluster])
def test_payload_of_a_broken_member_is_refused_by_name(
    tmp_path: Path, kind: type[LocalCluster]
) -> None:
    with kind(tmp_path, "abc", group="g", appendfsync="always") as cluster:
        restart(cluster["c"], BROKEN)
        assert call(cluster["c"], "INCR", "n") == 1
        verify(cluster, "abc")
        with RawClient(cluster["c"].gateway.port, TIMEOUT) as client:
            assert client.pipeline([("INCR", "n"), ("SADDLATER", "s", "x")]) == [2, 1]
        for name in "ab":
            until(lambda name=name: format_of(cluster[name])["unreadable"])
            told = format_of(cluster[name])["unreadable"]["c"]
            assert "unknown effect" in told["error"]
            log = cluster[name].gateway.log.read_text()
            assert log.count("of c, although its group") == 1
            assert call(cluster[name], "GET", "n") == b"1"
        call(cluster["a"], "SADD", "t", "y")
        until(lambda: call(cluster["b"], "SISMEMBER", "t", "y"))
        if kind is LocalCluster:
            return
        # Nothing of it is lost: cut off, it comes back and sends again what the others could not read, as they can.
        cluster["c"].gateway.kill()
        assert json.loads(operator(cluster, "a", "evict", "c", "--json"))["members"] == ["a", "b"]
        cluster["c"].close()
        cluster["c"].gateway.launch()
        cluster["c"].gateway.wait_ready()
        until(lambda: call(cluster["a"], "GET", "n") == b"2")
        verify(cluster, "abc")
        assert not format_of(cluster["a"])["unreadable"]


class LaterCluster(OpenCluster):
    """A group of the later program, which begins at the level of the older one."""

    def begin(self, name: str, *, program: tuple[str, ...] = LATER, **options: Any) -> Region:
        if not self.regions:
            options["arguments"] = AS_BEFORE
        return super().begin(name, program=program, **options)


def fill(cluster: OpenCluster, keys: int) -> None:
    with RawClient(cluster["a"].gateway.port, TIMEOUT) as client:
        client.pipeline([("SADD", f"s{number}", "x") for number in range(keys)])
    verify(cluster, "abc")


@pytest.fixture
def later(tmp_path: Path) -> Iterator[LaterCluster]:
    """Three members with a few keys; their event logs are checked."""
    logs = tmp_path / "logs"
    with LaterCluster(
        tmp_path, "abc", group="g", appendfsync="always", log_directory=logs
    ) as cluster:
        fill(cluster, 50)
        until(lambda: format_of(cluster["a"])["raisable"] == NEXT)
        yield cluster
    assert not check_logs([logs]).violations


def in_force(cluster: OpenCluster, names: Iterable[str]) -> None:
    for name in names:
        until(lambda name=name: format_of(cluster[name])["level"] == NEXT)
    assert call(cluster["c"], "SADDLATER", f"later-{len(cluster.names)}", "x") == 1
    verify(cluster, names)


def level_lines(cluster: OpenCluster) -> set[tuple[str, int | None]]:
    """Which member tells that a change of view has raised the level to what."""
    assert cluster.log_directory is not None
    return {
        (event.replica, event.level)
        for event in LogReader(cluster.log_directory)
        if event.kind == EventKind.VIEW and event.level is not None
    }


@pytest.mark.process
def test_event_logs_tell_when_the_level_rose(later: LaterCluster) -> None:
    later["b"].command("RAISE", f"{NEXT}")
    in_force(later, "abc")
    until(lambda: level_lines(later) == {(name, NEXT) for name in "abc"})


def state_of(pid: int) -> str:
    """A process's state, as the kernel calls it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("point", "program"),
    [
        pytest.param("copy-slice-written", LATER, id="slice-later", marks=pytest.mark.slow),
        pytest.param("copy-page-written", TODAY, id="page-older"),
        pytest.param("copy-slice-written", TODAY, id="slice-older", marks=pytest.mark.slow),
        pytest.param("copy-page-written", LATER, id="page-later", marks=pytest.mark.slow),
    ],
)
def test_level_that_rises_in_the_middle_of_a_copy(
    later: LaterCluster, program: tuple[str, ...], point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joiner stops by itself behind its second slice, or page; the raise is decided meanwhile."""
    fill(later, 2500)
    call(later["a"], "SET", "long", "x" * 5_000_000)
    monkeypatch.setenv("CRDTCAST_CRASH_AT", f"{point}:2:STOP")
    joiner = later.begin("d", through="b", program=program)
    monkeypatch.delenv("CRDTCAST_CRASH_AT")
    assert joiner.gateway.process is not None
    pid = joiner.gateway.process.pid
    until(lambda: state_of(pid) == "T")  # stopped
    later["a"].command("RAISE", f"{NEXT}")
    for name in "abc":
        until(lambda name=name: format_of(later[name])["level"] == NEXT)
    os.kill(pid, signal.SIGCONT)
    if program is TODAY:
        assert f"the program of d reads level {READS}" in ends_with(joiner)
        joiner.gateway.program = LATER
        joiner.gateway.launch()
    joiner.gateway.wait_ready()
    in_force(later, "abcd")


@pytest.mark.process
def test_level_raise_while_the_source_of_a_page_is_away(
    later: LaterCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies behind its second page, and the raise is decided before it is back."""
    call(later["a"], "SET", "long", "x" * 5_000_000)
    later["b"].close()
    later["b"].gateway.stop()
    monkeypatch.setenv("CRDTCAST_CRASH_AT", "copy-page-read:2")
    later["b"].gateway.launch()
    monkeypatch.delenv("CRDTCAST_CRASH_AT")
    later["b"].gateway.wait_ready()
    joiner = later.begin("d", through="b", program=LATER)
    process = later["b"].gateway.process
    assert process is not None
    assert process.wait(TIMEOUT) == -9
    later["b"].gateway.forget_process()
    later["a"].command("RAISE", f"{NEXT}")
    until(lambda: wants(later, "a")["waits_for"] == ["b"])
    later["b"].gateway.launch()
    later["b"].gateway.wait_ready()
    joiner.gateway.wait_ready()
    assert call(joiner, "STRLEN", "long") == 5_000_000
    in_force(later, "abcd")


@pytest.mark.process
@pytest.mark.parametrize("crashed", ["a", "b"], ids=["raiser", "another"])
def test_raise_that_waits_survives_a_crash(later: LaterCluster, crashed: str) -> None:
    later.isolate("c")
    later["a"].command("RAISE", f"{NEXT}")
    until(lambda: "c" in wants(later, "a")["waits_for"])
    for kill in (later[crashed].gateway.kill, later[crashed].server.kill):
        kill()
    later[crashed].close()
    later[crashed].server.restart()
    later[crashed].gateway.launch()
    later[crashed].gateway.wait_ready()
    assert {name: format_of(later[name])["level"] for name in "abc"} == dict.fromkeys("abc", NOW)
    assert wants(later, "a")["level"] == NEXT
    said = refusal(later[crashed], "SADDLATER", "later", "y")
    assert f"SADDLATER needs format level {NEXT}, and the group uses {NOW}" in said
    for other in "ab":
        later[other].command("HEAL", "c")
        later["c"].command("HEAL", other)
    in_force(later, "abc")


@pytest.mark.process
@pytest.mark.parametrize("point", ["join-about-to-be-asked", "join-finished"])
def test_joiner_that_crashes_while_a_raise_is_pending(
    later: LaterCluster, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later.isolate("c")
    later["a"].command("RAISE", f"{NEXT}")
    until(lambda: "c" in wants(later, "a")["waits_for"])
    monkeypatch.setenv("CRDTCAST_CRASH_AT", point)
    joiner = later.begin("d", through="b", program=LATER)
    monkeypatch.delenv("CRDTCAST_CRASH_AT")
    assert joiner.gateway.process is not None
    assert joiner.gateway.process.wait(TIMEOUT) == -9
    joiner.gateway.forget_process()
    joiner.gateway.launch()
    joiner.gateway.wait_ready()
    assert format_of(joiner)["level"] == NOW
    for other in "ab":
        later[other].command("HEAL", "c")
        later["c"].command("HEAL", other)
    in_force(later, "abcd")


@pytest.mark.process
def test_group_raises_its_level_by_itself_after_a_while(tmp_path: Path) -> None:
    with OpenCluster(
        tmp_path, "ab", group="g", appendfsync="always", arguments=("--raise-after", "0.5")
    ) as cluster:
        for name in "ab":
            restart(cluster[name], LATER)
        for name in "ab":
            until(lambda name=name: format_of(cluster[name])["level"] == NEXT)


@pytest.mark.process
def test_fixed_gateways_of_other_levels_refuse_each_other(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, "ab", group="g") as cluster:
        cluster["a"].gateway.arguments += AS_BEFORE
        restart(cluster["a"], LATER)
        assert f"start all gateways of the group with --format-level {NEXT}" in refusal(
            cluster["a"], "SADDLATER", "s", "x"
        )
        with RawClient(cluster["a"].gateway.port, TIMEOUT) as client:
            executed = client.pipeline(
                [("MULTI",), ("INCR", "n"), ("SADDLATER", "s", "x"), ("INCR", "n"), ("EXEC",)]
            )[-1]
            assert isinstance(executed, ErrorReply)
            assert executed.text.startswith("EXECABORT")
            assert f"needs format level {NEXT}" in executed.text
            assert client.call("GET", "n") is None, "it is refused whole"
        assert call(cluster["a"], "SADD", "s", "x") == 1
        verify(cluster, "ab")  # the later program sends what the older one reads

        cluster["a"].gateway.arguments[-1] = f"{NEXT}"
        restart(cluster["a"], LATER)
        assert call(cluster["a"], "SADDLATER", "s", "y") == 1
        for here, there in ("ab", "ba"):
            link: dict[str, Any] = {}

            def refused(here: str = here, there: str = there, link: dict[str, Any] = link) -> bool:
                link.update(cluster[here].status()["links"][there])
                return link["state"] == "refused"

            until(refused)
            assert f"the program of node 'b' reads level {READS}: upgrade 'b'" in link["error"]

        cluster["b"].gateway.arguments += AS_BEFORE
        restart(cluster["b"], LATER)
        until(
            lambda: (
                f"start 'b' with --format-level {NEXT}" in str(cluster["b"].status()["links"]["a"])
            )
        )
        cluster["b"].gateway.arguments[-1] = f"{NEXT}"
        restart(cluster["b"], LATER)
        verify(cluster, "ab")
        assert sorted(call(cluster["b"], "SMEMBERS", "s")) == [b"x", b"y"]

        cluster["b"].gateway.arguments[-1] = f"{NOW}"
        restart(cluster["b"], LATER, wait=False)
        assert "the level of a group cannot fall" in ends_with(cluster["b"])
        cluster["b"].gateway.arguments[-1] = f"{NEXT}"
        restart(cluster["b"], TODAY, wait=False)
        assert f"this gateway's program reads level {READS}" in ends_with(cluster["b"])


@pytest.mark.process
def test_sorted_sets_need_the_level_that_added_them(tmp_path: Path) -> None:
    """Meanwhile all else goes on, also what copies values of any type."""
    logs = tmp_path / "logs"
    with OpenCluster(tmp_path, (), group="g", appendfsync="always", log_directory=logs) as cluster:
        cluster.add("a", arguments=("--format-level", "2"))
        cluster.add("b")
        assert format_of(cluster["b"])["level"] == 2
        for words in (
            *(["ZADD", "z", "1", "x"], ["ZINCRBY", "z", "1", "x"], ["ZPOPMIN", "z"]),
            *(["GEOADD", "z", "0", "0", "x"], ["ZUNIONSTORE", "u", "1", "z"]),
            ["GEORADIUS", "z", "0", "0", "1", "m", "STORE", "u"],
        ):
            assert "needs format level 3, and the group uses 2" in refusal(cluster["b"], *words)
        assert call(cluster["b"], "GEORADIUS", "z", "0", "0", "1", "m") == []
        assert call(cluster["a"], "SET", "k", "x") == b"OK"
        assert call(cluster["a"], "RENAME", "k", "l") == b"OK"
        with RawClient(cluster["a"].server.port, TIMEOUT) as server:
            server.call("ZADD", "past", "1", "x")
        refused = call(cluster["a"], "COPY", "past", "other")
        assert isinstance(refused, ErrorReply) and "type zset is not replicated" in refused.text
        with RawClient(cluster["a"].server.port, TIMEOUT) as server:
            server.call("DEL", "past")
        assert "the group now uses format level 3" in operator(cluster, "a", "raise")
        for name in "ab":
            until(lambda name=name: format_of(cluster[name])["level"] == 3)
        assert call(cluster["b"], "ZADD", "z", "GT", "1", "x") == 1
        assert call(cluster["a"], "ZINCRBY", "n", "2", "x") == b"2"
        verify(cluster, "ab")
        assert call(cluster["a"], "ZSCORE", "z", "x") == b"1"
    assert not check_logs([logs]).violations


@pytest.mark.process
def test_strings_and_hashes_need_the_level_that_added_them(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with OpenCluster(tmp_path, (), group="g", appendfsync="always", log_directory=logs) as cluster:
        cluster.add("a", arguments=("--format-level", "1"))
        cluster.add("b")
        assert format_of(cluster["b"])["level"] == 1
        assert call(cluster["a"], "INCR", "n") == 1
        for words in (["SET", "n", "x"], ["MSET", "n", "1"], ["HSET", "h", "f", "1"]):
            said = refusal(cluster["b"], *words)
            assert f"{words[0]} needs format level 2, and the group uses 1" in said
            assert "all members read it: run `crdtcast raise`" in said
        assert "HINCRBY needs format level 2" in refusal(cluster["a"], "HINCRBY", "h", "f", "1")
        with RawClient(cluster["a"].gateway.port, TIMEOUT) as client:
            whole = [("MULTI",), ("INCR", "n"), ("HDEL", "h", "f"), ("EXEC",)]
            executed = client.pipeline(whole)[-1]
            assert isinstance(executed, ErrorReply) and "needs format level 2" in executed.text
        assert call(cluster["b"], "GET", "n") == b"1"
        assert "the group now uses format level 2" in operator(cluster, "a", "raise", "2")
        for name in "ab":
            until(lambda name=name: format_of(cluster[name])["level"] == 2)
        assert call(cluster["b"], "SET", "n", "x") == b"OK"
        assert call(cluster["a"], "HINCRBY", "h", "f", "2") == 2
        verify(cluster, "ab")
        assert call(cluster["a"], "GET", "n") == b"x"
    assert not check_logs([logs]).violations


# Payloads


def test_payload_has_the_lowest_level_of_its_effects() -> None:
    payload = encode(7, [KillKey(b"k"), One(b"k", RedisType.SET, (b"m",))])
    assert msgpack.unpackb(payload)[0] == 1
    assert decode(payload) == (7, [KillKey(b"k"), One(b"k", RedisType.SET, (b"m",))])


def test_every_effect_has_a_level() -> None:
    assert {opcode for opcode, _ in effects.LEVELS} == set(Opcode)
    assert effects.READS.highest == max(effects.LEVELS.values())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb(None),
        msgpack.packb([]),
        msgpack.packb([NEXT, 7, []]),
        msgpack.packb([0, 7, []]),
        msgpack.packb([True, 7, []]),
        msgpack.packb([1, "7", []]),
        msgpack.packb([1, 7, 5]),
        msgpack.packb([1, 7, [[99, b"k"]]]),
        msgpack.packb([1, 7, [[]]]),
        msgpack.packb([1, 7, [[1, b"k", RedisType.LIST, [b"m"]]]]),
        msgpack.packb([1, 7, [[2, b"k", RedisType.STRING, "x"]]]),
    ],
)
def test_payload_that_cannot_be_read_is_refused(payload: bytes) -> None:
    with pytest.raises(UnreadableError):
        decode(payload)


def test_format_level_is_for_fixed_members_and_founders(tmp_path: Path) -> None:
    settings = GatewaySettings(
        name="a", state_dir=str(tmp_path), join=("127.0.0.1:1",), format_level=1
    )
    assert any(
        "format_level is for fixed members and founders" in line for line in settings.wrong()
    )


def test_format_level_beyond_the_program_is_refused(tmp_path: Path) -> None:
    from crdtcast.adapters.redis.gateway import Gateway

    settings = GatewaySettings(
        name="a",
        state_dir=str(tmp_path),
        peer=(f"b=127.0.0.1:{free_ports(1)[0]}",),
        format_level=NEXT,
    )
    with pytest.raises(ConfigurationError, match=f"this gateway's program reads level {READS}"):
        Gateway(settings.gateway_options())
