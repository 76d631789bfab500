"""What one member says that cannot be: it is refused, or has no effect, it is named, and the others go on."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Cut, GroupEngine, How, Standing, causal_past
from crdtcast.engine.operations import Join, Operation, Settled, Sweep, encode
from crdtcast.engine.views import (
    NO_BALLOT,
    Accepted,
    Asked,
    Ballot,
    Decided,
    Promise,
    Proposal,
    Record,
    ViewChange,
    Views,
    Word,
)
from crdtcast.exceptions import HandshakeError, NotReadyError, RemoteProtocolError, RolledBackError
from tests.effort import Seeds, seeds
from tests.engine.liar import Street
from tests.engine.test_forks import OTHER, divided
from tests.engine.town import Town
from tests.simulator.mutants import MUTANTS

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
    gone = set(town.engines[first].going_on()) - {town.id(name) for name in others}
    town.engines[first].evict(*gone)
    for name in others:
        town.send(name, b"after it: " + name.encode())
    town.run(80)
    town.assert_one_group(*others)


LIES = {
    "a sweep that cuts below what it had": lambda a, b, c: Sweep(((b.me, Cut(0, How.EVICTED)),)),
    "a sweep beyond what there is": lambda a, b, c: Sweep(((b.me, Cut(2**62, How.EVICTED)),)),
    "a sweep of itself": lambda a, b, c: Sweep(((c.me, Cut(1, How.EVICTED)),)),
    "a living member settled": lambda a, b, c: Settled(b.me, 1),
    "a join with more than it had": lambda a, b, c: Join(Q, (), False, {a.me: 5, b.me: 1, c.me: 1}),
    "a join with less than it had": lambda a, b, c: Join(Q, (), False, {a.me: 0, b.me: 1, c.me: 1}),
    "a join under a member's id": lambda a, b, c: Join(a.me, (), False, {}),
    "a join that replaces itself": lambda a, b, c: Join(Q, (Q,), False, {}),
    "a join that replaces its contact": lambda a, b, c: Join(Q, (c.me,), False, {}),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_operation_contradicted_by_its_past_is_refused(lie) -> None:
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
def test_false_operation_that_waited_has_no_effect_and_is_blamed(lie) -> None:
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
    assert not left
    assert a.standing is b.standing is Standing.MEMBER
    assert a.level == b.level == 1
    a.evict(*(a.members.keys() - {a.me, b.me}))  # the liar, and whom it has let in
    town.run(80)
    town.assert_one_group("a", "b")


@pytest.mark.parametrize("how", How)
def test_false_end_of_a_live_member_has_no_effect(how: How) -> None:
    """It may have been decided, elsewhere: nobody is blamed."""
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    message = following(c, Sweep(((b.me, Cut(1, how)),)))
    for engine in (a, b):
        engine.receive(c.me, message)
        assert engine.poll() is not None
        assert engine.standing is Standing.MEMBER
        assert not engine.ended and not engine.blamed
    assert "has not ended" in a.blames.take_doubts()[c.me]
    assert_go_on_without(town, "c")


def test_forwarded_lie_blames_its_origin_not_the_forwarder() -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    a.receive(b.me, following(c, Sweep(((b.me, Cut(10**9, How.EVICTED)),))))
    assert a.poll() is not None
    assert a.blamed.keys() == {c.me}
    assert b.me in a.blamed[c.me].text
    assert not a.blames.take_late()  # the link that it came over is an honest one's


def test_earlier_messages_are_always_in_the_past_of_later_ones() -> None:
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


# Views


FAKE = f"{Q}+{new_incarnation('a', 1, 0)}+77"  # a has not sent so many


def frame(engine: GroupEngine, **fields: object) -> Views:
    """What a member would tell of views, but for these fields of its own record."""
    told = engine.views_told()
    record = next(each for each in told.records if each.member == engine.me)
    changed = replace(record, **{"serial": record.serial + 1, **fields})  # type: ignore[arg-type]
    return told._replace(has={**told.has, engine.me: changed.serial}, records=(changed,))


def promising(engine: GroupEngine, ballot: Ballot, *more: str, **delivered: int) -> Promise:
    named = {
        next(m for m in engine.members if m.startswith(f"{name}.")): n
        for name, n in delivered.items()
    }
    return Promise(ballot, named, tuple(sorted({*engine.members, *more})))


def accepting(engine: GroupEngine, change: ViewChange) -> Views:
    ballot = Ballot(1, engine.me)
    return frame(engine, promised=ballot, accepted=Accepted(ballot, change))


def proposing(engine: GroupEngine, proposal: Proposal) -> Views:
    promise = promising(engine, proposal.ballot)
    return frame(engine, promised=proposal.ballot, promise=promise, proposal=proposal)


Engine = GroupEngine
FALSE_FRAMES: dict[str, Callable[[Engine, Engine, Engine], Views]] = {
    "more records of its receiver than that has": lambda a, b, c: c.views_told()._replace(
        has={a.me: 99, c.me: 1}
    ),
    "a record of its receiver that is none": lambda a, b, c: c.views_told()._replace(
        records=(Record(a.me, 99, 0, c.view.name),)
    ),
    "more members than there can be": lambda a, b, c: c.views_told()._replace(
        has={new_incarnation("x", n, 0): 1 for n in range(1_100)}
    ),
    "what is no id": lambda a, b, c: c.views_told()._replace(has={"nobody": 1}),
    "more answers than there can be": lambda a, b, c: c.views_told()._replace(
        asks=(Asked(c.me, 1, frozenset(new_incarnation("x", n, 0) for n in range(1_100))),)
    ),
    "a promise with more members than there can be": lambda a, b, c: frame(
        c,
        promised=Ballot(1, c.me),
        promise=promising(c, Ballot(1, c.me), *(new_incarnation("x", n, 0) for n in range(1_100))),
    ),
    "a ballot beyond all that can be": lambda a, b, c: proposing(c, Proposal(Ballot(2**62, c.me))),
    "a ballot of nobody": lambda a, b, c: frame(
        c, promised=Ballot(1, ""), promise=promising(c, Ballot(1, ""))
    ),
    "a promise that says nothing": lambda a, b, c: frame(c, promised=Ballot(1, c.me)),
    "a promise above what it has promised": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=promising(c, Ballot(2, c.me))
    ),
    "a promise, and nothing promised": lambda a, b, c: frame(
        c, promised=NO_BALLOT, promise=promising(c, Ballot(1, c.me))
    ),
    "a promise of members in no order": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=Promise(Ballot(1, c.me), {}, (c.me, b.me, a.me))
    ),
    "a member that its receiver has not let in": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=promising(c, Ballot(1, c.me), f"{Q}+{a.me}+77")
    ),
    "a member whose join let nobody in": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=promising(c, Ballot(1, c.me), f"{Q}+{b.me}+1")
    ),
    "a member beyond what it has of its contact": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=promising(c, Ballot(1, c.me), f"{Q}+{b.me}+9", b=1)
    ),
    "more of its receiver than that has sent": lambda a, b, c: frame(
        c, promised=Ballot(1, c.me), promise=promising(c, Ballot(1, c.me), a=77)
    ),
    "something accepted above what it has promised": lambda a, b, c: frame(
        c,
        promised=Ballot(1, c.me),
        promise=promising(c, Ballot(1, c.me)),
        accepted=Accepted(Ballot(2, c.me), ViewChange()),
    ),
    "another one's proposal": lambda a, b, c: proposing(c, Proposal(Ballot(1, b.me))),
    "victims in no order": lambda a, b, c: proposing(c, Proposal(Ballot(1, c.me), (b.me, a.me))),
    "a victim that there never was": lambda a, b, c: proposing(c, Proposal(Ballot(1, c.me), (Q,))),
    "a leave of somebody who stays": lambda a, b, c: proposing(
        c, Proposal(Ballot(1, c.me), (b.me,), leaves=True)
    ),
    "itself as a victim": lambda a, b, c: proposing(c, Proposal(Ballot(1, c.me), (c.me,))),
    "a word about one who is no victim": lambda a, b, c: proposing(
        c, Proposal(Ballot(1, c.me), (b.me,), word=Word(forced=(a.me,)))
    ),
    "a change that it has not promised itself": lambda a, b, c: frame(
        c, proposal=Proposal(Ballot(1, c.me), change=ViewChange())
    ),
    "a change that puts out, and does not say where": lambda a, b, c: accepting(
        c, ViewChange(out=(b.me,))
    ),
    "a change in no order": lambda a, b, c: accepting(c, ViewChange(votes=(b.me, a.me))),
    "a vote for somebody who goes": lambda a, b, c: accepting(
        c, ViewChange(((b.me, Cut(1, How.EVICTED)),), (b.me,), (b.me,))
    ),
    "a vote for nobody": lambda a, b, c: accepting(c, ViewChange(votes=(Q,))),
    "a decision that puts out, and does not say where": lambda a, b, c: c.views_told()._replace(
        decided=(Decided(0, c.view.name, ViewChange(out=(b.me,))),)
    ),
}


@pytest.mark.parametrize("lie", FALSE_FRAMES.values(), ids=FALSE_FRAMES.keys())
def test_a_frame_of_views_that_cannot_be_is_refused_as_a_whole(lie) -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    false = lie(a, b, c)
    before, records = a.state(), a.views_told()
    with pytest.raises(RemoteProtocolError, match=c.me):
        a.receive(c.me, false)
    assert a.state() == before
    assert a.views_told() == records
    assert a.blamed.keys() == {c.me} and a.blamed[c.me].times == 1
    assert_go_on_without(town, "c")


@pytest.mark.parametrize("lie", FALSE_FRAMES.values(), ids=FALSE_FRAMES.keys())
def test_evicted_member_forwards_no_lie(lie) -> None:
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    false = lie(a, b, c)
    a.receive(c.me, Ended(a.me, None))
    assert a.standing is Standing.EVICTED
    with contextlib.suppress(RemoteProtocolError):
        a.receive(c.me, false)
    a.tick()
    for to, content in a.take_outbox():
        if to in (None, b.me):
            b.receive(a.me, content)
    assert a.me not in b.blamed


def test_forwarder_is_blamed_only_for_universally_false_frames() -> None:
    """b cannot know what a has let in; it has taken the record in good faith."""
    town = talking()
    a, b, c = (town.engines[name] for name in "abc")
    ballot = Ballot(1, c.me)
    false = frame(c, promised=ballot, promise=promising(c, ballot, f"{Q}+{a.me}+77"))
    b.receive(c.me, false)
    town.take_down("c")
    town.run()
    assert not a.blamed and not b.blamed
    assert_go_on_without(town, "c")


# What has no effect


@pytest.mark.parametrize("number", [2_000, 2**40])
def test_ballot_far_ahead_of_all_others_is_ignored(number: int) -> None:
    town = talking("abcd")
    a, c = town.engines["a"], town.engines["c"]
    far = proposing(c, Proposal(Ballot(number, c.me)))
    for name in "abd":
        town.engines[name].receive(c.me, far)
        assert town.engines[name].open_change is None
    assert_go_on_without(town, "c")
    assert a.view.epoch == 1


def test_ballot_adopted_by_others_counts() -> None:
    """One step after the other it gets as far as it likes, and so do others: who comes later goes along."""
    town = talking("abcd")
    a, b, c = (town.engines[name] for name in "abc")
    for serial, number in enumerate((900, 1_800, 2_700), 1):
        ballot = Ballot(number, c.me)
        far = frame(
            c,
            serial=serial,
            promised=ballot,
            promise=promising(c, ballot),
            proposal=Proposal(ballot),
        )
        b.receive(c.me, far)
    assert b.open_change is not None
    a.receive(c.me, far)
    assert a.open_change is None
    town.take_down("c")
    town.run(10)
    assert a.open_change is not None
    assert not a.blamed
    assert_go_on_without(town, "c")


CHANGES: dict[str, Callable[[Engine, Engine], ViewChange]] = {
    "a cut below what is delivered": lambda a, b: ViewChange(
        ((b.me, Cut(0, How.EVICTED)),), (b.me,)
    ),
    "one that is no victim": lambda a, b: ViewChange(
        ((a.me, Cut(1, How.EVICTED)), (b.me, Cut(1, How.EVICTED))), (a.me, b.me)
    ),
    "a leave of one that stays": lambda a, b: ViewChange(((b.me, Cut(1, How.LEFT)),), (b.me,)),
    "a vote for one that is still to come": lambda a, b: ViewChange(
        ((b.me, Cut(1, How.EVICTED)),), (b.me,), (f"{Q}+{a.me}+2",)
    ),
    "a level that is not read": lambda a, b: ViewChange(
        ((b.me, Cut(1, How.EVICTED)),), (b.me,), (), 1_000
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_proposal_beyond_its_terms_is_not_accepted(change) -> None:
    town = talking("abcd")
    a, b, c, d = (town.engines[name] for name in "abcd")
    terms = Proposal(Ballot(1, c.me), (b.me,), change=change(a, b))
    for engine in (d,):
        engine.receive(c.me, proposing(c, terms))
        engine.tick()
        (own,) = [r for r in engine.views_told().records if r.member == engine.me]
        assert own.promised == terms.ballot and own.accepted is None
    assert_go_on_without(town, "c")


def test_accepted_change_below_the_reports_is_not_adopted() -> None:
    town = talking("abcd")
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("b")
    low = ViewChange(((b.me, Cut(0, How.EVICTED)),), (b.me,))
    (c._consensus.own,) = accepting(c, low).records
    c._consensus.records[c.me] = c._consensus.own
    town.run(1)
    assert a.view.epoch == 0
    a.evict(b.me)
    town.run()
    assert {x: cut.counter for x, cut in a.tombs.items()} == {b.me: 1}
    town.assert_one_group("a", "c", "d")


def test_forced_change_needs_the_promise_of_all_who_stay() -> None:
    """By force the vote of one is enough, but all who go on have promised it, also who has no vote."""
    town = talking("abc")
    d = town.join("d", "a")
    a, b, c = (town.engines[name] for name in "abc")
    others = (a.me, b.me)
    cuts = tuple((who, Cut(1, How.FORCED)) for who in others)
    accepted = Accepted(Ballot(1, c.me), ViewChange(cuts, others), Word(forced=others))
    d.receive(c.me, frame(c, promised=Ballot(1, c.me), accepted=accepted))
    d.tick()
    assert d.view.epoch == 0


def test_decision_above_the_readable_level_is_ignored() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    decided = Decided(0, a.view.name, ViewChange(level=9))
    a.receive(c.me, c.views_told()._replace(decided=(decided,)))
    a.tick()
    assert a.view.epoch == 0
    assert_go_on_without(town, "c")


def test_cut_that_no_member_can_fill_ends_with_the_liar() -> None:
    town = talking("abcd")
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("b")
    a.evict(b.me)

    def tells_more(sender: str, content: object) -> object:
        """What c promises of b, it has all of."""
        if not isinstance(content, Views):
            return content
        records = tuple(
            replace(r, promise=r.promise._replace(delivered={b.me: 10**18}))
            if r.member == c.me and r.promise is not None and b.me in r.promise.delivered
            else r
            for r in content.records
        )
        return content._replace(records=records)

    town.change = tells_more
    town.run()
    assert b.me in a.members and a.view.epoch == 1
    assert_go_on_without(town, "c")
    assert {x: cut.counter for x, cut in a.tombs.items()} == {b.me: 1, c.me: 1}


def test_fake_members_leave_no_trace() -> None:
    """A victim has let somebody in, it says, whom nobody else can know. What is left of that goes with the liar."""
    town = talking("abcd")
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("b")
    nobody = f"{Q}+{b.me}+5"

    def names_more(sender: str, content: object) -> object:
        if not isinstance(content, Views):
            return content
        records = tuple(
            replace(
                r,
                promise=Promise(
                    r.promise.ballot, {b.me: 9}, tuple(sorted({*r.promise.members, nobody}))
                ),
            )
            if r.member == c.me and r.promise is not None and b.me in r.promise.delivered
            else r
            for r in content.records
        )
        return content._replace(records=records)

    town.change = names_more
    a.evict(b.me)
    town.run(60)
    assert a.outline().cuts.keys() == {b.me, nobody}
    assert_go_on_without(town, "c")
    assert not a.outline().cuts


@pytest.mark.parametrize("number", [5, 900, 2**60])
def test_answers_to_a_question_never_asked_do_not_count(number: int) -> None:
    town = talking("abcd")
    a, b, c, d = (town.engines[name] for name in "abcd")
    town.take_down("b")
    everybody = frozenset({a.me, b.me, c.me, d.me})
    asked = c.views_told()._replace(asks=(Asked(a.me, number, everybody),))
    for engine in (a, d):
        engine.receive(c.me, asked)
    town.take_down("d")
    a.evict(b.me)
    town.run()
    assert a.waits_for() == [d.me]
    assert a.open_change is None
    a.withdraw()
    a.evict(b.me, d.me, c.me, force=True)
    town.take_down("c")
    town.run(80)
    town.assert_one_group("a")


def test_member_that_never_votes_is_evicted_by_force() -> None:
    town = talking("abc")
    a, b, c = (town.engines[name] for name in "abc")
    town.take_down("b")

    def is_silent(sender: str, content: object) -> object:
        if not isinstance(content, Views):
            return content
        return content._replace(records=tuple(r for r in content.records if r.member != c.me))

    town.change = is_silent
    a.evict(b.me, c.me, force=True)
    town.run(200)
    town.take_down("c")
    town.run(80)
    town.assert_one_group("a")


def test_decisions_that_follow_from_nothing_are_not_kept() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    nothing = tuple(Decided(epoch, "0123456789abcdef", ViewChange()) for epoch in range(4_000))
    a.receive(c.me, c.views_told()._replace(decided=nothing))
    assert a.view.epoch == 0
    assert not a.blamed
    assert not a._consensus._told
    assert_go_on_without(town, "c")


def test_records_and_questions_of_made_up_members_are_few() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    made_up = [f"{new_incarnation('x', n, 0)}+{a.me}+77" for n in range(3_000)]
    told = c.views_told()
    records = tuple(Record(who, 1, 0, c.view.name) for who in made_up)
    asks = tuple(Asked(who, 1, frozenset()) for who in made_up)
    a.receive(c.me, told._replace(records=records, asks=asks))
    assert len(a.views_told().has) < 1_010
    assert len(a.views_told().asks) < 1_010
    assert_go_on_without(town, "c")


def test_joiner_with_an_undelivered_join_is_answered() -> None:
    """What lets it in may come after messages of a victim, and wait for the decision that it asks for."""
    town = talking()
    a, b = town.engines["a"], town.engines["b"]
    asker = f"{Q}+{b.me}+9"
    a.receive(b.me, b.views_told()._replace(asks=(Asked(asker, 1, frozenset()),)))
    assert a.views_told().asks == (Asked(asker, 1, frozenset({a.me})),)


def test_early_sweep_keeps_one_claim_of_each_sender() -> None:
    """As often as it has delivered more of a victim it may say so, with a number that is its past's."""
    town = talking("abcd")
    a, c, d = (town.engines[name] for name in "acd")
    town.cut("b", "acd")
    town.send("d", *(b"%d" % n for n in range(20)))
    town.run()
    town.cut("d", "ac")
    a._limits.freeze([d.me])
    for n in range(1, 21):
        claim = following(c, Sweep(((d.me, Cut(n, How.EVICTED)),)))
        past = (*(x for x in c.context if x.origin != d.me), Dot(d.me, n))
        late = Message(Dot(c.me, n + 1), (*past, Dot(c.me, n)), claim.payload, claim.kind)
        a.receive(c.me, late)
        assert a.poll() is not None
    assert len(a.outline().early.get(d.me, ())) <= 1


# Digests, and what is said of this member


def test_only_a_member_that_may_know_can_end_another() -> None:
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


def test_evicted_liar_cannot_end_a_member() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    town.take_down("c")
    a.evict(c.me)
    town.run(80)
    a.receive(c.me, Ended(a.me, 1))
    assert a.standing is Standing.DISPUTED  # it may be honest, and forced by an operator
    assert not a.blamed
    town.run(100)
    assert a.standing is Standing.MEMBER
    town.assert_one_group("a", "b")


def claims(me: str, sender: str) -> list[Message | Digest]:
    return [
        Digest(DigestKind.NEWS, {me: 9, sender: 1}),
        Message(Dot(sender, 2), (Dot(me, 9),), b""),
        Message(Dot(me, 9), (), b""),
    ]


@pytest.mark.parametrize("which", range(3))
def test_only_a_restarted_member_accepts_rollback_proofs(which: int) -> None:
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


def test_digest_with_too_many_names_is_refused() -> None:
    town = talking()
    a, c = town.engines["a"], town.engines["c"]
    made_up = {new_incarnation("x", n, 0): n for n in range(2_000)}
    invited = {f"{x}+{c.me}+1": 1 for x in made_up}
    here = dict(a.vector)
    a.take_outbox()
    for vector in (
        {**here, **made_up},
        {**here, **invited},
        {**here, c.me: 10**9, **invited},
    ):
        with pytest.raises(RemoteProtocolError, match="unknown ids"):
            a.receive(c.me, Digest(DigestKind.ASK, vector))
    assert a.take_outbox() == []
    assert a.state().vector == here


def test_digest_may_name_many_pending_joiners() -> None:
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


def test_repeated_join_request_is_checked_again() -> None:
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
def test_join_request_that_others_would_refuse_is_refused(replaces) -> None:
    town = talking()
    a = town.engines["a"]
    before = a.state()
    with pytest.raises(HandshakeError, match="cannot replace"):
        a.admit(Q, replaces=replaces)
    assert a.state() == before


def test_joiner_admitted_by_two_contacts_is_two_members() -> None:
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
    town.engines["a"].evict(*(town.engines["a"].members.keys() - {town.id(name) for name in "abc"}))
    town.run(80)
    town.assert_one_group("a", "b", "c")


# Whatever it is


@pytest.mark.parametrize("seed", seeds(60))
def test_others_agree_whatever_one_member_sends(seed: int) -> None:
    """Any well-formed change of any frame of one member, in its own name, and to all alike."""
    street = Street(seed)
    for _ in range(200):
        street.step()
    street.part_with_liar()
    street.assert_agreed()


@pytest.mark.parametrize("seed", seeds(40))
def test_two_faced_member_stops_no_other_member(seed: int) -> None:
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
    assert street.counts["lies"] > 300
    assert street.counts["refused"] > 20


@pytest.mark.parametrize("far", [0, 3, causal_past.FAR])
def test_digest_about_future_messages_breaks_no_order(monkeypatch, far) -> None:
    """It has everything of b, it says, and nothing more of a, which b's messages come after; wherever the bits end."""
    monkeypatch.setattr(causal_past, "FAR", far)
    monkeypatch.setattr(causal_past, "SLACK", 1)
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


def test_false_report_of_a_fork_stops_no_member() -> None:
    """It would be a sign that a voter has voted twice, if it were true."""
    town = divided("abc", "")
    a, b, c = (town.engines[name] for name in "abc")
    lie = Decided(0, a._consensus.decided[0].name, OTHER)
    for engine in (a, b):
        for epoch in (1, 2, 7):
            engine.receive(c.me, Views(epoch, "0" * 16, {}, decided=(lie,)))
        assert engine.standing is Standing.MEMBER and engine._forks.apart == {c.me: 0}
        assert c.me in engine.blames.take_doubts()
    assert_go_on_without(town, "c")


NEEDED = {
    "StopsAtOneWord": test_false_report_of_a_fork_stops_no_member,
    "TrustsCuts": lambda: test_operation_contradicted_by_its_past_is_refused(
        LIES["a sweep beyond what there is"]
    ),
    "TrustsFrames": lambda: test_a_frame_of_views_that_cannot_be_is_refused_as_a_whole(
        FALSE_FRAMES["a promise of members in no order"]
    ),
    "TrustsRecords": lambda: test_a_frame_of_views_that_cannot_be_is_refused_as_a_whole(
        FALSE_FRAMES["a member that its receiver has not let in"]
    ),
    "TakesAnyBallot": lambda: test_ballot_far_ahead_of_all_others_is_ignored(2**40),
    "AcceptsAnything": lambda: test_proposal_beyond_its_terms_is_not_accepted(
        CHANGES["a cut below what is delivered"]
    ),
    "TakesOverAnything": test_accepted_change_below_the_reports_is_not_adopted,
    "ForcedUnasked": test_forced_change_needs_the_promise_of_all_who_stay,
    "TakesAnyLevel": test_decision_above_the_readable_level_is_ignored,
    "KeepsUnborn": test_fake_members_leave_no_trace,
}
"""A check of the engine, and a lie that is believed without it."""


@pytest.mark.parametrize("mutant", NEEDED)
def test_lie_is_believed_without_its_check(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.town.GroupEngine", MUTANTS[mutant])
    with pytest.raises((AssertionError, pytest.fail.Exception, RemoteProtocolError)):
        NEEDED[mutant]()
