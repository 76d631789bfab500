"""The status of a member: of a fixed group, and of one whose members come and go."""

import json

import trio

from crdtcast.group.status import as_json, lacking, status
from crdtcast.testing import eventually, simulated
from tests.node.fixed import group
from tests.node.group_support import world


@simulated
async def test_status_shows_members_links_lag_and_laggards() -> None:
    async with world("a", "b", "c") as present:
        a, b, c = present.up.values()
        tag = a.member.tcbroadcast(b"x")
        await a.member.wait_stable(tag)
        await b.ledger.settled()
        await trio.sleep(3)
        calm = status(a.member.channel)
        assert (calm.node, calm.group, calm.standing) == ("a", "g", "member")
        assert [m.name for m in calm.members] == ["a", "b", "c"]
        assert all(m.established and not m.evicting for m in calm.members)
        assert [m.linked for m in calm.members] == [False, True, True]
        assert calm.caught_up and calm.unstable == 0 and calm.stability_lag == 0
        assert (calm.suspects, calm.held_back_by) == ((), ())
        assert calm.vector[a.member.incarnation] >= tag.dot.counter
        assert calm.links["b"].state == "up" and calm.links["b"].bytes_sent > 0

        present.crash(c.name)
        a.member.tcbroadcast(b"y")
        await trio.sleep(60)
        troubled = status(a.member.channel)
        (suspect,) = troubled.suspects
        (holder,) = troubled.held_back_by
        assert suspect.name == holder.name == "c"
        assert 55 < holder.since <= 62 and 55 < troubled.stability_lag <= 62
        assert troubled.unstable == 1 and troubled.store_bytes > 0
        assert troubled.caught_up, "nobody waits for a suspect"
        assert troubled.links["c"].state != "up", "a member that is out of reach is shown"
        a.member.evict("c")
        await eventually(lambda: status(a.member.channel).suspects == ())
        await eventually(lambda: set(status(a.member.channel).links) == {"b"})  # no alarm for ever
        shown = json.loads(json.dumps(as_json(status(a.member.channel))))
        assert shown["members"][0]["name"] == "a"
        assert set(shown) == set(type(calm).__dataclass_fields__)


@simulated
async def test_fixed_group_is_not_caught_up_before_it_hears_from_all() -> None:
    async with group("a", names={"a", "b"}) as (_, members):
        a = members["a"].node
        first = status(a)
        assert [(m.name, m.established) for m in first.members] == [("a", True), ("b", False)]
        assert not first.caught_up and lacking(a.engine, {}) == ["b"]
        await eventually(lambda: len(status(a).suspects) == 1)
        assert status(a).caught_up
    async with group("a", "b") as (_, members):
        await eventually(lambda: status(members["a"].node).caught_up)
        members["b"].taking = False
        members["a"].send(b"x")
        await eventually(lambda: not status(members["b"].node).caught_up)
        members["b"].taking = True
        members["b"].work()
        assert status(members["b"].node).caught_up
