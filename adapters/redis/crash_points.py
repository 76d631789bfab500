"""Named points at which a test makes the gateway die, by SIGKILL, so that no clean-up can run.

`CRDTCAST_CRASH_AT=exec-sent:3` in the environment kills the process when it passes that point for the third time;
`exec-sent:3:STOP` stops it there until it gets SIGCONT. Without the variable a point costs one test.
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
"""On the way of a write, or of what another region sends."""
RECORDED_POINTS = ("dot-reserved", "record-derived")
"""On the way of a write that the server decides, besides."""
HIDING_POINTS = ("hidden-prepared", "hidden-sent", "hidden-answered")
"""On the way of a commit in which a value that another type hides may come out, besides."""
JOIN_POINTS = (
    "copy-begun",
    "copy-slice-written",
    "copy-page-written",
    "join-about-to-be-asked",
    "join-noted-in-file",
    "join-finished",
)
"""On the way of a member that is filled from its group: at a join, after an eviction, or beside an emptied server."""
GIVING_POINTS = ("copy-page-read",)
"""On the way of a member that fills another one."""
REPAIR_POINTS = ("repair-page-written",)
"""On the way of a large key that is put right."""

_point, _count, _signal = (os.environ.get("CRDTCAST_CRASH_AT", "") + "::").split(":")[:3]
_left = int(_count or 1)
ARMED = bool(_point)
"""Whether the environment names a point: what each commit passes asks this first, which is cheaper than a call."""


def crash_point(name: str) -> None:
    """Die, or stop, here if the environment says so."""
    global _left
    if name == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.Signals[f"SIG{_signal or 'KILL'}"])
