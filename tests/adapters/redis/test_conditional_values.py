"""Values that were written only to make them greater, or less: 3,000 random schedules of three replicas.

Messages are delivered in any order that causality allows, and each message is stable as early as the definition allows.
After every step a replica's value is what the history makes of all that it has delivered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from crdtcast.adapters.redis.store import slot_value
from crdtcast.adapters.redis.store.effects import Effect, Inc, KillSlots, RedisType, Reg
from crdtcast.adapters.redis.store.slot_value import Only, Register, increased
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.causality.tags import Dot, Tag
from tests.adapters.redis.history import Told, past_of
from tests.effort import seeds

KEY, SLOT, TYPE = b"k", b"m", RedisType.ZSET
SCORES = (b"1", b"2", b"3.5", b"-4", b"inf", b"-inf", b"7")


@dataclass(eq=False)
class Replica:
    """Its native value, and the log over it."""

    name: str
    vector: dict[str, int] = field(default_factory=dict)
    native: bytes | None = None
    log: UnstableLog = field(default_factory=UnstableLog)
    delivered: list[Told] = field(default_factory=list)
    stable: set[Dot] = field(default_factory=set)

    def apply(self, told: Told) -> None:
        tag = told.tag
        for place, effect in enumerate(told.effects):
            self.log.apply(effect, tag, told.timestamp, place)
            if isinstance(effect, Inc):
                self.native = increased(b"0" if self.native is None else self.native, effect.delta)
            else:
                self.native = self.log.of(KEY, TYPE).worth(SLOT)
        self.vector[tag.dot.origin] = tag.dot.counter
        self.delivered.append(told)

    def issue(self, effect: Effect, timestamp: int) -> Told:
        dot = Dot(self.name, self.vector.get(self.name, 0) + 1)
        told = Told(Tag(dot, (), dict(self.vector)), timestamp, [effect])
        self.apply(told)
        return told

    def check(self) -> None:
        expected = past_of(KEY, self.delivered).values.get(TYPE, {}).get(SLOT)
        assert self.native == expected

    def stabilise(self, others: list["Replica"]) -> None:
        """Forget what everybody has, once all that was sent without having seen it is here."""
        for told in self.delivered:
            dot = told.tag.dot
            if dot in self.stable:
                continue
            for other in others:
                names = [each.tag.dot for each in other.delivered]
                if dot not in names:
                    return
                before = names[: names.index(dot)]
                last = max((d.counter for d in before if d.origin == other.name), default=0)
                if self.vector.get(other.name, 0) < last:
                    return
            self.stable.add(dot)
            self.log.stabilise(dot)


def _effect(rng: Random) -> Effect:
    kind = rng.random()
    if kind < 0.1:
        return KillSlots(KEY, TYPE, (SLOT,))
    if kind < 0.2:
        return Inc(KEY, TYPE, SLOT, rng.choice((1, -2, 5)))
    weights = rng.choice(((1, 8, 1), (1, 1, 8), (3, 3, 3), (0, 1, 0), (0, 0, 1)))
    (only,) = rng.choices(tuple(Only), weights)
    return Reg(KEY, TYPE, (SLOT, rng.choice(SCORES)), only=only)


def _run(seed: int) -> None:
    rng = Random(seed)
    replicas = [Replica(name) for name in "abc"]
    sent: list[Told] = []
    clock = 0
    for step in range(40):
        replica = rng.choice(replicas)
        waiting = [
            told
            for told in sent
            if told.tag.dot.counter == replica.vector.get(told.tag.dot.origin, 0) + 1
            and all(replica.vector.get(o, 0) >= c for o, c in told.tag.past.items())
        ]
        action = rng.random()
        if action < 0.4 and step < 30:
            clock += 1
            behind = [told.timestamp for told in replica.delivered]
            stamp = max(behind, default=0) + 1 if rng.random() < 0.5 else clock + 1
            sent.append(replica.issue(_effect(rng), max(stamp, max(behind, default=0) + 1)))
        elif waiting:
            replica.apply(rng.choice(waiting))
        else:
            replica.stabilise(replicas)
        replica.check()
        replica.stabilise(replicas)
        replica.check()


def test_values_are_those_of_the_history() -> None:
    for seed in seeds(3_000):
        _run(seed)


def _last_shows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slot_value, "shown_of", lambda registers: max(registers, key=_rank))


def _beaten_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The loser goes as the winner comes: a removal of the winner does not bring it out."""
    write = UnstableLog.write

    def write_one(self: UnstableLog, *words: object) -> object:
        log = write(self, *words)  # type: ignore[arg-type]
        for slot, atoms in log.held.items():
            log.held[slot] = (slot_value.shown_of(atoms),)  # type: ignore[arg-type]
        return log

    patch.setattr(UnstableLog, "write", write_one)


def _condition_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """It is judged where it was written, and not kept."""
    write = UnstableLog.write

    def write_plain(self: UnstableLog, *words: object) -> object:
        return write(self, *words[:6])  # type: ignore[arg-type]

    patch.setattr(UnstableLog, "write", write_plain)


def _rank(register: Register) -> tuple[int, str, int]:
    return register.rank


@pytest.mark.parametrize("fault", [_last_shows, _beaten_are_forgotten, _condition_is_forgotten])
def test_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    for seed in range(200):
        try:
            _run(seed)
        except AssertionError:
            print("found with seed", seed)
            return
    pytest.fail("no schedule finds it")
