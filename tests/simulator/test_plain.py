"""`OwnStanding.is_plain` spares what is looked at for each message: it is never true where that would say no."""

from collections.abc import Callable

import pytest

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Ended, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import EndedError
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from tests.effort import seeds


class Checked(GroupEngine):
    """Looks at all of it each time."""

    plain = 0

    def _check(self) -> None:
        own = self._own
        if own.is_plain:
            assert not own.is_over and not own._pauses and not own.has_said_all
            assert not own.is_ending and not self.is_on_probation
            Checked.plain += 1

    def has_deliverable(self) -> bool:
        self._check()
        found = super().has_deliverable()
        self._check()
        return found

    def send(self, payload: bytes, **after: object) -> Tag:
        self._check()
        return super().send(payload, **after)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_plain_members_send_and_take(name: str) -> None:
    before = Checked.plain
    for seed in seeds(8):
        outcome = run_group_seed(seed, CAMPAIGNS[name], range(3, 6), engine=f"{__name__}:Checked")
        assert outcome.kind is None, (seed, outcome.failure)
    assert Checked.plain > before + 50 or name not in ("static", "everything")


def plain() -> GroupEngine:
    """One that has looked, and has found nothing against sending and taking."""
    engine = GroupEngine.found("a.1", ["b.1"])
    engine.receive("b.1", Message(Dot("b.1", 1), (), b"x"))
    assert engine.has_deliverable() and engine._own.is_plain
    return engine


@pytest.mark.parametrize(
    "end",
    [
        GroupEngine.renounce,
        lambda engine: engine.receive("b.1", Ended("a.1", None)),
        GroupEngine.leave,
    ],
    ids=["lost its journal", "was told", "leaves"],
)
def test_ended_engine_sends_nothing_more(end: Callable[[GroupEngine], None]) -> None:
    engine = plain()
    end(engine)
    with pytest.raises(EndedError):
        engine.send(b"x")


def test_engine_that_admits_a_joiner_is_no_longer_plain() -> None:
    alone = GroupEngine("a.1", GroupEngine.found("a.1", []).state())  # it goes on from its disk
    alone._own.takes_nothing()
    assert alone._own.is_plain
    alone.admit(new_incarnation("b", 1, 0))
    assert alone.is_on_probation and not alone._own.is_plain
