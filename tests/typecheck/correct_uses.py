"""Uses of handles and options without errors for type checkers, and the types that they must see. Never run."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, assert_type

import pycrdt

from crdtcast import (
    Handle,
    Member,
    Replica,
    Tag,
    Whisper,
    aio,
    open_host,
    open_member,
    open_replica,
    sync,
)
from crdtcast.adapters.pycrdt import (
    Applied,
    LiveDocument,
    SyncLiveDocument,
    SyncYDocHandle,
    YDocHandle,
)
from crdtcast.adapters.pycrdt.content import Content
from crdtcast.datatypes import (
    AWMap,
    AWSet,
    BoundedCounter,
    Element,
    EWFlag,
    GOMap,
    GSet,
    Identity,
    LWWRegister,
    MVRegister,
    Number,
    Plain,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    Rights,
    SharedList,
    SharedText,
    SortedMap,
)
from crdtcast.replica.batch_handles import AWSetBatchHandle
from crdtcast.replica.handle import BatchHandle
from crdtcast.replica.handles import AWSetHandle, PNCounterHandle
from crdtcast.sync.handles import AWSetSyncHandle
from examples.own_crdt import Poll


class PollHandle(Handle[Poll]):
    """A handle for a type of one's own."""

    async def vote(self, voter: str, option: str) -> Tag:
        return await self.perform("vote", voter, option)


class Likes(PNCounter):
    """A type of one's own that is based on one of the package."""

    TYPE = "likes"


async def sets(replica: Replica, words: list[str], mixed: set[str | int]) -> None:
    cart = replica.object("cart", AWSet)
    assert_type(cart, AWSetHandle)
    assert_type(cart.crdt, AWSet)
    assert_type(cart.value, frozenset[Element])
    assert_type(await cart.add("milk"), Tag)
    await cart.add(element=b"milk")
    await cart.add_all(words)
    await cart.add_all(mixed)
    await cart.add_all(["milk", 1, b"tea"])
    await cart.add_all(("milk",))
    await cart.add_all(cart.value)
    await cart.remove_all([])
    await cart.perform("add", "milk")
    await cart.changed()
    later = cart.add("milk")
    await later
    assert_type("milk" in cart.crdt, bool)
    await replica.object("seen", GSet).add(1)


async def numbers(replica: Replica) -> None:
    stock = replica.object("stock", BoundedCounter)
    await stock.transfer(2, to="us")
    assert_type(stock.value, Rights)
    assert_type(stock.value["rights"]["us"], int)
    visits = replica.object("visits", ResettableCounter)
    await visits.increment()
    await visits.increment(by=10)
    assert_type(visits.value, int)
    price = replica.object("price", Number)
    await price.set(Decimal("1.10"))
    await price.increment("0.10")
    assert_type(price.value, Decimal | None)
    ranking = replica.object("ranking", SortedMap)
    await ranking.set("ann", 1.5)
    assert_type(ranking.value, list[tuple[Element, Decimal]])
    assert_type(ranking.crdt.rank("ann"), int | None)


async def values(
    replica: Replica, sizes: dict[str, int], tree: Mapping[str, list[str]], given: Plain
) -> None:
    title = replica.object("title", LWWRegister)
    await title.assign("Groceries")
    await title.assign(None)
    await title.assign(sizes)
    await title.assign(tree)
    await title.assign([sizes, {"a": [1, None, {b"b": 2.5}]}])
    await title.assign(given)
    await title.assign(title.value)
    assert_type(title.value, Plain)
    assert_type(replica.object("titles", MVRegister).value, list[Plain])
    assert_type(replica.object("done", EWFlag).value, bool)


async def sequences(replica: Replica, words: list[str]) -> None:
    text = replica.object("text", SharedText)
    await text.insert(0, "hello")
    await text.delete(0)
    await text.delete(0, count=2)
    await text.place(text.crdt.identity_at(0), "L", "x")
    assert_type(text.value, str)
    assert_type(text.crdt[0], str)
    assert_type(text.crdt.identity_at(0), Identity)
    todo = replica.object("todo", SharedList)
    await todo.insert(0, {"title": "milk"})
    await todo.insert_all(0, words)
    await todo.insert_all(0, [1, "two", None])
    assert_type(todo.value, list[Plain])


async def maps(replica: Replica, words: list[str]) -> None:
    board = replica.object("board", AWMap)
    await board.update("tea", AWSet, ["add", "green"])
    await board.update("tea", "set_aw", ("add_all", words))
    await board.remove("tea", AWSet)
    await board.batch([["tea", AWSet, ["add", "green"]]], [("milk", AWSet)])
    assert_type(board.value, dict[tuple[Element, str], Any])
    assert_type(board.crdt["tea", AWSet], PureOpCRDT[Any])


async def own_types(replica: Replica, crdt_type: type[PureOpCRDT[Any]]) -> None:
    general = replica.object("lunch", Poll)
    assert_type(general, Handle[Poll])
    assert_type(general.crdt, Poll)
    assert_type(general.value, dict[str, int])
    assert_type(await general.perform("vote", "ann", "tea"), Tag)
    lunch = PollHandle(replica, "lunch", Poll)
    await lunch.vote("ann", "tea")
    assert_type(lunch.value, dict[str, int])
    assert_type(replica.object("likes", Likes), PNCounterHandle)
    assert_type(replica.object("any", crdt_type), Handle[PureOpCRDT[Any]])


def batches(replica: Replica) -> None:
    with replica.batch() as batch:
        cart = batch.object("cart", AWSet)
        assert_type(cart, AWSetBatchHandle)
        cart.add("milk")
        cart.add_all(["milk", "tea"])
        batch.object("tree", GOMap).update("tea", PNCounter, ["increment", 2])
        general = batch.object("lunch", Poll)
        assert_type(general, BatchHandle)
        general.perform("vote", "ann", "tea")
    assert_type(batch.tag, Tag | None)


async def whispers(replica: Replica) -> None:
    replica.whisper("cursors", b"7", seconds=2.5)
    async for whisper in replica.whispers("cursors", "names"):
        assert_type(whisper, Whisper)
        assert_type(whisper.payload, bytes)
    stop = replica.on_whisper(lambda whisper: print(whisper.sender), "cursors")
    stop()


async def opened() -> None:
    async with open_replica("eu", found=True) as replica:
        assert_type(replica.object("cart", AWSet), AWSetHandle)
    founders = {"eu": None, "us": ("us.example", 7001), "asia": "asia.example:7001"}
    open_replica("eu", founders=founders, journal="eu.journal", types=[Likes], secrets=(b"x" * 16,))
    open_member("eu", join=["us.example:7001"], witness=True, replaces=["us"], compress=False)
    async with open_host("eu", peers={"us": "us.example:7001"}, retry_first=0.1) as links:
        assert_type(links.found("orders", founders=["eu", "us"], journal=None), Member)
        assert_type(await links.join("chat", replace=True), Member)


async def in_asyncio() -> None:
    async with aio.open_replica("a", found=True) as replica:
        assert_type(replica, aio.Replica)
        cart = replica.object("cart", AWSet)
        assert_type(cart, AWSetHandle)
        assert_type(cart.value, frozenset[Element])
        assert_type(await cart.add("milk"), Tag)
        await replica.at_least(await replica.token())
        replica.whisper("cursors", b"7")
        assert_type(await anext(replica.whispers("cursors")), Whisper)
        await PollHandle(replica, "lunch", Poll).vote("ann", "soup")


def in_threads() -> None:
    with sync.open_replica("a", join="10.0.0.1:7001", join_timeout=5) as replica:
        assert_type(replica, sync.Replica)
        cart = replica.object("cart", AWSet)
        assert_type(cart, AWSetSyncHandle)
        assert_type(cart.value, frozenset[Element])
        assert_type(cart.add("milk"), Tag)
        assert_type(replica.object("lunch", Poll), sync.SyncHandle[Poll])
        assert_type(replica.object("likes", Likes).value, int)
        with replica.batch() as batch:
            assert_type(batch.object("cart", AWSet), AWSetBatchHandle)
            batch.object("cart", AWSet).add("tea")
        replica.at_least(replica.token(), timeout=1)
        replica.whisper("cursors", b"7", seconds=5)
        for sender, topic, payload in replica.whispers():
            assert_type(f"{sender} {topic}".encode() + payload, bytes)
        assert_type(replica.whispers("cursors").next(timeout=1), Whisper)


async def documents(replica: Replica, local: sync.Replica, doc: "pycrdt.Doc[Any]") -> None:
    notes = YDocHandle(replica, "notes")
    assert_type(await notes.apply(doc.get_update()), Tag)
    assert_type(notes.text("text"), str)
    assert_type(notes.value, dict[str, Content])
    async with LiveDocument(notes, doc) as live:
        await live.flush()
    async for applied in notes.updates():
        assert_type(applied, Applied | None)
    assert_type(SyncYDocHandle(local, "notes").apply(b""), Tag)
    SyncLiveDocument(SyncYDocHandle(local, "notes"), doc).exchange()
