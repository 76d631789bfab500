"""What a node remembers of each other member, linked or not, and how it shows that."""

from dataclasses import dataclass

import trio

from crdtcast.backoff import Backoff
from crdtcast.link import Traffic
from crdtcast.options import Address, format_address


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One peer, for status output. `since` is seconds in this state; `error` is the last trouble,
    None when up.
    """

    state: str
    since: float
    address: str
    incarnation: str | None
    error: str | None
    bytes_sent: int
    bytes_received: int
    queued_bytes: int
    dropped_frames: int
    reconnects: int


class Peer:
    """What a node keeps of one other member, or of one address whose member is not known yet."""

    def __init__(self, name: str | None, address: Address | None, backoff: Backoff) -> None:
        self.name = name
        self.address = address
        self.backoff = backoff
        self.state = "down"
        self.since = trio.current_time()
        self.error: str | None = None
        self.times_up = 0
        self.traffic = Traffic()
        self.changed = trio.lowlevel.ParkingLot()
        self.nudged = trio.Event()

    @property
    def label(self) -> str:
        return self.name or format_address(self.address)

    def turn(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, trio.current_time()
        self.changed.unpark_all()

    def nudge(self) -> None:
        """Dial now, whatever the back-off says."""
        self.backoff.reset()
        self.nudged.set()
        self.nudged = trio.Event()
        self.changed.unpark_all()
