"""A group of replicas of one object, in memory, in one thread: causal broadcast reduced to its definition.

No engine, no network, nothing random: the test decides what is issued, delivered and stabilised, and the group allows
only what causal delivery allows. Stability comes as early as its definition permits, which is earlier than any real
middleware could know it. So a type that forgets too much is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgpack

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.pure import PureOpCRDT
from crdtcast.datatypes.site import Site

C = TypeVar("C", bound=PureOpCRDT[Any])


@dataclass(frozen=True, slots=True)
class Call:
    """An operation as its caller writes it: `Call("add", "milk")`."""

    name: str
    args: tuple[Any, ...]

    def __init__(self, name: str, *args: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "args", args)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True, slots=True, eq=False)
class VisibleOperation:
    """An operation that a replica has delivered; `a < b` says that a happened before b.

    name, args: as issued, with defaults filled in and collections as lists.
    index: its place in its message, before `compress`.
    sent: its place in the sent message (the identity of a list element contains it); None if `compress` changed it.
    """

    name: str
    args: tuple[Any, ...]
    tag: Tag
    index: int
    sent: int | None = None

    def __lt__(self, other: "VisibleOperation") -> bool:
        if self.tag.dot == other.tag.dot:
            return self.index < other.index
        return self.tag < other.tag

    def concurrent(self, other: "VisibleOperation") -> bool:
        """Neither before nor after `other`, and not the same operation."""
        return self is not other and not self < other and not other < self

    def __repr__(self) -> str:
        return f"{Call(self.name, *self.args)!r}@{self.tag.dot}.{self.index}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the group: its tag, its operations as sent (packed, as over a wire), and its operations before
    `compress`.
    """

    tag: Tag
    payload: bytes
    meant: bytes

    def operations(self) -> list[list[Any]]:
        return _unpacked(self.payload)

    def visible(self) -> list["VisibleOperation"]:
        """The operations that a specification sees: those before `compress`."""
        # From the end: of equal operations, `compress` drops the earlier ones.
        unmatched = list(enumerate(self.operations()))[::-1]
        visible: list[VisibleOperation] = []
        for index, operation in reversed(list(enumerate(_unpacked(self.meant)))):
            found = next((pair for pair in unmatched if pair[1] == operation), None)
            if found is not None:
                unmatched.remove(found)
            sent = None if found is None else found[0]
            name, *args = operation
            visible.append(VisibleOperation(name, tuple(args), self.tag, index, sent))
        return visible[::-1]


def _unpacked(payload: bytes) -> list[list[Any]]:
    unpacked: list[list[Any]] = msgpack.unpackb(payload)
    return unpacked


class ModelReplica(Generic[C]):
    """One replica: its object, its vector, its delivered operations, and its messages that are not stable yet."""

    __slots__ = ("crdt", "name", "unstable", "vector", "visible")

    def __init__(self, name: str, crdt: C) -> None:
        self.name: str = name
        self.crdt: C = crdt
        self.vector: dict[str, int] = {}
        self.visible: list[VisibleOperation] = []
        self.unstable: list[Sent] = []


class Group(Generic[C]):
    """`size` replicas of one object, named a, b, c, …"""

    def __init__(self, crdt: type[C], size: int = 3) -> None:
        self.members: list[ModelReplica[C]] = [
            ModelReplica(chr(ord("a") + number), crdt()) for number in range(size)
        ]
        # Clocks that stand still turn the hybrid clock into a Lamport clock: it shows only
        # causality, and has many equal times.
        for member in self.members:
            member.crdt.site = Site(member.name, HLC(lambda: 0))
        self._sent: dict[str, list[Sent]] = {member.name: [] for member in self.members}

    def issue(
        self, member: ModelReplica[C], calls: Sequence[Call], *, compressed: bool = False
    ) -> Sent:
        """Prepare the calls at a member, send them as one message, and deliver it there.

        compressed: send the type's `compress` of them, which must mean the same.
        Raises InvalidOperationError, and sends nothing, if the type refuses one of them.
        """
        operations: list[list[Any]] = []
        for call in calls:
            operations.append(member.crdt.prepare(call.name, *call.args, after=operations))
        dot = Dot(member.name, len(self._sent[member.name]) + 1)
        sent = member.crdt.compressed(operations) if compressed else operations
        tag = Tag(dot, (), dict(member.vector))
        message = Sent(tag, msgpack.packb(sent), msgpack.packb(operations))
        self._sent[member.name].append(message)
        self.deliver(member, message)
        return message

    def deliverable(self, member: ModelReplica[C]) -> list[Sent]:
        """The next message of each other origin, if all its dependencies are delivered."""
        ready: list[Sent] = []
        for origin, messages in self._sent.items():
            delivered = member.vector.get(origin, 0)
            if delivered < len(messages):
                past = messages[delivered].tag.past
                if all(member.vector.get(name, 0) >= counter for name, counter in past.items()):
                    ready.append(messages[delivered])
        return ready

    def deliver(self, member: ModelReplica[C], message: Sent) -> None:
        """Apply a deliverable message at a member."""
        tag = message.tag
        for index, operation in enumerate(message.operations()):
            member.crdt.effect(operation, tag, index)
        member.visible.extend(message.visible())
        member.vector[tag.dot.origin] = tag.dot.counter
        member.unstable.append(message)

    def can_stabilise(self, member: ModelReplica[C]) -> list[Sent]:
        """The messages that are stable at a member, by definition, and not reported to it yet; in delivery order.

        A message is stable at a member when it cannot deliver a concurrent one any more: every member has delivered it
        (so all later messages depend on it), and all messages on their way to this member depend on it.
        """
        everywhere = {
            origin: min(other.vector.get(origin, 0) for other in self.members)
            for origin in self._sent
        }
        on_its_way = [
            message
            for origin, messages in self._sent.items()
            for message in messages[member.vector.get(origin, 0) :]
        ]
        return [
            message
            for message in member.unstable
            if everywhere[message.tag.dot.origin] >= message.tag.dot.counter
            and all(message.tag < other.tag for other in on_its_way)
        ]

    def stabilise(self, member: ModelReplica[C], messages: Sequence[Sent]) -> None:
        """Report messages of `can_stabilise` as stable: a prefix of it, or all."""
        for message in messages:
            member.crdt.stable(message.tag)
            member.unstable.remove(message)

    def deliver_all(self) -> None:
        """Deliver all messages on their way, at every member."""
        for member in self.members:
            while ready := self.deliverable(member):
                self.deliver(member, ready[0])
