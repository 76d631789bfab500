"""Documents in a group: they converge, survive, and reach whoever joins; live documents in tasks and threads."""

import asyncio
import contextlib
import random
import threading
from typing import Any

import pytest
import trio
from pycrdt import Doc, Map, Text, UndoManager

from crdtcast import EndedError, Replica, aio, open_replica, sync
from crdtcast.adapters.pycrdt import (
    LiveDocument,
    SyncLiveDocument,
    SyncYDocHandle,
    YDoc,
    YDocBatchHandle,
    YDocHandle,
)
from crdtcast.adapters.pycrdt.content import content_of
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError
from crdtcast.testing import Network, eventually, open_cluster, simulated
from tests.adapters.pycrdt.editing import edit
from tests.node.regions import agree, evict, regions


def text_of(doc: "Doc[Any]") -> Text:
    return doc.get("text", type=Text)


def whole(replica: Replica) -> str:
    return YDocHandle(replica, "notes").crdt.digest()


@simulated
async def test_live_documents_of_two_replicas_converge() -> None:
    with Network():
        async with (
            open_replica("a", found=True) as a,
            open_replica("b", join=a.address) as b,
        ):
            mine: Doc[Any] = Doc(client_id=1)
            text_of(mine).insert(0, "before ")
            async with (
                LiveDocument(YDocHandle(a, "notes"), mine),
                LiveDocument(YDocHandle(b, "notes"), theirs := Doc(client_id=2)) as other,
            ):
                await eventually(lambda: str(text_of(theirs)) == "before ")
                text_of(mine).insert(7, "a")
                text_of(theirs).insert(7, "b")
                await other.flush()
                await eventually(lambda: str(text_of(mine)) == str(text_of(theirs)))
                assert sorted(str(text_of(mine))) == sorted("before ab")
                assert YDocHandle(a, "notes").text("text") == str(text_of(mine))
                for _ in range(30):
                    edit(mine, random.Random(3))
                    edit(theirs, random.Random(4))
                await eventually(
                    lambda: whole(a) == whole(b) and mine.get_state() == theirs.get_state()
                )
            text_of(mine).insert(0, "separate")
            await trio.testing.wait_all_tasks_blocked()
            assert "separate" not in YDocHandle(a, "notes").text("text")


@simulated
async def test_edits_of_one_turn_are_one_message() -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            handle = YDocHandle(a, "notes")
            async with LiveDocument(handle, doc := Doc(client_id=3)) as live:
                text_of(doc).insert(0, "first")
                await live.flush()
                updates = handle.updates()
                for n in range(50):
                    text_of(doc).insert(n, "x")
                await live.flush()
                assert len(updates.take() or ()) == 1
            assert handle.text("text") == "x" * 50 + "first"


@simulated
async def test_edits_after_the_end_of_the_replica_stay_local() -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            live = LiveDocument(YDocHandle(a, "notes"), doc := Doc(client_id=4))
            text_of(doc).insert(0, "sent")
            await live.flush()
        await trio.to_thread.run_sync(text_of(doc).insert, 4, " not sent")
        assert str(text_of(doc)) == "sent not sent"
        with pytest.raises(EndedError):
            await live.flush()
        assert YDocHandle(a, "notes").text("text") == "sent"


@simulated
async def test_undo_leaves_alone_what_others_wrote() -> None:
    with Network():
        async with (
            open_replica("a", found=True) as a,
            open_replica("b", join=a.address) as b,
            LiveDocument(YDocHandle(a, "notes"), mine := Doc()) as live,
            LiveDocument(YDocHandle(b, "notes"), theirs := Doc()),
        ):
            text, other = text_of(mine), text_of(theirs)
            undo = UndoManager(scopes=[text])
            text += "mine"
            await eventually(lambda: str(other) == "mine")
            other.insert(0, "theirs, ")
            await eventually(lambda: str(text) == "theirs, mine")
            assert undo.undo() and str(text) == "theirs, "
            await live.flush()
            await eventually(lambda: str(other) == "theirs, ")


@simulated
async def test_observer_that_fails_does_not_stop_the_updates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            handle = YDocHandle(a, "notes")
            source: Doc[Any] = Doc()
            text_of(source).insert(0, "first")
            await handle.apply(source.get_update())
            doc: Doc[Any] = Doc()
            text = text_of(doc)

            def fail(event: object) -> None:
                raise ValueError("an error of the program")

            subscription = text.observe(fail)
            async with LiveDocument(handle, doc):
                for word in ("second ", "third "):
                    text_of(source).insert(0, word)
                    await handle.apply(source.get_update())
                await eventually(lambda: str(text) == "third second first")
                text.unobserve(subscription)
                text += "!"
            assert handle.text("text") == "third second first!"
            assert caplog.text.count("an observer of the Doc joined with 'notes' has failed") >= 2
            assert "an error of the program" in caplog.text


@simulated
async def test_edits_of_a_cancelled_flush_are_sent_beside() -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            handle = YDocHandle(a, "notes")
            async with LiveDocument(handle, doc := Doc()) as live:
                text_of(doc).insert(0, "x")
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await live.flush()
                assert scope.cancelled_caught
                await eventually(lambda: handle.text("text") == "x")


@simulated
async def test_edits_of_a_flush_during_a_return_are_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            handle = YDocHandle(a, "notes")
            async with LiveDocument(handle, doc := Doc()) as live:
                text_of(doc).insert(0, "x")
                with monkeypatch.context() as evicted:

                    async def apply(update: bytes) -> None:
                        await trio.testing.wait_all_tasks_blocked()
                        raise EndedError("evicted")

                    evicted.setattr(handle, "apply", apply)
                    with pytest.raises(EndedError):
                        await live.flush()
                await eventually(lambda: handle.text("text") == "x")


@simulated
async def test_edit_in_another_thread_is_told_and_not_lost() -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            handle = YDocHandle(a, "notes")
            async with LiveDocument(handle, doc := Doc(allow_multithreading=True)) as live:
                with pytest.raises(ExceptionGroup) as told:
                    await trio.to_thread.run_sync(text_of(doc).insert, 0, "x")
                assert "edited in another thread" in str(told.value.exceptions)
                text_of(doc).insert(0, "y")
                await live.flush()
                assert handle.text("text") == "yx"


def test_edit_of_another_thread_during_an_exchange_is_sent() -> None:
    with sync.open_replica("a", found=True) as a:
        handle = SyncYDocHandle(a, "notes")
        source: Doc[Any] = Doc()
        text_of(source).insert(0, "theirs")
        with SyncLiveDocument(handle, doc := Doc(allow_multithreading=True)) as live:
            text = text_of(doc)
            receiving, edited = threading.Event(), threading.Event()
            begin = live._edits._transaction

            def slowly() -> Any:
                receiving.set()
                edited.wait(60)
                return begin()

            live._edits._transaction = slowly  # type: ignore[method-assign]
            handle.apply(source.get_update())
            other = threading.Thread(target=live.exchange)
            other.start()
            receiving.wait(60)
            text.insert(0, "mine")
            edited.set()
            other.join()
        assert sorted(handle.text("text")) == sorted("minetheirs")


@simulated
async def test_reader_gets_each_update_and_hears_of_gaps() -> None:
    with Network():
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address) as b:
            handle, other = YDocHandle(a, "notes"), YDocHandle(b, "notes")
            copy: Doc[Any] = Doc(client_id=5)
            updates = other.updates()
            assert updates.take() == []
            for n in range(3):
                doc: Doc[Any] = Doc(client_id=n + 1)
                text_of(doc).insert(0, str(n))
                await handle.apply(doc.get_update())
                tag = await other.apply(doc.get_update())
                await eventually(lambda: other.text("text") == handle.text("text"))
                taken = updates.take()
                if n == 0:  # the object was made
                    assert taken is None
                    copy.apply_update(other.update_since(copy.get_state()))
                else:
                    assert taken is not None and tag in [applied.tag for applied in taken]
                    for applied in taken:
                        copy.apply_update(applied.update)
            assert copy.get_state() == other.state_vector()
            slow = other.updates(most_bytes=5)
            await a.at_least(await b.token())
            await a.delete("notes")
            await eventually(lambda: not other.exists)
            assert slow.take() is None and slow.take() == []
            for applied in updates.take() or ():
                copy.apply_update(applied.update)
            assert str(text_of(copy)) == ""


@simulated
async def test_operations_wait_for_a_program_that_knows_the_type() -> None:
    with Network():
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address) as b:
            rng = random.Random(5)
            async with LiveDocument(YDocHandle(a, "notes"), doc := Doc(client_id=6)) as live:
                for n in range(20):
                    edit(doc, rng)
                    await live.flush()
                    if (
                        n == 10
                    ):  # what was deleted is known for good, also where nobody knows the type
                        await a.delete("notes")
                        await a.wait_quiet()
                        await b.wait_quiet()
            await b.at_least(await a.token())
            assert [each.known for each in b.objects()] == [False]
            b.upgrade(YDoc)
            assert whole(a) == whole(b) and YDocHandle(b, "notes").unknown == 0


@simulated
async def test_quiet_document_has_no_log_and_a_joiner_gets_it() -> None:
    with Network():
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address) as b:
            async with LiveDocument(YDocHandle(a, "notes"), doc := Doc(client_id=7)):
                rng = random.Random(1)
                for _ in range(40):
                    edit(doc, rng)
                    await trio.lowlevel.checkpoint()
            for replica in (a, b):
                await replica.wait_quiet()
                await eventually(lambda: not YDocHandle(replica, "notes").crdt.log_size)  # noqa: B023
            async with open_replica("c", join=b.address, types=[YDoc]) as c:
                assert whole(a) == whole(b) == whole(c)
                assert YDocHandle(c, "notes").value == YDocHandle(a, "notes").value
                assert (await a.verify()).equal


@simulated
async def test_large_paste_is_whole_or_absent_everywhere() -> None:
    with Network():
        options = {"max_frame": 2**17}
        async with (
            open_replica("a", found=True, **options) as a,
            open_replica("b", join=a.address, **options) as b,
        ):
            paste = "".join(random.Random(5).choices("abcdefgh ", k=400_000))
            seen: set[int] = set()
            other = YDocHandle(b, "notes")
            other.on_change(lambda told: seen.add(len(told.value.get("text", ""))))
            doc: Doc[Any] = Doc(client_id=8)
            text_of(doc).insert(0, paste)
            await YDocHandle(a, "notes").apply(doc.get_update())
            assert YDocHandle(a, "notes").text("text") == paste
            await eventually(lambda: other.text("text") == paste)
            await trio.testing.wait_all_tasks_blocked()
            assert seen == {0, len(paste)}
            with pytest.raises(InvalidOperationError, match="too large"), a.batch() as batch:
                YDocBatchHandle(batch, "more").apply(doc.get_update())
            await a.wait_quiet()
            assert YDocHandle(a, "notes").crdt.snapshot() == YDocHandle(b, "notes").crdt.snapshot()


@pytest.mark.slow
def test_paste_of_20_mb_goes_through() -> None:
    """Over real sockets, with frames of the default size."""
    paste = "".join(random.Random(5).choices("abcdefgh ", k=20_000_000))
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        doc: Doc[Any] = Doc(client_id=9)
        live = SyncLiveDocument(SyncYDocHandle(a, "notes"), doc)
        text_of(doc).insert(0, paste)
        live.exchange()
        b.at_least(a.token(), timeout=120)
        assert SyncYDocHandle(b, "notes").text("text") == paste
        a.wait_quiet(timeout=120)
        assert [each.unstable for each in b.objects()] == [0]
        with sync.open_replica("c", join=b.address, types=[YDoc]) as c:
            assert SyncYDocHandle(c, "notes").text("text") == paste


@simulated
async def test_documents_survive_restarts_and_large_parts_too() -> None:
    async with open_cluster(open_replica, "a", "b", "c", seed=3, max_frame=2**17) as cluster:
        rng = random.Random(2)
        docs: dict[str, Doc[Any]] = {
            name: Doc(client_id=n) for n, name in enumerate(cluster.up, start=1)
        }
        for name, doc in docs.items():
            for _ in range(10):
                edit(doc, rng)
            text_of(doc).insert(0, "y" * 200_000)
            await YDocHandle(cluster.up[name], "notes").apply(doc.get_update())
        for name in docs:
            await cluster.up[name].wait_durable()
            cluster.crash(name)
            await cluster.start(name, types=[YDoc])
        for replica in cluster.up.values():
            await replica.wait_quiet()
        assert len({whole(replica) for replica in cluster.up.values()}) == 1
        assert YDocHandle(cluster.up["a"], "notes").text("text").count("y" * 200_000) == 3


@simulated
async def test_crash_in_a_large_paste_leaves_all_of_it_or_nothing() -> None:
    outcomes: set[int] = set()
    for seed in range(8):
        async with regions("a", "b", seed=seed, types=[YDoc], max_frame=2**17) as group:
            doc: Doc[Any] = Doc(client_id=1)
            text_of(doc).insert(0, "y" * 300_000)
            await YDocHandle(group.up["a"], "notes").apply(doc.get_update())
            if seed % 2:
                await trio.testing.wait_all_tasks_blocked()
            group.crash("a")
            await group.start("a")
            values = await agree(group)
            outcomes.add(len(values.get("notes", {}).get("text", "")))
            handle = YDocHandle(group.up["a"], "notes")
            await handle.apply(doc.get_update())
            assert await agree(group) == {"notes": {"text": "y" * 300_000}}
            assert handle.crdt.dump_stable()[2] == {}  # no parts are left
    assert outcomes <= {0, 300_000}


@simulated
async def test_evicted_member_brings_its_edits_back() -> None:
    async with regions("a", "b", "c", types=[YDoc], max_frame=2**17) as group:
        docs: dict[str, Doc[Any]] = {
            name: Doc(client_id=n) for n, name in enumerate(group.up, start=1)
        }
        lives = {
            name: LiveDocument(YDocHandle(replica, "notes"), docs[name])
            for name, replica in group.up.items()
        }
        rng = random.Random(8)
        for name in docs:
            text_of(docs[name]).insert(0, name * 100)
            await lives[name].flush()
        await agree(group)
        group.network.cut("c")
        for _ in range(20):
            for doc in docs.values():
                edit(doc, rng)
                await trio.lowlevel.checkpoint()
        text_of(docs["c"]).insert(0, "paste" * 50_000)
        await lives["c"].flush()
        await evict(group, "c")
        text_of(docs["a"]).insert(0, "meanwhile")
        group.network.heal()
        text_of(docs["c"]).insert(0, "at any time")
        values = await agree(group)
        text = values["notes"]["text"]
        assert all(each in text for each in ("paste" * 50_000, "meanwhile", "at any time"))
        assert all(str(text_of(doc)) == text for doc in docs.values())
        assert all(replica.unreadable == 0 for replica in group.up.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@simulated
async def test_random_faults_leave_one_document(seed: int) -> None:
    """Five replicas edit on, while they are cut off, crash, are evicted, and delete the document."""
    rng = random.Random(seed)
    names = ("a", "b", "c", "d", "e")
    async with regions(*names, seed=seed, types=[YDoc], max_frame=2**17) as group:
        docs: dict[str, Doc[Any]] = {name: Doc(client_id=n + 1) for n, name in enumerate(names)}
        lives = {n: LiveDocument(YDocHandle(group.up[n], "notes"), docs[n]) for n in names}
        for _ in range(60):
            name = rng.choice(names)
            for _ in range(rng.randint(1, 5)):
                edit(docs[name], rng)
            match rng.randrange(12):
                case 0:
                    group.network.cut(*rng.sample(names, rng.randint(1, 2)))
                case 1 | 2:
                    group.network.heal()
                case 3:
                    text_of(docs[name]).insert(0, "paste" * rng.randint(1, 60_000))
                case 4:
                    with contextlib.suppress(EndedError):
                        await group.up[name].delete("notes")
                case 5:
                    lives[name].close()
                    group.crash(name)
                    replica = await group.start(name)
                    docs[name] = Doc(client_id=rng.randrange(2**32))
                    lives[name] = LiveDocument(YDocHandle(replica, "notes"), docs[name])
            await trio.sleep(rng.random())
        cut = rng.choice(names)
        group.network.heal()
        group.network.cut(cut)
        edit(docs[cut], rng)
        await evict(group, cut)
        group.network.heal()
        await agree(group)
        for live in lives.values():
            await live.flush()
        await agree(group)
        for name, doc in docs.items():
            assert content_of(doc.get_update()) == YDocHandle(group.up[name], "notes").value
        assert all(replica.unreadable == 0 for replica in group.up.values())


@simulated
async def test_deletion_keeps_what_it_has_not_seen() -> None:
    async with regions("a", "b", "c", types=[YDoc]) as group:
        seen: Doc[Any] = Doc(client_id=12)
        text_of(seen).insert(0, "seen")
        a, c = group.up["a"], group.up["c"]
        await YDocHandle(a, "notes").apply(seen.get_update())
        await agree(group)
        group.network.cut("c")
        old: Doc[Any] = Doc(client_id=13)
        old.apply_update(YDocHandle(c, "notes").update_since())
        before = old.get_state()
        text_of(old).insert(2, " unseen ")
        await YDocHandle(c, "notes").apply(old.get_update(before))
        await a.delete("notes")
        assert YDocHandle(a, "notes").value == {} and not YDocHandle(a, "notes").exists
        group.network.heal()
        assert await agree(group) == {"notes": {"text": " unseen "}}
        # An old copy of the document does not bring back what was deleted.
        await a.delete("notes")
        assert await agree(group) == {}
        await YDocHandle(a, "notes").apply(seen.get_update())
        assert await agree(group) == {"notes": {}}


@simulated
async def test_refused_edit_says_that_a_new_doc_is_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            doc: Doc[Any] = Doc()
            live = LiveDocument(YDocHandle(a, "notes"), doc)
            place = doc.get("map", type=Map)
            for _ in range(110):
                place["in"] = Map()
                place = place["in"]
            await eventually(lambda: "join a new Doc" in caplog.text)
            with pytest.raises(InvalidOperationError, match="100 levels"):
                await live.flush()
            live.close()


def test_live_documents_in_asyncio() -> None:
    async def main() -> None:
        async with (
            aio.open_replica("a", found=True) as a,
            aio.open_replica("b", join=a.address) as b,
        ):
            mine: Doc[Any] = Doc(client_id=14)
            theirs: Doc[Any] = Doc(client_id=15)
            arrived = asyncio.Event()
            text = text_of(theirs)  # observers end with the object that they were given to
            text.observe(lambda event: arrived.set())
            async with (
                LiveDocument(YDocHandle(a, "notes"), mine),
                LiveDocument(YDocHandle(b, "notes"), theirs),
            ):
                text_of(mine).insert(0, "hello")
                async with asyncio.timeout(60):
                    await arrived.wait()
                assert str(text) == "hello"

    asyncio.run(main())


def test_live_documents_in_threads() -> None:
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        mine: Doc[Any] = Doc(client_id=16)
        text_of(mine).insert(0, "one ")
        with pytest.raises(LocalProtocolError, match="is no SyncYDocHandle"):
            SyncLiveDocument(YDocHandle, mine)  # type: ignore[arg-type]
        live = SyncLiveDocument(SyncYDocHandle(a, "notes"), mine)
        text_of(mine).insert(4, "two")
        live.exchange()
        b.at_least(a.token(), timeout=60)
        with SyncLiveDocument(SyncYDocHandle(b, "notes"), theirs := Doc(client_id=17)):
            assert str(text_of(theirs)) == "one two"
            text_of(theirs).insert(7, " three")
        text_of(theirs).insert(0, "apart ")
        a.at_least(b.token(), timeout=60)
        live.exchange()
        assert str(text_of(mine)) == "one two three"
        assert SyncYDocHandle(a, "notes").value == {"text": "one two three"}
        with pytest.raises(ZeroDivisionError), live:
            text_of(mine).insert(0, "not sent ")
            raise ZeroDivisionError
        assert SyncYDocHandle(a, "notes").value == {"text": "one two three"}
        assert not live._edits


def test_document_with_nothing_new_joins_without_an_operation() -> None:
    with sync.open_replica("a", found=True) as a:
        handle = SyncYDocHandle(a, "notes")
        with SyncLiveDocument(handle, mine := Doc()):
            text_of(mine).insert(0, "one two")
        with SyncLiveDocument(handle, mine := Doc()):
            del text_of(mine)[0:4]
        sent = str(a.token())
        with SyncLiveDocument(handle, mine := Doc()):
            assert str(text_of(mine)) == "two"
        assert str(a.token()) == sent


def test_live_documents_refuse_what_belongs_to_another_door() -> None:
    doc: Any = Doc()

    async def main() -> None:
        async with aio.open_replica("a", found=True) as a:
            handle: Any = YDocHandle(a, "notes")
            with pytest.raises(LocalProtocolError, match="joins a SyncYDocHandle with a Doc"):
                SyncLiveDocument(handle, doc)
            with pytest.raises(LocalProtocolError, match="is no Doc"):
                LiveDocument(handle, a)  # type: ignore[arg-type]

    asyncio.run(main())
    with sync.open_replica("a", found=True) as a:
        handle: Any = SyncYDocHandle(a, "notes")
        with pytest.raises(LocalProtocolError, match="joins a YDocHandle with a Doc"):
            LiveDocument(handle, doc)
