"""Observers of random runs: what they were told, carried out on a copy, gives the value, in every schedule."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from crdtcast import EndedError, Replica, StoreFullError
from crdtcast.datatypes import AWSet, GOMap, LWWRegister, PNCounter, SharedList, SharedText
from crdtcast.testing import eventually, simulated
from tests.datatypes.test_differences import applied
from tests.effort import seeds

from .regions import agree, evict, regions

NAMES = ("a", "b", "c")
STEPS = 40
Edit = Callable[[Replica, random.Random], Any]


def _text(replica: Replica, chance: random.Random) -> Any:
    text = replica.object("text", SharedText)
    if (length := len(text.value)) and chance.random() < 0.4:
        return text.delete(chance.randrange(length))
    return text.insert(chance.randint(0, length), "".join(chance.choices("abc", k=3)))


def _list(replica: Replica, chance: random.Random) -> Any:
    items = replica.object("list", SharedList)
    if (length := len(items.value)) and chance.random() < 0.4:
        return items.delete(chance.randrange(length))
    return items.insert(chance.randint(0, length), [chance.randrange(9)])


def _set(replica: Replica, chance: random.Random) -> Any:
    cart = replica.object("set", AWSet)
    return (cart.remove if chance.random() < 0.4 else cart.add)(chance.randrange(6))


def _map(replica: Replica, chance: random.Random) -> Any:
    return replica.object("map", GOMap).update(
        chance.choice("xyz"), PNCounter, ["increment", chance.randint(1, 9)]
    )


EDITS: dict[str, tuple[type[Any], Edit]] = {
    "text": (SharedText, _text),
    "list": (SharedList, _list),
    "set": (AWSet, _set),
    "map": (GOMap, _map),
    "count": (PNCounter, lambda replica, chance: replica.object("count", PNCounter).increment(1)),
    "register": (
        LWWRegister,
        lambda replica, chance: replica.object("register", LWWRegister).assign(chance.random()),
    ),
}


class Copy:
    """A value that is kept up by the told changes alone."""

    def __init__(self, replica: Replica, name: str) -> None:
        self.handle: Any = replica.object(name, EDITS[name][0])
        self.value: Any = None
        self.pace = random.Random(name + replica.name)

    async def run(self) -> None:
        told_before = False
        with suppress(EndedError):
            async for told in self.handle.observe():
                self.value = applied(self.value, told.changes) if told_before else told.value
                told_before = True
                assert self.value == told.value
                await trio.sleep(self.pace.choice((0, 0, 0.1, 3)))


@pytest.mark.parametrize("seed", seeds(12))
def test_copies_by_observers_equal_the_values(seed: int) -> None:
    print(f"seed {seed}")

    @simulated
    async def run() -> None:
        chance = random.Random(seed)
        async with regions(*NAMES, seed=seed) as cluster, trio.open_nursery() as nursery:
            copies: dict[str, list[Copy]] = {}

            def watch(replica: Replica) -> None:
                copies[replica.name] = [Copy(replica, name) for name in EDITS]
                for copy in copies[replica.name]:
                    nursery.start_soon(copy.run)

            for replica in cluster.up.values():
                watch(replica)
            for _ in range(STEPS):
                replica = cluster.up[chance.choice(sorted(cluster.up))]
                match chance.randrange(12):
                    case 0:
                        cluster.network.cut(chance.choice(NAMES))
                    case 1:
                        cluster.network.heal()
                    case 2:
                        await replica.delete(chance.choice(sorted(EDITS)))
                    case 3 if len(cluster.up) == len(NAMES):
                        name = chance.choice(NAMES)
                        await cluster.up[name].wait_durable()
                        cluster.kill(name)
                        watch(await cluster.start(name))
                    case 4:
                        await trio.sleep(chance.random() * 3)
                    case 5:
                        cluster.network.heal()
                        await agree(cluster)
                        cluster.network.cut("c")
                        await EDITS["set"][1](cluster.up["c"], chance)
                        await evict(cluster, "c")
                        await EDITS["set"][1](cluster.up["a"], chance)
                        cluster.network.heal()
                        await agree(cluster)
                    case _:
                        with suppress(StoreFullError):
                            await chance.choice(list(EDITS.values()))[1](replica, chance)
            cluster.network.heal()
            await agree(cluster)
            for name, replica in cluster.up.items():
                for copy in copies[name]:
                    await eventually(lambda copy=copy: copy.value == copy.handle.value)
                assert replica.snapshot() == cluster.up["a"].snapshot()
            nursery.cancel_scope.cancel()

    run()
