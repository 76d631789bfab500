"""Replicas that survive: crashes, joins and evictions under objects, as programs see them."""

from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    EndedError,
    InvalidOperationError,
    JournalError,
    Limits,
    LocalProtocolError,
    Replica,
    StoreFullError,
    Token,
    open_host,
    open_replica,
)
from crdtcast.datatypes import AWSet, BoundedCounter, LWWRegister, PNCounter, SharedText
from crdtcast.engine import Standing
from crdtcast.journal import MemoryJournal
from crdtcast.testing import Disk, DiskJournal, Network, eventually, simulated

from .boards import Likes, NewBoard, OldBoard
from .regions import agree, evict, members_are, regions, voting


@simulated
async def test_durable_writes_survive_a_loss_of_power() -> None:
    async with regions("a", "b", seed=1) as present:
        cart = present.up["a"].object("cart", AWSet)
        for round_ in range(12):
            replica = present.up["a"]
            cart, before = replica.object("cart", AWSet), replica.member.incarnation
            await cart.add(f"durable {round_}")
            with replica.batch() as batch:
                batch.object("left", PNCounter).decrement(1)
                batch.object("right", PNCounter).increment(1)
            await replica.wait_durable()
            await cart.add(f"perhaps {round_}")
            present.crash("a")
            replica = await present.start("a")
            assert replica.member.incarnation == before
            cart = replica.object("cart", AWSet)
            assert {f"durable {n}" for n in range(round_ + 1)} <= cart.value
            assert replica.object("right", PNCounter).value == round_ + 1
            assert replica.object("left", PNCounter).value == -round_ - 1
        values = await agree(present)
        assert values["cart"] == cart.value


@simulated
async def test_what_a_token_names_survives_a_loss_of_power() -> None:
    """Otherwise other writes would get the numbers of those that it names, and it would count as seen."""
    async with regions("a", "b", seed=4) as present:
        named: list[str] = []
        for round_ in range(12):
            replica = present.up["a"]
            with replica.batch() as batch:
                batch.object("cart", AWSet).add(f"named {round_}")
            token = await replica.token()
            named.append(f"named {round_}")
            present.crash("a")
            replica = await present.start("a")
            await replica.object("cart", AWSet).add(f"after {round_}")
            await present.up["b"].at_least(token)
            assert present.up["b"].object("cart", AWSet).value >= set(named)


@simulated
async def test_every_disk_after_a_power_loss_has_the_durable_writes() -> None:
    disk = Disk()
    with Network():
        async with open_replica("a", found=True, journal=DiskJournal(disk)) as a:
            await a.object("cart", AWSet).add("durable")
            await a.wait_durable()
            with a.batch() as batch:
                batch.object("cart", AWSet).add("perhaps")
                batch.object("count", PNCounter).increment()
            left = list(disk.crashes())
            await trio.testing.wait_all_tasks_blocked()
            left += disk.crashes()
            await a.object("cart", AWSet).add("too late")
        seen = set()
        for after in left:
            async with open_replica("a", journal=DiskJournal(after)) as a:
                values = a.snapshot().values
                assert "durable" in values["cart"] and "too late" not in values["cart"]
                assert ("perhaps" in values["cart"]) == (values.get("count") == 1)
                seen.add(len(values))
        assert seen == {1, 2}


@simulated
async def test_all_crash_at_once_and_nothing_that_was_durable_is_lost() -> None:
    async with regions("a", "b", "c", seed=2) as present:
        for name, replica in present.up.items():
            await replica.object("cart", AWSet).add(name)
            await replica.wait_durable()
        names = list(present.up)
        for name in names:
            present.crash(name)
        for name in names:
            await present.start(name)
        assert (await agree(present))["cart"] == set(names)


@simulated
async def test_replica_without_its_disk_takes_its_own_place() -> None:
    async with regions("a", "b", "c") as present:
        c = present.up["c"]
        await c.object("cart", AWSet).add("milk")
        await c.object("stock", BoundedCounter).increment(3)
        await agree(present)
        present.crash("c", Disk())
        c = await present.start("c", replace=True)
        assert await agree(present) == {
            "cart": {"milk"},
            "stock": c.object("stock", BoundedCounter).value,
        }
        # What its former life has spent meanwhile nobody could know: it has no rights.
        with pytest.raises(InvalidOperationError, match="has 0 of"):
            await c.object("stock", BoundedCounter).decrement()


@simulated
async def test_a_replica_joins_while_all_write_and_sees_batches_whole() -> None:
    async with regions("a", "b") as present:
        accounts = [f"account {number}" for number in range(5)]
        seen: list[int] = []

        async def pay(replica: Replica) -> None:
            for number in range(150):
                one, other = present.random.sample(accounts, 2)
                with replica.batch() as batch:
                    batch.object(one, PNCounter).decrement(number)
                    batch.object(other, PNCounter).increment(number)
                await trio.sleep(present.random.random() / 50)

        async def watch(replica: Replica) -> None:
            while True:
                seen.append(sum(replica.snapshot().values.values()))
                await replica.changed()

        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as writers:
                for replica in present.up.values():
                    writers.start_soon(pay, replica)
                await trio.sleep(0.5)
                c = await present.start("c")
                nursery.start_soon(watch, c)
                writers.start_soon(pay, c)
            await agree(present)
            nursery.cancel_scope.cancel()
        assert len(seen) > 50 and set(seen) == {0}


@simulated
async def test_evicted_replica_refuses_writes_then_resends_its_own() -> None:
    async with regions("a", "b", "c") as present:
        a, c = present.up["a"], present.up["c"]
        await a.object("cart", AWSet).add_all(["milk", "tea"])
        await a.object("note", LWWRegister).assign("old")
        await agree(present)
        present.network.cut("c")
        cart = c.object("cart", AWSet)
        await cart.remove("tea")
        await c.object("note", LWWRegister).assign("too late")
        await cart.add("bread")
        lost = await c.token()
        woken: list[str] = []

        async def wait(what: str, waiting: Any) -> None:
            await waiting()
            woken.append(what)

        async with trio.open_nursery() as nursery:
            news = c.object("news", AWSet)
            nursery.start_soon(wait, "object", news.changed)
            nursery.start_soon(wait, "replica", c.changed)
            nursery.start_soon(wait, "quiet", c.wait_quiet)
            nursery.start_soon(wait, "token", lambda: a.at_least(lost))
            await evict(present, "c")
            await a.object("note", LWWRegister).assign("new")
            await a.object("news", AWSet).add("x")
            await trio.sleep(1)
            assert not woken
            present.network.heal()
            # It hears that it was evicted; what the group has by now has not come yet.
            while c.member.standing.can_send:
                await c.member.changed()
            before = c.snapshot()
            with pytest.raises(EndedError, match="send when `ready` returns"):
                await cart.add("lost")
            with pytest.raises(EndedError), c.batch() as batch:
                batch.object("cart", AWSet).add("lost")
                batch.object("other", AWSet).add("lost")
            with pytest.raises(EndedError):
                await c.delete("cart")
            assert c.snapshot() == before
            batch = c.batch()
            with batch:
                batch.object("cart", AWSet).add("in a batch from before")
                await c.member.ready()
            assert batch.tag is not None and batch.tag.dot.origin == c.member.incarnation
        assert sorted(woken) == ["object", "quiet", "replica", "token"]
        values = await agree(present)
        # What takes something away does so only where the group has not changed it since.
        assert values["cart"] == {"milk", "bread", "in a batch from before"}
        assert values["note"] == "new" and news.value == {"x"}
        assert c.machine.yielded == 1
        await present.up["b"].at_least(Token.parse(str(await c.token())))


@pytest.mark.parametrize("crashes", [False, True])
@simulated
async def test_resent_typing_in_a_large_text_keeps_its_place(crashes: bool) -> None:
    async with regions("a", "b", "c") as present:
        await present.up["a"].object("text", SharedText).insert(0, "." * 200)
        await agree(present)
        present.network.cut("c")
        c = present.up["c"]
        for at, character in enumerate("hello", 100):
            await c.object("text", SharedText).insert(at, character)
        await c.object("text", SharedText).delete(101)
        await present.up["a"].object("text", SharedText).delete(95, 10)
        await c.wait_durable()
        await evict(present, "c")
        if crashes:
            present.crash("c")
            present.network.heal()
            await present.start("c")
        present.network.heal()
        assert (await agree(present))["text"] == "." * 95 + "hllo" + "." * 95
        c = present.up["c"]
        assert c.machine.yielded == 0
        await c.object("cart", AWSet).add("milk")
        await agree(present)
        assert c.machine._left is None, "what it was is kept for ever"


@simulated
async def test_evicted_replica_does_not_return_by_its_evicted_contact() -> None:
    async with regions("a", "b", "c", "d", "e") as present:
        a, b, d = (present.up[name] for name in "abd")
        present.network.cut("a", "d")
        b.member.evict("a")
        b.member.evict("d")
        await members_are(present, "b", "c", "e")
        for name in ("b", "c", "e"):  # so that a does not hear of it
            a.member.cut(name)
        present.network.heal()
        lives = {d.member.incarnation}
        while "b" not in d.member.members or len(d.member.members) != 4:
            await d.member.changed()
            lives.add(d.member.incarnation)
            assert len(lives) < 10
        for name in ("b", "c", "e"):
            a.member.heal(name)
        await agree(present)


@simulated
async def test_token_of_an_unknown_replica_is_waited_for() -> None:
    async with regions("a", "b") as present:
        b = present.up["b"]
        present.network.cut("b")
        c = await present.start("c", join=present.up["a"].address)
        await c.object("cart", AWSet).add("milk")
        token = Token.parse(str(await c.token()))
        with trio.move_on_after(60) as scope:
            await b.at_least(token)
        assert scope.cancelled_caught, "b has never heard of c"
        present.network.heal()
        await b.at_least(token)
        assert b.object("cart", AWSet).value == {"milk"}
        await agree(present)


@simulated
async def test_verify_raises_at_once_if_its_member_is_evicted() -> None:
    async with regions("a", "b", "c") as present:
        b, c = present.up["b"], present.up["c"]
        outcomes: list[tuple[str, float]] = []

        async def verify(replica: Replica) -> None:
            with pytest.raises(LocalProtocolError) as refusal:
                await replica.verify(3600)
            outcomes.append((str(refusal.value), trio.current_time()))

        async with trio.open_nursery() as nursery:
            present.network.cut("c")
            nursery.start_soon(verify, c)
            await evict(present, "c")
            present.network.heal()
            await eventually(lambda: bool(outcomes))
            assert "from an eviction" in outcomes[0][0]
            await agree(present)
            present.network.cut("a")
            nursery.start_soon(verify, b)
            await trio.sleep(1)
            present.network.heal()
            await b.member.leave()
            await eventually(lambda: len(outcomes) == 2)
            assert "is no longer a member" in outcomes[1][0]


@simulated
async def test_custom_types_are_kept_unknown_until_they_are_named() -> None:
    async with regions("a", types=[NewBoard, Likes]) as present:
        a = present.up["a"]
        await a.object("board", NewBoard).add("x")
        await a.object("board", NewBoard).perform("rewrite", "x", "y")
        await a.object("likes", Likes).increment(3)
        # A joiner gets a state that it cannot read, and keeps it, also over a crash.
        b = await present.start("b", types=[OldBoard])
        assert [(line.name, line.known) for line in b.objects()] == [
            ("board", False),
            ("likes", False),
        ]
        await b.object("cart", AWSet).add("milk")
        await b.wait_durable()
        present.crash("b")
        b = await present.start("b", types=[OldBoard])
        with pytest.raises(LocalProtocolError, match="upgrade it"):
            _ = b.object("board", OldBoard).value
        await present.up["a"].object("board", NewBoard).add("z")
        await eventually(lambda: b.object("board", OldBoard).unknown > 0)
        with pytest.raises(LocalProtocolError, match="choose another TYPE"):
            b.upgrade(type("Other", (Likes,), {"TYPE": OldBoard.TYPE}))
        b.upgrade(NewBoard, Likes)
        assert b.object("board", NewBoard).value == {"y", "z"}
        assert b.object("likes", Likes).value == 3
        await agree(present)
        # What was learned is known in all further states.
        c = await present.start("c", types=[NewBoard])
        c.require(Likes)
        await members_are(present, "a", "b", "c")
        await voting(present)
        present.network.cut("b")
        await b.object("likes", Likes).increment(2)
        await evict(present, "b")
        present.network.heal()
        await b.member.ready()
        assert (await agree(present))["likes"] == 5
        assert b.object("board", NewBoard).value == {"y", "z"}


@simulated
async def test_operations_of_a_type_named_later_are_resent_then() -> None:
    async with regions("a", "b", "c") as present:
        c = present.up["c"]
        present.network.cut("c")
        await c.object("likes", Likes).increment(3)
        await c.object("cart", AWSet).add("milk")
        await c.wait_durable()
        # From a copy it joins anew, and sends again before the program has named its type.
        present.crash("c", present.disks["c"].copied())
        present.network.heal()
        c = await present.start("c")
        await trio.sleep(60)
        assert c.machine.yielded == 0
        likes = c.object("likes", Likes)
        present.up["a"].require(Likes)
        present.up["b"].require(Likes)
        assert await agree(present) == {"cart": {"milk"}, "likes": 3}
        assert likes.value == 3


@simulated
async def test_rights_outlive_a_crash_and_are_never_spent_twice() -> None:
    async with regions("a", "b", "c") as present:
        stock = present.up["c"].object("stock", BoundedCounter)
        await stock.increment(10)
        await agree(present)
        present.crash("c")
        c = await present.start("c")
        stock = c.object("stock", BoundedCounter)
        await stock.decrement(1)
        await agree(present)
        present.network.cut("c")
        await stock.decrement(7)
        with pytest.raises(InvalidOperationError, match="has 2 of"):
            await stock.decrement(3)
        await evict(present, "c")
        present.network.heal()
        with trio.fail_after(120):
            while c.member.parked is None or not c.member.standing.can_send:  # noqa: ASYNC110 (it is back for a moment only)
                await trio.sleep(0.0005)
        # What it has spent is not sent again yet, so that the group's state has rights for 9.
        with pytest.raises(InvalidOperationError, match="has 0 of"):
            await stock.decrement(3)
        assert (await agree(present))["stock"]["total"] == 2


@simulated
async def test_leaving_replica_wakes_waiters_and_frees_its_name() -> None:
    async with regions("a", "b") as present:
        b = present.up["b"]
        cart = b.object("cart", AWSet)
        await cart.add("milk")
        ended: list[str] = []

        async def wait(what: str, waiting: Any) -> None:
            with pytest.raises(EndedError):
                await waiting()
            ended.append(what)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "object", cart.changed)
            nursery.start_soon(wait, "replica", lambda: forever(b.changed))
            beyond = Token(
                "default", ((await present.up["a"].token()).dots[0]._replace(counter=10**6),)
            )
            nursery.start_soon(wait, "token", lambda: b.at_least(beyond))
            await b.member.leave()
        assert sorted(ended) == ["object", "replica", "token"]
        assert cart.value == {"milk"}
        for refused in (cart.add, b.delete):
            with pytest.raises(EndedError, match="open the replica again"):
                await refused("cart")
        await present.stop("b")
        await members_are(present, "a")
        # Of one that has left no counter is kept, and a token that names it is still understood.
        await present.up["a"].at_least(await b.token())
        b = await present.start("b")
        assert b.object("cart", AWSet).value == {"milk"}
        await b.object("cart", AWSet).remove("milk")
        assert await agree(present) == {"cart": frozenset()}


async def forever(changed: Any) -> None:
    while True:
        await changed()


@simulated
async def test_replica_ended_by_a_failing_type_resumes_once_fixed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("in a type")

    with Network():
        with pytest.raises(ZeroDivisionError, match="in a type"):
            async with open_replica(
                "a", found=True, journal=DiskJournal(disk), compact_bytes=1
            ) as a:
                await a.object("cart", AWSet).add("milk")
                await a.wait_durable()
                with monkeypatch.context() as broken:
                    broken.setattr(AWSet, "arrival", fail)
                    with pytest.raises(ZeroDivisionError):
                        await a.object("cart", AWSet).add("tea")
                await trio.sleep(10)
        async with open_replica("a", journal=DiskJournal(disk)) as a:
            assert a.object("cart", AWSet).value >= {"milk"}
            await a.object("cart", AWSet).add("bread")


@simulated
async def test_replica_failing_on_a_returned_state_keeps_its_resends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()

    def fail(_: bytes) -> None:
        raise ZeroDivisionError("in a type")

    async with regions("a", "b") as present:
        options: dict[str, Any] = {"join": present.up["a"].address, "listen": "10.0.0.1:7003"}
        with pytest.raises(ZeroDivisionError, match="in a type"):
            async with open_replica("c", journal=DiskJournal(disk), **options) as c:
                present.up["c"] = c
                await members_are(present, "a", "b", "c")
                present.network.cut("c")
                await c.object("cart", AWSet).add("milk")
                await c.wait_durable()
                monkeypatch.setattr(c.machine, "set_state", fail)
                await evict(present, "c")
                present.network.heal()
                await trio.sleep(60)
        del present.up["c"]
        assert (await agree(present)) == {}
        async with open_replica("c", journal=DiskJournal(disk), **options) as c:
            present.up["c"] = c
            assert (await agree(present))["cart"] == {"milk"}


@simulated
async def test_a_disk_that_fails_ends_the_replica() -> None:
    disk = Disk()
    with Network():
        with pytest.raises(JournalError):
            async with open_replica("a", found=True, journal=DiskJournal(disk)) as a:
                await a.wait_durable()
                disk.broken = OSError(28, "No space left on device")
                await a.object("cart", AWSet).add("milk")
                await a.wait_durable()
        disk.broken = None
        async with open_replica("a", journal=DiskJournal(disk)) as a:
            assert a.objects() == []


@simulated
async def test_write_beyond_the_limit_is_refused_without_effect() -> None:
    limits = Limits(memory_bytes=20_000, most_bytes=20_000)
    with Network() as network:
        async with (
            open_replica("a", found=True, limits=limits) as a,
            open_replica("b", join=a.address),
        ):
            await a.member.wait_established()
            network.cut("b")
            cart = a.object("cart", AWSet)
            with pytest.raises(StoreFullError, match="b"):
                for number in range(100):
                    before = a.snapshot()
                    await cart.add(f"{number:01000}")
            assert a.snapshot() == before and len(cart.value) > 3
            network.heal()
            await a.wait_quiet()
            await cart.add("there is room again")


@simulated
async def test_replicas_in_several_groups_share_links() -> None:
    with Network():
        async with open_host("eu") as eu, open_host("us", peers=[eu.address]) as us:
            found = {}
            for group in ("orders", "chat"):
                one, other = (Replica(name) for name in ("eu", "us"))
                one.speak_for(eu.found(group, machine=one.machine))
                await one.object("x", AWSet).add(group)
                other.speak_for(await us.join(group, machine=other.machine))
                found[group] = other
            for group, replica in found.items():
                assert replica.group == group
                assert replica.snapshot().values == {"x": {group}}
                assert (await replica.verify()).equal


@simulated
async def test_in_memory_members_come_and_go_too() -> None:
    with Network():
        async with open_replica("eu", found=True) as eu:
            await eu.object("cart", AWSet).add("milk")
            async with open_replica("us", join=eu.address) as us:
                await us.object("cart", AWSet).remove("milk")
                with pytest.raises(LocalProtocolError, match="has no journal"):
                    await us.wait_durable()
                await us.member.leave()
            assert eu.object("cart", AWSet).value == frozenset()
            await eu.wait_quiet()
            assert eu.member.members.keys() == {"eu"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "set founders="),
        ({"found": True, "join": "h:1", "founders": {"eu": None}}, "together with found= or join="),
        ({"found": True, "witness": True}, "unknown option 'witness'"),
        ({"found": True, "replace": True}, "replace= and replaces= are for members that join"),
        ({"founders": {"eu": None}, "replaces": ["us"]}, "are for members that join"),
        ({"found": True, "nonsense": None}, "unknown option 'nonsense'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match=why):
            async with open_replica("eu", **options):
                pass

    trio.run(main)


@simulated
@pytest.mark.parametrize("have_votes", [True, False])
@pytest.mark.parametrize("rests", [0.0, 5.0])
async def test_member_that_evicts_both_sides_and_leaves_splits_none(
    have_votes: bool, rests: float
) -> None:
    """a and b hear nothing of each other; c, between them, evicts a, then b, and leaves. Nobody forces anything."""
    with Network() as net:
        async with (
            open_replica("c", found=True, journal=MemoryJournal()) as c,
            open_replica("a", join=c.address, journal=MemoryJournal()) as a,
            open_replica("b", join=c.address, journal=MemoryJournal()) as b,
        ):
            if have_votes:
                for replica in (a, b, c):
                    await replica.member.wait_established()
            net.silence("a", "b")
            net.silence("b", "a")
            c.member.evict("a")
            c.member.evict("b")
            await trio.sleep(rests)
            with trio.move_on_after(100) as scope:
                await c.member.leave()
            assert not scope.cancelled_caught, "it has left as soon as the others can take over"
            written = set()

            async def write(replica: Replica) -> None:
                await replica.member.ready()
                for n in range(5):
                    text = f"{replica.member.name}{n}"
                    await replica.object("s", AWSet).add(text)
                    written.add(text)
                await replica.wait_durable()

            # Who is back first may be the one to let the other one in, which hears nothing of it yet.
            late = []
            for replica in (a, b):
                with trio.move_on_after(300) as waits:
                    await write(replica)
                if waits.cancelled_caught:
                    late.append(replica)
            assert len(late) < 2, "somebody is a member without waiting for the cut to heal"
            await trio.sleep(30)
            net.heal()
            for replica in late:
                with trio.fail_after(3600):
                    await write(replica)
            await eventually(
                lambda: all(
                    set(r.member.members) == {"a", "b"}
                    and r.object("s", AWSet).value == written
                    and r.member.engine.view == a.member.engine.view
                    for r in (a, b)
                )
            )
            assert a.member.standing is b.member.standing is Standing.MEMBER
