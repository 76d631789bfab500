"""What an engine knows of one other incarnation: its row, and the pace at which to repair and ask it.

Time is counted in ticks of the engine. A message counts as lost only after `hold` ticks, learned from how long the
peer takes to acknowledge. What was repaired is repaired again only if the peer still lacks it a whole round later.
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
        # The change of members up to which its digests name all current incarnations.
        self.named: int = -1
        self.acknowledging: bool = True  # whether its messages acknowledge, as its digests say
        self.frozen: bool = False  # whether it is a victim: what it sends no longer acknowledges
        # Stability. It has acknowledged its newest adopted digest (`told`), if that is newer than its last delivered
        # message (`last`); otherwise that message and its past. `covers` are bits (`engine.causal_past`) of that: all
        # in the second case, some in the first.
        self.told: Vector | None = None
        self.last: Tag | None = None
        self.covers: int = 0
        # Its own messages as of the newest of these or `aside`, and the sum of that digest's counters.
        self.sent_then: int = 0
        self.weight: int = 0
        self.aside: Vector | None = None  # its newest digest, while it may not be adopted yet
        # Pacing
        self.linked: bool = False
        self.linked_at: int = 0
        self.mark: int = 0  # what was stored up to this place never went out on this link
        self.acknowledged: int = 0
        # Ticks until an own message was acknowledged: rises at once, falls slowly.
        self.delay: float = 0.0
        # Ticks after which an unacknowledged message counts as lost.
        self.hold: int = HOLD_MIN
        self.sent: dict[str, int] = {}
        self.sent_before: dict[str, int] = {}
        self.resend_at: int = 0
        # The vector that it reported, if there is more to send again than went out.
        self.repairing: Vector | None = None
        # Origin of which it lacked something at its last digest -> how much it had when messages of others last brought
        # it forward, and the tick of that.
        self.progress: dict[str, tuple[int, int]] = {}
        self.told_at: int = 0
        self.batches: int = 0
        self.backoff: int = HOLD_MIN
        self.ask_at: int = 0
        self.ask_delay: int = HOLD_MIN

    @property
    def row(self) -> Vector | None:
        """What it is known to have delivered before all of it that is still to come; None if nothing is known."""
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
        """Take a newer row."""
        self.told = row
        self.last = None

    def forget_row(self) -> None:
        """Nothing that it has reported so far counts."""
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
        """What it has reported last, whether or not that counts for stability."""
        return self.row if self.aside is None else self.aside
