"""Changes of view among gateways: nothing of them is told that is not in the server, and what they stop, and do not."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.causality.messages import Transmit
from crdtcast.engine import GroupEngine, GroupState
from crdtcast.engine.views import Views
from crdtcast.transport.channel import Channel
from tests.adapters.redis.client_load import Load
from tests.adapters.redis.gateways import PATIENCE, Gateways, until
from tests.adapters.redis.test_members import aof_bytes, cut_off, heal, lose_the_end, parked
from tests.adapters.redis.test_recorded_members import Writer
from tests.effort import first_seed

pytestmark = pytest.mark.process


def read_state(port: int) -> StoredState:
    """What a server has."""
    with RawClient(port, PATIENCE) as client:
        _, raw = client.pipeline([("SELECT", "15"), ("GET", metadata.STATE.decode())])
    assert isinstance(raw, bytes)
    return StoredState.decode(raw)


def stored(port: int) -> GroupState:
    """The group's state as a server has it."""
    return read_state(port).group_state(())


def serial_of(state: GroupState) -> int:
    return 0 if state.record is None else state.record.serial


def engine_of(town: Gateways, name: str) -> GroupEngine:
    belonging = town.running[name].gateway.belonging
    assert belonging is not None
    return belonging.engine


def three(town: Gateways) -> None:
    """Three regions, each of which votes."""
    for name, through in (("a", None), ("b", "a"), ("c", "a")):
        town.start(name, through)
    wait_voters(town, "a", "b", "c")


def wait_voters(town: Gateways, *names: str) -> None:
    until(lambda: all(len(engine_of(town, name).view.voters) == len(names) for name in names))
    town.wait_equal(*names)


def waits_for(town: Gateways, name: str) -> list[str]:
    return [each.partition(".")[0] for each in engine_of(town, name).waits_for()]


class Watched:
    """Compares what each gateway tells of its view with what its server has at that moment."""

    def __init__(self, town: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames = self.promises = 0
        self.wrong: list[str] = []
        self._town = town
        send = Channel.send_effects

        def checked(channel: Channel, effects: list[Transmit]) -> None:
            frames = [frame for _, frame in effects if isinstance(frame, Views)]
            if frames:
                engine = channel.engine
                assert isinstance(engine, GroupEngine)
                self._check(channel.name, engine.me, frames)
            send(channel, effects)

        monkeypatch.setattr(Channel, "send_effects", checked)

    def _check(self, name: str, me: str, frames: list[Views]) -> None:
        state = stored(self._town.servers[name].port)
        for frame in frames:
            self.frames += 1
            told = [frame.has.get(me, 0), *(r.serial for r in frame.records if r.member == me)]
            if max(told) > serial_of(state):
                self.wrong.append(f"{name} told note {max(told)}, and has {serial_of(state)}")
            if frame.epoch > state.view.epoch:
                self.wrong.append(f"{name} told epoch {frame.epoch}, and is in {state.view.epoch}")
            for decided in frame.decided:
                if decided.epoch >= state.view.epoch:
                    self.wrong.append(f"{name} told a decision that it has not stored")
            for record in frame.records:
                if record.member == me and record.promise is not None:
                    self.promises += 1
                    for origin, counter in record.promise.delivered.items():
                        if state.vector.get(origin, 0) < counter:
                            self.wrong.append(f"{name} told more of {origin} than it has stored")


def test_gateway_stores_its_view_before_sending_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gateways(tmp_path) as town:
        watched = Watched(town, monkeypatch)
        three(town)
        town.start("d", "b")
        wait_voters(town, "a", "b", "c", "d")
        load = Load(town.running["a"], first_seed(), 20)
        town.running["c"].stop()
        assert town.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
        until(lambda: town.members("b") == town.members("d") == ["a", "b", "d"])
        assert town.call("d", "CRDTCAST", "LEAVE") == b"OK"
        town.running["d"].wait_ended()
        load.stop()
        town.wait_equal("a", "b")
    assert watched.frames > 10 and watched.promises > 3
    assert not watched.wrong, watched.wrong


def nothing_is_synced(town: Gateways, name: str) -> None:
    """From here on that server keeps nothing for certain."""
    gateway = town.running[name].gateway
    until(lambda: gateway.belonging.peers.gate.is_synced(gateway.committer.commits))  # type: ignore[union-attr]
    committer, gate = gateway.committer, gateway.belonging.peers.gate  # type: ignore[union-attr]
    with RawClient(town.servers[name].port) as client:
        while True:
            client.call("CONFIG", "SET", "appendfsync", "no")
            threading.Event().wait(
                0.5
            )  # what follows from before would be held back with all that comes later
            if gate.is_synced(committer.commits):
                return
            client.call("CONFIG", "SET", "appendfsync", "everysec")
            until(lambda: gate.is_synced(committer.commits))


def test_unsynced_promise_was_sent_to_no_peer(
    tmp_path: Path,
) -> None:
    with Gateways(tmp_path, own_servers="everysec") as town:
        three(town)
        before = town.status("b")["incarnation"]
        town.running["c"].stop()
        for name in "ab":  # what follows from that is stored by then, or b does not answer
            until(lambda name=name: town.status(name)["links"]["c"]["state"] != "up")
            until(lambda name=name: town.status(name)["quiet"])
        nothing_is_synced(town, "b")
        kept, noted = aof_bytes(town, "b"), serial_of(stored(town.servers["b"].port))
        town.call("a", "CRDTCAST", "EVICT", "c")
        until(lambda: serial_of(stored(town.servers["b"].port)) > noted)
        until(lambda: engine_of(town, "a").open_change is not None)
        assert waits_for(town, "a") == ["b"]
        town.running["b"].stop()
        assert waits_for(town, "a") == ["b"], "it had told what was not synced"
        town.servers["b"].kill()
        lose_the_end(town, "b", kept)
        town.servers["b"].restart()
        assert serial_of(stored(town.servers["b"].port)) == noted
        town.start("b", "a")
        until(lambda: town.members("a") == town.members("b") == ["a", "b"])
        assert town.status("b")["incarnation"] == before
        town.wait_equal("a", "b")


@pytest.mark.parametrize("lost", ["server", "server and files"])
def test_member_that_lost_a_sent_promise_ends_and_joins_again(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of its messages the server has all: only what it had promised is missing. A machine that is set back as a whole
    leaves no logs to be checked: they would be set back, too.
    """
    with Gateways(tmp_path, own_servers="everysec", logs=lost == "server") as town:
        three(town)
        town.call("b", "INCR", "n")
        town.wait_equal("a", "b", "c")
        before = town.status("b")["incarnation"]
        file, copy = tmp_path / "state-b" / "b.synced", tmp_path / "copy"
        gateway = town.running["b"].gateway
        until(lambda: gateway.belonging.peers.gate.is_synced(gateway.committer.commits))  # type: ignore[union-attr]
        shutil.copy(file, copy)
        kept = aof_bytes(town, "b")
        town.running["c"].stop()
        town.call("a", "CRDTCAST", "EVICT", "c")
        until(lambda: town.members("a") == town.members("b") == ["a", "b"])
        town.running["b"].stop()
        town.servers["b"].kill()
        lose_the_end(town, "b", kept)
        if lost == "server and files":  # all of it from a backup
            shutil.copy(copy, file)
        town.servers["b"].restart()
        town.start("b", "a")
        until(lambda: town.status("b").get("incarnation", before) > before)
        # Its own file tells, before it has a link; otherwise others do, before it can vote.
        why = "has lost some data that" if lost == "server" else "records of"
        assert any(why in record.message for record in caplog.records)
        until(lambda: town.members("a") == ["a", "b"])
        town.wait_equal("a", "b")
        assert town.call("b", "GET", "n") == b"1"


def test_promised_level_is_stored_before_it_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No older program goes on from there any more: it may be in force elsewhere."""
    promises = threading.Event()
    send = Channel.send_effects

    def without_promises(channel: Channel, effects: list[Transmit]) -> None:
        if channel.name == "c" and not promises.is_set():
            effects = [(to, _without_promise(frame)) for to, frame in effects]  # type: ignore[misc]
        send(channel, effects)

    monkeypatch.setattr(Channel, "send_effects", without_promises)
    with Gateways(tmp_path) as town:
        town.start("a", level=1)
        for name in ("b", "c"):
            promises.set()
            town.start(name, "a")
        wait_voters(town, "a", "b", "c")
        promises.clear()
        assert town.call("a", "CRDTCAST", "RAISE", "2") == b"OK"
        for name in ("a", "b"):
            until(lambda name=name: read_state(town.servers[name].port).level == 2)
            assert stored(town.servers[name].port).view.level == 1
            refused = town.call(name, "SET", "k", "v")
            assert isinstance(refused, ErrorReply) and "needs format level 2" in refused.text
        promises.set()
        until(lambda: town.call("c", "SET", "k", "v") == b"OK")
        town.wait_equal("a", "b", "c")


def _without_promise(frame: object) -> object:
    if isinstance(frame, Views):
        return frame._replace(records=tuple(r for r in frame.records if r.promise is None))
    return frame


def test_dead_one_of_two_needs_a_forced_eviction(
    tmp_path: Path,
) -> None:
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        wait_voters(town, "a", "b")
        town.running["b"].stop()
        assert town.call("a", "CRDTCAST", "EVICT", "b") == b"OK"
        until(lambda: waits_for(town, "a") == ["b"])
        assert engine_of(town, "a").open_change is None, "nothing is frozen before it can succeed"
        assert town.call("a", "INCR", "n") == 1
        assert town.call("a", "CRDTCAST", "WITHDRAW", "b") == b"OK"
        assert not stored(town.servers["a"].port).wants
        refused = town.call("a", "CRDTCAST", "WITHDRAW", "b")
        assert isinstance(refused, ErrorReply) and "has not asked to evict" in refused.text
        town.start("b", "a")
        town.wait_equal("a", "b")
        town.running["b"].stop()
        assert town.call("a", "CRDTCAST", "EVICT", "b", "FORCE") == b"OK"
        until(lambda: town.members("a") == ["a"])
        assert town.call("a", "INCR", "n") == 2


def test_several_dead_regions_are_evicted_in_one_change(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        three(town)
        epoch = engine_of(town, "a").view.epoch
        for name in ("b", "c"):
            town.running[name].stop()
        assert town.call("a", "CRDTCAST", "EVICT", "b", "c", "FORCE") == b"OK"
        until(lambda: town.members("a") == ["a"])
        assert engine_of(town, "a").view.epoch == epoch + 1
        assert town.call("a", "INCR", "n") == 1


def test_eviction_request_survives_a_gateway_restart(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        three(town)
        for name in ("b", "c"):
            town.running[name].stop()
        assert town.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
        town.running["a"].stop()
        town.start("a")
        town.start("b", "a")
        until(lambda: town.members("a") == town.members("b") == ["a", "b"])
        town.wait_equal("a", "b")


def test_members_command_shows_the_voters(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        three(town)
        told = json.loads(town.call("c", "CRDTCAST", "MEMBERS"))
        assert {member["name"]: member["voter"] for member in told} == dict.fromkeys("abc", True)


@pytest.mark.parametrize("writing", [Writer, Load])
def test_evicted_live_region_returns_with_acknowledged_writes(
    tmp_path: Path, writing: Callable[..., Any]
) -> None:
    """Its writes go on, those that its server decides among them, until it is told that it is out."""
    seed = first_seed()
    with Gateways(tmp_path) as town:
        three(town)
        if writing is Writer:
            writers = [Writer(town, name, seed) for name in ("a", "c")]
        else:
            load = Load(town.running["c"], seed, 50)
        for _ in range(3):
            before = town.status("c")["incarnation"]
            assert town.call("a", "CRDTCAST", "EVICT", "c") == b"OK"
            until(lambda: town.status("c").get("incarnation", before) > before)  # noqa: B023
            until(lambda: town.members("b") == ["a", "b", "c"])
            wait_joined(town)
        if writing is Writer:
            for writer in writers:
                writer.stop()
        else:
            total = load.stop()
        until(lambda: not parked(town, "c"))
        town.wait_equal("a", "b", "c")
        if writing is Load:
            assert town.call("b", "MGET", "total", "twin") == [b"%d" % total] * 2


def test_region_leaves_under_constant_writes(tmp_path: Path) -> None:
    with Gateways(tmp_path) as town:
        three(town)
        loads = [Load(town.running[name], first_seed(), 50) for name in ("a", "b")]
        until(lambda: all(load.total > 5 for load in loads))
        assert town.call("c", "CRDTCAST", "LEAVE") == b"OK"
        town.running["c"].wait_ended()
        total = sum(load.stop() for load in loads)
        town.wait_equal("a", "b")
        assert town.call("b", "MGET", "total", "twin") == [b"%d" % total] * 2


def wait_joined(town: Gateways) -> None:
    """c is a member that all know, and votes."""
    until(lambda: engine_of(town, "c").me in engine_of(town, "a").view.voters)


def test_regions_that_are_cut_off_from_each_other_change_no_view(tmp_path: Path) -> None:
    """Both ask for the other one, and nothing is frozen; once they are linked again one goes, and comes back."""
    with Gateways(tmp_path) as town:
        town.start("a")
        town.start("b", "a")
        wait_voters(town, "a", "b")
        cut_off(town, "a", "b")
        for name, other in (("a", "b"), ("b", "a")):
            assert town.call(name, "CRDTCAST", "EVICT", other) == b"OK"
            until(lambda name=name, other=other: waits_for(town, name) == [other])
            assert town.call(name, "INCR", "n") == 1
        heal(town, "b", "a")
        until(lambda: {*town.members("a"), *town.members("b")} == {"a", "b"})
        until(lambda: not any(engine_of(town, name).wants for name in ("a", "b")))
        until(lambda: len(town.members("a")) == len(town.members("b")) == 2)
        town.wait_equal("a", "b")
        assert town.call("a", "GET", "n") == b"2"
