"""Members with journals on a simulated network: restarts, loss of power, damage, evictions."""

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast import (
    ConfigurationError,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    Member,
    StateMachine,
    Tag,
    open_host,
    open_member,
)
from crdtcast.causality.messages import Digest, Message, Transmit
from crdtcast.engine import Standing
from crdtcast.engine.views import Views
from crdtcast.exceptions import JournalError, RemoteProtocolError, UnusableInputError
from crdtcast.group import join_client
from crdtcast.group.join_client import Joining, Wish
from crdtcast.group.phase import MemberPhase
from crdtcast.journal import MemoryJournal
from crdtcast.journal.saved import JournalFolding, unpack_batch, unpack_saved
from crdtcast.testing import (
    Cluster,
    Disk,
    DiskJournal,
    Network,
    eventually,
    open_cluster,
    simulated,
)
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import InGroup
from crdtcast.wire.offer_frames import Part
from crdtcast.wire.state import JoinerEntry, unpack_entry
from tests.effort import seeds, size
from tests.node.group_support import (
    Ledger,
    LedgerHost,
    members_are,
    open_ledger_host,
    start_member,
    world,
)


def country(
    *names: str, seed: int = 0, **options: Any
) -> AbstractAsyncContextManager[Cluster[LedgerHost]]:
    """A group of members with journals."""
    return world(*names, seed=seed, durable=True, **options)


async def calm(group: Cluster[LedgerHost], *payloads: bytes) -> None:
    """All have this, each once, and nothing is under way."""

    def is_calm() -> bool:
        hosts = group.up.values()
        return all(
            host.member.engine.quiet
            and host.member.parked is None
            and len(host.member.members) == len(hosts)
            and host.ledger.payloads == sorted(payloads)
            for host in hosts
        )

    await eventually(is_calm, 600)


class Monitor(MemoryJournal):
    """Knows what is durable: the vector of what was synced."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: Mapping[str, int] = {}
        self.is_late = False

    def sync(self) -> None:
        super().sync()
        assert self._snapshot is not None
        folding = JournalFolding(unpack_saved(self._snapshot, "it"))
        for record in self._records:
            folding.add(unpack_batch(record, "it"))
        self.durable = folding.result().state.vector

    def leaves(self, vector: Mapping[str, int]) -> None:
        """Something that tells of this leaves. (Not an assertion: a link that fails is tried again.)"""
        self.is_late |= any(self.durable.get(o, 0) < counter for o, counter in vector.items())


def watch(member: Member, journal: Monitor) -> set[type]:
    """From now on whatever leaves has to be durable. The kinds of what has left."""
    channel = member.channel
    send_effects, send_to = channel.send_effects, channel.send_to
    kinds: set[type] = set()

    def effects(leaving: list[Transmit]) -> None:
        for effect in leaving:
            content = effect.message
            kinds.add(type(content))
            if isinstance(content, Message):
                journal.leaves({content.dot.origin: content.dot.counter})
            elif isinstance(content, Digest):
                journal.leaves(content.vector)
        send_effects(leaving)

    def to(names: list[str], frame: InGroup) -> None:
        if isinstance(frame, Part):
            with suppress(RemoteProtocolError):  # the copy of the application's state
                journal.leaves(unpack_entry(frame.piece).state.vector)
                kinds.add(Part)
        send_to(names, frame)

    channel.send_effects, channel.send_to = effects, to  # type: ignore[method-assign, assignment]
    return kinds


@simulated
async def test_nothing_leaves_before_it_is_durable() -> None:
    async with country() as group:
        a, b, c = [await group.start(name) for name in "abc"]
        journal = Monitor()
        a.found(journal=journal)
        kinds = watch(a.member, journal)
        recording = a.member._life.journal
        assert recording is not None

        async def slowly(work: Callable[[], None]) -> None:
            await trio.sleep(0.5)
            work()

        recording._do = slowly  # type: ignore[method-assign]
        await b.join()
        for number in range(30):
            a.member.tcbroadcast(b"a%d" % number)
            b.member.tcbroadcast(b"b%d" % number)
            await trio.sleep(0.01)
        await c.join()
        await eventually(lambda: all(h.member.engine.quiet for h in (a, b, c)))
        assert not journal.is_late
        assert kinds == {Message, Digest, Views, Part}
        assert a.ledger.payloads == b.ledger.payloads == c.ledger.payloads


@simulated
async def test_restart_keeps_the_incarnation_and_its_messages() -> None:
    async with country("a", "b") as group:
        b = group.up["b"].member
        b.tcbroadcast(b"one")
        await b.wait_durable()
        before = b.incarnation
        group.crash("b")
        group.up["a"].member.tcbroadcast(b"meanwhile")
        b = (await start_member(group, "b")).member
        assert b.incarnation == before
        assert b.tcbroadcast(b"two").dot.counter == 2
        await calm(group, b"one", b"meanwhile", b"two")


@simulated
async def test_all_restart_at_once() -> None:
    async with country("a", "b", "c") as group:
        ids = {name: group.up[name].member.incarnation for name in "abc"}
        for name in "abc":
            group.up[name].member.tcbroadcast(name.encode())
            await group.up[name].member.wait_durable()
        for name in "abc":
            group.crash(name)
        for name in "abc":
            await start_member(group, name)
        assert {name: group.up[name].member.incarnation for name in "abc"} == ids
        await calm(group, b"a", b"b", b"c")


@simulated
async def test_orderly_end_at_once_keeps_what_was_sent() -> None:
    """The member ends before the first snapshot of its journal is written."""
    with Network():
        journal = MemoryJournal()
        async with open_member("a", found=True, journal=journal) as a:
            sent = a.tcbroadcast(b"one").dot.counter
        async with open_member("a", journal=journal) as a:
            assert a.tcbroadcast(b"two").dot.counter == sent + 1


def test_end_of_the_program_is_written_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 and later start no thread once those of the program have ended."""

    async def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def main() -> None:
        async with open_member("a", found=True, journal=tmp_path) as a:
            await a.wait_durable()
            with monkeypatch.context() as at_exit:
                at_exit.setattr(trio.to_thread, "run_sync", refuse)
                sent = a.tcbroadcast(b"one").dot.counter
                await a.wait_durable()
        async with open_member("a", journal=tmp_path) as a:
            assert a.tcbroadcast(b"two").dot.counter == sent + 1

    trio.run(main)


@simulated
async def test_failed_application_is_asked_for_no_snapshot_at_the_end() -> None:
    class Failing(StateMachine):
        def get_state(self) -> bytes:
            raise AssertionError("its state is wrong")

        def tcdeliver(self, payload: bytes, tag: Tag) -> None:
            raise ZeroDivisionError

    with Network():
        journal = MemoryJournal()
        with pytest.raises(ZeroDivisionError):
            async with open_member("a", found=True, journal=journal, machine=Failing()) as a:
                with suppress(ZeroDivisionError):
                    a.tcbroadcast(b"one")
                await trio.sleep_forever()
        with pytest.raises(ConfigurationError, match="is empty"):
            async with open_member("a", journal=journal):
                pass


@simulated
async def test_unsynced_message_was_not_sent() -> None:
    async with country("a", "b") as group:
        a = group.up["a"].member
        await calm(group)
        lost = a.tcbroadcast(b"never synced").dot  # nothing runs between this and the loss of power
        group.crash("a", next(group.disks["a"].crashes()))
        a = (await start_member(group, "a")).member
        assert a.tcbroadcast(b"another").dot == lost
        await calm(group, b"another")


@simulated
async def test_copied_journal_joins_as_new_and_resends_lost_messages() -> None:
    async with country("a", "b", "c") as group:
        c = group.up["c"].member
        old = c.incarnation
        c.tcbroadcast(b"known")
        await calm(group, b"known")
        group.network.cut("c")
        c.tcbroadcast(b"only here")
        await c.wait_durable()
        group.crash("c", group.disks["c"].copied())
        group.network.heal()
        c = (await start_member(group, "c")).member
        assert c.incarnation != old and c.standing is Standing.MEMBER
        await calm(group, b"known", b"only here")
        assert old not in group.up["a"].member.engine.members


@simulated
async def test_crash_during_the_return_repeats_and_loses_nothing() -> None:
    wanted = [b"%d" % number for number in range(40)]
    for seed in seeds(4):
        async with country("a", "b", "c", seed=seed) as group:
            c = group.up["c"].member
            group.network.cut("c")
            for payload in wanted:
                c.tcbroadcast(payload)
            await c.wait_durable()
            group.up["a"].member.evict("c")
            await eventually(lambda: "c" not in group.up["a"].member.members, 600)
            group.network.heal()
            chance = random.Random(seed)
            for _ in range(3):
                await trio.sleep(chance.random() * chance.choice((0.01, 0.1, 1)))
                group.crash("c")
                with trio.move_on_after(chance.random()):
                    await start_member(group, "c")
            if (
                not hasattr(group.up["c"], "member")
                or group.up["c"].member.standing is not Standing.MEMBER
            ):
                group.crash("c")
                await start_member(group, "c")
            await calm(group, *wanted)


def _bases(group: Cluster[LedgerHost], name: str) -> tuple[str, ...]:
    """Those that its disk says it has asked under."""
    journal = DiskJournal(group.disks[name])
    found = journal.load()
    journal.close()
    assert found is not None
    folding = JournalFolding(unpack_saved(found.snapshot, "it"))
    for record in found.records:
        folding.add(unpack_batch(record, "it"))
    return folding.result().life.asked


@simulated
async def test_contacts_that_are_not_ready_cost_no_id() -> None:
    async with country("z", "b") as group:
        group.crash("b")
        group.disks["b"] = Disk()
        for name in ("a", "c"):
            await start_member(group, name)
        again = await group.start("b", "a", "c")
        group.network.cut("z")  # so nobody can admit it
        with trio.move_on_after(300):
            await again.join(replace=True)
        group.crash("b")
        assert len(_bases(group, "b")) == 1
        group.network.heal()
        back = await group.start("b", "z")
        await back.join(replace=True)
        await calm(group)


@simulated
async def test_joiner_remembers_a_limited_number_of_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contacts that are asked and give no valid answer may have admitted it, each of them."""
    most = size(ci=40, release=join_client.MOST_ASKED)
    monkeypatch.setattr(join_client, "MOST_ASKED", most)
    wished: list[Wish] = []
    through = Joining.through

    async def fails(self: Joining, link: Link, wish: Wish) -> tuple[bytes, JoinerEntry]:
        wished.append(wish)
        if len(wished) > 2 * most + 20:
            return await through(self, link, wish)
        self.asked = True
        raise RemoteProtocolError("not an answer")

    async with country("a", "b", "c") as group:
        c = group.up["c"].member
        ended = c.incarnation
        monkeypatch.setattr(Joining, "through", fails)
        group.network.cut("c")
        group.up["a"].member.evict("c")
        await eventually(lambda: "c" not in group.up["a"].member.members, 600)
        group.network.heal()
        await eventually(lambda: len(wished) > most + 20, 36000)
        group.crash("c")
        assert len(_bases(group, "c")) <= most + 1
        await start_member(group, "c")
        await calm(group)
        assert len(wished) > 2 * most + 20
        for wish in wished:
            assert ended in wish.replaces
            assert len(wish.replaces) <= most + 1
        assert wished[-2].base in wished[-1].replaces


@simulated
async def test_rolled_back_journal_ends_when_a_peer_knows_more() -> None:
    async with country("a", "b") as group:
        b = group.up["b"].member
        old = b.incarnation
        b.tcbroadcast(b"one")
        await calm(group, b"one")
        *_, earlier = group.disks[
            "b"
        ].crashes()  # the same files, as a snapshot of the machine has them
        b.tcbroadcast(b"two")
        await calm(group, b"one", b"two")
        group.crash("b", earlier)
        b = (await start_member(group, "b")).member
        await eventually(lambda: b.incarnation != old and b.standing is Standing.MEMBER)
        b.tcbroadcast(b"three")
        await calm(group, b"one", b"two", b"three")


@simulated
async def test_journal_alone_says_how_to_go_on() -> None:
    async with country("a", "b") as group:
        group.up["b"].member.tcbroadcast(b"x")
        await calm(group, b"x")
        group.crash("b")
        b = await group.start("b", join=())  # nobody to dial: it knows where a was
        await b.join()
        b.member.tcbroadcast(b"y")
        await calm(group, b"x", b"y")
        c = await group.start("c", join=())
        with pytest.raises(ConfigurationError, match=r"is empty: set found=True"):
            await c.join()


@simulated
async def test_leaver_leaves_nothing_to_go_on_from() -> None:
    async with country("a", "b") as group:
        old = group.up["b"].member.incarnation
        await group.up["b"].member.leave()
        group.crash("b")
        b = (await start_member(group, "b")).member
        assert b.incarnation != old
        await calm(group)


@simulated
async def test_full_disk_ends_the_member_and_sends_nothing_unsynced() -> None:
    async with country("a") as group:
        disk, a = Disk(), group.up["a"]
        with pytest.raises(JournalError, match=r"No space left on device; .* free some space"):
            async with open_ledger_host(
                "b", join=[a.address], journal=DiskJournal(disk), durable=True
            ) as b:
                member = await b.join()
                await members_are(a.member, "a", "b")
                await member.wait_durable()
                disk.room = disk.used
                member.tcbroadcast(b"x" * 100)
                await member.wait_durable()
        await trio.sleep(60)
        assert group.up["a"].ledger.payloads == []
        disk.room = None
        group.disks["b"] = disk
        await start_member(group, "b")
        group.up["b"].member.tcbroadcast(b"y")
        await calm(group, b"y")


@simulated
async def test_wait_for_the_disk_of_one_that_has_ended_is_refused() -> None:
    async with country("a") as group:
        a = group.up["a"].member
        await group.stop("a")
        with trio.fail_after(60), pytest.raises(EndedError, match="the journal of 'a' is closed"):
            await a.wait_durable()


@simulated
async def test_refusals() -> None:
    journal = MemoryJournal()
    async with open_cluster(open_ledger_host) as group:
        a = await group.start("a")
        first = a.found(journal=journal)
        with pytest.raises(LocalProtocolError, match="has no journal"):
            await a.links.found("h").wait_durable()
        await first.wait_durable()
        with pytest.raises(ConfigurationError, match="in use"):
            a.links.found("i", journal=journal)
        group.crash("a")
        await eventually(lambda: journal._open is False)
        b = await group.start("b")
        with pytest.raises(ConfigurationError, match="'a' in group 'g'"):
            b.found(journal=journal)
        again = await group.start("a")
        with pytest.raises(ConfigurationError, match="a state machine"):
            again.found(journal=journal, machine=None)


@simulated
@pytest.mark.parametrize("ends", ["refused", "cancelled", "state"])
async def test_failed_join_can_be_repeated_with_the_same_journal(ends: str) -> None:
    disk = Disk()
    with Network() as network:
        async with AsyncExitStack() as stack:
            eu = await stack.enter_async_context(open_host("eu"))
            eu.found("g", machine=Ledger())
            if ends == "refused":  # for a member of that name
                async with open_host("us", peers=[eu.address]) as former:
                    await former.join("g", machine=Ledger())
            us = await stack.enter_async_context(open_host("us", peers=[eu.address]))
            machine = Ledger()
            if ends == "cancelled":
                network.cut("us")
            elif ends == "state":
                machine.set_state = _cannot  # type: ignore[method-assign]
            with trio.move_on_after(60), suppress(HandshakeError, ZeroDivisionError):
                await us.join("g", machine=machine, journal=DiskJournal(disk))
                raise AssertionError("it has joined")
            network.heal()
            again = await us.join("g", machine=Ledger(), journal=DiskJournal(disk), replace=True)
            assert again.phase is MemberPhase.MEMBER
            await again.wait_durable()


def _cannot(state: bytes) -> None:
    raise ZeroDivisionError(state)


@simulated
async def test_founding_that_has_failed_can_be_tried_again() -> None:
    disk = Disk()
    with Network():
        async with open_host("eu") as eu:
            with pytest.raises(ConfigurationError):
                eu.found("g", founders=["us", "u s"], journal=DiskJournal(disk))
            with pytest.raises(ConfigurationError, match="limits"):
                eu.found("g", limits=5, journal=DiskJournal(disk))  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match="event_logs"):
                eu.found("g", event_logs="logs")
            await eu.found("g", journal=DiskJournal(disk)).wait_durable()


@simulated
async def test_damaged_journal_of_a_single_member_is_refused() -> None:
    async with country("a") as group:
        group.up["a"].member.tcbroadcast(b"x")
        await group.up["a"].member.wait_durable()
        group.crash("a", group.disks["a"].copied())
        with pytest.raises(UnusableInputError, match=r"trusted=True\) \(--trust-journal"):
            await start_member(group, "a")
        host = group.up["a"]
        host.found(journal=DiskJournal(group.disks["a"], trusted=True))
        assert host.ledger.payloads == [b"x"]


@simulated
@pytest.mark.parametrize("seed", seeds(2))
async def test_power_fails_at_random(seed: int) -> None:
    chance = random.Random(seed)
    async with country("a", "b", "c", seed=seed) as group:
        acknowledged: set[bytes] = set()
        number = 0
        for _ in range(40):
            name = chance.choice(list(group.up))
            member = group.up[name].member
            kind = chance.random()
            if kind < 0.7:
                payloads = []
                for _ in range(chance.randint(1, 6)):
                    number += 1
                    payloads.append(b"%s%d" % (name.encode(), number))
                    member.tcbroadcast(payloads[-1])
                if chance.random() < 0.6:
                    await member.wait_durable()
                    acknowledged.update(payloads)
            elif kind < 0.95:
                group.crash(name)
                if chance.random() < 0.5:
                    await trio.sleep(chance.random() * 3)
                await start_member(group, name)
            else:
                names = list(group.up)
                for other in names:
                    group.crash(other)
                for other in names:
                    await start_member(group, other)
            await trio.sleep(chance.choice((0, 0.001, 0.02, 1)))

        def alike() -> bool:
            ledgers = [host.ledger.payloads for host in group.up.values()]
            return all(host.member.engine.quiet for host in group.up.values()) and all(
                ledger == ledgers[0] for ledger in ledgers
            )

        await eventually(alike, 600)
        everything = group.up["a"].ledger.payloads
        assert acknowledged <= set(everything)
        assert len(everything) == len(set(everything))


def test_end_at_any_moment_leaves_no_gap(tmp_path: Path) -> None:
    """(On a real disk, and a real clock: the sync is in a thread, and cancellation comes as it may.)"""

    async def run(directory: Path, moments: int) -> None:
        async with open_member("a", found=True, machine=Ledger(), journal=directory) as member:
            await member.wait_durable()
            for number in range(6):
                member.tcbroadcast(b"%d" % number)
                if number >= 3:
                    for _ in range(moments):
                        await trio.lowlevel.checkpoint()
        again = Ledger()
        async with open_member("a", found=True, machine=again, journal=directory):
            assert again.payloads == [b"%d" % number for number in range(6)]

    for moments in range(6):
        trio.run(run, tmp_path / str(moments), moments)
