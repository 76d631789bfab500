"""What a node keeps about each other member, linked or not, and the status that it shows."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import trio

from crdtcast.backoff import Backoff
from crdtcast.phases import Lifecycle
from crdtcast.transport.link import Link, Traffic
from crdtcast.transport.options import Address, NodeOptions, format_address


class LinkPhase(StrEnum):
    """The state of the link with a member; the values are the words of status output."""

    DOWN = "down"
    DIALLING = "dialling"
    UP = "up"
    REFUSED = "refused"
    CUT = "cut"


class LinkEvent(StrEnum):
    """What moves a link. An attempt of ours to connect ends by LINK, FAIL or REFUSE."""

    DIAL = "attempt begins"
    LINK = "linked, by either side"
    FAIL = "attempt failed"
    REFUSE = "attempt refused for long"
    LOSE = "connection ended"
    CUT = "operator cuts"
    HEAL = "operator heals"


TRANSITIONS: Mapping[tuple[LinkPhase, LinkEvent], LinkPhase] = {
    (LinkPhase.DOWN, LinkEvent.DIAL): LinkPhase.DIALLING,
    (LinkPhase.DOWN, LinkEvent.LINK): LinkPhase.UP,
    (LinkPhase.DOWN, LinkEvent.FAIL): LinkPhase.DOWN,
    (LinkPhase.DOWN, LinkEvent.REFUSE): LinkPhase.REFUSED,
    (LinkPhase.DOWN, LinkEvent.CUT): LinkPhase.CUT,
    # A member may have two addresses: one attempt begins while the other one is under way.
    (LinkPhase.DIALLING, LinkEvent.DIAL): LinkPhase.DIALLING,
    (LinkPhase.DIALLING, LinkEvent.LINK): LinkPhase.UP,
    (LinkPhase.DIALLING, LinkEvent.FAIL): LinkPhase.DOWN,
    (LinkPhase.DIALLING, LinkEvent.REFUSE): LinkPhase.REFUSED,
    (LinkPhase.DIALLING, LinkEvent.CUT): LinkPhase.CUT,
    (LinkPhase.REFUSED, LinkEvent.DIAL): LinkPhase.DIALLING,
    (LinkPhase.REFUSED, LinkEvent.LINK): LinkPhase.UP,
    (LinkPhase.REFUSED, LinkEvent.FAIL): LinkPhase.DOWN,
    (LinkPhase.REFUSED, LinkEvent.REFUSE): LinkPhase.REFUSED,
    (LinkPhase.REFUSED, LinkEvent.CUT): LinkPhase.CUT,
    # The peer's own attempt was faster, so the end of ours does not matter.
    (LinkPhase.UP, LinkEvent.FAIL): LinkPhase.UP,
    (LinkPhase.UP, LinkEvent.REFUSE): LinkPhase.UP,
    (LinkPhase.UP, LinkEvent.LOSE): LinkPhase.DOWN,
    (LinkPhase.UP, LinkEvent.CUT): LinkPhase.CUT,
    # A cut outlasts an attempt that was already under way.
    (LinkPhase.CUT, LinkEvent.FAIL): LinkPhase.CUT,
    (LinkPhase.CUT, LinkEvent.REFUSE): LinkPhase.CUT,
    (LinkPhase.CUT, LinkEvent.CUT): LinkPhase.CUT,
    (LinkPhase.CUT, LinkEvent.HEAL): LinkPhase.DOWN,
}


class LinkLife(Lifecycle[LinkPhase, LinkEvent]):
    """The link with one member, over all its connections, at whichever of its addresses.

    since: the time of the last change of phase.
    error: the last problem, None when up.
    changed: unparks its waiters after each event.
    """

    def __init__(self, start: LinkPhase) -> None:
        super().__init__(TRANSITIONS, start)
        self.since: float = trio.current_time()
        self.error: str | None = None
        self.changed: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()

    def move(self, event: LinkEvent, error: str | None = None) -> LinkPhase:
        """See `Lifecycle.move`. error: the problem, if there is one."""
        before, after = self.phase, super().move(event)
        if after is not before:
            self.since = trio.current_time()
        if after is LinkPhase.UP:
            self.error = None
        elif error is not None:
            self.error = error
        self.changed.unpark_all()
        return after


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One peer, for status output. `since` is the seconds in this state; `error` is the last problem, None when up.

    dropped_whispers: those of a group's member to the peer, and the peer's, that made room for later ones.
    """

    state: LinkPhase
    since: float
    address: str
    incarnation: str | None
    error: str | None
    bytes_sent: int
    bytes_received: int
    queued_bytes: int
    dropped_frames: int
    reconnects: int
    dropped_whispers: int = 0


class LinkPeer:
    """What a node keeps about one other member, or about one address whose member is not known yet."""

    def __init__(
        self, name: str | None, address: Address | None, backoff: Backoff, life: LinkLife
    ) -> None:
        self.name = name
        self.address = address
        self.backoff = backoff
        self.life = life
        self.unlinked_since: float = trio.current_time()
        self.times_up = 0
        self.rival: str = ""
        """Why this peer refuses this node, if another running process has its name."""
        self.traffic: Traffic = Traffic()
        self.nudged: trio.Event = trio.Event()

    @property
    def label(self) -> str:
        return self.name or format_address(self.address)

    def at(self, place: str) -> str:
        """The label and the place, for people."""
        return place if place == self.label else f"{self.label} at {place}"

    def nudge(self) -> None:
        """Dial now, in spite of the back-off."""
        self.backoff.reset()
        self.nudged.set()
        self.nudged = trio.Event()
        self.life.changed.unpark_all()


class PeerTable:
    """What a node knows about its peers: their addresses, and the links that are up.

    up: links by the peer's name.
    dialled: peers for which a task of `keep_linked` runs.
    """

    def __init__(self, options: NodeOptions) -> None:
        self.up: dict[str, Link] = {}
        self.dialled: list[LinkPeer] = []
        self._options = options
        self._rng = random.Random(options.seed)
        self._peers: dict[str, LinkPeer] = {}
        for name, address in options.named_peers.items():
            self._peers[name] = peer = self._new_peer(name, address)
            if address is not None:
                self.dialled.append(peer)
        if not options.named_peers:
            self.dialled += [self._new_peer(None, address) for address in options.addresses]

    def _new_peer(self, name: str | None, address: Address | None) -> LinkPeer:
        backoff = Backoff(self._rng, self._options.retry_first, self._options.retry_longest)
        start = LinkPhase.CUT if name in self._options.cut else LinkPhase.DOWN
        return LinkPeer(name, address, backoff, LinkLife(start))

    def _is_cut(self, name: str) -> bool:
        """Whether an operator has cut the link with `name`, which may be unknown so far."""
        peer = self._peers.get(name)
        return name in self._options.cut if peer is None else peer.life.phase is LinkPhase.CUT

    def peer(self, name: str) -> LinkPeer:
        """The record of `name`, created if needed: members may dial us whose address we do not know."""
        if name not in self._peers:
            self._peers[name] = self._new_peer(name, None)
        return self._peers[name]

    def set_address(self, name: str, address: Address) -> LinkPeer | None:
        """Set the address at which `name` is dialled from now on. Returns the peer if no task dials it yet."""
        peer = self.peer(name)
        peer.address = address
        if peer in self.dialled:
            peer.nudge()
            return None
        self.dialled.append(peer)
        return peer

    def forget(self, name: str) -> None:
        """Stop dialling `name`. A link that is up stays."""
        for peer in [peer for peer in self.dialled if peer.name == name]:
            self.dialled.remove(peer)
            peer.nudge()

    def _learn_name(self, dialled: LinkPeer, name: str) -> None:
        """Set the name of a peer whose address was given without one. That member may have dialled us before."""
        dialled.name = name
        known = self._peers.get(name)
        if known is None:
            self._peers[name] = dialled
            return
        dialled.life = known.life
        if known.address is None:
            known.address = dialled.address

    def rivals(self) -> list[str]:
        """Refusals of peers that are linked with another running process of this node's name."""
        peers = {*self._peers.values(), *self.dialled}
        return sorted({peer.rival for peer in peers if peer.rival})

    def status(self) -> dict[str, LinkStatus]:
        """By member name, or by address while the name is unknown."""
        now = trio.current_time()
        records = dict(self._peers)
        records.update((p.label, p) for p in self.dialled if p.name not in self._peers)
        result = {}
        for label, peer in sorted(records.items()):
            link = self.up.get(label)
            result[label] = LinkStatus(
                state=peer.life.phase,
                since=now - peer.life.since,
                address=format_address(peer.address),
                incarnation=link.incarnation if link else None,
                error=peer.life.error,
                bytes_sent=sum(peer.traffic.sent_bytes.values()),
                bytes_received=peer.traffic.received_bytes,
                queued_bytes=link.queue.queued_bytes if link else 0,
                dropped_frames=peer.traffic.dropped_frames,
                reconnects=max(0, peer.times_up - 1),
            )
        return result

    def traffic(self, name: str) -> Traffic:
        """The traffic with `name`, over all its connections."""
        return self.peer(name).traffic
