"""Members with journals on a simulated network: restarts, loss of power, damage, evictions."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast import ConfigurationError, LocalProtocolError, Member, open_member
from crdtcast.causality.messages import Digest, Message, Transmit
from crdtcast.engine import Standing
from crdtcast.engine.views import Views
from crdtcast.exceptions import JournalError, RemoteProtocolError, UnusableInputError
from crdtcast.group.running import running
from crdtcast.journal import MemoryJournal
from crdtcast.journal.saved import JournalFolding, unpack_batch, unpack_saved
from crdtcast.testing import Disk, DiskJournal
from crdtcast.wire.group_frames import InGroup
from crdtcast.wire.offer_frames import Part
from crdtcast.wire.state import unpack_entry
from tests.effort import seeds
from tests.node.group_support import Ledger, SimulatedHost, World, members_are
from tests.node.network import Network, eventually, simulated


class Durable(SimulatedHost):
    """A process with a disk. What it was told to be durable is in `kept`."""

    disk: Disk
    compact_bytes = 2000

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sent = 0

    async def open(self, *, found: bool, **more: Any) -> Member:
        journal = DiskJournal(self.disk)
        options: dict[str, Any] = {"journal": journal, "compact_bytes": self.compact_bytes, **more}
        if found:
            self.member = self.links.found("g", machine=self.ledger, **options)
            await self.member.ready()
        else:
            self.member = await self.links.join("g", machine=self.ledger, **options)
        return self.member


class Country(World):
    """Processes with disks; a power failure leaves any of the disks that it may leave."""

    def __init__(self, *args: Any, seed: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.random = random.Random(seed)
        self.disks: dict[str, Disk] = {}
        self.founder = ""

    async def power_on(self, name: str, **more: Any) -> Durable:
        contact = next((n for n in self.hosts if n != name), None)
        self.founder = self.founder or name
        host = Durable(self.network, name, contact, **self.options)
        self.hosts[name] = host
        host.disk = self.disks.setdefault(name, Disk())
        await self._nursery.start(host.live)
        await host.open(found=name == self.founder, **more)
        return host

    def power_off(self, name: str, *, outcome: int | None = None) -> None:
        left = list(self.disks[name].crashes())
        chosen = left[outcome] if outcome is not None else self.random.choice(left)
        self.hosts[name].die()
        self.disks[name] = chosen

    def up(self, name: str) -> Member:
        return self.hosts[name].up

    async def calm(self, *payloads: bytes) -> None:
        """All have this, each once, and nothing is under way."""

        def is_calm() -> bool:
            hosts = self.hosts.values()
            return all(
                host.up.engine.quiet
                and host.up.parked is None
                and len(host.up.members) == len(self.hosts)
                and host.ledger.payloads == sorted(payloads)
                for host in hosts
            )

        await eventually(is_calm, 600)


@asynccontextmanager
async def country(*names: str, seed: int = 0, **options: Any) -> AsyncIterator[Country]:
    async with trio.open_nursery() as nursery:
        present = Country(Network(nursery), nursery, seed=seed, **options)
        for name in names:
            await present.power_on(name)
        for host in present.hosts.values():
            await members_are(host.up, *names)
        with trio.fail_after(3600):
            yield present
        nursery.cancel_scope.cancel()


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
        a, b, c = (
            SimulatedHost(group.network, name, contact)
            for name, contact in (("a", None), ("b", "a"), ("c", "a"))
        )
        journal = Monitor()
        a.member = a.links.found("g", machine=a.ledger, journal=journal)
        kinds = watch(a.member, journal)
        recording = a.member._life.journal
        assert recording is not None

        async def slowly(work: Callable[[], None]) -> None:
            await trio.sleep(0.5)
            work()

        recording._do = slowly  # type: ignore[method-assign]
        for host in (a, b, c):
            await group._nursery.start(host.live)
        await b.join()
        for number in range(30):
            a.up.tcbroadcast(b"a%d" % number)
            b.up.tcbroadcast(b"b%d" % number)
            await trio.sleep(0.01)
        await c.join()
        await eventually(lambda: all(h.up.engine.quiet for h in (a, b, c)))
        assert not journal.is_late
        assert kinds == {Message, Digest, Views, Part}
        assert a.ledger.payloads == b.ledger.payloads == c.ledger.payloads


@simulated
async def test_restart_goes_on_as_the_same_incarnation_with_all_it_had() -> None:
    async with country("a", "b") as group:
        b = group.up("b")
        b.tcbroadcast(b"one")
        await b.wait_durable()
        before = b.incarnation
        group.power_off("b")
        group.up("a").tcbroadcast(b"meanwhile")
        b = (await group.power_on("b")).up
        assert b.incarnation == before
        assert b.tcbroadcast(b"two").dot.counter == 2
        await group.calm(b"one", b"meanwhile", b"two")


@simulated
async def test_all_restart_at_once() -> None:
    async with country("a", "b", "c") as group:
        ids = {name: group.up(name).incarnation for name in "abc"}
        for name in "abc":
            group.up(name).tcbroadcast(name.encode())
            await group.up(name).wait_durable()
        for name in "abc":
            group.power_off(name)
        group.hosts.clear()
        for name in "abc":
            await group.power_on(name)
        assert {name: group.up(name).incarnation for name in "abc"} == ids
        await group.calm(b"a", b"b", b"c")


@simulated
async def test_what_was_not_synced_has_not_left() -> None:
    async with country("a", "b") as group:
        a = group.up("a")
        await group.calm()
        lost = a.tcbroadcast(b"never synced").dot  # nothing runs between this and the loss of power
        group.power_off("a", outcome=0)
        a = (await group.power_on("a")).up
        assert a.tcbroadcast(b"another").dot == lost
        await group.calm(b"another")


@simulated
async def test_copy_joins_again_as_a_new_incarnation_and_sends_again_what_the_group_lacks() -> None:
    async with country("a", "b", "c") as group:
        c = group.up("c")
        old = c.incarnation
        c.tcbroadcast(b"known")
        await group.calm(b"known")
        group.cut("c")
        c.tcbroadcast(b"only here")
        await c.wait_durable()
        group.disks["c"] = group.disks["c"].copied()
        group.hosts["c"].die()
        group.heal()
        c = (await group.power_on("c")).up
        assert c.incarnation != old and c.standing is Standing.MEMBER
        await group.calm(b"known", b"only here")
        assert old not in group.up("a").engine.members


@simulated
async def test_crash_while_it_comes_back_repeats_and_loses_nothing() -> None:
    wanted = [b"%d" % number for number in range(40)]
    for seed in seeds(4):
        async with country("a", "b", "c", seed=seed) as group:
            c = group.up("c")
            group.cut("c")
            for payload in wanted:
                c.tcbroadcast(payload)
            await c.wait_durable()
            group.up("a").evict("c")
            await eventually(lambda: "c" not in group.up("a").members, 600)
            group.heal()
            chance = random.Random(seed)
            for _ in range(3):
                await trio.sleep(chance.random() * chance.choice((0.01, 0.1, 1)))
                group.power_off("c")
                group.hosts.pop("c")
                with trio.move_on_after(chance.random()):
                    await group.power_on("c")
            if group.hosts["c"].member is None or group.up("c").standing is not Standing.MEMBER:
                group.power_off("c")
                await group.power_on("c")
            await group.calm(*wanted)


@simulated
async def test_journal_that_was_set_back_unnoticed_ends_when_a_peer_remembers_more() -> None:
    async with country("a", "b") as group:
        b = group.up("b")
        old = b.incarnation
        b.tcbroadcast(b"one")
        await group.calm(b"one")
        *_, earlier = group.disks[
            "b"
        ].crashes()  # the same files, as a snapshot of the machine has them
        b.tcbroadcast(b"two")
        await group.calm(b"one", b"two")
        group.disks["b"] = earlier
        group.hosts["b"].die()
        b = (await group.power_on("b")).up
        await eventually(lambda: b.incarnation != old and b.standing is Standing.MEMBER)
        b.tcbroadcast(b"three")
        await group.calm(b"one", b"two", b"three")


@simulated
async def test_journal_alone_says_how_to_go_on() -> None:
    async with country("a", "b") as group:
        group.up("b").tcbroadcast(b"x")
        await group.calm(b"x")
        group.power_off("b")
        b = Durable(group.network, "b", None)  # nobody to dial: it knows where a was
        b.disk = group.disks["b"]
        await group._nursery.start(b.live)
        await b.open(found=False)
        group.hosts["b"] = b
        b.up.tcbroadcast(b"y")
        await group.calm(b"x", b"y")
        c = Durable(group.network, "c", None)
        c.disk = Disk()
        await group._nursery.start(c.live)
        with pytest.raises(ConfigurationError, match=r"is empty: set found=True"):
            await c.open(found=False)


@simulated
async def test_leaver_leaves_nothing_to_go_on_from() -> None:
    async with country("a", "b") as group:
        old = group.up("b").incarnation
        await group.up("b").leave()
        group.power_off("b")
        b = (await group.power_on("b")).up
        assert b.incarnation != old
        await group.calm()


@simulated
async def test_full_disk_ends_the_member_and_nothing_that_was_not_durable_has_left() -> None:
    async with country("a") as group:
        b = Durable(group.network, "b", "a")
        b.disk = Disk()
        with pytest.raises(JournalError, match=r"No space left on device; .* free some space"):
            async with running(b.node):
                member = await b.open(found=False)
                await members_are(group.up("a"), "a", "b")
                await member.wait_durable()
                b.disk.room = b.disk.used
                member.tcbroadcast(b"x" * 100)
                await member.wait_durable()
        await trio.sleep(60)
        assert group.hosts["a"].ledger.payloads == []
        b.disk.room = None
        group.disks["b"] = b.disk
        await group.power_on("b")
        group.up("b").tcbroadcast(b"y")
        await group.calm(b"y")


@simulated
async def test_refusals() -> None:
    journal = MemoryJournal()
    async with trio.open_nursery() as nursery:
        group = Country(Network(nursery), nursery)
        a = SimulatedHost(group.network, "a", None)
        await nursery.start(a.live)
        first = a.links.found("g", machine=a.ledger, journal=journal)
        with pytest.raises(LocalProtocolError, match="has no journal"):
            await a.links.found("h").wait_durable()
        await first.wait_durable()
        with pytest.raises(ConfigurationError, match="in use"):
            a.links.found("i", journal=journal)
        a.die()
        await eventually(lambda: journal._open is False)
        b = SimulatedHost(group.network, "b", None)
        await nursery.start(b.live)
        with pytest.raises(ConfigurationError, match="'a' in group 'g'"):
            b.links.found("g", journal=journal, machine=b.ledger)
        again = SimulatedHost(group.network, "a", None)
        await nursery.start(again.live)
        with pytest.raises(ConfigurationError, match="a state machine"):
            again.links.found("g", journal=journal)
        nursery.cancel_scope.cancel()


@simulated
async def test_damage_without_anybody_else_is_refused() -> None:
    async with country("a") as group:
        group.up("a").tcbroadcast(b"x")
        await group.up("a").wait_durable()
        group.hosts["a"].die()
        group.disks["a"] = group.disks["a"].copied()
        with pytest.raises(UnusableInputError, match=r"trusted=True\) \(--trust-journal"):
            await group.power_on("a")
        host = group.hosts["a"] = Durable(group.network, "a", None)
        await group._nursery.start(host.live)
        host.disk = group.disks["a"]
        host.member = host.links.found(
            "g", machine=host.ledger, journal=DiskJournal(host.disk, trusted=True)
        )
        assert host.ledger.payloads == [b"x"]


@simulated
@pytest.mark.parametrize("seed", seeds(2))
async def test_power_fails_at_random(seed: int) -> None:
    chance = random.Random(seed)
    async with country("a", "b", "c", seed=seed) as group:
        acknowledged: set[bytes] = set()
        number = 0
        for _ in range(40):
            name = chance.choice(list(group.hosts))
            member = group.up(name)
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
                group.power_off(name)
                del group.hosts[name]
                if chance.random() < 0.5:
                    await trio.sleep(chance.random() * 3)
                await group.power_on(name)
            else:
                names = list(group.hosts)
                for other in names:
                    group.power_off(other)
                group.hosts.clear()
                for other in names:
                    await group.power_on(other)
            await trio.sleep(chance.choice((0, 0.001, 0.02, 1)))

        def alike() -> bool:
            ledgers = [host.ledger.payloads for host in group.hosts.values()]
            return all(host.up.engine.quiet for host in group.hosts.values()) and all(
                ledger == ledgers[0] for ledger in ledgers
            )

        await eventually(alike, 600)
        everything = group.hosts["a"].ledger.payloads
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
