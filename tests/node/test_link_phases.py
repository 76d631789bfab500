"""The link with a member as a table: what each event does in each phase, and how a node comes to each of them."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from crdtcast.exceptions import TransitionError
from crdtcast.testing import eventually, simulated
from crdtcast.transport.peers import TRANSITIONS, LinkEvent, LinkLife, LinkPhase
from tests.node.fixed import PORTS, Member, at, group

B, C = PORTS["b"], PORTS["c"]
NOBODY = 1
"""A port at which nobody listens."""
Cells = set[tuple[LinkPhase, LinkEvent]]


@pytest.mark.parametrize("event", LinkEvent)
@pytest.mark.parametrize("phase", LinkPhase)
@simulated
async def test_each_event_follows_the_transition_table_or_is_refused(
    phase: LinkPhase, event: LinkEvent
) -> None:
    life = LinkLife(phase)
    life.error = "old"
    start = life.since
    await trio.sleep(1)
    after = TRANSITIONS.get((phase, event))
    if after is None:
        with pytest.raises(TransitionError, match=rf"from {phase.name} by {event.name}$"):
            life.move(event, "new")
        assert (life.phase, life.since, life.error) == (phase, start, "old")
    else:
        assert life.move(event, "new") is life.phase is after
        assert (life.since == start) is (after is phase)
        assert life.error == (None if after is LinkPhase.UP else "new")


class Attempts:
    """What a node dials waits here, until the test lets it reach a port."""

    def __init__(self, member: Member) -> None:
        links = member.node.links()
        self._connect, links._connect = links._connect, self._wait
        self._waiting: list[tuple[trio.Event, list[int]]] = []

    async def _wait(self, host: str, port: int) -> trio.abc.Stream:
        attempt = trio.Event(), list[int]()
        self._waiting.append(attempt)
        try:
            await attempt[0].wait()
        except trio.Cancelled:  # it took too long
            self._waiting.remove(attempt)
            raise
        return await self._connect("127.0.0.1", *attempt[1])

    async def next(self, count: int = 1) -> None:
        """Return when so many are under way."""
        await eventually(lambda: len(self._waiting) == count)

    def reach(self, port: int) -> None:
        """Let the oldest one go on."""
        go, reached = self._waiting.pop(0)
        reached.append(port)
        go.set()


class Pair:
    """Member `a`, whose attempts the test ends, and `b`, which dials only when it is told to."""

    def __init__(self, a: Member, b: Member, seen: Cells) -> None:
        self.a, self.b, self._seen = a, b, seen
        self.attempts = Attempts(a)

    @property
    def life(self) -> LinkLife:
        """The link as `a` sees it."""
        return self.a.node.links().peer("b").life

    async def comes_to(self, phase: LinkPhase) -> None:
        """Return when `a` sees its link with `b` in that phase."""
        await eventually(lambda: self.life.phase is phase)
        assert ("b" in self.a.linked()) is (phase is LinkPhase.UP)

    async def comes_by(self, phase: LinkPhase, event: LinkEvent) -> None:
        """Return when that event has come in that phase."""
        await eventually(lambda: (phase, event) in self._seen)

    async def is_dialling(self) -> None:
        """`a` dials `b`, and does not get there yet."""
        self.a.node.set_address("b", at("b"))
        await self.attempts.next()

    async def is_linked_by_b(self) -> None:
        """`b` was faster."""
        self.b.node.set_address("a", at("a"))
        await self.comes_to(LinkPhase.UP)

    async def is_lost(self) -> None:
        """The connection ends, and `b` does not dial again."""
        self.b.node.cut("a")
        await self.comes_to(LinkPhase.DOWN)


async def fails_is_linked_and_is_lost(pair: Pair) -> None:
    await pair.is_dialling()
    pair.attempts.reach(NOBODY)
    await pair.comes_to(LinkPhase.DOWN)
    await pair.attempts.next()
    assert pair.life.phase is LinkPhase.DIALLING
    pair.attempts.reach(B)
    await pair.comes_to(LinkPhase.UP)
    await pair.is_lost()


async def is_refused_until_b_dials(pair: Pair) -> None:
    await pair.is_dialling()
    pair.attempts.reach(C)  # another member than the one that is looked for
    await pair.comes_to(LinkPhase.REFUSED)
    await pair.attempts.next()  # it tries again, more rarely
    pair.attempts.reach(C)
    await pair.comes_to(LinkPhase.REFUSED)
    await pair.is_linked_by_b()


async def fails_while_b_is_faster(pair: Pair) -> None:
    await pair.is_dialling()
    await pair.is_linked_by_b()
    pair.attempts.reach(NOBODY)
    await pair.comes_by(LinkPhase.UP, LinkEvent.FAIL)
    await pair.comes_to(LinkPhase.UP)


async def is_refused_while_b_is_faster(pair: Pair) -> None:
    await pair.is_dialling()
    await pair.is_linked_by_b()
    pair.attempts.reach(C)
    await pair.comes_by(LinkPhase.UP, LinkEvent.REFUSE)
    await pair.comes_to(LinkPhase.UP)
    assert pair.life.error is None


async def fails_when_the_link_by_b_is_gone(pair: Pair) -> None:
    await pair.is_linked_by_b()  # before `a` dials at all
    await pair.is_lost()
    await pair.is_dialling()
    pair.b.node.heal("a")
    await pair.comes_to(LinkPhase.UP)
    await pair.is_lost()
    pair.attempts.reach(NOBODY)
    await pair.attempts.next()


async def is_refused_when_the_link_by_b_is_gone(pair: Pair) -> None:
    await pair.is_dialling()
    await pair.is_linked_by_b()
    await pair.is_lost()
    pair.attempts.reach(C)
    await pair.comes_to(LinkPhase.REFUSED)
    pair.a.node.cut("b")
    await pair.comes_to(LinkPhase.CUT)


async def is_cut_twice_and_healed(pair: Pair) -> None:
    pair.a.node.cut("b")
    pair.a.node.cut("b")
    await pair.comes_to(LinkPhase.CUT)
    pair.a.node.heal("b")
    await pair.comes_to(LinkPhase.DOWN)
    await pair.is_linked_by_b()
    pair.a.node.cut("b")
    await pair.comes_to(LinkPhase.CUT)


async def is_cut_while_it_dials(pair: Pair) -> None:
    await pair.is_dialling()
    pair.a.node.cut("b")
    pair.attempts.reach(NOBODY)
    await pair.comes_by(LinkPhase.CUT, LinkEvent.FAIL)
    await pair.comes_to(LinkPhase.CUT)
    pair.a.node.heal("b")
    await pair.attempts.next()
    pair.a.node.cut("b")
    pair.attempts.reach(C)
    await pair.comes_by(LinkPhase.CUT, LinkEvent.REFUSE)
    await pair.comes_to(LinkPhase.CUT)


async def has_two_addresses(pair: Pair) -> None:
    for host in ("mem", "memory"):
        links = pair.a.node.links()
        peer = links._new_peer(None, (host, B))
        links.dialled.append(peer)
        pair.a.node._keep(links, peer)
    await pair.attempts.next(2)
    pair.attempts.reach(B)
    await pair.comes_to(LinkPhase.UP)
    pair.attempts.reach(B)
    await pair.comes_by(LinkPhase.UP, LinkEvent.FAIL)  # it has learned who that is
    await pair.is_lost()
    await pair.attempts.next(2)
    pair.attempts.reach(C)
    await pair.comes_to(LinkPhase.REFUSED)
    pair.attempts.reach(NOBODY)
    await pair.comes_to(LinkPhase.DOWN)
    await pair.attempts.next(2)
    pair.attempts.reach(C)
    pair.attempts.reach(C)
    await pair.comes_by(LinkPhase.REFUSED, LinkEvent.REFUSE)


LIVES: tuple[Callable[[Pair], Awaitable[None]], ...] = (
    fails_is_linked_and_is_lost,
    is_refused_until_b_dials,
    fails_while_b_is_faster,
    is_refused_while_b_is_faster,
    fails_when_the_link_by_b_is_gone,
    is_refused_when_the_link_by_b_is_gone,
    is_cut_twice_and_healed,
    is_cut_while_it_dials,
    has_two_addresses,
)


def test_nodes_visit_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Cells = set()
    reached: Cells = set()
    move = LinkLife.move

    def noted(life: LinkLife, event: LinkEvent, error: str | None = None) -> LinkPhase:
        seen.add((life.phase, event))
        return move(life, event, error)

    monkeypatch.setattr(LinkLife, "move", noted)

    @simulated
    async def lead(life: Callable[[Pair], Awaitable[None]]) -> None:
        async with group("a", "b", "c", peers={}) as (_, members):
            await life(Pair(members["a"], members["b"], seen))

    for life in LIVES:
        lead(life=life)
        reached |= seen
        seen.clear()
    assert reached == TRANSITIONS.keys()
