"""What the event log of a journalled member tells of a batch that is synced at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crdtcast.durablelog import DurableLog
from crdtcast.engine import GroupEngine
from crdtcast.eventfiles import Kind, LogReader
from crdtcast.incarnation import new_incarnation
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
