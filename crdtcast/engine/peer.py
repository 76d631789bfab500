"""What an engine knows of one other incarnation: its rows, and how repair and asking towards it are paced.

Time is counted in ticks of the engine. A message counts as lost only after `hold` ticks, learned from how long the
peer takes to acknowledge; what was repaired is repaired again only if a whole round later the peer still lacks it.
"""

from crdtcast.causality.tags import Tag, Vector

HOLD_MIN = 4
HOLD_MAX = 20
BACKOFF_MAX = 32


class Peer:
    """One current incarnation of another member. Plain state; the rules are in the modules that use it."""

    __slots__ = (
        "acknowledged",
        "acknowledging",
        "aside",
        "ask_at",
        "ask_delay",
        "backoff",
        "batches",
        "covers",
        "delay",
        "frozen",
        "hold",
        "incarnation",
        "known_width",
        "last",
        "linked",
        "linked_at",
        "mark",
        "met",
        "named",
        "progress",
        "repairing",
        "resend_at",
        "sent",
        "sent_before",
        "sent_then",
        "told",
        "told_at",
        "weight",
    )

    def __init__(self, incarnation: str) -> None:
        self.incarnation: str = incarnation
        self.met: bool = False  # whether a digest of it has been seen
        self.known_width: int = 0  # number of keys of its largest vector that was checked
        self.named: int = (
            -1
        )  # the change of members up to which its digests name all current incarnations
        self.acknowledging: bool = True  # whether its messages acknowledge, as its digests say
        self.frozen: bool = False  # whether it is a victim: nothing it says acknowledges any more
        # Stability. What it has acknowledged is its newest digest in use, if that is newer than its last message
        # delivered here; otherwise that message and its past. `covers` are bits (`engine.causal_past`): all of it in
        # the second case, some of it in the first.
        self.told: Vector | None = None
        self.last: Tag | None = None
        self.covers: int = 0
        self.sent_then: int = (
            0  # its own messages as of the newest of all, and the sum of that digest's counters
        )
        self.weight: int = 0
        self.aside: Vector | None = None  # the newest digest, while it may not be used yet
        # Pacing
        self.linked: bool = False
        self.linked_at: int = 0
        self.mark: int = 0  # what was stored up to this place never went out on this link
        self.acknowledged: int = 0
        self.delay: float = (
            0.0  # ticks until an own message was acknowledged: rises at once, falls slowly
        )
        self.hold: int = (
            HOLD_MIN  # ticks after which an unacknowledged message may be taken for lost
        )
        self.sent: dict[str, int] = {}
        self.sent_before: dict[str, int] = {}
        self.resend_at: int = 0
        self.repairing: Vector | None = (
            None  # what it told; there is more to send again than went out
        )
        # Origins of which it lacked something at its last digest: the tick at which it had got on last by what others
        # sent, behind how much it had then.
        self.progress: dict[str, tuple[int, int]] = {}
        self.told_at: int = 0
        self.batches: int = 0
        self.backoff: int = HOLD_MIN
        self.ask_at: int = 0
        self.ask_delay: int = HOLD_MIN

    @property
    def row(self) -> Vector | None:
        """What it is known to have delivered before all that is still to come of it; None if nothing is known."""
        if self.told is None and self.last is not None:
            origin, counter = self.last.dot
            return {**self.last.past, origin: counter}
        return self.told

    def lacks(self, bit: int, origin: str, counter: int) -> bool:
        """Whether its row lacks this message, which has this bit."""
        if self.covers & bit:
            return False
        told = self.told
        return told is None or told.get(origin, 0) < counter

    def adopt(self, row: Vector) -> None:
        """A newer row."""
        self.told = row
        self.last = None

    def forget_row(self) -> None:
        """Nothing that it has told so far counts."""
        self.told = self.aside = self.last = None
        self.covers = self.sent_then = self.weight = 0

    def link_up(self, tick: int, sequence: int) -> None:
        """A fresh link: nothing is in flight on it, and everything stored up to `sequence` may be missing."""
        self.linked = True
        self.linked_at = tick
        self.mark = sequence
        self.sent.clear()
        self.sent_before.clear()
        self.progress = {}
        self.repairing = None
        self.resend_at = 0
        self.backoff = self.ask_delay = HOLD_MIN
        self.ask_at = tick + HOLD_MIN

    def observe_delay(self, ticks: int) -> None:
        """Learn from an acknowledgement that took `ticks`."""
        if ticks > self.delay:
            self.delay = float(ticks)
        else:
            self.delay += (ticks - self.delay) / 8
        self.hold = min(int(self.delay) + HOLD_MIN, HOLD_MAX)

    @property
    def newest(self) -> Vector | None:
        """What it has told last, whether or not that counts for stability."""
        return self.row if self.aside is None else self.aside
