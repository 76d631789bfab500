"""The causal broadcast of one incarnation in a group with a fixed set of member names, whose processes come back.

It knows no sockets, clock or randomness. A name that comes back under a new incarnation supersedes its old one:
docs/protocol.md, *A fixed set of names*, gives the rules and reasons. Members that come and go: `engine.group`.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from crdtcast.causality.member_id import name_of, valid_incarnation
from crdtcast.causality.messages import Digest, Message
from crdtcast.causality.tags import Vector
from crdtcast.engine.checks import check_digest, check_message, superseded
from crdtcast.engine.core import Core
from crdtcast.engine.digest_vector import Told
from crdtcast.engine.members import Members
from crdtcast.engine.peer import Peer
from crdtcast.engine.state import Durability, EngineCounters, EngineState
from crdtcast.engine.superseded_rows import NamedRows
from crdtcast.exceptions import (
    ConfigurationError,
    HandshakeError,
    LocalProtocolError,
    RemoteProtocolError,
)


class Engine(Core):
    """The causal broadcast of one incarnation in a group with a fixed set of member names.

    me: own incarnation id. names: names of all members, the own one included.
    state: what a former life has saved, under the same incarnation (only if its journal is provably intact) or under
        a new one of the same name; None for a first start.
    durable: what digests may report, see `Durability`.

    Raises ConfigurationError if the names or the state do not fit.
    """

    stability_type: ClassVar[type[NamedRows]] = NamedRows
    told_type: ClassVar[type[Told]] = Told

    _stability: NamedRows
    _told: Told

    def __init__(
        self,
        me: str,
        names: Iterable[str],
        *,
        state: EngineState | None = None,
        durable: Durability = Durability.IMMEDIATE,
    ) -> None:
        self._members = members = Members(me, names)
        resumed = state is not None and state.vector.get(me, 0) == state.counter
        state = state or EngineState()
        self._learn_saved(me, state)
        vector = {**state.vector, me: state.vector.get(me, 0)}
        peers = {peer: Peer(peer) for peer in members.current.values() if peer != me}
        told = self.told_type(vector, members, durable)
        stability = self.stability_type(vector, members, peers, state.stable)
        stability.messages_acknowledge = durable is Durability.IMMEDIATE
        super().__init__(me, state, vector, told, peers, stability, resumed=resumed)
        self.durability = durable
        self._recovering = False
        self._superseded = 0

    def _learn_saved(self, me: str, state: EngineState) -> None:
        members = self._members
        for incarnation in state.vector:
            if name_of(incarnation) not in members.names or not valid_incarnation(incarnation):
                raise ConfigurationError(
                    f"the saved state has {incarnation}, which is not a member of this group "
                    f"({', '.join(members.names)})"
                )
        for incarnation in sorted({*state.vector, me}):
            members.learn(incarnation)
        if members.current[members.name] != me:
            raise ConfigurationError(
                f"the saved state has {members.current[members.name]}, a later incarnation than "
                f"{me}: start under a new one"
            )
        if state.vector.get(me, state.counter) != state.counter:
            raise ConfigurationError(
                f"the saved state is inconsistent: it has delivered {state.vector[me]} of "
                f"{state.counter} own messages"
            )

    # Members and links

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._members.names

    @property
    def members(self) -> dict[str, str]:
        """Name -> current incarnation, for every name of which one is known."""
        return dict(self._members.current)

    def introduce(self, incarnation: str) -> bool:
        """Make a peer known, from its handshake. Returns whether it is the current incarnation of its name.

        A newer incarnation supersedes the one known so far, which then has ended. If a newer one is known, this one has
        ended. Raises HandshakeError if the name is not in the group or the id is this engine's own, and SupersededError
        if it is a newer incarnation of the own name.
        """
        members = self._members
        name = name_of(incarnation)
        if name not in members.names or not valid_incarnation(incarnation):
            raise HandshakeError(
                f"{incarnation!r} is not a member of this group ({', '.join(members.names)}): "
                "give all nodes the same list of names"
            )
        if incarnation == self.me:
            raise HandshakeError(
                f"{incarnation} is this node itself: remove its own address from its peers"
            )
        if members.is_newer(incarnation):
            self._learn(incarnation)
            return True
        return members.current[name] == incarnation

    def _learn(self, incarnation: str) -> None:
        """A newer incarnation is current: what it supersedes has ended, everywhere, from now on.

        Nothing more is taken from an ended one. Undelivered messages of ended ones are dropped, since only what some
        current member has *delivered* of them is certain to reach all. Rows are valid again once they name the new one.
        """
        members, vector = self._members, self.vector
        if name_of(incarnation) == members.name:
            raise superseded(self.me, incarnation)
        previous = members.learn(incarnation)
        vector.setdefault(incarnation, 0)
        name = name_of(incarnation)
        taken = {origin: vector[origin] for origin in members.ended if name_of(origin) == name}
        self._told.name_after(incarnation, taken)
        if previous is not None:
            self._superseded += 1
            self._told.unnamed.pop(previous, None)
            if self._peers.pop(previous, None) is not None and previous in self._greet:
                self._greet.remove(previous)
            self._purge_ended()
        self._peers[incarnation] = Peer(incarnation)
        self._stability.forget_rows()

    def _purge_ended(self) -> None:
        recovered = self._told.unnamed.get(self.me, {}) if self._recovering else {}
        self._purged += self._inbox.purge_all(self._members.ended, recovered)

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up: send it our vector, and repair it as soon as it has sent its own."""
        known = self._peers.get(peer)
        if known is not None:
            self._link_up(known)
        elif not self._is_ended(peer):
            raise LocalProtocolError(f"{peer} is connected but was not introduced")

    def disconnected(self, peer: str) -> None:
        """The link with this incarnation is gone; what was sent on it may be lost."""
        known = self._peers.get(peer)
        if known is not None:
            self._link_down(known)

    def _is_ended(self, incarnation: str) -> bool:
        current = self._members.current.get(name_of(incarnation))
        return current is not None and incarnation < current

    # Receiving

    def receive(self, sender: str, message: Message | Digest) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, RolledBackError if the peer remembers more of this
        incarnation than it does itself, SupersededError if the peer knows a later one; the state is unchanged then.
        What comes from an ended incarnation is ignored.
        """
        peer = self._peers.get(sender)
        try:
            if peer is None:
                self._receive_from_outside(sender, message)
            elif type(message) is Message:
                try:
                    self._receive_message(sender, message)
                except TypeError:
                    raise RemoteProtocolError(
                        f"{message.dot} has fields of the wrong type"
                    ) from None
            elif type(message) is Digest:
                self._receive_digest(peer, message)
            else:
                raise RemoteProtocolError(f"{message!r:.200} is not a message or digest")
        except RemoteProtocolError as error:
            self.blames.refuse(sender, error)

    def _receive_from_outside(self, sender: str, message: Message | Digest) -> None:
        if name_of(sender) == self._members.name and sender < self.me and type(message) is Message:
            self._recover(sender, message)
        elif self._is_ended(sender):
            self._stale += 1
        else:
            raise LocalProtocolError(f"{sender} is received from but was not introduced")

    def _receive_early(self, sender: str, message: Message) -> bool:
        if message.dot[0] != self.me and self._inbox.follow(message):
            return True
        self._check_message(sender, message)
        if message.dot.origin not in self.vector:
            self._meet(message.dot.origin)
        return self._inbox.add(message, sender)

    def _check_message(self, sender: str, message: Message) -> None:
        checked, resumed = self._members.checked, self.resumed
        check_message(sender, message, self.vector, self.me, checked, resumed=resumed)

    def _meet(self, incarnation: str) -> None:
        """Learn of an incarnation through others."""
        if self._members.is_newer(incarnation):
            self._learn(incarnation)
        else:
            self._members.add_ended(incarnation)
            self.vector.setdefault(incarnation, 0)
            self._told.cache = None

    def _recover(self, sender: str, message: Message) -> None:
        """Take over what an ended incarnation of this name still had in memory, though not in its journal.

        Only before the first digest: those that follow must cover it (see `engine.digest_vector`), as none may rely on
        this member's vector while it can still deliver something from outside the group.
        """
        origin, counter = message.dot
        if self.vector.get(origin, 0) >= counter:
            self._duplicates += 1
            return
        if self._digests_out or origin == self.me:
            self._stale += 1
            return
        self._check_message(sender, message)
        if origin not in self.vector:
            self._meet(origin)
        self._inbox.add(message, sender)
        self._recovering = True
        self._told.name_after(self.me, {origin: counter})

    # Digests

    def _receive_digest(self, peer: Peer, digest: Digest) -> None:
        vector = digest.vector
        weight = check_digest(
            peer,
            digest,
            self.vector,
            self._stability.stable,
            self._members,
            resumed=self.resumed,
        )
        self._digests_in += 1
        if len(vector) != peer.known_width:
            for incarnation in self._unmet(vector):
                self._meet(incarnation)  # the newest first: what it has superseded is only noted
            if self._peers.get(peer.incarnation) is not peer:
                # A newer incarnation of the sender's own name was among them: the sender has ended.
                self._stale += 1
                return
            peer.known_width = len(vector)
        peer.met = True
        peer.acknowledging = digest.acknowledging
        self._take_digest(peer, digest, weight)

    def _unmet(self, vector: Vector) -> list[str]:
        """Unknown incarnations in it that matter: current ones, and ended ones that have sent. The newest first."""
        return sorted(
            (
                incarnation
                for incarnation, counter in vector.items()
                if incarnation not in self.vector
                and (counter or self._members.is_newer(incarnation))
            ),
            reverse=True,
        )

    def _may_tell(self) -> bool:
        if self._recovering:
            if self._inbox.has_deliverable():
                return False
            self._recovering = False
            if self._inbox.size:
                # What is left depends on messages that this member lacks: the group repairs it, if any member has it.
                for origin in self.vector:
                    self._purged += self._inbox.purge(origin)
                self._told.give_up(self.me)
        return super()._may_tell()

    def mark_durable(self, vector: Vector) -> None:
        """Declare what has been synced: a vector that this engine's `vector` was at some time (DECLARED only).

        An older one than declared before changes nothing. Raises LocalProtocolError for one beyond `vector`.
        """
        self._told.declare(vector)
        self._evaluate_now = True

    def counters(self) -> EngineCounters:
        """Gauges and totals; see `EngineCounters`."""
        return replace(super().counters(), superseded=self._superseded)
