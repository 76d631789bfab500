"""When a member sends its digest: the period between two ticks. Sans I/O; times are seconds of the
caller's clock.

The period is half of the time that acknowledgements take, since more digests would report little new.
It is at least so long that a digest is worth several messages, where there are so many. It is longer
in large groups, and in a process that is late already. A group at rest hardly ticks at all; what ends
the rest is reported after the shortest period.
"""

from collections.abc import Collection

SHORTEST = 0.01
LONGEST = 0.5
USUAL = 0.05
"""How long a digest waits for more to acknowledge, at most, in a small group on a fast network."""
RESTING = 1.0
"""The period when there is nothing to report."""
WORTH = 4
"""Messages that a digest of each other member should stand for, if they come within `USUAL`."""
COST = 0.0005
"""The least period for each other member: about ten times the CPU of exchanging a digest with one."""
LATENESS = 4
"""The period is at least so many times as long as ticks are late: the process is busy."""
QUIET_TICKS = 2
IDLE_TICKS = 16
"""After so many ticks without a message, the period grows: a member is silent, maybe for long."""
PROBE_TIMEOUT = 5.0
_STEP = 1.5
_GAIN = 0.25


class Pacer:
    """Tells when the next tick is `due`. fixed: the period of a plain timer instead.

    The caller ticks when `due` has come, and then calls `ticked`. It calls `stir` whenever something
    may have happened that a tick would report.
    """

    def __init__(self, fixed: float | None, now: float) -> None:
        self.fixed = fixed
        self.period: float = USUAL if fixed is None else fixed
        self.due: float = now + (SHORTEST if fixed is None else fixed)
        self.resting: bool = False
        self.round_trip: float = 0.0
        """Seconds until the slowest peer has acknowledged an own message, smoothed."""
        self._last = now
        self._rate = 0.0
        self._late = 0.0
        self._silent = 0
        self._probed = 0
        self._since = now
        self._waiting: set[str] = set()

    def stir(self, now: float) -> bool:
        """Something has happened. Returns whether `due` is earlier now."""
        if not self.resting:
            return False
        self.resting = False
        self.period = min(self.period, max(USUAL, self.round_trip / 2))
        due = max(self._last + self.period, now + SHORTEST)
        nearer = due < self.due
        self.due = min(self.due, due)
        return nearer

    def ticked(self, now: float, *, messages: int, peers: int, quiet: bool) -> None:
        """A tick is done. messages: sent and delivered since the last one. quiet: see `Core.quiet`."""
        if self.fixed is not None:
            self.due = now + self.fixed
            return
        elapsed = max(now - self._last, 1e-6)
        self._rate += _GAIN * (messages / elapsed - self._rate)
        self._late += _GAIN * (max(0.0, now - self.due) - self._late)
        self._last = now
        if self._waiting and now - self._since > PROBE_TIMEOUT:
            self._waiting.clear()
        self._silent = 0 if messages else self._silent + 1
        if self._silent < IDLE_TICKS:
            target = self._target(peers)
            self.period = min(max(target, self.period / _STEP), self.period * _STEP)
        else:
            self.period = min(self.period * _STEP, LONGEST)
        self.resting = self._silent > QUIET_TICKS and (quiet or self._silent >= IDLE_TICKS)
        self.due = now + (RESTING if self.resting and quiet else self.period)

    def _target(self, peers: int) -> float:
        worth = WORTH * peers / self._rate if self._rate > 0 else USUAL
        wanted = max(
            min(worth, USUAL), self.round_trip / 2, COST * peers, LATENESS * self._late, SHORTEST
        )
        return min(wanted, LONGEST)

    # Round trips

    def may_follow(self, counter: int) -> bool:
        """Whether to measure the round trip of the own message `counter`: one at a time."""
        return counter > self._probed and not self._waiting and self.fixed is None

    def sent(self, counter: int, peers: Collection[str], now: float) -> None:
        """The own message `counter` is on its way to these peers now."""
        self._probed, self._since = counter, now
        self._waiting = set(peers)

    def begin_anew(self) -> None:
        """Own messages are counted from 0 again."""
        self._probed = 0
        self._waiting.clear()

    @property
    def following(self) -> bool:
        """Whether a round trip is being measured: then `acknowledged` needs the digests."""
        return bool(self._waiting)

    def acknowledged(self, peer: str, counter: int, now: float) -> None:
        """A digest of `peer` covers own messages up to `counter`."""
        if counter < self._probed or peer not in self._waiting:
            return
        self._waiting.discard(peer)
        if not self._waiting:
            gain = 1.0 if self.round_trip == 0.0 else _GAIN
            self.round_trip += gain * (now - self._since - self.round_trip)

    def gone(self, peer: str) -> None:
        """The link with `peer` is down: its acknowledgement is not awaited."""
        self._waiting.discard(peer)
