"""A rule of recorded commands that is left out shows where a server loses a tail (docs/redis-recorded.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import PROGRAM, LocalCluster, OpenCluster, Region
from crdtcast.adapters.redis.recorded.answer import ParkedRecord
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.eventlog.check import check_logs
from crdtcast.eventlog.format import Event, EventKind
from crdtcast.exceptions import ServerError
from tests import servers
from tests.adapters.redis.gateways import PATIENCE, Gateways, RunningGateway, call, gateway, until
from tests.adapters.redis.proxy import ProxiedConnection, Proxy
from tests.adapters.redis.test_crashes import append_only_file, dying_at
from tests.adapters.redis.test_members import cut_off, evicted_with, heal, parked
from tests.log_reader import LogReader

pytestmark = pytest.mark.process

FAULTY = str(Path(__file__).with_name("faulty_program.py"))
COUNT = (("GETDEL", "nothing"), ("INCR", "n"))
"""Only the server can know the first, so it carries out the second by itself, too."""


def count_and_die(region: Region, monkeypatch: pytest.MonkeyPatch) -> int:
    """The gateway dies when it has derived what its server has recorded, and is started again. How long the server's
    file was in between.
    """
    region.close()
    region.gateway.stop()
    with dying_at(region.gateway, "record-derived", 1, monkeypatch):
        region.gateway.wait_ready()
        try:
            with RawClient(region.gateway.port, PATIENCE) as client:
                client.pipeline(list(COUNT))
        except ServerError:
            pass  # it is recorded, and nobody was told
        assert region.gateway.process is not None
        region.gateway.process.wait(PATIENCE)
        return append_only_file(region).stat().st_size


def go_on_from(region: Region, size: int, program: tuple[str, ...]) -> None:
    """The server comes back with so many bytes of its file, and the gateway as that program."""
    region.close()
    region.gateway.kill()
    region.server.kill()
    with append_only_file(region).open("r+b") as stream:
        stream.truncate(size)
    region.server.restart()
    region.gateway.program = program
    region.gateway.launch()
    region.gateway.wait_ready()


def is_parked(region: Region) -> bool:
    with RawClient(region.server.port, PATIENCE) as client:
        client.call("SELECT", "15")
        return client.call("EXISTS", "parked") == 1


def check_once(cluster: LocalCluster) -> None:
    cluster.wait_equal(cluster.names, quiet=True, timeout=PATIENCE)
    for region in cluster:
        assert call(region, "GET", "n") == b"1", region.name
    told = {json.loads(region.command("VERIFY"))["digest"] for region in cluster}
    assert len(told) == 1


def what_others_have_is_done_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...]
) -> None:
    """The server has the record still, and not what the commit behind it has stored."""
    with LocalCluster(directory, "ab", group="g") as cluster:
        region = cluster["b"]
        recorded = count_and_die(region, monkeypatch)
        until(lambda: call(cluster["a"], "GET", "n") == b"1")
        go_on_from(region, recorded, program)
        check_once(cluster)


def what_only_the_record_has_goes_out(
    directory: Path, monkeypatch: pytest.MonkeyPatch, program: tuple[str, ...]
) -> None:
    """The incarnation has ended, since its server has lost what came behind the record."""
    with OpenCluster(directory, "abc", group="g") as cluster:
        region = cluster["b"]
        for other in "ac":
            cluster[other].command("CUT", "b")
        recorded = count_and_die(region, monkeypatch)
        before = region.gateway.incarnation
        for _ in range(20):
            call(region, "INCR", "lost")
        file = directory / "state-b" / "b.synced"
        until(lambda: json.loads(file.read_text())["order"] > 15)
        for other in "ac":
            cluster[other].command("HEAL", "b")
        go_on_from(region, recorded, program)
        until(lambda: region.status().get("incarnation", before) > before)
        until(lambda: not is_parked(region))
        check_once(cluster)


def test_record_made_during_an_eviction_is_resent(tmp_path: Path) -> None:
    evicted_before_the_answer(tmp_path)


def test_dropping_a_record_of_an_ended_member_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParkedRecord, "of", lambda record: None)
    with pytest.raises(AssertionError):
        evicted_before_the_answer(tmp_path)


def evicted_before_the_answer(directory: Path) -> None:
    """The server has carried a command out; that is heard when its member has learned that it sends nothing more."""
    with Gateways(directory) as town, Proxy(town.server("c").port) as proxy:
        town.start("a")
        town.start("b", "a")
        town.start("c", "a", port=proxy.port)
        town.call("c", "SADD", "s", "x")
        town.wait_equal("a", "b", "c")
        cut_off(town, "c", "a", "b")
        sent, held, released = threading.Event(), threading.Event(), threading.Event()

        def note(pair: ProxiedConnection, data: bytes) -> bytes:
            if b"MULTI" in data and b"INCR" in data:
                sent.set()
            return data

        def hold(pair: ProxiedConnection, data: bytes) -> bytes:
            if sent.is_set() and not held.is_set() and b"QUEUED" in data:
                held.set()
                released.wait(PATIENCE)
            return data

        proxy.sending, proxy.receiving = note, hold
        answers: list[object] = []

        def count() -> None:
            with town.running["c"].client() as client:
                answers.extend(client.pipeline(list(COUNT)))

        client = threading.Thread(target=count)
        client.start()
        assert held.wait(PATIENCE)
        evicted_with(town, "c", "a", "b")
        before = town.status("c")["incarnation"]
        heal(town, "c", "a", "b")
        until(lambda: town.status("c").get("standing") != "member")
        released.set()
        client.join(PATIENCE)
        assert answers == [None, 1]
        until(lambda: town.members("a") == ["a", "b", "c"])
        until(lambda: town.status("c").get("incarnation", before) > before)
        until(lambda: not parked(town, "c"))
        town.wait_equal("a", "b", "c")
        for name in "abc":
            assert town.call(name, "GET", "n") == b"1", name


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        (what_others_have_is_done_once, ""),
        (what_others_have_is_done_once, "takes_the_next_dot"),
        (what_only_the_record_has_goes_out, ""),
        (what_only_the_record_has_goes_out, "drops_the_record"),
    ],
)
def test_fault_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Path, pytest.MonkeyPatch, tuple[str, ...]], None],
    fault: str,
) -> None:
    if not fault:
        scenario(tmp_path, monkeypatch, PROGRAM)
        return
    with pytest.raises(AssertionError) as found:
        scenario(tmp_path, monkeypatch, (FAULTY, fault))
    print(found.value)


# The log of what was derived


def begins_no_commit_for_a_record(running: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is derived leaves, and the commit that stores it does not begin."""
    committer = running.gateway.committer
    kick = committer.kick

    def wait_if_derived() -> None:
        if committer.recorded.pending is None:
            kick()

    monkeypatch.setattr(committer, "kick", wait_if_derived)


def sent_by_b(logs: Path) -> list[Event]:
    events = LogReader(logs)
    return [event for event in events if event.replica == "b" and event.kind == EventKind.SEND]


def test_derived_message_is_logged_before_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fixed members nothing else may show later that it was sent: the server may lose the record."""
    logs = tmp_path / "logs"
    with (
        servers.borrowed() as one,
        servers.borrowed() as two,
        gateway(tmp_path, one.port, "a", {"b": None}, logs) as a,
        gateway(tmp_path, two.port, "b", {"a": a.gateway.endpoint.address}, logs) as b,
        a.client() as there,
    ):
        with b.client() as here:
            begins_no_commit_for_a_record(b, monkeypatch)
            assert here.pipeline(list(COUNT)) == [None, 1]
            until(lambda: there.call("GET", "n") == b"1")
            sent = sent_by_b(logs)
            assert len(sent) == 1, "another member has it"
        b.stop()
        with gateway(tmp_path, two.port, "b", {"a": a.gateway.endpoint.address}, logs) as again:
            monkeypatch.undo()
            with again.client() as here:
                assert here.call("INCR", "n") == 2
            until(lambda: there.call("GET", "n") == b"2")
            assert len(sent_by_b(logs)) == 2, "the record is derived again, and was told"
    assert not check_logs([logs]).violations
