"""What an evicted gateway's own writes mean behind those of the group: small cases, and random ones against a model."""

import random
from collections.abc import Iterable

import pytest

from crdtcast.adapters.redis.group.rebase import Flush, Mine, Removal, Write
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Assign,
    Effect,
    Inc,
    KillAll,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
)
from crdtcast.exceptions import UnusableInputError
from tests.adapters.redis.rebased import rebased
from tests.effort import seeds

KEY = b"k"


def add(*members: bytes) -> One:
    return One(KEY, RedisType.SET, members)


def remove(*members: bytes) -> KillSlots:
    return KillSlots(KEY, RedisType.SET, members)


def inc(delta: int) -> Inc:
    return Inc(KEY, RedisType.STRING, WHOLE, delta)


def members(*names: bytes) -> Contents:
    return {RedisType.SET: dict.fromkeys(names, b"")} if names else {}


def number(value: int) -> Contents:
    return {RedisType.STRING: {WHOLE: b"%d" % value}}


def mine(*parts: tuple[Effect, Contents | None]) -> Mine:
    taken = {place: taken for place, (_, taken) in enumerate(parts)}
    return Mine.decode(Mine.of([effect for effect, _ in parts], taken, {"a.1": 3}).encode())


def test_parked_message_survives_encoding() -> None:
    parked = mine(
        (add(b"x"), None),
        (remove(b"x", b"y"), members(b"y")),
        (KillKey(b"n"), number(7)),
        (KillKey(b"lost"), None),
        (inc(2**70), None),
        (Reg(b"h", RedisType.HASH, (b"f", b"1", b"g", b"2")), {RedisType.HASH: {b"g": b"0"}}),
        (Reg(b"h", RedisType.HASH, (b"f", b"1")), None),
        (Inc(b"h", RedisType.HASH, b"f", -1), None),
    )
    assert parked.parts == (
        add(b"x"),
        Removal(KEY, RedisType.SET, (b"x", b"y"), members(b"y")),
        Removal(b"n", None, None, number(7)),
        Removal(b"lost", None, None, None),
        inc(2**70),
        Write(b"h", RedisType.HASH, {b"f": b"1", b"g": b"2"}, {b"g": b"0"}),
        Write(b"h", RedisType.HASH, {b"f": b"1"}, None),
        Inc(b"h", RedisType.HASH, b"f", -1),
    )
    assert parked.home == {"a.1": 3} and not parked.rebased
    for raw in (
        b"",
        effects.encode(1, [add(b"x")]),
        parked.encode().replace(b"parked\x02", b"parked\x03"),
    ):
        with pytest.raises(UnusableInputError):
            Mine.decode(raw)


def test_own_removal_undoes_own_writes_and_keeps_the_groups() -> None:
    found, yielding = rebased(
        [
            mine((add(b"own", b"both"), None), (inc(5), None)),
            mine((remove(b"own", b"old"), members(b"own", b"old"))),
            mine((add(b"old"), None)),
            mine((KillKey(b"gone"), None)),
        ]
    )
    assert [message.parts for message in found] == [(add(b"both"), inc(5)), (), (add(b"old"),), ()]
    assert yielding == [Removal(b"gone", None, None, None)]
    found, _ = rebased(
        [mine((inc(5), None)), mine((KillKey(KEY), number(105))), mine((inc(2), None))]
    )
    assert [message.parts for message in found] == [
        (),
        (Removal(KEY, None, None, number(100)),),
        (inc(2),),
    ]
    assert rebased(found) == (found, [])


def test_flush_yields_and_undoes_own_earlier_writes() -> None:
    found, yielding = rebased(
        [
            mine((add(b"own"), None), (inc(5), None), (KillKey(b"gone"), number(7))),
            mine(
                (Inc(b"n", RedisType.HASH, b"f", 1), None),
                (KillAll(None), None),
                (add(b"again"), None),
            ),
            mine((remove(b"again"), members(b"again")), (inc(2), None)),
        ]
    )
    assert [message.parts for message in found] == [(), (), (inc(2),)]
    assert yielding == [Flush(None)] and str(Flush(None)) == "FLUSHALL"
    assert rebased(found) == (found, [])


def test_last_own_value_compares_with_the_one_before_all_own() -> None:
    def hset(*words: bytes) -> Reg:
        return Reg(KEY, RedisType.HASH, words)

    def fields(**pairs: bytes) -> Contents:
        return {RedisType.HASH: {slot.encode(): value for slot, value in pairs.items()}}

    found, yielding = rebased(
        [
            mine((hset(b"f", b"1", b"g", b"1"), fields(f=b"theirs"))),
            mine((Inc(KEY, RedisType.HASH, b"f", 4), None)),
            mine((hset(b"f", b"9"), fields(f=b"5"))),
            mine((KillSlots(KEY, RedisType.HASH, (b"g", b"h")), fields(g=b"1", h=b"theirs"))),
            mine((hset(b"h", b"2"), fields())),
            mine((hset(b"lost", b"3"), None)),
        ]
    )
    assert not yielding
    assert [message.parts for message in found] == [
        (),
        (),
        (Write(KEY, RedisType.HASH, {b"f": b"9"}, {b"f": b"theirs"}),),
        (),
        (Write(KEY, RedisType.HASH, {b"h": b"2"}, {b"h": b"theirs"}),),
        (Write(KEY, RedisType.HASH, {b"lost": b"3"}, None),),
    ]
    assert rebased(found) == (found, [])


def test_second_own_write_compares_with_a_foreign_write_between() -> None:
    set_ = Reg(KEY, RedisType.STRING, (WHOLE, b"mine"))
    found, _ = rebased(
        [
            mine((KillKey(KEY), number(1)), (set_, {})),
            mine((KillKey(KEY), number(7)), (set_, {})),
            mine((KillKey(KEY), {RedisType.STRING: {WHOLE: b"mine"}}), (set_, {})),
        ]
    )
    seven = {WHOLE: b"7"}
    assert [message.parts for message in found] == [
        (),
        (),
        (Write(KEY, RedisType.STRING, {WHOLE: b"mine"}, seven),),
    ]


def test_removal_of_a_restored_value_stays_only_for_own_counts() -> None:
    parked = [
        Mine.of([KillKey(KEY)], {0: number(5)}, {}, 1, {0: frozenset({(RedisType.STRING, WHOLE)})})
    ]
    found, _ = rebased([Mine.decode(message.encode()) for message in parked])
    assert [message.parts for message in found] == [()]
    found, _ = rebased([*parked, mine((inc(2), None))])
    assert [message.parts for message in found] == [
        (Removal(KEY, None, None, number(5)),),
        (inc(2),),
    ]


SLOTS = (b"0", b"1", b"2")


class Region:
    """Keys with members, fields and one value, by what is written."""

    def __init__(self, slots: dict[tuple[bytes, RedisType, bytes], bytes]) -> None:
        self.slots = dict(slots)

    def write(self, effect: Effect) -> Contents:
        """Carry it out. Returns what it takes away."""
        found: dict[RedisType, dict[bytes, bytes]] = {}
        match effect:
            case One(key, type_, names):
                self.slots.update(((key, type_, name), b"") for name in names)
            case Inc(key, type_, name, delta):
                before = int(self.slots.get((key, type_, name), b"0"))
                self.slots[key, type_, name] = b"%d" % (before + delta)
            case KillKey(key):
                found = self._pop(slot for slot in list(self.slots) if slot[0] == key)
            case Assign(key, value):
                found = self._pop(slot for slot in list(self.slots) if slot[0] == key)
                self.slots[key, RedisType.STRING, WHOLE] = value
            case KillSlots(key, type_, names):
                found = self._pop((key, type_, name) for name in names)
            case Reg(key, type_, words):
                found = self._pop((key, type_, name) for name in words[::2])
                pairs = zip(words[::2], words[1::2], strict=True)
                self.slots.update(((key, type_, name), value) for name, value in pairs)
        return found

    def _pop(self, slots: Iterable[tuple[bytes, RedisType, bytes]]) -> Contents:
        found: dict[RedisType, dict[bytes, bytes]] = {}
        for slot in slots:
            if slot in self.slots:
                found.setdefault(slot[1], {})[slot[2]] = self.slots.pop(slot)
        return found

    def perform(self, message: Mine) -> None:
        """As a gateway does it where nobody else writes: all of it goes out."""
        for part in message.parts:
            match part:
                case One() | Inc():
                    self.write(part)
                case Write(key, type_, values, taken):
                    assert taken == {
                        name: self.slots[key, type_, name]
                        for name in values
                        if (key, type_, name) in self.slots
                    }
                    self.slots.update(((key, type_, name), v) for name, v in values.items())
                case Removal(key, _, _, taken):
                    assert taken is not None
                    for type_, content in taken.items():
                        for name, worth in content.items():
                            found = self.slots.pop((key, type_, name), None)
                            assert type_ is RedisType.SET or found == worth


def a_write(choice: random.Random) -> Effect:
    some = tuple(choice.sample(SLOTS, choice.randrange(1, 3)))
    value = b"%d" % choice.randrange(100, 105)
    key = choice.choice((b"s", b"h", b"n"))
    match key, choice.randrange(6):
        case _, 0:
            return KillKey(key)
        case b"s", 1 | 2:
            return KillSlots(key, RedisType.SET, some)
        case b"s", _:
            return One(key, RedisType.SET, some)
        case b"h", 1:
            return KillSlots(key, RedisType.HASH, some)
        case b"h", 2 | 3:
            return Inc(key, RedisType.HASH, some[0], choice.randrange(1, 4))
        case b"h", _:
            return Reg(key, RedisType.HASH, tuple(w for slot in some for w in (slot, value)))
        case _, 1 | 2 | 3:
            return Inc(key, RedisType.STRING, WHOLE, choice.randrange(1, 4))
    if choice.randrange(2):
        return Assign(key, value)
    return Reg(key, RedisType.STRING, (WHOLE, value))


@pytest.mark.parametrize("seed", seeds(400))
def test_unchanged_group_gets_all_own_values_back(seed: int) -> None:
    """Cut anywhere: the rest may be compared a second time. Numbers may count to nothing, as one that was not there."""
    choice = random.Random(seed)
    base = Region({})
    for _ in range(6):
        base.write(a_write(choice))
    home, theirs = Region(base.slots), Region(base.slots)
    readded: set[tuple[bytes, RedisType, bytes]] = set()
    messages: list[Mine] = []
    for _ in range(choice.randrange(1, 8)):
        effects_, taken = [], {}
        for place in range(choice.randrange(1, 4)):
            effect = a_write(choice)
            if isinstance(effect, One):
                names = {(effect.key, effect.type, name) for name in effect.slots}
                readded |= names & home.slots.keys()
            effects_.append(effect)
            taken[place] = home.write(effect)
        messages.append(Mine.of(effects_, taken, {}))
    found, yielding = rebased([Mine.decode(message.encode()) for message in messages])
    assert not yielding
    cut = choice.randrange(len(found) + 1)
    for message in found[:cut]:
        theirs.perform(message)
    rest, _ = rebased([Mine.decode(message.encode()) for message in found[cut:]])
    for message in rest:
        theirs.perform(message)
    # What it had added again, to the group's, before it removed it, may have been there for others, too.
    extra = {slot: worth for slot, worth in theirs.slots.items() if slot not in home.slots}
    assert extra.keys() <= readded
    assert {slot: theirs.slots.get(slot) for slot in home.slots} == home.slots


@pytest.mark.parametrize("seed", seeds(100))
def test_unchanged_group_gets_own_sets_and_number_back(seed: int) -> None:
    """Sets and a number; what was covered is base. Cut anywhere: the rest may be compared a second time."""
    choice = random.Random(seed)
    names = [b"%d" % number for number in range(4)]
    base = {name for name in names if choice.random() < 0.5}
    home = set(base)
    readded: set[bytes] = set()
    base_number = count = choice.choice([0, 40])
    messages: list[Mine] = []
    for _ in range(choice.randrange(1, 6)):
        parts: list[tuple[Effect, Contents | None]] = []
        for _ in range(choice.randrange(1, 4)):
            some = tuple(choice.sample(names, choice.randrange(1, 3)))
            match choice.randrange(5):
                case 0 | 1:
                    parts.append((add(*some), None))
                    readded.update(home.intersection(some))
                    home.update(some)
                case 2:
                    parts.append((remove(*some), members(*(m for m in some if m in home))))
                    home.difference_update(some)
                case 3:
                    parts.append((Inc(b"n", RedisType.STRING, WHOLE, 1), None))
                    count += 1
                case _:
                    parts.append((KillKey(KEY), members(*sorted(home))))
                    parts.append((KillKey(b"n"), number(count) if count else {}))
                    home.clear()
                    count = 0
        messages.append(mine(*parts))
    found, yielding = rebased(messages)
    assert not yielding
    theirs, theirs_number = set(base), base_number

    def perform(message: Mine) -> None:
        nonlocal theirs_number
        for part in message.parts:
            match part:
                case One(_, _, slots):
                    theirs.update(slots)
                case Inc(_, _, _, delta):
                    theirs_number += delta
                case Removal(taken=taken):
                    assert taken is not None
                    theirs.difference_update(taken.get(RedisType.SET, ()))
                    if RedisType.STRING in taken:
                        assert number(theirs_number)[RedisType.STRING] == taken[RedisType.STRING]
                        theirs_number = 0

    cut = choice.randrange(len(found) + 1)
    for message in found[:cut]:
        perform(message)
    rest, _ = rebased([Mine.decode(message.encode()) for message in found[cut:]])
    for message in rest:
        perform(message)
    # What it had added again, to the group's, before it removed it, may have been there for others, too.
    assert home <= theirs <= home | readded
    assert theirs_number == count
