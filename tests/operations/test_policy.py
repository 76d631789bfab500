"""Eviction by policy: only by a majority, asked for by one, and only of those silent for long enough."""

import pytest
import trio

from crdtcast.service.policy import to_evict
from crdtcast.service.run import evict_the_silent
from crdtcast.suspicion import Suspect
from tests.engine.town import Town
from tests.node.group_support import members_are, world
from tests.node.network import simulated

AFTER = 60.0


def silent(**seconds: float) -> dict[str, Suspect]:
    return {name: Suspect(9.0, s - 12, s) for name, s in seconds.items()}


@pytest.mark.parametrize(
    ("suspects", "asks"),
    [
        (silent(), {}),
        (silent(c=59.0), {}),
        (silent(c=60.0), {"a": "c"}),
        (silent(a=61.0), {"b": "a"}),
        (silent(b=61.0, c=61.0), {}),
        (silent(b=61.0, c=13.0), {}),
    ],
)
def test_one_of_a_majority_asks_for_those_silent_for_long(
    suspects: dict[str, Suspect], asks: dict[str, str]
) -> None:
    town = Town("abc")
    town.run()
    for name, engine in town.engines.items():
        if name not in suspects:
            expected = [town.id(asks[name])] if name in asks else []
            assert to_evict(engine, suspects, AFTER) == expected, name


def test_a_witness_counts_and_does_not_ask_and_nobody_is_asked_for_twice() -> None:
    town = Town("zw", witnesses="w")
    town.run()
    assert to_evict(town.engines["w"], silent(z=99.0), AFTER) == []
    town = Town("bcw", witnesses="w")
    town.run()
    assert to_evict(town.engines["b"], silent(c=99.0), AFTER) == [town.id("c")]
    assert to_evict(town.engines["w"], silent(c=99.0), AFTER) == []
    town.engines["b"].evict(town.id("c"))
    assert to_evict(town.engines["b"], silent(c=99.0), AFTER) == []


def test_two_members_never_evict_each_other() -> None:
    town = Town("ab")
    town.run()
    assert to_evict(town.engines["a"], silent(b=1e6), AFTER) == []
    assert to_evict(town.engines["b"], silent(a=1e6), AFTER) == []


@simulated
async def test_a_dead_region_is_cut_off_after_that_time_and_not_before() -> None:
    async with world("a", "b", "c") as group, trio.open_nursery() as nursery:
        a, b, c = group.hosts.values()
        for host in (a, b, c):
            await host.up.wait_established()
            nursery.start_soon(evict_the_silent, host.up, AFTER)
        group.cut("c")
        began = trio.current_time()
        for host in (a, b):
            await members_are(host.up, "a", "b")
        assert AFTER <= trio.current_time() - began <= AFTER + 10
        await trio.sleep(2 * AFTER)
        assert set(c.up.members) == {"a", "b", "c"}, "a minority evicts nobody"
        group.heal()
        for host in (a, b, c):
            await members_are(host.up, "a", "b", "c")
        nursery.cancel_scope.cancel()
