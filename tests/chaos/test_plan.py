"""What is planned: the same for a seed, every kind, never two things at once to one node."""

import itertools

import pytest

from crdtcast.chaos import plan as plans
from crdtcast.chaos.plan import draw
from tests.effort import seeds


def test_membership_changes_overlap_other_faults() -> None:
    beside = set()
    for seed in seeds(20):
        episodes = draw(seed, 5, 900).episodes
        for one, other in itertools.pairwise(episodes):
            if one.kind in plans.MEMBERSHIP and other.at < one.at + one.lasts:
                beside.add(one.kind)
    assert beside == plans.MEMBERSHIP


def test_a_seed_decides_everything() -> None:
    assert draw(4, 5, 300) == draw(4, 5, 300)
    assert draw(4, 5, 300) != draw(5, 5, 300)


def test_every_kind_comes_before_any_comes_twice() -> None:
    for seed in seeds(20):
        kinds = [episode.kind for episode in draw(seed, 5, 900).episodes]
        assert set(kinds) == set(plans.KINDS)
        some = draw(seed, 3, 100, [plans.KILL, plans.CUT]).episodes
        assert {episode.kind for episode in some} == {plans.KILL, plans.CUT}


@pytest.mark.parametrize("nodes", [3, 7])
def test_faults_never_overlap_at_a_node_or_hit_a_majority(nodes: int) -> None:
    for seed in seeds(30):
        plan = draw(seed, nodes, 600)
        assert plan.episodes == tuple(sorted(plan.episodes, key=lambda e: e.at))
        busy: dict[str, float] = {}
        members = set(plan.founders)
        for episode in plan.episodes:
            if episode.kind in plans.NEWCOMERS:
                members.add(episode.node)
            concerned = {episode.node, episode.other} - {""}
            if episode.kind in plans.WHOLE:
                concerned = members
            if episode.kind in plans.WHOLE | plans.MEMBERSHIP:
                concerned = {*concerned, plans.GROUP}
                assert busy.get(plans.GROUP, 0) <= episode.at, (seed, episode)
            assert {episode.node, episode.other} - {""} <= members
            if episode.kind == plans.FULL:
                assert plans.has_small_disk(episode.node)
            if episode.kind not in plans.PAIRS:
                assert busy.get(episode.node, 0) <= episode.at, (seed, episode)
            for name in concerned:
                busy[name] = max(busy.get(name, 0), episode.at + episode.lasts)
            if episode.kind == plans.LEAVE:
                members.discard(episode.node)
            assert len(members) >= min(3, nodes - 1)
            assert episode.at + episode.lasts <= plan.seconds
