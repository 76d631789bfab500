"""Named points at which a test kills the gateway, by SIGKILL, so that no clean-up can run.

`CRDTCAST_CRASH_AT=exec-sent:3` in the environment kills the process when it passes that point for the third time.
`exec-sent:3:STOP` stops it there until it gets SIGCONT. Without the variable a point costs one comparison.
"""

import os
import signal

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
