"""The life of a member as a table: what each event does in each phase, and how a member comes to each of them."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
import trio

from crdtcast import (
    ConfigurationError,
    EndedError,
    LocalProtocolError,
    Member,
    NotReadyError,
    StateMachine,
    Tag,
    open_host,
    open_member,
)
from crdtcast.exceptions import TransitionError
from crdtcast.group.lifecycle import MemberLife
from crdtcast.group.phase import ENDED, TRANSITIONS, MemberEvent, MemberPhase
from crdtcast.journal import MemoryJournal
from crdtcast.lowlevel import NodeOptions
from crdtcast.testing import Network, eventually, simulated
from crdtcast.transport.channel import Channel
from crdtcast.transport.host import SharedLinks
from tests.journal.test_leaving import deafen, hears_again

OUTSIDE, FOUNDING, JOINING, CATCHING_UP, MEMBER, LEAVING, WITHDRAWING, EVICTED, REJOINING, *_ = (
    MemberPhase
)
CLOSED, LEFT = MemberPhase.CLOSED, MemberPhase.LEFT
Cell = tuple[MemberPhase, MemberEvent]
AT = {"a": "mem:1", "b": "mem:2"}


def outsider() -> Member:
    links = SharedLinks(NodeOptions(name="a", listen=("127.0.0.1", 0), group="links"))
    return Member(MemberLife(Channel(links, "g")))


@pytest.mark.parametrize("event", MemberEvent)
@pytest.mark.parametrize("phase", MemberPhase)
@simulated
async def test_each_event_follows_the_transition_table_or_is_refused(
    phase: MemberPhase, event: MemberEvent
) -> None:
    member = outsider()
    life = member._life
    life._phase = phase
    before = {name: value for name, value in vars(life).items() if name != "_phase"}
    after = TRANSITIONS.get((phase, event))
    if after is None:
        illegal = f"^'a' in group 'g': no transition from {phase.name} by {event.name}$"
        with pytest.raises(TransitionError, match=illegal):
            life.move(event)
        assert member.phase is phase
    else:
        assert life.move(event) is member.phase is after
    assert {name: value for name, value in vars(life).items() if name != "_phase"} == before


@pytest.mark.parametrize("phase", [phase for phase in MemberPhase if phase is not MEMBER])
@simulated
async def test_member_that_cannot_send_says_why(phase: MemberPhase) -> None:
    member = outsider()
    member._life._phase = phase
    waits = phase in (FOUNDING, JOINING, CATCHING_UP)
    with pytest.raises(NotReadyError if waits else EndedError, match="'g'"):
        member.tcbroadcast(b"x")
    assert member.refused_writes == 1


@simulated
async def test_member_on_its_way_refuses_to_found_and_goes_on() -> None:
    journal = MemoryJournal()
    with Network():
        async with open_member("a", founders={**AT, "a": None}, journal=journal) as a:
            for founders in ((), ("a", "x")):
                with pytest.raises(LocalProtocolError, match="or on its way"):
                    a.found(founders)
            with pytest.raises(NotReadyError, match="a link with b"):
                a.tcbroadcast(b"x")
        async with open_member("a", found=True, journal=journal) as a:
            with pytest.raises(LocalProtocolError, match="a is already in group 'default'"):
                a.found()
            a.tcbroadcast(b"x")
            await a.wait_durable()
        with pytest.raises(EndedError):
            a.found()


@simulated
async def test_member_that_has_ended_asks_nothing_of_its_group() -> None:
    with Network():
        async with open_member("a", found=True) as a:
            with pytest.raises(LocalProtocolError, match="'a' is, or was, a member"):
                a.why_outside()
        asks = partial(a.evict), partial(a.evict, "a"), a.withdraw, partial(a.raise_level, 9)
        for ask in (*asks, a.surrender):
            with pytest.raises(EndedError, match="no longer a member"):
                ask()


class Ending(StateMachine):
    """Ends its member when it gets a state."""

    end: Callable[[], None]
    raises = False

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        pass

    def set_state(self, state: bytes) -> None:
        self.end()
        if self.raises:
            raise ZeroDivisionError


@pytest.mark.parametrize("raises", [False, True])
@simulated
async def test_state_machine_may_end_its_member_when_it_gets_a_state(raises: bool) -> None:
    journal = MemoryJournal()
    with Network():
        async with open_host("a") as a, open_host("b", peers=[a.address]) as b:
            a.found("g", machine=Ending(), journal=journal)
            machine = Ending()
            machine.raises = raises
            machine.end = lambda: b._lives["g"].end()
            with pytest.raises(ZeroDivisionError if raises else EndedError):
                await b.join("g", machine=machine)
            assert b._lives["g"].phase is CLOSED
            await a._lives["g"].journal.synced()
        async with open_host("a") as again:
            machine.end = lambda: again._lives["g"].end()
            if raises:
                with pytest.raises(ZeroDivisionError):
                    again.found("g", machine=machine, journal=journal)
            else:
                assert again.found("g", machine=machine, journal=journal).phase is CLOSED


@simulated
async def test_evicted_member_refuses_a_write_before_its_phase_changes() -> None:
    with Network():
        async with open_member("a", found=True) as a:
            a.engine.renounce()
            with pytest.raises(EndedError, match=r"was evicted from group .* is joining again"):
                a.tcbroadcast(b"x")
            assert a.phase is MEMBER and a.refused_writes == 1


@simulated
async def test_cancelled_iteration_before_the_start_keeps_waiting() -> None:
    with Network():
        async with open_member("a", founders=AT) as a:
            for _ in range(40):
                with trio.move_on_after(1) as scope:
                    await anext(a)
                assert scope.cancelled_caught


class Heap(StateMachine):
    """Payloads, as a state. fails: raises when it is given one."""

    def __init__(self, *, fails: Callable[[], object] | None = None) -> None:
        self.payloads: set[bytes] = set()
        self.fails = fails

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.payloads.add(payload)

    def get_state(self) -> bytes:
        return b",".join(sorted(self.payloads))

    def set_state(self, state: bytes) -> None:
        if self.fails is not None:
            self.fails()
            raise ValueError("not this state")
        self.payloads = set(state.split(b","))


class Seen:
    """The transitions that members have made, and what is to be done when one of them is made."""

    def __init__(self) -> None:
        self.cells: set[Cell] = set()
        self.then: dict[Cell, Callable[[], object]] = {}

    def note(self, cell: Cell) -> None:
        self.cells.add(cell)
        self.then.pop(cell, lambda: None)()

    async def comes(self, *cell: Any) -> None:
        """Return when a member has made that one."""
        await eventually(lambda: cell in self.cells)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    seen, move = Seen(), MemberLife.move

    def noted(life: MemberLife, event: MemberEvent) -> MemberPhase:
        before, after = life.phase, move(life, event)
        seen.note((before, event))
        return after

    monkeypatch.setattr(MemberLife, "move", noted)
    return seen


def opened(name: str, **options: Any) -> AbstractAsyncContextManager[Member]:
    return open_member(name, **{"machine": Heap(), **options})


async def leaves_in_vain(member: Member) -> None:
    with trio.move_on_after(60) as scope:
        await member.leave()
    assert scope.cancelled_caught and member.phase is CLOSED


async def three(a: Member, *others: Member) -> None:
    """Return when all have a vote."""
    for member in (a, *others):
        await member.wait_established()


async def founds_alone_and_goes_on_from_its_journal(network: Network, seen: Seen) -> None:
    journal = MemoryJournal()
    for _ in range(2):
        async with opened("a", found=True, journal=journal) as a:
            assert a.phase is MEMBER
            await a.wait_durable()
        assert a.phase is CLOSED


async def opens_another_ones_journal(network: Network, seen: Seen) -> None:
    journal = MemoryJournal()
    async with opened("a", found=True, journal=journal) as a:
        await a.wait_durable()
    async with open_host("b") as host:
        with pytest.raises(ConfigurationError, match="belongs to 'a'"):
            host.found("default", journal=journal)


async def joins_and_leaves(network: Network, seen: Seen) -> None:
    async with (
        opened("a", found=True) as a,
        opened("b", join=a.address) as b,
    ):
        await b.leave()
        assert b.phase is LEFT
    assert b.phase is LEFT


async def waits_for_others_in_vain(network: Network, seen: Seen) -> None:
    async with opened("a", founders=AT) as a:
        assert a.phase is FOUNDING
        with pytest.raises(NotReadyError, match="waits for a link with b"):
            a.tcbroadcast(b"x")
    assert a.phase is CLOSED
    async with open_host("a", peers=["mem:9"]) as host:
        with trio.move_on_after(60):
            await host.join("g")


async def founds_and_comes_back_too_late(network: Network, seen: Seen) -> None:
    async with opened("a", founders=AT) as a:
        for _ in range(2):
            async with opened("b", founders=AT) as b:
                await b.ready()
                await a.wait_established()


async def fails_on_its_own_state(network: Network, seen: Seen) -> None:
    journal = MemoryJournal()
    async with opened("a", found=True, journal=journal) as a:
        await a.wait_durable()
    with pytest.raises(ValueError, match="not this state"):
        async with opened("a", machine=Heap(fails=bool), journal=journal, found=True):
            pass


async def fails_on_the_groups_state(network: Network, seen: Seen) -> None:
    async with opened("a", found=True) as a:
        for fails in (bool, lambda: network.cut("b")):
            with pytest.raises(ValueError, match="not this state"):
                async with opened("b", join=a.address, machine=Heap(fails=fails)):
                    pass
            network.heal()


async def is_over_when_it_is_started_again(network: Network, seen: Seen) -> None:
    journal = MemoryJournal()
    async with opened("a", found=True) as a, opened("c", join=a.address):
        async with opened("b", join=a.address, journal=journal) as b:
            await three(a, b)
            seen.then[EVICTED, MemberEvent.OVER] = lambda: network.cut("b")
            a.evict("b")
            await eventually(lambda: b.phase is REJOINING)
            await trio.sleep(1)
        network.heal()
        async with opened("b", join=a.address, journal=journal) as again:
            assert again.incarnation != b.incarnation


async def had_left_when_it_is_started_again(network: Network, seen: Seen) -> None:
    journal = MemoryJournal()
    async with (
        opened("a", found=True) as a,
        opened("c", join=a.address) as c,
    ):
        async with opened("b", join=a.address, journal=journal) as b:
            await three(a, b, c)
            deafen(c)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leaves_in_vain, b)
                await eventually(lambda: b.has_left)
                network.cut("c")
        async with open_host("b", peers=[a.address]) as host, trio.open_nursery() as nursery:
            nursery.start_soon(partial(host.join, "default", machine=Heap(), journal=journal))
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        hears_again(c)


async def is_put_out(network: Network, seen: Seen) -> None:
    async with (
        opened("a", found=True) as a,
        opened("c", join=a.address),
        opened("b", join=a.address) as b,
    ):
        await three(a, b)
        old = b.incarnation
        a.evict("b")
        await seen.comes(EVICTED, MemberEvent.OVER)
        await b.ready()
        assert b.incarnation != old
        network.cut("b")
        a.evict("b")
        await eventually(lambda: "b" not in a.members)
        network.heal()
        await seen.comes(MEMBER, MemberEvent.OVER)
        await b.ready()


async def is_put_out_and_hears_no_more(network: Network, seen: Seen) -> None:
    for leaves in (False, True):
        async with (
            opened("a", found=True) as a,
            opened("c", join=a.address) as c,
            opened("b", join=a.address) as b,
        ):
            await three(a, b, c)
            seen.then[MEMBER, MemberEvent.PUT_OUT] = lambda: network.cut("b")
            a.evict("b")
            await eventually(lambda: b.phase is EVICTED)
            with pytest.raises(EndedError, match="is joining again"):
                b.tcbroadcast(b"x")
            if leaves:
                await leaves_in_vain(b)
        network.heal()


async def is_evicted_while_it_leaves(network: Network, seen: Seen) -> None:
    async with (
        opened("a", found=True) as a,
        opened("b", join=a.address) as b,
        trio.open_nursery() as nursery,
    ):
        await three(a, b)
        network.cut("b")
        b.tcbroadcast(b"last words")
        nursery.start_soon(b.leave)
        a.evict("b", force=True)
        await eventually(lambda: "b" not in a.members)
        network.heal()
        await seen.comes(LEAVING, MemberEvent.OVER)
        await eventually(lambda: b.phase is LEFT)


async def is_evicted_and_not_let_in_again(network: Network, seen: Seen) -> None:
    async with (
        opened("a", found=True) as a,
        opened("b", join=a.address) as b,
    ):
        await three(a, b)
        network.cut("b")
        a.evict("b", force=True)
        await eventually(lambda: "b" not in a.members)
        seen.then[MEMBER, MemberEvent.OVER] = lambda: network.cut("b")
        network.heal()
        await eventually(lambda: b.phase is REJOINING)


async def withdraws_and_is_put_out_meanwhile(network: Network, seen: Seen) -> None:
    async with (
        opened("a", found=True) as a,
        open_host("b", peers=[a.address]) as host,
        trio.open_nursery() as nursery,
    ):

        def cut() -> None:
            network.cut("b")
            a.evict("b", force=True)
            nursery.start_soon(heal)

        async def heal() -> None:
            await eventually(lambda: "b" not in a.members)
            assert (WITHDRAWING, MemberEvent.GONE) not in seen.cells
            network.heal()

        seen.cells.clear()
        with pytest.raises(ValueError, match="not this state"):
            await host.join("default", machine=Heap(fails=cut))
        assert (WITHDRAWING, MemberEvent.GONE) in seen.cells
        await trio.sleep(60)
        assert "b" not in a.members


LIVES = (
    founds_alone_and_goes_on_from_its_journal,
    opens_another_ones_journal,
    joins_and_leaves,
    waits_for_others_in_vain,
    founds_and_comes_back_too_late,
    fails_on_its_own_state,
    fails_on_the_groups_state,
    had_left_when_it_is_started_again,
    is_put_out,
    is_put_out_and_hears_no_more,
    is_evicted_while_it_leaves,
    is_evicted_and_not_let_in_again,
    is_over_when_it_is_started_again,
    withdraws_and_is_put_out_meanwhile,
)


def test_members_visit_every_transition(seen: Seen) -> None:
    reached: set[Cell] = set()
    for life in LIVES:
        _lead(life, seen)
        reached |= seen.cells
    assert reached == TRANSITIONS.keys()


@simulated
async def _lead(life: Callable[[Network, Seen], Awaitable[None]], seen: Seen) -> None:
    with Network() as network, trio.fail_after(3600):
        await life(network, seen)


def test_only_ended_phases_have_no_transitions() -> None:
    assert set(MemberPhase) - {phase for phase, _ in TRANSITIONS} == ENDED
