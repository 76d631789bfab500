"""`/ready` and `leave` say what is true, and a crowd at the metrics port keeps no probe out."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine, GroupEngine, Standing
from crdtcast.exceptions import (
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
    StoreFullError,
)
from crdtcast.group.status import is_caught_up, waiting
from crdtcast.service.admin.administered import Departure, departed
from crdtcast.service.admin.probes import Probes
from crdtcast.service.admin.server import Admin
from crdtcast.service.readiness import Readiness
from crdtcast.testing import eventually, simulated
from crdtcast.transport.peers import LinkPhase, LinkStatus
from tests.engine.town import Town
from tests.node.group_support import members_are, world
from tests.operations.test_requests import until_ready
from tests.operations.test_run import node, scraped


def link(state: LinkPhase, error: str | None = None) -> LinkStatus:
    return LinkStatus(state, 1.0, "", None, error, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("links", "obstacle"),
    [
        (
            {
                "b": link(LinkPhase.REFUSED, "different shared secrets"),
                "c": link(LinkPhase.REFUSED),
            },
            "different",
        ),
        (
            {"b": link(LinkPhase.REFUSED, "different shared secrets"), "c": link(LinkPhase.DOWN)},
            None,
        ),
        ({"b": link(LinkPhase.DOWN), "c": link(LinkPhase.DIALLING)}, None),
        ({"b": link(LinkPhase.REFUSED)}, None),
        ({}, None),
    ],
)
def test_a_member_is_not_ready_once_all_others_refuse_it(
    links: dict[str, LinkStatus], obstacle: str | None
) -> None:
    engine = Engine("a.1", ["a", "b", "c"])
    found = Readiness().obstacle(engine, {"b": 1, "c": 1}, links)
    assert found is None if obstacle is None else obstacle in str(found)


def test_readiness_ignores_the_former_incarnation() -> None:
    engine = GroupEngine.found("a.2", ["a.1", "a.2", "b.1"])
    assert Readiness().obstacle(engine, {"b": 1}, {}) is None
    assert "takes writes, but has not caught up with b" in str(Readiness().obstacle(engine, {}, {}))


def test_readiness_ignores_frozen_members() -> None:
    engine = GroupEngine.found("a.2", ["a.2", "b.1"])
    assert "takes writes, but has not caught up with b" in str(Readiness().obstacle(engine, {}, {}))
    engine.evict("b.1")  # one of two concludes nothing
    assert Readiness().obstacle(engine, {}, {}) is None


@simulated
async def test_leave_names_the_voter_that_lacks_messages() -> None:
    async with world("a", "b", "c") as present:
        b = present.up["b"]
        present.network.cut("c")
        b.member.tcbroadcast(b"not at c")
        with trio.move_on_after(30):
            await b.member.leave()
        assert departed(b.member.engine) == Departure(False, False, ("c",)), "of two, both have to"
        assert not b.member.has_left


@simulated
async def test_leave_names_a_dead_member_and_ends_with_its_eviction() -> None:
    async with world("a", "b", "c", "d", "e") as present:
        a, b = present.up["a"], present.up["b"]
        present.crash("c")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.member.leave)
            await eventually(lambda: departed(b.member.engine).waits_for == ("c",))
            a.member.evict("c")
            await members_are(a.member, "a", "d", "e")
        assert b.member.standing is Standing.LEFT and b.member.has_left


def test_decided_leave_known_to_few_is_not_confirmed() -> None:
    town = Town("abc")
    town.run()
    b = town.engines["b"]
    b.leave()
    flights: list[tuple[str, str, Any]] = []
    while b.me in b.going_on():
        for name, engine in town.engines.items():
            engine.tick()
            for effect in engine.take_outbox():
                others = {e.me: other for other, e in town.engines.items() if other != name}
                to = others.values() if effect.to is None else [others[effect.to]]
                flights += [(name, other, effect.message) for other in to]
        for number, (sender, receiver, message) in enumerate(flights, 1):
            town.engines[receiver].receive(town.id(sender), message)
            if b.me not in b.going_on():
                del flights[:number]
                break
        else:
            flights.clear()
    assert b.standing is Standing.LEAVING
    left = departed(b)
    assert (left.left, left.confirmed) == (True, False)
    assert set(left.waits_for) < {"a", "c"}
    town.run()
    assert town.names("a") == town.names("c") == ["a", "c"], "the others decide it all the same"


@pytest.mark.parametrize(
    ("departure", "said"),
    [
        (Departure(), None),
        (
            Departure(True, False, ("c", "d")),
            "left, not confirmed, waited 1.5 s for c, d: the group",
        ),
        (Departure(False, False, ("c",)), "did not leave, waited 1.5 s for c: evict this"),
    ],
)
def test_log_reports_the_result_of_a_leave(
    departure: Departure, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(*, plain: bool) -> Departure:
        assert not plain
        return departure

    async def tell(what: str) -> None:
        raise AssertionError(what)

    engine = SimpleNamespace(waits_for=list)
    process: Any = SimpleNamespace(
        settings=SimpleNamespace(leave_seconds=1.5),
        member=SimpleNamespace(incarnation="b.1", engine=engine),
        leave=leave,
    )
    admin = Admin(process, ())
    with nullcontext() if departure.left else pytest.raises(LocalProtocolError):
        trio.run(admin._leave, {}, tell)
    # Whether or not the operator waits for it.
    assert [line.startswith(said or "?") for line in caplog.messages] == [True] * (said is not None)


@simulated
async def test_readiness_ignores_made_up_messages() -> None:
    async with world("a", "b", "c") as present:
        a, c = (present.up[name].member for name in "ac")
        await eventually(lambda: is_caught_up(a.engine, {}))
        a.engine.receive(c.incarnation, Message(Dot(c.incarnation, 5000), (), b"far"))
        assert not is_caught_up(a.engine, {})  # it may be an honest one that runs ahead
        with pytest.raises(RemoteProtocolError):
            a.engine.receive(c.incarnation, Message(Dot("nobody", 1), (), b""))
        assert is_caught_up(a.engine, {}) and waiting(a.engine) == 0


def test_a_node_that_refuses_every_write_is_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        eu = node(tmp_path, "eu", found=True, store_memory_bytes=1000, store_most_bytes=20_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(eu.run)
            await until_ready(eu)
            host, port = eu.member.address
            us = node(tmp_path, "us", join=(f"{host}:{port}",))
            nursery.start_soon(us.run)
            await until_ready(us)
            us.stop()
            with pytest.raises(StoreFullError):
                while True:
                    eu.objects().perform(("x", "register_lww"), "assign", "x" * 1000)
                    await trio.lowlevel.checkpoint()
            assert "cannot store more" in await scraped(eu, "/ready")
            assert eu.status().refused_writes == 1
            eu.stop()

    trio.run(main)


def crowded(status: Any) -> Probes:
    return Probes("a", "g", waits_for=lambda: None, status=status)


@simulated
async def test_silent_connections_do_not_block_probes() -> None:
    probes = crowded(lambda: None)
    silent = []
    async with trio.open_nursery() as nursery:
        for _ in range(500):
            near, far = trio.testing.memory_stream_pair()
            silent.append(near)
            nursery.start_soon(probes.serve, far)
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) <= 64
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(probes.serve, far)
        await near.send_all(b"GET /live HTTP/1.1\r\n\r\n")
        assert b"200 OK" in b"".join([piece async for piece in near])


@simulated
async def test_a_page_of_metrics_is_made_once_a_second_at_most() -> None:
    asked = 0

    def not_yet() -> Any:
        nonlocal asked
        asked += 1
        raise NotReadyError("not yet")

    probes = crowded(not_yet)
    for _ in range(10):
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probes.serve, far)
            await near.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b"crdtcast_ready" in b"".join([piece async for piece in near])
    assert asked == 1
    await trio.sleep(1)
    assert probes._answer(b"GET /metrics HTTP/1.1\r\n")[0] == 200 and asked == 2
