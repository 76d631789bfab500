"""Sequential check of a group's event logs, from the definitions: `crdtcast check`."""

from crdtcast.eventlog.check.check import Checked, check_logs
from crdtcast.eventlog.check.violations import LogPlace, Problem, Violation

__all__ = ["Checked", "LogPlace", "Problem", "Violation", "check_logs"]
