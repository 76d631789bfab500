"""The parts of the oracle of groups that change: each violation is planted, and found."""

import pytest

from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import ConfigurationError
from crdtcast.simulator.campaign import run_schedule
from crdtcast.simulator.exhaustive import SCOPES, explore
from crdtcast.simulator.group.application import SimulatedApplication
from crdtcast.simulator.group.ledger import Ledger
from crdtcast.simulator.oracle import Checker, FailureKind
from tests.effort import size

A1, A2, B1 = Dot("a", 1), Dot("a", 2), Dot("b", 1)


def kinds(checker):
    return [finding.kind for finding in checker.findings]


class TestMembers:
    def test_joiner_must_deliver_exactly_what_its_copy_lacks(self):
        checker = Checker("ab")
        checker.sent("a", A1)
        checker.joined_from("c", checker.snapshot("a"))
        checker.sent("a", A2)
        checker.delivered("c", A1)
        assert kinds(checker) == [FailureKind.DUPLICATE]
        checker.findings.clear()
        lost = [(f.member, f.dot) for f in checker.finish(["a", "c"]) if f.kind is FailureKind.LOSS]
        assert lost == [("c", A2)]

    def test_a_joiner_that_never_was_is_forgotten(self):
        checker = Checker("a")
        checker.joined_from("c", checker.snapshot("a"))
        checker.forget("c")
        checker.joined_from("c", checker.snapshot("a"))
        assert checker.members == ["a", "c"]

    def test_members_must_agree_on_a_cut_and_know_nothing_beyond(self):
        checker = Checker("abc")
        checker.sent("a", A1)
        checker.delivered("b", A1)
        checker.ended("b", "a", 1)
        checker.ended("c", "a", 0)
        assert FailureKind.CUT in [f.kind for f in checker.finish(["b", "c"])]
        checker = Checker("ab")
        checker.sent("a", A1)
        checker.delivered("b", A1)
        checker.ended("b", "a", 0)
        assert FailureKind.CUT in [f.kind for f in checker.finish(["b"])]

    def test_an_operation_that_went_out_again_is_applied_once(self):
        checker = Checker("ab")
        checker.sent("a", A1)
        checker.delivered("b", A1)
        checker.sent("b", B1)
        checker.reissued(A1, B1)
        assert (FailureKind.TWICE, B1) in [(f.kind, f.dot) for f in checker.finish(["b"])]

    def test_rollback_undoes_a_reported_end(self):
        checker = Checker("ab")
        checker.sent("a", A1)
        checker.delivered("b", A1)
        position = checker.position("b")
        checker.sent("b", B1)
        checker.ended("b", "a", 0)
        checker.rolled_back("b", position)
        assert not [f for f in checker.finish(["b"]) if f.kind is FailureKind.CUT]


class TestTagsOfTheForgotten:
    def run(self, *, ended, stable):
        checker = Checker("ab")
        checker.sent("a", A1)
        checker.delivered("b", A1)
        if stable:
            checker.stable("b", A1)
        if ended:
            checker.ended("b", "a", 1)
        checker.sent("b", B1, Tag(B1, (), {}))
        return kinds(checker)

    def test_stable_message_of_an_ended_member_may_be_omitted(self):
        assert self.run(ended=True, stable=True) == []

    @pytest.mark.parametrize(("ended", "stable"), [(False, True), (True, False), (False, False)])
    def test_other_messages_may_not_be_omitted(self, ended, stable):
        assert self.run(ended=ended, stable=stable) == [FailureKind.TAG]


class TestLedger:
    def ledger(self):
        ledger = Ledger()
        ledger.issue("a", b"a:0")
        ledger.synced("a")
        return ledger

    def test_acknowledged_payload_must_be_everywhere(self):
        ledger = self.ledger()
        assert ledger.wrong({"a": [b"a:0"], "b": [b"a:0"]}, []) is None
        assert ledger.wrong({"a": [b"a:0"], "b": []}, [])[0] == "payload-differs"
        assert ledger.wrong({"a": [], "b": []}, [])[0] == "payload-loss"

    def test_payload_of_the_dead_must_be_lost_or_kept_by_all(self):
        ledger = self.ledger()
        assert ledger.wrong({"b": [], "c": []}, ["a"]) is None
        assert ledger.wrong({"b": [b"a:0"], "c": []}, ["a"])[0] == "payload-differs"

    def test_unsynced_payload_is_a_ghost(self):
        ledger = self.ledger()
        ledger.issue("a", b"a:1")
        ledger.crashed("a")
        assert ledger.wrong({"b": [b"a:0", b"a:1"]}, [])[0] == "payload-ghost"

    def test_torn_journal_may_lose_only_its_missing_tail(self):
        ledger = self.ledger()
        ledger.issue("a", b"a:1")
        ledger.synced("a")
        ledger.torn("a", 1)
        assert ledger.wrong({"b": [b"a:0"]}, []) is None
        assert ledger.wrong({"b": [b"a:1"]}, [])[0] == "payload-loss"


class TestApplication:
    A, C = "a.01", "c.01+a.01+5"

    def beyond(self, vector):
        application = SimulatedApplication(
            {b"1": Dot(self.A, 1), b"2": Dot(self.A, 2), b"3": Dot(self.C, 1)}
        )
        return sorted(application.beyond(vector))

    def test_resend_of_a_copy_is_what_the_group_lacks(self):
        assert self.beyond({self.A: 1}) == [b"2", b"3"]
        assert self.beyond({self.A: 2, self.C: 1}) == []

    def test_copy_of_an_ended_origin_is_complete(self):
        # Its join lies below the vector, which does not name it: swept. Beyond it: not yet met.
        assert self.beyond({self.A: 5}) == []
        assert self.beyond({self.A: 4}) == [b"3"]

    def test_operation_of_unknown_fate_is_resent(self):
        assert self.beyond({"b.01": 1}) == [b"3"]


class TestExhaustive:
    @pytest.mark.parametrize("scope", ["replace", "evict-of-two", "join-one"])
    def test_a_scope_is_gone_through(self, scope):
        covered = explore(scope)
        assert covered.complete
        assert not covered.failures
        assert covered.states > 50
        assert covered.schedules > covered.states // 2

    @pytest.mark.slow
    def test_one_eviction_of_three(self):
        covered = explore("evict-one")
        assert covered.complete
        assert not covered.failures
        assert covered.schedules > 10_000

    @pytest.mark.parametrize("scope", SCOPES)
    def test_the_beginning_of_every_scope(self, scope):
        assert not explore(scope, limit=size(ci=10, release=25)).failures

    def test_a_broken_engine_is_found(self):
        found = explore("sends", engine="tests.simulator.mutants:NoContext")
        assert found.failures
        assert run_schedule(found.failures[0].schedule).kind == found.failures[0].kind

    def test_unknown_scope_is_refused(self):
        with pytest.raises(ConfigurationError, match="choose from sends"):
            explore("nonsense")
