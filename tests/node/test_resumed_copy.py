"""A joiner whose link with its contact breaks goes on where it was."""

from typing import Any

import pytest
import trio

from crdtcast.group import join_client, join_server
from crdtcast.group.join_client import Joining, Wish
from crdtcast.testing import simulated
from crdtcast.transport.link import Link
from crdtcast.wire.offers import ContactLostError
from crdtcast.wire.state import JoinerEntry
from tests.node.group_support import LedgerHost, members_are, world


def breaks_at(late: LedgerHost, shares: list[int], *at: int, more: Any = None) -> None:
    """Close the link with the contact when so many parts are here."""

    def note(received: int, size: int) -> bool:
        shares.append(received)
        if len(shares) in at:
            assert 0 < received < size
            late.node.links().up["a"].close("broken")
            if more is not None:
                more()
        return False

    late.on_copied = note


@simulated
async def test_a_copy_goes_on_where_the_link_broke() -> None:
    async with world("a", "b") as group:
        hosts = list(group.up.values())
        a, b = (host.member for host in hosts)
        payloads = [bytes([n]) * 50_000 for n in range(40)]
        for payload in payloads:
            a.tcbroadcast(payload)
        await hosts[1].ledger.has(*payloads)
        ledgers = [host.ledger for host in hosts]
        given: list[str] = []
        for ledger, name in zip(ledgers, "ab", strict=True):
            plain = ledger.get_state

            def get_state(name: str = name, plain: Any = plain) -> bytes:
                given.append(name)
                return bytes(plain())

            ledger.get_state = get_state  # type: ignore[method-assign]
        late = await group.start("c", "a", max_frame=64 * 1024)
        shares: list[int] = []
        breaks_at(late, shares, 10, 20, more=lambda: b.tcbroadcast(b"meanwhile"))
        await late.join()
        assert given == ["a"], "the copy began anew"
        assert shares == sorted(set(shares)), "parts were fetched twice"
        await late.ledger.has(*payloads, b"meanwhile")
        assert len(late.ledger.entries) == 42
        for host in group.up.values():
            await members_are(host.member, "a", "b", "c")


@simulated
async def test_joiner_that_missed_too_much_copies_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_server, "MOST_NOTED", 1000)
    async with world("a") as group:
        a = group.up["a"]
        for n in range(40):
            a.member.tcbroadcast(bytes([n]) * 50_000)
        late = await group.start("c", "a", max_frame=64 * 1024)
        shares: list[int] = []
        breaks_at(late, shares, 10, more=lambda: a.member.tcbroadcast(b"m" * 1000))
        await late.join()
        await late.ledger.has(b"m" * 1000)
        assert len(late.ledger.entries) == 41


@simulated
async def test_joiner_does_not_wait_on_a_replaced_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen under `crdtcast chaos`: connections crossed while the journal was synced. The question went over the new
    link, the answer was awaited on the old one, and the joiner stood still for 30 seconds.
    """
    async with world("a") as group:
        late = await group.start("c", "a")
        replaced: list[str] = []

        async def cross(base: str) -> None:
            old = late.node.links().up["a"]
            if not replaced:
                replaced.append(base)
                old.close("replaced")
                while late.node.links().up.get("a") in (None, old):  # noqa: ASYNC110
                    await trio.sleep(0.01)

        monkeypatch.setattr(join_client, "_note_nothing", cross)
        with trio.fail_after(5):
            await late.join()
        assert replaced


@simulated
async def test_joiner_evicted_before_its_start_asks_with_a_fresh_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world("a", "b", "c") as group:
        a, c = group.up["a"], group.up["c"]
        bases: list[str] = []
        through = Joining.through

        async def lost_once(joining: Joining, link: Link, wish: Wish) -> tuple[bytes, JoinerEntry]:
            bases.append(wish.base)
            answer = await through(joining, link, wish)
            if len(bases) == 1:
                unheard = answer[1].incarnation
                a.member.evict(unheard)
                while unheard in a.member.engine.members:
                    await a.member.changed()
                raise ContactLostError("the answer was lost")
            return answer

        monkeypatch.setattr(Joining, "through", lost_once)
        for name in ("a", "b"):
            c.node.cut(name)
        a.member.evict("c")
        await members_are(a.member, "a", "b")
        c.node.heal("a")  # and b has no link with it
        with trio.fail_after(300):
            while c.member.incarnation not in a.member.engine.members:
                await c.member.changed()
        assert bases[0] == bases[1] != bases[-1]
