"""Rooms: browsers at several nodes edit one document, and see each other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
from pycrdt import Array, Doc, Text

from crdtcast import Member, aio, open_replica
from crdtcast.adapters.pycrdt.rooms import awareness, messages
from crdtcast.adapters.pycrdt.rooms.awareness import MAX_STATE, ClientState
from crdtcast.adapters.pycrdt.rooms.channels import Access, CloseCode, Visit, anyone
from crdtcast.adapters.pycrdt.rooms.service import Rooms
from crdtcast.adapters.pycrdt.rooms.session import RoomLimits
from crdtcast.adapters.pycrdt.update import number
from crdtcast.adapters.pycrdt.ydoc import YDoc
from crdtcast.datatypes import AWSet
from crdtcast.testing import Network, eventually, simulated
from tests.adapters.pycrdt.browsers import Browser, Line


@asynccontextmanager
async def nodes(
    *names: str, opened: Any = open_replica, judge: Any = anyone, **options: Any
) -> AsyncIterator[list[Rooms]]:
    """Nodes of one group, with their rooms."""
    async with AsyncExitStack() as stack:
        replicas: list[Any] = []
        for name in names:
            how = {"join": replicas[0].address} if replicas else {"found": True}
            replicas.append(await stack.enter_async_context(opened(name, **how)))
        yield [Rooms(replica, judge, **options) for replica in replicas]


def document(rooms: Rooms, name: str = "page") -> YDoc:
    return rooms._replica.object(name, YDoc).crdt


async def edit_at_two_nodes(opened: Any) -> None:
    async with nodes("a", "b", opened=opened) as (a, b), anyio.create_task_group() as tasks:
        ann, bob, cy = Browser(), Browser(), Browser()
        tasks.start_soon(ann.run, a, "page")
        tasks.start_soon(bob.run, b, "page")
        ann.text += "Hello"
        await bob.reads("Hello")
        bob.text += ", Bob"
        await ann.reads("Hello, Bob")
        ann.announce({"name": "Ann"})
        bob.announce({"name": "Bob"})
        await ann.until(lambda: ann.state_of(bob) == {"name": "Bob"})
        await bob.until(lambda: bob.state_of(ann) == {"name": "Ann"})
        tasks.start_soon(cy.run, b, "page")
        await cy.reads("Hello, Bob")
        await cy.until(lambda: cy.state_of(ann) == {"name": "Ann"})
        await cy.until(lambda: cy.state_of(bob) == {"name": "Bob"})
        assert (a.open, b.open) == ({"page": 1}, {"page": 2})
        bob.announce({"name": "Bob", "cursor": 5})
        await ann.until(lambda: ann.state_of(bob) == {"name": "Bob", "cursor": 5})
        ann.text += "!"
        ann.leave()  # at once: what was typed counts
        await bob.reads("Hello, Bob!")
        await bob.until(lambda: bob.state_of(ann) is None)
        await cy.until(lambda: cy.state_of(ann) is None)
        for each in (bob, cy):
            each.leave()
    assert (a.open, b.open) == ({}, {})


def test_browsers_at_two_nodes_edit_one_text_in_trio() -> None:
    trio.run(edit_at_two_nodes, open_replica)


def test_browsers_at_two_nodes_edit_one_text_in_asyncio() -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await edit_at_two_nodes(aio.open_replica)

    asyncio.run(main())


@simulated
async def test_node_that_dies_takes_its_clients_names_along() -> None:
    with Network() as network:
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            tasks.start_soon(bob.run, b, "page")
            ann.announce({"name": "Ann"})
            await bob.until(lambda: bob.state_of(ann) == {"name": "Ann"})
            network.disconnect("a")
            await bob.until(lambda: bob.state_of(ann) is None)
            # Ann's tab comes back at the other node, with the clock that it had: it is seen at once.
            again = Browser(ann.doc)
            again.clock = ann.clock
            tasks.start_soon(again.run, b, "page")
            again.announce({"name": "Ann"}, clock=ann.clock)
            await bob.until(lambda: bob.state_of(ann) == {"back": True})
            tasks.cancel_scope.cancel()


@simulated
async def test_tab_that_dials_again_is_seen_at_once_elsewhere() -> None:
    with Network() as network:
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            async with anyio.create_task_group() as there:
                there.start_soon(bob.run, b, "page")
                bob.announce({"name": "Bob"})
                await ann.until(lambda: ann.state_of(bob) == {"name": "Bob"})
                bob.leave()  # the room at b has nobody now, and is forgotten
            await ann.until(lambda: ann.state_of(bob) is None)
            again = Browser(bob.doc)
            tasks.start_soon(again.run, b, "page")
            again.announce({"name": "Bob"}, clock=bob.clock)
            await ann.until(lambda: ann.state_of(bob) == {"back": True}, seconds=2)
            network.cut("a")
            await ann.until(lambda: ann.state_of(bob) is None)
            network.heal()
            await ann.until(lambda: ann.state_of(bob) == {"back": True})
            tasks.cancel_scope.cancel()


@simulated
async def test_clock_without_end_closes_nobody_else() -> None:
    with Network():
        async with nodes("a") as (a,), anyio.create_task_group() as tasks:
            ann, eve, bob = Browser(), Browser(), Browser()
            for each in (ann, bob):
                tasks.start_soon(each.run, a, "page")
            ann.announce({"name": "Ann"})
            for last in (2**53 - 1, awareness.MAX_CLOCK):
                eve = Browser()
                eve.say(
                    messages.Presence(
                        awareness.encode([ClientState(ann.doc.client_id, last, "{}")])
                    )
                )
                eve.leave()
                await eve.run(a, "page")
            ann.text += "still here"
            await bob.reads("still here")
            assert ann.line.closed is None and a.counts["bad_message"] == 0
            tasks.cancel_scope.cancel()


@simulated
async def test_node_goes_on_to_name_a_client_that_is_silent() -> None:
    limits = RoomLimits(awareness_seconds=200)
    with Network():
        async with nodes("a", "b", limits=limits) as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            tasks.start_soon(bob.run, b, "page")
            ann.announce({"name": "Ann"})
            await bob.until(lambda: bob.state_of(ann) == {"name": "Ann"})
            await trio.sleep(100)
            assert bob.state_of(ann) == {"name": "Ann"}
            tasks.cancel_scope.cancel()


@simulated
async def test_room_that_has_failed_does_not_silence_the_next_one() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob, cy = Browser(), Browser(), Browser()
            tasks.start_soon(cy.run, b, "page")
            tasks.start_soon(ann.run, a, "page")
            await ann.until(lambda: ann.kinds)
            former = a._rooms["page"]
            former.is_over = True  # its client is still on its way out
            tasks.start_soon(bob.run, a, "page")
            bob.announce({"name": "Bob"})
            await cy.until(lambda: cy.state_of(bob) == {"name": "Bob"})
            ann.leave()
            await eventually(lambda: not former.sessions)
            await trio.sleep(5)
            assert cy.state_of(bob) == {"name": "Bob"}
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("answer", [True, None, "write"])
def test_judge_that_returns_no_access_refuses(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @simulated
    async def run() -> None:
        with Network():
            async with nodes("a", judge=lambda visit: answer) as (a,):
                ann = Browser()
                await ann.run(a, "page")
                assert ann.line.closed is not None and ann.line.closed[0] == 4403
                assert "a judge returns an Access" in caplog.text and a.open == {}

    run()


@simulated
async def test_client_of_another_node_is_healed_by_state_vector() -> None:
    with Network() as network:
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann = Browser()
            async with anyio.create_task_group() as there:
                there.start_soon(ann.run, a, "page")
                network.cut("a")
                ann.text += "only at a"
                await eventually(lambda: document(a).text("text") == "only at a")
                there.cancel_scope.cancel()
            # It changes nodes, and its next update comes before it is asked what the new one lacks.
            again = Browser(ann.doc)
            again.text += ", and here"
            tasks.start_soon(again.run, b, "page")
            await eventually(lambda: document(b).text("text") == "only at a, and here")
            assert again.line.closed is None
            network.heal()
            await eventually(lambda: document(a).text("text") == "only at a, and here")
            tasks.cancel_scope.cancel()


class Lost(Browser):
    """A client whose document waits for something: what it has is always the same."""

    def __init__(self, update: bytes) -> None:
        super().__init__()
        self.update = update

    def take(self, message: messages.RoomMessage) -> None:
        if isinstance(message, messages.Step1):
            self.kinds.append("Step1")
            self.say(messages.Changes(self.update, answers=True))
        else:
            super().take(message)


@simulated
async def test_client_that_lacks_something_is_not_asked_for_ever() -> None:
    with Network():
        async with nodes("a") as (a,), anyio.create_task_group() as tasks:
            whole: Doc[Any] = Doc()
            text = whole.get("text", type=Text)
            text += "first"
            first, before = whole.get_update(), whole.get_state()
            text += "second"
            second = whole.get_update(before)
            lost = Lost(second)
            tasks.start_soon(lost.run, a, "page")
            lost.say(messages.Changes(second))
            await trio.sleep(60)
            assert 1 <= lost.kinds.count("Step1") <= 3
            other = Browser()
            tasks.start_soon(other.run, a, "page")
            other.say(messages.Changes(first))
            await eventually(lambda: document(a).text("text") == "firstsecond")
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b"", "ends too early"),
        (b"\x09", "an unknown kind of message: 9"),
        (b"\x00\x05", "an unknown sync message: 5"),
        (b"\x00\x02\x05abc", "ends too early"),
        (b"\x00\x00\x01\x00\x00", "more bytes than belong"),
        (b"\x00" + b"\xff" * 12, "no client can write"),
        (b"\x00" + b"\x80" * 2**20 + b"\x00", "no client can write"),
        (b"text", "a message of text"),
        (messages.encode(messages.Changes(b"no update")), "not an update"),
        (messages.encode(messages.Step1(b"\xff\xff")), "not a state vector"),
        (messages.encode(messages.Denied("you")), "cannot deny"),
        (b"\x01\x06\x01\x01\x01\x02{]", "not JSON"),
        (b"\x01\x07\x01\x01\x01\x03NaN", "not JSON"),
        (b"\x01\x05\x01\x01\x01\x01\xff", "not UTF-8"),
        (
            messages.encode(
                messages.Presence(
                    awareness.encode([ClientState(1, 1, '"' + "x" * MAX_STATE + '"')])
                )
            ),
            "bytes fit in",
        ),
    ],
    ids=range(15),
)
def test_garbage_closes_only_its_client_with_a_reason(wrong: bytes, why: str) -> None:
    @simulated
    async def run() -> None:
        with Network():
            async with nodes("a") as (a,), anyio.create_task_group() as tasks:
                good, bad = Browser(), Browser()
                for each in (good, bad):
                    tasks.start_soon(each.run, a, "page")
                bad.text += "before"
                await good.reads("before")
                bad.line.give(wrong)
                await bad.until(lambda: bad.line.closed)
                assert bad.line.closed is not None
                code, reason = bad.line.closed
                assert code == 4400 and why in reason
                good.text += ", after"
                await eventually(lambda: document(a).text("text") == "before, after")
                assert a.open == {"page": 1} and a.counts["bad_message"] == 1
                good.leave()

    run()


def items(count: int) -> bytes:
    return number(1) + number(count) + number(7) + number(0) + b"\x00\x01" * count + number(0)


def deletions(count: int) -> bytes:
    ranges = b"".join(number(3 * each) + number(1) for each in range(count))
    return number(0) + number(1) + number(7) + number(count) + ranges


def values(count: int) -> bytes:
    doc: Doc[Any] = Doc()
    doc["list"] = Array([True] * count)
    return doc.get_update()


@pytest.mark.parametrize("pieces", [items, deletions, values])
def test_update_with_too_many_pieces_closes_its_client(pieces: Callable[[int], bytes]) -> None:
    """Each takes a microsecond or two, in which the node does nothing else; 64 MiB could have as many."""

    @simulated
    async def run() -> None:
        with Network():
            limits = RoomLimits(pieces=30)
            async with nodes("a", limits=limits) as (a,), anyio.create_task_group() as tasks:
                good, bad = Browser(), Browser()
                for each in (good, bad):
                    tasks.start_soon(each.run, a, "page")
                    await eventually(lambda: a.open)
                good.say(messages.Changes(pieces(25)))
                bad.say(messages.Changes(pieces(40)))
                await bad.until(lambda: bad.line.closed)
                assert bad.line.closed is not None and bad.line.closed[0] == 4400
                assert "more than 30 items, deletions and values" in bad.line.closed[1]
                good.text += "x" * 100
                await eventually(lambda: document(a).text("text") == "x" * 100)
                good.leave()

    run()


@simulated
async def test_judge_lets_read_write_or_not_enter(caplog: pytest.LogCaptureFixture) -> None:
    async def judge(visit: Visit) -> Access:
        await trio.lowlevel.checkpoint()
        if visit.query == "broken":
            raise RuntimeError("no database")
        return {"ann": Access.WRITE, "bob": Access.READ}.get(visit.headers["user"], Access.NONE)

    with Network():
        async with nodes("a", judge=judge) as (a,), anyio.create_task_group() as tasks:
            ann, bob, eve, mel = Browser(), Browser(), Browser(), Browser()
            tasks.start_soon(lambda: ann.run(a, "page", headers={"user": "ann"}))
            tasks.start_soon(lambda: bob.run(a, "page", headers={"user": "bob"}))
            ann.text += "x"
            await bob.reads("x")
            bob.text += "y"
            bob.text += "z"
            await bob.until(lambda: bob.denied)
            bob.announce({"name": "Bob"})
            await ann.until(lambda: ann.state_of(bob) == {"name": "Bob"})
            assert len(bob.denied) == 1 and "read-only" in bob.denied[0]
            assert "Step1" not in bob.kinds, "it is not asked for what would not be taken"
            assert document(a).text("text") == "x"
            await eve.run(a, "page", headers={"user": "eve"})
            await mel.run(a, "page", headers={"user": "ann"}, query="broken")
            for each, why in ((eve, "may not enter"), (mel, "could not decide")):
                assert each.denied and why in each.denied[0]
                assert each.line.closed is not None and each.line.closed[0] == 4403
            assert "no database" in caplog.text
            await eve.run(a, "")
            assert a.counts == {"write": 1, "read": 1, "denied": 3}
            tasks.cancel_scope.cancel()


def test_judge_that_returns_no_access_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([None, True, "write"])

    @simulated
    async def run() -> None:
        with Network():
            async with nodes("a", judge=lambda visit: next(answers)) as (a,):
                for _ in range(3):
                    ann = Browser()
                    await ann.run(a, "page")
                    assert ann.line.closed is not None and ann.line.closed[0] == 4403
                assert (a.open, a.counts) == ({}, {"denied": 3})

    run()
    assert "a judge returns an Access, not None" in caplog.text


@simulated
async def test_judge_without_an_answer_has_the_client_come_again() -> None:
    async def judge(visit: Visit) -> Access:
        await trio.sleep_forever()
        raise AssertionError

    with Network():
        async with nodes("a", judge=judge) as (a,):
            ann = Browser()
            await ann.run(a, "page")
            assert ann.line.closed is not None and ann.line.closed[0] == 4503


@pytest.mark.parametrize("name", ["\ud800", "\ud800" * 300, "x" * 1001], ids=range(3))
def test_name_that_no_object_has_is_refused_for_good(name: str) -> None:
    @simulated
    async def run() -> None:
        with Network():
            async with nodes("a") as (a,):
                ann = Browser()
                await ann.run(a, name)
                assert ann.line.closed is not None and ann.line.closed[0] == 4403

    run()


class Echo(Browser):
    """Sends what is news to it about others, as y-websocket does."""

    def _meet(self, states: list[ClientState]) -> None:
        super()._meet(states)
        if states:
            self.say(messages.Presence(awareness.encode(states)))


@simulated
async def test_more_clients_than_a_node_may_have_are_shown() -> None:
    with Network():
        async with nodes("a", "b", "c") as (a, *others), anyio.create_task_group() as tasks:
            for first, each in zip((1, 2001), others, strict=True):
                states = [ClientState(first + n, 1, '"name"') for n in range(1000)]
                each._replica.whisper("room:page", awareness.encode(states))
            for ann in (Echo(), Echo()):  # the second one is told of all at once
                tasks.start_soon(ann.run, a, "page")
                await ann.until(lambda ann=ann: len(ann.present) == 2000)
            ann.text += "still here"
            await eventually(lambda: document(a).text("text") == "still here")
            tasks.cancel_scope.cancel()


class Stuck(Line):
    """Its close takes a while."""

    async def close(self, code: int, reason: str) -> None:
        await trio.sleep(0.5)
        await super().close(code, reason)


@simulated
async def test_room_that_has_failed_takes_no_names_from_the_next() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            slow, ann, bob = Browser(), Browser(), Browser()
            slow.line = Stuck()
            tasks.start_soon(bob.run, b, "page")
            tasks.start_soon(slow.run, a, "page")
            slow.announce({"name": "slow"})
            await bob.until(lambda: bob.state_of(slow))
            a._rooms["page"]._end(CloseCode.TRY_AGAIN, "failed")
            tasks.start_soon(ann.run, a, "page")
            ann.announce({"name": "Ann"})
            await bob.until(lambda: bob.state_of(ann) and bob.state_of(slow) is None)
            await trio.sleep(2)
            assert slow.line.closed is not None and bob.state_of(ann) == {"name": "Ann"}
            tasks.cancel_scope.cancel()


@simulated
async def test_client_that_does_not_read_is_resynchronised_or_cut() -> None:
    limits = RoomLimits(queue_bytes=2000, stall_seconds=20)
    with Network():
        async with nodes("a", limits=limits) as (a,), anyio.create_task_group() as tasks:
            slow, dead, ann, bob = Browser(), Browser(), Browser(), Browser()
            for each in (slow, dead):
                each.greet()
                tasks.start_soon(a.serve, each.line, Visit("page"))  # nobody reads its line
            for each in (ann, bob):
                tasks.start_soon(each.run, a, "page")
            for number in range(200):
                ann.text += f"line {number} of many\n"
                ann.announce({"line": number})
                await bob.until(lambda: str(bob.text) == str(ann.text))
            room = a._rooms["page"]
            assert all(session.queued_bytes <= 2000 + 100 for session in room.sessions)
            assert len(slow.line.sent) == 8
            tasks.start_soon(slow.read)
            await slow.until(lambda: str(slow.text) == str(ann.text))
            await slow.until(lambda: slow.state_of(ann) == {"line": 199})
            assert slow.kinds.count("Changes") < 20
            await trio.sleep(25)
            assert dead.line.closed is not None and dead.line.closed[0] == 4508
            assert slow.line.closed is None
            assert a.counts["too_slow"] == 1 and a.counts["resyncs"] == 1
            tasks.cancel_scope.cancel()


@simulated
async def test_a_burst_of_one_client_is_one_operation() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(bob.run, b, "page")
            for _ in range(100):
                ann.text += "x"
            tasks.start_soon(ann.run, a, "page")
            await bob.reads("x" * 100)
            engine = a._replica.member.engine  # type: ignore[union-attr]
            assert engine.vector[engine.me] <= 5
            tasks.cancel_scope.cancel()


@simulated
async def test_client_that_dials_again_without_news_is_no_operation() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(bob.run, b, "page")
            tasks.start_soon(ann.run, a, "page")
            ann.text += "one two three"
            del ann.text[3:7]
            await bob.reads("one three")
            engine = a._replica.member.engine  # type: ignore[union-attr]
            before, told = engine.vector[engine.me], bob.kinds.count("Changes")
            again = Browser(ann.doc)
            tasks.start_soon(again.run, a, "page")
            await again.until(lambda: "Step1" in again.kinds)
            await trio.sleep(5)
            assert (engine.vector[engine.me], bob.kinds.count("Changes")) == (before, told)
            again.say(messages.Changes(again.doc.get_update(), answers=True))
            await trio.sleep(5)
            assert engine.vector[engine.me] == before
            del again.text[0:4]
            await bob.reads("three")
            tasks.cancel_scope.cancel()


@simulated
async def test_fifty_clients_in_one_room_see_all() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            browsers = [Browser() for _ in range(50)]
            for number, each in enumerate(browsers):
                tasks.start_soon(each.run, (a, b)[number % 2], "page")
                each.announce({"number": number})
                each.text += f"{number},"
            for each in browsers:
                await each.until(lambda each=each: str(each.text).count(",") == 50)
                await each.until(
                    lambda each=each: all(
                        each is other or each.state_of(other) == {"number": number}
                        for number, other in enumerate(browsers)
                    )
                )
            assert len({str(each.text) for each in browsers}) == 1
            tasks.cancel_scope.cancel()


@simulated
async def test_silent_clients_are_gone_after_a_while() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            tasks.start_soon(bob.run, b, "page")
            ann.announce({"name": "Ann"})
            for _ in range(8):
                await trio.sleep(15)
                ann.announce({"name": "Ann"})  # as y-protocols does
            await bob.until(lambda: bob.state_of(ann) == {"name": "Ann"})
            await bob.until(lambda: bob.state_of(ann) is None, seconds=100)
            # Something comes at least every 30 seconds: y-websocket reconnects otherwise.
            came = ann.kinds.count("Presence")
            await trio.sleep(120)
            assert ann.kinds.count("Presence") - came >= 4
            tasks.cancel_scope.cancel()


@simulated
async def test_name_of_another_type_and_an_ended_replica_are_told() -> None:
    with Network():
        async with nodes("a", "b") as (a, _b), anyio.create_task_group() as tasks:
            await a._replica.object("cart", AWSet).add("milk")
            ann, bob, cy = Browser(), Browser(), Browser()
            await ann.run(a, "cart")
            assert ann.line.closed is not None and ann.line.closed[0] == 4409
            tasks.start_soon(bob.run, a, "page")
            bob.text += "x"
            await bob.until(lambda: document(a).text("text") == "x" and "Changes" in bob.kinds)
            await a._replica.member.leave()  # type: ignore[union-attr]
            await bob.until(lambda: bob.line.closed)
            assert bob.line.closed is not None and bob.line.closed[0] == 4503
            await cy.run(a, "page")
            assert cy.line.closed is not None and cy.line.closed[0] == 4503


@simulated
async def test_room_that_loses_its_name_closes_for_its_readers() -> None:
    with Network() as network:
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            await a._replica.member.wait_established()  # type: ignore[union-attr]
            network.cut("a")
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "cart")
            ann.text += "apples"
            await eventually(lambda: document(a, "cart").text("text") == "apples")
            await b._replica.object("cart", AWSet).add("milk")
            network.heal()
            await ann.until(lambda: ann.line.closed)
            await bob.run(a, "cart")
            for each in (ann, bob):
                assert each.line.closed is not None and each.line.closed[0] == 4409
            assert a.open == {}


@simulated
async def test_tiny_messages_that_wait_count_for_more_than_bytes() -> None:
    with Network():
        async with (
            nodes("a", limits=RoomLimits(incoming_bytes=10_000)) as (a,),
            anyio.create_task_group() as tasks,
        ):
            ann = Browser()
            tasks.start_soon(ann.run, a, "page")
            await ann.until(lambda: "Step1" in ann.kinds)
            (session,) = a._rooms["page"].sessions
            stuck = trio.Event()
            a._rooms["page"].apply = lambda update: stuck.wait()  # type: ignore[method-assign,assignment]
            for _ in range(5000):
                ann.line.give(b"\x00\x02\x01\x00")
            await trio.sleep(5)
            assert 100 < len(session._incoming) < 1000
            tasks.cancel_scope.cancel()


@simulated
async def test_deleted_document_is_taken_back_by_who_has_it() -> None:
    with Network():
        async with nodes("a", "b") as (a, b), anyio.create_task_group() as tasks:
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            tasks.start_soon(bob.run, b, "page")
            ann.text += "gone soon"
            await bob.reads("gone soon")
            await b._replica.delete("page")
            await ann.reads("")
            await bob.reads("")
            ann.text += "new"
            await bob.reads("new")
            assert document(a).text("text") == document(b).text("text") == "new"
            tasks.cancel_scope.cancel()


def test_nothing_is_told_before_it_is_durable(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_replica("a", found=True, journal=tmp_path / "a") as replica:
            rooms = Rooms(replica, anyone)
            ann, bob, cy = Browser(), Browser(), Browser()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ann.run, rooms, "page")
                tasks.start_soon(bob.run, rooms, "page")
                ann.text += "x"
                await bob.reads("x")
                reached = trio.Event()
                go_on = trio.Event()
                wait = replica.wait_durable

                async def slow() -> None:
                    if document(rooms).text("text") == "xy":  # not that of "x"
                        reached.set()
                        await go_on.wait()
                    await wait()

                monkeypatch.setattr(replica, "wait_durable", slow)
                ann.text += "y"
                await reached.wait()
                cy.greet()
                tasks.start_soon(cy.run, rooms, "page")
                with trio.move_on_after(0.2):
                    await bob.reads("xy")
                assert str(bob.text) == "x" and str(cy.text) == ""
                go_on.set()
                await bob.reads("xy")
                await cy.reads("xy")
                for each in (ann, bob, cy):
                    each.leave()

    trio.run(main)


@simulated
async def test_tab_at_an_evicted_node_comes_back_with_its_text() -> None:
    with Network() as network:
        async with nodes("a", "b", "c") as (a, b, c), anyio.create_task_group() as tasks:
            member: Member = b._replica.member  # type: ignore[union-attr]
            await member.wait_established()
            ann, bob = Browser(), Browser()
            tasks.start_soon(ann.run, a, "page")
            tasks.start_soon(bob.run, b, "page")
            ann.text += "together"
            await bob.reads("together")
            await eventually(lambda: document(c).text("text") == "together")
            network.cut("a")
            ann.text += ", alone"
            await eventually(lambda: document(a).text("text") == "together, alone")
            member.evict("a")
            await eventually(lambda: "a" not in member.members)
            bob.text += ", without a"
            network.heal()
            line = ann.line
            while str(bob.text).count("alone") == 0:
                if line.closed is not None:  # as y-websocket, which dials again
                    again = Browser(ann.doc)
                    line = again.line
                    tasks.start_soon(again.run, a, "page")
                await trio.sleep(0.5)
            await eventually(lambda: str(ann.text) == str(bob.text))
            assert sorted(str(bob.text)) == sorted("together, alone, without a")
            assert document(a).text("text") == document(c).text("text") == str(bob.text)
            tasks.cancel_scope.cancel()
