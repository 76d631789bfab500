"""Objects without a network, against what the history alone says: names, types, deletions, values,
and programs that are upgraded or restarted at any time.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pytest

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import AWMap, PureOpCRDT, ResettableCounter, SharedList
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError, UnusableInputError
from crdtcast.replica.objects import Key, Objects, packed
from tests.datatypes.test_odd_input import damaged
from tests.effort import seeds

from .boards import Likes, NewBoard, OldBoard

NAMES = ("x", "y")
NOTES = ("a", "b")


@dataclass(frozen=True)
class Done:
    """An operation in somebody's history; type None: a deletion."""

    tag: Tag
    index: int
    name: str
    type: str | None
    operation: tuple[Any, ...]

    def before(self, other: "Done") -> bool:
        if self.tag.dot == other.tag.dot:
            return self.index < other.index
        return self.tag < other.tag


@dataclass
class Program:
    name: str
    objects: Objects
    vector: dict[str, int] = field(default_factory=dict)
    history: list[Done] = field(default_factory=list)
    unstable: dict[Tag, bytes] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, *, only_lists: bool = False) -> None:
        self.only_lists = only_lists
        self.names = NAMES[:1] if only_lists else NAMES
        self.random = random.Random(seed)
        kinds = [[NewBoard, Likes], [OldBoard], [OldBoard, ResettableCounter]]
        self.programs = [
            Program(name, Objects(kind)) for name, kind in zip("abc", kinds, strict=True)
        ]
        self.lists: dict[Any, list[Any]] = {}
        self.sent: dict[str, list[tuple[Tag, bytes]]] = {p.name: [] for p in self.programs}

    def step(self) -> None:
        program = self.random.choice(self.programs)
        kind = self.random.choices(
            ["issue", "deliver", "stabilise", "restart", "upgrade"], [5, 9, 4, 1, 0.3]
        )[0]
        getattr(self, kind)(program)

    def issue(self, program: Program) -> None:
        entries: list[Any] = []
        before: dict[Key, list[Any]] = {}
        for _ in range(self.random.choice([1, 1, 2])):
            name = self.random.choice(self.names)
            if self.random.random() < 0.2:
                entries.append([name, None])
                continue
            board = program.objects.type_named("board_example")
            assert board is not None
            types: list[type[PureOpCRDT[Any]]] = [board, ResettableCounter, SharedList]
            if program.objects.type_named("likes_example"):
                types.append(Likes)
            chosen = SharedList if self.only_lists else self.random.choice(types)
            operation = self.random.choice(sorted(set(chosen.OPERATIONS) - {"clear", "reset"}))
            args = [self.random.choice(NOTES) for _ in range(1 + (operation == "rewrite"))]
            if chosen is SharedList:
                operation = self.random.choice(["insert", "insert", "delete"])
                args = [self.random.randrange(3), *args][: 1 + (operation == "insert")]
            elif "board" not in chosen.TYPE:
                args = [1]
            key = (name, chosen.TYPE)
            try:
                prepared = program.objects.prepare(key, operation, args, before.get(key, []))
            except (InvalidOperationError, LocalProtocolError):
                continue  # another type has the name here, or it is beyond this program
            before.setdefault(key, []).append(prepared)
            entries.append(program.objects.entry(key, prepared))
        if entries:
            dot = Dot(program.name, len(self.sent[program.name]) + 1)
            tag = Tag(dot, (), dict(program.vector))
            self.sent[program.name].append((tag, packed(entries)))
            self.take(program, tag, packed(entries))

    def take(self, program: Program, tag: Tag, payload: bytes) -> None:
        _, wrong = program.objects.deliver(msgpack.unpackb(payload), tag)
        assert wrong == []
        program.vector[tag.dot.origin] = tag.dot.counter
        program.unstable[tag] = payload
        for index, (name, named, *operation) in enumerate(msgpack.unpackb(payload)):
            type_name = named[0] if isinstance(named, list) else named
            program.history.append(Done(tag, index, name, type_name, tuple(operation)))

    def deliver(self, program: Program) -> bool:
        for origin in self.random.sample(sorted(self.sent), len(self.sent)):
            at = program.vector.get(origin, 0)
            if at < len(self.sent[origin]):
                tag, payload = self.sent[origin][at]
                if all(program.vector.get(o, 0) >= n for o, n in tag.past.items()):
                    self.take(program, tag, payload)
                    return True
        return False

    def stabilise(self, program: Program) -> None:
        to_come = [
            tag
            for origin, sent in self.sent.items()
            for tag, _ in sent[program.vector.get(origin, 0) :]
        ]
        for tag in list(program.unstable):
            origin, counter = tag.dot
            everywhere = all(p.vector.get(origin, 0) >= counter for p in self.programs)
            if everywhere and all(tag < other for other in to_come):
                program.objects.stable(tag)
                del program.unstable[tag]

    def restart(self, program: Program) -> None:
        saved = msgpack.unpackb(msgpack.packb(program.objects.packed()))
        types = [program.objects.type_named(n) for n in ("board_example", "likes_example")]
        again = Objects([known for known in types if known is not None])
        assert again.load(saved) == 0
        again.touched = dict(program.objects.touched)
        assert again.packed() == program.objects.packed()
        program.objects = again

    def upgrade(self, program: Program) -> None:
        for newer in (NewBoard, Likes):
            assert program.objects.learn(newer) == 0

    def check(self, program: Program) -> None:
        """The listing and every value that the program fully knows, from its history."""
        objects = program.objects
        live: dict[Key, list[Done]] = {}
        for done in program.history:
            deleted = any(
                other.type is None and other.name == done.name and done.before(other)
                for other in program.history
            )
            if done.type is not None and not deleted:
                live.setdefault((done.name, done.type), []).append(done)
        listed = objects.listing()
        assert [(info.name, info.type) for info in listed] == sorted(live)
        for name in NAMES:
            types = [key[1] for key in live if key[0] == name]
            assert objects.visible_type(name) == (min(types) if types else None)
        for info in listed:
            key = (info.name, info.type)
            if info.known and not info.unknown:
                crdt = objects.crdt(key)
                if isinstance(crdt, SharedList):
                    cut = str(sorted(program.vector.items())), key
                    assert self.lists.setdefault(cut, crdt.value) == crdt.value
                elif isinstance(crdt, OldBoard):
                    assert crdt.value == notes(live[key], program.history), key
                else:
                    signs = {"increment": 1, "decrement": -1}
                    assert crdt.value == sum(
                        signs[d.operation[0]] * d.operation[1] for d in live[key]
                    )


def notes(live: list[Done], history: list[Done]) -> set[str]:
    """What was put up by an operation that is left, and not taken down by any that had seen it."""

    def up(done: Done) -> str | None:
        return None if done.operation[0] == "remove" else done.operation[-1]

    def takes(done: Done, note: str) -> bool:
        return done.type is not None and note in done.operation[1:]

    return {
        note
        for done in live
        if (note := up(done)) is not None
        and not any(
            done.before(other)
            and other.name == done.name
            and other.type == done.type
            and takes(other, note)
            for other in history
        )
    }


@pytest.mark.parametrize("seed", seeds(100))
def test_any_history_converges_to_its_specification(seed: int) -> None:
    run(World(seed))


@pytest.mark.parametrize("seed", seeds(100))
def test_deleted_list_stays_while_it_can_be_referred_to(seed: int) -> None:
    run(World(seed, only_lists=True))


def run(world: World) -> None:
    for _ in range(50):
        world.step()
        for program in world.programs:
            world.check(program)
    for program in world.programs:
        while world.deliver(program):
            pass
        world.check(program)
    for program in world.programs:
        world.stabilise(program)
        world.upgrade(program)
        world.check(program)
        assert all(
            info.known and info.unknown == info.unstable == 0 for info in program.objects.listing()
        )
        assert program.objects.touched == {}
        assert {held.key for held in program.objects} == {
            held.key for held in program.objects._all()
        }
    assert len({str(program.objects.packed()) for program in world.programs}) == 1


def test_a_known_type_s_name_is_not_taken_over() -> None:
    class Thief(ResettableCounter):
        TYPE = "set_aw"

    with pytest.raises(LocalProtocolError, match="uses TYPE 'set_aw', which is AWSet"):
        Objects().learn(Thief)


def test_a_deleted_list_stays_until_its_deletion_is_stable() -> None:
    def issue(objects: Objects, counter: int, *entries: list[Any]) -> Tag:
        tag = Tag(Dot("a", counter), (), {"a": counter - 1} if counter > 1 else {})
        objects.deliver(entries, tag)
        return tag

    objects, key = Objects(), ("l", SharedList.TYPE)
    first = objects.entry(key, objects.prepare(key, "insert", [0, "x"]))
    tags = [issue(objects, 1, first), issue(objects, 2, ["l", None])]
    assert objects.listing() == [] and objects.visible_type("l") is None
    # Still there, for those who may refer to its positions.
    assert objects.crdt(key).value == [] and len(list(objects._all())) == 1
    for tag in tags:
        objects.stable(tag)
    again = Objects()
    again.load(objects.packed())
    for kept in (objects, again):
        assert list(kept._all()) == []
        assert kept.prepare(key, "insert", [0, "y"]) == ["place", None, "L", ["y"]]


class OldShelf(AWMap):
    TYPE = "shelf_example"


class NewShelf(OldShelf):
    """The same map in a program that knows one more type to put into it."""

    VERSION = 2
    TYPES = {Likes.TYPE: Likes}  # noqa: RUF012
    SINCE = {Likes.TYPE: 2}  # noqa: RUF012


def test_map_keeps_unknown_updates_until_the_upgrade() -> None:
    new, old, key = Objects([NewShelf]), Objects([OldShelf]), ("shelf", OldShelf.TYPE)
    calls = [
        ("update", "a", "set_aw", ["add", "x"]),
        ("update", "b", Likes.TYPE, ["increment", 2]),
        ("remove", "a", "set_aw"),
    ]
    for counter, (operation, *args) in enumerate(calls, start=1):
        entries = [new.entry(key, new.prepare(key, operation, args))]
        tag = Tag(Dot("a", counter), (), {"a": counter - 1} if counter > 1 else {})
        for objects in (new, old):
            assert objects.deliver(msgpack.unpackb(packed(entries)), tag)[1] == []
            objects.stable(tag)
    assert [(info.known, info.unknown) for info in old.listing()] == [(True, 1)]
    assert old.crdt(key).value == {}
    upgraded = Objects([NewShelf])
    assert upgraded.load(old.packed()) == 0
    assert upgraded.crdt(key).value == new.crdt(key).value == {("b", Likes.TYPE): 2}
    assert upgraded.listing()[0].unknown == 0


@pytest.mark.parametrize("seed", seeds(20))
def test_damaged_state_is_refused_on_load_or_still_works(seed: int) -> None:
    world = World(seed)
    for _ in range(30):
        world.step()
    for program in world.programs:
        saved = msgpack.unpackb(msgpack.packb(program.objects.packed()))
        for _ in range(20):
            objects = Objects([NewBoard, Likes])
            try:
                objects.load(damaged(world.random, saved))
            except UnusableInputError as refusal:
                assert "\n" not in str(refusal)
                continue
            goes_on(objects, program)


def goes_on(objects: Objects, program: Program) -> None:
    """Whatever may come after this state comes, and nothing of it raises."""
    for info in objects.listing():
        if info.known:
            objects.crdt((info.name, info.type)).digest()
    past = dict(program.vector)
    tags = list(program.unstable)
    for number, entries in enumerate([[["x", "sequence", "reset"]], [["x", None], ["y", None]]]):
        tags.append(Tag(Dot("z", number + 1), (), {**past, "z": number}))
        objects.deliver(entries, tags[-1])
    for tag in tags:
        objects.stable(tag)
    objects.packed()
