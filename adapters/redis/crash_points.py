"""Named points at which a test kills the gateway, by SIGKILL, so that no clean-up can run.

`CRDTCAST_CRASH_AT=exec-sent:3` in the environment kills the process when it passes that point for the third time.
`exec-sent:3:STOP` stops it there until it gets SIGCONT. Without the variable a point costs one comparison.
"""

import os
import signal

POINTS = (
    "piece-encoded",
    "piece-decoded",
    "batch-prepared",
    "exec-sent",
    "exec-answered",
    "client-answered",
    "remote-applied",
)
"""On the path of a local write, or of a message of another region."""
RECORDED_POINTS = ("dot-reserved", "record-derived")
"""Further ones, for a write that the server decides."""
HIDING_POINTS = ("hidden-prepared", "hidden-sent", "hidden-answered")
"""Further ones, for a commit that may bring out a value which another type hides."""
JOIN_POINTS = (
    "copy-begun",
    "copy-slice-written",
    "copy-page-written",
    "join-about-to-be-asked",
    "join-noted-in-file",
    "join-finished",
)
"""While a member copies the group's data: at a join, after an eviction, or when its server was emptied."""
GIVING_POINTS = ("copy-page-read",)
"""While a member sends its data to another one."""
REPAIR_POINTS = ("repair-page-written",)
"""While a large key is repaired."""

_point, _count, _signal = (os.environ.get("CRDTCAST_CRASH_AT", "") + "::").split(":")[:3]
_left = int(_count or 1)
ARMED = bool(_point)
"""Whether the environment names a point. Code on the path of each commit tests this first: cheaper than a call."""


def crash_point(name: str) -> None:
    """Die or stop if the environment names this point."""
    global _left
    if name == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.Signals[f"SIG{_signal or 'KILL'}"])
