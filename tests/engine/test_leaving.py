"""When a leaver may go: the acknowledgements that it waits for, and what it does when nobody goes on."""

from collections.abc import Callable, Mapping

import pytest

from crdtcast.engine.leaving import SILENCE, TAKES_FOR, Farewell
from crdtcast.messages import Digest, DigestKind
from crdtcast.tags import Vector

OWN = {"me": 3, "a": 5}


def lacking(own: Mapping[str, int]) -> Callable[[Vector], list[str]]:
    return lambda vector: [x for x, counter in own.items() if vector.get(x, 0) < counter]


def digest(
    ended: tuple[str, ...] = (), kind: DigestKind = DigestKind.REPLY, **vector: int
) -> Digest:
    return Digest(kind, vector, dict.fromkeys(ended))


def is_done(
    farewell: Farewell,
    members: set[str],
    victims: tuple[str, ...] = (),
    unmet: tuple[str, ...] = (),
) -> bool:
    return farewell.is_done(members, victims, set(unmet), lacking(OWN))


def test_it_waits_for_all_members_and_for_who_tells_that_one_has_ended() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    members = {"a", "b"}
    assert farewell.waiting_for(members, lacking(OWN)) == ["a", "b"]
    farewell.heard("a", digest(me=3, a=5), 1)
    assert farewell.waiting_for(members, lacking(OWN)) == ["b"]
    farewell.heard("c", digest(("b",), me=2, a=5), 2)
    assert farewell.waiting_for(members, lacking(OWN)) == ["c"]
    assert not is_done(farewell, members)
    farewell.heard("c", digest(me=3, a=5), 3)
    assert is_done(farewell, members)


def test_nobody_is_waited_for_less_because_it_leaves_itself() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest(("a",), me=2, a=5), 1)
    assert farewell.waiting_for({"a"}, lacking(OWN)) == ["a"]


@pytest.mark.parametrize(("ended", "victims"), [(("a",), ()), ((), ("a",))])
def test_it_counts_on_leavers_and_victims_only_together_with_all_whom_they_know(
    ended: tuple[str, ...], victims: tuple[str, ...]
) -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest(ended, me=3, a=5, b=1), 1)
    assert farewell.named == {"me", "a", "b"}
    assert not is_done(farewell, {"a"}, victims, unmet=("b",))
    farewell.heard("b", digest(me=2, a=5, b=1), 2)
    assert not is_done(farewell, {"a"}, victims, unmet=("b",))
    farewell.heard("b", digest(me=3, a=5, b=1), 3)
    assert is_done(farewell, {"a"}, victims, unmet=("b",))


def test_all_who_are_left_may_leave() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest(("a", "b"), DigestKind.NEWS, me=3, a=5, b=1), 1)
    assert is_done(farewell, {"a", "b"}, unmet=())


def test_what_one_that_goes_on_had_is_safe_though_it_leaves_later() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest((), DigestKind.NEWS, me=3, a=5), 1)
    farewell.heard("a", digest(("a",), me=3, a=6, b=1), 2)
    assert is_done(farewell, {"a"}, unmet=("b",))


def test_news_of_a_victim_does_not_tell_whom_it_knows() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    farewell.heard("a", digest((), DigestKind.NEWS, me=3, a=5, b=1), 1)
    assert not is_done(farewell, {"a"}, ("a",))
    farewell.heard("a", digest((), me=3, a=5), 2)
    assert is_done(farewell, {"a"}, ("a",))


def test_the_last_one_goes_when_those_who_are_still_there_have_everything() -> None:
    farewell = Farewell("me", alone=False, tick=0)
    assert not farewell.is_last(lacking(OWN), 1)
    farewell.heard("a", digest(me=2, a=5), 1)
    assert not farewell.is_last(lacking(OWN), 1 + SILENCE)
    farewell.heard("a", digest(me=3, a=5), 40)
    assert farewell.is_last(lacking(OWN), 41)


def test_the_last_one_goes_when_nobody_has_answered_for_long() -> None:
    farewell = Farewell("me", alone=False, tick=7)
    farewell.heard("a", digest(me=2, a=5), 10)
    assert not farewell.is_last(lacking(OWN), 10 + SILENCE)
    assert farewell.is_last(lacking(OWN), 11 + SILENCE)
    assert Farewell("me", alone=True, tick=7).is_last(lacking(OWN), 7)


@pytest.mark.parametrize("told", [("b",), ("a",), ("a", "b")])
def test_it_takes_messages_for_a_while_and_again_if_nobody_goes_on(told: tuple[str, ...]) -> None:
    farewell = Farewell("me", alone=False, tick=0)
    members = {"a", "b"}
    assert farewell.takes(members, TAKES_FOR)
    farewell.heard("a", digest(told), 1)  # of b, and of itself that it leaves
    assert farewell.takes(members, TAKES_FOR + 1) == (told == ("a", "b"))


def test_whether_it_is_known_to_somebody() -> None:
    farewell = Farewell("me.1", alone=False, tick=0)
    joiners = {n: f"c.1+b.1+{n}" for n in (6, 7)}
    farewell.heard("a.1", digest(**{"a.1": 2}), 1)
    farewell.heard("b.1", digest(**{"b.1": 6, "me.1": 0}), 1)
    farewell.heard("b.1", digest(**{"b.1": 9, "me.1": 3}), 2)
    assert not farewell.is_known_to("a.1")
    assert farewell.is_known_to("b.1")
    assert not farewell.is_known_to(joiners[6])
    assert farewell.is_known_to(joiners[7])
    assert not farewell.is_known_to("d.1+e.1+1")
    farewell.heard(joiners[7], digest(**{joiners[7]: 1}), 3)
    assert farewell.is_known_to("d.1+c.1+2")
    farewell.heard("f.1+g.1+1", digest(), 4)
    farewell.heard("g.1+f.1+1", digest(), 4)
    assert not farewell.is_known_to("f.1+g.1+1")
