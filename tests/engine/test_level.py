"""The format level of a group: who may send what, who is let in, and who must be upgraded first."""

import msgpack
import pytest

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine, OperationKind, Span, Standing
from crdtcast.engine.operations import Reads, decode, encode
from crdtcast.exceptions import (
    HandshakeError,
    LocalProtocolError,
    OutdatedError,
    RemoteProtocolError,
)
from crdtcast.wire.state import pack_state, unpack_state

OLD, NEW = Span(1, 1), Span(1, 2)
A, B, C = "a.1", "b.1", "c.1"


class Three:
    """Members a, b and c whose packets are handed over by `exchange`. reads: of each."""

    def __init__(self, *reads: Span) -> None:
        self.engines = {me: GroupEngine.found(me, [A, B, C]) for me in (A, B, C)}
        for me, span in zip((A, B, C), reads, strict=True):
            self.restart(me, span)

    def __getitem__(self, me: str) -> GroupEngine:
        return self.engines[me]

    def restart(self, me: str, reads: Span) -> None:
        self.engines[me] = GroupEngine(me, self.engines[me].state(), reads)
        for other in self.engines.values():
            if other.me != me:
                other.disconnected(me)
                other.connected(me)
                self.engines[me].connected(other.me)

    def exchange(self, *names: str, rounds: int = 40) -> None:
        """Packets between these, or all, arrive; timers tick; everything is taken. Nothing reaches others."""
        there = names or tuple(self.engines)
        for _ in range(rounds):
            for me in there:
                engine = self.engines[me]
                engine.tick()
                for to, packet in engine.take_outbox():
                    for other in there:
                        if other != me and to in (None, other):
                            self.engines[other].receive(me, packet)
                while engine.poll() is not None:
                    pass
                engine.poll_stable()


def test_level_rises_everywhere_when_all_read_it() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    assert three[A].raisable == 2
    three[A].raise_level(2)
    assert (three[A].level, three[A].agreed) == (1, 1), "others may not be there"
    three.exchange()
    assert [engine.level for engine in three.engines.values()] == [2, 2, 2]
    assert all(engine.quiet for engine in three.engines.values())


def test_raise_is_refused_if_an_absent_member_cannot_read_it() -> None:
    three = Three(NEW, NEW, OLD)
    three.exchange()
    with pytest.raises(LocalProtocolError, match=r"upgrade or evict c \(reads 1\)"):
        three[A].raise_level(2)
    with pytest.raises(LocalProtocolError, match="is already 1"):
        three[A].raise_level(1)


def test_downgraded_member_requests_no_level_above_its_own() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three.engines[A] = GroupEngine(A, three[A].state(), OLD)  # and has not said so yet
    assert three[A].raisable == 1
    with pytest.raises(LocalProtocolError, match=r"a \(reads 1\)"):
        three[A].raise_level(2)


def test_level_is_not_used_before_all_have_agreed_to_it() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three[A].raise_level(2)
    three.exchange(A, B)
    assert [three[A].level, three[B].level, three[C].level] == [1, 1, 1]
    assert three[A].waits_for() == [C]
    assert three[B].agreed == 1, "nobody has promised anything before all are there"


def test_downgraded_program_blocks_the_raise_but_no_writes() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three.engines[C] = GroupEngine(C, three[C].state(), OLD)  # it goes back, and is not heard of
    three[A].raise_level(2)
    for other in (A, B):
        three[other].disconnected(C)
        three[other].connected(C)
        three[C].connected(other)
    three[C].send(b"still writes")
    three.exchange(rounds=200)
    assert [engine.level for engine in three.engines.values()] == [1, 1, 1]
    assert three[A].lacking_level(2) == three[A].waits_for() == [C]
    assert three[A].vector[C] == three[C].vector[C]
    assert three[A].open_change is None

    three.restart(C, NEW)
    three.exchange()
    assert [engine.level for engine in three.engines.values()] == [2, 2, 2]
    assert not three[A].wants


def test_downgraded_leaver_drops_its_raise_request() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three[A].raise_level(2)
    three.restart(A, OLD)
    three[A].leave()
    three.exchange()
    assert three[A].standing is Standing.LEFT
    assert [three[B].level, three[C].level] == [1, 1]


def test_raise_completes_once_the_older_program_is_evicted() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three.engines[C] = GroupEngine(C, three[C].state(), OLD)
    three[A].raise_level(2)
    three[A].evict(C)
    three.exchange(A, B)
    assert [three[A].level, three[B].level] == [2, 2]
    with pytest.raises(HandshakeError, match="the program of c reads level 1"):
        three[A].admit("c.2", replaces=[C], reads=OLD)


def test_older_program_refuses_a_state_that_has_agreed_to_more() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    three[A].raise_level(2)
    for _ in range(200):
        three.exchange(rounds=1)
        if three[A].agreed == 2:
            break
    state = unpack_state(msgpack.unpackb(msgpack.packb(pack_state(three[A].state()))))
    assert state == three[A].state()
    with pytest.raises(OutdatedError, match="format level 2"):
        GroupEngine(A, state, OLD)
    assert GroupEngine(A, state, NEW).agreed == 2


def test_program_that_has_dropped_a_level_refuses_its_state() -> None:
    three = Three(NEW, NEW, NEW)
    with pytest.raises(OutdatedError, match="format level 1"):
        GroupEngine(A, three[A].state(), Span(2, 3))


def test_contact_refuses_a_joiner_that_cannot_read_the_level() -> None:
    three = Three(NEW, NEW, NEW)
    three.exchange()
    admission = three[A].admit("d.1", reads=OLD)
    assert three[A].members[admission.incarnation].reads == OLD
    assert three[A].raisable == 1
    with pytest.raises(LocalProtocolError, match="d"):
        three[A].raise_level(2)
    three[B].raise_level(2)  # it has not heard of d
    three.exchange(rounds=100)
    assert admission.incarnation not in three[B].members, "it has died on its way"
    assert [engine.level for engine in three.engines.values()] == [2, 2, 2]
    with pytest.raises(HandshakeError, match="reads level 1"):
        three[A].admit("e.1", reads=OLD)


def test_message_that_cannot_be_read_is_kept_by_the_others() -> None:
    three = Three(OLD, OLD, OLD)
    three.exchange()
    tag = three[A].send(b"strange")
    three[B].send(b"plain")
    for packet in three[A].take_outbox():
        if isinstance(packet.message, Message):
            three[C].receive(A, packet.message)
    upcoming = three[C].upcoming()
    assert upcoming is not None and upcoming.dot == tag.dot
    three[C].refuse()
    assert three[C].upcoming() is None
    assert {origin: message.dot for origin, message in three[C].refused.items()} == {A: tag.dot}
    for packet in three[B].take_outbox():
        if isinstance(packet.message, Message):
            three[C].receive(B, packet.message)
    delivery = three[C].poll()
    assert delivery is not None and delivery.payload == b"plain"
    assert three[C].vector[A] == tag.dot.counter - 1


def test_reads_operation_survives_encoding() -> None:
    operation = Reads(Span(2, 5))
    assert decode(*encode(operation)) == operation


@pytest.mark.parametrize("payload", [b"\x92\x02\x01", b"\x91\x01", b"\x92\x00\x01", b"\x90"])
def test_invalid_span_of_levels_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(OperationKind.READS, payload)


def test_refused_message_returns_by_repair() -> None:
    three = Three(OLD, OLD, OLD)
    three.exchange()
    message = Message(Dot(A, 1), (), b"strange")
    for _ in range(2):
        three[C].receive(A, message)
        assert three[C].upcoming() == message
        three[C].refuse()
    assert three[C].counters().pending == 1
