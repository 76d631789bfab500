"""The oracle: every kind of violation, rollback, and the verdicts of the traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.tags import Dot, Tag
from crdtcast.simulator.oracle import Checker, FailureKind

from .traces import Trace, check, load, parse_dot

# What an application cannot see, so that no checker of application events can find it, with the run's verdict.
NOT_AN_APPLICATION_EVENT = {"exception", "join-inactive", "leave-hang"}

A1, A2, B1, C1 = Dot("a", 1), Dot("a", 2), Dot("b", 1), Dot("c", 1)


def kinds(checker):
    return [finding.kind for finding in checker.findings]


def run(*events, members="abc"):
    checker = Checker(members)
    for word, member, dot in events:
        getattr(checker, word)(member, dot)
    return checker


CASES = {
    FailureKind.GHOST: [("delivered", "a", B1)],
    FailureKind.DUPLICATE: [("sent", "a", A1), ("delivered", "b", A1), ("delivered", "b", A1)],
    FailureKind.CAUSAL: [("sent", "a", A1), ("sent", "a", A2), ("delivered", "b", A2)],
    FailureKind.UNSAFE_STABLE: [("sent", "a", A1), ("sent", "b", B1), ("stable", "b", B1)],
    FailureKind.STABLE_ORDER: [("sent", "a", A1), ("sent", "a", A2), ("stable", "a", A2)],
    FailureKind.STABLE_TWICE: [("sent", "a", A1), ("stable", "a", A1), ("stable", "a", A1)],
    FailureKind.STABLE_UNDELIVERED: [("sent", "a", A1), ("stable", "b", A1)],
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.value)
def test_each_violation_is_found_at_its_member_and_message(kind):
    checker = run(*CASES[kind])
    assert kinds(checker) == [kind]
    _, member, dot = CASES[kind][-1]
    assert (checker.findings[0].member, checker.findings[0].dot) == (member, dot)
    assert kind.value in str(checker.findings[0])


def test_delivery_concurrent_to_a_stable_message_is_found():
    checker = run(*CASES[FailureKind.UNSAFE_STABLE])
    checker.delivered("b", A1)
    assert [(f.kind, f.member, f.dot, f.others) for f in checker.findings] == [
        (FailureKind.UNSAFE_STABLE, "b", B1, (A1,)),
        (FailureKind.UNSAFE_STABLE, "b", A1, (B1,)),
    ]


def test_stability_before_all_have_delivered_is_unsafe():
    checker = run(("sent", "a", A1), ("delivered", "b", A1))
    checker.stable("a", A1, "ab")
    assert not checker.findings
    checker.stable("b", A1, "abc")
    assert [(f.kind, f.member, f.dot) for f in checker.findings] == [
        (FailureKind.UNSAFE_STABLE, "c", A1)
    ]


def test_stability_ignores_later_void_and_unsent_messages():
    checker = run(("sent", "a", A1), ("delivered", "b", A1), ("sent", "b", B1))
    checker.sent("c", C1)
    checker.ended("a", "c", 0)
    checker.joined_from("d", checker.snapshot("c"))
    checker.sent("d", Dot("d", 1))  # comes after what is void at a
    checker.stable("a", A1)
    assert not checker.findings
    checker.stable("b", A1)
    assert [f.others for f in checker.findings] == [(C1, Dot("d", 1))]
    checker = run(("sent", "a", A1), ("sent", "b", B1))
    checker.rolled_back("b", 0)
    checker.stable("a", A1)
    assert not checker.findings


def test_loss_and_stall_are_found_at_quiescence():
    checker = run(("sent", "a", A1), ("delivered", "b", A1), ("stable", "a", A1), members="abc")
    assert not checker.findings
    assert [(f.kind, f.member) for f in checker.finish()] == [
        (FailureKind.LOSS, "c"),
        (FailureKind.STALL, "b"),
    ]


def test_tag_must_name_exactly_its_past():
    checker = run(("sent", "a", A1), ("sent", "b", B1), ("delivered", "c", A1))
    checker.sent("c", C1, Tag(C1, (A1,), {"a": 1, "b": 0}))
    assert not checker.findings
    checker.delivered("a", B1, Tag(B1, (), {"a": 1}))
    checker.delivered("a", C1, Tag(C1, (A1,), {"a": 0}))
    assert [(f.kind, f.dot, f.others) for f in checker.findings] == [
        (FailureKind.TAG, B1, (A1,)),
        (FailureKind.TAG, C1, (A1,)),
    ]


def test_rolled_back_application_may_get_lost_messages_again():
    checker = run(("sent", "a", A1), ("delivered", "b", A1), ("stable", "b", A1))
    checker.rolled_back("b", 0)
    checker.delivered("b", A1)
    checker.stable("b", A1)
    assert not checker.findings


@pytest.mark.parametrize("survive", [True, False])
def test_rolled_back_send_is_a_ghost_unless_sent_unsynced(survive):
    checker = Checker("ab", unsynced_sends_survive=survive)
    checker.sent("a", A1)
    checker.rolled_back("a", 0)
    checker.delivered("b", A1)
    assert kinds(checker) == ([] if survive else [FailureKind.GHOST])
    if survive:
        checker.delivered("a", A1)
        assert not checker.findings


def test_message_known_to_no_member_is_not_a_loss():
    checker = run(("sent", "a", A1), members="ab")
    checker.rolled_back("a", 0)
    assert checker.finish() == []


@given(st.randoms(use_true_random=False))
def test_reference_run_is_clean_and_any_swap_or_gap_is_found(chance):
    """Total order broadcast over a queue: correct by construction; then one delivery goes missing or too early."""
    members = "abc"
    events, queues, counters = [], {m: [] for m in members}, dict.fromkeys(members, 0)
    for _ in range(chance.randrange(4, 20)):
        sender = chance.choice(members)
        for dot in queues[sender]:
            events.append(("delivered", sender, dot))
        queues[sender].clear()
        counters[sender] += 1
        dot = Dot(sender, counters[sender])
        events.append(("sent", sender, dot))
        for member in members:
            if member != sender:
                queues[member].append(dot)
    for member, queue in queues.items():
        events += [("delivered", member, dot) for dot in queue]
    assert not run(*events).findings
    deliveries = [n for n, event in enumerate(events) if event[0] == "delivered"]
    gap = chance.choice(deliveries)
    checker = run(*events[:gap], *events[gap + 1 :])
    assert any(f.others or f.dot == events[gap][2] for f in checker.findings + checker.finish())
    later = [n for n in deliveries if n > gap and events[n][1] == events[gap][1]]
    if later:
        swapped = list(events)
        swapped[gap], swapped[later[0]] = swapped[later[0]], swapped[gap]
        # All messages of such a run are totally ordered.
        assert run(*swapped).findings


@pytest.mark.parametrize("trace", load("checker-pass"), ids=str)
def test_good_runs_pass(trace: Trace):
    checker = check(trace)
    assert checker.findings == []
    assert trace.past is not None
    for dot, past in trace.past.items():
        for other in trace.past:
            assert checker.before(parse_dot(other), parse_dot(dot)) == (other in past)


# Here the tag itself, or that somebody has joined or asked to leave, is in no event: for dynamic membership.
DYNAMIC_LATER = {
    "join-empty-ctxt-tag",
    "join-twice-two-contacts-loss",
    "leave-type-msg-leave-hang",
}


@pytest.mark.parametrize("trace", load("checker-fail"), ids=str)
def test_runs_of_broken_algorithms_fail_as_their_verdict_says(trace: Trace):
    findings = check(trace).findings
    if str(trace) in DYNAMIC_LATER:
        assert trace.changes_members
        return
    assert findings
    found = {finding.kind.value for finding in findings}
    if trace.kind not in NOT_AN_APPLICATION_EVENT:
        assert trace.kind in found
        if not trace.changes_members:
            member, dots = trace.named
            assert any(
                finding.kind.value == trace.kind
                and finding.member == member
                and [finding.dot, *finding.others] == dots
                for finding in findings
            )
