"""What a run makes of views that differ. The members here are lists, and a script says when a view changes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast.chaos.membership import ChaosMembership, amiss
from crdtcast.chaos.nodes import LateError, MisbehavedError


@dataclass
class Machine:
    name: str
    present: bool = True
    lies: int = 0


def answer(known: dict[str, bool], name: str = "v1", learners: str = "") -> dict[str, Any]:
    """What a node says of these lives: whether each is known everywhere."""
    members = [
        {
            "name": (short := life.partition(".")[0]),
            "incarnation": life,
            "established": established,
            "votes": short not in learners,
        }
        for life, established in known.items()
    ]
    return {"standing": "member", "view": {"name": name}, "members": members}


class Group:
    """views: by member that answers, the lives that it takes for members, and whether each is known everywhere.
    evicts: whether an eviction is done at once; it is refused otherwise. late: what a member delivers when it has said
    a second time who the members are.
    """

    def __init__(self, *names: str, gone: str = "", liar: str = "") -> None:
        self.hosts = {
            name: Machine(name, present=name not in (gone, liar), lies=int(name == liar))
            for name in names
        }
        present = [name for name in names if self.hosts[name].present]
        self.views = {name: {f"{each}.1": True for each in names} for name in present}
        self.asked: list[tuple[str, str]] = []
        self.late: dict[str, Callable[[], None]] = {}
        self.evicts = True

    def cut_off(self, name: str) -> None:
        for view in self.views.values():
            view.pop(f"{name}.1", None)

    async def ask(self, host: Machine, do: str, **more: Any) -> Any:
        await trio.lowlevel.checkpoint()
        view = self.views.get(host.name)
        if view is None:
            raise MisbehavedError(f"{host.name} is gone")
        if do == "members":
            known = answer({i: view[i] for i in view})
            if (host.name, do) in self.asked:
                self.late.pop(host.name, lambda: None)()
            self.asked.append((host.name, do))
            return known
        (victim,) = more["members"]
        self.asked.append((host.name, f"{do} {victim}"))
        if f"{victim}.1" not in view:
            raise MisbehavedError("no member")
        if not self.evicts:
            raise MisbehavedError(f"{victim} is not evicted yet")
        self.cut_off(victim)
        return {}

    def until_whole(self) -> None:
        trio.run(ChaosMembership(self.hosts, self.ask).whole, clock=_clock())

    def evict(self, name: str) -> None:
        trio.run(ChaosMembership(self.hosts, self.ask).evict, self.hosts[name], clock=_clock())

    @property
    def evictions(self) -> list[tuple[str, str]]:
        return [each for each in self.asked if each[1] != "members"]


def _clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


def test_liar_is_evicted_by_a_member_that_knows_it() -> None:
    group = Group("a", "b", "c", "liar", liar="liar")
    del group.views["a"]["liar.1"]
    group.until_whole()
    assert group.evictions == [("b", "evict liar")]


def test_a_liar_that_was_refused_needs_no_eviction() -> None:
    group = Group("a", "b", "liar", liar="liar")
    group.cut_off("liar")
    group.until_whole()
    assert group.evictions == []


def test_victim_is_evicted_by_a_member_that_knows_it() -> None:
    group = Group("a", "b", "victim", gone="victim")
    del group.views["a"]["victim.1"]
    group.evict("victim")
    assert group.evictions == [("b", "evict victim")]


def test_an_eviction_that_is_done_after_the_answer_counts() -> None:
    group = Group("a", "b", "victim", gone="victim")
    group.evicts = False
    group.late["b"] = lambda: group.cut_off("victim")
    group.evict("victim")


def test_eviction_timeout_reports_the_last_answer() -> None:
    group = Group("a", "b", "victim", gone="victim")
    group.evicts = False
    with pytest.raises(
        LateError, match=r"victim is not evicted after 120 s: victim is not evicted"
    ):
        group.evict("victim")


def test_group_is_incomplete_until_all_know_of_an_eviction() -> None:
    group = Group("a", "b", "c")
    for name in "bc":
        group.views[name].pop("a.1")
        group.views[name]["a.2"] = name != "b"

    def delivered() -> None:
        group.views["a"] = {"a.2": True, "b.1": True, "c.1": True}
        group.views["b"]["a.2"] = True

    group.late["a"] = delivered
    group.until_whole()
    assert group.asked.count(("a", "members")) > 2


@pytest.mark.parametrize("wrong", ["more", "less", "new", "twice", "other", "gone"])
@pytest.mark.parametrize("viewer", ["a", "b"])
def test_member_with_another_view_is_named(viewer: str, wrong: str) -> None:
    group = Group("a", "b", "c")
    view, expected = group.views[viewer], f"c is not a member, at {viewer}"
    match wrong:
        case "more":
            view["d.1"], expected = True, f"d is still a member, at {viewer}"
        case "less":
            del view["c.1"]
        case "new":
            view["c.1"], expected = False, f"c may not yet be known everywhere, at {viewer}"
        case "twice":
            view["c.2"], expected = True, "c appears in 2 incarnations"
        case "other":
            del view["c.1"]
            view["c.2"], expected = True, "c appears in 2 incarnations"
        case _:
            del group.views[viewer]
            expected = f"no answer from {viewer}"
    with pytest.raises(LateError, match=f"after 120 s: {expected}"):
        group.until_whole()


def test_finding_of_several_members_is_reported_once() -> None:
    view = answer(dict.fromkeys("abd", True))
    assert amiss("abc", {"a": view, "b": view}) == [
        "c is not a member, at a, b",
        "d is still a member, at a, b",
        "no answer from c",
    ]


def test_members_in_different_views_or_without_a_vote_are_named() -> None:
    known = dict.fromkeys("ab", True)
    assert amiss("ab", {"a": answer(known), "b": answer(known, "v2", learners="a")}) == [
        "a has no vote yet, at b",
        "several views: a v1, b v2",
    ]
