"""CBCAST: vector timestamps, a delay queue, and stability that each sender determines for its own messages.

K. Birman, A. Schiper, P. Stephenson, *Lightweight Causal and Atomic Group Multicast*, ACM TOCS 9(3), 1991; Younes 2023,
Algorithm 1. Repaired: docs/baselines.md, *CBCAST*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.baselines.ordering import DelayQueueEngine
from benchmarks.baselines.positions import VectorView
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class CbcastMessage:
    """One multicast. `vector` is its timestamp. The sender's messages up to `stable` are stable."""

    dot: Dot
    vector: tuple[int, ...]
    stable: int
    payload: bytes

    def wire_fields(self) -> list[Any]:
        """The fields on the wire; the counter of the dot is in the vector."""
        return [0, self.dot.origin, self.payload, self.stable, list(self.vector)]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """To one member: the sender has delivered its messages up to `counter`, and had sent `sent` messages before."""

    counter: int
    sent: int

    def wire_fields(self) -> list[Any]:
        """What has to travel; the link says who sent it."""
        return [1, self.counter, self.sent]


@dataclass(frozen=True, slots=True)
class StabilityNotice:
    """The sender's messages up to `stable` are stable at each member that has delivered `vector`."""

    stable: int
    vector: tuple[int, ...]

    def wire_fields(self) -> list[Any]:
        """What has to travel; the link says who sent it."""
        return [2, self.stable, list(self.vector)]


class CbcastEngine(DelayQueueEngine[CbcastMessage]):
    """CBCAST with the application's vector as timestamp, so that timestamps are exact end-to-end tags."""

    message_type = CbcastMessage

    def __init__(self, me: str, members: Sequence[str], *, stability: bool = True) -> None:
        super().__init__(me, members, stability=stability)
        self._told = [0] * self._size  # by origin: the last acknowledged message
        self._untold = False
        self._acknowledged = [0] * self._size  # by member: own messages known to be delivered there
        self._early_acknowledgements: dict[int, Acknowledgement] = {}
        self._own_stable = self._announced = 0
        self._stable = [0] * self._size  # by origin: the last released message
        self._early_notices: dict[int, StabilityNotice] = {}
        self._held_up: dict[int, set[int]] = {}  # missing origin -> members whose notices wait
        self._entries = 0

    def _fits(self, position: int, message: CbcastMessage) -> bool:
        return super()._fits(position, message) and message.stable < message.dot.counter

    def _stamp(self, dot: Dot, payload: bytes) -> CbcastMessage:
        return CbcastMessage(dot, tuple(self._delivered), self._own_stable, payload)

    def _tag(self, position: int, message: CbcastMessage) -> Tag:
        return Tag(message.dot, (), VectorView(self._positions, message.vector, position))

    def _note_sent(self, message: CbcastMessage, tag: Tag) -> None:
        # The timestamp acknowledges to every member its messages that this member has delivered.
        self._unstable.remember(tag)
        self._acknowledged[self._own] = message.dot.counter
        self._told = list(message.vector)
        self._untold = False
        self._announced = message.stable

    def _note_delivered(self, position: int, message: CbcastMessage, tag: Tag) -> None:
        self._unstable.remember(tag)
        self._untold = True
        self._acknowledge(position, message.vector[self._own])
        early = self._early_acknowledgements.get(position)
        if early is not None and early.sent <= self._delivered[position]:
            del self._early_acknowledgements[position]
            self._acknowledge(position, early.counter)
        self._announce(position, message.stable)
        if self._held_up:
            for member in sorted(self._held_up.pop(position, ())):
                self._take_notice(member, self._early_notices.pop(member))

    def tick(self) -> None:
        """The timer: acknowledge deliveries to their senders, and announce which own messages are stable."""
        if self._untold:
            self._untold = False
            sent = self._delivered[self._own]
            for position, counter in enumerate(self._delivered):
                if counter > self._told[position] and position != self._own:
                    acknowledgement = Acknowledgement(counter, sent)
                    member = self._positions.members[position]
                    self._outbox.append(Transmit(member, acknowledgement))
            self._told = list(self._delivered)
        if self._own_stable > self._announced:
            self._announced = self._own_stable
            notice = StabilityNotice(self._own_stable, tuple(self._delivered))
            self._outbox.append(Transmit(None, notice))

    def _owes(self) -> bool:
        return self._untold or self._own_stable > self._announced

    def _receive_control(self, position: int, message: Any) -> None:
        if type(message) is Acknowledgement and message.counter <= self._delivered[self._own]:
            if self._stability:
                self._take_acknowledgement(position, message)
        elif (
            type(message) is StabilityNotice
            and len(message.vector) == self._size
            and message.stable <= message.vector[position]
        ):
            if self._stability and message.stable > self._stable[position]:
                self._take_notice(position, message)
        else:
            raise RemoteProtocolError(
                f"{self._positions.members[position]} sent {message!r}, which is not a message, "
                "acknowledgement or notice"
            )

    def _take_acknowledgement(self, position: int, acknowledgement: Acknowledgement) -> None:
        """It counts when all that its sender had sent before it is delivered; until then the newest one waits.

        Otherwise a message sent before it, concurrent with the acknowledged one, could be delivered after the notice.
        """
        if acknowledgement.sent <= self._delivered[position]:
            self._acknowledge(position, acknowledgement.counter)
            return
        early = self._early_acknowledgements.get(position)
        if early is None or early.counter < acknowledgement.counter:
            self._early_acknowledgements[position] = acknowledgement

    def _acknowledge(self, position: int, counter: int) -> None:
        acknowledged = self._acknowledged
        old = acknowledged[position]
        if counter <= old:
            return
        acknowledged[position] = counter
        if old > self._own_stable:
            return
        self._entries += self._size
        least = min(acknowledged)
        if least > self._own_stable:
            self._own_stable = least
            self._announce(self._own, least)

    def _take_notice(self, position: int, notice: StabilityNotice) -> None:
        """It counts when all that its sender had delivered is delivered here; until then the newest one waits."""
        early = self._early_notices.get(position)
        if early is not None:
            if early.stable < notice.stable:
                self._early_notices[position] = notice  # it lacks at least what the older one lacks
            return
        for origin, counter in enumerate(notice.vector):
            if counter > self._delivered[origin]:
                self._entries += origin + 1
                self._early_notices[position] = notice
                self._held_up.setdefault(origin, set()).add(position)
                return
        self._entries += self._size
        self._announce(position, notice.stable)

    def _announce(self, position: int, counter: int) -> None:
        """The member's message is stable here, and so is its past: all later deliveries come after both."""
        if counter <= self._stable[position]:
            return
        tag = self._unstable.get(self._positions.members[position], counter)
        assert tag is not None and isinstance(tag.past, VectorView)
        self._entries += self._size
        stable = self._stable
        rose = [
            (origin, stable[origin], count)
            for origin, count in enumerate(tag.past.counters)
            if count > stable[origin]
        ]
        for origin, _, new in rose:
            stable[origin] = new
        self._unstable.release(rose)

    def _stability_words(self) -> int:
        return (
            3 * self._size  # told, acknowledged, stable
            + 3 * len(self._early_acknowledgements)
            + (2 + self._size) * len(self._early_notices)
            + sum(1 + len(members) for members in self._held_up.values())
        )

    def _stability_entries(self) -> int:
        return self._entries

    def _stability_structures(self) -> list[object]:
        return [
            self._told,
            self._acknowledged,
            self._stable,
            self._early_acknowledgements,
            self._early_notices,
            self._held_up,
        ]
