"""Limits log lines about events that may come a thousand times a second; and says why a connection failed. The clock is
the caller's.
"""

import logging
import os
import socket
import ssl
from collections.abc import Callable, Hashable, Sequence

from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Tag


class Throttle:
    """Logs one line per key and period; the next one says how many were left out. A period has at most `keys` lines.

    A peer at an open port can choose how often it is refused; it must not choose how fast the log grows.
    """

    def __init__(self, logger: logging.Logger, period: float = 10.0, keys: int = 1000) -> None:
        self._logger = logger
        self._period = period
        self._keys = keys
        self._last: dict[Hashable, tuple[float, int]] = {}

    def log(self, now: float, key: Hashable, level: int, text: str, **fields: object) -> None:
        """Log `text` unless a line under `key` was logged less than a period before `now`
        (seconds).
        """
        last = self._last.get(key)
        if last is not None and now - last[0] < self._period:
            self._last[key] = (last[0], last[1] + 1)
            return
        if last is None and len(self._last) >= self._keys:
            self._last = {k: v for k, v in self._last.items() if now - v[0] < self._period}
            if len(self._last) >= self._keys:
                return  # so a peer that varies its words gets no more lines
        if last is not None and last[1]:
            text = f"{text} ({last[1]} similar lines in the last {now - last[0]:.0f} s)"
        self._last[key] = (now, 0)
        self._logger.log(level, text, extra=fields)

    def forget(self, key: Hashable) -> None:
        """The problem is over: the next line under `key` is logged at once."""
        self._last.pop(key, None)


def skips(
    logger: logging.Logger, clock: Callable[[], float]
) -> Callable[[Tag, Sequence[str]], int]:
    """Returns a function that logs what was skipped of a message, and why, and returns how many operations that were.

    It logs at most one line per sender in ten seconds. clock: seconds, never going back.
    """
    throttle = Throttle(logger)

    def say(tag: Tag, wrong: Sequence[str]) -> int:
        if wrong:
            more = f", and {len(wrong) - 1:,} more" if wrong[1:] else ""
            # Every replica skips the same, so replicas still agree.
            text = f"skipped an operation of {tag.dot}: {wrong[0]}{more}"
            throttle.log(clock(), tag.dot.origin, logging.WARNING, text)
        return len(wrong)

    return say


def ahead(logger: logging.Logger, clock: Callable[[], float]) -> Callable[[str, int], None]:
    """For `HLC.on_ahead`: logs a line for each sender, at most one in ten minutes. clock: seconds, never going back."""
    throttle = Throttle(logger, period=600)

    def say(sender: str, ahead_ms: int) -> None:
        whose = f"of {name_of(sender) or sender}" if sender else "of another member"
        text = (
            f"a timestamp {whose} is {ahead_ms / 1000:,.0f} s ahead of this machine's clock, and "
            "counts as less: set the clocks of both machines"
        )
        throttle.log(clock(), sender, logging.WARNING, text)

    return say


def cause_of(error: BaseException) -> str:
    """Why a connection failed, in a few words."""
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host: {error.strerror}"
    below = error.__cause__  # a failed dial has one for each address of the host
    tried = below.exceptions if isinstance(below, ExceptionGroup) else [below or error]
    # Errors of TLS use other numbers.
    failed = [e for e in tried if isinstance(e, OSError) and not isinstance(e, ssl.SSLError)]
    numbers = {each.errno for each in failed if each.errno}
    return ", ".join(sorted(map(os.strerror, numbers))) or str(error) or type(error).__name__
