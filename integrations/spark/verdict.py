"""Verdicts in stages, causes first. This file knows no Spark.

A replica that loses one message fails every later check as well. So a finding is shown only if no replica that it is
based on has failed an earlier stage, and once for each replica and message. The others are counted as consequences.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from crdtcast.integrations.spark.findings import Finding

STAGES = ("log", "order", "causality", "stability", "convergence", "garbage")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings to act on, in order, and the number of their consequences by check."""

    findings: tuple[Finding, ...]
    suppressed: dict[str, int]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def judge(found: Iterable[Finding]) -> Verdict:
    """Order the findings and remove consequences."""
    by_stage: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in found:
        by_stage[finding.group, finding.check].append(finding)
    shown: list[Finding] = []
    suppressed: Counter[str] = Counter()
    for group in sorted({group for group, _ in by_stage}):
        failed: set[str] = set()
        for stage in STAGES:
            here = sorted(by_stage[group, stage], key=_order)
            causes = _causes([f for f in here if not f.involved & failed])
            suppressed[stage] += len(here) - len(causes)
            failed |= {f.replica for f in causes}
            shown += causes
    shown.sort(key=lambda f: (STAGES.index(f.check), f.group, *_order(f)))
    return Verdict(tuple(shown), {stage: n for stage, n in suppressed.items() if n})


def _order(finding: Finding) -> tuple[str, str, int, int]:
    rank = _RANK.get(finding.problem, 1)
    return (finding.replica, finding.incarnation, rank, finding.seq or 0)


# A finding that explains others of the same stage and message comes first.
_RANK = {"not its origin": 0, "rolled back": 0, "before its delivery": 0, "out of order": 2}


def _causes(findings: list[Finding]) -> list[Finding]:
    """One finding per replica and message, without those that only follow from their sender's.

    An invented dependency is missing at every replica, but its sender cannot have had it either, so that is the place
    to look. A log that rolls back does so for every origin; one finding is enough.
    """
    at_sender = {
        (f.dot, f.other_origin, f.other_counter)
        for f in findings
        if f.problem in _OF_THE_SENDER and f.origin == f.incarnation
    }
    causes: list[Finding] = []
    seen: set[tuple[str, str]] = set()
    for finding in findings:
        about = (finding.dot, finding.other_origin, finding.other_counter)
        elsewhere = finding.problem in _OF_THE_SENDER and finding.origin != finding.incarnation
        if elsewhere and about in at_sender:
            continue
        place = (
            ""
            if finding.problem == "rolled back"
            else finding.dot or finding.object or str(finding.seq)
        )
        if (finding.incarnation, place) not in seen:
            seen.add((finding.incarnation, place))
            causes.append(finding)
    return causes


_OF_THE_SENDER = frozenset({"dependency missing", "dependency late"})
