"""Members that fail or are used wrongly: their own error, soon, and the group goes on without them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    CrdtcastError,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    Tag,
    open_host,
    open_member,
)
from crdtcast.engine import Standing
from crdtcast.journal import MemoryJournal
from crdtcast.testing import Network, simulated
from crdtcast.transport.options import Address, format_address
from tests.node.group_support import Ledger, members_are, world


class Giving(Ledger):
    """Gives to joiners whatever `state` returns."""

    def __init__(self, state: Callable[[], Any]) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> bytes:
        return self.state()  # type: ignore[no-any-return]


class Refusing(Ledger):
    """Fails when it is given a state."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def set_state(self, state: bytes) -> None:
        self.before()
        raise ValueError("not a state that I know")


def fails() -> bytes:
    raise CrdtcastError("an object of mine is broken")


STATES = [
    pytest.param(lambda: None, r"get_state of a returned NoneType: return bytes", id="nothing"),
    pytest.param(lambda: "text", r"get_state of a returned str: return bytes", id="text"),
    pytest.param(fails, "an object of mine is broken", id="own-error"),
    pytest.param(lambda: 1 // 0, "division", id="foreign-error"),
]


@pytest.mark.parametrize(("state", "message"), STATES)
def test_contact_that_cannot_give_a_state_ends_and_tells_joiner(
    state: Callable[[], Any], message: str
) -> None:
    async def contact(*, task_status: trio.TaskStatus[str]) -> None:
        with pytest.raises((CrdtcastError, ZeroDivisionError), match=message):
            async with open_member("a", found=True, machine=Giving(state)) as a:
                task_status.started(format_address(a.address))
                await trio.sleep_forever()

    async def main() -> None:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                where = await nursery.start(contact)
                with pytest.raises(
                    HandshakeError, match=r"state machine of a.* has failed: ask another"
                ):
                    async with open_member(
                        "b", join=where, machine=Ledger(), handshake_timeout=1.0
                    ):
                        pass

    trio.run(main)


class Failing(Ledger):
    """Fails on one message."""

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        if payload == b"2":
            raise ValueError("a bug of mine")
        super().tcdeliver(payload, tag)


@simulated
async def test_machine_failing_on_an_own_message_ends_its_member() -> None:
    journal, machine = MemoryJournal(), Failing()
    with Network():
        with pytest.raises(ValueError, match="a bug of mine"):
            async with open_member("a", found=True, machine=machine, journal=journal) as a:
                a.tcbroadcast(b"1")
                await a.wait_durable()
                with pytest.raises(ValueError, match="a bug of mine"):
                    a.tcbroadcast(b"2")
                a.tcbroadcast(b"3")  # EndedError, and the block raises its cause
        assert machine.payloads == [b"1"]
        async with open_member("a", machine=(fixed := Ledger()), journal=journal):
            assert fixed.payloads == [b"1", b"2"]


@simulated
async def test_joiner_gets_no_state_of_a_machine_that_has_failed() -> None:
    with Network():
        joined: list[str] = []

        async def joins(address: Address) -> None:
            async with open_member("b", join=address, machine=Ledger()):
                joined.append("b")

        async with trio.open_nursery() as nursery:
            with pytest.raises(ValueError, match="a bug of mine"):
                async with open_member("a", found=True, machine=Failing()) as a:
                    nursery.start_soon(joins, a.address)
                    with suppress(ValueError):
                        a.tcbroadcast(b"2")
                    await trio.sleep(60)
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        assert not joined


@simulated
async def test_joiner_uses_another_contact_if_the_first_fails() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        late = await group.start("c", "a")
        raised: list[Exception] = []
        a.node.ended = raised.append  # type: ignore[assignment, method-assign]
        a.ledger.get_state = fails  # type: ignore[method-assign]
        await late.join()
        assert [str(error) for error in raised] == ["an object of mine is broken"]
        await members_are(b.member, "a", "b", "c")


@simulated
async def test_a_joiner_that_fails_on_the_state_leaves_the_group() -> None:
    async with world("a", "b") as group:
        a, b = group.up.values()
        a.member.tcbroadcast(b"x")
        late = await group.start("c", "a")
        late.ledger = Refusing()
        with pytest.raises(ValueError, match="not a state that I know"):
            await late.join()
        for host in (a, b):
            await members_are(host.member, "a", "b")
        await a.member.wait_stable(a.member.tcbroadcast(b"nobody is waited for"))
        # The name is free, and the links are whole.
        late.ledger = Ledger()
        await late.join()
        await members_are(a.member, "a", "b", "c")


def test_member_that_refused_a_state_resumes_once_fixed(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with open_member("a", found=True, machine=Ledger()) as a:
                a.tcbroadcast(b"x")
                with pytest.raises(ValueError, match="not a state that I know"):
                    async with open_member(
                        "b", join=a.address, machine=Refusing(), journal=tmp_path
                    ):
                        pass
                await members_are(a, "a")
                # Out of reach, it cannot even leave.
                refusing = Refusing()
                refusing.before = lambda: a.cut("b")
                with pytest.raises(ValueError, match="not a state that I know"):
                    async with open_member(
                        "b",
                        join=a.address,
                        machine=refusing,
                        journal=tmp_path,
                        handshake_timeout=0.2,
                    ):
                        pass
                await members_are(a, "a", "b")
                a.heal("b")
                ledger = Ledger()
                async with open_member("b", join=a.address, machine=ledger, journal=tmp_path) as b:
                    await members_are(a, "a", "b")
                    assert not a.members["b"].witness
                    assert ledger.payloads == [b"x"]
                    await a.wait_stable(b.tcbroadcast(b"y"))
                    assert ledger.payloads == [b"x", b"y"]

    trio.run(main)


def test_returning_member_that_refuses_the_state_leaves_and_ends() -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with (
                open_member("a", found=True, machine=Ledger()) as a,
                open_member("b", join=format_address(a.address), machine=Ledger()) as b,
            ):
                with pytest.raises(ValueError, match="not a state that I know"):
                    ledger = Ledger()
                    where = format_address(a.address)
                    async with open_member("c", join=where, machine=ledger) as c:
                        for member in (a, b, c):
                            await members_are(member, "a", "b", "c")
                            await member.wait_established()
                        ledger.set_state = Refusing().set_state  # type: ignore[method-assign]
                        for member in (a, b):
                            member.cut("c")
                        a.evict("c")
                        await members_are(a, "a", "b")
                        await members_are(b, "a", "b")
                        for member in (a, b):
                            member.heal("c")
                        await trio.sleep_forever()
                for member in (a, b):
                    await members_are(member, "a", "b")
                await a.wait_stable(a.tcbroadcast(b"nobody is waited for"))

    trio.run(main)


@simulated
async def test_copy_progress_never_decreases() -> None:
    """Not by the admission that follows, nor by a second copy from another contact."""
    async with world("a", "b") as group:
        a, b = group.up.values()
        for n in range(40):
            a.member.tcbroadcast(bytes([n]) * 50_000)
        await b.ledger.has(*(bytes([n]) * 50_000 for n in range(40)))
        late = await group.start("c", "a", max_frame=64 * 1024)
        shares: list[float] = []

        def note(received: int, size: int) -> bool:
            shares.append(received / size)
            if len(shares) == 20:
                assert 0 < received < size
                late.node.cut("a")
                for n in range(40):
                    b.member.tcbroadcast(b"%d" % n * 50_000)
            return False

        late.on_copied = note
        await late.join()
        assert len(shares) > 20
        assert shares == sorted(shares)
        assert shares[-1] == 1


def test_left_member_refuses_to_join_and_names_a_remedy() -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with open_member("a", found=True, machine=Ledger()) as a:
                where = format_address(a.address)
                async with open_member("b", join=where, machine=Ledger()) as b:
                    with pytest.raises(LocalProtocolError, match="is already in group 'default'"):
                        await b.join()
                    await b.leave()
                    advice = r"open the group again .* to continue as a new incarnation"
                    with pytest.raises(EndedError, match=advice):
                        await b.join()
                    with pytest.raises(EndedError, match=advice):
                        b.tcbroadcast(b"x")
                with pytest.raises(EndedError, match=advice):
                    await b.join()

    trio.run(main)


def test_a_wait_for_all_to_know_each_other_ends_with_the_member() -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with (
                open_member("a", found=True, machine=Ledger()) as a,
                open_member("b", join=format_address(a.address), machine=Ledger()) as b,
            ):
                b.cut("a")
                assert b.engine.established != b.engine.members.keys()

                async def wait() -> None:
                    with pytest.raises(EndedError):
                        await b.wait_established()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(wait)
                    await trio.testing.wait_all_tasks_blocked()
                    b.end()

    trio.run(main)


def test_links_used_after_their_block_raise() -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with open_host("a") as links:
                early = links.found("early")
            with pytest.raises(EndedError, match="inside its `async with` block"):
                links.found("late")
            with pytest.raises(EndedError, match="inside its `async with` block"):
                await links.join("late")
            with pytest.raises(EndedError, match="is no longer a member"):
                early.tcbroadcast(b"x")

    trio.run(main)


def test_a_join_ends_with_its_links() -> None:
    async def main() -> None:
        async def join(links: Any) -> None:
            with pytest.raises(EndedError, match="was never in group 'g'"):
                await links.join("g", machine=Ledger())

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery, open_host("a") as links:
                nursery.start_soon(join, links)
                await trio.testing.wait_all_tasks_blocked()

    trio.run(main)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Ledger, r"machine=Ledger is a class: pass an instance, machine=Ledger\(\)"),
        (print, r"machine is a builtin_function_or_method: pass an instance of a subclass"),
    ],
)
def test_invalid_machine_is_refused_before_anything_opens(machine: Any, message: str) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            wrong: list[Callable[[], Awaitable[Any]]] = []
            async with open_host("a") as links:
                wrong = [
                    lambda: links.join("g", machine=machine),
                    _called(lambda: links.found("g", machine=machine)),
                    lambda: _enter(open_member("b", found=True, machine=machine)),
                ]
                for use in wrong:
                    with pytest.raises(ConfigurationError, match=message):
                        await use()
                assert links.found("g", machine=Ledger()).standing is Standing.MEMBER

    trio.run(main)


def test_member_is_dialled_at_its_advertised_address() -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with open_member("a", found=True, machine=Ledger()) as a:
                for join in (a.address, [a.address], format_address(a.address)):
                    async with open_member("b", join=join, machine=Ledger()) as b:
                        await members_are(b, "a", "b")
                        await b.leave()

    trio.run(main)


def _called(call: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def run() -> Any:
        return call()

    return run


async def _enter(opened: Any) -> None:
    async with opened:
        pass
