"""Who may link with whom: every objection, and what the refused side makes of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.engine import Span
from crdtcast.exceptions import HandshakeError
from crdtcast.wire.frames import Hello
from crdtcast.wire.handshake import PATIENCE, Patience, Reason, admit, judge, patience

OWN = Hello(group="demo", name="a", incarnation="a.0001", process=b"pa", clock_ms=1000)
PEER = Hello(group="demo", name="b", incarnation="b.0001", process=b"pb", clock_ms=1000)


def test_two_members_of_one_group_accept_each_other() -> None:
    assert judge(OWN, PEER, expected="b", max_drift_ms=0) is None
    assert judge(PEER, OWN, expected="a", max_drift_ms=0) is None


@pytest.mark.parametrize(
    ("peer", "reason", "words"),
    [
        (replace(PEER, version=7, oldest=6), Reason.VERSION, "upgrade the older one"),
        (replace(PEER, version=0, oldest=0), Reason.VERSION, "versions 0 to 0"),
        (replace(PEER, group="other"), Reason.GROUP, "'other'"),
        (
            replace(PEER, shared=True),
            Reason.GROUP,
            "node 'b' is in a group whose members come and go",
        ),
        (replace(OWN), Reason.OWN_ADDRESS, "its own address from its peers"),
        (replace(OWN, process=b"pc"), Reason.NAME_CLASH, "two nodes are called 'a'"),
        (replace(PEER, name="c"), Reason.WRONG_NAME, "expects 'b'"),
        (replace(PEER, clock_ms=70_000), Reason.CLOCK, "69,000 ms ahead"),
        (
            replace(PEER, databases=(16, 14)),
            Reason.DATABASES,
            "node 'b' has 16 databases with the metadata in 14, that of node 'a' no databases",
        ),
        (
            replace(PEER, level=2, reads=Span(1, 2)),
            Reason.LEVEL,
            "node 'b' sends in format level 2, and the program of node 'a' reads level 1: upgrade 'a'",
        ),
        (
            replace(PEER, level=2, reads=Span(2, 3)),
            Reason.LEVEL,
            "node 'a' sends in format level 1, and the program of node 'b' reads level 2 to 3: upgrade 'b'",
        ),
    ],
)
def test_each_objection_in_one_clear_sentence(peer: Hello, reason: Reason, words: str) -> None:
    refusal = judge(OWN, peer, expected="b", max_drift_ms=60_000)
    assert refusal is not None
    assert refusal.reason == reason
    assert words in refusal.text
    assert patience(refusal.reason) is Patience.SLOW


def test_servers_beside_gateways_need_the_same_databases() -> None:
    own = replace(OWN, databases=(16, 15))
    for other in ((16, 14), (32, 15), None):
        refusal = judge(own, replace(PEER, databases=other))
        assert refusal is not None and refusal.reason == Reason.DATABASES
        assert "--metadata-db" in refusal.text
    assert judge(own, replace(PEER, databases=(16, 15))) is None


def test_fixed_members_with_different_levels_refuse_each_other() -> None:
    low, high = replace(OWN, reads=Span(1, 2)), replace(PEER, level=2, reads=Span(1, 2))
    for own, peer in ((low, high), (high, low)):
        refusal = judge(own, peer)
        assert refusal is not None and refusal.reason == Reason.LEVEL
        assert "start 'a' with --format-level 2" in refusal.text
    assert judge(replace(low, level=2), high) is None
    assert judge(replace(low, shared=True), replace(high, shared=True)) is None


def test_compatible_version_is_accepted() -> None:
    assert judge(OWN, replace(PEER, version=2, oldest=1)) is None
    assert judge(replace(OWN, version=3, oldest=2), replace(PEER, version=2, oldest=1)) is None


def test_peer_with_a_slow_clock_is_accepted() -> None:
    assert judge(OWN, replace(PEER, clock_ms=0), max_drift_ms=10) is None


def test_a_cut_peer_is_refused_for_now() -> None:
    refusal = judge(OWN, PEER, cut=True)
    assert refusal is not None
    assert patience(refusal.reason) is Patience.RETRY


def test_reconnect_of_the_linked_process_is_accepted() -> None:
    assert judge(OWN, replace(PEER, incarnation="b.0002"), linked=PEER) is None


def test_a_second_live_process_under_the_name_is_refused() -> None:
    for incarnation in ("b.0000", "b.0001", "b.0002"):
        rival = replace(PEER, process=b"other", incarnation=incarnation)
        refusal = judge(OWN, rival, linked=PEER)
        assert refusal is not None
        assert refusal.reason == Reason.NAME_IN_USE


def test_higher_fence_takes_the_name_and_a_lower_one_is_refused() -> None:
    linked = replace(PEER, fence=3)
    rival = replace(PEER, process=b"other")
    assert judge(OWN, replace(rival, fence=4), linked=linked) is None
    refusal = judge(OWN, replace(rival, fence=2), linked=linked)
    assert refusal is not None
    assert refusal.reason == Reason.SUPERSEDED
    assert patience(refusal.reason) is Patience.ENDED


def test_epochs_of_different_servers_are_not_compared() -> None:
    """Where links carry groups the incarnation says which server it is."""
    own, peer = replace(OWN, shared=True), replace(PEER, shared=True, fence=3)
    rival = replace(peer, process=b"other")
    assert judge(own, replace(rival, fence=4), linked=peer) is None
    refusal = judge(own, replace(rival, fence=2), linked=peer)
    assert refusal is not None and refusal.reason == Reason.SUPERSEDED
    assert "run one gateway for each server" in refusal.text
    for fence in (2, 4):
        elsewhere = replace(rival, fence=fence, incarnation="b.0002")
        refusal = judge(own, elsewhere, linked=peer)
        assert refusal is not None and refusal.reason == Reason.NAME_IN_USE


def test_admit_passes_the_engine_s_verdict_on() -> None:
    assert admit(PEER, lambda incarnation: True, {}) is None
    refusal = admit(PEER, lambda incarnation: False, {})
    assert refusal is not None and refusal.reason == Reason.SUPERSEDED

    def unknown(incarnation: str) -> bool:
        raise HandshakeError("no member is called 'b'")

    refusal = admit(PEER, unknown, {})
    assert refusal is not None and refusal.reason == Reason.UNKNOWN_NAME


def test_an_incarnation_must_carry_its_node_s_name() -> None:
    refusal = admit(replace(PEER, incarnation="c.0001"), lambda incarnation: True, {})
    assert refusal is not None and refusal.reason == Reason.UNKNOWN_NAME


def test_a_fence_epoch_never_falls_within_one_incarnation() -> None:
    fences: dict[str, tuple[str, int]] = {}
    assert admit(replace(PEER, fence=5), lambda incarnation: True, fences) is None
    refusal = admit(replace(PEER, fence=4), lambda incarnation: True, fences)
    assert refusal is not None and refusal.reason == Reason.SUPERSEDED
    # A wiped server begins at 0 again, under a new incarnation.
    renewed = replace(PEER, fence=0, incarnation="b.0002")
    assert admit(renewed, lambda incarnation: True, fences) is None


def test_every_reason_says_what_to_do() -> None:
    assert set(PATIENCE) == set(Reason)
    assert patience("a word of a later version") is Patience.RETRY


@given(st.sampled_from([OWN, PEER]), st.sampled_from([OWN, PEER]), st.booleans())
def test_judge_is_a_pure_function(own: Hello, peer: Hello, cut: bool) -> None:
    assert judge(own, peer, cut=cut) == judge(own, peer, cut=cut)
