"""What a node remembers of each other member, linked or not, and how it shows that."""

import random
from dataclasses import dataclass

import trio

from crdtcast.backoff import Backoff
from crdtcast.transport.link import Link, Traffic
from crdtcast.transport.options import Address, NodeOptions, format_address


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One peer, for status output. `since` is the seconds in this state; `error` is the last problem, None when up."""

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
        self.born = self.since = trio.current_time()
        self.error: str | None = None
        self.times_up = 0
        self.traffic = Traffic()
        self.changed = trio.lowlevel.ParkingLot()
        self.nudged = trio.Event()

    @property
    def label(self) -> str:
        return self.name or format_address(self.address)

    def at(self, place: str) -> str:
        """The label, and where that is, for people."""
        return place if place == self.label else f"{self.label} at {place}"

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


class PeerTable:
    """What a node knows of its peers: where they are dialled, and the links that are up.

    up: by the peer's name. dialled: those whom somebody keeps dialling. cut_names: those with whom the
        operator wants no link.
    """

    def __init__(self, options: NodeOptions) -> None:
        self.up: dict[str, Link] = {}
        self.dialled: list[Peer] = []
        self.cut_names = set(options.cut)
        self._options = options
        self._rng = random.Random(options.seed)
        self._peers: dict[str, Peer] = {}
        for name, address in options.named_peers.items():
            self._peers[name] = peer = self._new_peer(name, address)
            if address is not None:
                self.dialled.append(peer)
        if not options.named_peers:
            self.dialled += [self._new_peer(None, address) for address in options.addresses]

    def _turn(self, peer: Peer, state: str) -> None:
        """A cut outlasts an attempt that was under way when it came."""
        peer.turn("cut" if peer.name in self.cut_names else state)

    def _new_peer(self, name: str | None, address: Address | None) -> Peer:
        backoff = Backoff(self._rng, self._options.retry_first, self._options.retry_longest)
        peer = Peer(name, address, backoff)
        if name in self.cut_names:
            peer.state = "cut"
        return peer

    def peer(self, name: str) -> Peer:
        """The record of `name`, made at need: members may dial us whose address we do not know."""
        if name not in self._peers:
            self._peers[name] = self._new_peer(name, None)
        return self._peers[name]

    def set_address(self, name: str, address: Address) -> Peer | None:
        """Where `name` can be dialled from now on. A peer for which nobody dials yet is
        returned.
        """
        peer = self.peer(name)
        peer.address = address
        if peer in self.dialled:
            peer.nudge()
            return None
        self.dialled.append(peer)
        return peer

    def add_address(self, address: Address) -> Peer:
        """Dial whoever is at `address` from now on; the caller runs `keep_linked`."""
        peer = self._new_peer(None, address)
        self.dialled.append(peer)
        return peer

    def forget(self, name: str) -> None:
        """Dial `name` no more. A link that is up stays."""
        for peer in [peer for peer in self.dialled if peer.name == name]:
            self.dialled.remove(peer)
            peer.nudge()
            self.peer(name).changed.unpark_all()

    def _learn_name(self, dialled: Peer, name: str) -> None:
        """Who is at an address that was given without a name. It may have dialled us before."""
        dialled.name = name
        known = self._peers.get(name)
        if known is None:
            dialled.turn(dialled.state)
            self._peers[name] = dialled
        elif known.address is None:
            known.address = dialled.address

    def status(self) -> dict[str, LinkStatus]:
        """Per member name (or address, while its name is unknown)."""
        now = trio.current_time()
        records = dict(self._peers)
        records.update((p.label, p) for p in self.dialled if p.name not in self._peers)
        result = {}
        for label, peer in sorted(records.items()):
            link = self.up.get(label)
            result[label] = LinkStatus(
                state=peer.state,
                since=now - peer.since,
                address=format_address(peer.address),
                incarnation=link.incarnation if link else None,
                error=None if link else peer.error,
                bytes_sent=sum(peer.traffic.sent_bytes.values()),
                bytes_received=peer.traffic.received_bytes,
                queued_bytes=link.queue.queued_bytes if link else 0,
                dropped_frames=peer.traffic.dropped_frames,
                reconnects=max(0, peer.times_up - 1),
            )
        return result

    def traffic(self, name: str) -> Traffic:
        """What was exchanged with `name`, over all its connections."""
        return self.peer(name).traffic
