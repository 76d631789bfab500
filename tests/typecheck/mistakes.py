"""Mistakes in uses of handles and options: marked lines are errors for mypy and pyright, others none. Never run."""

from crdtcast import Handle, Host, Replica, Tag, aio, open_host, open_member, open_replica, sync
from crdtcast.adapters.pycrdt import LiveDocument, YDocHandle
from crdtcast.datatypes import (
    AWMap,
    AWSet,
    EWFlag,
    GSet,
    LWWRegister,
    Number,
    PNCounter,
    SharedList,
    SharedText,
    SortedMap,
)
from examples.own_crdt import Poll


class PollHandle(Handle[Poll]):
    """A handle of a type of one's own."""

    async def vote(self, voter: str, option: str) -> Tag:
        return await self.perform("vote", voter, option)


async def sets(replica: Replica) -> None:
    cart = replica.object("cart", AWSet)
    await cart.ad("milk")  # error: attr-defined, reportAttributeAccessIssue
    await cart.add(3.5)  # error: arg-type, reportArgumentType
    await cart.add("a", "b", "c")  # error: call-arg, reportCallIssue
    await cart.add()  # error: call-arg, reportCallIssue
    await cart.add(item="milk")  # error: call-arg, reportCallIssue
    await cart.add_all("milk")  # error: arg-type, reportArgumentType
    await cart.add_all([1.5])  # error: list-item, reportArgumentType
    cart.add("milk")  # error: unused-coroutine, reportUnusedCoroutine
    cart.perform("add", "milk")  # error: unused-coroutine, reportUnusedCoroutine
    cart.changed()  # error: unused-coroutine, reportUnusedCoroutine
    tag: str = await cart.add("milk")  # error: assignment, reportAssignmentType
    n: int = cart.value  # error: assignment, reportAssignmentType
    cart.value = frozenset()  # error: misc, reportAttributeAccessIssue
    cart.crdt.add("milk")  # error: attr-defined, reportAttributeAccessIssue
    seen = replica.object("seen", GSet)
    await seen.remove("milk")  # error: attr-defined, reportAttributeAccessIssue
    print(tag, n)


async def numbers(replica: Replica) -> None:
    visits = replica.object("visits", PNCounter)
    await visits.increment("one")  # error: arg-type, reportArgumentType
    await visits.increment(1.5)  # error: arg-type, reportArgumentType
    await visits.reset()  # error: attr-defined, reportAttributeAccessIssue
    price = replica.object("price", Number)
    await price.set(None)  # error: arg-type, reportArgumentType
    ranking = replica.object("ranking", SortedMap)
    await ranking.set(1.5, "ann")  # error: arg-type, reportArgumentType
    done = replica.object("done", EWFlag)
    await done.enable(True)  # error: call-arg, reportCallIssue


async def values(replica: Replica) -> None:
    title = replica.object("title", LWWRegister)
    await title.assign({1, 2})  # error: arg-type, reportArgumentType
    await title.assign({1: 2})  # error: arg-type, reportArgumentType
    await title.assign(object())  # error: arg-type, reportArgumentType
    shown: str = title.value  # error: assignment, reportAssignmentType
    print(shown)


async def sequences(replica: Replica) -> None:
    text = replica.object("text", SharedText)
    await text.insert("hello", 0)  # error: arg-type, reportArgumentType
    text.insert(0, "x")  # error: unused-coroutine, reportUnusedCoroutine
    await text.place(None, "left", "x")  # error: arg-type, reportArgumentType
    todo = replica.object("todo", SharedList)
    await todo.insert_all(0, "abc")  # error: arg-type, reportArgumentType


async def maps(replica: Replica) -> None:
    board = replica.object("board", AWMap)
    await board.update("tea", AWSet, "add")  # error: arg-type, reportArgumentType
    await board.update("tea", 5, ["add", "green"])  # error: arg-type, reportArgumentType


async def own_types(replica: Replica) -> None:
    lunch = replica.object("lunch", Poll)
    await lunch.vote("ann", "tea")  # error: attr-defined, reportAttributeAccessIssue
    lunch.perform("close")  # error: unused-coroutine, reportUnusedCoroutine
    typed = PollHandle(replica, "lunch", Poll)
    await typed.vote("ann")  # error: call-arg, reportCallIssue
    PollHandle(replica, "lunch", AWSet)  # error: arg-type, reportArgumentType
    replica.object("words", str)  # error: arg-type, reportArgumentType
    replica.object(AWSet, "cart")  # error: call-overload, reportCallIssue


async def batches(replica: Replica) -> None:
    with replica.batch() as batch:
        cart = batch.object("cart", AWSet)
        cart.ad("milk")  # error: attr-defined, reportAttributeAccessIssue
        cart.add(3.5)  # error: arg-type, reportArgumentType
        cart.add("a", "b", "c")  # error: call-arg, reportCallIssue
        await cart.add("milk")  # error: func-returns-value, reportGeneralTypeIssues
        lunch = batch.object("lunch", Poll)
        lunch.vote("ann", "tea")  # error: attr-defined, reportAttributeAccessIssue


async def whispers(replica: Replica) -> None:
    replica.whisper("cursors", "seven")  # error: arg-type, reportArgumentType
    replica.whisper("cursors", b"7", 30)  # error: call-arg, reportCallIssue
    await replica.whisper("cursors", b"7")  # error: func-returns-value, reportGeneralTypeIssues
    replica.on_whisper(print, b"cursors")  # error: arg-type, reportArgumentType
    for _ in replica.whispers():  # error: attr-defined, reportGeneralTypeIssues
        pass


async def opened(links: Host) -> None:
    open_replica("eu", journl="eu.journal")  # error: call-arg, reportCallIssue
    open_replica("eu", found="yes")  # error: arg-type, reportArgumentType
    open_replica("eu", witness=True)  # error: call-arg, reportCallIssue
    open_member("eu", founder={"eu": None})  # error: call-arg, reportCallIssue
    open_member("eu", founders={"eu": 7001})  # error: dict-item, reportArgumentType
    open_host("eu", secret=b"0123456789abcdef")  # error: call-arg, reportCallIssue
    links.found("orders", replace=True)  # error: call-arg, reportCallIssue
    await links.join("orders", limit=None)  # error: call-arg, reportCallIssue


async def in_asyncio(replica: aio.Replica) -> None:
    cart = replica.object("cart", AWSet)
    cart.add("milk")  # error: unused-coroutine, reportUnusedCoroutine
    await cart.ad("milk")  # error: attr-defined, reportAttributeAccessIssue
    await cart.add(3.5)  # error: arg-type, reportArgumentType
    replica.wait_quiet()  # error: unused-coroutine, reportUnusedCoroutine
    async with aio.open_replica("a", fond=True):  # error: call-arg, reportCallIssue
        pass
    with aio.open_replica("a", found=True):  # error: attr-defined, reportGeneralTypeIssues
        pass


def in_threads(replica: sync.Replica) -> None:
    cart = replica.object("cart", AWSet)
    cart.ad("milk")  # error: attr-defined, reportAttributeAccessIssue
    cart.add(3.5)  # error: arg-type, reportArgumentType
    n: int = cart.value  # error: assignment, reportAssignmentType
    cart.changed(5)  # error: call-arg, reportCallIssue
    with sync.open_replica("a", join_timeout="soon"):  # error: arg-type, reportArgumentType
        pass
    print(n)


async def documents(replica: Replica, handle: YDocHandle) -> None:
    handle.apply(b"")  # error: unused-coroutine, reportUnusedCoroutine
    await handle.apply("text")  # error: arg-type, reportArgumentType
    LiveDocument(replica, handle)  # error: arg-type, reportArgumentType
