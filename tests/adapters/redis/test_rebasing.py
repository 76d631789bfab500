"""What an evicted gateway's own writes mean behind those of the group: small cases, and random ones against a model."""

import random

import pytest

from crdtcast.adapters.redis import effects
from crdtcast.adapters.redis.effects import WHOLE, Effect, Inc, KillKey, KillSlots, One, RedisType
from crdtcast.adapters.redis.rebasing import Mine, Removal, Taken, rebased
from crdtcast.exceptions import UnusableInputError
from tests.effort import seeds

KEY = b"k"


def add(*members: bytes) -> One:
    return One(KEY, RedisType.SET, members)


def remove(*members: bytes) -> KillSlots:
    return KillSlots(KEY, RedisType.SET, members)


def inc(delta: int) -> Inc:
    return Inc(KEY, RedisType.STRING, WHOLE, delta)


def mine(*parts: tuple[Effect, Taken | None]) -> Mine:
    taken = {place: taken for place, (_, taken) in enumerate(parts)}
    return Mine.decode(Mine.of([effect for effect, _ in parts], taken, {"a.1": 3}).encode())


def test_what_is_parked_is_read_again_as_it_was() -> None:
    parked = mine(
        (add(b"x"), None),
        (remove(b"x", b"y"), Taken(None, (b"y",))),
        (KillKey(b"n"), Taken(7)),
        (KillKey(b"lost"), None),
        (inc(2**70), None),
    )
    assert parked.parts == (
        add(b"x"),
        Removal(KEY, (b"x", b"y"), Taken(None, (b"y",))),
        Removal(b"n", None, Taken(7)),
        Removal(b"lost", None, None),
        inc(2**70),
    )
    assert parked.home == {"a.1": 3} and not parked.rebased
    for raw in (
        b"",
        effects.encode(1, [add(b"x")]),
        parked.encode().replace(b"parked\x01", b"parked\x02"),
    ):
        with pytest.raises(UnusableInputError):
            Mine.decode(raw)


def test_a_removal_takes_back_what_only_mine_had_and_keeps_what_was_of_the_group() -> None:
    found, yielding = rebased(
        [
            mine((add(b"own", b"both"), None), (inc(5), None)),
            mine((remove(b"own", b"old"), Taken(None, (b"own", b"old")))),
            mine((add(b"old"), None)),
            mine((KillKey(b"gone"), None)),
        ]
    )
    assert [message.parts for message in found] == [(add(b"both"), inc(5)), (), (add(b"old"),), ()]
    assert yielding == [Removal(b"gone", None, None)]
    found, _ = rebased(
        [mine((inc(5), None)), mine((KillKey(KEY), Taken(105))), mine((inc(2), None))]
    )
    assert [message.parts for message in found] == [
        (),
        (Removal(KEY, None, Taken(100)),),
        (inc(2),),
    ]
    assert rebased(found) == (found, [])


@pytest.mark.parametrize("seed", seeds(100))
def test_in_an_untouched_group_all_is_as_it_was_at_home(seed: int) -> None:
    """Sets and a number; what was covered is base. Cut anywhere: the rest may be compared a second time."""
    choice = random.Random(seed)
    members = [b"%d" % number for number in range(4)]
    base = {member for member in members if choice.random() < 0.5}
    home = set(base)
    readded: set[bytes] = set()
    base_number = number = choice.choice([0, 40])
    messages: list[Mine] = []
    for _ in range(choice.randrange(1, 6)):
        parts: list[tuple[Effect, Taken | None]] = []
        for _ in range(choice.randrange(1, 4)):
            some = tuple(choice.sample(members, choice.randrange(1, 3)))
            match choice.randrange(5):
                case 0 | 1:
                    parts.append((add(*some), None))
                    readded.update(home.intersection(some))
                    home.update(some)
                case 2:
                    parts.append((remove(*some), Taken(None, tuple(m for m in some if m in home))))
                    home.difference_update(some)
                case 3:
                    parts.append((Inc(b"n", RedisType.STRING, WHOLE, 1), None))
                    number += 1
                case _:
                    parts.append((KillKey(KEY), Taken(None, tuple(sorted(home)))))
                    parts.append((KillKey(b"n"), Taken(number)))
                    home.clear()
                    number = 0
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
                case Removal(_, _, Taken(before, taken)):
                    theirs.difference_update(taken)
                    if before is not None:
                        assert theirs_number == before
                        theirs_number = 0

    cut = choice.randrange(len(found) + 1)
    for message in found[:cut]:
        perform(message)
    rest, _ = rebased([Mine.decode(message.encode()) for message in found[cut:]])
    for message in rest:
        perform(message)
    # What it had added again, to the group's, before it removed it, may have been there for others, too.
    assert home <= theirs <= home | readded
    assert theirs_number == number
