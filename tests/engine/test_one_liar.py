"""What one member says that cannot be: it is refused, or has no effect, it is named, and the others go on."""

import pytest

from crdtcast.engine import Cut, GroupEngine, How, Span, Standing, pasts
from crdtcast.engine.operations import (
    Evict,
    Frozen,
    Join,
    Leave,
    Operation,
    Raise,
    Settled,
    Sweep,
    encode,
)
from crdtcast.exceptions import HandshakeError, NotReadyError, RemoteProtocolError, RolledBackError
from crdtcast.incarnation import new_incarnation
from crdtcast.messages import Digest, DigestKind, Ended, Message
from crdtcast.tags import Dot
from tests.effort import Seeds, seeds
from tests.engine.liar import Street
from tests.engine.town import Town

Q = new_incarnation("q", 99, 0)


def talking(names: str = "abc") -> Town:
    """All have said something, and all know it."""
    town = Town(names)
    for name in names:
        town.send(name, name.encode())
    town.run()
    return town


def following(engine: GroupEngine, operation: Operation) -> Message:
    """The next message of a member, with that operation."""
    kind, payload = encode(operation)
    return Message(Dot(engine.me, engine.vector[engine.me] + 1), engine.context, payload, kind)


def assert_go_on_without(town: Town, liar: str) -> None:
    """The others evict it, and are one group that delivers."""
    town.take_down(liar)
    first, *_ = others = list(town.engines)
    for victim in town.engines[first].members.keys() - {town.id(name) for name in others}:
        town.engines[first].evict(victim)
    for name in others:
        town.send(name, b"after it: " + name.encode())
    town.run(80)
    town.assert_one_group(*others)


LIES = {
    "a sweep of a living member": lambda a, b, c: Sweep(((b.me, Cut(1, How.EVICTED)),)),
    "a sweep that cuts below what it had": lambda a, b, c: Sweep(((b.me, Cut(0, How.EVICTED)),)),
    "a sweep beyond what there is": lambda a, b, c: Sweep(((b.me, Cut(2**62, How.EVICTED)),)),
    "a sweep of whom nobody saw leave": lambda a, b, c: Sweep(((b.me, Cut(1, How.LEFT)),)),
    "a sweep of itself": lambda a, b, c: Sweep(((c.me, Cut(1, How.EVICTED)),)),
    "a leave that ends another one": lambda a, b, c: Leave(((a.me, Cut(1, How.EVICTED)),)),
    "a living member settled": lambda a, b, c: Settled(b.me, 1),
    "its own eviction": lambda a, b, c: Evict(c.me, force=True),
    "the eviction of nobody": lambda a, b, c: Evict(f"{Q}+{a.me}+77", force=False),
    "a report on itself": lambda a, b, c: Frozen(c.me, 1),
    "a report on nobody": lambda a, b, c: Frozen(f"{Q}+{a.me}+77", 3),
    "a report beyond what there is": lambda a, b, c: Frozen(b.me, 10**18),
    "a join with more than it had": lambda a, b, c: Join(Q, (), False, {a.me: 5, b.me: 1, c.me: 1}),
    "a join with less than it had": lambda a, b, c: Join(Q, (), False, {a.me: 0, b.me: 1, c.me: 1}),
    "a join under a member's id": lambda a, b, c: Join(a.me, (), False, {}),
    "a join that replaces itself": lambda a, b, c: Join(Q, (Q,), False, {}),
    "a join that replaces its contact": lambda a, b, c: Join(Q, (c.me,), False, {}),
    "a level that others do not read": lambda a, b, c: Raise(2),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_an_operation_that_its_own_past_refutes_is_refused(lie) -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    message = following(c, lie(a, b, c))
    for engine in (a, b):
        before = engine.state()
        with pytest.raises(RemoteProtocolError, match=c.me):
            engine.receive(c.me, message)
        assert engine.state() == before
        assert engine.poll() is None
        assert engine.blamed[c.me].times == 1
        assert not engine.blames.is_late  # its link was at hand
    town.run()
    assert_go_on_without(town, "c")


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_one_that_had_to_wait_has_no_effect_and_is_told_then(lie) -> None:
    """What it waits for comes later; so it is judged when it is delivered, and its sender is named then."""
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    members = a.members
    false = following(c, lie(a, b, c))
    late = Message(false.dot, (*false.context, Dot(b.me, 2)), false.payload, false.kind)
    town.take_down("c")
    a.receive(c.me, late)
    assert not a.blamed
    town.send("b", b"what it waits for")
    town.run(1)
    assert a.blamed.keys() == a.blames.take_late().keys() == {c.me}
    assert not a.blames.take_late()
    left = [m for m in members if m not in a.members]
    assert left in ([], [c.me]), "a leave counts, whatever else it says"
    assert a.standing is b.standing is Standing.MEMBER
    assert a.level == b.level == 1
    for other in a.members.keys() - {a.me, b.me}:  # the liar, and whom it has let in: two of four
        a.evict(other, force=True)
    town.run(80)
    town.assert_one_group("a", "b")


def test_one_that_is_handed_on_blames_its_origin_and_not_who_hands_it_on() -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    a.receive(b.me, following(c, Frozen(b.me, 10**9)))
    assert a.poll() is not None
    assert a.blamed.keys() == {c.me}
    assert b.me in a.blamed[c.me].text
    assert not a.blames.take_late()  # the link that it came over is an honest one's


def test_an_end_counts_by_the_reports_in_its_past_only() -> None:
    """Else members that have got more by now would believe it, and others not; these would blame them for it then."""
    town = talking("abcd")
    a, b, c, d = (town.engines[name] for name in "abcd")
    false = following(c, Sweep(((d.me, Cut(1, How.EVICTED)),)))  # before anybody has reported on d
    town.take_down("c")
    town.take_down("d")
    b.evict(d.me)
    b.receive(c.me, false)
    assert b.poll() is not None
    assert "has not reported" in b.blames.take_doubts()[c.me]
    a.evict(c.me)
    town.run()  # what b has reported on c lets a take the message of c, when all others have reported on d
    assert a.vector[c.me] == 2
    assert "has not reported" in a.blames.take_doubts()[c.me]
    for engine in (a, b):
        assert engine.victims == {c.me, d.me}, "two of four are no majority"
        assert not engine.blamed and not engine.blames.is_late


def test_whom_the_past_of_a_message_does_not_know_it_can_neither_evict_nor_report_on() -> None:
    """Whether its receiver knows that member does not count: else it would be a victim at some members only."""
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    claims = [lambda q: Evict(q, force=False), lambda q: Frozen(q, 0)]
    early = [
        Message(Dot(c.me, 2), c.context, *encode(claim(f"{Q}+{a.me}+2"))[::-1]) for claim in claims
    ]
    town.take_down("c")
    joined = a.admit(Q).incarnation
    assert joined == f"{Q}+{a.me}+2"
    for message in early:
        with pytest.raises(RemoteProtocolError, match="which nobody has let in"):
            a.receive(c.me, message)  # it knows the joiner
        with pytest.raises(RemoteProtocolError, match="which nobody has let in"):
            b.receive(c.me, message)
    assert not a.victims


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("honest", [False, True], ids=["false", "true"])
def test_a_member_knows_which_reports_a_claimed_end_comes_after(honest, restarted) -> None:
    """Also after a restart: the state has the numbers that were reported, its messages when that was."""
    town = talking("abcd")
    a, b, c, d = (town.engines[name] for name in "abcd")
    kind, report = encode(Frozen(d.me, 1))
    ending, cuts = encode(Sweep(((d.me, Cut(1, How.EVICTED)),)))
    town.take_down("c")
    town.take_down("d")
    eviction = a.evict(d.me).dot
    town.run()
    reports = (Dot(a.me, eviction.counter + 1), Dot(b.me, b.vector[b.me])) if honest else ()
    b.evict(a.me)
    town.run()  # a victim concludes nothing itself
    engine = GroupEngine(a.me, a.state()) if restarted else a
    engine.receive(c.me, Message(Dot(c.me, 2), (eviction,), report, kind))
    engine.receive(c.me, Message(Dot(c.me, 3), (*reports, Dot(c.me, 2)), cuts, ending))
    while engine.poll():
        pass
    assert (d.me in engine.ended) is honest
    assert engine.blames.take_doubts().keys() == (set() if honest else {c.me})


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_report_counts_only_after_an_eviction(restarted) -> None:
    """Else it would count where the eviction has come before it, and not elsewhere. A later one counts everywhere."""
    town = talking("abcd")
    a, c, d = (town.engines[name] for name in "acd")
    kind, report = encode(Frozen(d.me, 1))
    early = Message(Dot(c.me, 2), c.context, report, kind)
    town.take_down("c")
    town.take_down("d")
    evictions = [
        a.evict(d.me).dot,
        town.engines["b"].evict(d.me).dot,
    ]  # by each before it has heard of the other
    town.run()
    a = GroupEngine(a.me, a.state()) if restarted else a
    for message in (early, Message(Dot(c.me, 3), (evictions[1], Dot(c.me, 2)), report, kind)):
        a.receive(c.me, message)
        assert a.poll() is not None
        assert (c.me in a.state().evictions.get(d.me, {}) or d.me in a.ended) is (
            message is not early
        )
        assert a.blames.take_doubts().keys() == ({c.me} if message is early else set())
    assert not a.blamed


def test_a_report_that_lies_keeps_no_eviction_open() -> None:
    town = talking("abcd")
    a, c = town.engines["a"], town.engines["c"]
    town.take_down("b")
    victim = next(m for m in a.members if m.startswith("b."))
    a.evict(victim)
    lie = following(c, Frozen(victim, 10**18))
    for name in "ad":  # before they have heard of the eviction, and so of what it should be
        with pytest.raises(RemoteProtocolError, match=c.me):
            town.engines[name].receive(c.me, lie)
    town.run()
    town.assert_one_group("a", "c", "d")


@pytest.mark.parametrize("far", [10**5, 10**18])
def test_a_number_that_somebody_names_is_no_loop(far: int) -> None:
    """A message that depends on what nobody can have of a victim. It takes no time, and names who holds it up."""
    town = talking("abcd")
    a, b, c, d = (town.engines[name] for name in "abcd")
    town.take_down("b")
    town.take_down("c")
    a.evict(b.me)
    town.run()
    for engine in (a, d):
        engine.receive(c.me, following(c, Frozen(b.me, 1)))
        engine.receive(c.me, Message(Dot(c.me, 3), (Dot(b.me, far),), b"x"))
    town.run()
    assert b.me in a.members
    assert c.me in a.held_back_by()
    a.evict(c.me, force=True)
    town.run(80)
    town.assert_one_group("a", "d")


def test_what_a_member_sent_before_is_in_the_past_of_what_it_sends() -> None:
    """A message whose context denies that must not become stable before those."""
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("c")
    first, second = (Message(Dot(c.me, n), (), b"%d" % n) for n in (2, 3))
    for engine in (a, b):
        engine.receive(c.me, first)
        engine.receive(c.me, second)
        while engine.poll():
            pass
    assert a.tag(first.dot) < a.tag(second.dot)
    a.receive(c.me, Digest(DigestKind.NEWS, {a.me: 1, b.me: 1, c.me: 3}))
    town.run()
    assert a.counters().unstable == 0


def test_nothing_comes_after_a_leave() -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    leave = following(c, Leave())
    waits = Message(leave.dot, (*leave.context, Dot(b.me, 2)), leave.payload, leave.kind)
    a.receive(c.me, waits)
    with pytest.raises(RemoteProtocolError, match="after the leave"):
        a.receive(c.me, Message(Dot(c.me, 3), (), b"more"))
    # b has taken it in good faith, and another message under the number of the leave.
    a.receive(b.me, Message(Dot(c.me, 3), (), b"more"))
    assert a.blamed.keys() == {c.me} and b.me in a.blamed[c.me].text
    assert a.counters().pending == 1 and not a.blames.take_late()


# Digests, and what is said of this member


def test_only_who_may_know_can_end_a_member() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    stranger = new_incarnation("s", 7, 0)
    guest = f"{stranger}+{c.me}+1"  # its number 1 is known here: it let nobody in
    for sender, cut in ((c.me, 0), (c.me, 5), (stranger, None), (guest, None)):
        with pytest.raises(RemoteProtocolError, match=sender.replace("+", r"\+")):
            a.receive(sender, Ended(a.me, cut))
    assert a.standing is Standing.MEMBER
    a.receive(c.me, Ended(a.me, 1))
    assert a.standing is Standing.EVICTED


def test_whom_a_majority_has_evicted_ends_nobody() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    town.take_down("c")
    a.evict(c.me)
    town.run(80)
    a.receive(c.me, Ended(a.me, 1))
    assert a.standing is Standing.MEMBER
    assert not a.blamed  # it may be honest, and forced by an operator
    town.assert_one_group("a", "b")


def claims(me: str, sender: str) -> list[Message | Digest]:
    return [
        Digest(DigestKind.NEWS, {me: 9, sender: 1}),
        Message(Dot(sender, 2), (Dot(me, 9),), b""),
        Message(Dot(me, 9), (), b""),
    ]


@pytest.mark.parametrize("which", range(3))
def test_only_who_started_from_a_journal_believes_that_it_has_said_more(which: int) -> None:
    town = talking()
    town.join("d", "a")
    town.run()
    for name in "ad":  # a founder, and a joiner
        engine, sender = town.engines[name], town.id("c")
        with pytest.raises(RemoteProtocolError, match=sender):
            engine.receive(sender, claims(engine.me, sender)[which])
        assert engine.blamed.keys() == {sender}
    again = GroupEngine(town.id("a"), town.engines["a"].state())
    with pytest.raises(RolledBackError, match="new incarnation"):
        again.receive(sender, claims(again.me, sender)[which])


def test_a_digest_has_no_more_names_than_there_can_be() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    made_up = {new_incarnation("x", n, 0): n for n in range(2_000)}
    invited = {f"{x}+{c.me}+1": 1 for x in made_up}
    here = dict(a.vector)
    for vector, ended in (
        ({**here, **made_up}, {}),
        (here, made_up),
        ({**here, **invited}, {}),
        ({**here, c.me: 10**9, **invited}, {}),
    ):
        with pytest.raises(RemoteProtocolError, match="that nobody can know"):
            a.receive(c.me, Digest(DigestKind.ASK, vector, ended))
    assert a.take_outbox() == []
    assert a.state().vector == here


def test_a_digest_may_name_many_whose_joins_are_on_their_way() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    joined = {f"{new_incarnation('j', n, 0)}+{c.me}+{n + 2}": 0 for n in range(3_000)}
    a.receive(c.me, Digest(DigestKind.NEWS, {**a.vector, c.me: 3_001, **joined}))
    assert not a.blamed


def test_a_context_names_each_member_once_at_most() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    with pytest.raises(RemoteProtocolError, match="depends on 5,000 messages"):
        a.receive(c.me, Message(Dot(c.me, 2), (Dot(a.me, 1),) * 5_000, b""))


# A joiner


def test_a_joiner_that_asks_again_is_looked_at_again() -> None:
    """It comes with another copy the second time: one that has more than its contact has delivered."""
    town = talking()
    contact = town.engines["a"]
    first = contact.admit(Q, covered=dict(contact.vector), copied_from=contact.me)
    ahead = {**contact.vector, town.id("b"): 7}
    with pytest.raises(NotReadyError):
        contact.admit(Q, covered=ahead, copied_from=town.id("b"))
    again = contact.admit(Q, covered=dict(contact.vector), copied_from=contact.me)
    assert again.incarnation == first.incarnation


@pytest.mark.parametrize(
    "replaces",
    [("",), ("+",), ("x",), ("x.y",), ("c." + "1" * 99,), [f"x.{n:x}" for n in range(1_001)]],
    ids=["nothing", "plus", "name", "digits", "long", "many"],
)
def test_a_joiner_makes_its_contact_say_nothing_that_others_refuse(replaces) -> None:
    town = talking()
    a = town.engines["a"]
    before = a.state()
    with pytest.raises(HandshakeError, match="would replace"):
        a.admit(Q, replaces=replaces)
    assert a.state() == before


def test_one_base_that_two_contacts_let_in_is_two_members_everywhere() -> None:
    """Neither contact knows of the other's join: a joiner that is not honest has asked both."""
    town = talking()
    for contact in "ab":
        town.engines[contact].admit(Q)
    town.run()
    for name in "abc":
        engine = town.engines[name]
        assert len(engine.members) == 5
        assert engine.fate(Q) == town.engines["a"].fate(Q)
        assert not engine.blamed
    for victim in town.engines["a"].members.keys() - {town.id(name) for name in "abc"}:
        town.engines["a"].evict(victim)
    town.run(80)
    town.assert_one_group("a", "b", "c")


def test_a_level_that_a_downgraded_member_has_taken_back_is_no_lie() -> None:
    """The raise and the news that somebody reads less are concurrent: nobody is blamed."""
    two = Span(1, 2)
    ids = [new_incarnation(name, 1, 0) for name in "ab"]
    a, b = (GroupEngine.found(me, ids, reads=two) for me in ids)
    older = GroupEngine(b.me, b.state(), Span(1, 1))
    a.raise_level(2)
    (raised,) = [m for _, m in a.take_outbox() if isinstance(m, Message)]
    older.receive(a.me, Digest(DigestKind.NEWS, dict(a.vector)))
    older.tick()  # it says what it reads now
    older.receive(a.me, raised)
    assert older.poll() is None
    assert older.outdated == 2
    assert not older.blamed


# Whatever it is


@pytest.mark.parametrize("seed", seeds(60))
def test_whatever_a_member_says_the_others_go_on_and_agree(seed: int) -> None:
    """Any well-formed change of any frame of one member, in its own name, and to all alike."""
    street = Street(seed)
    for _ in range(200):
        street.step()
    street.part_with_liar()
    street.assert_agreed()


@pytest.mark.parametrize("seed", seeds(40))
def test_one_that_says_different_things_to_each_stops_nobody(seed: int) -> None:
    """Then the others may differ, and have to evict each other; but nothing else than a refusal is raised."""
    street = Street(seed, two_faced=True)
    for _ in range(200):
        street.step()
    for me in street.honest:
        assert street.engines[me].send(b"still here")


def test_the_liar_of_the_tests_is_caught_often() -> None:
    street = Street(next(iter(Seeds(1, 0))))
    for _ in range(2_000):
        street.step()
    assert street.counts["lies"] > 500
    assert street.counts["refused"] > 20


@pytest.mark.parametrize("far", [0, 3, pasts.FAR])
def test_a_liar_who_says_to_have_what_is_still_to_come_breaks_no_order(monkeypatch, far) -> None:
    """It has everything of b, it says, and nothing more of a, which b's messages come after; wherever the bits end."""
    monkeypatch.setattr(pasts, "FAR", far)
    monkeypatch.setattr(pasts, "SLACK", 1)
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("c")
    a.receive(c.me, Digest(DigestKind.NEWS, {**a.vector, b.me: 5000}))
    for _ in range(6):
        for name in "ab":
            town.send(name, b"more of " + name.encode())
            town.run(2)
    assert a.stable[a.me] == a.stable[b.me] == 1
    a.receive(c.me, Digest(DigestKind.NEWS, {c.me: 1, a.me: 4, b.me: 5000}))
    town.run(4)
    assert (a.stable[a.me], a.stable[b.me]) == (4, 4)  # b's fifth comes after a's fifth
