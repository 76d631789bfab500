"""The public network in memory: real nodes, links that the test drives, a clock that jumps."""

from itertools import permutations

import pytest
import trio

from crdtcast import ConfigurationError, StateMachine, Tag, open_member, open_replica
from crdtcast.datatypes import AWSet
from crdtcast.testing import Network, eventually, simulated

FOUNDERS = {"a": "10.0.0.1:7001", "b": "10.0.0.2:7001"}


class Seen(StateMachine):
    """What was delivered, in order."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.payloads.append(payload)

    def get_state(self) -> bytes:
        return b" ".join(self.payloads)

    def set_state(self, state: bytes) -> None:
        self.payloads = state.split()


@pytest.fixture(autouse=True)
def _no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(trio, "open_tcp_listeners", refuse)
    monkeypatch.setattr(trio, "open_tcp_stream", refuse)


@simulated
async def test_partitioned_group_agrees_again() -> None:
    eu_seen, us_seen = Seen(), Seen()
    with Network() as network:
        async with open_member("eu", found=True, machine=eu_seen) as eu:
            eu.tcbroadcast(b"before")
            async with open_member("us", join=eu.address, machine=us_seen) as us:
                network.cut("us")
                await eventually(lambda: "us" not in eu.links())
                x, _ = eu.tcbroadcast(b"x"), us.tcbroadcast(b"y")
                await trio.sleep(60)
                assert (eu_seen.payloads, us_seen.payloads) == (
                    [b"before", b"x"],
                    [b"before", b"y"],
                )
                network.heal()
                await eu.wait_stable(x)
                assert (
                    sorted(eu_seen.payloads) == sorted(us_seen.payloads) == [b"before", b"x", b"y"]
                )


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_frames_in_any_order_take_effect_in_causal_order(order: tuple[int, ...]) -> None:
    @simulated
    async def run() -> None:
        seen = Seen()
        with Network() as network:
            async with (
                open_member("a", founders=FOUNDERS) as a,
                open_member("b", founders=FOUNDERS, machine=seen),
            ):
                await a.ready()
                await trio.sleep(10)  # what follows a founding is said
                line = network.line("a", "b")
                line.hold()
                for payload in (b"1", b"2", b"3"):
                    a.tcbroadcast(payload)
                    await trio.testing.wait_all_tasks_blocked()
                assert line.waiting == 3 and not seen.payloads
                left = list(range(3))
                for index in order:
                    line.deliver(left.index(index))
                    left.remove(index)
                await eventually(lambda: seen.payloads == [b"1", b"2", b"3"])
                a.tcbroadcast(b"4")
                await eventually(lambda: line.waiting > 0)
                while line.waiting:
                    line.drop()
                line.flow()
                await eventually(lambda: seen.payloads[3:] == [b"4"])

    run()


@simulated
async def test_one_way_link_is_noticed_by_both_and_restored() -> None:
    with Network() as network:
        async with (
            open_replica("a", founders=FOUNDERS) as a,
            open_replica("b", founders=FOUNDERS) as b,
        ):
            await a.ready()
            await b.ready()
            network.silence("a", "b")
            await a.object("cart", AWSet).add("milk")
            await eventually(lambda: "a" not in b.links())
            await eventually(lambda: "b" not in a.links())
            network.heal()
            await eventually(lambda: b.object("cart", AWSet).value == {"milk"})


@simulated
async def test_an_address_is_used_once_and_is_free_again() -> None:
    with Network():
        async with open_member("a", listen="10.0.0.1:7001", found=True):
            with pytest.raises(ConfigurationError, match="another process listens there"):
                async with open_member("b", listen="10.0.0.1:7001", found=True):
                    pass
        async with open_member("b", listen="10.0.0.1:7001", found=True):
            pass


@simulated
async def test_slow_line_and_full_buffer_make_the_writer_wait() -> None:
    with Network(buffer_bytes=10_000) as network:
        network.line("a", "b").bytes_per_second = 1000.0
        _, (listener,) = await network.listen("b", ("b", 1))
        near = await network.connect("a", "b", 1)
        far = await listener.accept()
        began = trio.current_time()
        record = b"\x16" + bytes(29_999)  # as TLS has it: no frames to tell apart
        written: list[float] = []

        async def write() -> None:
            await near.send_all(record)
            written.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(30):
                assert len(await far.receive_some(1000)) == 1000
            assert trio.current_time() - began == pytest.approx(29)
        assert written == [pytest.approx(19)]


@simulated
async def test_who_is_disconnected_is_reached_no_more() -> None:
    with Network() as network:
        await network.listen("b", ("b", 1))
        near = await network.connect("a", "b", 1)
        assert network.dialled == [("a", "b")]
        network.disconnect("b")
        assert await near.receive_some() == b""
        with pytest.raises(OSError, match="connection refused"):
            await network.connect("a", "b", 1)
        await network.listen("b", ("b", 1))
        await network.connect("a", "b", 1)
