"""What an engine knows of one other incarnation: its rows, and how repair and asking towards it are paced.

Time is counted in ticks of the engine. A message counts as lost only after `hold` ticks, learned from how long the
peer takes to acknowledge; what was repaired is repaired again only if a whole round later the peer still lacks it.
"""

from crdtcast.tags import Vector

HOLD_MIN = 3
HOLD_MAX = 20
BACKOFF_MAX = 32


class Peer:
    """One current incarnation of another member. Plain state; the rules are in the modules that use it."""

    __slots__ = (
        "acknowledged",
        "adopted_as",
        "aside",
        "ask_at",
        "ask_delay",
        "backoff",
        "batches",
        "columns",
        "delay",
        "incarnation",
        "known_width",
        "linked",
        "linked_at",
        "mark",
        "met",
        "named",
        "repairing",
        "resend_at",
        "row",
        "sent",
        "sent_before",
        "weight",
    )

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.met = False  # whether a digest of it has been seen
        self.known_width = 0  # number of keys of its largest vector that was checked
        # Stability: the vector in use, the same as a tuple in the order of the engine's vector, the one put aside.
        self.named = (
            -1
        )  # the change of members up to which its digests name all current incarnations
        self.weight = 0  # sum of the newest vector's counters
        self.row: Vector | None = None
        self.columns: tuple[int, ...] = ()
        self.adopted_as = 0  # place of its row among all rows ever taken
        self.aside: Vector | None = None
        # Pacing
        self.linked = False
        self.linked_at = 0
        self.mark = 0  # what was stored up to this place never went out on this link
        self.acknowledged = 0
        self.delay = 0.0  # ticks until an own message was acknowledged: rises at once, falls slowly
        self.sent: dict[str, int] = {}
        self.sent_before: dict[str, int] = {}
        self.resend_at = 0
        self.repairing: Vector | None = (
            None  # what it told; there is more to send again than went out
        )
        self.batches = 0
        self.backoff = HOLD_MIN
        self.ask_at = 0
        self.ask_delay = HOLD_MIN

    @property
    def hold(self) -> int:
        """Ticks after which an unacknowledged message may be taken for lost."""
        return min(int(self.delay) + HOLD_MIN, HOLD_MAX)

    def link_up(self, tick: int, sequence: int) -> None:
        """A fresh link: nothing is in flight on it, and everything stored up to `sequence` may be missing."""
        self.linked = True
        self.linked_at = tick
        self.mark = sequence
        self.sent.clear()
        self.sent_before.clear()
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
