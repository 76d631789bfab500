"""Members that hold messages until they are synced, and others that declare that later, in one group:
only what is durable acknowledges.
"""

import random
from itertools import combinations

import pytest

from benchmarks.baselines.simulator.host import BaselineHost
from benchmarks.baselines.simulator.network import BaselineNetwork
from benchmarks.baselines.simulator.scheduler import actions
from benchmarks.baselines.simulator.world import World
from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Digest, DigestKind
from crdtcast.engine import Durability, Engine, GroupEngine
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.simulator.faults import STRONG
from crdtcast.wire.frames import decode, encode
from tests.effort import seeds

NAMES = ("a", "b", "c", "d")


class MixedWorld(World):
    """Every other member declares later what is durable."""

    def __init__(self) -> None:
        super().__init__(NAMES, Durability.DECLARED)
        for name in NAMES[::2]:
            self.hosts[name] = BaselineHost(name, NAMES, Durability.IMMEDIATE, Engine)
        self.network = BaselineNetwork(NAMES)
        for a, b in combinations(NAMES, 2):
            self._link(a, b)


def storm(seed: int) -> None:
    world = MixedWorld()
    for action in actions(random.Random(seed), world, STRONG):
        world.apply(action)
    world.drain()


def test_nothing_is_stable_that_a_crash_takes_back() -> None:
    for seed in seeds(60):
        storm(seed)


def engines(**durable: Durability) -> list[Engine]:
    ids = {name: new_incarnation(name, 1, 0) for name in durable}
    made = [Engine(ids[name], ids, durable=how) for name, how in durable.items()]
    for engine in made:
        for other in made:
            if other is not engine:
                engine.introduce(other.me)
                engine.connected(other.me)
    return made


def exchange(*engines: Engine) -> None:
    """Everything that is to be sent arrives, and is taken."""
    by_id = {engine.me: engine for engine in engines}
    while effects := [(e.me, effect) for e in engines for effect in e.take_outbox()]:
        for sender, effect in effects:
            for to in by_id if effect.to is None else (effect.to,):
                if to != sender and to in by_id:
                    by_id[to].receive(sender, effect.message)
        for engine in engines:
            while engine.poll():
                pass


def test_message_sent_before_its_past_is_durable_is_no_ack() -> None:
    a, b, c = engines(a=Durability.IMMEDIATE, b=Durability.IMMEDIATE, c=Durability.DECLARED)
    exchange(a, b, c)
    a.send(b"x")
    exchange(a, b, c)
    c.send(b"after x, which c has not synced")
    b.send(b"after x, which b has synced")
    exchange(a, b, c)
    for _ in range(30):
        for engine in (a, b, c):
            engine.tick()
        exchange(a, b, c)
    assert not a.poll_stable() and not b.poll_stable()
    c.mark_durable(c.state().vector)
    for _ in range(30):
        for engine in (a, b, c):
            engine.tick()
        exchange(a, b, c)
    assert len(a.poll_stable()) == len(b.poll_stable()) == len(c.poll_stable()) == 3


def test_changing_group_refuses_non_durable_digests() -> None:
    founder, other = new_incarnation("a", 1, 0), new_incarnation("b", 1, 0)
    engine = GroupEngine.found(founder, [founder, other])
    engine.connected(other)
    digest = Digest(DigestKind.NEWS, {other: 0}, acknowledging=False)
    with pytest.raises(RemoteProtocolError, match=r"Durability\.IMMEDIATE"):
        engine.receive(other, digest)


@pytest.mark.parametrize("kind", DigestKind)
def test_the_wire_tells_whose_messages_acknowledge(kind: DigestKind) -> None:
    for acknowledging in (True, False):
        digest = Digest(kind, {"a.1": 3}, acknowledging=acknowledging)
        assert decode(encode(digest)[4:]) == digest
