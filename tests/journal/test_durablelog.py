"""What the event log of a journalled member tells of a batch that is synced at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Message
from crdtcast.engine import PROGRAM, GroupEngine, Span, Standing
from crdtcast.engine.views import Decided
from crdtcast.eventlog.durable_log import DurableLog
from crdtcast.eventlog.format import EventKind
from crdtcast.journal.noting_store import noted
from crdtcast.journal.saved import JournalBatch, pack_batch, unpack_batch
from tests.log_reader import LogReader


def said(engine: GroupEngine) -> list[Message]:
    outbox = [effect.message for effect in engine.take_outbox()]
    return [message for message in outbox if isinstance(message, Message)]


def test_join_is_logged_before_messages_of_the_joiner(tmp_path: Path) -> None:
    """Seen under `crdtcast chaos`: both were synced together, and the join was told at the end, after the joiner's
    first message had become stable.
    """
    founders = [new_incarnation(name, number, 0) for number, name in enumerate("ab", 1)]
    a, b = (GroupEngine.found(me, founders) for me in founders)
    member: Any = SimpleNamespace(engine=b, name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)

    admission = a.admit(new_incarnation("c", 3, 0))
    c = GroupEngine(admission.incarnation, admission.state)
    c.send(b"x")
    for other in (a.me, c.me):
        b.connected(other)
    messages = [*said(a), *said(c)]
    for message in messages:
        b.receive(message.dot.origin, message)
    while b.poll() is not None:
        pass
    assert c.me in b.members
    log.taken([*messages, tuple(message.dot for message in messages)])
    log.synced()

    told = [(event.kind, event.origin) for event in LogReader(tmp_path)][1:]
    assert told.index((EventKind.JOIN, a.me)) < told.index((EventKind.DELIVER, c.me))
    log.ended()


def test_join_and_leave_within_one_batch_are_both_logged(tmp_path: Path) -> None:
    """Seen under `crdtcast chaos`: a member that had been paused heard of a leave, its sweep and all stability in one
    go. Its engine had forgotten the leaver when the log was written, which never said that it had left.
    """
    founders = [new_incarnation(name, number, 0) for number, name in enumerate("abc", 1)]
    group = {me: GroupEngine.found(me, founders) for me in founders}
    a, b, c = founders
    group[b], store = noted(b, group[b].state())
    member: Any = SimpleNamespace(engine=group[b], name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)

    admission = group[a].admit(new_incarnation("d", 4, 0))
    d = admission.incarnation
    group[d] = GroupEngine(d, admission.state)
    for leaver in (d, c):
        talk(group, rounds=20)
        group[leaver].leave()
    talk(group, rounds=60)
    assert group[b].members.keys() == {a, b} and group[b].ended == {}

    log.taken(store.take_happened())
    log.synced()
    log.ended()
    told = [(event.kind, event.member or event.origin) for event in LogReader(tmp_path)]
    changes = [
        line for line in told if line[0] in (EventKind.JOIN, EventKind.LEFT, EventKind.EVICT)
    ]
    assert changes == [(EventKind.JOIN, d), (EventKind.LEFT, d), (EventKind.LEFT, c)]


def test_eviction_is_logged_before_the_stability_it_causes(tmp_path: Path) -> None:
    """Of a member that was evicted for good `crdtcast check` said that its log ends without what others were told is
    stable, since the eviction was told behind that, at the end of the batch.
    """
    a, b, c = [new_incarnation(name, number, 0) for number, name in enumerate("abc", 1)]
    group = {me: GroupEngine.found(me, [a, b, c]) for me in (a, b)}  # nobody hears of c
    group[b], store = noted(b, group[b].state())
    member: Any = SimpleNamespace(engine=group[b], name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)

    group[a].send(b"x")
    group[a].evict(c)
    talk(group, rounds=20)
    assert group[b].members.keys() == {a, b}
    log.taken(store.take_happened())
    log.synced()
    log.ended()
    told = [(event.kind, event.origin) for event in LogReader(tmp_path)]
    assert told.count((EventKind.EVICT, c)) == 1
    assert told.index((EventKind.EVICT, c)) < told.index((EventKind.STABLE, a))


def test_send_before_the_start_line_is_logged_after_it(tmp_path: Path) -> None:
    me = new_incarnation("b", 1, 0)
    state = GroupEngine.found(me, [me]).state()
    engine, store = noted(me, state, Span(PROGRAM.lowest, PROGRAM.highest + 1))
    engine.tick()  # tells what it reads now
    member: Any = SimpleNamespace(engine=engine, name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(state.counter)
    log.taken(store.take_happened())
    log.synced()
    log.ended()
    start, sent = list(LogReader(tmp_path))[1:]
    assert (start.kind, sent.kind, sent.counter) == (EventKind.START, EventKind.SEND, 1)
    assert not (start.vector or {}).get(me)


def test_a_log_that_goes_on_neither_repeats_nor_skips_a_decision(tmp_path: Path) -> None:
    """Of what its process had no time to tell, the journal has the order."""
    a, b, c = [new_incarnation(name, number, 0) for number, name in enumerate("abc", 1)]
    group = {me: GroupEngine.found(me, [a, b, c]) for me in (a, b)}
    engine, store = noted(b, group[b].state())
    group[b] = engine
    member: Any = SimpleNamespace(engine=engine, name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)
    admission = group[a].admit(new_incarnation("d", 4, 0))
    d = admission.incarnation
    group[d] = GroupEngine(d, admission.state)
    talk(group, rounds=30)
    group[a].evict(c)
    talk(group, rounds=30)
    assert engine.view.epoch == 2
    happened = store.take_happened()
    log.taken(happened[: [isinstance(item, Decided) for item in happened].index(True)])
    log.synced()
    log.ended()

    record = pack_batch(JournalBatch(happened, outline=engine.outline()))
    again, _ = noted(b, engine.state())
    member.engine = again
    log = DurableLog(member, tmp_path)
    log.resumed(unpack_batch(record, "the journal").happened)
    log.begun(again.state().counter)
    log.synced()
    log.ended()
    told = list(LogReader(tmp_path))
    changes = (EventKind.JOIN, EventKind.VIEW, EventKind.EVICT, EventKind.START)
    assert [(e.kind, e.epoch) for e in told if e.kind in changes] == [
        (EventKind.START, 0),
        (EventKind.JOIN, None),
        (EventKind.VIEW, 1),
        (EventKind.EVICT, None),
        (EventKind.VIEW, 2),
        (EventKind.START, 2),
    ]


def test_own_end_is_logged_once_even_after_a_restart(tmp_path: Path) -> None:
    a, b = [new_incarnation(name, number, 0) for number, name in enumerate("ab", 1)]
    group = {a: GroupEngine.found(a, [a])}
    admission = group[a].admit(b)
    joined = admission.incarnation
    engine, store = noted(joined, admission.state)
    group[joined] = engine
    member: Any = SimpleNamespace(engine=engine, name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)
    talk(group, rounds=10)
    group[a].evict(joined)
    talk(group, rounds=30)
    assert engine.standing is Standing.EVICTED
    happened = store.take_happened()
    log.taken(happened)
    log.synced()
    log.ended()
    told = len(list(LogReader(tmp_path)))

    log = DurableLog(member, tmp_path)
    log.resumed(happened)
    log.ended()
    assert len(list(LogReader(tmp_path))) == told


def talk(group: dict[str, GroupEngine], rounds: int) -> None:
    """Everybody hears everybody, and time goes on."""
    for me, engine in group.items():
        for other in group:
            if other != me:
                engine.connected(other)
    for _ in range(rounds):
        for me, engine in group.items():
            engine.tick()
            for effect in engine.take_outbox():
                for other in group if effect.to is None else [effect.to]:
                    if other != me and other in group:
                        group[other].receive(me, effect.message)
            for one in group.values():
                while one.poll() is not None:
                    pass
                one.poll_stable()
