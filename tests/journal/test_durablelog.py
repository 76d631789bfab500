"""What the event log of a journalled member tells of a batch that is synced at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crdtcast.durablelog import DurableLog
from crdtcast.engine import GroupEngine
from crdtcast.eventfiles import Kind, LogReader
from crdtcast.incarnation import new_incarnation
from crdtcast.journal.noting import NotingEngine
from crdtcast.messages import Message


def said(engine: GroupEngine) -> list[Message]:
    outbox = [effect.message for effect in engine.take_outbox()]
    return [message for message in outbox if isinstance(message, Message)]


def test_a_join_is_told_before_what_the_joiner_says(tmp_path: Path) -> None:
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
    assert told.index((Kind.JOIN, a.me)) < told.index((Kind.DELIVER, c.me))
    log.ended()


def test_who_comes_and_goes_while_one_batch_is_collected_is_told_of(tmp_path: Path) -> None:
    """Seen under `crdtcast chaos`: a member that had been paused heard of a leave, its sweep and all stability in one
    go. Its engine had forgotten the leaver when the log was written, which never said that it had left.
    """
    founders = [new_incarnation(name, number, 0) for number, name in enumerate("abc", 1)]
    group = {me: GroupEngine.found(me, founders) for me in founders}
    a, b, c = founders
    group[b] = NotingEngine(b, group[b].state())
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

    log.taken(member.engine.take_happened())
    log.synced()
    log.ended()
    told = [(event.kind, event.member or event.origin) for event in LogReader(tmp_path)]
    changes = [line for line in told if line[0] in (Kind.JOIN, Kind.LEAVE, Kind.EVICT)]
    assert changes == [(Kind.JOIN, d), (Kind.LEAVE, d), (Kind.LEAVE, c)]


def test_an_eviction_is_told_before_what_it_makes_stable(tmp_path: Path) -> None:
    """Of a member that was evicted for good `crdtcast check` said that its log ends without what others were told is
    stable, since the eviction was told behind that, at the end of the batch.
    """
    a, b, c = [new_incarnation(name, number, 0) for number, name in enumerate("abc", 1)]
    group = {me: GroupEngine.found(me, [a, b, c]) for me in (a, b)}  # nobody hears of c
    group[b] = NotingEngine(b, group[b].state())
    member: Any = SimpleNamespace(engine=group[b], name="b", group="g", parked=None)
    log = DurableLog(member, tmp_path)
    log.begun(0)

    group[a].send(b"x")
    group[a].evict(c)
    talk(group, rounds=20)
    assert group[b].members.keys() == {a, b}
    log.taken(member.engine.take_happened())
    log.synced()
    log.ended()
    told = [(event.kind, event.origin) for event in LogReader(tmp_path)]
    assert told.count((Kind.EVICT, c)) == 1
    assert told.index((Kind.EVICT, c)) < told.index((Kind.STABLE, a))


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
