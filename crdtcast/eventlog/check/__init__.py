"""Sequential check of a group's event logs, from the definitions: `crdtcast check`."""

from crdtcast.eventlog.check.check import Checked, check_logs
from crdtcast.eventlog.check.violations import Place, Problem, Violation

__all__ = ["Checked", "Place", "Problem", "Violation", "check_logs"]
