"""A failure detector that only informs: which peers are silent for unusually long. Pure; times are
seconds of the caller's clock.

Accrual (Hayashibara, Défago, Yared and Katayama, "The phi accrual failure detector", 2004): the
level is -log10 of the probability that a live peer is silent for so long. A peer owes a frame in
each keep-alive interval and may send a thousand. So a gap counts as one interval at least: a burst
does not make an ordinary pause suspicious.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

THRESHOLD = 8.0
"""Level from which a peer is suspected: one wrong suspicion in 10^8 gaps, if these are normal."""
WINDOW = 64
"""Gaps that are remembered for each peer."""
_LEAST_DEVIATION = 0.25
"""In intervals: keep-alives are sent by a timer of a quarter of one."""
_USUAL = 1.125
"""Intervals between two keep-alives, while nothing is known of a peer."""
_LONGEST = 3.0
"""Intervals that a gap counts for at most: an outage says little of a peer's habits. A peer that falls
silent after many outages is still suspected within 8 intervals."""
_FAR = 20.0
"""Deviations from which the tail is computed from its asymptote: `erfc` is zero soon after."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """level: see above. since: seconds since it became suspect. silence: seconds without a frame."""

    level: float
    since: float
    silence: float


@dataclass(frozen=True, slots=True)
class Suspected:
    """A peer has become suspect after so many seconds of silence."""

    peer: str
    silence: float


@dataclass(frozen=True, slots=True)
class Trusted:
    """A frame of a suspect has come, so many seconds after it became one."""

    peer: str
    after: float


Change: TypeAlias = Suspected | Trusted


@dataclass(slots=True)
class _Record:
    """heard: when the last frame came. remembered: when a gap was last remembered. longest: the longest
    gap since then. suspected: since when.
    """

    heard: float
    remembered: float
    longest: float = 0.0
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    suspected: float | None = None


class FailureDetector:
    """Call `heard` for each frame that has come, then `observe`, several times in each interval.

    interval: seconds in which every live peer sends something. Time without `observe` is this process's
    own pause (it was stopped, or busy), and makes no peer suspect.
    """

    def __init__(self, interval: float, threshold: float = THRESHOLD) -> None:
        self.interval = interval
        self.threshold = threshold
        self._records: dict[str, _Record] = {}
        self._observed: float | None = None

    def watch(self, peers: Collection[str], now: float) -> None:
        """Watch these from now on, and no others. A new one counts as heard now."""
        for peer in self._records.keys() - set(peers):
            del self._records[peer]
        for peer in peers:
            if peer not in self._records:
                self._records[peer] = _Record(now, now)

    def heard(self, peer: str, at: float) -> None:
        """The newest frame of the peer came at that time. Ignored if the peer is not watched."""
        record = self._records.get(peer)
        if record is None or at <= record.heard:
            return
        gap = min(at - record.heard, _LONGEST * self.interval)
        record.longest = max(record.longest, gap)
        record.heard = at
        if at - record.remembered >= self.interval:
            record.gaps.append(max(record.longest, self.interval))
            record.remembered, record.longest = at, 0.0

    def observe(self, now: float) -> list[Change]:
        """The peers that have become suspect, or trusted again, since the last call."""
        if self._observed is not None:
            pause = max(0.0, now - self._observed - self.interval)
            for record in self._records.values():
                record.heard = max(record.heard, min(record.heard + pause, now))
        changes: list[Change] = []
        for peer, record in sorted(self._records.items()):
            silence = now - record.heard
            suspect = self._level(record, silence) >= self.threshold
            if suspect and record.suspected is None:
                record.suspected = now
                changes.append(Suspected(peer, silence))
            elif not suspect and record.suspected is not None:
                changes.append(Trusted(peer, now - record.suspected))
                record.suspected = None
        self._observed = now
        return changes

    def level(self, peer: str, now: float) -> float:
        """How suspect the peer is at that time; 0 if it is not watched."""
        record = self._records.get(peer)
        return 0.0 if record is None else self._level(record, now - record.heard)

    def suspects(self, now: float) -> dict[str, Suspect]:
        """The peers that the last `observe` found suspect."""
        return {
            peer: Suspect(
                self._level(record, now - record.heard),
                now - record.suspected,
                now - record.heard,
            )
            for peer, record in sorted(self._records.items())
            if record.suspected is not None
        }

    def _level(self, record: _Record, silence: float) -> float:
        mean, deviation = self._habit(record)
        return _phi((silence - mean) / deviation)

    def _habit(self, record: _Record) -> tuple[float, float]:
        """Mean and deviation of its gaps."""
        gaps, least = record.gaps, _LEAST_DEVIATION * self.interval
        if not gaps:
            return _USUAL * self.interval, least
        mean = sum(gaps) / len(gaps)
        variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        return mean, max(math.sqrt(variance), least)


def _phi(deviations: float) -> float:
    """-log10 of the normal distribution's tail beyond so many deviations from its mean."""
    if deviations <= _FAR:
        # + 0.0 makes zero of a negative zero.
        return -math.log10(0.5 * math.erfc(deviations / math.sqrt(2))) + 0.0
    tail = deviations**2 / 2 + math.log(deviations * math.sqrt(2 * math.pi))
    return tail / math.log(10)
