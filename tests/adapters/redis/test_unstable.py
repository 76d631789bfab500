"""The unstable log, compared after each step with one that keeps a row for every atom of every member."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Effect,
    Inc,
    KillKey,
    KillSlots,
    One,
    RedisType,
)
from crdtcast.adapters.redis.store.slot_value import Atom
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.causality.tags import Dot, Tag, covers, merge_into

KEYS = (b"k", b"l")
MEMBERS = tuple(b"%d" % number for number in range(14))
ORIGINS = "abc"

slots = st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=14).map(tuple)
key = st.sampled_from(KEYS)
effect = st.one_of(
    st.builds(One, key, st.just(RedisType.SET), slots),
    st.builds(Inc, key, st.just(RedisType.STRING), st.just(WHOLE), st.integers(-3, 3)),
    st.builds(KillKey, key),
    st.builds(KillSlots, key, st.just(RedisType.SET), slots),
)
sent = st.tuples(
    st.sampled_from(ORIGINS), st.lists(effect, min_size=1, max_size=4), st.sets(st.integers(0, 40))
)
steps = st.lists(st.one_of(sent, st.sampled_from(["stabilise", "restart", "look"])), max_size=40)


class NaiveLog:
    """A list of (key, member or None, atom, delta). supersedes: whether an add takes out those that it has seen."""

    def __init__(self, *, supersedes: bool) -> None:
        self._supersedes = supersedes
        self.rows: list[tuple[bytes, bytes | None, Atom, int]] = []

    def _kill(self, tag: Tag, key: bytes, members: tuple[bytes, ...] | None) -> None:
        self.rows = [
            row
            for row in self.rows
            if not (
                row[0] == key
                and (members is None or row[1] in members)
                and (covers(tag.past, row[2].dot) or row[2].dot == tag.dot)
            )
        ]

    def apply(self, effect: Effect, tag: Tag, index: int) -> None:
        atom = Atom(tag.dot, index)
        match effect:
            case One(key, _, members):
                if self._supersedes:
                    self._kill(tag, key, members)
                self.rows += [(key, member, atom, 0) for member in dict.fromkeys(members)]
            case Inc(key, _, _, delta):
                self.rows.append((key, None, atom, delta))
            case KillKey(key):
                self._kill(tag, key, None)
            case KillSlots(key, _, members):
                self._kill(tag, key, members)

    def present_atoms(self, key: bytes) -> set[tuple[bytes, Atom]]:
        return {(row[1], row[2]) for row in self.rows if row[0] == key and row[1] is not None}

    def present(self, key: bytes) -> set[bytes]:
        return {member for member, _ in self.present_atoms(key)}


@dataclass
class History:
    """What one member has delivered, in an order that respects causality; `a` is that member."""

    log: UnstableLog = field(default_factory=UnstableLog)
    naive: NaiveLog = field(default_factory=lambda: NaiveLog(supersedes=True))
    everything: NaiveLog = field(default_factory=lambda: NaiveLog(supersedes=False))
    vectors: dict[str, dict[str, int]] = field(default_factory=lambda: {o: {} for o in ORIGINS})
    messages: list[tuple[Tag, list[Effect]]] = field(default_factory=list)

    def send(self, origin: str, effects: list[Effect], seen: set[int]) -> None:
        vector = self.vectors[origin]
        for place in seen:
            if place < len(self.messages):
                tag = self.messages[place][0]
                merge_into(vector, {**tag.past, tag.dot.origin: tag.dot.counter})
        # A member's own tag has its live vector as past while it is prepared.
        past = vector if origin == "a" else dict(vector)
        tag = Tag(Dot(origin, vector.get(origin, 0) + 1), (), past)
        for index, effect in enumerate(effects):
            self.naive.apply(effect, tag, index)
            self.everything.apply(effect, tag, index)
            match effect:
                case KillSlots(key, _, members):
                    gone = self.log.kill_slots(key, RedisType.SET, members, tag)
                    assert set(gone) == set(members) - self.naive.present(key)
                    assert (gone is members) == (set(gone) == set(members))
                case KillKey(key):
                    left = self.log.kill_key(key, tag)
                    rows = [row for row in self.naive.rows if row[0] == key]
                    deltas = [row[3] for row in rows if row[1] is None]
                    found = {type_: log.survivors() for type_, log in left.items()}
                    expected: dict[RedisType, dict[bytes, bytes]] = {}
                    if deltas:
                        expected[RedisType.STRING] = {WHOLE: b"%d" % sum(deltas)}
                    if present := self.naive.present(key):
                        expected[RedisType.SET] = dict.fromkeys(present, b"")
                    assert found == expected
                case _:
                    self.log.apply(effect, tag, 0, index)
        vector[origin] = tag.dot.counter
        merge_into(self.vectors["a"], {origin: tag.dot.counter})
        self.messages.append((Tag(tag.dot, (), dict(past)), effects))

    def stabilise(self) -> None:
        """As early as the definition allows: every member has it, so nothing concurrent with it comes."""
        for tag, _ in list(self.messages):
            if all(covers(vector, tag.dot) for vector in self.vectors.values()):
                self.log.stabilise(tag.dot)
                for naive in (self.naive, self.everything):
                    naive.rows = [row for row in naive.rows if row[2].dot != tag.dot]
                self.messages = [pair for pair in self.messages if pair[0].dot != tag.dot]

    def restart(self) -> None:
        """The log is what the stored messages say."""
        self.log = UnstableLog()
        for tag, effects in self.messages:
            for index, effect in enumerate(effects):
                self.log.apply(effect, tag, 0, index)

    def check(self) -> None:
        """Every atom is there. The look must not be what makes it so: `restart` has undone it, at times.

        Of a large add those may be left that it has superseded: they are worth nothing beside it.
        """
        for key in KEYS:
            found = {
                (m, atom)
                for m, atoms in self.log.of(key, RedisType.SET).held.items()
                for atom in atoms
            }
            assert self.naive.present_atoms(key) <= found <= self.everything.present_atoms(key)
            if not any(
                len(effect.slots) >= 1000
                for _, effects in self.messages
                for effect in effects
                if isinstance(effect, One)
            ):
                assert found == self.naive.present_atoms(key)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(steps)
def test_any_interleaving_leaves_the_atoms_of_a_naive_log(steps: list[object]) -> None:
    history = History()
    for step in steps:
        match step:
            case "stabilise":
                history.stabilise()
            case "restart":
                history.restart()
            case "look":
                history.check()
            case (origin, effects, seen):
                history.send(origin, effects, seen)  # type: ignore[arg-type]
    history.check()
    for vector in history.vectors.values():
        merge_into(vector, history.vectors["a"])
    history.stabilise()
    assert len(history.log) == 0
    assert not list(history.log.keys())


def test_large_adds_among_small_ones_leave_the_same_atoms() -> None:
    seed = 9
    print("seed", seed)
    rng = Random(seed)
    names = [b"m%d" % number for number in range(3000)]
    history = History()
    for _ in range(60):
        some = tuple(rng.sample(names, rng.choice((1, 2, 900, 3000))))
        choice: list[Effect] = [
            One(b"k", RedisType.SET, some),
            KillSlots(b"k", RedisType.SET, some),
            KillKey(b"k"),
        ]
        effects = rng.choices(choice, (6, 3, 1), k=rng.randint(1, 2))
        history.send(rng.choice(ORIGINS), effects, set(rng.sample(range(20), 3)))
        rng.choice((history.stabilise, history.restart, lambda: None))()
        if rng.random() < 0.5:
            history.check()
    history.check()


def test_stability_of_a_killed_add_keeps_a_later_one() -> None:
    log = UnstableLog()
    first, kill, second = (Tag(Dot("a", n), (), {"a": n - 1}) for n in (1, 2, 3))
    log.one(b"k", RedisType.SET, [b"x"], first, 0)
    log.kill_key(b"k", kill)
    log.one(b"k", RedisType.SET, [b"x"], second, 0)
    log.stabilise(first.dot)
    assert log.of(b"k", RedisType.SET).held == {b"x": (Atom(second.dot, 0),)}


def test_killed_key_leaves_no_removed_members_in_the_log() -> None:
    log, members = UnstableLog(), tuple(b"%d" % number for number in range(2000))
    log.one(b"k", RedisType.SET, members, Tag(Dot("a", 1), (), {"a": 0}), 0)
    log.kill_slots(b"k", RedisType.SET, members, Tag(Dot("a", 2), (), {"a": 1}))
    assert log.kill_key(b"k", Tag(Dot("b", 1), (), {})) == {}
    assert log.key(b"k") == {}
