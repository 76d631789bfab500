"""The result of an audit, as a value and for `findings.json`."""

from dataclasses import asdict, dataclass
from typing import Any

from crdtcast.eventlog.format import SCHEMA_VERSION
from crdtcast.integrations.spark.logs import LoggedGroup
from crdtcast.integrations.spark.series import Lag, Series
from crdtcast.integrations.spark.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an audit. `groups` are those that it checks. `not_judged` gives the checks for which no group has a
    line, with the reason; `notes` say what else could not be checked, and why.
    """

    verdict: Verdict
    groups: dict[str, LoggedGroup]
    lines: int
    torn: int
    not_judged: dict[str, str]
    notes: tuple[str, ...]
    lags: tuple[Lag, ...]
    series: tuple[Series, ...]
    seconds: float
    live: bool

    def summary(self) -> dict[str, Any]:
        """For findings.json and `--json`."""
        return {
            "clean": self.verdict.clean,
            "live": self.live,
            "schema_version": SCHEMA_VERSION,
            "lines": self.lines,
            "torn_lines": self.torn,
            "groups": {
                group.name: {
                    "replicas": sorted({log.replica for log in group.logs.values()}),
                    "incarnations": len(group.logs),
                    "messages": sum(group.surviving.values()),
                    "deliveries": sum(
                        told.delivered for log in group.logs.values() for told in log.told.values()
                    ),
                    "not_yet_stable": group.unstable,
                }
                for group in self.groups.values()
            },
            "findings": [finding.as_dict() for finding in self.verdict.findings],
            "suppressed": self.verdict.suppressed,
            "not_judged": self.not_judged,
            "notes": list(self.notes),
            "stability_lag_seconds": [asdict(lag) for lag in self.lags],
            "seconds": round(self.seconds, 1),
        }
