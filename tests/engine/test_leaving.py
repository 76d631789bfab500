"""When a leaver may go: the acknowledgements that it waits for, and what it does when nobody goes on."""

from collections.abc import Callable, Mapping

import pytest

from crdtcast.engine.leaving import SILENCE, TAKES_FOR, Farewell
from crdtcast.messages import Digest, DigestKind
from crdtcast.tags import Vector

OWN = {"me": 3, "a": 5}


def lacking(own: Mapping[str, int]) -> Callable[[Vector], list[str]]:
    return lambda vector: [x for x, counter in own.items() if vector.get(x, 0) < counter]


def digest(ended: tuple[str, ...] = (), **vector: int) -> Digest:
    return Digest(DigestKind.REPLY, vector, dict.fromkeys(ended))


def test_it_waits_for_all_members_and_for_who_tells_that_one_has_ended() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    members = {"a", "b"}
    assert farewell.waiting_for(members, lacking(OWN)) == ["a", "b"]
    farewell.heard("a", digest(me=3, a=5), members, 1)
    assert farewell.waiting_for(members, lacking(OWN)) == ["b"]
    farewell.heard("c", digest(("b",), me=2, a=5), members, 2)
    assert farewell.waiting_for(members, lacking(OWN)) == ["c"]
    assert not farewell.is_done(members, lacking(OWN))
    farewell.heard("c", digest(me=3, a=5), members, 3)
    assert farewell.is_done(members, lacking(OWN))


def test_nobody_is_waited_for_less_because_it_leaves_itself() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest(("a",), me=2, a=5), {"a"}, 1)
    assert farewell.waiting_for({"a"}, lacking(OWN)) == ["a"]


def test_the_last_one_goes_when_those_who_are_still_there_have_everything() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    assert not farewell.is_last(lacking(OWN), 1)
    farewell.heard("a", digest(me=2, a=5), {"a"}, 1)
    assert not farewell.is_last(lacking(OWN), 1 + SILENCE)
    farewell.heard("a", digest(me=3, a=5), (), 40)
    assert farewell.is_last(lacking(OWN), 41)


def test_the_last_one_goes_when_nobody_has_answered_for_long() -> None:
    farewell = Farewell("me", alone=False, tick=7)
    farewell.heard("a", digest(me=2, a=5), {"a"}, 10)
    assert not farewell.is_last(lacking(OWN), 10 + SILENCE)
    assert farewell.is_last(lacking(OWN), 11 + SILENCE)
    assert Farewell("me", alone=True, tick=7).is_last(lacking(OWN), 7)


@pytest.mark.parametrize("told", [("b",), ("a",), ("a", "b")])
def test_it_takes_messages_for_a_while_and_again_if_nobody_goes_on(told: tuple[str, ...]) -> None:
    farewell = Farewell("me", alone=False, tick=0)
    members = {"a", "b"}
    assert farewell.takes(members, TAKES_FOR)
    farewell.heard("a", digest(told), members, 1)  # of b, and of itself that it leaves
    assert farewell.takes(members, TAKES_FOR + 1) == (told == ("a", "b"))


def test_whether_its_leave_is_known_to_somebody() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    assert not farewell.is_known_to("a", 3)
    farewell.heard("a", digest(me=2), {"a"}, 1)
    assert not farewell.is_known_to("a", 3)
    farewell.heard("a", digest(me=3), {"a"}, 2)
    assert farewell.is_known_to("a", 3)
