"""Named points at which a test makes the gateway die, by SIGKILL, so that no clean-up can run.

`CRDTCAST_CRASH_AT=exec-sent:3` in the environment kills the process when it passes that point for the third time.
Without the variable a point costs one comparison.
"""

import os
import signal

POINTS = (
    "batch-prepared",
    "exec-sent",
    "exec-answered",
    "client-answered",
    "remote-applied",
)

_point, _, _count = os.environ.get("CRDTCAST_CRASH_AT", "").partition(":")
_left = int(_count or 1)


def crash_point(name: str) -> None:
    """Die here if the environment says so."""
    global _left
    if name == _point:
        _left -= 1
        if _left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
